"""Cells of the result tables: weighted means, their sds and tests, missing values by two rules, normalisation to [0, 1].

Used by notebook 08. A *score frame* has one row a speech: `prompt_id, variant, model, type`, the prompt's context
and one column a metric (`metrics.table`); see `results.scores`.

    scores["compared"] = is_compared(scores, kept_prompts, missing="complete")
    cell_means(compared_rows(scores), estimand="corpus")      # model, type, metric, mean, sd, n, n_effective

What a mean is a mean of has a name, the *estimand* (ESTIMANDS): small parties are lifted when prompts are drawn, and the prompts'
`weight` says by how much.

All scores of a run in one frame: one row a speech, joined by id; notebook 08 writes it as `08_statistics/scores.parquet`.

scores = join_scores(this_run.folder, present_sets(this_run.folder, models, types), judge="smollm2-constrained")

What each mean does not see: speeches without a value, and speeches of which a metric read only a part (notebook 08).

coverage(scores)      # a row a model, type and metric
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from parliabench_utils.metrics.speeches import generated_rows
from parliabench_utils.metrics.table import METRICS, Metric, is_rounding
from parliabench_utils.run.artefacts import read_jsonl

SET = ["model", "type"]
HUMAN = "human"
SMALL_GROUP = 30  # groups with fewer speeches are marked in tables
JUDGE_COLUMNS = [metric.column for metric in METRICS if metric.kind == "judge"]
STRATA = ["Party", "House", "kind"]
ESTIMANDS = {
    "prompts": "Estimand “prompts”: each prompt counts the same, as they were drawn.",
    "corpus": "Estimand “corpus”: each party, House and kind of prompt counts as in the test set.",
    "parties": "Estimand “parties”: each party counts the same.",
}


def generated(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of models, without the human ones."""
    return scores[scores["type"] != HUMAN]


def fully_rated_prompts(scores: pd.DataFrame) -> set[str]:
    """Prompts with all six judge ratings in every row of every model and type (section 5.3); human rows do not decide."""
    rows = generated(scores)
    rated = rows[JUDGE_COLUMNS].notna().all(axis=1)
    per_prompt = pd.DataFrame({"prompt_id": rows["prompt_id"], "rated": rated}).groupby("prompt_id")["rated"].all()
    sets = rows.groupby("prompt_id")[SET].apply(lambda part: len(part.drop_duplicates()))
    everywhere = sets == len(rows[SET].drop_duplicates())
    return set(per_prompt.index[per_prompt & everywhere.reindex(per_prompt.index)])


def is_compared(scores: pd.DataFrame, kept: Iterable[str], missing: str) -> pd.Series:
    """Which rows the tables count, by the rule `missing`: "complete" (the paper's) or "available" (every row with a speech)."""
    if missing == "complete":
        return scores["prompt_id"].isin(set(kept) & fully_rated_prompts(scores))
    if missing == "available":
        return scores["generated_speech"].notna()
    raise ValueError(f"missing={missing!r}: expected 'complete' or 'available'")


