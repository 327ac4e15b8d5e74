"""Do the metrics agree with each other, and do they tell human from generated speeches? Figures s3 and s4.

A judge that is worth its name ranks real speeches above those of a weak model; one that cannot is reported as such.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric
from parliabench_utils.results.cells import HUMAN, generated
from parliabench_utils.results.compare import bootstrap_means

MIN_PAIRS = 5  # below, a rank correlation is not shown


def correlations(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """Spearman's rho between all metrics over generated speeches: first, second, rho in [-1, 1], n (pairs)."""
    rows = generated(scores)
    columns = [metric.column for metric in metrics]
    data = rows[columns].astype(float)
    rho = data.corr(method="spearman", min_periods=MIN_PAIRS)
    known = data.notna().astype(int)
    counts = known.T @ known
    return pd.DataFrame(
        [
            {
                "first": a.name,
                "second": b.name,
                "rho": rho.loc[a.column, b.column],
                "n": int(counts.loc[a.column, b.column]),
            }
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
