"""What is measured on held-out cosines: margin, balanced accuracy, AUC, analysis of variance; with intervals.

Everything takes weights of speeches, (n_draws, n_speeches), and gives a value a draw: a row of ones is the measure itself,
rows of `cluster_weights` are bootstrap samples. Used by notebook 06 through `alignment_validation`.

    scored = Scored(cosines, codes, strata, members, rows)
    measures(scored, cluster_weights(codes, members, 500, rng))["margin", "mean"]     # value, low, high
"""

from dataclasses import dataclass

import numpy as np

from parliabench_utils.metrics.table import ROUNDING, settled

BLOCK = 100  # draws at a time: memory is BLOCK x n_speeches


@dataclass(frozen=True)
class Scored:
    """Held-out speeches: cosines `table` (n, n_parties), NaN where a party has no centroid; own party's column `codes`
    (n,); `strata` (n,) within which they are compared; `members` (n,); `rows` (n,), their places among all speeches."""

    table: np.ndarray
    codes: np.ndarray
    strata: np.ndarray
    members: np.ndarray
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


def cluster_weights(groups: np.ndarray, clusters: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """How often each speech is in each bootstrap sample, float32 (draws, n): whole clusters are drawn, within each group.

    Drawing members within their party keeps every party in every sample.
    """
    weights = np.zeros((draws, len(groups)), dtype=np.float32)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        names, code = np.unique(clusters[rows], return_inverse=True)
        weights[:, rows] = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)[:, code]
    return weights


