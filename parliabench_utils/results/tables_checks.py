"""The analysis of variance and the paper's audit as tables: `anova.csv`, `paper_audit.csv` (notebook 08)."""

from pathlib import Path

import pandas as pd

from parliabench_utils.results.paper import PAPER_TABLES
from parliabench_utils.results.tables_scores import Names, set_label
from parliabench_utils.results.tabular import Table, number, p_value


def anova_display(anova: pd.DataFrame, names: Names, inputs: tuple[Path, ...]) -> Table:
    """F, df, p, eta squared and Kruskal-Wallis of each quantity, the control marked."""
    known = {**names, "all": "All models"}
    display = pd.DataFrame(
        {
            "Quantity": anova["quantity"] + anova["control"].map({True: " (control)", False: ""}),
            "By": anova["by"],
            "Speeches of": [set_label(m, t, known) for m, t in zip(anova["model"], anova["type"], strict=True)],
            "n": anova["n"].astype(str),
            "Groups": anova["groups"].astype(str),
            "F": anova["F"].map(lambda v: number(v, 2)),
            "df": anova["df_between"].astype(str) + ", " + anova["df_within"].astype(str),
            "p": anova["p"].map(p_value),
            "η²": anova["eta2"].map(number),
            "H": anova["H"].map(lambda v: number(v, 2)),
            "p of H": anova["kruskal_p"].map(p_value),
        }
    )
    notes = (
        "Control: the same speeches against another party's centroid (06). Where it separates parties as well, the metric does "
        "not see the party.",
        "Speeches of all models to one prompt share it, so their p is too small; read the rows of single models.",
    )
    return Table("anova", "Variance between parties and orientations", anova, display, notes, inputs)


def audit_display(findings: pd.DataFrame) -> Table:
    """Every claim of `paper.audit`."""
    display = findings.rename(columns=str.capitalize)
    notes = ("Yes: the published value lies in the interval that the rounding of the printed inputs allows.",)
    return Table(
        "paper_audit", "What the paper's own tables say about its claims", findings, display, notes, (PAPER_TABLES,)
    )
