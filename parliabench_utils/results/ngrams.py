"""Word n-grams of many texts as 64-bit numbers, so that millions of them are compared in seconds.

Used by `memorisation` and `permutation` (notebook 08). A word's number comes from a hash of its letters and is the same in
every run; an n-gram's number grows word by word. Two n-grams have the same number by chance once in about 10^19 pairs.

>>> corpus = encode(["My Lords, we agree.", None])
>>> corpus.lengths.tolist(), corpus.words[0][:2]
([6, 0], ['my', 'lords'])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from parliabench_utils.metrics.tokens import words

BASE = np.uint64(0x9E3779B97F4A7C15 | 1)  # odd, so that no bit of a word's number is lost


@dataclass(frozen=True)
class Encoded:
    """Texts end to end: `codes` (n_words,) uint64, `ends` (n_words,) where the text of each word ends, `lengths` (n_texts,)."""

    words: list[list[str]]
    codes: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Position of each text's first word, shape (n_texts,)."""
        return np.cumsum(self.lengths) - self.lengths


@lru_cache(maxsize=1_000_000)
def _code(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest())


def encode(texts: Sequence[str | None]) -> Encoded:
    """The words of `texts` (None has none) as numbers."""
    split = [words(text) for text in texts]
    lengths = np.array([len(text) for text in split], dtype=np.int64)
    codes = np.fromiter((_code(word) for text in split for word in text), dtype=np.uint64, count=int(lengths.sum()))
    return Encoded(split, codes, np.repeat(np.cumsum(lengths), lengths), lengths)


def longer(hashes: np.ndarray, positions: np.ndarray, n: int, corpus: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams at `positions` with one more word: numbers and positions, those that would leave their text dropped."""
    fits = positions + n < corpus.ends[positions]
    kept = positions[fits]
    return hashes[fits] * BASE + corpus.codes[kept + n], kept
