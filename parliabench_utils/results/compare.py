"""Baseline against fine-tuned: the paper's pooled t-test and, beside it, the paired design that the data have.

All models answer the same prompts, so a difference is best taken within a prompt. Notebook 08 writes the result as Table 13.
What has no spread has no test: where all values, or all paired differences, are the same (but for rounding, `metrics.table`),
t, p, d and the interval are NaN, at every scale, and the direction says what happened.

>>> t, p, d = t_test_from_summary(61.150, 35.890, 2756, 31.623, 8.251, 2756)
>>> round(t, 2), round(d, 3)
(-42.09, -1.134)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric, is_rounding, settled
from parliabench_utils.results.cells import cluster_t_test, estimand_weights, prompt_clusters, summary

BASELINE, TUNED = "baseline", "fine-tuned"
ALPHA = 0.05
CORRECTIONS = {"bonferroni": "bonferroni", "holm": "holm", "bh": "fdr_bh"}


class TTest(NamedTuple):
    """t, two-sided p and Cohen's d, positive when the second mean is larger; NaN where undefined."""

    t: float
    p: float
    d: float


def t_test_from_summary(mean1: float, sd1: float, n1: int, mean2: float, sd2: float, n2: int) -> TTest:
    """Pooled two-sample t-test from means and sds (ddof 1); d is the difference over the pooled sd (Table 13)."""
    from scipy import stats

    if min(n1, n2) < 2:
        return TTest(np.nan, np.nan, np.nan)
    pooled = np.sqrt(((n1 - 1) * sd1**2 + (n2 - 1) * sd2**2) / (n1 + n2 - 2))
    if is_rounding(pooled, max(abs(mean1), abs(mean2))):
        return TTest(np.nan, np.nan, np.nan)
    test = stats.ttest_ind_from_stats(mean2, sd2, n2, mean1, sd1, n1, equal_var=True)
    return TTest(float(test.statistic), float(test.pvalue), float((mean2 - mean1) / pooled))


def cliffs_delta(first: np.ndarray, second: np.ndarray, weights: tuple[np.ndarray, np.ndarray] | None = None) -> float:
    """P(second > first) - P(second < first), in [-1, 1], for ordinal scores; NaN where a side is empty.

    `weights` are those of both sides; values that are equal but for rounding are ties.
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    known = ~np.isnan(first), ~np.isnan(second)
    sides = [side[mask] for side, mask in zip((first, second), known, strict=True)]
    if not all(side.size for side in sides):
        return float("nan")
    weighing = (
        [np.ones(s.size) for s in sides] if weights is None else [w[k] for w, k in zip(weights, known, strict=True)]
    )
    level = np.unique(settled(np.concatenate(sides)), return_inverse=True)[1]
    a = np.bincount(level[: sides[0].size], weighing[0], level.max() + 1)
    b = np.bincount(level[sides[0].size :], weighing[1], level.max() + 1)
    below, above = np.cumsum(a) - a, a.sum() - np.cumsum(a)  # weight of `first` below and above each level
    return float((b * (below - above)).sum() / (a.sum() * b.sum()))


def compare(
    scores: pd.DataFrame,
    metrics: Sequence[Metric] = METRICS,
    *,
    draws: int = 2000,
    seed: int = 42,
    cluster: str = "prompt_id",
    permuted: Mapping[str, float] | None = None,
    estimand: str = "prompts",
    models: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Fine-tuned minus baseline for each model and metric; all means and tests are of the `estimand` (`cells.ESTIMANDS`).

    Unpaired columns: n, mean, sd of both sides, `difference`, `t`, `df`, `p` (pooled; of weighted means with unequal variances),
    `cohens_d`, `cliffs_delta`. Paired by prompt (variants averaged first): `n_pairs`, `n_effective` ((sum w)^2 / sum w^2),
    `n_clusters`, `paired_difference`, `ci_low`, `ci_high` (95 %), `paired_t`, `paired_df`, `paired_p`, `paired_d`, robust to
    dependence within `cluster` (prompt_id, context_id, speaker_id ...; `cluster_t_test`), and `wilcoxon_p` (signed ranks; with
    clusters or weights by `draws` changes of sign of whole clusters). Each p has its corrected forms over `family`: all `models`
    (default: those with rows) x metrics that were planned, a test that turned out undefined counting as p = 1. `direction`
    and `paired_direction` are better, worse or no change by the metric's good end. No pairs give `n_pairs` 0 and NaN.

    `permuted` is the permutation p of Self-BLEU by model (`permutation`): it stands in `permutation_p` and takes the place
    of that row's paired p in the corrections. `n_human` and `mean_human` are those of the human speeches.
    """
    human = scores[scores["type"] == "human"]
    found = dict.fromkeys(scores.loc[scores["type"].isin([BASELINE, TUNED]), "model"])
    rows = []
    for model in found if models is None else models:
        rows.extend(_compare_model(scores, model, metrics, draws, seed, cluster, estimand))
    table = pd.DataFrame(rows, columns=None if rows else _COLUMNS)
    known = {} if permuted is None else dict(permuted)
    table["permutation_p"] = table["model"].map(known).where(table["metric"] == "Self-BLEU").astype(float)
    members = {metric.name: _side(human, metric.column, estimand, scores) for metric in metrics}
    for name, place in (("n_human", 0), ("mean_human", 1)):
        table[name] = table["metric"].map({metric: summary(*side)[place] for metric, side in members.items()})
    table["estimand"] = estimand
    return _correct(_correct(table, "p", table["p"]), "paired_p", table["permutation_p"].fillna(table["paired_p"]))


