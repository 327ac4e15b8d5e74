"""Does tuning help, where is it hard, how even is it, what tells groups apart: the statistics of section 6 (notebook 08).

Baseline against fine-tuned by the paper's pooled t-test and, beside it, the paired design that the data have: all models answer
the same prompts. What has no spread has no test: where all values, or all paired differences, are the same (but for rounding,
`metrics.table`), t, p, d and the interval are NaN, at every scale, and the direction says what happened.

>>> t, p, d = t_test_from_summary(61.150, 35.890, 2756, 31.623, 8.251, 2756)      # Table 2 gives Table 13
>>> round(t, 2), round(d, 3)
(-42.09, -1.134)
>>> stability([0.5, 0.5, 0.5]), stability([0.4])      # Eq. 4; one group is no spread
(100.0, nan)
"""

from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE, UNKNOWN_ORIENTATION
from parliabench_utils.metrics import alignment_tests
from parliabench_utils.metrics.alignment import WIDEST
from parliabench_utils.metrics.table import METRICS, Metric, is_rounding, settled
from parliabench_utils.results.scores import HUMAN, SET, cluster_t_test, estimand_weights, normalise, prompt_clusters, summary

BASELINE, TUNED = "baseline", "fine-tuned"
ALPHA = 0.05
CATEGORIES = tuple(dict.fromkeys(metric.category for metric in METRICS))
CORRECTIONS = {"bonferroni": "bonferroni", "holm": "holm", "bh": "fdr_bh"}


TTest = namedtuple("TTest", "t p d")


def t_test_from_summary(mean1: float, sd1: float, n1: int, mean2: float, sd2: float, n2: int) -> TTest:
    """Pooled two-sample t-test from means and sds (ddof 1): t, two-sided p and Cohen's d, the difference over the pooled sd (Table
    13); positive when the second mean is larger, NaN where undefined."""
    from scipy import stats

    pooled = np.sqrt(((n1 - 1) * sd1**2 + (n2 - 1) * sd2**2) / (n1 + n2 - 2)) if min(n1, n2) > 1 else np.nan
    if is_rounding(pooled, max(abs(mean1), abs(mean2))):
        return TTest(np.nan, np.nan, np.nan)
    test = stats.ttest_ind_from_stats(mean2, sd2, n2, mean1, sd1, n1, equal_var=True)
    return TTest(float(test.statistic), float(test.pvalue), float((mean2 - mean1) / pooled))


