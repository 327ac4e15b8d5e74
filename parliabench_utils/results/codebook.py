"""What every column of every CSV and parquet file of a run means, with unit and source: `tables/codebook.csv` (notebook 08).

The words are in `codebook.csv` beside this module; `file` there is a pattern under the run's folder, and the first row that fits
a file and column counts.

>>> describe("05_text_metrics/m/baseline.parquet", "PPL")["unit"]
'perplexity'
"""

from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

import pandas as pd

from parliabench_utils.results.tabular import Table
from parliabench_utils.run.artefacts import read_csv

BOOK = Path(__file__).parent / "codebook.csv"
MISSING = "not described"


@lru_cache
def _book() -> tuple[dict[str, str], ...]:
    return tuple(pd.read_csv(BOOK, dtype=str, keep_default_na=False).to_dict("records"))


def describe(file: str, column: str) -> dict[str, str] | None:
    """The codebook's row for a column of a file (path under the run's folder), or None."""
    return next((row for row in _book() if row["column"] == column and fnmatch(file, row["file"])), None)


def undescribed(folder: Path) -> list[tuple[str, str]]:
    """(file, column) of each column in the run's CSV and parquet files that the codebook lacks."""
    found = []
    for path in sorted([*folder.rglob("*.csv"), *folder.rglob("*.parquet")]):
        name = path.relative_to(folder).as_posix()
        found += [(name, column) for column in _columns(path) if describe(name, column) is None]
    return found


def _columns(path: Path) -> list[str]:
    if path.suffix == ".csv":
        return list(read_csv(path, nrows=0).columns)
    import pyarrow.parquet as pq

    return pq.read_schema(path).names


def codebook(folder: Path) -> Table:
    """The codebook as a table; a column of the run that it lacks is listed as not described."""
    missing = [
        {"file": file, "column": column, "meaning": MISSING, "unit": "", "source": ""}
        for file, column in undescribed(folder)
    ]
    data = pd.DataFrame([*_book(), *missing])
    display = data.rename(columns=str.capitalize)
    notes = ("File is a pattern under the run's folder; the first row that fits a file and column counts.",)
    return Table("codebook", "Columns of the run's files", data, display, notes, (BOOK,))
