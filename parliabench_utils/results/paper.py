"""The published tables as data, and the audit of the paper against itself; notebook 08 writes `tables/paper_audit.csv`.

>>> published(12)["model"].tolist() == list(PAPER_MODELS)
True
>>> sorted(audit()["agrees"].unique())
['no', 'not computable', 'yes']
"""

from pathlib import Path

import pandas as pd

from parliabench_utils.results import audit_claims, audit_contexts, audit_scores, audit_setup, audit_stability
from parliabench_utils.results.audit_tools import Finding

PAPER_TABLES = Path(__file__).parent / "paper_tables"
PAPER_MODELS = ("Llama 3.1 8B", "Gemma 2 9B", "Mistral 7B v0.3", "Qwen2 7B", "Yi 6B")

# Tables 2 and 8 write YI, 11 and 12 Yi, and 13 uses first names.
_ALIASES = {
    "YI 6B": "Yi 6B",
    "llama": "Llama 3.1 8B",
    "gemma": "Gemma 2 9B",
    "mistral": "Mistral 7B v0.3",
    "qwen": "Qwen2 7B",
    "yi": "Yi 6B",
}
_TEXT_COLUMNS = {6: ["value"], 7: ["value"]}  # "16", "2e-4" and "7 layers" share a column


def paper_table_path(number: int) -> Path:
    """File of published Table `number` (2 to 13)."""
    found = sorted(PAPER_TABLES.glob(f"table{number:02d}_*.csv"))
    if not found:
        raise ValueError(f"the paper's Table {number} is not kept as data; there are 2 to 13 in {PAPER_TABLES.name}/")
    return found[0]


def published(number: int) -> pd.DataFrame:
    """Published Table `number` with one canonical name a model (PAPER_MODELS), in the paper's row order."""
    types = dict.fromkeys(_TEXT_COLUMNS.get(number, []), str)
    frame = pd.read_csv(paper_table_path(number), dtype=types, keep_default_na=False, na_values=[""])
    if "model" in frame:
        frame["model"] = frame["model"].replace(_ALIASES)
    return frame.rename(columns=_ALIASES)


def audit(tables: dict[int, pd.DataFrame] | None = None) -> pd.DataFrame:
    """Recompute what the paper claims, from its tables alone.

    `tables` maps a table's number to its frame (default: all as published); altering one alters the verdicts.
    Columns: `item` (subject), `claim`, `place`, `published`, `recomputed`, `agrees` (yes, no, not computable: within
    the interval that the rounding of the inputs allows) and `note`.
    """
    tables = {n: published(n) for n in range(2, 14)} | (tables or {})
    findings: list[Finding] = []
    for part in (audit_scores, audit_claims, audit_contexts, audit_stability, audit_setup):
        for check in part.CHECKS:
            findings.extend(check(tables))
    return pd.DataFrame([finding.as_row() for finding in findings])
