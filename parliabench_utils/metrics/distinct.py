"""Distinct-n: how many of a text's n-grams are different ones (paper 4.1 (1); Li et al. 2016).

Used by notebook 05. Both the share of n-grams and the share of tokens fall with length: compare texts of like length,
or use the expectation-adjusted form.

>>> distinct_n(["a b a b"], n=2)
array([0.66666667])
"""

from collections.abc import Iterable, Sequence

import numpy as np

from parliabench_utils.metrics.tokens import SIGNATURE, words

PER = ("ngrams", "tokens")


def signature(n: int, per: str = "ngrams") -> str:
    """What fixes a value."""
    return f"Dist-{n}|per:{per}|level:text|{SIGNATURE}|v1"


def distinct_n(texts: Sequence[str | None], n: int = 2, per: str = "ngrams") -> np.ndarray:
    """Different n-grams over all n-grams (or over all tokens) of each text, in (0, 1], shape (n_speeches,).

    NaN for a text shorter than `n` tokens. Punctuation marks are tokens.
    """
    return np.array([_ratio([words(text)], n, per) for text in texts], dtype=np.float64)


def corpus_distinct_n(texts: Iterable[str | None], n: int = 2, per: str = "tokens") -> float:
    """One value for all texts together, as Li et al. define it: no n-gram crosses from one text into the next."""
    return _ratio([words(text) for text in texts], n, per)


def expectation_adjusted(texts: Sequence[str | None], vocabulary: int, n: int = 1) -> np.ndarray:
    """Different n-grams over the number expected of `C` draws from `vocabulary` kinds (Liu et al. 2022), (n_speeches,)."""
    counts = [(len(set(_ngrams(tokens, n))), len(tokens) - n + 1) for tokens in map(words, texts)]
    return np.array([adjusted(kinds, drawn, vocabulary) for kinds, drawn in counts], dtype=np.float64)


def adjusted(kinds: int, drawn: int, vocabulary: int) -> float:
    """N / (V (1 - ((V - 1) / V)^C)); NaN when nothing was drawn."""
    return kinds / (vocabulary * (1 - ((vocabulary - 1) / vocabulary) ** drawn)) if drawn > 0 else float("nan")


def _ratio(texts: list[list[str]], n: int, per: str) -> float:
    if per not in PER:
        raise ValueError(f"per {per!r}: one of {', '.join(PER)}")
    total = sum(max(0, len(tokens) - n + 1) for tokens in texts)
    kinds = len({ngram for tokens in texts for ngram in _ngrams(tokens, n)})
    below = total if per == "ngrams" else sum(map(len, texts))
    return kinds / below if total else float("nan")


def _ngrams(tokens: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