def cliffs_delta(first: np.ndarray, second: np.ndarray, weights: tuple[np.ndarray, np.ndarray] | None = None) -> float:
    """P(second > first) - P(second < first), in [-1, 1], for ordinal scores; NaN where a side is empty.

    `weights` are those of both sides; values that are equal but for rounding are ties.
    """
    sides = [np.asarray(side, dtype=float) for side in (first, second)]
    weights = [np.ones(side.size) for side in sides] if weights is None else weights
    weights = [weight[~np.isnan(side)] for weight, side in zip(weights, sides, strict=True)]
    sides = [side[~np.isnan(side)] for side in sides]
    if not all(side.size for side in sides):
        return float("nan")
    level = np.unique(settled(np.concatenate(sides)), return_inverse=True)[1]
    a = np.bincount(level[: sides[0].size], weights[0], level.max() + 1)
    b = np.bincount(level[sides[0].size :], weights[1], level.max() + 1)
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
    """Fine-tuned minus baseline for each model and metric; all means and tests are of the `estimand` (`scores.ESTIMANDS`).

    Unpaired columns: n, mean, sd of both sides, `difference`, `t`, `df`, `p` (pooled; of weighted means with unequal variances),
    `cohens_d`, `cliffs_delta`. Paired by prompt (variants averaged first): `n_pairs`, `n_effective` ((sum w)^2 / sum w^2),
    `n_clusters`, `paired_difference`, `ci_low`, `ci_high` (95 %), `paired_t`, `paired_df`, `paired_p`, `paired_d`, robust to
    dependence within `cluster` (prompt_id, context_id, speaker_id ...; `cluster_t_test`), and `wilcoxon_p` (`signed_rank_p`).
    `permutation_p`: Self-BLEU's, given by model as `permuted` (`robustness.self_bleu_test`); it is corrected in the paired one's
    place. Each p has its corrected forms over `family`: all `models` (default: those with rows) x metrics that were planned, an
    undefined test counting as p = 1. `direction` and `paired_direction` are better, worse or no change by the metric's good end.
    No pairs give `n_pairs` 0 and NaN; no models an empty table.
    """
    if models is None:
        models = list(dict.fromkeys(scores.loc[scores["type"].isin([BASELINE, TUNED]), "model"]))
    prompts, human, rows = prompt_clusters(scores, cluster), scores[scores["type"] == HUMAN], []
    for model, metric in product(models, metrics):
        own = scores[scores["model"] == model]
        sides = [own[(own["type"] == kind) & own[metric.column].notna()] for kind in (BASELINE, TUNED)]
        people = human[human[metric.column].notna()]
        base, tuned, members = (
            (side[metric.column].to_numpy(float), estimand_weights(side, estimand, scores)) for side in (*sides, people)
        )
        means = [side.groupby("prompt_id")[metric.column].mean().astype(float) for side in sides]
        shared = prompts.loc[means[0].index.intersection(means[1].index).sort_values()]
        pairs = [mean.loc[shared.index].to_numpy() for mean in means]
        weights = estimand_weights(shared, estimand, prompts)
        row = {"model": model, "metric": metric.name} | _unpaired(base, tuned, metric, estimand)
        row |= _paired(*pairs, shared["_cluster"].to_numpy(), weights, metric, draws, seed)
        row["permutation_p"] = (permuted if permuted is not None and metric.name == "Self-BLEU" else {}).get(model, np.nan)
        n_human, mean_human, *_ = summary(*members)
        rows.append(row | {"n_human": n_human, "mean_human": mean_human, "estimand": estimand})
    table = pd.DataFrame(rows)
    return _corrected(table) if rows else table


def _unpaired(base: tuple, tuned: tuple, metric: Metric, estimand: str) -> dict:
    """Of (values, weights) of both sides."""
    (n1, mean1, sd1, _), (n2, mean2, sd2, _) = summary(*base), summary(*tuned)
    (t, p, d), df = t_test_from_summary(mean1, sd1, n1, mean2, sd2, n2), n1 + n2 - 2
    if estimand != "prompts":
        t, df, p = _welch(base, tuned)
    size = max(np.abs(values).max(initial=0.0) for values, _ in (base, tuned))
    row = {"n_baseline": n1, "mean_baseline": mean1, "sd_baseline": sd1}
    row |= {"n_fine_tuned": n2, "mean_fine_tuned": mean2, "sd_fine_tuned": sd2}
    row |= {"difference": mean2 - mean1, "t": t, "df": df, "p": p, "cohens_d": d}
    row["cliffs_delta"] = cliffs_delta(base[0], tuned[0], (base[1], tuned[1]))
    return row | {"direction": _direction(mean2 - mean1, size, metric)}


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


def _paired(
    base: np.ndarray, tuned: np.ndarray, clusters: np.ndarray, weights: np.ndarray, metric: Metric, draws: int, seed: int
) -> dict:
    """Of one value a prompt of either side (n_pairs,)."""
    size = max(np.abs(base).max(initial=0.0), np.abs(tuned).max(initial=0.0))
    values = settled(tuned - base, size)
    test = cluster_t_test(values, clusters, weights, size)
    n, _, sd, effective = summary(values, weights)
    n_clusters = len(set(clusters))
    spread = not is_rounding(sd, size) and n_clusters > 1
    row = {"n_pairs": n, "n_effective": effective, "n_clusters": n_clusters, "paired_difference": test.mean}
    row |= {"ci_low": test.low, "ci_high": test.high, "paired_t": test.t, "paired_df": test.df, "paired_p": test.p}
    row["paired_d"] = test.mean / sd if spread else np.nan
    row["wilcoxon_p"] = signed_rank_p(values, clusters, weights, draws, seed) if spread else np.nan
    return row | {"paired_direction": _direction(test.mean, size, metric)}


