"""The report of a run: `outputs/<run>/report.html`, one file that needs no network and no script (notebook 09, `make demo`).

write_report(run.folder, run.params)
print(headline(run.folder))
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.models.loading import read_model_spec
from parliabench_utils.results import report_parts as parts
from parliabench_utils.results.cells import HUMAN
from parliabench_utils.results.figure_style import DPI
from parliabench_utils.results.scores import kept_prompts
from parliabench_utils.results.tables_scores import MARKS, set_label
from parliabench_utils.results.tabular import DASH, Table, read_table
from parliabench_utils.run.artefacts import write_text
from parliabench_utils.run.project import project_root

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "s1", "s2", "s3", "s4")
TABLES = tuple(f"table{n:02d}" for n in range(1, 14))
HUMAN_NAME = "Human speeches"
SCREEN_DPI = 125  # figures stand a little larger on the page than in print
NUMBER = r"[<\[−-]?\s?\d.*"
HEADLINE_WIDTH, NAME_WIDTH = 11, 14  # characters


def model_names(models: Sequence[str]) -> dict[str, str]:
    """Printed names of the run's models, and of the human row."""
    return {model: read_model_spec(model).display for model in models} | {HUMAN: HUMAN_NAME}


def write_report(folder: Path, *, profile: str, models: Sequence[str], judge: str, n_samples: int) -> Path:
    """Write `report.html` from the run's tables, figures, scores and manifests; returns its path.

    Speeches, names and settings are escaped by the template; pictures lie inside as PNG.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["text_columns"] = text_columns
    page = environment.get_template("report.html.j2").render(_content(folder, profile, models, judge, n_samples))
    write_text(folder / "report.html", page)
    return folder / "report.html"


def _content(folder: Path, profile: str, models: Sequence[str], judge: str, n_samples: int) -> dict[str, Any]:
    scores = pd.read_parquet(folder / "08_statistics/scores.parquet")
    kept = kept_prompts(folder)
    compared = scores.loc[scores["compared"], "prompt_id"].nunique()
    specs, names = [read_model_spec(model) for model in models], model_names(models)
    return {
        "run": folder.name,
        "profile": profile,
        "models": [spec.display for spec in specs],
        "n_prompts": compared,
        "warnings": parts.warnings(folder, specs, judge, compared),
        "headline": headline_frame(folder),
        "tables": [_printed(read_table(folder, name)) for name in TABLES],
        "anova": read_table(folder, "anova"),
        "audit": read_table(folder, "paper_audit"),
        "figures": [_figure(folder, name) for name in FIGURES],
        "samples": parts.samples(scores, names, n_samples),
        "dropped": parts.dropped_rows(folder) + parts.missing_scores(scores, kept, compared),
        "failures": parts.failures(folder),
        "checks": parts.checks(folder),
        "differences": parts.differences(folder, profile),
        "signatures": parts.signatures(folder, list(dict.fromkeys(zip(scores["model"], scores["type"], strict=True)))),
        "provenance": parts.provenance_rows(folder),
    }


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
    data = pd.read_csv(folder / "tables/table02.csv", keep_default_na=False, na_values=[""])
    names = dict(zip(data["model"], data["display"], strict=True))
    labels = [set_label(m, t, names) for m, t in zip(data["model"], data["type"], strict=True)]
    marks = data["mark"].fillna("").map(MARKS)
    printed = data["mean"].map(lambda v: "—" if pd.isna(v) else f"{v:.3f}") + marks
    frame = pd.DataFrame({"metric": data["metric"], "set": labels, "cell": printed})
    wide = frame.pivot(index="metric", columns="set", values="cell")
    wide = wide.reindex(index=[m.name for m in METRICS], columns=list(dict.fromkeys(labels)))
    wide.index = [f"{m.name} {'↑' if m.higher_is_better else '↓'}" for m in METRICS]
    wide.loc["n"] = data.groupby(labels)["n"].max().reindex(wide.columns).astype(int).astype(str)
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
    root = project_root()
    shown = report.relative_to(root) if report.is_relative_to(root) else report
    legend = "(B) baseline, (F) fine-tuned; * significant gain, † significant decline"
    return "\n".join([*head, rule, *body, rule, legend, f"report: {shown}"])


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, HEADLINE_WIDTH) or [""]
