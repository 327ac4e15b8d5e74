"""Cross-context stability (section 4.2, Eq. 4): how even a model's scores are over parties, topics and orientations.

Notebook 08 writes it as Table 12. The paper normalises all metrics to [0, 1] without saying how: here by `cells.normalise`,
lower-is-better metrics flipped first.

>>> stability([0.5, 0.5, 0.5])
100.0
>>> stability([0.4])
nan
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from parliabench_utils.results.cells import normalise

CONTEXTS = {"affiliation": "Party", "topic": "Topic", "orientation": "Political Orientation"}
NEAR_ZERO = 1e-3  # a coefficient of variation around a mean of nothing says nothing


def stability(group_means: Iterable[float]) -> float:
    """100 / (1 + CV) with CV = sd (ddof 0) / mean over the groups, in (0, 100]; NaN below two groups or for a mean near 0."""
    values = np.asarray(list(group_means), dtype=float)
    values = values[~np.isnan(values)]
    if values.size < 2 or values.mean() < NEAR_ZERO:
        return float("nan")
    return float(100.0 / (1.0 + values.std() / values.mean()))


def stability_by_metric(scores: pd.DataFrame, how: str = "run", draws: int = 0, seed: int = 42) -> pd.DataFrame:
    """Stability of each model, type, context and metric.

    Columns: model, type, context, metric, stability, n_groups, n and, with `draws`, `by_chance`: the mean stability when
    speeches are dealt to groups of the same sizes at random, so that what sampling alone does can be told from the rest.
    """
    values = normalise(scores, how)
    rows = []
    for (model, kind), index in scores.groupby(["model", "type"], sort=False).groups.items():
        for context, column in CONTEXTS.items():
            groups = scores.loc[index, column].to_numpy()
            block = values.loc[index]
            means = block.groupby(groups).mean()
            chance = _by_chance(block, groups, draws, seed)
            rows.extend(
                {
                    "model": model,
                    "type": kind,
                    "context": context,
                    "metric": metric,
                    "stability": stability(means[metric]),
                    "n_groups": int(means[metric].notna().sum()),
                    "n": int(block[metric].notna().sum()),
                    "by_chance": chance[metric],
                }
                for metric in values
            )
    return pd.DataFrame(rows)


def _by_chance(block: pd.DataFrame, groups: np.ndarray, draws: int, seed: int) -> dict[str, float]:
    """Mean stability of each metric over `draws` permutations of the groups."""
    if not draws:
        return dict.fromkeys(block.columns, float("nan"))
    rng = np.random.default_rng(seed)
    data = block.to_numpy()
    known = ~np.isnan(data)
    onehot = (groups[:, None] == np.unique(groups.astype(str))[None, :]).astype(float)  # (n, groups)
    filled = np.where(known, data, 0.0)
    found = np.full((draws, data.shape[1]), np.nan)
    for draw in range(draws):
        dealt = onehot[rng.permutation(len(groups))].T  # (groups, n)
        counts = dealt @ known
        means = np.divide(dealt @ filled, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        found[draw] = [stability(means[:, column]) for column in range(data.shape[1])]
    valid = ~np.isnan(found)
    sums = np.where(valid, found, 0.0).sum(axis=0)
    means = np.divide(sums, valid.sum(axis=0), out=np.full(sums.shape, np.nan), where=valid.any(axis=0))
    return dict(zip(block.columns, means.tolist(), strict=True))


def stability_table(by_metric: pd.DataFrame) -> pd.DataFrame:
    """Table 12: for each model and type the mean over metrics for each context, and `overall`, their plain mean."""
    keys = ["model", "type"]
    means = by_metric.groupby([*keys, "context"])[["stability", "by_chance"]].mean().unstack("context")
    means = means.loc[pd.MultiIndex.from_frame(by_metric[keys].drop_duplicates())]  # the models' own order
    out = means["stability"][list(CONTEXTS)]
    out = out.assign(overall=out.mean(axis=1), overall_by_chance=means["by_chance"][list(CONTEXTS)].mean(axis=1))
    out["n"] = by_metric.groupby(["model", "type"], sort=False)["n"].max()
    return out.reset_index()
