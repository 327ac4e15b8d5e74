"""What is kept, the split, topics, prompts and references, on made-up rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.corpus import topics
from parliabench_utils.corpus.card import DATA_FILES, write_card
from parliabench_utils.corpus.dataset import (
    SPLITS,
    KeepRules,
    debate_of,
    human_rows,
    keep_speeches,
    leaks,
    repair,
    split,
    to_records,
)
from parliabench_utils.corpus.organisations import ORIENTATION_SCALE
from parliabench_utils.corpus.prompts import Contexts, PromptRules, draw_prompts
from parliabench_utils.corpus.references import choose_references

PARTIES = ("Conservative", "Labour", "Green Party")


def speeches(n=240, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        party = rng.choice(PARTIES, p=[0.6, 0.3, 0.1])
        day = int(rng.integers(12))
        rows.append(
            {
                "speech_id": f"u{i:03d}",
                "sitting_id": f"day{day}",
                "date": pd.Timestamp("2019-01-01") + pd.Timedelta(days=day),
                "house": ["House of Commons", "House of Lords"][day % 2],
                "section": f"Debate {rng.integers(3)}",
                "speaker_id": f"{party[:3]}{rng.integers(8)}",
                "party_code": party[:3],
                "party": party,
                "orientation": "Centre-left",
                "role": "regular",
                "kind": "speech",
                "prompts": ["Whether it is so."] if i % 5 == 0 else [],
                "text": f"Speech number {i} " + "word " * int(rng.integers(40, 90)),
                "cap_topic": rng.choice(["Energy", "Health"]),
            }
        )
    return pd.DataFrame(rows)


def with_topics(frame):
    return frame.assign(topic=frame["cap_topic"], topic_method="direct", topic_score=1.0, n_words=50)


class LetterEncoder:
    """A vector of letter counts: equal texts are nearest, no weights needed."""

    def encode(self, texts):
        rows = np.array([[text.count(chr(97 + i)) + 1e-3 for i in range(26)] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


RULES = KeepRules(min_speeches=5, min_words=35, max_words=400, excluded_sections=["Points of Order"])


def test_each_row_is_kept_or_dropped_with_its_first_reason():
    frame = speeches(60)
    frame.loc[0, "kind"], frame.loc[1, "kind"] = "question", "procedural"
    frame.loc[1, "text"] = "rose—"
    frame.loc[2, ["party_code", "party"]] = None
    frame.loc[3, "party_code"] = "S"
    frame.loc[4, "section"] = None
    frame.loc[5, "section"] = "points of order"
    frame.loc[6, "text"], frame.loc[7, "text"] = "word " * 35, "word " * 36
    frame.loc[8, "text"], frame.loc[9, "text"] = "word " * 400, "word " * 399
    frame.loc[10, ["party_code", "party"]] = "Tiny"
    kept, dropped = keep_speeches(frame, RULES)
    reasons = dict(zip(dropped["id"], dropped["rule"], strict=True))
    assert reasons["u001"] == "procedure: rose" and reasons["u002"] == "affiliation unknown"
    assert reasons["u003"] == "presiding officer" and reasons["u004"] == "no section"
    assert reasons["u005"] == "section excluded" and reasons["u006"] == "too short" and reasons["u008"] == "too long"
    assert reasons["u010"] == "party below min_speeches" and reasons["u000"].startswith("question")
    assert {"u007", "u009"} <= set(kept["speech_id"])
    assert sorted([*kept["speech_id"], *dropped["id"]]) == frame["speech_id"].tolist()


def test_texts_are_mended():
    assert repair("“It’s”  worth â€œ5p\u00a0now") == '"It\'s" worth "5p now'


@pytest.mark.parametrize("by", SPLITS)
def test_a_split_keeps_its_groups_whole(by):
    frame = speeches()
    train, test = split(frame, 0.8, by, 42)
    assert sorted([*train["speech_id"], *test["speech_id"]]) == frame["speech_id"].tolist()
    assert abs(len(train) / len(frame) - 0.8) < 0.08
    found = leaks(train, test)
    assert by != "by-debate" or found["same debate"] == 0
    assert by != "by-speaker" or found["same speaker"] == 0
    assert by != "by-date" or train["date"].max() < test["date"].min()
    assert split(frame, 0.8, by, 42)[0].equals(train)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="split"):
        split(speeches(20), 0.8, "by-party", 1)
    with pytest.raises(ValueError, match="train_share"):
        split(speeches(20), 1.5, "random", 1)
    with pytest.raises(ValueError, match="min_words"):
        keep_speeches(speeches(20), KeepRules(min_words=50, max_words=40))


def test_table_4_and_the_scale():
    mapped = [domain for domain in topics.CAP_TO_EUROVOC.values() if domain]
    assert len(topics.CAP_TO_EUROVOC) == 23 and len(mapped) == 13 and set(mapped) < set(topics.EUROVOC_DOMAINS)
    assert len(topics.EUROVOC_DOMAINS) == 21
    assert list(ORIENTATION_SCALE.values()) == list(range(-6, 7)) and ORIENTATION_SCALE["Centre"] == 0


def test_names_are_the_papers():
    from parliabench_utils.results.paper import published

    assert set(published(11)["topic"]) == set(topics.EUROVOC_DOMAINS)


def test_topics_are_mapped_or_classified():
    transport = topics.DOMAIN_DESCRIPTIONS["Transport"]
    rows = [("Energy", "zzz", "z"), ("Health", transport, transport), (None, "x", None)]
    frame = pd.DataFrame(rows, columns=["cap_topic", "text", "section"])
    found = topics.assign_topics(frame, LetterEncoder())
    assert found["topic"].tolist()[:2] == ["Energy", "Transport"]
    assert found["topic_method"].tolist() == ["direct", "embedding", "embedding"] and found["topic_score"].iat[0] == 1
    assert (topics.assign_topics(frame, LetterEncoder(), classify_all=True)["topic_method"] == "embedding").all()
    assert topics.assign_topics(frame[:0], LetterEncoder()).empty


def drawn(seed=42, **rules):
    train, test = (pd.DataFrame(to_records(with_topics(part))) for part in split(speeches(), 0.7, "random", 1))
    prompts, report = draw_prompts(
        train, test, PromptRules(**({"n_prompts": 20, "min_context_speeches": 3} | rules)), seed
    )
    return train, test, prompts, report


def test_prompts_follow_the_rules():
    _, test, prompts, report = drawn(question_share=0.25, min_per_party=3)
    frame = pd.DataFrame(prompts)
    assert report["drawn"] == 20 and (frame["kind"] == "question").sum() == report["questions"] == 5
    assert (
        frame["prompt_id"].is_unique
        and frame["speech_id"].is_unique
        and set(frame["speech_id"]) <= set(test["speech_id"])
    )
    assert frame["Party"].value_counts().min() >= 3
    assert (frame.loc[frame["kind"] == "question", "instruction"] == "Whether it is so.").all()
    shares = test["Party"].value_counts(normalize=True)
    weighted = frame.groupby("Party")["weight"].sum() / 20
    assert np.allclose(weighted.sort_index(), shares.sort_index(), atol=1e-4)
    assert drawn(question_share=0.25, min_per_party=3)[2] == prompts
    assert drawn(seed=7)[2] != drawn(seed=42)[2]


def test_shards_part_the_prompts():
    frame = pd.DataFrame(drawn(n_shards=3)[2])
    assert frame["shard"].value_counts().to_dict() == {0: 7, 1: 7, 2: 6}


def test_contexts_back_off_and_leave_out_debate_and_speaker():
    train, _, prompts, _ = drawn()
    contexts = Contexts(train)
    for prompt in prompts:
        name, rows = contexts.level(prompt, 3)
        found = train.loc[rows]
        assert name == prompt["context_id"] and len(found) >= 3
        assert (found["Party"] == prompt["Party"]).all() and not (found["speaker_id"] == prompt["speaker_id"]).any()
        assert not (debate_of(found) == f"{prompt['sitting_id']}/{prompt['Section']}").any()
    assert len(contexts.level(prompts[0], 1)[0].split(" | ")) == 3
    assert contexts.level(prompts[0], 10_000) is None


def test_references_are_the_nearest_of_the_context():
    train, _, prompts, _ = drawn()
    rows = pd.DataFrame(choose_references(prompts, Contexts(train), LetterEncoder(), 2, 3))
    assert (rows.groupby("prompt_id").size() == 2).all()
    assert rows.groupby("prompt_id")["similarity"].apply(lambda s: s.is_monotonic_decreasing).all()
    assert set(rows["speech_id"]) <= set(train["speech_id"])
    with pytest.raises(ValueError, match="n_references"):
        choose_references(prompts, Contexts(train), LetterEncoder(), 4, 3)


def test_too_few_contexts_give_fewer_prompts_and_say_so():
    _, _, prompts, report = drawn(min_context_speeches=500)
    assert prompts == [] and report["drawn"] == 0 and report["context too small"] > 0


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(0, 4), st.integers(0, 50))
def test_places_always_add_up(n, least, seed):
    from parliabench_utils.corpus.prompts import _share_out

    pool = pd.DataFrame(to_records(with_topics(speeches(60, seed))))
    places = _share_out(pool, n, least if n >= 12 else 0)
    assert sum(places.values()) == n and min(places.values()) >= 0


def test_human_rows_are_the_speeches_themselves():
    _, test, prompts, _ = drawn()
    rows = human_rows(prompts, dict(zip(test["speech_id"], test["Speech"], strict=True)), 42)
    assert [row["prompt_id"] for row in rows] == [prompt["prompt_id"] for prompt in prompts]
    spoken = test.set_index("speech_id")["Speech"]
    assert all(
        row["generated_speech"] == spoken[prompt["speech_id"]] for row, prompt in zip(rows, prompts, strict=True)
    )
    assert {row["finish_reason"] for row in rows} == {"human"}


def test_the_card_names_files_and_hashes(tmp_path):
    for name in DATA_FILES:
        (tmp_path / name).write_text("{}\n")
    write_card(tmp_path, with_topics(speeches()), {"prompts": 20}, {"split": "a|b"})
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0") and "240 speeches" in card and "| split | a\\|b |" in card
    assert card.count("ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356") == len(DATA_FILES)
