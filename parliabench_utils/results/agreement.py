"""Do the metrics agree with each other, and do they tell human from generated speeches? Figures s3 and s4.

A judge that is worth its name ranks real speeches above those of a weak model; one that cannot is reported as such.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric
from parliabench_utils.results.cells import HUMAN, generated

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


def human_preference(scores: pd.DataFrame, metrics: Sequence[Metric] = METRICS) -> pd.DataFrame:
    """P(a human speech scores better than a generated one to the same prompt), ties half, with a 95 % Wilson interval.

    0.5 means that the metric cannot tell them apart. Columns: metric, preference, low, high, n (pairs).
    """
    human = scores[scores["type"] == HUMAN].set_index("prompt_id")
    rows = generated(scores)
    rows = rows[rows["prompt_id"].isin(human.index)]
    return pd.DataFrame([_preference(human, rows, metric) for metric in metrics])


def _preference(human: pd.DataFrame, rows: pd.DataFrame, metric: Metric) -> dict:
    theirs = human[metric.column].reindex(rows["prompt_id"]).to_numpy(float)
    gap = theirs - rows[metric.column].to_numpy(float)
    gap = gap[~np.isnan(gap)] * (1 if metric.higher_is_better else -1)
    if not gap.size:
        return {"metric": metric.name, "preference": np.nan, "low": np.nan, "high": np.nan, "n": 0}
    share = float((gap > 0).mean() + 0.5 * (gap == 0).mean())
    low, high = wilson(share, gap.size)
    return {"metric": metric.name, "preference": share, "low": low, "high": high, "n": gap.size}


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share of n."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return float(centre - half), float(centre + half)
