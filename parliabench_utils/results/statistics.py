"""The statistics of the results, in one import: comparisons, stability, difficulty, variance, selection (section 6).

Baseline against fine-tuned: the paper's pooled t-test and, beside it, the paired design that the data have.

All models answer the same prompts, so a difference is best taken within a prompt. Notebook 08 writes the result as Table 13.
What has no spread has no test: where all values, or all paired differences, are the same (but for rounding, `metrics.table`),
t, p, d and the interval are NaN, at every scale, and the direction says what happened.

>>> t, p, d = t_test_from_summary(61.150, 35.890, 2756, 31.623, 8.251, 2756)
>>> round(t, 2), round(d, 3)
(-42.09, -1.134)

How hard a group (party, orientation, topic) is to speak for, by a definition of our own; Tables 9 and 10, Figures 5 and 7.

The paper prints a difficulty and a consistency column and defines neither, so these do not reproduce its numbers:

* difficulty = 1 - the mean over models of the group's composite: the plain mean of its normalised metrics (1 = good), each the
  mean over its speeches. 0 is easy, 1 hard. Only metrics that every group has count (parties without an orientation have no
  PSA: with it, they would rank apart for that alone).
* consistency = Eq. 4 over the models' composites of the group: 100 when all models do equally well.

Cross-context stability (section 4.2, Eq. 4): how even a model's scores are over parties, topics and orientations.

Notebook 08 writes it as Table 12. The paper normalises all metrics to [0, 1] without saying how: here by `cells.normalise`,
lower-is-better metrics flipped first.

>>> stability([0.5, 0.5, 0.5])
100.0
>>> stability([0.4])
nan

Do the scores tell groups apart? One-way analysis of variance beside a control that knows no party; `tables/anova.csv`.

Section 13.2 announces this analysis and prints no F, df or p. Each analysis has notebook 06's control beside it: the same speech
scored as if it were another party's (Party Align: the next party's centroid) or of another orientation (PSA: the next one's place
on the scale), next in the alphabet and the last one's next the first. When the control separates groups as well as the metric
does, it is not the party that the metric sees.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE, UNKNOWN_ORIENTATION
from parliabench_utils.metrics.table import METRICS, Metric, is_rounding, settled
from parliabench_utils.results.scores import HUMAN, cluster_t_test, composite, estimand_weights, normalise, prompt_clusters, summary

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
    weighing = [np.ones(s.size) for s in sides] if weights is None else [w[k] for w, k in zip(weights, known, strict=True)]
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
        raise ValueError(f"test={test!r}, correction={correction!r}: expected pooled or paired, and one of {list(CORRECTIONS)}")
    p = table[f"{'p' if test == 'pooled' else 'paired_p'}_{correction}"]
    marks = table["direction" if test == "pooled" else "paired_direction"].map(
        {"better": "gain", "worse": "decline", "no change": ""}
    )
    return marks.where(p < ALPHA, "")


DEFINITION = (
    "Our own definition (the paper gives none): difficulty = 1 - mean over models of the group's composite, the plain mean of the "
    "normalised metrics that all groups have; consistency = Eq. 4 over the models' composites."
)


def speech_difficulty(scores: pd.DataFrame, how: str = "run", by: str = "Party") -> pd.Series:
    """1 - composite of each speech, in [0, 1], of the metrics that every group of `by` has; rows as in `scores`."""
    values = normalise(scores, how)
    return 1.0 - composite(values[_shared(values, [scores[by]])])


def _shared(values: pd.DataFrame, keys: list[pd.Series]) -> list[str]:
    """The metrics that each group of `keys` has values of; a group without any value at all does not decide."""
    known = values.notna().groupby([k.to_numpy() for k in keys]).any()
    known = known[known.any(axis=1)]
    return list(known.columns[known.all()]) if len(known) else list(values)


def left_out(frame: pd.DataFrame) -> str:
    """Names of the metrics that a table of `difficulty` did not use, "" where it used all."""
    names = frame["left_out"].dropna() if "left_out" in frame else pd.Series(dtype=str)
    return str(names.iloc[0]) if len(names) else ""


def difficulty(
    scores: pd.DataFrame, by: str, kind: str = "fine-tuned", how: str = "run", estimand: str = "prompts"
) -> pd.DataFrame:
    """Groups of column `by`, hardest first: rank, group, difficulty, consistency, n (speeches), n_models, human, n_human, left_out.

    Speeches of type `kind` count; `human` is the difficulty of the members' own speeches. The normalisation is over all
    rows of `scores`; all groups, models and people are compared on the same metrics, `left_out` names the others; means are of
    the `estimand` within a group. Unknown (orientation, or no party or topic stated) is no position and comes last, without a rank.
    """
    rows = scores.assign(_group=known_groups(scores[by]).fillna(UNKNOWN_ORIENTATION).astype(str))
    values = normalise(rows, how)
    counted = rows["type"].isin([kind, HUMAN])
    rows, values = rows[counted], values[counted]
    used = _shared(values, [rows["_group"], rows["model"]])
    means = _means(values[used], rows, estimand)
    hard = 1.0 - means.mean(axis=1, skipna=False).unstack("model") if used else pd.DataFrame(index=sorted(set(rows["_group"])))
    known = values.notna().any(axis=1)
    n, n_human = (known[kinds].groupby(rows["_group"][kinds]).sum() for kinds in (rows["type"] == kind, rows["type"] == HUMAN))
    per_model = hard.drop(columns=HUMAN, errors="ignore").reindex(n.index)
    human = hard[HUMAN] if HUMAN in hard else pd.Series(dtype=float)
    table = pd.DataFrame(
        {
            "group": per_model.index,
            "difficulty": per_model.mean(axis=1).to_numpy(),
            "consistency": [stability(1.0 - row) for row in per_model.to_numpy()],
            "n": n.to_numpy(),
            "n_models": per_model.notna().sum(axis=1).to_numpy(),
            "human": human.reindex(per_model.index).to_numpy(float),
            "n_human": n_human.reindex(per_model.index, fill_value=0).to_numpy(),
            "left_out": ", ".join(name for name in values if name not in used),
        }
    )
    table["estimand"] = estimand
    unranked = table["group"] == UNKNOWN_ORIENTATION
    table = table.assign(_last=unranked).sort_values(
        ["_last", "difficulty", "group"], ascending=[True, False, True], ignore_index=True
    )
    rank = pd.Series(np.arange(1, len(table) + 1), dtype="Int64").mask(table.pop("_last"))
    table.insert(0, "rank", rank)
    return table


def _means(values: pd.DataFrame, rows: pd.DataFrame, estimand: str) -> pd.DataFrame:
    """Mean of each metric for each group and model, of the speeches that have a value."""
    keys = [rows["_group"], rows["model"]]
    weights = pd.Series(np.nan, index=rows.index)
    for _, part in rows.groupby(keys):
        weights.loc[part.index] = estimand_weights(part, estimand)
    sums = values.mul(weights, axis=0).groupby(keys).sum(min_count=1)
    return sums / values.notna().mul(weights, axis=0).groupby(keys).sum()


CONTEXTS = {"affiliation": "Party", "topic": "Topic", "orientation": "Political Orientation"}
NEAR_ZERO = 1e-3  # a coefficient of variation around a mean of nothing says nothing


def known_groups(labels: pd.Series) -> pd.Series:
    """`labels` (parties, topics, orientations) as text, missing where there is none: null, empty, or an unknown orientation."""
    text = labels.astype("string").str.strip()
    return text.mask(text.isin(["", UNKNOWN_ORIENTATION]))


def stability(group_means: Iterable[float]) -> float:
    """100 / (1 + CV) with CV = sd (ddof 0) / mean over the groups, in (0, 100]; NaN below two groups or for a mean near 0."""
    return float(_stabilities(np.asarray(list(group_means), dtype=float)[:, None])[0])


def _stabilities(means: np.ndarray) -> np.ndarray:
    """Eq. 4 of each column of group means (groups, ...), NaN for a group without values."""
    known = ~np.isnan(means)
    count = known.sum(axis=0)
    mean = np.where(known, means, 0.0).sum(axis=0) / np.maximum(count, 1)
    sd = np.sqrt((np.where(known, means - mean, 0.0) ** 2).sum(axis=0) / np.maximum(count, 1))
    defined = (count > 1) & (mean >= NEAR_ZERO)
    return np.where(defined, 100.0 / (1.0 + sd / np.where(defined, mean, 1.0)), np.nan)


def stability_by_metric(scores: pd.DataFrame, how: str = "run", draws: int = 0, seed: int = 42) -> pd.DataFrame:
    """Stability of each model, type, context and metric.

    Speeches without a party, topic or orientation (`known_groups`) do not count in that context: Unknown is no position.
    Columns: model, type, context, metric, stability, n_groups, n and, from `draws` permutations that deal the speeches to
    groups of the same sizes at random: `by_chance`, the mean stability that sampling alone gives, and `p_chance`, the share
    of permutations that are as uneven as the real groups.
    """
    values = normalise(scores, how)
    rows = []
    for (model, kind), index in scores.groupby(["model", "type"], sort=False).groups.items():
        for context, column in CONTEXTS.items():
            groups = known_groups(scores.loc[index, column]).dropna().astype(str)
            block = values.loc[groups.index]
            means = block.groupby(groups).mean()
            found = _stabilities(means.to_numpy())
            chance, p = _by_chance(block.to_numpy(), groups.to_numpy(), found, draws, seed)
            part = pd.DataFrame({"model": model, "type": kind, "context": context, "metric": list(values)})
            part["stability"], part["n_groups"] = found, means.notna().sum().to_numpy()
            part["n"], part["by_chance"], part["p_chance"] = block.notna().sum().to_numpy(), chance, p
            rows.append(part)
    return pd.concat(rows, ignore_index=True)


def _by_chance(data: np.ndarray, groups: np.ndarray, found: np.ndarray, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """For each metric, mean stability over permutations of the groups, and the share of them that `found` does not exceed."""
    nothing = np.full(data.shape[1], np.nan)
    if not draws or not len(groups):
        return nothing, nothing
    rng = np.random.default_rng(seed)
    known = ~np.isnan(data)
    both = np.hstack([np.where(known, data, 0.0), known])  # (n, 2 * metrics): sums and counts in one go
    sizes = np.unique(groups, return_counts=True)[1]
    starts = np.cumsum(sizes) - sizes
    null = np.empty((draws, data.shape[1]))
    for draw in range(draws):
        dealt = np.add.reduceat(both[rng.permutation(len(groups))], starts)  # the first groups get the first rows, ...
        sums, counts = np.hsplit(dealt, 2)  # (groups, metrics) each
        null[draw] = _stabilities(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0))
    valid = ~np.isnan(null)
    count = valid.sum(axis=0)
    usable = (count > 0) & ~np.isnan(found)
    mean = np.where(valid, null, 0.0).sum(axis=0) / np.maximum(count, 1)
    p = (1 + (valid & (null <= found + 1e-9)).sum(axis=0)) / (1 + count)
    return np.where(count > 0, mean, np.nan), np.where(usable, p, np.nan)


def stability_table(by_metric: pd.DataFrame) -> pd.DataFrame:
    """Table 12: for each model and type the mean over metrics for each context, and `overall`, their plain mean.

    `uneven` of `tests` metrics and contexts are less even than 95 % of permutations (chance alone: one in twenty).
    """
    keys = ["model", "type"]
    means = by_metric.groupby([*keys, "context"])[["stability", "by_chance"]].mean().unstack("context")
    means = means.loc[pd.MultiIndex.from_frame(by_metric[keys].drop_duplicates())]  # the models' own order
    out = means["stability"][list(CONTEXTS)]
    out = out.assign(overall=out.mean(axis=1), overall_by_chance=means["by_chance"][list(CONTEXTS)].mean(axis=1))
    groups = by_metric.groupby(keys, sort=False)
    out["n"] = groups["n"].max()
    out["uneven"] = by_metric["p_chance"].lt(0.05).groupby([by_metric[k] for k in keys]).sum()
    out["tests"] = groups["p_chance"].count()
    return out.reset_index()


# (quantity, column, grouping column, is it the control?)
ANALYSES = (
    ("Party Align", "Party Align", "Party", False),
    ("Party Align, deranged centroids", "Party Align deranged", "Party", True),
    ("PSA", "PSA", "Political Orientation", False),
    ("PSA, deranged orientations", "PSA deranged", "Political Orientation", True),
    ("Difficulty", "_difficulty", "Party", False),
    ("Difficulty, deranged", "_difficulty deranged", "Party", True),
)


@dataclass(frozen=True)
class Anova:
    """F test and Kruskal-Wallis over groups of at least two values; NaN where fewer than two groups have them.

    Without any spread all are NaN; without spread within the groups F and p are.
    """

    n: int
    groups: int
    F: float
    df_between: int
    df_within: int
    p: float
    eta2: float
    H: float
    kruskal_p: float


def anova(values: pd.Series, groups: pd.Series) -> Anova:
    """One-way ANOVA with eta squared (share of the sum of squares between groups, in [0, 1]) and Kruskal-Wallis."""
    from scipy import stats

    kept = values.notna() & groups.notna()
    values = pd.Series(settled(values.to_numpy(float)), index=values.index)
    samples = [part.to_numpy(float) for _, part in values[kept].groupby(groups[kept]) if len(part) > 1]
    n = sum(map(len, samples))
    between, within = max(len(samples) - 1, 0), n - len(samples)
    if len(samples) < 2 or len(np.unique(np.concatenate(samples))) < 2:
        nan = float("nan")
        return Anova(n, len(samples), nan, between, within, nan, nan, nan, nan)
    everything = np.concatenate(samples)
    ss_between = sum(len(s) * (s.mean() - everything.mean()) ** 2 for s in samples)
    rank = stats.kruskal(*samples)
    f = p = float("nan")
    if not all(is_rounding(np.ptp(sample), np.abs(everything).max()) for sample in samples):
        f, p = map(float, stats.f_oneway(*samples))
    eta2 = ss_between / ((everything - everything.mean()) ** 2).sum()
    return Anova(
        n,
        len(samples),
        f,
        between,
        within,
        p,
        float(eta2),
        float(rank.statistic),
        float(rank.pvalue),
    )


def anova_table(scores: pd.DataFrame, how: str = "run") -> pd.DataFrame:
    """Every analysis for all fine-tuned speeches together, for each model and type, and for the human ones.

    Columns: quantity, by, control, model, type and those of `Anova`. Speeches of all models to one prompt share it, so
    the p of "all" is too small; the rows of single models are the ones to read.
    """
    rows = scores.assign(**{"_difficulty": speech_difficulty(scores, how), "PSA deranged": deranged_psa(scores)})
    controls = {"PSA": rows["PSA deranged"], "Party Align": rows["Party Align deranged"]}
    rows["_difficulty deranged"] = speech_difficulty(rows.assign(**controls), how)
    parts = [("all", "fine-tuned", rows[rows["type"] == "fine-tuned"])]
    parts += [(*key, part) for key, part in rows.groupby(["model", "type"], sort=False)]
    return pd.DataFrame(
        [
            {"quantity": quantity, "by": by, "control": control, "model": model, "type": kind} | vars(anova(part[column], part[by]))
            for quantity, column, by, control in ANALYSES
            for model, kind, part in parts
        ]
    )


def deranged_psa(scores: pd.DataFrame) -> pd.Series:
    """Eq. 2 as if each speech's orientation were the next in the alphabet; NaN where PSA is, and without 06's parts of it."""
    if not {"similarity", "nearest_orientation"} <= set(scores):
        return pd.Series(np.nan, index=scores.index)
    known = sorted(set(scores["Political Orientation"]) & set(ORIENTATION_SCALE))
    following = dict(zip(known, known[1:] + known[:1], strict=True))
    expected = scores["Political Orientation"].map(following).map(ORIENTATION_SCALE)
    apart = (scores["nearest_orientation"].map(ORIENTATION_SCALE) - expected).abs().astype(float)
    return (scores["similarity"] * (1 - apart / 12).clip(lower=0)).where(scores["PSA"].notna())
