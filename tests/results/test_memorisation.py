"""Longest shared runs against a plain search, and people as the yardstick."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.metrics.distinct import words
from parliabench_utils.results import robustness as m

SENTENCE = st.lists(st.sampled_from("ab.c"), max_size=12).map(" ".join)


def longest(text: list[str], training: list[list[str]]) -> int:
    """By trying every run."""
    runs = {tuple(t[i:j]) for t in training for i in range(len(t)) for j in range(i, len(t) + 1)}
    return max((j - i for i in range(len(text)) for j in range(i, len(text) + 1) if tuple(text[i:j]) in runs), default=0)


@settings(max_examples=40, deadline=None)
@given(st.lists(SENTENCE, min_size=1, max_size=4), st.lists(SENTENCE, min_size=1, max_size=4))
def test_longest_run_is_that_of_a_plain_search(texts, training):
    found = m.memorised(texts, training)["longest_run"].tolist()
    assert found == [longest(words(t), [words(s) for s in training]) for t in texts]


def test_runs_do_not_cross_from_one_training_speech_into_the_next():
    assert m.memorised(["a b c d"], ["x a b", "c d y"])["longest_run"].tolist() == [2]


def test_overlap_and_passage():
    row = m.memorised(["One two three four five six. Other"], ["And ONE two three four five six again"]).iloc[0]
    assert row["longest_run"] == 6 and row["longest_passage"] == "one two three four five six" and row["n_words"] == 8
    assert row["overlap_5"] == pytest.approx(2 / 4) and row["overlap_8"] == 0 and np.isnan(row["overlap_13"])


def test_parts_of_the_training_set_give_what_the_whole_gives(monkeypatch):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdef"), 30)) for _ in range(12)]
    whole = m.memorised(texts[:4], texts[4:])
    monkeypatch.setattr(m, "CHUNK", 3)
    pd.testing.assert_frame_equal(whole, m.memorised(texts[:4], texts[4:]))


@pytest.mark.parametrize(("texts", "training"), [([None, ""], ["a b"]), (["a b"], []), (["a b"], [""])])
def test_empty_sides(texts, training):
    found = m.memorised(texts, training)
    assert (found["longest_run"] == 0).all() and (found["longest_passage"] == "").all()


def test_a_copying_model_stands_out_against_people():
    training = [f"we shall fight on the {place} and never give in" for place in ("beaches", "hills", "streets")]
    rows = pd.DataFrame({"prompt_id": [f"p{i}" for i in range(9)], "variant": 0})
    rows["model"], rows["type"] = ["copier"] * 3 + ["own"] * 3 + ["human"] * 3, ["baseline"] * 6 + ["human"] * 3
    rows["generated_speech"] = training + ["roads matter here"] * 3 + ["we shall see", "on the road", None]
    summary = m.memorisation_summary(m.memorisation(rows, training)).set_index("model")
    assert summary.loc["copier", "above_human_95"] == 1 and summary.loc["copier", "cliffs_delta"] == 1
    assert summary.loc["own", "above_human_95"] == 0 and summary.loc["human", "n"] == 2
    assert np.isnan(summary.loc["human", "p"])


def test_without_people_there_is_no_yardstick():
    rows = pd.DataFrame({"prompt_id": ["p"], "variant": [0], "model": ["m"], "type": ["baseline"], "generated_speech": ["a"]})
    assert np.isnan(m.memorisation_summary(m.memorisation(rows, ["a"]))["above_human_95"].iloc[0])
