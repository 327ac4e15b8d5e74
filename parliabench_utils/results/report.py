"""The report of a run: `outputs/<run>/report.html`, one file that needs no network (notebook 09, `make demo`).

write_report(this_run.folder, scores, profile="demo", models=models, judge=judge, browser_prompts=24, seed=42)
print(headline(this_run.folder))

It can be read without JavaScript; with it the speeches can be filtered and sorted. Only the two scripts that the page comes with
may run: its content policy names them by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.models.loading import read_model_spec
from parliabench_utils.results import report_parts as parts
from parliabench_utils.results.browser import browser
from parliabench_utils.results.cells import HUMAN, generated
from parliabench_utils.results.figure_style import DPI
from parliabench_utils.results.report_findings import significance
from parliabench_utils.results.scores import kept_prompts
from parliabench_utils.results.tables_scores import MARKS, set_label
from parliabench_utils.results.tabular import DASH, Table, number, read_table, span
from parliabench_utils.run.artefacts import printable, read_csv, write_text
from parliabench_utils.run.project import shown

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "s1", "s2", "s3", "s4")
NUMBERED = tuple(f"table{n:02d}" for n in range(1, 14))
AUDIT = "paper_audit"
TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tablesort.min.js", "browser.js")
HUMAN_NAME = "Human speeches"
SCREEN_DPI = 125  # figures stand a little larger on the page than in print
NUMBER = r"[<\[−+-]?\s?\d.*"
HEADLINE_WIDTH, NAME_WIDTH = 11, 14  # characters


def model_names(models: Sequence[str]) -> dict[str, str]:
    """Printed names of the run's models, and of the human row."""
    return {model: read_model_spec(model).display for model in models} | {HUMAN: HUMAN_NAME}


def write_report(
    folder: Path,
    scores: pd.DataFrame,
    *,
    profile: str,
    models: Sequence[str],
    judge: str,
    browser_prompts: int,
    seed: int,
) -> Path:
    """Write `report.html` from the run's tables, figures, manifests and `scores` (with `composite`); returns its path.

    Speeches, names and settings are escaped by the template; pictures, style and scripts lie inside. `browser_prompts` is the
    most prompts that the speech browser holds, `seed` draws them where the run has more.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"text_columns": text_columns, "sha256": _csp_hash, "round3": number}
    own = {name: Markup(_template(name)) for name in ("report.css", "tablesort.LICENCE", *SCRIPTS)}
    content = _content(folder, scores, profile, models, judge)
    content["browser"] = browser(folder, scores, model_names(models), judge=judge, limit=browser_prompts, seed=seed)
    content |= {"style": own["report.css"], "licence": own["tablesort.LICENCE"], "scripts": [own[s] for s in SCRIPTS]}
    write_text(folder / "report.html", environment.get_template("report.html.j2").render(content))
    return folder / "report.html"


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    """A script as the page's content policy names it: `sha256-` and the base64 of its hash."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _content(folder: Path, scores: pd.DataFrame, profile: str, models: Sequence[str], judge: str) -> dict[str, Any]:
    kept = kept_prompts(folder)
    spoken = generated(scores)
    compared = spoken.loc[spoken["compared"], "prompt_id"].nunique()
    specs = [read_model_spec(model) for model in models]
    return {
        "run": folder.name,
        "profile": profile,
        "models": [spec.display for spec in specs],
        "n_prompts": compared,
        "warnings": parts.warnings(folder, specs, judge, compared),
        "headline": headline_frame(folder),
        "significance": significance(folder, model_names(models)),
        "tables": [_printed(read_table(folder, name)) for name in _table_names(folder)],
        "audit": read_table(folder, AUDIT),
        "figures": [_figure(folder, name) for name in FIGURES],
        "dropped": parts.dropped_rows(folder) + parts.missing_scores(scores, kept, compared),
        "failures": parts.failures(folder),
        "checks": parts.checks(folder),
        "differences": parts.differences(folder, profile),
        "signatures": parts.signatures(folder, list(dict.fromkeys(zip(scores["model"], scores["type"], strict=True)))),
        "provenance": parts.provenance_rows(folder),
    }