def _direction(difference: float, size: float, metric: Metric) -> str:
    """By the metric's good end, for a difference of numbers of that size."""
    if is_rounding(abs(difference), size):
        return "no change"
    return "better" if (difference > 0) == metric.higher_is_better else "worse"


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


def _corrected(table: pd.DataFrame) -> pd.DataFrame:
    """Bonferroni's, Holm's and Benjamini-Hochberg's p of both tests, and the family: what was planned; undefined counts as 1."""
    from statsmodels.stats.multitest import multipletests

    tests = {"p": ("family", table["p"]), "paired_p": ("paired_p_family", table["permutation_p"].fillna(table["paired_p"]))}
    planned = f"{len(table)} tests planned: {table['model'].nunique()} models x {table['metric'].nunique()} metrics"
    for column, (family, p) in tests.items():
        for name, method in CORRECTIONS.items():
            corrected = multipletests(p.fillna(1.0), alpha=ALPHA, method=method)[1]
            table[f"{column}_{name}"] = np.where(p.notna(), corrected, np.nan)
        table[family] = planned if p.notna().all() else f"{planned}, {p.notna().sum()} of them defined"
    return table


def verdict(table: pd.DataFrame, test: str = "pooled", correction: str = "bonferroni") -> pd.Series:
    """ "gain", "decline" or "" for each row of `compare`: significant at 0.05 after `correction`, by the named test."""
    if test not in ("pooled", "paired") or correction not in CORRECTIONS:
        raise ValueError(f"test={test!r}, correction={correction!r}: expected pooled or paired, and one of {list(CORRECTIONS)}")
    side = "" if test == "pooled" else "paired_"
    marks = table[f"{side}direction"].map({"better": "gain", "worse": "decline", "no change": ""})
    return marks.where(table[f"{side}p_{correction}"] < ALPHA, "")


def category_changes(scores: pd.DataFrame, how: str, cluster: str = "prompt_id", estimand: str = "prompts") -> pd.DataFrame:
    """Fine-tuned minus baseline by category of Table 1, paired by prompt (Figure 3): model, category, change, low, high (95 %), n
    (prompts), n_effective, cluster, estimand.

    The change is the mean over the category's metrics that both sides of a prompt have, each normalised to [0, 1] with 1 the
    good end; the interval is that of `cluster_t_test`.
    """
    frame = pd.concat([scores[[*SET, "prompt_id"]], normalise(scores, how)], axis=1)
    prompts, rows = prompt_clusters(scores, cluster), []
    for model in dict.fromkeys(frame.loc[frame["type"] == TUNED, "model"]):
        sides = [frame[(frame["model"] == model) & (frame["type"] == kind)] for kind in (BASELINE, TUNED)]
        before, after = (side.drop(columns=SET).groupby("prompt_id").mean() for side in sides)
        for category in CATEGORIES:
            change = (after - before)[[m.name for m in METRICS if m.category == category]].mean(axis=1).dropna()
            known = prompts.loc[change.index]
            weights = estimand_weights(known, estimand, prompts)
            test = cluster_t_test(change.to_numpy(), known["_cluster"].to_numpy(), weights, size=1.0)
            row = {"model": model, "category": category, "change": test.mean, "low": test.low, "high": test.high, "n": len(change)}
            row["n_effective"] = summary(change.to_numpy(), weights)[3]
            rows.append(row | {"cluster": cluster, "estimand": estimand})
    return pd.DataFrame(rows)


DEFINITION = (
    "Our own definition (the paper gives none): difficulty = 1 - mean over models of the group's composite, the plain mean of the "
    "normalised metrics that all groups have; consistency = Eq. 4 over the models' composites."
)


