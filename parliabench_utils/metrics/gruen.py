"""GRUEN without a reference: grammar, non-redundancy and focus of a text (paper 4.1 (2); Zhu and Bhat 2020).

Used by notebook 05. The published code has no fourth part (sentence-order prediction), so this is GRUEN-GRF. Two forms:
`parity=True` is the published one, whose focus part never fires and whose redundancy grows with the number of
sentence pairs; the default repairs both: redundancy and focus are a pair's average.

    gruen(texts, grammar, similarity)    # grammar and similarity: functions of sentences, see `grammar.py`
"""

import difflib
import re
from collections.abc import Callable, Sequence
from itertools import combinations, compress, pairwise
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.metrics.tokens import SENTENCES_SIGNATURE, split_sentences

Grammar = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]  # sentences -> model's loss, acceptability logit
Similarity = Callable[[Sequence[tuple[str, str]]], np.ndarray]  # sentence pairs -> cosine in [-1, 1]
FLAG = 0.1  # what one flag of redundancy or one unfocused pair costs
UNRELATED = 0.05  # neighbours with a cosine below this do not belong together
TEXTS_AT_ONCE = 256  # whose sentences are in memory at a time
COLUMNS = ["GRUEN", "GRUEN_grammar", "GRUEN_redundancy", "GRUEN_focus", "n_sentences"]


def signature(grammar: str, similarity: str, parity: bool = False) -> str:
    """What fixes a value."""
    form = "parity:redundancy-sum,focus-inert" if parity else f"repaired:redundancy-per-pair,focus<{UNRELATED}-per-pair"
    return f"GRUEN-GRF|{form}|grammar:{grammar}|focus:{'none' if parity else similarity}|{SENTENCES_SIGNATURE}|v1"


def gruen(texts: Sequence[str | None], grammar: Grammar, similarity: Similarity, parity: bool = False) -> pd.DataFrame:
    """A row a text: GRUEN in [0, 1], its parts grammar (from 0), redundancy and focus (up to 0), and the sentences
    read.

    NaN for a text without a sentence of two words; the published code gives it 0.625. The list `texts` is left alone.
    """
    rows: list[list[float]] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        sentences = [sentences_of(text, parity) for text in texts[start : start + TEXTS_AT_ONCE]]
        distinct = sorted({sentence for group in sentences for sentence in group})
        values = dict(zip(distinct, zip(*grammar(distinct), strict=True), strict=True)) if distinct else {}
        focus = np.zeros(len(sentences)) if parity else _focus(sentences, similarity)
        rows += [_row(group, values, parity, focus[i]) for i, group in enumerate(sentences)]
    return pd.DataFrame(rows, columns=COLUMNS)


def truncated(texts: Sequence[str | None], grammar: Any, parity: bool = False) -> np.ndarray:
    """Bool array (n_speeches,): has the text a sentence of which `grammar` (one of `grammar.py`'s) reads the beginning
    only.
    """
    sentences = [sentences_of(text, parity) for text in texts]
    distinct = sorted({sentence for group in sentences for sentence in group})
    cut = set(compress(distinct, grammar.truncated(distinct)))
    return np.array([not cut.isdisjoint(group) for group in sentences], dtype=bool)


def _row(sentences: list[str], values: dict[str, tuple[float, float]], parity: bool, focus: float) -> list[float]:
    if not sentences:
        return [np.nan] * 4 + [0]
    loss, logit = np.mean([values[sentence] for sentence in sentences], axis=0)
    parts = [grammar_score(loss, logit), redundancy(sentences, per_pair=not parity, autojunk=parity), focus]
    return [float(np.clip(sum(parts), 0, 1)), *parts, len(sentences)]


def grammar_score(loss: float, logit: float) -> float:
    """max(0, (e^(-loss / 2) + logit) / 8 + 0.5), from the published code."""
    return float(max(0.0, (np.exp(-loss / 2) + logit) / 8 + 0.5))


def sentences_of(text: str | None, parity: bool = False) -> list[str]:
    """The sentences that are scored: those of two words or more."""
    split = split_sentences(published_cleaning(text or "") if parity else text)
    return [sentence for sentence in split if len(re.sub(r"[^\w\s]", " ", sentence).split()) > 1]


def published_cleaning(text: str) -> str:
    """The published code's: a space after every full stop, and UNK for what that makes of decimals; idempotent."""
    text = text.strip().replace("\n", ". ")
    text = re.sub(r"\.(?:\s*\.)+", ".", text).replace(".", ". ")
    return re.sub(r"\d+\. \d+", "UNK", re.sub(r"\s+", " ", text)).strip()


def redundancy(sentences: Sequence[str], per_pair: bool = True, autojunk: bool = False) -> float:
    """-0.1 a flag over all sentence pairs, or over their number; 0 for one sentence.

    `autojunk` is difflib's shortcut for long strings, which the published code has on and which misses matches.
    """
    flags = [redundancy_flags(a, b, autojunk) for a, b in combinations(sentences, 2)]
    return 0.0 - FLAG * sum(flags) / (len(flags) if per_pair else 1) if flags else 0.0


def redundancy_flags(a: str, b: str, autojunk: bool = False) -> int:
    """0 to 4 signs that two sentences say the same: 4 when one holds the other, else one each for a long common
    string (by characters, by words), a small edit distance, many common words; short sentences are let off.
    """
    if a in b or b in a:
        return 4
    words_a, words_b = a.split(), b.split()
    fewest, most = sorted((len(words_a), len(words_b)))
    if most < 5:
        return 0
    there = set(words_b)
    common = sum(word in there for word in words_a)
    return _common_string_flags(a, b, common, fewest, autojunk) + _near(a, b) + (common > 0.8 * fewest)


def _common_string_flags(a: str, b: str, common_words: int, fewest: int, autojunk: bool) -> int:
    from rapidfuzz.distance import LCSseq

    shortest = min(len(a), len(b))
    # A common string is no longer than a common subsequence, and its whole words are common words: most pairs end here.
    if LCSseq.similarity(a, b) <= 0.8 * shortest and common_words + 2 <= 0.8 * fewest:
        return 0
    match = difflib.SequenceMatcher(None, a, b, autojunk=autojunk).find_longest_match()
    n_words = len(a[match.a : match.a + match.size].split())
    return (match.size > 0.8 * shortest) + (n_words > 0.8 * fewest)


def _near(a: str, b: str) -> bool:
    from rapidfuzz.distance import Levenshtein

    limit = 0.6 * max(len(a), len(b))
    return Levenshtein.distance(a, b, score_cutoff=int(limit)) < limit


def _focus(sentences: Sequence[Sequence[str]], similarity: Similarity) -> np.ndarray:
    """-0.1 times the share of neighbours that have nothing to do with each other; 0 for one sentence."""
    pairs = [pair for group in sentences for pair in pairwise(group)]
    unrelated = iter((np.asarray(similarity(pairs)) < UNRELATED).tolist() if pairs else [])
    return np.array([0.0 - FLAG * _mean([next(unrelated) for _ in pairwise(group)]) for group in sentences])


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