def _table_names(folder: Path) -> list[str]:
    """The paper's tables in its order, then the run's other ones; the audit has a section of its own."""
    written = {path.stem for path in (folder / "tables").glob("*.json")}
    return [*NUMBERED, *sorted(written - {*NUMBERED, AUDIT})]


def text_columns(frame: pd.DataFrame) -> list[bool]:
    """Which columns hold words rather than numbers, so that the page sets them to the left; dashes do not decide."""
    return [_is_text(frame[column].astype(str)) for column in frame.columns]


def _is_text(cells: pd.Series) -> bool:
    known = cells[cells != DASH]
    return len(known) > 0 and known.str.fullmatch(NUMBER).mean() <= 0.5


def _printed(table: Table) -> Table:
    """A table that is wider than a page and short is turned: Table 2 has metrics in rows on the page."""
    frame = table.display
    if len(frame.columns) < 14 or len(frame) > 12:
        return table
    turned = frame.set_index(frame.columns[0]).T.rename_axis("", axis=1).reset_index(names="")
    return replace(table, display=turned)


def _figure(folder: Path, name: str) -> dict[str, Any]:
    target = folder / "figures" / name
    record = json.loads(target.with_suffix(".json").read_text(encoding="utf-8"))
    picture = target.with_suffix(".png").read_bytes()
    width = int.from_bytes(picture[16:20]) * SCREEN_DPI // DPI  # a PNG's width stands in bytes 16 to 19
    number = f"Figure {name.removeprefix('fig')}"
    return record | {"png": base64.b64encode(picture).decode("ascii"), "width": width, "number": number}


def headline_frame(folder: Path) -> pd.DataFrame:
    """Metrics in rows, models and types in columns: means with * (gain) and † (decline), from `tables/table02.csv`."""
    data = read_csv(folder / "tables/table02.csv")
    names = dict(zip(data["model"], data["display"], strict=True))
    labels = [set_label(m, t, names) for m, t in zip(data["model"], data["type"], strict=True)]
    marks = data["mark"].fillna("").map(MARKS)
    printed = data["mean"].map(lambda v: "—" if pd.isna(v) else f"{v:.3f}") + marks
    frame = pd.DataFrame({"metric": data["metric"], "set": labels, "cell": printed})
    wide = frame.pivot(index="metric", columns="set", values="cell")
    wide = wide.reindex(index=[m.name for m in METRICS], columns=list(dict.fromkeys(labels)))
    wide.index = [f"{m.name} {'↑' if m.higher_is_better else '↓'}" for m in METRICS]
    wide.loc["n"] = data.groupby(labels)["n"].apply(span).reindex(wide.columns)  # a metric may have fewer values
    return wide


def headline(folder: Path) -> str:
    """The headline table for a terminal, and where the report lies. FileNotFoundError where 08 or 09 has not run."""
    report = folder / "report.html"
    if not report.exists():
        raise FileNotFoundError(f"{folder.name} has no report.html: run 09_figures first (make demo)")
    frame = headline_frame(folder)
    columns = [_wrapped(str(column)) for column in frame.columns]
    width = max(HEADLINE_WIDTH, *(len(line) for lines in columns for line in lines)) + 2
    height = max(map(len, columns))
    padded = [[""] * (height - len(lines)) + lines for lines in columns]
    head = [" " * NAME_WIDTH + "".join(lines[row].rjust(width) for lines in padded) for row in range(height)]
    rows = zip(frame.index, frame.to_numpy(), strict=True)
    body = [name.ljust(NAME_WIDTH) + "".join(cell.rjust(width) for cell in cells) for name, cells in rows]
    rule = "-" * len(body[0])
    legend = "(B) baseline, (F) fine-tuned; * significant gain, † significant decline"
    return "\n".join([*head, rule, *body, rule, legend, f"report: {shown(report)}"])


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, HEADLINE_WIDTH) or [""]