def known_groups(labels: pd.Series) -> pd.Series:
    """`labels` (parties, topics, orientations) as text, missing where there is none: null, empty, or an unknown orientation."""
    text = labels.astype("string").str.strip()
    return text.mask(text.isin(["", UNKNOWN_ORIENTATION]))


def _shared(values: pd.DataFrame, keys: list[pd.Series]) -> list[str]:
    """The metrics that each group of `keys` has values of; a group without any value at all does not decide."""
    known = values.notna().groupby([k.to_numpy() for k in keys]).any()
    known = known[known.any(axis=1)]
    return list(known.columns[known.all()]) if len(known) else list(values)


def composite(normalised: pd.DataFrame) -> pd.Series:
    """Plain mean of the normalised metrics of each speech, in [0, 1]; NaN only where all are missing."""
    return normalised.mean(axis=1)


def speech_difficulty(scores: pd.DataFrame, how: str = "run", by: str = "Party") -> pd.Series:
    """1 - composite of each speech, in [0, 1], of the metrics that every group of `by` has; rows as in `scores`."""
    values = normalise(scores, how)
    return 1.0 - composite(values[_shared(values, [scores[by]])])


def difficulty(scores: pd.DataFrame, by: str, how: str = "run", estimand: str = "prompts") -> pd.DataFrame:
    """Groups of column `by`, hardest first: rank, group, difficulty, consistency, n (speeches), n_models, human, n_human, left_out.

    The paper prints both columns (Tables 9 and 10) and defines neither: see DEFINITION; 0 is easy, 1 hard. Fine-tuned speeches
    count; `human` is the difficulty of the members' own. The normalisation is over all rows of `scores`; all groups, models and
    people are compared on the same metrics (with PSA, parties without an orientation would rank apart for that alone), `left_out`
    names the others; means are of the `estimand` within a group. Unknown (orientation, or no party or topic stated) is no position
    and comes last, without a rank.
    """
    rows = scores.assign(_group=known_groups(scores[by]).fillna(UNKNOWN_ORIENTATION).astype(str))
    values = normalise(rows, how)
    counted = rows["type"].isin([TUNED, HUMAN])
    rows, values = rows[counted], values[counted]
    keys = [rows["_group"], rows["model"]]
    used = _shared(values, keys)
    weights = pd.Series(np.nan, index=rows.index)
    for _, part in rows.groupby(keys):
        weights.loc[part.index] = estimand_weights(part, estimand)
    sums, weight = (part.mul(weights, axis=0).groupby(keys) for part in (values[used], values[used].notna()))
    means = sums.sum(min_count=1) / weight.sum()  # (group, model) x metric
    hard = 1.0 - means.mean(axis=1, skipna=False).unstack("model") if used else pd.DataFrame(index=sorted(set(rows["_group"])))
    known = values.notna().any(axis=1)
    n, n_human = (known[rows["type"] == kind].groupby(rows["_group"]).sum() for kind in (TUNED, HUMAN))
    hard = hard.reindex(n.index)
    per_model = hard.drop(columns=HUMAN, errors="ignore")
    table = per_model.mean(axis=1).rename("difficulty").rename_axis("group").reset_index()
    table["consistency"] = [stability(1.0 - row) for row in per_model.to_numpy()]
    table["n"], table["n_models"] = n.to_numpy(), per_model.notna().sum(axis=1).to_numpy()
    table["human"] = hard[HUMAN].to_numpy() if HUMAN in hard else np.nan
    table["n_human"] = n_human.reindex(n.index, fill_value=0).to_numpy()
    table["left_out"], table["estimand"] = ", ".join(name for name in values if name not in used), estimand
    table["_last"] = table["group"] == UNKNOWN_ORIENTATION
    table = table.sort_values(["_last", "difficulty", "group"], ascending=[True, False, True], ignore_index=True)
    table.insert(0, "rank", pd.Series(np.arange(1, len(table) + 1), dtype="Int64").mask(table.pop("_last")))
    return table


