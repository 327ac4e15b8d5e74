"""GRUEN with constants for its models: arithmetic, repairs, parity; and the classifier of acceptable sentences."""

import difflib
import itertools
import random
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from parliabench_utils.metrics import gruen as module
from parliabench_utils.metrics.gruen import (
    Acceptability,
    CausalGrammar,
    MaskedGrammar,
    SentenceSimilarity,
    corrupt,
    fit_acceptability,
    grammar_score,
    gruen,
    published_cleaning,
    read_acceptability,
    redundancy,
    redundancy_flags,
    sentences_of,
    signature,
)
from parliabench_utils.metrics.gruen import truncated as gruen_truncated
from parliabench_utils.models.embeddings import SentenceEncoder

SENTENCE = "The Minister has told the House that the money will be spent."


def grammar(sentences):
    return np.ones(len(sentences)), np.zeros(len(sentences))


def similar(pairs):
    return np.array([0.0 if "cheese" in a + b else 0.9 for a, b in pairs])


def test_grammar_golden(golden):
    for case in golden["gruen_grammar"]:
        assert grammar_score(case["loss"], case["logit"]) == pytest.approx(case["value"], abs=1e-7)


def test_redundancy_golden_and_by_hand(golden):
    for case in golden["gruen_redundancy"]:
        assert redundancy([SENTENCE] * case["copies"], case["per_pair"]) == pytest.approx(case["value"])
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


PHRASES = st.lists(st.sampled_from([SENTENCE, "I like cheese a lot.", "So it will be.", "No.", "", "Order, order!"]))


@given(st.lists(PHRASES.map(" ".join), min_size=1, max_size=5), st.booleans())
@settings(max_examples=30, deadline=None)
def test_bounds_and_company(texts, parity):
    def by_length(sentences):
        return np.array([len(s) / 9 for s in sentences]), np.array([len(s) % 7 - 3.0 for s in sentences])

    table = gruen(texts[::-1] + texts, by_length, similar, parity)
    alone = pd.concat([gruen([text], by_length, similar, parity) for text in texts], ignore_index=True)
    pd.testing.assert_frame_equal(table[len(texts) :].reset_index(drop=True), alone)
    assert alone["GRUEN"].dropna().between(0, 1).all()
    assert (alone[["GRUEN_redundancy", "GRUEN_focus"]].dropna() <= 0).all(axis=None)


def test_many_texts_go_in_blocks(monkeypatch):
    texts = [f"{SENTENCE} I like cheese, {i} times." for i in range(5)]
    whole = gruen(texts, grammar, similar)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 2)
    pd.testing.assert_frame_equal(gruen(texts, grammar, similar), whole)


def test_redundancy_finds_what_the_published_loop_finds():
    """The early exits must not change a flag: against the same rules written out, on damaged copies."""
    rng = random.Random(0)
    sentences = [corrupt(corrupt(s, rng), rng) for s in [SENTENCE, SENTENCE[:30], "We left. " + SENTENCE] for _ in range(6)]
    for a, b in itertools.combinations(sentences, 2):
        match = difflib.SequenceMatcher(None, a, b).find_longest_match()
        shorter, longer = sorted((len(a.split()), len(b.split())))
        flags = (
            (match.size > 0.8 * min(len(a), len(b)))
            + (len(a[match.a : match.a + match.size].split()) > 0.8 * shorter)
            + (Levenshtein.distance(a, b) < 0.6 * max(len(a), len(b)))
            + (sum(word in b.split() for word in a.split()) > 0.8 * shorter)
        )
        expected = 4 if a in b or b in a else flags if longer >= 5 else 0
        assert redundancy_flags(a, b, autojunk=True) == expected


@pytest.fixture
def masked(tiny_bert):
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

    folder = tiny_bert(AutoModelForMaskedLM, "tiny-masked")
    return MaskedGrammar(str(folder), str(tiny_bert(AutoModelForSequenceClassification, "tiny-cola", pickled=True)))


