"""Prompts, references and examples, on made-up rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.corpus.dataset import debate_of, split, to_records
from parliabench_utils.corpus.prompts import (
    Contexts,
    PromptRules,
    choose_references,
    draw_prompts,
    nearest_examples,
    share_out,
)
from tests.corpus.corpus_files import LetterEncoder, drawn, speeches, with_topics


def test_prompts_follow_the_rules():
    _, test, prompts, report = drawn(question_share=0.25, min_per_party=3)
    frame = pd.DataFrame(prompts)
    assert report["drawn"] == 20 and (frame["kind"] == "question").sum() == report["questions"] == 5
    assert frame["prompt_id"].is_unique and frame["speech_id"].is_unique and set(frame["speech_id"]) <= set(test["speech_id"])
    assert frame["Party"].value_counts().min() >= 3
    assert (frame.loc[frame["kind"] == "question", "instruction"] == "Whether it is so.").all()
    shares = test["Party"].value_counts(normalize=True)
    weighted = frame.groupby("Party")["weight"].sum() / 20
    assert np.allclose(weighted.sort_index(), shares.sort_index(), atol=1e-4)
    of_test = test.assign(kind=np.where(test["Prompts"].str.len() > 0, "question", "generic"))
    cells = [part.groupby(["Party", "House", "kind"])["Party"].size() for part in (frame, of_test)]
    size = cells[1].reindex(cells[0].index, fill_value=0).clip(lower=cells[0])  # a cell stands at least for its own prompts
    wanted = size / size.groupby("Party").transform("sum") * shares.reindex(size.index, level="Party") * 20
    assert np.allclose(frame.groupby(["Party", "House", "kind"])["weight"].sum(), wanted, atol=1e-4)
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


def test_the_untitled_part_of_a_sitting_is_a_debate_to_leave_out():
    """None in one table is NaN in the next: neither may let the prompt's own debate in."""
    train, _, prompts, _ = drawn()
    train = train.assign(Section=[None if day == prompts[0]["sitting_id"] else "x" for day in train["sitting_id"]])
    for empty in (None, float("nan"), ""):
        _, rows = Contexts(train).level({**prompts[0], "Section": empty}, 1)
        assert len(rows) and (train["sitting_id"].iloc[rows] != prompts[0]["sitting_id"]).all()
    asked = {**prompts[0], "Section": float("nan")}
    first, other = (choose_references([p], Contexts(train), LetterEncoder(), 2, 2) for p in (asked, asked | {"Section": None}))
    assert first == other


def test_references_are_the_nearest_of_the_context():
    train, _, prompts, _ = drawn()
    rows = pd.DataFrame(choose_references(prompts, Contexts(train), LetterEncoder(), 2, 3))
    assert (rows.groupby("prompt_id").size() == 2).all()
    assert rows.groupby("prompt_id")["similarity"].apply(lambda s: s.is_monotonic_decreasing).all()
    assert set(rows["speech_id"]) <= set(train["speech_id"])
    with pytest.raises(ValueError, match="n_references"):
        choose_references(prompts, Contexts(train), LetterEncoder(), 4, 3)


def test_too_few_contexts_give_fewer_prompts_and_say_so():
    _, _, prompts, report = drawn(min_context_speeches=16, n_prompts=70)
    assert 0 < report["drawn"] == len(prompts) < 70 and report["context too small"] > 0
    with pytest.raises(ValueError, match="no prompt can be drawn: none of 72 test speeches has 500 training speeches"):
        drawn(min_context_speeches=500)


def test_a_parliament_of_one_house_has_prompts_too():
    train, test = (pd.DataFrame(to_records(with_topics(part.assign(house=None)))) for part in split(speeches(), 0.7, "random", 1))
    prompts, _ = draw_prompts(train, test, PromptRules(n_prompts=6, min_context_speeches=3), 1)
    assert len(prompts) == 6 and {prompt["House"] for prompt in prompts} == {"Parliament"}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(0, 4), st.integers(0, 50))
def test_places_always_add_up(n, least, seed):
    pool = pd.DataFrame(to_records(with_topics(speeches(60, seed))))
    places = share_out(pool, n, least if n >= 12 else 0)
    assert sum(places.values()) == n and min(places.values()) >= 0


# --- examples: of the context, nearest first, never a reference, its debate or its speaker -----------------------------
CONTEXT = {"Party": "Labour", "Topic": "Energy", "House": "House of Commons"}


class Encoder:
    """Speech number n is the nearer to every question, the smaller n is."""

    def encode(self, texts):
        angles = [0.1 * int(text.split()[-1]) if text.startswith("speech") else 0.0 for text in texts]
        return np.array([[np.cos(a), np.sin(a)] for a in angles])


TRAIN = [
    CONTEXT | {"speech_id": f"t{i}", "sitting_id": f"d{i}", "Section": "Prices", "speaker_id": f"s{i}", "Speech": f"speech {i}"}
    for i in range(8)
]  # fmt: skip
PROMPT = CONTEXT | {
    "prompt_id": "p", "sitting_id": "d0", "Section": "Prices", "speaker_id": "s1", "instruction": "Speak.",
}  # fmt: skip


def test_references_own_debate_and_own_speaker_are_left_out():
    references = [{"prompt_id": "p", "rank": 1, "speech_id": "t2", "similarity": 0.9}]
    found = nearest_examples([PROMPT], TRAIN, references, Encoder(), k=3)
    assert [row["speech_id"] for row in found["p"]] == ["t3", "t4", "t5"]


def test_a_party_with_too_few_speeches_gives_those_it_has():
    found = nearest_examples([PROMPT, PROMPT | {"prompt_id": "q", "Party": "Alba"}], TRAIN, [], Encoder(), k=9)
    assert [row["speech_id"] for row in found["p"]] == ["t2", "t3", "t4", "t5", "t6", "t7"]
    assert found["q"] == []
    assert nearest_examples([PROMPT], [], [], Encoder(), k=9) == {"p": []}