def left_out(frame: pd.DataFrame) -> str:
    """Names of the metrics that a table of `difficulty` did not use, "" where it used all."""
    names = frame["left_out"].dropna() if "left_out" in frame else pd.Series(dtype=str)
    return str(names.iloc[0]) if len(names) else ""


CONTEXTS = {"affiliation": "Party", "topic": "Topic", "orientation": "Political Orientation"}
NEAR_ZERO = 1e-3  # a coefficient of variation around a mean of nothing says nothing


def stability(group_means: Iterable[float]) -> float:
    """100 / (1 + CV) with CV = sd (ddof 0) / mean over the groups (Eq. 4), in (0, 100]; NaN below two groups or for a mean near 0."""
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
    """Stability of each model, type, context and metric, over the metrics in [0, 1] (`normalise`).

    Speeches without a party, topic or orientation (`known_groups`) do not count in that context: Unknown is no position.
    Columns: model, type, context, metric, stability, n_groups, n and, from `draws` permutations that deal the speeches to
    groups of the same sizes at random: `by_chance`, the mean stability that sampling alone gives, and `p_chance`, the share
    of permutations that are as uneven as the real groups.
    """
    values = normalise(scores, how)
    rows = []
    for (model, kind), index in scores.groupby(SET, sort=False).groups.items():
        for context, column in CONTEXTS.items():
            groups = known_groups(scores.loc[index, column]).dropna().astype(str)
            block = values.loc[groups.index]
            means = block.groupby(groups).mean()
            found = _stabilities(means.to_numpy())
            chance, p = _by_chance(block.to_numpy(), groups.to_numpy(), found, draws, seed)
            part = {"model": model, "type": kind, "context": context, "metric": list(values), "stability": found}
            part |= {"n_groups": means.notna().sum(), "n": block.notna().sum(), "by_chance": chance, "p_chance": p}
            rows.append(pd.DataFrame(part))
    return pd.concat(rows, ignore_index=True)


def _by_chance(data: np.ndarray, groups: np.ndarray, found: np.ndarray, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """For each metric, mean stability over permutations of the groups, and the share of them that `found` does not exceed."""
    rng, known = np.random.default_rng(seed), ~np.isnan(data)
    both = np.hstack([np.where(known, data, 0.0), known])  # (n, 2 * metrics): sums and counts in one go
    sizes = np.unique(groups, return_counts=True)[1]
    null = np.full((draws, data.shape[1]), np.nan)
    for draw in range(draws if len(groups) else 0):
        dealt = np.add.reduceat(both[rng.permutation(len(groups))], np.cumsum(sizes) - sizes)  # the first rows to the first group
        sums, counts = np.hsplit(dealt, 2)  # (groups, metrics) each
        null[draw] = _stabilities(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0))
    valid = ~np.isnan(null)
    count = valid.sum(axis=0)
    mean = np.where(valid, null, 0.0).sum(axis=0) / np.maximum(count, 1)
    p = (1 + (valid & (null <= found + 1e-9)).sum(axis=0)) / (1 + count)
    return np.where(count > 0, mean, np.nan), np.where((count > 0) & ~np.isnan(found), p, np.nan)


def stability_table(by_metric: pd.DataFrame) -> pd.DataFrame:
    """Table 12: for each model and type the mean over metrics for each context, and `overall`, their plain mean.

    `uneven` of `tests` metrics and contexts are less even than 95 % of permutations (chance alone: one in twenty).
    """
    means = by_metric.groupby([*SET, "context"])[["stability", "by_chance"]].mean().unstack("context")
    means = means.loc[pd.MultiIndex.from_frame(by_metric[SET].drop_duplicates())]  # the models' own order
    out = means["stability"][list(CONTEXTS)]
    out = out.assign(overall=out.mean(axis=1), overall_by_chance=means["by_chance"][list(CONTEXTS)].mean(axis=1))
    groups = by_metric.assign(uneven=by_metric["p_chance"] < ALPHA).groupby(SET, sort=False)
    return out.assign(n=groups["n"].max(), uneven=groups["uneven"].sum(), tests=groups["p_chance"].count()).reset_index()


