"""Self-BLEU from arrays is notebook 05's, and its permutation test finds what is there and nothing else."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.self_bleu import self_bleu, signature
from parliabench_utils.results.compare import compare
from parliabench_utils.results.permutation import pool, self_bleu_of, self_bleu_test, settings_of

WORDS = np.array(
    ["the", "hon", "member", "asked", "about", "roads", "and", "schools", "in", "her", "town", "again", "today"]
)


def texts(n: int, rng: np.random.Generator, words: np.ndarray = WORDS) -> list[str]:
    return [" ".join(rng.choice(words, size=rng.integers(1, 40))) for _ in range(n)]


@pytest.mark.parametrize("max_n", [2, 4])
def test_values_are_notebook_05s(max_n):
    rng = np.random.default_rng(0)
    speeches, groups, side = texts(31, rng), rng.integers(0, 4, 31), rng.random(31) < 0.5
    groups[0], side[0] = 9, True  # alone
    found = self_bleu_of(pool(speeches, groups, max_n), side)
    wanted = self_bleu(speeches, [(int(g), bool(s)) for g, s in zip(groups, side, strict=True)], max_n)
    assert found == pytest.approx(wanted, abs=1e-12, nan_ok=True) and np.isnan(found[0])


def frame(base: list[str], tuned: list[str], group: list[str]) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"prompt_id": [f"p{i}" for i in range(len(t))], "variant": 0, "type": kind, "generated_speech": t})
        for kind, t in (("baseline", base), ("fine-tuned", tuned))
    ]
    made = pd.concat([part.assign(context_id=group) for part in parts], ignore_index=True).assign(model="m")
    keys = list(zip(made["type"], made["context_id"], strict=True))
    return made.assign(**{"Self-BLEU": self_bleu(made["generated_speech"].tolist(), keys)})


@pytest.mark.parametrize(("group", "unit"), [("model", "prompt"), ("context", "group")])
def test_more_repetition_is_found_by_either_way(group, unit):
    rng = np.random.default_rng(1)
    contexts = [f"c{i % 25}" for i in range(75)] if group == "context" else ["c"] * 20
    base, tuned = texts(len(contexts), rng), texts(len(contexts), rng, WORDS[:4])
    row = self_bleu_test(frame(base, tuned, contexts), group, draws=400, seed=3).iloc[0]
    assert row["unit"] == unit and row["difference"] > 0.1 and row["p"] == pytest.approx(1 / 401)


def test_p_is_even_where_types_do_not_differ():
    rng = np.random.default_rng(2)
    p = [
        self_bleu_test(frame(texts(8, rng), texts(8, rng), ["c"] * 8), "model", draws=40, seed=i)["p"].iloc[0]
        for i in range(40)
    ]
    assert 0.3 < np.mean(p) < 0.7 and np.mean(np.array(p) < 0.1) < 0.25


def test_the_same_seed_gives_the_same_p():
    rng = np.random.default_rng(4)
    rows = frame(texts(9, rng), texts(9, rng), ["c"] * 9)
    first, again = (self_bleu_test(rows, draws=50, seed=5) for _ in range(2))
    assert first.equals(again)


def test_nothing_to_change_places_is_nan():
    rows = frame(["a b c"], ["a b d"], ["c"])
    assert np.isnan(self_bleu_test(rows, draws=20)["p"].iloc[0])
    assert self_bleu_test(rows.iloc[:0]).empty


def test_settings_come_from_the_signature():
    assert settings_of(signature("context", 3)) == ("context", 3)
    with pytest.raises(ValueError, match="05_text_metrics"):
        settings_of("PPL|model:x")


def test_the_permutation_p_takes_the_place_of_the_paired_one():
    from parliabench_utils.metrics.table import METRIC_BY_NAME

    rng = np.random.default_rng(6)
    rows = frame(texts(12, rng), texts(12, rng, WORDS[:4]), ["c"] * 12)
    row = compare(rows, [METRIC_BY_NAME["Self-BLEU"]], draws=50, permuted={"m": 0.5}).iloc[0]
    assert row["permutation_p"] == 0.5 == row["paired_p_bonferroni"] and row["paired_p"] < 0.01
    assert row["paired_direction"] == "worse" and row["n_human"] == 0
