"""Self-BLEU: how much of a text the other texts of its group have said too (paper 4.1 (1); Zhu et al. 2018).

Used by notebook 05. Each text is scored against all the *others*, as NLTK's `sentence_bleu` with method-1 smoothing
does, but for the whole group at once: an n-gram's highest count, its owner and the runner-up are all that a text must
know. The value grows with the number of references: compare groups of equal size only, or give `k`.

>>> self_bleu(["a b c d e", "a b c d e", "v w x y z"]).round(6)
array([1., 1., 0.])
"""

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from parliabench_utils.metrics.tokens import SIGNATURE, words

EPSILON = 0.1  # NLTK's method 1: this replaces a count of no matches


class Best(NamedTuple):
    """The highest count of an n-gram in one text of a group, that text, and the highest count elsewhere."""

    count: int
    owner: int
    runner_up: int


def signature(group: str, max_n: int = 4, k: int | None = None) -> str:
    """What fixes a value; `group` says whom a text is compared with: prompt, context or model."""
    references = f"{k}-drawn" if k else "all-others"
    return f"Self-BLEU-{max_n}|group:{group}|refs:{references}|smooth:nltk-method1|{SIGNATURE}|v1"


def self_bleu(
    texts: Sequence[str | None],
    groups: Sequence[Hashable] | None = None,
    max_n: int = 4,
    k: int | None = None,
    seed: int = 42,
) -> np.ndarray:
    """BLEU of each text against the other texts of its group, in [0, 1], shape (n_speeches,); 1 says: nothing new.

    NaN for a missing text (None) and in a group of one (or with fewer than `k` others); an empty text scores 0.
    `k` draws that many references for each text, by `seed`, so that groups of unequal size can be compared.
    """
    tokens = [words(text) if text is not None else None for text in texts]
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups if groups is not None else [0] * len(texts)):
        if tokens[i] is not None:
            members.setdefault(group, []).append(i)
    scores = np.full(len(texts), np.nan)
    for rows in members.values():
        group = [tokens[i] for i in rows]
        scores[rows] = _leave_one_out(group, max_n) if k is None else _drawn(group, max_n, k, random.Random(seed))
    return scores


def _leave_one_out(texts: list[list[str]], max_n: int) -> list[float]:
    if len(texts) < 2:
        return [math.nan] * len(texts)
    counts = [_counts(text, max_n) for text in texts]
    best = _best_counts(counts)
    lengths = Counter(map(len, texts))
    scores = []
    for i, text in enumerate(texts):
        limits = {g: best[g].runner_up if best[g].owner == i else best[g].count for g in counts[i]}
        others = lengths - Counter([len(text)])
        scores.append(_bleu(len(text), counts[i], limits, others, max_n))
    return scores


def _drawn(texts: list[list[str]], max_n: int, k: int, rng: random.Random) -> list[float]:
    counts = [_counts(text, max_n) for text in texts]
    scores = []
    for i, text in enumerate(texts):
        others = [j for j in range(len(texts)) if j != i]
        if len(others) < k:
            scores.append(math.nan)
            continue
        chosen = rng.sample(others, k)
        limits = {g: max(counts[j][g] for j in chosen) for g in counts[i]}
        scores.append(_bleu(len(text), counts[i], limits, [len(texts[j]) for j in chosen], max_n))
    return scores


def _counts(tokens: list[str], max_n: int) -> Counter:
    return Counter(tuple(tokens[i : i + n]) for n in range(1, max_n + 1) for i in range(len(tokens) - n + 1))


def _best_counts(counts: list[Counter]) -> dict[tuple, Best]:
    best: dict[tuple, Best] = {}
    for owner, table in enumerate(counts):
        for ngram, count in table.items():
            old = best.get(ngram)
            if old is None:
                best[ngram] = Best(count, owner, 0)
            elif count > old.count:
                best[ngram] = Best(count, owner, old.count)
            elif count > old.runner_up:
                best[ngram] = old._replace(runner_up=count)
    return best


def _bleu(length: int, counts: Counter, limits: dict, reference_lengths, max_n: int) -> float:
    matches, totals = [0] * max_n, [max(1, length - n) for n in range(max_n)]
    for ngram, count in counts.items():
        matches[len(ngram) - 1] += min(count, limits[ngram])
    if length == 0 or matches[0] == 0:  # NLTK gives 0 before it smooths
        return 0.0
    logs = [math.log((match or EPSILON) / total) for match, total in zip(matches, totals, strict=True)]
    closest = min(reference_lengths, key=lambda other: (abs(other - length), other))
    penalty = 1.0 if length > closest else math.exp(1 - closest / length)
    return penalty * math.exp(sum(logs) / max_n)
