"""Distinct-n and Self-BLEU: golden values, NLTK's own, properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.metrics import self_bleu as module
from parliabench_utils.metrics.distinct import (
    corpus_distinct_n,
    distinct_n,
    expected_kinds,
    first_words,
    signature,
    split_sentences,
    words,
)
from parliabench_utils.metrics.self_bleu import self_bleu
from parliabench_utils.metrics.self_bleu import signature as self_bleu_signature

TEXTS = st.lists(st.text(alphabet="ab c", max_size=12), min_size=2, max_size=6)


def test_distinct_golden(golden):
    for case in golden["distinct_n"]:
        expected = np.nan if case["value"] is None else case["value"]
        assert distinct_n([case["text"]], case["n"], case["per"])[0] == pytest.approx(expected, nan_ok=True)


def test_distinct_of_a_corpus_and_adjusted(golden):
    case = golden["expectation_adjusted"]
    assert case["kinds"] / expected_kinds(case["drawn"], case["vocabulary"]) == pytest.approx(case["value"], abs=1e-5)
    adjusted = distinct_n(["a b a", ""], 1, "expected", vocabulary=2)
    assert adjusted == pytest.approx([2 / 1.75, np.nan], nan_ok=True)
    assert "per:expected-of-99" in signature(2, "expected", 99)
    with pytest.raises(ValueError, match="give `vocabulary`"):
        distinct_n(["a b"], per="expected")
    assert corpus_distinct_n(["a b", "a b"], 2, per="tokens") == 0.25
    assert distinct_n(["a b c d e f"] * 2, 2).tolist() == [1.0, 1.0]
    assert "per:tokens" in signature(2, "tokens")
    with pytest.raises(ValueError, match="per 'words'"):
        distinct_n(["a b"], per="words")


@given(TEXTS, st.integers(1, 4), st.sampled_from(["ngrams", "tokens"]))
@settings(max_examples=40, deadline=None)
def test_distinct_bounds_and_company(texts, n, per):
    values = distinct_n(texts, n, per)
    assert values.dtype == np.float64
    known = values[~np.isnan(values)]
    assert ((known > 0) & (known <= 1)).all()
    assert np.array_equal(distinct_n(texts[::-1] + texts, n, per)[len(texts) :], values, equal_nan=True)


def test_repetition_and_length_lower_distinct():
    constant, distinct = " ".join("a" * 20), " ".join("abcdefghij")
    assert distinct_n([constant], 2)[0] == pytest.approx(1 / 19)
    assert distinct_n([constant], 2, "tokens")[0] == pytest.approx(1 / 20)
    assert distinct_n([distinct], 2)[0] == 1
    assert distinct_n([distinct], 2, "tokens")[0] == pytest.approx(9 / 10)


def test_odd_texts():
    odd = ["", None, "x", "😀 😀", "мы идём", "\x00\ud800", "word " * 5000]
    assert np.isnan(distinct_n(odd, 2)).tolist() == [True, True, True, False, False, False, False]
    scores = self_bleu(odd)
    assert np.isnan(scores).tolist() == [False, True] + [False] * 5
    assert ((scores[[0, 2, 3, 4, 5, 6]] >= 0) & (scores[[0, 2, 3, 4, 5, 6]] <= 1)).all()
    assert self_bleu([]).shape == (0,)
    assert np.array_equal(self_bleu(odd, k=3, seed=1), self_bleu(odd, k=3, seed=1), equal_nan=True)


def test_self_bleu_golden(golden, monkeypatch):
    case = golden["self_bleu"]
    monkeypatch.setattr(module, "words", str.split)  # the published values keep capitals
    for n, expected in case["values"].items():
        np.testing.assert_allclose(self_bleu(case["texts"], max_n=int(n)), expected, atol=1e-10)
    one = golden["bleu_of_a_hypothesis"]
    assert self_bleu([one["text"], *case["texts"]], max_n=one["max_n"])[0] == pytest.approx(one["value"], abs=1e-10)


def test_self_bleu_short_texts(golden):
    for case in golden["self_bleu_short"]:
        assert self_bleu(case["texts"], max_n=case["max_n"])[0] == pytest.approx(case["value"], abs=1e-9)
    assert np.isnan(self_bleu(["a b"])[0]), "a group of one"
    assert self_bleu(["", "a b"])[0] == 0
    assert np.isnan(self_bleu([None, "a b", "a b"])[0])


@given(TEXTS, st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_self_bleu_equals_nltk(texts, n):
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    tokens = [words(text) for text in texts]
    smooth = SmoothingFunction().method1
    expected = [
        sentence_bleu(tokens[:i] + tokens[i + 1 :], hypothesis, [1 / n] * n, smooth) if hypothesis else 0.0
        for i, hypothesis in enumerate(tokens)
    ]
    np.testing.assert_allclose(self_bleu(texts, max_n=n), expected, atol=1e-12)


@given(TEXTS, st.randoms())
@settings(max_examples=40, deadline=None)
def test_self_bleu_does_not_depend_on_order(texts, random):
    order = list(range(len(texts)))
    random.shuffle(order)
    np.testing.assert_allclose(self_bleu([texts[i] for i in order]), self_bleu(texts)[order], atol=1e-12)
    np.testing.assert_allclose(self_bleu([texts[i] for i in order], k=1), self_bleu(texts, k=1)[order], atol=1e-12)


def test_self_bleu_groups_and_fixed_k():
    texts = ["a b c d e", "a b c d e", "v w x y z", "v w x q z", "one two three four"]
    groups = [0, 0, 1, 1, 2]
    scores = self_bleu(texts, groups)
    assert scores[0] == 1
    assert np.isnan(scores[4])
    np.testing.assert_allclose(self_bleu(texts, k=4), self_bleu(texts))
    assert np.array_equal(self_bleu(texts, k=2, seed=1), self_bleu(texts, k=2, seed=1))
    assert np.isnan(self_bleu(texts, groups, k=2)).all()
    assert "refs:2-drawn-seed1" in self_bleu_signature("prompt", k=2, seed=1)


def test_fixed_k_makes_groups_of_unequal_size_comparable():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefgh"), 12)) for _ in range(60)]
    small, large = self_bleu(texts[:10]).mean(), self_bleu(texts).mean()
    assert large > small + 0.1, "more references, higher values"
    drawn = [self_bleu(texts[:10], k=5).mean(), self_bleu(texts, k=5).mean()]
    assert abs(drawn[1] - drawn[0]) < 0.1


def test_sentences(golden):
    for case in golden["sentences"]:
        assert len(split_sentences(case["text"])) == case["n"], case["text"]
    assert split_sentences(None) == split_sentences(" \n") == []


def test_first_words():
    assert first_words("a  b\nc d", 3) == "a  b\nc"
    assert first_words("a b", 3) == "a b" == first_words(" a b", None)
    assert len(first_words("word " * 400, 150).split()) == 150
    assert first_words(None, 3) == ""
