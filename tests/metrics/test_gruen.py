"""GRUEN with constants for its models: arithmetic, repairs, parity; and the classifier of acceptable sentences."""

import random

import numpy as np
import pytest

from parliabench_utils.metrics.acceptability import corrupt, fit_acceptability, read_acceptability
from parliabench_utils.metrics.gruen import (
    grammar_score,
    gruen,
    published_cleaning,
    redundancy,
    redundancy_flags,
    sentences_of,
    signature,
)

SENTENCE = "The Minister has told the House that the money will be spent."


def grammar(sentences):
    return np.ones(len(sentences)), np.zeros(len(sentences))


def similar(pairs):
    return np.array([0.0 if "cheese" in a + b else 0.9 for a, b in pairs])


def test_grammar_golden(golden):
    for case in golden["gruen_grammar"]:
        assert grammar_score(case["loss"], case["logit"]) == pytest.approx(case["value"], abs=1e-7)


def test_redundancy_by_hand():
    assert redundancy([SENTENCE] * 2, per_pair=False) == pytest.approx(-0.4)
    assert redundancy([SENTENCE] * 3, per_pair=False) == pytest.approx(-1.2)
    assert redundancy([SENTENCE] * 3) == pytest.approx(-0.4), "a pair's average does not grow with the text"
    assert redundancy([SENTENCE]) == 0
    assert redundancy_flags("We agree.", "They differ.") == 0
    assert redundancy_flags(SENTENCE, SENTENCE.replace("told", "assured")) >= 2


def test_autojunk_hides_matches_in_long_sentences():
    long = " ".join(f"the hon. Member number {i} has said that again" for i in range(8))
    other = "Yet " + long[: len(long) * 9 // 10] + " and no more"
    assert redundancy_flags(long, other) >= redundancy_flags(long, other, autojunk=True)


def test_published_form():
    table = gruen([" ".join([SENTENCE] * 3), SENTENCE], grammar, similar, parity=True)
    assert table["GRUEN"].tolist() == [0, pytest.approx(0.5758163, abs=1e-7)]
    assert table["GRUEN_focus"].eq(0).all(), "the published focus part never fires"
    cleaned = published_cleaning("It cost 1.5 million.No..\nYes")
    assert cleaned == published_cleaning(cleaned)
    assert "UNK" in cleaned


def test_focus_works_in_the_repaired_form():
    table = gruen([f"{SENTENCE} I like cheese very much.", f"{SENTENCE} So it will be."], grammar, similar)
    assert table["GRUEN_focus"].tolist() == pytest.approx([-0.1, 0.0])
    assert "focus-inert" in signature("g", "s", parity=True)


def test_odd_texts_and_the_callers_list():
    texts = ["", None, "Yes.", "!!!", "😀 😀", "\x00", SENTENCE]
    kept = list(texts)
    table = gruen(texts, grammar, similar)
    assert texts == kept
    assert table["GRUEN"].isna().tolist() == [True] * 6 + [False]
    assert len(gruen([], grammar, similar)) == 0
    assert gruen([""], grammar, similar)["GRUEN"].isna().all(), "nothing to score at all"
    assert sentences_of("Yes. I agree with the hon. Lady.") == ["I agree with the hon. Lady."]


def test_corruption_is_seeded_and_changes_sentences():
    damaged = [corrupt(SENTENCE, random.Random(seed)) for seed in range(20)]
    assert damaged == [corrupt(SENTENCE, random.Random(seed)) for seed in range(20)]
    assert sum(text != SENTENCE for text in damaged) > 15


def test_classifier_tells_damage_in_unseen_speeches(tmp_path):
    subjects = ["rail", "farming", "fishing", "housing", "schools", "prisons", "courts", "buses", "ports", "museums"]
    form = (
        "I am grateful to the Minister for what was said about {0}. Will the Government now publish the review of {0} "
    )
    form += "and {1}? The people of my constituency have been waiting for it since the summer."
    texts = [form.format(one, two) for one in subjects for two in subjects[:4]]
    report = fit_acceptability(tmp_path, texts, seed=1, max_sentences=80)
    assert report["auc"] > 0.8
    assert report == fit_acceptability(tmp_path, texts, seed=1, max_sentences=80)
    good, bad = read_acceptability(tmp_path).logits([texts[0], "the Minister grateful to am for I was what said."])
    assert good > bad
    with pytest.raises(ValueError, match="too few"):
        fit_acceptability(tmp_path, texts[:2], seed=1)
    with pytest.raises(FileNotFoundError, match="02_dataset"):
        read_acceptability(tmp_path / "nowhere")
