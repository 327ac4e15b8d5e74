"""Party Align with topic and House held fixed: centroids of what is left of a speech without its context's mean.

A party that speaks about fishing has a centroid that smells of fish. Here the mean of all training speeches of the same
House and topic is taken away first, from the speeches of the centroid and from the one that is scored: what is left is
how this speaker differs from everybody else who spoke there. Not in the paper. Used by notebook 06.

    parts = residuals(["Green", "Labour"], party_sums, ["Commons/Energy"], context_sums, pair_counts)
    party_alignment(parts.of(vectors, contexts), expected, parts.centroids)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parliabench_utils.models.encoders import unit_rows

MIN_SPEECHES = 5  # a context with fewer training speeches has no mean of its own: its House's mean stands in
_NOTHING = 1e-6  # a mean residual shorter than this is rounding: nobody else spoke in the party's contexts


def context_key(house: str | None, topic: str | None) -> str:
    """One context of speaking: a topic in a House; `Unknown` where the corpus gives none (None, or a table's NaN)."""
    return "/".join(part if isinstance(part, str) else "Unknown" for part in (house, topic))


@dataclass(frozen=True)
class Residuals:
    """`centroids`: party -> unit vector; `means`: context, House, or "" (all speeches) -> mean vector, not of unit length."""

    centroids: dict[str, np.ndarray]
    means: dict[str, np.ndarray]

    def mean(self, context: str) -> np.ndarray:
        """The mean of the context, of its House where it has none, of everything where the House is new."""
        return next(self.means[key] for key in (context, context.partition("/")[0], "") if key in self.means)

    def of(self, vectors: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
        """Unit rows (n_speeches, dimension) of what is left of each vector; NaN where it was NaN."""
        known = {context: self.mean(context) for context in set(contexts)}
        return unit_rows(vectors - np.stack([known[context] for context in contexts]))


def residuals(
    parties: Sequence[str],
    party_sums: np.ndarray,
    contexts: Sequence[str],
    context_sums: np.ndarray,
    pair_counts: np.ndarray,
) -> Residuals:
    """From sums of training vectors by party (P, d) and by context (C, d) and speeches of each pair (P, C).

    A party that is alone in all its contexts has no centroid: it cannot be told from what it speaks about.
    """
    means = _means(contexts, context_sums, pair_counts.sum(axis=0))
    own = Residuals({}, means)
    left = party_sums - pair_counts @ np.stack([own.mean(context) for context in contexts])
    length = np.linalg.norm(left, axis=1) / np.maximum(pair_counts.sum(axis=1), 1)
    return Residuals({p: unit_rows(left[i]) for i, p in enumerate(parties) if length[i] > _NOTHING}, means)


def _means(contexts: Sequence[str], sums: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    houses = np.array([context.partition("/")[0] for context in contexts])
    found = {c: sums[i] / counts[i] for i, c in enumerate(contexts) if counts[i] >= MIN_SPEECHES}
    for house in sorted(set(houses[counts > 0])):
        found[house] = sums[houses == house].sum(axis=0) / counts[houses == house].sum()
    return found | {"": sums.sum(axis=0) / max(counts.sum(), 1)}
