"""All scores of a run in one frame, which of its rows are compared, and what a mean of them is a mean of (notebooks 08 and 09).

A *score frame* has one row a speech: `prompt_id, variant, model, type`, the prompt's context and one column a metric
(`metrics.table`). Small parties are lifted when prompts are drawn, and the prompts' `weight` says by how much; which mean is
meant is the *estimand* (ESTIMANDS).

    scores = join_scores(this_run.folder, present_sets(this_run.folder, models, types), judge="smollm2-constrained")
    scores["compared"] = is_compared(scores, kept_prompts(this_run.folder), missing="complete")
    cell_means(compared_rows(scores), estimand="corpus")      # model, type, metric, mean, sd, n, n_effective
"""

import json
from collections import namedtuple
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.metrics.speeches import generated_rows
from parliabench_utils.metrics.table import METRICS, Metric, is_rounding
from parliabench_utils.run.artefacts import read_jsonl

ID, SET = ["prompt_id", "variant"], ["model", "type"]
HUMAN = "human"
SMALL_GROUP = 30  # groups with fewer speeches are marked in tables
JUDGE_COLUMNS = [metric.column for metric in METRICS if metric.kind == "judge"]
STRATA = ["Party", "House", "kind"]
ESTIMANDS = {
    "prompts": "Estimand “prompts”: each prompt counts the same, as they were drawn.",
    "corpus": "Estimand “corpus”: each party, House and kind of prompt counts as in the test set.",
    "parties": "Estimand “parties”: each party counts the same.",
}
RULES = {"complete": "Only prompts that all models answered and that are fully rated.", "available": "All speeches."}
PROMPT_COLUMNS = [
    *("prompt_id", "context_id", "kind", "instruction", "Party", "Topic", "Political Orientation", "Section", "House"),
    *("weight", "speaker_id", "sitting_id", "date"),
]
SPEECH_COLUMNS = [*ID, *SET, "generated_speech", "n_words", "attempts", "finish_reason", "trimmed"]


def present_sets(folder: Path, models: Iterable[str], types: Iterable[str]) -> list[tuple[str, str]]:
    """(model, type) of every set of speeches; human ones last, where the run has any (published speeches have none)."""
    kinds = list(types)
    human = [(HUMAN, HUMAN)] if (folder / "04_generate" / HUMAN).is_dir() else []
    return [(model, kind) for model in models for kind in kinds] + human


def join_scores(folder: Path, sets: Iterable[tuple[str, str]], judge: str) -> pd.DataFrame:
    """Prompts, speeches (04), text metrics (05), political alignment (06) and ratings (07) of all `sets` (model, type).

    One row a prompt, variant, model and type; a speech that no attempt produced has null text and scores. Raises
    FileNotFoundError that names the file and its stage, and ValueError when a score belongs to no speech.
    """
    prompts = pd.DataFrame(read_jsonl(_existing(folder / "02_dataset/prompts.jsonl")))[PROMPT_COLUMNS]
    speeches = pd.concat([_one_set(folder, model, kind, judge) for model, kind in sets], ignore_index=True)
    if unknown := set(speeches["prompt_id"]) - set(prompts["prompt_id"]):
        raise ValueError(f"04_generate has speeches to prompts that 02_dataset lacks: {sorted(unknown)[:3]}; run 04 again")
    return speeches.merge(prompts, on="prompt_id", how="left", validate="many_to_one")


def _one_set(folder: Path, model: str, kind: str, judge: str) -> pd.DataFrame:
    """The speeches of a model and type with their scores; a dimension is NaN where the judge gave no score."""
    speeches = pd.DataFrame(generated_rows(folder, model, kind), columns=SPEECH_COLUMNS)
    known = set(map(tuple, speeches[ID].to_numpy()))
    computed = ("05_text_metrics", "06_political_alignment")
    scored = {stage: pd.read_parquet(_existing(folder / stage / model / f"{kind}.parquet")) for stage in computed}
    ratings = read_jsonl(_existing(folder / "07_judge" / judge / model / f"{kind}.jsonl"))
    ratings = pd.DataFrame(ratings, columns=[*ID, "dimension", "score"]).astype({"score": float})
    ratings = ratings.pivot(index=ID, columns="dimension", values="score").reindex(columns=JUDGE_COLUMNS)
    scored["07_judge"] = ratings.rename_axis(columns=None).reset_index()
    for stage, frame in scored.items():
        if stray := set(map(tuple, frame[ID].to_numpy())) - known:
            where = f"{stage}/{model}/{kind}"
            raise ValueError(f"{where} has scores of speeches that 04_generate lacks, such as {min(stray)}: run it again")
        speeches = speeches.merge(frame, on=ID, how="left", validate="one_to_one")
    return speeches


