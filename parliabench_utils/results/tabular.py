"""A result table and how it is written: CSV with the numbers, LaTeX and HTML with the printed form, JSON that names the inputs.

Used by notebook 08; the report prints the same `display` as HTML.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import pandas as pd

from parliabench_utils.run.artefacts import printable, read_csv, write_csv, write_json, write_text
from parliabench_utils.run.provenance import file_hash, name_in_manifest

DASH = "—"
LONG, WIDE = 40, 10  # rows and columns; a longer table breaks over pages, unless it is wide and so set small on one
# LaTeX for the signs that tables use.
_SIGNS = {
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "°": r"$^\circ$",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "δ": r"$\delta$",
    "χ²": r"$\chi^2$",
    "¹": r"$^1$",
    "η²": r"$\eta^2$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": r"$-$",
    "–": "--",
    DASH: "---",
}
_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "`": r"\textasciigrave{}", "\ufffd": "?",
}  # fmt: skip
LAST_LATIN = 0x17F  # LaTeX's own fonts have the letters up to here

_STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2rem;color:#1c2430}caption{font-weight:600;text-align:left;padding:.4rem 0}"
    "table{border-collapse:collapse;border-top:2px solid;border-bottom:2px solid}th,td{padding:.2rem .6rem;text-align:right}"
    "th:first-child,td:first-child{text-align:left}thead{border-bottom:1px solid}p{font-size:.85rem;margin:.3rem 0}"
)


@dataclass(frozen=True)
class Table:
    """One table: `data` is tidy and numeric (CSV), `display` is what is printed, all strings (LaTeX, HTML)."""

    name: str  # file name without ending: table02
    title: str
    data: pd.DataFrame
    display: pd.DataFrame
    notes: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = field(default=())


def write_table(table: Table, folder: Path) -> None:
    """Write `tables/NAME.csv`, `.tex`, `.html` and `.json` (title, notes, inputs, printed form) under the run's `folder`."""
    target = folder / "tables" / table.name
    write_csv(target.with_suffix(".csv"), table.data)
    write_text(target.with_suffix(".tex"), to_latex(table))
    write_text(target.with_suffix(".html"), to_html(table))
    write_json(
        target.with_suffix(".json"),
        {
            "table": table.name,
            "title": table.title,
            "notes": list(table.notes),
            "inputs": name_inputs(table.inputs, folder),
            "display": {
                "columns": [str(c) for c in table.display.columns],
                "rows": table.display.astype(str).values.tolist(),
            },
        },
    )


def read_table(folder: Path, name: str) -> Table:
    """A written table, as the report prints it."""
    target = folder / "tables" / name
    record = json.loads(target.with_suffix(".json").read_text(encoding="utf-8"))
    display = pd.DataFrame(record["display"]["rows"], columns=record["display"]["columns"], dtype=str)
    data = read_csv(target.with_suffix(".csv"))
    return Table(name, record["title"], data, display, tuple(record["notes"]))


def name_inputs(paths: Sequence[Path], folder: Path) -> list[dict[str, str]]:
    """Each input as {path, sha256}; paths relative to the run's folder or the project."""
    return [{"path": name_in_manifest(path, folder), "sha256": file_hash(path)} for path in paths]


def to_latex(table: Table) -> str:
    """A booktabs table for a plain article class (packages booktabs, graphicx, longtable); all text escaped."""
    long = len(table.display) > (LONG if len(table.display.columns) <= WIDE else 2 * LONG)
    caption = escape_latex(table.title)
    body = _in_latex(table.display).to_latex(
        index=False,
        escape=False,
        longtable=long,
        column_format=_widths(table.display) if long else None,
        caption=caption if long else None,
        label=f"tab:{table.name}" if long else None,
    )
    notes = "".join(f"\\par\\footnotesize {escape_latex(note)}\n" for note in table.notes)
    head = "% needs \\usepackage{booktabs,graphicx,longtable}\n"
    if any(ord(sign) > LAST_LATIN for sign in body + caption + notes):
        head += "% and XeLaTeX or LuaLaTeX with a font that has its letters\n"
    if long:
        return f"{head}{{\\tiny\\setlength{{\\tabcolsep}}{{3pt}}\n{body}}}\n{notes}"
    fit = f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n{body.strip()}}}\n"
    opening = f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\\label{{tab:{table.name}}}\n"
    return f"{head}{opening}{fit}{notes}\\end{{table}}\n"


def to_html(table: Table) -> str:
    """A page with the table, its title and notes; all text escaped."""
    display = table.display.astype(str).map(printable).rename(columns=lambda name: printable(str(name)))
    body = display.to_html(index=False, escape=True, border=0)
    caption, notes = (
        escape(printable(table.title)),
        "".join(f"<p>{escape(printable(note))}</p>\n" for note in table.notes),
    )
    body = body.replace(">\n", f">\n  <caption>{caption}</caption>\n", 1).replace(" ± ", "&nbsp;±&nbsp;")
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{caption}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n{notes}</body>\n</html>\n"
    )


def _widths(display: pd.DataFrame) -> str:
    """Column formats of a table over pages: shares of the line by the longest cell, at most 40 characters of each counted."""
    lengths = [min(max(len(str(name)), *display[name].astype(str).str.len()), 40) for name in display.columns]
    room = 0.97 - 0.012 * len(lengths)  # of the line, without the gaps between columns
    return "".join(f"p{{{room * length / sum(lengths):.3f}\\linewidth}}" for length in lengths)


def _in_latex(display: pd.DataFrame) -> pd.DataFrame:
    """All cells and names of columns escaped."""
    return display.astype(str).map(escape_latex).rename(columns=lambda name: escape_latex(str(name)))


def escape_latex(text: str) -> str:
    """Text on one line with LaTeX's special characters and our signs replaced; control and format characters are left out.

    A star or bracket at the beginning would belong to the line before it (`\\\\*`, `\\\\[`), so it is put in braces.
    """
    line = unicodedata.normalize("NFC", " ".join(printable(text).split()))
    seen = "".join(_SPECIAL.get(c, c) for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cn", "Co", "Cs"))
    if seen.startswith(("*", "[")):
        seen = f"{{{seen[0]}}}{seen[1:]}"
    return _signs(seen)


def _signs(text: str) -> str:
    for sign, code in _SIGNS.items():
        text = text.replace(sign, code)
    return text


def number(value: float, decimals: int = 3) -> str:
    """A number as printed; a dash where undefined."""
    return DASH if pd.isna(value) else f"{value:.{decimals}f}"


def p_value(value: float) -> str:
    """A p value as printed: four decimals, below that "< 0.0001"."""
    if pd.isna(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def span(values: pd.Series) -> str:
    """Smallest and largest of whole numbers: "16" or "12–16"."""
    if values.empty:
        return "0"
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}–{high}"
