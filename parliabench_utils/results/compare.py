"""Baseline against fine-tuned: the paper's pooled t-test and, beside it, the paired design that the data have.

All models answer the same prompts, so a difference is best taken within a prompt. Notebook 08 writes the result as Table 13.

>>> t, p, d = t_test_from_summary(61.150, 35.890, 2756, 31.623, 8.251, 2756)
>>> round(t, 2), round(d, 3)
(-42.09, -1.134)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric

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
    if not pooled > 0:
        return TTest(np.nan, np.nan, np.nan)
    test = stats.ttest_ind_from_stats(mean2, sd2, n2, mean1, sd1, n1, equal_var=True)
    return TTest(float(test.statistic), float(test.pvalue), float((mean2 - mean1) / pooled))


def cliffs_delta(first: np.ndarray, second: np.ndarray) -> float:
    """P(second > first) - P(second < first), in [-1, 1], for ordinal scores; NaN where a side is empty."""
    from scipy import stats

    first, second = first[~np.isnan(first)], second[~np.isnan(second)]
    if not first.size or not second.size:
        return float("nan")
    ranks = stats.rankdata(np.concatenate([first, second]))
    u = ranks[first.size :].sum() - second.size * (second.size + 1) / 2
    return float(2 * u / (first.size * second.size) - 1)


def compare(
    scores: pd.DataFrame,
    metrics: Sequence[Metric] = METRICS,
    *,
    draws: int = 2000,
    seed: int = 42,
    cluster: str = "prompt_id",
    permuted: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Fine-tuned minus baseline for each model and metric.

    Unpaired columns: n, mean, sd of both sides, `difference`, `t`, `df`, `p`, `cohens_d`, `cliffs_delta`. Paired by
    prompt (variants averaged first): `n_pairs`, `paired_difference`, `ci_low`, `ci_high` (95 %, bootstrap over
    `cluster`: prompt_id, context_id, speaker_id ...), `paired_t`, `paired_p`, `wilcoxon_p`, `paired_d`. Each p has
    its corrected forms over `family` (all models x metrics with a defined p). `direction` and `paired_direction` are
    better, worse or no change by the metric's good end. No pairs give `n_pairs` 0 and NaN, never an error.

    `permuted` is the permutation p of Self-BLEU by model (`permutation`): it stands in `permutation_p` and takes the place
    of that row's paired p in the corrections. `n_human` and `mean_human` are those of the human speeches.
    """
    human = scores[scores["type"] == "human"]
    rows = []
    for model in dict.fromkeys(scores.loc[scores["type"].isin([BASELINE, TUNED]), "model"]):
        rows.extend(_compare_model(scores[scores["model"] == model], model, metrics, draws, seed, cluster))
    table = pd.DataFrame(rows, columns=None if rows else _COLUMNS)
    known = {} if permuted is None else dict(permuted)
    table["permutation_p"] = table["model"].map(known).where(table["metric"] == "Self-BLEU").astype(float)
    table["n_human"] = table["metric"].map({m.name: int(human[m.column].notna().sum()) for m in metrics})
    table["mean_human"] = table["metric"].map({m.name: human[m.column].mean() for m in metrics})
    return _correct(_correct(table, "p", table["p"]), "paired_p", table["permutation_p"].fillna(table["paired_p"]))


_COLUMNS = ["model", "metric", "difference", "p", "paired_p", "direction", "paired_direction", "n_pairs"]


def _compare_model(
    scores: pd.DataFrame, model: str, metrics: Sequence[Metric], draws: int, seed: int, cluster: str
) -> list[dict]:
    columns = [metric.column for metric in metrics]
    base, tuned = (scores.loc[scores["type"] == kind] for kind in (BASELINE, TUNED))
    pairs = _paired_differences(base, tuned, columns)
    prompts = pairs.index.to_series()
    clusters = scores.drop_duplicates("prompt_id").set_index("prompt_id", drop=False)[cluster]
    labels = clusters.loc[pairs.index].fillna(prompts)  # a prompt without a speaker stands for itself
    intervals = bootstrap_means(pairs.to_numpy(), labels.to_numpy(), draws, seed)
    return [
        {"model": model, "metric": metric.name}
        | _unpaired(base[metric.column].to_numpy(float), tuned[metric.column].to_numpy(float), metric)
        | _paired(pairs[metric.column].to_numpy(float), intervals[:, position], metric)
        for position, metric in enumerate(metrics)
    ]


