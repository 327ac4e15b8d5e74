"""Cells of the result tables: mean, sd and n of each metric, missing values by two rules, normalisation to [0, 1].

Used by notebook 08. A *score frame* has one row a speech: `prompt_id, variant, model, type`, the prompt's context
and one column a metric (`metrics.table`); see `results.scores`.

    scores["compared"] = is_compared(scores, kept_prompts, missing="complete")
    cell_means(compared_rows(scores))      # model, type, metric, mean, sd, n
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric

SET = ["model", "type"]
HUMAN = "human"
SMALL_GROUP = 30  # groups with fewer speeches are marked in tables
JUDGE_COLUMNS = [metric.column for metric in METRICS if metric.kind == "judge"]


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
    """The rows with `compared` true; where there are none, all rows without their values, so that tables say n = 0."""
    if scores["compared"].any():
        return scores[scores["compared"]].reset_index(drop=True)
    return scores.assign(**dict.fromkeys((*(m.column for m in METRICS), "Party Align deranged"), np.nan))


def cell_means(scores: pd.DataFrame, by: Sequence[str] = (), metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Mean, sd (ddof 1) and number of valid values of each metric for each model, type and group of `by`."""
    keys = [*SET, *by]
    long = scores.melt(id_vars=keys, value_vars=[m.column for m in metrics], var_name="column", value_name="value")
    long["value"] = long["value"].astype(float)
    grouped = long.groupby([*keys, "column"], sort=False, dropna=False)["value"]
    cells = grouped.agg(mean="mean", sd="std", n="count").reset_index()
    names = {metric.column: metric.name for metric in metrics}
    cells.insert(len(keys), "metric", cells.pop("column").map(names))
    return cells


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
    if high == low:
        return np.full(values.shape, np.nan)
    unit = (values - low) / (high - low)
    return unit if metric.higher_is_better else 1.0 - unit


def composite(normalised: pd.DataFrame) -> pd.Series:
    """Plain mean of the normalised metrics of each speech, in [0, 1]; NaN only where all are missing."""
    return normalised.mean(axis=1)
