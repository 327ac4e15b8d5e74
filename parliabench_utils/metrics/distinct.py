"""Words and sentences, the same for every metric; and Distinct-n: how many of a text's n-grams are different ones.

Used by notebook 05 and by Self-BLEU, GRUEN and perplexity (paper 4.1 (1); Li et al. 2016). The share of n-grams and the share of
tokens both fall with length: compare texts of like length, or divide by what chance would give (`expected`, Liu et al. 2022).

>>> words("The hon. Member’s £1.5m won’t do!")
['the', 'hon', '.', "member's", '£', '1.5', 'm', "won't", 'do', '!']
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
PER = ("ngrams", "tokens", "expected")


def words(text: str | None, lower: bool = True) -> list[str]:
    """Words, numbers (1.5, 10,000) and single marks; curly apostrophes become straight, case is folded, None is empty."""
    text = text or ""
    for mark in APOSTROPHES:
        text = text.replace(mark, "'")  # str.translate takes five times as long
    return WORD.findall(text.lower() if lower else text)


def first_words(text: str | None, n: int | None) -> str:
    """The text up to its `n`-th word (None: all), white space inside unchanged; None is empty."""
    text = (text or "").strip()
    match = n and re.match(rf"(?:\S+\s+){{{n - 1}}}\S+", text)
    return match.group() if match else text


def split_sentences(text: str | None) -> list[str]:
    """Sentences by nupunkt, whose legal English knows "hon.", "St.", "U.K.", "£1.5m." and "No. 10"; [] for no text."""
    from nupunkt import sent_tokenize

    text = " ".join((text or "").split())
    return [sentence.strip() for sentence in sent_tokenize(text) if sentence.strip()] if text else []


def signature(n: int, per: str = "ngrams", vocabulary: int | None = None) -> str:
    """What fixes a value."""
    drawn_from = f"-of-{vocabulary}" if per == "expected" else ""
    return f"Dist-{n}|per:{per}{drawn_from}|level:text|{SIGNATURE}|v1"


def distinct_n(texts: Sequence[str | None], n: int = 2, per: str = "ngrams", vocabulary: int | None = None) -> np.ndarray:
    """Different n-grams of each text over all its n-grams, over its tokens, or over the number `expected` of as many
    draws from `vocabulary` kinds; shape (n_speeches,), in (0, 1] (the last may pass 1).

    NaN for a text shorter than `n` tokens. Punctuation marks are tokens.
    """
    return np.array([corpus_distinct_n([text], n, per, vocabulary) for text in texts], dtype=np.float64)


def corpus_distinct_n(texts: Iterable[str | None], n: int = 2, per: str = "tokens", vocabulary: int | None = None) -> float:
    """One value for all texts together, as Li et al. define it: no n-gram crosses from one text into the next."""
    if per not in PER:
        raise ValueError(f"per {per!r}: one of {', '.join(PER)}")
    if per == "expected" and not vocabulary:
        raise ValueError("per 'expected': give `vocabulary`, the number of kinds to draw from")
    split = [words(text) for text in texts]
    ngrams = [tuple(tokens[i : i + n]) for tokens in split for i in range(len(tokens) - n + 1)]
    if not ngrams:
        return float("nan")
    total = {"ngrams": len(ngrams), "tokens": sum(map(len, split))}
    return len(set(ngrams)) / (expected_kinds(len(ngrams), vocabulary) if per == "expected" else total[per])


def expected_kinds(drawn: int, vocabulary: int) -> float:
    """V (1 - ((V - 1) / V)^C): how many kinds C draws from V equally likely ones show on average."""
    return vocabulary * -math.expm1(drawn * math.log1p(-1 / vocabulary)) if vocabulary > 1 else min(drawn, 1)
