"""What tuning changed: the words of the place, failures, the paired table."""

import pandas as pd
import pytest

from parliabench_utils.models.generation import parliamentary_pairs, parliamentary_share, what_changed

HOUSE, PLAIN = (
    "My Lords, I thank the Minister and the noble Lord.",
    "People want lower bills and better buses in towns.",
)


def frame():
    rows = [
        ("a", "baseline", PLAIN, [], "length"), ("a", "fine-tuned", HOUSE, [], "stop"),
        ("b", "baseline", HOUSE, [["refusal"]], "stop"), ("b", "fine-tuned", HOUSE, [], "stop"),
        ("c", "baseline", None, [["repetition"]] * 3, "length"), ("c", "fine-tuned", HOUSE, [["refusal"]], "stop"),
    ]  # fmt: skip
    columns = ["prompt_id", "type", "generated_speech", "rejections", "finish_reason"]
    made = pd.DataFrame(rows, columns=columns).assign(model="m")
    return made.assign(n_words=made["generated_speech"].fillna("").str.split().str.len())


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        (HOUSE, 3),
        (PLAIN, 0),
        ("", 0),
        ("I thank my right hon. Friend, Mr Speaker.", 2),
        ("The house is hon and dry.", 0),
    ],
)
def test_phrases_of_the_chamber(text, phrases):
    assert parliamentary_share(text) == pytest.approx(100 * phrases / max(len(text.split()), 1))


def test_pairs_are_within_prompts():
    (row,) = parliamentary_pairs(frame(), ["a", "b"]).to_dict("records")
    assert (row["prompts"], row["more often"], row["less often"], row["equal"]) == (2, 1, 0, 1)
    assert row["fine-tuned"] > row["baseline"]
    assert parliamentary_pairs(frame().query("type == 'baseline'"), ["a"]).empty


def test_failures_are_of_all_prompts_and_manner_of_the_kept():
    human = frame().query("type == 'fine-tuned'")
    table = what_changed(frame(), human, ["a", "b"]).loc["m"]
    assert table.loc["first attempt rejected, share", "baseline"] == pytest.approx(2 / 3)
    assert table.loc["never valid, share", "baseline"] == pytest.approx(1 / 3)
    assert table.loc["speeches with one or more, share", "baseline"] == 0.5
    assert table.loc["words, median", "human"] == 10
    assert pd.isna(table.loc["never valid, share", "human"])


def test_nothing_kept_gives_no_numbers_and_no_error():
    assert what_changed(frame(), frame(), []).loc[("m", "words, median")].isna().all()
    assert parliamentary_pairs(frame(), []).empty
