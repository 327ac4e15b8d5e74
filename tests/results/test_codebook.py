"""The codebook: whole, without doubles, and honest about a column that it lacks."""

import re

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.tables import BOOK, MISSING, codebook, describe, undescribed
from parliabench_utils.run.artefacts import write_csv, write_parquet
from tests.conftest import ROOT


def test_every_row_says_what_unit_and_source():
    book = pd.read_csv(BOOK, dtype=str, keep_default_na=False)
    assert list(book.columns) == ["file", "column", "meaning", "unit", "source"]
    assert (book != "").all(axis=None) and not book.duplicated(["file", "column"]).any()


def test_the_first_row_that_fits_counts():
    assert describe("tables/table12.csv", "difference")["meaning"] != describe("tables/table13.csv", "difference")["meaning"]
    assert describe("elsewhere.csv", "no such column") is None
    for metric in METRICS:
        assert describe("08_statistics/scores.parquet", metric.column)


def test_a_column_that_it_lacks_is_listed(tmp_path):
    write_csv(tmp_path / "tables/table02.csv", pd.DataFrame({"mean": [1.0], "new": [2.0]}))
    write_parquet(tmp_path / "05_text_metrics/m/baseline.parquet", pd.DataFrame({"PPL": [1.0], "newer": [2.0]}))
    assert undescribed(tmp_path) == [("05_text_metrics/m/baseline.parquet", "newer"), ("tables/table02.csv", "new")]
    table = codebook(tmp_path).data
    assert table.loc[table["meaning"] == MISSING, "column"].tolist() == ["newer", "new"]


def test_every_source_that_is_named_is_there():
    for source in set(pd.read_csv(BOOK, dtype=str, keep_default_na=False)["source"]):
        for file in re.findall(r"\b(?:run|corpus|models|metrics|results)/\w+\.py", source):
            assert (ROOT / "parliabench_utils" / file).is_file(), f"{source}: there is no {file}"