def interval(values: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of the draws; NaN, NaN where none is defined."""
    known = values[~np.isnan(values)]
    return tuple(map(float, np.quantile(known, [0.025, 0.975]))) if len(known) else (np.nan, np.nan)


def measures(scored: Scored, weights: np.ndarray | None = None) -> dict[tuple[str, str], tuple[float, float, float]]:
    """(check, statistic) -> value, low, high; NaN for the last two without `weights`."""
    whole = _measure(scored, np.ones((1, len(scored.codes))))
    drawn = dict.fromkeys(whole, (np.nan, np.nan))
    if weights is not None:
        blocks = [_measure(scored, weights[i : i + BLOCK]) for i in range(0, len(weights), BLOCK)]
        drawn = {key: interval(np.concatenate([block[key] for block in blocks])) for key in whole}
    return {key: (float(value[0]), *drawn[key]) for key, value in whole.items()}


def _measure(scored: Scored, weights: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    own, others, total = scored.own, scored.others, weights.sum(axis=1)
    margin = own - np.nanmax(others, axis=1)
    true = _eta_squared(own, scored, weights)
    wrong = np.nanmean([_eta_squared(_shifted(scored, k), scored, weights) for k in _shifts(scored)], axis=0)
    return {
        ("cosine", "own party, mean"): weights @ own / total,
        ("cosine", "other parties, mean"): weights @ np.nanmean(others, axis=1) / total,
        ("margin", "mean over the best other party"): weights @ margin / total,
        ("nearest party", "balanced accuracy"): _balanced(margin > 0, scored, weights),
        ("nearest party", "chance"): _balanced(_chance(scored), scored, weights),
        ("AUC", "own against others, mean of parties"): _mean_auc(scored, weights),
        ("ANOVA", "eta squared, true centroids"): true,
        ("ANOVA", "eta squared, deranged centroids: mean"): wrong,
        ("ANOVA", "eta squared, true less deranged"): true - wrong,
    }


def balanced_accuracy(scored: Scored) -> float:
    """Mean over parties of the share of their speeches that are nearest to them, within each stratum."""
    hits = scored.own > np.nanmax(scored.others, axis=1)
    return float(_balanced(hits, scored, np.ones((1, len(hits))))[0])


def _balanced(values: np.ndarray, scored: Scored, weights: np.ndarray) -> np.ndarray:
    """Mean over parties of a party's mean, in each stratum; then over strata by their speeches.

    Big parties do not rule it, and a party that speaks on one topic above all is not found for that.
    """
    cells, cell = np.unique(np.stack([scored.strata, scored.codes]), axis=1, return_inverse=True)
    member, stratum = _one_hot(cell.ravel()), _one_hot(cells[0])  # (n, n_cells), (n_cells, n_strata)
    counts, sums = weights @ member, (weights * values) @ member
    drawn = counts > 0
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=drawn)
    with np.errstate(invalid="ignore"):
        by_stratum = means @ stratum / (drawn @ stratum)
    return np.nansum(by_stratum * (counts @ stratum), axis=1) / weights.sum(axis=1)


def _chance(scored: Scored) -> np.ndarray:
    """The balanced accuracy of each speech's stratum if what is nearest had nothing to do with who speaks, (n,).

    1 / parties, less where speeches are nearest to parties that do not speak there.
    """
    found, value = np.nanargmax(scored.table, axis=1), np.empty(len(scored.codes))
    for stratum in np.unique(scored.strata):
        rows = scored.strata == stratum
        spoken = np.unique(scored.codes[rows])
        value[rows] = np.isin(found[rows], spoken).mean() / len(spoken)
    return value


def _mean_auc(scored: Scored, weights: np.ndarray) -> np.ndarray:
    """Mean over parties of the AUC with which the cosine to a party tells its speeches from others' in the same stratum."""
    parties = np.unique(scored.codes)
    values = [auc(scored.table[:, party], scored.codes == party, scored.strata, weights) for party in parties]
    known = np.array(values)  # (n_parties, n_draws)
    defined = ~np.isnan(known)
    with np.errstate(invalid="ignore"):
        return np.where(defined, known, 0).sum(axis=0) / defined.sum(axis=0)


def auc(scores: np.ndarray, own: np.ndarray, strata: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted share of (own, other) pairs of one stratum in which the own speech scores higher, ties half; (n_draws,)."""
    wins, pairs = np.zeros(len(weights)), np.zeros(len(weights))
    for stratum in np.unique(strata):
        rows = np.flatnonzero((strata == stratum) & ~np.isnan(scores))
        rows = rows[np.argsort(scores[rows], kind="stable")]
        if own[rows].all() or not own[rows].any():
            continue
        ties = np.flatnonzero(np.r_[True, np.diff(scores[rows]) > 0])
        drawn = weights[:, rows].astype(np.float64)
        above = np.add.reduceat(drawn * own[rows], ties, axis=1)
        below = np.add.reduceat(drawn * ~own[rows], ties, axis=1)
        wins += (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
        pairs += above.sum(axis=1) * below.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return wins / pairs


def anova(scores: np.ndarray, groups: np.ndarray, strata: np.ndarray | None = None) -> tuple[float, float]:
    """One-way F and eta squared (share of the spread that lies between groups); NaN where no spread can lie within.

    With `strata`, each score counts as its difference to its stratum's mean, and F pays a degree of freedom for each.
    """
    known = ~np.isnan(scores)
    scores, codes = scores[known], np.unique(groups[known], return_inverse=True)[1]
    strata = np.zeros(len(codes), dtype=int) if strata is None else np.unique(strata[known], return_inverse=True)[1]
    n_groups, free = len(np.unique(codes)), len(codes) - len(np.unique(codes)) - len(np.unique(strata)) + 1
    if n_groups < 2 or free < 1:
        return float("nan"), float("nan")
    between, within = _sums_of_squares(_centred(scores, strata), codes, np.ones((1, len(codes))))
    with np.errstate(invalid="ignore", divide="ignore"):
        f, eta2 = (between / (n_groups - 1)) / (within / free), between / (between + within)
    return float(np.where(within > 0, f, np.nan)[0]), float(eta2[0])


def wrong_anovas(scored: Scored) -> list[tuple[int, float, float]]:
    """(k, F, eta squared) for every k: party i scored on the centroid of party i + k. Nobody meets his own party."""
    return [(k, *anova(_shifted(scored, k), scored.codes, scored.strata)) for k in _shifts(scored)]


def _shifts(scored: Scored) -> range:
    return range(1, scored.table.shape[1])


def _shifted(scored: Scored, shift: int) -> np.ndarray:
    return scored.table[np.arange(len(scored.codes)), (scored.codes + shift) % scored.table.shape[1]]


def _eta_squared(scores: np.ndarray, scored: Scored, weights: np.ndarray) -> np.ndarray:
    known = ~np.isnan(scores)
    scores, codes = _centred(scores[known], scored.strata[known]), scored.codes[known]
    between, within = _sums_of_squares(scores, codes, weights[:, known])
    with np.errstate(invalid="ignore"):
        return between / (between + within)


def _sums_of_squares(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between and within groups, each (n_draws,); 0 for what is only rounding."""
    groups = _one_hot(codes)
    counts, sums = weights @ groups, weights @ (groups * scores[:, None])
    total = weights.sum(axis=1)
    mean = sums.sum(axis=1) / total
    with np.errstate(invalid="ignore", divide="ignore"):
        between = np.where(counts > 0, sums**2 / counts, 0).sum(axis=1) - total * mean**2
    squares = weights @ scores**2
    within = squares - total * mean**2 - between
    return tuple(np.where(part > ROUNDING * squares, part, 0.0) for part in (between, within))


def _centred(scores: np.ndarray, strata: np.ndarray) -> np.ndarray:
    codes = np.unique(strata, return_inverse=True)[1]
    centred = scores - (np.bincount(codes, weights=scores) / np.bincount(codes))[codes]
    return settled(centred, np.abs(scores).max(initial=0.0))


def _one_hot(codes: np.ndarray) -> np.ndarray:
    names, code = np.unique(codes, return_inverse=True)
    return np.eye(len(names))[code]