def _paired_differences(base: pd.DataFrame, tuned: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Tuned minus baseline, one row a prompt that both sides have."""
    means = [part.groupby("prompt_id")[columns].mean() for part in (base, tuned)]
    shared = means[0].index.intersection(means[1].index).sort_values()
    return means[1].loc[shared].astype(float) - means[0].loc[shared].astype(float)


def _unpaired(base: np.ndarray, tuned: np.ndarray, metric: Metric) -> dict:
    sides = [side[~np.isnan(side)] for side in (base, tuned)]
    (n1, mean1, sd1), (n2, mean2, sd2) = (_summary(side) for side in sides)
    test = t_test_from_summary(mean1, sd1, n1, mean2, sd2, n2)
    difference = mean2 - mean1
    return {
        "n_baseline": n1,
        "mean_baseline": mean1,
        "sd_baseline": sd1,
        "n_fine_tuned": n2,
        "mean_fine_tuned": mean2,
        "sd_fine_tuned": sd2,
        "difference": difference,
        "t": test.t,
        "df": n1 + n2 - 2,
        "p": test.p,
        "cohens_d": test.d,
        "cliffs_delta": cliffs_delta(*sides),
        "direction": _direction(difference, metric),
    }


def _direction(difference: float, metric: Metric) -> str:
    gain = difference if metric.higher_is_better else -difference
    return "better" if gain > 0 else "worse" if gain < 0 else "no change"


def _summary(values: np.ndarray) -> tuple[int, float, float]:
    mean = float(values.mean()) if values.size else float("nan")
    return values.size, mean, float(values.std(ddof=1)) if values.size > 1 else float("nan")


def _paired(differences: np.ndarray, interval: np.ndarray, metric: Metric) -> dict:
    from scipy import stats

    values = differences[~np.isnan(differences)]
    n, mean, sd = _summary(values)
    t = p = d = wilcoxon = float("nan")
    if n > 1 and sd > 0:
        t, d = mean / (sd / np.sqrt(n)), mean / sd
        p = float(2 * stats.t.sf(abs(t), n - 1))
        wilcoxon = float(stats.wilcoxon(values).pvalue)
    return {
        "n_pairs": n,
        "paired_difference": mean,
        "ci_low": interval[0],
        "ci_high": interval[1],
        "paired_t": t,
        "paired_p": p,
        "paired_d": d,
        "wilcoxon_p": wilcoxon,
        "paired_direction": _direction(mean, metric),
    }


def bootstrap_means(values: np.ndarray, clusters: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """95 % percentile interval of each column's mean, whole clusters drawn with replacement.

    `values` (n, k) with NaN where missing, `clusters` (n,) labels; returns (2, k), NaN with fewer than two clusters.
    """
    names, codes = np.unique(clusters.astype(str), return_inverse=True)
    if names.size < 2:
        return np.full((2, values.shape[1]), np.nan)
    sums, counts = (np.zeros((names.size, values.shape[1])) for _ in range(2))
    np.add.at(sums, codes, np.nan_to_num(values))
    np.add.at(counts, codes, ~np.isnan(values))
    weights = np.random.default_rng(seed).multinomial(names.size, np.full(names.size, 1 / names.size), size=draws)
    totals, drawn = np.hsplit(weights.astype(float) @ np.hstack([sums, counts]), 2)  # (draws, k) each
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(drawn > 0, totals / drawn, np.nan)
    interval = np.full((2, values.shape[1]), np.nan)
    filled = counts.sum(axis=0) > 0
    interval[:, filled] = np.nanpercentile(means[:, filled], [2.5, 97.5], axis=0)
    return interval


def _correct(table: pd.DataFrame, column: str, p: pd.Series) -> pd.DataFrame:
    """Add `<column>_bonferroni`, `_holm` and `_bh` of `p`, and name the family."""
    from statsmodels.stats.multitest import multipletests

    defined = p.notna().to_numpy()
    for name, method in CORRECTIONS.items():
        corrected = np.full(len(table), np.nan)
        if defined.any():
            corrected[defined] = multipletests(p[defined], alpha=ALPHA, method=method)[1]
        table[f"{column}_{name}"] = corrected
    family = f"{int(defined.sum())} tests: {table['model'].nunique()} models x {table['metric'].nunique()} metrics"
    table["family" if column == "p" else f"{column}_family"] = family
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