def compared_rows(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows with `compared` true, their `weight` renormalised for the prompts that are gone (`estimand_weights`).

    Where there are none, all rows without their values, so that tables say n = 0.
    """
    if scores["compared"].any():
        kept = scores[scores["compared"]].reset_index(drop=True)
        return _with_weights_of(scores, kept) if "weight" in scores else kept
    return scores.assign(**dict.fromkeys((*(m.column for m in METRICS), "Party Align deranged"), np.nan))


def _with_weights_of(scores: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    prompts = kept.drop_duplicates("prompt_id")
    weights = pd.Series(estimand_weights(prompts, "corpus", scores), index=prompts["prompt_id"])
    return kept.assign(weight=kept["prompt_id"].map(weights))


def estimand_weights(rows: pd.DataFrame, estimand: str, population: pd.DataFrame | None = None) -> np.ndarray:
    """The weight of each of `rows` (which all have a value), of mean 1, shape (n_rows,).

    `prompts`: all 1. `parties`: the same sum for each party. `corpus`: the prompts' `weight`, so scaled that what is left of a
    party, House and kind weighs what all its prompts in `population` do (post-stratification); a stratum that is lost lends
    its weight to the rest of its party, a lost party to all others. ValueError for another name and for lacking columns.
    """
    _require(rows, estimand)
    if estimand == "prompts" or rows.empty:
        return np.ones(len(rows))
    if estimand == "parties":
        weights = 1.0 / rows.groupby("Party", dropna=False)["Party"].transform("size").to_numpy(float)
        return weights / weights.mean()
    prompts = (rows if population is None else population).drop_duplicates("prompt_id")
    weights, strata = rows["weight"].to_numpy(float), [name for name in STRATA if name in rows]
    for columns in (strata, strata[:1]):
        weights = weights * _scale(rows, weights, prompts, columns)
    return weights / weights.mean()


def _scale(rows: pd.DataFrame, weights: np.ndarray, prompts: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """What each row's weight is multiplied by, for its group to weigh what the group's prompts do."""
    if not columns:
        return np.ones(len(rows))
    own, whole = (pd.MultiIndex.from_frame(frame[columns].astype(str)) for frame in (rows, prompts))
    left = pd.Series(weights, index=own).groupby(level=columns).sum()
    wanted = pd.Series(prompts["weight"].to_numpy(float), index=whole).groupby(level=columns).sum()
    return (wanted.reindex(left.index) / left).reindex(own).to_numpy()


def _require(rows: pd.DataFrame, estimand: str) -> None:
    if estimand not in ESTIMANDS:
        raise ValueError(f"estimand={estimand!r}: expected one of {', '.join(ESTIMANDS)}")
    column = {"prompts": "prompt_id", "corpus": "weight", "parties": "Party"}[estimand]
    if column not in rows:
        raise ValueError(f"estimand={estimand!r} needs the column {column!r} of 02_dataset/prompts.jsonl: run 02 and 08 again")
    if estimand == "corpus" and not (wrong := rows.loc[~(rows["weight"].astype(float) > 0), "prompt_id"]).empty:
        raise ValueError(f"02_dataset/prompts.jsonl: `weight` of prompt {wrong.iloc[0]} is no number above 0; run 02 again")


def summary(values: np.ndarray, weights: np.ndarray) -> tuple[int, float, float, float]:
    """n, weighted mean, weighted sd (ddof 1 where all weights are the same) and the effective n, (sum w)^2 / sum w^2."""
    if not values.size:
        return 0, np.nan, np.nan, 0.0
    total, squares = weights.sum(), (weights**2).sum()
    mean = float(np.average(values, weights=weights))
    free = total - squares / total
    sd = float(np.sqrt((weights * (values - mean) ** 2).sum() / free)) if values.size > 1 else np.nan
    return values.size, mean, sd, float(total**2 / squares)


class ClusterTest(NamedTuple):
    """A weighted mean, its standard error, degrees of freedom, t, two-sided p and 95 % interval; NaN where undefined."""

    mean: float
    se: float
    df: float
    t: float
    p: float
    low: float
    high: float


def cluster_t_test(
    values: np.ndarray, clusters: np.ndarray, weights: np.ndarray | None = None, size: float | None = None
) -> ClusterTest:
    """Is the weighted mean of `values` (n,) 0, when those of a cluster (n,) may depend on one another?

    The squared sums of residuals by cluster are divided by what they would be of independent values (CR2), and the degrees of
    freedom are Satterthwaite's of Bell and McCaffrey (2002): with one value a cluster and equal weights this is the t-test with
    n - 1. Missing values are left out; no spread (by the `size` of what `values` are differences of) and one cluster give NaN.
    """
    from scipy import stats

    known = ~np.isnan(values)
    values, size = values[known], np.abs(values[known]).max(initial=0.0) if size is None else size
    weights = np.ones(values.size) if weights is None else weights[known]
    names, codes = np.unique(np.asarray(clusters)[known].astype(str), return_inverse=True)
    if names.size < 2:
        return ClusterTest(float(np.average(values, weights=weights)) if values.size else np.nan, *[np.nan] * 6)
    mean = float(np.average(values, weights=weights))
    share = np.bincount(codes, weights) / weights.sum()
    residual = np.bincount(codes, weights * (values - mean)) / weights.sum()
    se, df = _robust_error(residual, share, np.bincount(codes, weights**2) / weights.sum() ** 2)
    if is_rounding(se * np.sqrt(names.size), size):
        return ClusterTest(mean, *[np.nan] * 6)
    reach = stats.t.ppf(0.975, df) * se
    p = float(2 * stats.t.sf(abs(mean / se), df))
    return ClusterTest(mean, se, df, mean / se, p, mean - reach, mean + reach)


def _robust_error(residual: np.ndarray, share: np.ndarray, variance: np.ndarray) -> tuple[float, float]:
    """Standard error and degrees of freedom from sums of residuals by cluster, shares of the weight, and the variances of
    those sums if values were independent (n_clusters,).

    The sums minus `share` of their total have covariance diag(v) - s v' - v s' + V s s' (V the total variance), whose diagonal
    is `expected`; the variance is a sum of factor * residual^2, its degrees of freedom 2 E^2 / Var.
    """
    total = variance.sum()
    expected = variance - 2 * share * variance + share**2 * total
    factor = variance / expected
    ss, vv, sv = (float((factor * a * b).sum()) for a, b in ((share, share), (variance, variance), (share, variance)))
    own = factor * (total * share**2 - 2 * share * variance)  # the diagonal without diag(v)
    everywhere = 2 * ss * vv + 2 * sv**2 + total**2 * ss**2 - 4 * total * ss * sv
    squares = everywhere - float((own**2).sum()) + float(((factor * expected) ** 2).sum())
    return float(np.sqrt((factor * residual**2).sum())), float((factor * expected).sum() ** 2 / squares)


def prompt_clusters(scores: pd.DataFrame, cluster: str) -> pd.DataFrame:
    """One row a prompt, by its id, with `_cluster`: the label of its `cluster`; a prompt without a speaker stands for itself."""
    prompts = scores.drop_duplicates("prompt_id").set_index("prompt_id", drop=False)
    return prompts.assign(_cluster=prompts[cluster].fillna(prompts["prompt_id"]))


def cell_means(
    scores: pd.DataFrame, by: Sequence[str] = (), metrics: Sequence[Metric] = METRICS, estimand: str = "prompts"
) -> pd.DataFrame:
    """Mean, sd (ddof 1) and number of valid values of each metric for each model, type and group of `by`.

    Columns: model, type, those of `by`, metric, mean, sd, n, n_effective, estimand. Speeches weigh by the estimand, within a
    group of `by` against all prompts of that group.
    """
    keys = [*SET, *by]
    groups = scores.groupby(list(by), dropna=False).ngroup() if by else pd.Series(0, index=scores.index)
    parts = [part for _, part in scores.groupby(keys, sort=False, dropna=False)]
    wholes = [scores[groups == groups.loc[part.index[0]]] for part in parts]
    rows = []
    for metric in metrics:
        for part, whole in zip(parts, wholes, strict=True):
            known = part[part[metric.column].notna()]
            weights = estimand_weights(known, estimand, whole)
            n, mean, sd, effective = summary(known[metric.column].to_numpy(float), weights)
            rows.append([*part.iloc[0][keys], metric.name, mean, sd, n, effective, estimand])
    return pd.DataFrame(rows, columns=[*keys, "metric", "mean", "sd", "n", "n_effective", "estimand"])


def normalise(scores: pd.DataFrame, how: str = "run", metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Metrics in [0, 1] with 1 the good end, as a frame (rows as in `scores`, one column a metric name).

    `how` "run": min-max of each metric over all rows of the run, human ones included; a metric without spread is NaN.
    "fixed": over the metric's own range (`Metric.range`); perplexity, which has no upper end, becomes 1 / PPL.
    Lower-is-better metrics are flipped (1 - x).
    """
    if how not in ("run", "fixed"):
        raise ValueError(f"normalisation={how!r}: expected 'run' or 'fixed'")
    scaled = {m.name: _scaled(scores[m.column].to_numpy(dtype=float), m, how) for m in metrics}
    return pd.DataFrame(scaled, index=scores.index)


def _scaled(values: np.ndarray, metric: Metric, how: str) -> np.ndarray:
    low, high = metric.range
    if how == "fixed" and (low is None or high is None):
        return 1.0 / values  # already 1 at the good end
    if how == "run":
        valid = values[~np.isnan(values)]
        low, high = (valid.min(), valid.max()) if valid.size else (0.0, 0.0)
    if is_rounding(high - low, max(abs(low), abs(high))):
        return np.full(values.shape, np.nan)
    unit = (values - low) / (high - low)
    return unit if metric.higher_is_better else 1.0 - unit


def composite(normalised: pd.DataFrame) -> pd.Series:
    """Plain mean of the normalised metrics of each speech, in [0, 1]; NaN only where all are missing."""
    return normalised.mean(axis=1)


ID = ["prompt_id", "variant"]
PROMPT_COLUMNS = [
    *("prompt_id", "context_id", "kind", "instruction", "Party", "Topic", "Political Orientation", "Section", "House"),
    *("weight", "speaker_id", "sitting_id", "date"),
]
SPEECH_COLUMNS = [*ID, "model", "type", "generated_speech", "n_words", "attempts", "finish_reason", "trimmed"]


def join_scores(folder: Path, sets: Iterable[tuple[str, str]], judge: str) -> pd.DataFrame:
    """Prompts, speeches (04), text metrics (05), political alignment (06) and ratings (07) of all `sets` (model, type).

    One row a prompt, variant, model and type; a speech that no attempt produced has null text and scores. Raises
    FileNotFoundError that names the file and its stage, and ValueError when a score belongs to no speech.
    """
    prompts = pd.DataFrame(read_jsonl(_existing(folder / "02_dataset/prompts.jsonl")))[PROMPT_COLUMNS]
    parts = [_one_set(folder, model, kind, judge) for model, kind in sets]
    speeches = pd.concat(parts, ignore_index=True)
    unknown = set(speeches["prompt_id"]) - set(prompts["prompt_id"])
    if unknown:
        raise ValueError(f"04_generate has speeches to prompts that 02_dataset lacks: {sorted(unknown)[:3]}; run 04 again")
    return speeches.merge(prompts, on="prompt_id", how="left", validate="many_to_one")


def all_sets(models: Iterable[str], types: Iterable[str]) -> list[tuple[str, str]]:
    """(model, type) of every set of speeches, human ones last."""
    kinds = list(types)
    return [(model, kind) for model in models for kind in kinds] + [(HUMAN, HUMAN)]


def present_sets(folder: Path, models: Iterable[str], types: Iterable[str]) -> list[tuple[str, str]]:
    """`all_sets` without the human one where the run has no human speeches (imported published ones)."""
    sets = all_sets(models, types)
    return sets if (folder / "04_generate" / HUMAN).is_dir() else sets[:-1]


def training_speeches(folder: Path) -> list[str]:
    """The texts of 02's training set."""
    with _existing(folder / "02_dataset/train.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["Speech"] for line in lines]


def _one_set(folder: Path, model: str, kind: str, judge: str) -> pd.DataFrame:
    speeches = read_speeches(folder, model, kind)
    text = pd.read_parquet(_existing(folder / "05_text_metrics" / model / f"{kind}.parquet"))
    politics = pd.read_parquet(_existing(folder / "06_political_alignment" / model / f"{kind}.parquet"))
    ratings = read_ratings(_existing(folder / "07_judge" / judge / model / f"{kind}.jsonl"))
    for stage, frame in (("05_text_metrics", text), ("06_political_alignment", politics), ("07_judge", ratings)):
        _require_speeches(frame, speeches, f"{stage}/{model}/{kind}")
        speeches = speeches.merge(frame, on=ID, how="left", validate="one_to_one")
    return speeches


def read_speeches(folder: Path, model: str, kind: str) -> pd.DataFrame:
    """All shards of one model and type, as SPEECH_COLUMNS; errors as in `selection.generated_rows`."""
    return pd.DataFrame(generated_rows(folder, model, kind), columns=SPEECH_COLUMNS)


def read_ratings(path: Path) -> pd.DataFrame:
    """A judge's file as one row a speech: prompt_id, variant, one column a dimension, NaN where it gave no score."""
    rows = pd.DataFrame(read_jsonl(path), columns=[*ID, "dimension", "score"])
    rows["score"] = rows["score"].astype(float)
    wide = rows.pivot(index=ID, columns="dimension", values="score").reindex(columns=JUDGE_COLUMNS)
    return wide.rename_axis(columns=None).reset_index()


def read_judgements(folder: Path, judge: str, sets: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """The judge's rows of all sets with `model` and `type`: dimension, score, parse_status, feedback."""
    parts = []
    for model, kind in sets:
        rows = pd.DataFrame(read_jsonl(_existing(folder / "07_judge" / judge / model / f"{kind}.jsonl")))
        parts.append(rows.assign(model=model, type=kind))
    return pd.concat(parts, ignore_index=True)


def kept_prompts(folder: Path) -> list[str]:
    """Prompts that every model and type answered (04's summary)."""
    return json.loads(_existing(folder / "04_generate/summary/kept_prompts.json").read_text(encoding="utf-8"))["kept"]


def _existing(path: Path) -> Path:
    if not path.exists():
        stage = next(part for part in path.parts[::-1] if part[:2].isdigit())
        raise FileNotFoundError(f"{stage} has not written {path.name} ({path}): run {stage} first")
    return path


def _require_speeches(frame: pd.DataFrame, speeches: pd.DataFrame, where: str) -> None:
    known = set(map(tuple, speeches[ID].to_numpy()))
    stray = set(map(tuple, frame[ID].to_numpy())) - known
    if stray:
        raise ValueError(f"{where} has scores of speeches that 04_generate lacks, such as {sorted(stray)[0]}: run it again")


def coverage(scores: pd.DataFrame) -> pd.DataFrame:
    """`model, type, metric, kind, n, missing, missing_share, truncated, truncated_share` over the speeches that exist.

    `missing`: no value, which for a judge's dimension is a rating that failed. `truncated`: counted where the metric has a
    limit (05's columns `truncated PPL`, …), NaN elsewhere.
    """
    spoken = scores[scores["generated_speech"].notna()]
    rows = []
    for (model, kind), speeches in spoken.groupby(["model", "type"], sort=False):
        for metric in METRICS:
            missing = int(speeches[metric.column].isna().sum())
            cut = speeches.get(f"truncated {metric.name}")
            truncated = np.nan if cut is None or cut.isna().all() else int(cut.sum())
            rows.append((model, kind, metric.name, metric.kind, len(speeches), missing, truncated))
    table = pd.DataFrame(rows, columns=["model", "type", "metric", "kind", "n", "missing", "truncated"])
    table.insert(6, "missing_share", table["missing"] / table["n"])
    return table.assign(truncated_share=table["truncated"] / table["n"])