_COLUMNS = ["model", "metric", "difference", "p", "paired_p", "direction", "paired_direction", "n_pairs"]


def _compare_model(
    scores: pd.DataFrame, model: str, metrics: Sequence[Metric], draws: int, seed: int, cluster: str, estimand: str
) -> list[dict]:
    own = scores[scores["model"] == model]
    base, tuned = (own[own["type"] == kind] for kind in (BASELINE, TUNED))
    prompts = prompt_clusters(scores, cluster)
    rows = []
    for metric in metrics:
        sides = [_side(side, metric.column, estimand, scores) for side in (base, tuned)]
        means = [side.groupby("prompt_id")[metric.column].mean().dropna().astype(float) for side in (base, tuned)]
        shared = prompts.loc[means[0].index.intersection(means[1].index).sort_values()]
        values = [mean.loc[shared.index].to_numpy() for mean in means]
        weights = estimand_weights(shared, estimand, prompts)
        paired = _paired(*values, shared["_cluster"].to_numpy(), weights, metric, draws, seed)
        rows.append({"model": model, "metric": metric.name} | _unpaired(*sides, metric, estimand) | paired)
    return rows


def _side(rows: pd.DataFrame, column: str, estimand: str, scores: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The values that there are of one side, and their weights."""
    known = rows[rows[column].notna()]
    return known[column].to_numpy(float), estimand_weights(known, estimand, scores)


def _unpaired(base: tuple, tuned: tuple, metric: Metric, estimand: str) -> dict:
    (n1, mean1, sd1, _), (n2, mean2, sd2, _) = summary(*base), summary(*tuned)
    test, df = t_test_from_summary(mean1, sd1, n1, mean2, sd2, n2), n1 + n2 - 2
    t, p = test.t, test.p
    if estimand != "prompts":
        t, df, p = _welch(base, tuned)
    size = max((np.abs(values).max(initial=0.0) for values, _ in (base, tuned)), default=0.0)
    return {
        "n_baseline": n1,
        "mean_baseline": mean1,
        "sd_baseline": sd1,
        "n_fine_tuned": n2,
        "mean_fine_tuned": mean2,
        "sd_fine_tuned": sd2,
        "difference": mean2 - mean1,
        "t": t,
        "df": df,
        "p": p,
        "cohens_d": test.d,
        "cliffs_delta": cliffs_delta(base[0], tuned[0], (base[1], tuned[1])),
        "direction": _direction(mean2 - mean1, size, metric),
    }


def _welch(base: tuple, tuned: tuple) -> tuple[float, float, float]:
    """t, degrees of freedom and p of the difference of two weighted means of unequal variances."""
    from scipy import stats

    first, second = (cluster_t_test(values, np.arange(values.size), weights) for values, weights in (base, tuned))
    parts = [(side.se**2, side.df) for side in (first, second) if not np.isnan(side.se)]  # a constant side adds nothing
    if not parts or min(base[0].size, tuned[0].size) < 2:
        return np.nan, np.nan, np.nan
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / free for part, free in parts)
    t = (second.mean - first.mean) / np.sqrt(variance)
    return float(t), float(df), float(2 * stats.t.sf(abs(t), df))


def _direction(difference: float, size: float, metric: Metric) -> str:
    """By the metric's good end, for a difference of numbers of that size."""
    if is_rounding(abs(difference), size):
        return "no change"
    return "better" if (difference > 0) == metric.higher_is_better else "worse"


def _paired(
    base: np.ndarray,
    tuned: np.ndarray,
    clusters: np.ndarray,
    weights: np.ndarray,
    metric: Metric,
    draws: int,
    seed: int,
) -> dict:
    size = max(np.abs(base).max(initial=0.0), np.abs(tuned).max(initial=0.0))
    values = settled(tuned - base, size)
    test = cluster_t_test(values, clusters, weights, size)
    n, _, sd, effective = summary(values, weights)
    spread = not is_rounding(sd, size) and len(set(clusters)) > 1
    return {
        "n_pairs": n,
        "n_effective": effective,
        "n_clusters": len(set(clusters)),
        "paired_difference": test.mean,
        "ci_low": test.low,
        "ci_high": test.high,
        "paired_t": test.t,
        "paired_df": test.df,
        "paired_p": test.p,
        "paired_d": test.mean / sd if spread else np.nan,
        "wilcoxon_p": signed_rank_p(values, clusters, weights, draws, seed) if spread else np.nan,
        "paired_direction": _direction(test.mean, size, metric),
    }


def signed_rank_p(values: np.ndarray, clusters: np.ndarray, weights: np.ndarray, draws: int, seed: int) -> float:
    """Two-sided p of Wilcoxon's signed ranks; scipy's for one value a cluster and equal weights.

    Otherwise the weighted signed ranks of a cluster change their sign together in each of `draws`, and p is the share of draws
    whose sum is as far from 0, the observed one counted.
    """
    from scipy import stats

    codes = np.unique(clusters.astype(str), return_inverse=True)[1]
    if codes.max() + 1 == values.size and is_rounding(np.ptp(weights), weights.max()):
        return float(stats.wilcoxon(values).pvalue)
    apart = values != 0
    ranks = np.sign(values[apart]) * stats.rankdata(np.abs(values[apart])) * weights[apart]
    sums = np.bincount(codes[apart], ranks, codes.max() + 1)
    null = np.random.default_rng(seed).choice([-1.0, 1.0], (draws, sums.size)) @ sums
    return float((1 + (np.abs(null) >= abs(sums.sum()) * (1 - 1e-9)).sum()) / (1 + draws))


def _correct(table: pd.DataFrame, column: str, p: pd.Series) -> pd.DataFrame:
    """Add `<column>_bonferroni`, `_holm` and `_bh` of `p`, and name the family: what was planned; undefined counts as p = 1."""
    from statsmodels.stats.multitest import multipletests

    defined, planned = int(p.notna().sum()), len(p)
    for name, method in CORRECTIONS.items():
        corrected = multipletests(p.fillna(1.0), alpha=ALPHA, method=method)[1] if planned else np.empty(0)
        table[f"{column}_{name}"] = np.where(p.notna(), corrected, np.nan)
    family = f"{planned} tests planned: {table['model'].nunique()} models x {table['metric'].nunique()} metrics"
    table["family" if column == "p" else f"{column}_family"] = family + (
        f", {defined} of them defined" if defined < planned else ""
    )
    return table


def verdict(table: pd.DataFrame, test: str = "pooled", correction: str = "bonferroni") -> pd.Series:
    """ "gain", "decline" or "" for each row of `compare`: significant at 0.05 after `correction`, by the named test."""
    if test not in ("pooled", "paired") or correction not in CORRECTIONS:
        raise ValueError(
            f"test={test!r}, correction={correction!r}: expected pooled or paired, and one of {list(CORRECTIONS)}"
        )
    p = table[f"{'p' if test == 'pooled' else 'paired_p'}_{correction}"]
    marks = table["direction" if test == "pooled" else "paired_direction"].map(
        {"better": "gain", "worse": "decline", "no change": ""}
    )
    return marks.where(p < ALPHA, "")
