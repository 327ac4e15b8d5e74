"""The tables in one import: `tables_setup` holds 1 and 3 to 7, `tables_scores` 2 and 8 to 13, `tables_checks` the rest (notebook 08).

from parliabench_utils.results.tables import table13, write_table
"""

from parliabench_utils.results.tables_checks import (
    anova_display,
    audit_display,
    coverage_display,
    memorisation_display,
    mixed_display,
    paper_differences,
    selection_display,
)
from parliabench_utils.results.tables_scores import alignment_by, difficulty_table, set_label, table02, table12, table13
from parliabench_utils.results.tables_setup import (
    dataset_files,
    measured,
    read_dataset,
    table01,
    table03,
    table04,
    table05,
    training_tables,
)
from parliabench_utils.results.tabular import Table, number, p_value, read_table, to_html, to_latex, write_table

__all__ = [
    "Table",
    "alignment_by",
    "anova_display",
    "audit_display",
    "coverage_display",
    "dataset_files",
    "difficulty_table",
    "measured",
    "memorisation_display",
    "mixed_display",
    "number",
    "p_value",
    "paper_differences",
    "read_dataset",
    "read_table",
    "selection_display",
    "set_label",
    "table01",
    "table02",
    "table03",
    "table04",
    "table05",
    "table12",
    "table13",
    "to_html",
    "to_latex",
    "training_tables",
    "write_table",
]
