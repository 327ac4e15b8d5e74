"""What is measured on held-out cosines: margin, balanced accuracy, AUC, analysis of variance.

Used by notebook 06 through `alignment_validation`, which also measures the same with members dealt to parties by lot.

    scored = Scored(cosines, codes, strata, rows)
    measures(scored)["nearest party", "balanced accuracy"]
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from parliabench_utils.metrics.table import ROUNDING, settled

Key = tuple[str, str]  # check, statistic
ACCURACY: Key = ("nearest party", "balanced accuracy")
EVEN: Key = ("nearest party", "one party in those that speak")
F: Key = ("ANOVA", "F, true centroids")
# What labels dealt by lot are compared on, each with its range: the others are levels, not differences between parties.
TESTED: dict[Key, tuple[float, float]] = {
    ("margin", "mean over the best other party"): (-2.0, 2.0),
    ACCURACY: (0.0, 1.0),
    ("AUC", "own against others, mean of parties"): (0.0, 1.0),
    ("ANOVA", "eta squared, true centroids"): (0.0, 1.0),
    ("ANOVA", "eta squared, true less deranged"): (-1.0, 1.0),
}


@dataclass(frozen=True)
class Scored:
    """Held-out speeches: cosines `table` (n, n_parties), NaN where a party has no centroid; own party's column `codes`
    (n,); `strata` (n,) within which they are compared; `rows` (n,), their places among all speeches."""

    table: np.ndarray
    codes: np.ndarray
    strata: np.ndarray
    rows: np.ndarray

    @property
    def own(self) -> np.ndarray:
        """Cosine to the own party, (n,)."""
        return self.table[np.arange(len(self.codes)), self.codes]

    @property
    def others(self) -> np.ndarray:
        """The table without the own party's cosines."""
        table = self.table.copy()
        table[np.arange(len(self.codes)), self.codes] = np.nan
        return table


def measures(scored: Scored) -> dict[Key, float]:
    """(check, statistic) -> value."""
    own, others = scored.own, scored.others
    best = np.nanmax(others, axis=1)
    f, true = anova(own, scored.codes, scored.strata)
    wrong = [eta for _, _, eta in wrong_anovas(scored) if not np.isnan(eta)]
    deranged = float(np.mean(wrong)) if wrong else np.nan
    return {
        ("cosine", "own party, mean"): float(own.mean()),
        ("cosine", "other parties, mean"): float(np.nanmean(others, axis=1).mean()),
        ("margin", "mean over the best other party"): float((own - best).mean()),
        ACCURACY: _balanced(own > best, scored),
        EVEN: _balanced(_even(scored), scored),
        ("AUC", "own against others, mean of parties"): _mean_auc(scored),
        F: f,
        ("ANOVA", "eta squared, true centroids"): true,
        ("ANOVA", "eta squared, deranged centroids: mean"): deranged,
        ("ANOVA", "eta squared, true less deranged"): true - deranged,
    }


def _balanced(values: np.ndarray, scored: Scored) -> float:
    """Mean over parties of a party's mean, in each stratum; then over strata by their speeches.

    Big parties do not rule it, and a party that speaks on one topic above all is not found for that.
    """
    width = scored.table.shape[1]
    cells, cell = np.unique(scored.strata * width + scored.codes, return_inverse=True)
    counts = np.bincount(cell)
    stratum = np.unique(cells // width, return_inverse=True)[1]
    means = np.bincount(stratum, weights=np.bincount(cell, weights=values) / counts) / np.bincount(stratum)
    return float(means @ np.bincount(stratum, weights=counts) / len(values))


def _even(scored: Scored) -> np.ndarray:
    """One in the parties that speak in a speech's stratum, less where speeches are nearest to parties that do not, (n,).

    What even odds would give; lot alone gives more or less (`alignment_validation`).
    """
    found, value = np.nanargmax(scored.table, axis=1), np.empty(len(scored.codes))
    for stratum in np.unique(scored.strata):
        rows = scored.strata == stratum
        spoken = np.unique(scored.codes[rows])
        value[rows] = np.isin(found[rows], spoken).mean() / len(spoken)
    return value


def _mean_auc(scored: Scored) -> float:
    """Mean over parties of the AUC with which the cosine to a party tells its speeches from others' in the same stratum."""
    values = [auc(scored.table[:, code], scored.codes == code, scored.strata) for code in np.unique(scored.codes)]
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def auc(scores: np.ndarray, own: np.ndarray, strata: np.ndarray) -> float:
    """Share of (own, other) pairs of one stratum in which the own speech scores higher, ties half; NaN without a pair."""
    known = ~np.isnan(scores)
    own, place = own[known], np.unique(strata[known], return_inverse=True)[1]
    rank = rankdata(np.where(known, scores, 0)[known] + 4.0 * place)  # cosines: strata lie apart, in their order
    counts, mine = np.bincount(place), np.bincount(place, weights=own)
    below = np.cumsum(counts) - counts
    wins = np.bincount(place, weights=own * (rank - below[place])) - mine * (mine + 1) / 2
    pairs = mine * (counts - mine)
    return float(wins[pairs > 0].sum() / pairs.sum()) if pairs.sum() else np.nan


def anova(scores: np.ndarray, groups: np.ndarray, strata: np.ndarray | None = None) -> tuple[float, float]:
    """One-way F and eta squared (share of the spread that lies between groups); NaN where no spread can lie within.

    With `strata`, each score counts as its difference to its stratum's mean, and F pays a degree of freedom for each.
    """
    known = ~np.isnan(scores)
    scores, codes = scores[known], np.unique(groups[known], return_inverse=True)[1]
    strata = np.zeros(len(codes), dtype=int) if strata is None else np.unique(strata[known], return_inverse=True)[1]
    n_groups = len(np.unique(codes))
    free = len(codes) - n_groups - len(np.unique(strata)) + 1
    if n_groups < 2 or free < 1:
        return float("nan"), float("nan")
    between, within = _sums_of_squares(_centred(scores, strata), codes)
    f = (between / (n_groups - 1)) / (within / free) if within > 0 else float("nan")
    return f, between / (between + within) if between + within > 0 else float("nan")


def wrong_anovas(scored: Scored) -> list[tuple[int, float, float]]:
    """(k, F, eta squared) for every k: party i scored on the centroid of party i + k. Nobody meets his own party."""
    rows, width = np.arange(len(scored.codes)), scored.table.shape[1]
    shifted = {k: scored.table[rows, (scored.codes + k) % width] for k in range(1, width)}
    return [(k, *anova(scores, scored.codes, scored.strata)) for k, scores in shifted.items()]


def _sums_of_squares(scores: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    """Between and within groups; 0 for what is only rounding."""
    sums, counts, squares = np.bincount(codes, weights=scores), np.bincount(codes), (scores**2).sum()
    between = (sums**2 / counts).sum() - scores.sum() ** 2 / len(scores)
    within = ((scores - (sums / counts)[codes]) ** 2).sum()
    return tuple(float(part) if part > ROUNDING * squares else 0.0 for part in (between, within))


def _centred(scores: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Scores less their stratum's mean; what is only rounding becomes 0."""
    centred = scores - (np.bincount(strata, weights=scores) / np.bincount(strata))[strata]
    return settled(centred, np.abs(scores).max(initial=0.0))
