"""Do the metrics agree with each other, do raters agree, and do scores tell human from generated speeches? Figures s3 and s4.

Used by notebooks 07 and 08 and by `annotate`. A judge that is worth its name ranks real speeches above those of a weak model;
one that cannot is reported as such.

    ordinal_alpha(ratings)                  # ratings: (n_raters, n_items), NaN where a rater left an item out
    pair_agreement(judge, human, points=10)     # quadratic kappa, ICC(A,1), Kendall's tau of two raters
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.speeches import rank_correlations
from parliabench_utils.metrics.table import METRICS, Metric
from parliabench_utils.results.cells import HUMAN, generated
from parliabench_utils.results.compare import bootstrap_means

MIN_FREEDOM = 5  # degrees of freedom; below, no slope is shown
NOISE = 3  # decimals: what lies below is a processor's rounding, not an opinion


def correlations(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Spearman's rho between all metrics within each generated set, its plain mean over sets: first, second, rho, n, sets.

    rho in [-1, 1], n speeches in all, of so many `sets` (`metrics.speeches.rank_correlations`).
    """
    tables = rank_correlations(generated(scores), [metric.column for metric in metrics])
    return pd.DataFrame(
        [
            {"first": a.name, "second": b.name}
            | dict(zip(("rho", "n", "sets"), (t.loc[a.column, b.column] for t in tables), strict=True))
            for a in metrics
            for b in metrics
        ]
    )


def human_preference(
    scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS, draws: int = 2000, seed: int = 42
) -> pd.DataFrame:
    """P(a human speech scores better than a generated one to the same prompt), ties half.

    0.5 means that the metric cannot tell them apart. Columns: metric, preference, low and high (95 %, bootstrap over prompts), n.
    """
    human = scores[scores["type"] == HUMAN].drop_duplicates("prompt_id").set_index("prompt_id")
    rows = generated(scores)
    rows = rows[rows["prompt_id"].isin(human.index)]
    wins = np.column_stack([_wins(human, rows, metric) for metric in metrics])  # (pairs, metrics)
    low, high = bootstrap_means(wins, rows["prompt_id"].to_numpy(), draws, seed)
    counts = (~np.isnan(wins)).sum(axis=0)
    means = np.divide(np.nansum(wins, axis=0), counts, out=np.full(len(metrics), np.nan), where=counts > 0)
    names = [metric.name for metric in metrics]
    return pd.DataFrame({"metric": names, "preference": means, "low": low, "high": high, "n": counts})


def _wins(human: pd.DataFrame, rows: pd.DataFrame, metric: Metric) -> np.ndarray:
    """1 where the human speech is better, 0.5 for a tie, 0 where it is worse, NaN where a score is missing."""
    gap = human[metric.column].reindex(rows["prompt_id"]).to_numpy(float) - rows[metric.column].to_numpy(float)
    return (np.sign(gap if metric.higher_is_better else -gap) + 1) / 2


def ordinal_alpha(ratings: np.ndarray) -> float:
    """Krippendorff's alpha for ordinal ratings (n_raters, n_items), at most 1; NaN with fewer than two values."""
    import krippendorff

    ratings = np.round(np.asarray(ratings, dtype=float), NOISE)
    paired = ratings[:, (~np.isnan(ratings)).sum(axis=0) >= 2]
    if np.unique(paired[~np.isnan(paired)]).size < 2:
        return float("nan")
    return float(krippendorff.alpha(paired, level_of_measurement="ordinal"))


def pair_agreement(first: np.ndarray, second: np.ndarray, points: int) -> dict[str, float]:
    """Two raters over the same items (n_items,): `n`, `kappa` (quadratic, on whole points), `icc` (A,1), `tau` (Kendall's b).

    NaN where undefined: fewer than three pairs, or (tau, ICC) no spread at all. A constant rater has kappa 0.
    """
    from scipy import stats

    both = ~(np.isnan(first) | np.isnan(second))
    first, second = (np.round(side[both].astype(float), NOISE) for side in (first, second))
    if first.size < 3:
        return {"n": int(first.size), "kappa": np.nan, "icc": np.nan, "tau": np.nan}
    tau = stats.kendalltau(first, second).statistic
    return {
        "n": int(first.size),
        "kappa": quadratic_kappa(first, second, points),
        "icc": absolute_icc(np.stack([first, second])),
        "tau": float(tau),
    }