# (quantity, column, grouping column, is it the control?)
ANALYSES = (
    ("Party Align", "Party Align", "Party", False),
    ("Party Align, deranged centroids", "Party Align deranged", "Party", True),
    ("PSA", "PSA", "Political Orientation", False),
    ("PSA, deranged orientations", "PSA deranged", "Political Orientation", True),
    ("Difficulty", "_difficulty", "Party", False),
    ("Difficulty, deranged", "_difficulty deranged", "Party", True),
)


def anova(values: pd.Series, groups: pd.Series) -> dict[str, float]:
    """One-way analysis of variance over groups of at least two values: n, groups, F, df_between, df_within, p, eta2 (the share of
    the sum of squares that lies between groups, in [0, 1]), H and kruskal_p (Kruskal-Wallis).

    NaN where fewer than two groups have values and without any spread; F and p also without spread within the groups.
    """
    from scipy import stats

    kept = values.notna() & groups.notna()
    kept &= groups.where(kept).map(groups[kept].value_counts()) > 1
    values, codes = settled(values[kept].to_numpy(float)), np.unique(groups[kept].to_numpy(str), return_inverse=True)[1]
    n, n_groups = len(values), len(np.unique(codes))
    f, eta2 = alignment_tests.anova(values, codes)
    row = {"n": n, "groups": n_groups, "F": f, "df_between": max(n_groups - 1, 0), "df_within": n - n_groups}
    row |= {"p": float(stats.f.sf(f, n_groups - 1, n - n_groups)), "eta2": eta2}
    ranks = stats.kruskal(*(values[codes == code] for code in range(n_groups))) if not np.isnan(eta2) else (np.nan, np.nan)
    return row | dict(zip(("H", "kruskal_p"), map(float, ranks), strict=True))


def anova_table(scores: pd.DataFrame, how: str = "run") -> pd.DataFrame:
    """Every analysis for all fine-tuned speeches together, for each model and type, and for the human ones.

    Section 13.2 announces this and prints no F, df or p. Each analysis has its control beside it (notebook 06): the same speech
    scored as another party's (the next centroid in the alphabet) or of another orientation (`deranged_psa`). Where it separates
    groups as well, it is not the party that the metric sees. Columns: quantity, by, control, model, type and those of `anova`.
    Speeches of all models to one prompt share it, so the p of "all" is too small; read the rows of single models.
    """
    rows = scores.assign(**{"_difficulty": speech_difficulty(scores, how), "PSA deranged": deranged_psa(scores)})
    controls = {"PSA": rows["PSA deranged"], "Party Align": rows["Party Align deranged"]}
    rows["_difficulty deranged"] = speech_difficulty(rows.assign(**controls), how)
    parts = [("all", TUNED, rows[rows["type"] == TUNED])]
    parts += [(*key, part) for key, part in rows.groupby(SET, sort=False)]
    return pd.DataFrame(
        {"quantity": quantity, "by": by, "control": control, "model": model, "type": kind} | anova(part[column], part[by])
        for quantity, column, by, control in ANALYSES
        for model, kind, part in parts
    )


def deranged_psa(scores: pd.DataFrame) -> pd.Series:
    """Eq. 2 as if each speech's orientation were the next in the alphabet; NaN where PSA is, and without 06's parts of it."""
    if not {"similarity", "nearest_orientation"} <= set(scores):
        return pd.Series(np.nan, index=scores.index)
    known = sorted(set(scores["Political Orientation"]) & set(ORIENTATION_SCALE))
    following = dict(zip(known, known[1:] + known[:1], strict=True))
    expected = scores["Political Orientation"].map(following).map(ORIENTATION_SCALE)
    apart = (scores["nearest_orientation"].map(ORIENTATION_SCALE) - expected).abs().astype(float)
    return (scores["similarity"] * (1 - apart / WIDEST).clip(lower=0)).where(scores["PSA"].notna())