def test_masked_grammar_is_the_published_procedure(masked):
    import torch

    sentences = [SENTENCE, "Order.", "Will he?", "long " * 600]
    losses, logits = masked(sentences)
    tokenizer, model = masked._masked
    for sentence, loss in zip(sentences, losses, strict=True):  # one by one, the unmasked sentence as its own label
        ids = tokenizer(sentence, truncation=True, max_length=512, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            assert loss == pytest.approx(model(ids, labels=ids).loss.exp().item(), rel=1e-4)
    tokenizer, model = masked._classifier
    ids = tokenizer(SENTENCE, padding="max_length", max_length=128, return_tensors="pt")
    with torch.no_grad():
        assert logits[0] == pytest.approx(model(**ids).logits[0, 1].item(), abs=1e-5)
    assert masked.truncated(sentences).tolist() == [False, False, False, True]
    assert gruen_truncated([SENTENCE, "long " * 600, "", None], masked).tolist() == [False, True, False, False]
    assert re.search(r"tiny-masked@\w{16}\+cola:tiny-cola@\w{16}\[1\]", masked.signature)


def test_a_pickle_that_runs_code_is_refused(tiny_bert, tmp_path):
    import pickle

    from transformers import AutoModelForSequenceClassification

    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    folder = tiny_bert(AutoModelForSequenceClassification, "evil", pickled=True)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"classifier.weight": Evil()}, protocol=2))
    with pytest.raises(Exception, match=r"[Ww]eights"):
        MaskedGrammar(classifier=str(folder)).truncated([SENTENCE])
    assert not (tmp_path / "ran").exists()


def test_models_that_are_not_there():
    with pytest.raises(OSError, match="hf download no-masked"):
        MaskedGrammar("no-masked", "no-cola")([SENTENCE])


def test_odd_texts_through_the_packaged_models(tiny_gpt2, tmp_path):
    classifier = Acceptability(np.zeros(1920), 0.5, "all-MiniLM-L6-v2", "0" * 16, 0.5)
    grammar = CausalGrammar(*tiny_gpt2, "tiny", classifier)
    odd = ["", None, "x", "😀 😀 😀", "мы идём домой", "a \x00 \ud800 b", "word " * 5000, "Yes. No. " * 300]
    table = gruen(odd, grammar, SentenceSimilarity(SentenceEncoder(cache=False)))
    assert table["GRUEN"].isna().tolist() == [True, True, True, True, False, False, False, True]
    assert table["GRUEN"].dropna().between(0, 1).all()
    assert gruen_truncated(odd, grammar).tolist() == [False] * 6 + [True, False]


@pytest.mark.hub
def test_cola_classifier_knows_its_labels():
    grammar = MaskedGrammar()
    try:
        losses, logits = grammar(["The cat sat on the mat.", "Cat the mat the on sat of."])
    except OSError:
        pytest.skip("bert-base-cased or the CoLA classifier is not on this machine: hf download")
    assert losses[0] < losses[1]
    assert logits[0] > 0 > logits[1]


def test_corruption_is_seeded_and_changes_sentences():
    damaged = [corrupt(SENTENCE, random.Random(seed)) for seed in range(20)]
    assert damaged == [corrupt(SENTENCE, random.Random(seed)) for seed in range(20)]
    assert sum(text != SENTENCE for text in damaged) > 15


def test_classifier_tells_damage_in_unseen_speeches(tmp_path):
    subjects = ["rail", "farming", "fishing", "housing", "schools", "prisons", "courts", "buses", "ports", "museums"]
    form = "I am grateful to the Minister for what was said about {0}. Will the Government now publish the review of {0} "
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
    damaged = bytearray((tmp_path / "acceptability.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 0x80
    (tmp_path / "acceptability.npz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"acceptability\.npz is not as 02_dataset wrote it.*run 02_dataset again"):
        read_acceptability(tmp_path)


def test_acceptability_s_features_do_not_depend_on_the_number_of_threads():
    import torch

    from parliabench_utils.metrics.gruen import features

    sentences, before = [f"My Lords, clause {i} stands " + "part " * i for i in range(1, 60)], torch.get_num_threads()
    made = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        made.append(features(sentences))
    torch.set_num_threads(before)
    np.testing.assert_array_equal(*made)