def quadratic_kappa(first: np.ndarray, second: np.ndarray, points: int) -> float:
    """Cohen's kappa with quadratic weights on 1 to `points`, halves rounded up; NaN where both raters are the same constant."""
    from sklearn.metrics import cohen_kappa_score

    whole = [np.floor(side + 0.5).astype(int) for side in (first, second)]
    if len({*whole[0], *whole[1]}) < 2:
        return float("nan")
    return float(cohen_kappa_score(*whole, labels=range(1, points + 1), weights="quadratic"))


def absolute_icc(ratings: np.ndarray) -> float:
    """ICC(A,1) of complete ratings (n_raters, n_items): single ratings, absolute agreement; NaN without spread."""
    import pingouin

    if ratings.shape[1] < 3 or np.ptp(ratings) == 0:
        return float("nan")
    rater, item = np.indices(ratings.shape)
    long = pd.DataFrame({"rater": rater.ravel(), "item": item.ravel(), "score": ratings.ravel()})
    with np.errstate(divide="ignore", invalid="ignore"):  # other kinds of ICC in the same table are undefined earlier
        table = pingouin.intraclass_corr(long, targets="item", raters="rater", ratings="score").set_index("Type")
    return float(table.loc["ICC(A,1)", "ICC"])


def bootstrap_items(
    statistic: Callable[[np.ndarray], float],
    ratings: np.ndarray,
    draws: int = 500,
    seed: int = 42,
    clusters: Sequence | None = None,
) -> tuple[float, float]:
    """95 % interval of a statistic of ratings (n_raters, n_items), items drawn with replacement; NaN with fewer than three.

    Where items were sampled by prompts, `clusters` (n_items,) names them, and whole prompts are drawn: what raters disagree about
    may be the prompt, and its speeches then say the same. Percentiles are expanded for the number of clusters by Student's t
    (Hesterberg 2015): plain ones are too narrow where there are few.
    """
    from scipy import stats

    labels = np.arange(ratings.shape[1]) if clusters is None else np.asarray(clusters)
    members = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]
    n = len(members)
    if n < 3:
        return float("nan"), float("nan")
    chosen = np.random.default_rng(seed).integers(n, size=(draws, n))
    values = np.array([statistic(ratings[:, np.concatenate([members[c] for c in drawn])]) for drawn in chosen])
    values = values[~np.isnan(values)]
    tail = 100 * stats.norm.cdf(np.sqrt(n / (n - 1)) * stats.t.ppf(0.025, n - 1))
    return tuple(map(float, np.percentile(values, [tail, 100 - tail]))) if values.size else (float("nan"), float("nan"))


def share_interval(wins: np.ndarray) -> tuple[float, float, float, int]:
    """Share of pairs won (1, ties 0.5, lost 0; NaN left out), its 95 % Wilson interval and the number of pairs."""
    from statsmodels.stats.proportion import proportion_confint

    wins = wins[~np.isnan(wins)]
    if not wins.size:
        return float("nan"), float("nan"), float("nan"), 0
    low, high = proportion_confint(wins.sum(), wins.size, method="wilson")
    return float(wins.mean()), float(low), float(high), int(wins.size)


def length_slope(frame: pd.DataFrame) -> tuple[float, float, float, int]:
    """Points of `score` for 100 more words with set and prompt held fixed: slope, 95 % interval, n. NaN without freedom.

    `frame` has `score, n_words, set` and `prompt_id`, or in its place `Party, Topic`. Each set has a level of its own, as it may
    be longer and better than another for other reasons; so has each prompt, and with it party and topic. Ordinary least
    squares within prompts, errors clustered by prompt.
    """
    import statsmodels.api as sm

    data = frame.dropna(subset=["score", "n_words"]).astype({"score": float, "n_words": float})
    nothing = (float("nan"), float("nan"), float("nan"), len(data))
    if data.empty:
        return nothing
    prompts = "prompt_id" in data
    context = data.groupby(["prompt_id"] if prompts else ["Party", "Topic"]).ngroup().to_numpy()
    columns = pd.get_dummies(data["set"], drop_first=True, dtype=float)
    columns.insert(0, "hundreds", data["n_words"] / 100)
    columns.insert(0, "score", data["score"])
    within = columns - columns.groupby(context).transform("mean")
    y, x = within["score"].to_numpy(), within.drop(columns="score").to_numpy()
    free = len(data) - len(np.unique(context)) - np.linalg.matrix_rank(x)
    if free < MIN_FREEDOM or np.linalg.matrix_rank(x) == np.linalg.matrix_rank(x[:, 1:]):
        return nothing
    errors = {"groups": context if prompts else np.arange(len(data))}
    fit = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds=errors, use_t=True)
    low, high = fit.conf_int()[0]
    return float(fit.params[0]), float(low), float(high), len(data)
