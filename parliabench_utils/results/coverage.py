"""What each mean does not see: speeches without a value, and speeches of which a metric read only a part (notebook 08).

coverage(scores)      # a row a model, type and metric
"""

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS


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