def read_judgements(folder: Path, judge: str, sets: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """The judge's rows of all sets with `model` and `type`: dimension, score, parse_status, feedback."""
    files = {(model, kind): _existing(folder / "07_judge" / judge / model / f"{kind}.jsonl") for model, kind in sets}
    parts = [pd.DataFrame(read_jsonl(path)).assign(model=model, type=kind) for (model, kind), path in files.items()]
    return pd.concat(parts, ignore_index=True)


def training_speeches(folder: Path) -> list[str]:
    """The texts of 02's training set."""
    with _existing(folder / "02_dataset/train.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["Speech"] for line in lines]


def kept_prompts(folder: Path) -> list[str]:
    """Prompts that every model and type answered (04's summary)."""
    return json.loads(_existing(folder / "04_generate/summary/kept_prompts.json").read_text(encoding="utf-8"))["kept"]


def _existing(path: Path) -> Path:
    if not path.exists():
        stage = next(part for part in path.parts[::-1] if part[:2].isdigit())
        raise FileNotFoundError(f"{stage} has not written {path.name} ({path}): run {stage} first")
    return path


def generated(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of models, without the human ones."""
    return scores[scores["type"] != HUMAN]


def fully_rated_prompts(scores: pd.DataFrame) -> set[str]:
    """Prompts with all six judge ratings in every row of every model and type (section 5.3); human rows do not decide."""
    rows = generated(scores)
    rows = rows[["prompt_id"]].assign(rated=rows[JUDGE_COLUMNS].notna().all(axis=1), set=rows.groupby(SET).ngroup())
    prompts = rows.groupby("prompt_id").agg(rated=("rated", "all"), sets=("set", "nunique"))
    return set(prompts.index[prompts["rated"] & (prompts["sets"] == rows["set"].nunique())])


def is_compared(scores: pd.DataFrame, kept: Iterable[str], missing: str) -> pd.Series:
    """Which rows the tables count, by the rule `missing`: "complete" (the paper's) or "available" (every row with a speech)."""
    if missing not in RULES:
        raise ValueError(f"missing={missing!r}: expected 'complete' or 'available'")
    spoken = scores["generated_speech"].notna()
    return spoken if missing == "available" else scores["prompt_id"].isin(set(kept) & fully_rated_prompts(scores))


def compared_rows(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows with `compared` true, their `weight` renormalised for the prompts that are gone (`estimand_weights`).

    Where there are none, all rows without their values, so that tables say n = 0.
    """
    if not scores["compared"].any():
        return scores.assign(**dict.fromkeys((*(m.column for m in METRICS), "Party Align deranged"), np.nan))
    kept = scores[scores["compared"]].reset_index(drop=True)
    if "weight" not in kept:
        return kept
    prompts = kept.drop_duplicates("prompt_id")
    weights = pd.Series(estimand_weights(prompts, "corpus", scores), index=prompts["prompt_id"])
    return kept.assign(weight=kept["prompt_id"].map(weights))


def coverage(scores: pd.DataFrame) -> pd.DataFrame:
    """What no mean sees: `model, type, metric, kind, n, missing, missing_share, truncated, truncated_share` of the speeches.

    `missing`: no value, which for a judge's dimension is a rating that failed. `truncated`: read in part, where the metric has a
    limit (05's columns `truncated PPL`, …), NaN elsewhere.
    """
    spoken = scores[scores["generated_speech"].notna()]
    rows = []
    for (model, kind), speeches in spoken.groupby(SET, sort=False):
        for metric in METRICS:
            cut = speeches.get(f"truncated {metric.name}")
            truncated = np.nan if cut is None or cut.isna().all() else int(cut.sum())
            missing = int(speeches[metric.column].isna().sum())
            rows.append((model, kind, metric.name, metric.kind, len(speeches), missing, truncated))
    table = pd.DataFrame(rows, columns=[*SET, "metric", "kind", "n", "missing", "truncated"])
    table.insert(6, "missing_share", table["missing"] / table["n"])
    return table.assign(truncated_share=table["truncated"] / table["n"])


def estimand_weights(rows: pd.DataFrame, estimand: str, population: pd.DataFrame | None = None) -> np.ndarray:
    """The weight of each of `rows` (which all have a value), of mean 1, shape (n_rows,).

    `prompts`: all 1. `parties`: the same sum for each party. `corpus`: the prompts' `weight`, so scaled that what is left of a
    party, House and kind weighs what all its prompts in `population` do (post-stratification); a stratum that is lost lends
    its weight to the rest of its party, a lost party to all others. ValueError for another name and for lacking columns.
    """
    if estimand not in ESTIMANDS:
        raise ValueError(f"estimand={estimand!r}: expected one of {', '.join(ESTIMANDS)}")
    column = {"prompts": "prompt_id", "corpus": "weight", "parties": "Party"}[estimand]
    if column not in rows:
        raise ValueError(f"estimand={estimand!r} needs the column {column!r} of 02_dataset/prompts.jsonl: run 02 and 08 again")
    if estimand == "corpus" and not (wrong := rows.loc[~(rows["weight"].astype(float) > 0), "prompt_id"]).empty:
        raise ValueError(f"02_dataset/prompts.jsonl: `weight` of prompt {wrong.iloc[0]} is no number above 0; run 02 again")
    if estimand == "prompts" or rows.empty:
        return np.ones(len(rows))
    if estimand == "parties":
        weights = 1.0 / rows.groupby("Party", dropna=False)["Party"].transform("size").to_numpy(float)
        return weights / weights.mean()
    prompts = (rows if population is None else population).drop_duplicates("prompt_id")
    weights, strata = rows["weight"].to_numpy(float), [name for name in STRATA if name in rows]
    for columns in filter(None, (strata, strata[:1])):
        own, whole = (pd.MultiIndex.from_frame(frame[columns].astype(str)) for frame in (rows, prompts))
        left = pd.Series(weights, index=own).groupby(level=columns).sum()
        wanted = pd.Series(prompts["weight"].to_numpy(float), index=whole).groupby(level=columns).sum()
        weights = weights * (wanted.reindex(left.index) / left).reindex(own).to_numpy()
    return weights / weights.mean()


def summary(values: np.ndarray, weights: np.ndarray) -> tuple[int, float, float, float]:
    """n, weighted mean, weighted sd (ddof 1 where all weights are the same) and the effective n, (sum w)^2 / sum w^2."""
    if not values.size:
        return 0, np.nan, np.nan, 0.0
    total, squares = weights.sum(), (weights**2).sum()
    mean = float(np.average(values, weights=weights))
    free = total - squares / total
    sd = float(np.sqrt((weights * (values - mean) ** 2).sum() / free)) if values.size > 1 else np.nan
    return values.size, mean, sd, float(total**2 / squares)


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


ClusterTest = namedtuple("ClusterTest", "mean se df t p low high")  # p two-sided, low and high the 95 % interval; NaN: undefined


def prompt_clusters(scores: pd.DataFrame, cluster: str) -> pd.DataFrame:
    """One row a prompt, by its id, with `_cluster`: the label of its `cluster`; a prompt without a speaker stands for itself."""
    prompts = scores.drop_duplicates("prompt_id").set_index("prompt_id", drop=False)
    return prompts.assign(_cluster=prompts[cluster].fillna(prompts["prompt_id"]))


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
    mean = float(np.average(values, weights=weights)) if values.size else np.nan
    if names.size < 2:
        return ClusterTest(mean, *[np.nan] * 6)
    share = np.bincount(codes, weights) / weights.sum()
    residual = np.bincount(codes, weights * (values - mean)) / weights.sum()
    se, df = _robust_error(residual, share, np.bincount(codes, weights**2) / weights.sum() ** 2)
    if is_rounding(se * np.sqrt(names.size), size):
        return ClusterTest(mean, *[np.nan] * 6)
    reach = stats.t.ppf(0.975, df) * se
    return ClusterTest(mean, se, df, mean / se, float(2 * stats.t.sf(abs(mean / se), df)), mean - reach, mean + reach)


def _robust_error(residual: np.ndarray, share: np.ndarray, variance: np.ndarray) -> tuple[float, float]:
    """Standard error and degrees of freedom; of each cluster (n_clusters,) the sum of residuals, the share of the weight, and the
    variance of that sum if values were independent.

    The sums less `share` of their total have covariance diag(v) - s v' - v s' + V s s' (V the total variance), whose diagonal is
    `expected`; the variance is a sum of factor * residual^2, its degrees of freedom 2 E^2 / Var.
    """
    total = variance.sum()
    expected = variance - 2 * share * variance + share**2 * total
    factor = variance / expected
    ss, vv, sv = (float((factor * a * b).sum()) for a, b in ((share, share), (variance, variance), (share, variance)))
    own = factor * (total * share**2 - 2 * share * variance)  # the diagonal without diag(v)
    everywhere = 2 * ss * vv + 2 * sv**2 + total**2 * ss**2 - 4 * total * ss * sv
    squares = everywhere - float((own**2).sum()) + float(((factor * expected) ** 2).sum())
    return float(np.sqrt((factor * residual**2).sum())), float((factor * expected).sum() ** 2 / squares)


def normalise(scores: pd.DataFrame, how: str = "run") -> pd.DataFrame:
    """Metrics in [0, 1] with 1 the good end (section 4.2), as a frame (rows as in `scores`, one column a metric name).

    `how` "run": min-max of each metric over all rows of the run, human ones included; a metric without spread is NaN.
    "fixed": over the metric's own range (`Metric.range`); perplexity, which has no upper end, becomes 1 / PPL.
    Lower-is-better metrics are flipped (1 - x).
    """
    if how not in ("run", "fixed"):
        raise ValueError(f"normalisation={how!r}: expected 'run' or 'fixed'")
    scaled = {}
    for metric in METRICS:
        values, (low, high) = scores[metric.column].to_numpy(dtype=float), metric.range
        if how == "run":
            known = values[~np.isnan(values)]
            low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
        if high is None:
            scaled[metric.name] = 1.0 / values  # already 1 at the good end
            continue
        spread = high - low if not is_rounding(high - low, max(abs(low), abs(high))) else np.nan
        unit = (values - low) / spread
        scaled[metric.name] = unit if metric.higher_is_better else 1.0 - unit
    return pd.DataFrame(scaled, index=scores.index)
