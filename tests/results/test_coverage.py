"""Missing and truncated values are counted over the speeches that exist."""

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.scores import coverage
from parliabench_utils.results.tables import coverage_display


def scores(**columns) -> pd.DataFrame:
    base = {metric.column: [1.0] * 4 for metric in METRICS}
    base |= {"model": ["a"] * 4, "type": ["baseline"] * 4, "generated_speech": ["x", "x", "x", None]}
    return pd.DataFrame(base | columns)


def test_shares_are_of_the_speeches_that_exist():
    found = coverage(scores(J_Coh=[np.nan, 1, 1, np.nan], **{"truncated PPL": [1, 1, 0, np.nan]})).set_index("metric")
    assert (found["n"] == 3).all()
    assert found.loc["J_Coh", ["missing", "kind"]].tolist() == [1, "judge"]
    assert found.loc["PPL", ["missing", "truncated"]].tolist() == [0, 2]
    assert np.isclose(found.loc["PPL", "truncated_share"], 2 / 3)
    assert np.isnan(found.loc["Self-BLEU", "truncated"])


def test_the_table_prints_both_shares():
    table = coverage_display(coverage(scores(**{"truncated PPL": [1, 0, 0, 0]})), {"a": "A"}, ())
    assert table.display.iloc[0].tolist()[:3] == ["A (B)", "3", "0.0% / 33.3%"]
