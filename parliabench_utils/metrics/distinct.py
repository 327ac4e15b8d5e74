"""Words and sentences, the same for every metric, without a download.

Used by Distinct-n, Self-BLEU, GRUEN and the acceptability classifier.

>>> words("The hon. Member’s £1.5m won’t do!")
['the', 'hon', '.', "member's", '£', '1.5', 'm', "won't", 'do', '!']
>>> split_sentences("I thank my hon. Friend. We left No. 10 at noon.")
['I thank my hon. Friend.', 'We left No. 10 at noon.']

Distinct-n: how many of a text's n-grams are different ones (paper 4.1 (1); Li et al. 2016).

Used by notebook 05. The share of n-grams and the share of tokens both fall with length: compare texts of like length,
or divide by what chance would give (`expected`, Liu et al. 2022).

>>> distinct_n(["a b a b"], n=2)
array([0.66666667])
"""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]|_")
APOSTROPHES = "’‘ʼ"
SIGNATURE = "words:regex-v1-lower"
SENTENCES_SIGNATURE = "sentences:nupunkt"


def words(text: str | None, lower: bool = True) -> list[str]:
    """Words, numbers (1.5, 10,000) and single marks; curly apostrophes become straight, case is folded, None is empty."""
    text = text or ""
    for mark in APOSTROPHES:
        text = text.replace(mark, "'")  # str.translate takes five times as long
    return WORD.findall(text.lower() if lower else text)


def split_sentences(text: str | None) -> list[str]:
    """Sentences by nupunkt, whose legal English knows "hon.", "St.", "U.K.", "£1.5m." and "No. 10"; [] for no text."""
    from nupunkt import sent_tokenize

    text = " ".join((text or "").split())
    return [sentence.strip() for sentence in sent_tokenize(text) if sentence.strip()] if text else []


PER = ("ngrams", "tokens", "expected")


def signature(n: int, per: str = "ngrams", vocabulary: int | None = None) -> str:
    """What fixes a value."""
    drawn_from = f"-of-{vocabulary}" if per == "expected" else ""
    return f"Dist-{n}|per:{per}{drawn_from}|level:text|{SIGNATURE}|v1"


def distinct_n(texts: Sequence[str | None], n: int = 2, per: str = "ngrams", vocabulary: int | None = None) -> np.ndarray:
    """Different n-grams of each text over all its n-grams, over its tokens, or over the number `expected` of as many
    draws from `vocabulary` kinds; shape (n_speeches,), in (0, 1] (the last may pass 1).

    NaN for a text shorter than `n` tokens. Punctuation marks are tokens.
    """
    return np.array([_ratio([words(text)], n, per, vocabulary) for text in texts], dtype=np.float64)


def corpus_distinct_n(texts: Iterable[str | None], n: int = 2, per: str = "tokens", vocabulary: int | None = None) -> float:
    """One value for all texts together, as Li et al. define it: no n-gram crosses from one text into the next."""
    return _ratio([words(text) for text in texts], n, per, vocabulary)


def expected_kinds(drawn: int, vocabulary: int) -> float:
    """V (1 - ((V - 1) / V)^C): how many kinds C draws from V equally likely ones show on average."""
    return vocabulary * -math.expm1(drawn * math.log1p(-1 / vocabulary)) if vocabulary > 1 else min(drawn, 1)


def _ratio(texts: list[list[str]], n: int, per: str, vocabulary: int | None) -> float:
    if per not in PER:
        raise ValueError(f"per {per!r}: one of {', '.join(PER)}")
    if per == "expected" and not vocabulary:
        raise ValueError("per 'expected': give `vocabulary`, the number of kinds to draw from")
    total = sum(max(0, len(tokens) - n + 1) for tokens in texts)
    if not total:
        return float("nan")
    kinds = len({ngram for tokens in texts for ngram in _ngrams(tokens, n)})
    if per == "expected":
        return kinds / expected_kinds(total, vocabulary)
    return kinds / (total if per == "ngrams" else sum(map(len, texts)))


def _ngrams(tokens: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
