"""Who drops out when only fully answered and rated prompts count, and what that could hide (section 5.3; notebook 08).

Hard prompts may drop out more often. `composition` shows the mix of prompts before and after, with a test of "every prompt is as
likely to stay"; `worst_case` says between which values a difference could lie, whatever the missing speeches were like.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric
from parliabench_utils.results.cells import SET, generated
from parliabench_utils.results.compare import BASELINE, TUNED

CONTEXTS = ("Party", "House", "Topic")
CROSSED = "Party x House x Topic"


ALL = "all"  # every generated set keeps the same prompts


def composition(scores: pd.DataFrame, draws: int = 2000, seed: int = 42) -> pd.DataFrame:
    """Prompts and kept prompts (`scores["compared"]`) by party, house, topic and all three crossed.

    A prompt is kept by a generated set (model, type) that has a compared speech to it; members, who always spoke, do not decide.
    Where all sets keep the same prompts there is one block of rows, `model` ALL, else one a set.

    Columns: model, type, by, group, prompts, kept, share_before, share_after, change; the same in all rows of a block and `by`: chi2
    of kept against group, df, and p from `draws` permutations of which prompts stay (groups are too small for the table's
    chi-square).
    """
    prompts = scores.groupby("prompt_id")[list(CONTEXTS)].first()
    prompts[CROSSED] = prompts[list(CONTEXTS)].astype(str).agg(" / ".join, axis=1)
    answered = generated(scores).groupby(["prompt_id", *SET], sort=False)["compared"].any().unstack(SET)
    kept = answered.reindex(prompts.index).eq(True)
    if kept.eq(kept.iloc[:, 0], axis=0).all(axis=None):
        kept = kept.iloc[:, :1].set_axis(pd.MultiIndex.from_tuples([(ALL, "generated")]), axis=1)
    parts = [
        _mix(prompts[by].astype(str), kept[name].to_numpy(bool), draws, seed).assign(model=name[0], type=name[1], by=by)
        for name in kept
        for by in (*CONTEXTS, CROSSED)
    ]
    columns = [
        "model",
        "type",
        "by",
        "group",
        "prompts",
        "kept",
        "share_before",
        "share_after",
        "change",
        "chi2",
        "df",
        "p",
    ]
    return pd.concat(parts, ignore_index=True)[columns]


def _mix(groups: pd.Series, kept: np.ndarray, draws: int, seed: int) -> pd.DataFrame:
    """Prompts and kept ones (n_prompts,) by group, and whether every prompt was as likely to stay."""
    part = pd.DataFrame({"group": groups.to_numpy(), "kept": kept}).groupby("group")["kept"]
    part = part.agg(prompts="size", kept="sum").reset_index()
    part["share_before"] = part["prompts"] / len(groups)
    part["share_after"] = part["kept"] / kept.sum() if kept.any() else np.nan
    part["change"] = part["share_after"] - part["share_before"]
    chi2, p = _chi2_test(pd.factorize(groups)[0], kept, draws, seed)
    return part.assign(chi2=chi2, df=len(part) - 1, p=p)


def _chi2_test(groups: np.ndarray, kept: np.ndarray, draws: int, seed: int) -> tuple[float, float]:
    """Chi-square of a groups x (kept, dropped) table and its permutation p; NaN where all stay, none stays or one group is."""
    sizes, share = np.bincount(groups), kept.mean()
    if share in (0.0, 1.0) or sizes.size < 2:
        return float("nan"), float("nan")
    expected = sizes * share

    def chi2(stay: np.ndarray) -> np.ndarray:  # kept prompts by group (..., n_groups)
        off = stay - expected
        return (off**2 / expected + off**2 / (sizes - expected)).sum(axis=-1)

    observed = float(chi2(np.bincount(groups[kept], minlength=sizes.size)))
    rng = np.random.default_rng(seed)  # counts of a random choice of so many prompts, without naming them
    null = chi2(rng.multivariate_hypergeometric(sizes, int(kept.sum()), size=draws, method="marginals"))
    return observed, float((1 + (null >= observed - 1e-9).sum()) / (1 + draws))


def worst_case(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Bounds of fine-tuned minus baseline over *all* prompts, for each model and metric.

    A missing value may be anything between the metric's ends (PPL: the run's smallest and largest). Self-BLEU's values are those
    among the compared speeches; more speeches would raise them. Columns: n_prompts (those
    for which the metric is defined for anybody), n_pairs, difference (of the pairs), lowest, highest, sign_certain.
    """
    rows = []
    for metric in metrics:
        values = scores.groupby(["model", "type", "prompt_id"])[metric.column].mean().astype(float)
        defined = values.dropna().index.get_level_values("prompt_id").unique()
        low, high = _ends(values.to_numpy(), metric)
        for model in dict.fromkeys(generated(scores)["model"]):
            sides = [
                values.get(model, {}).get(kind, pd.Series(dtype=float)).reindex(defined) for kind in (BASELINE, TUNED)
            ]
            rows.append(
                {"model": model, "metric": metric.name} | _bounds(*(s.to_numpy(float) for s in sides), low, high)
            )
    order = {model: i for i, model in enumerate(dict.fromkeys(scores["model"]))}
    return pd.DataFrame(rows).sort_values("model", key=lambda m: m.map(order), kind="stable", ignore_index=True)


def _ends(values: np.ndarray, metric: Metric) -> tuple[float, float]:
    """The metric's range; where an end is open, the run's own smallest or largest value."""
    known = values[~np.isnan(values)]
    low, high = metric.range
    edges = (known.min(), known.max()) if known.size else (np.nan, np.nan)
    return (edges[0] if low is None or high is None else low), (edges[1] if high is None else high)


def _bounds(base: np.ndarray, tuned: np.ndarray, low: float, high: float) -> dict:
    pairs = tuned - base
    known = ~np.isnan(pairs)
    smallest = np.where(np.isnan(tuned), low, tuned) - np.where(np.isnan(base), high, base)
    largest = np.where(np.isnan(tuned), high, tuned) - np.where(np.isnan(base), low, base)
    lowest, highest = (float(side.mean()) if side.size else float("nan") for side in (smallest, largest))
    return {
        "n_prompts": base.size,
        "n_pairs": int(known.sum()),
        "difference": float(pairs[known].mean()) if known.any() else float("nan"),
        "lowest": lowest,
        "highest": highest,
        "sign_certain": bool(lowest > 0 or highest < 0),
    }
