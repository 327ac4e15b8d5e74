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

from parliabench_utils.corpus.organisations import UNKNOWN_ORIENTATION
from parliabench_utils.results.cells import normalise

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


def _by_chance(
    data: np.ndarray, groups: np.ndarray, found: np.ndarray, draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
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
