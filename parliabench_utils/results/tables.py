"""The run's tables: CSV with the numbers, LaTeX and HTML with what is printed, JSON that names the inputs (notebooks 08, 09).

Tables 1 and 3 to 7 come from the run itself, 2 and 8 to 13 from the joined scores (section 6, appendix 13), the others stand beside
the paper's. `tables/codebook.csv` says what every column of every file of a run means; its words are in `codebook.csv` beside this
module: `file` is a pattern under the run's folder, and the first row that fits a file and column counts.

>>> describe("05_text_metrics/m/baseline.parquet", "PPL")["unit"]
'perplexity'
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from html import escape
from pathlib import Path

import pandas as pd

from parliabench_utils.corpus import overview
from parliabench_utils.metrics.table import METRICS
from parliabench_utils.models.specs import read_model_spec
from parliabench_utils.results.paper import PAPER_MODELS, PAPER_TABLES, published
from parliabench_utils.results.robustness import ALL, CROSSED, ORDERS
from parliabench_utils.results.scores import ESTIMANDS, HUMAN, PUBLISHED, SMALL_GROUP, cell_means, imported_scores
from parliabench_utils.results.statistics import CONTEXTS, DEFINITION, left_out, verdict
from parliabench_utils.run.artefacts import printable, read_csv, read_jsonl, write_csv, write_json, write_parquet, write_text
from parliabench_utils.run.params import FOR_ALL, read_profile
from parliabench_utils.run.project import project_root
from parliabench_utils.run.record import file_hash, name_in_manifest

DASH = "—"
LONG, WIDE = 40, 10  # rows and columns; a longer table breaks over pages, unless it is wide and so set small on one
# LaTeX for the signs that tables use.
_SIGNS = {
    "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$\dagger$", "‡": r"$\ddagger$", "°": r"$^\circ$",
    "→": r"$\rightarrow$", "×": r"$\times$", "δ": r"$\delta$", "χ²": r"$\chi^2$", "¹": r"$^1$", "η²": r"$\eta^2$", "≥": r"$\geq$",
    "≤": r"$\leq$", "−": r"$-$", "–": "--", DASH: "---",
}  # fmt: skip
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


Names = Mapping[str, str]  # printed name of each model, and of "human"
Inputs = tuple[Path, ...]


@dataclass(frozen=True)
class Table:
    """One table: `data` is tidy and numeric (CSV), `display` is what is printed, all strings (LaTeX, HTML)."""

    name: str  # file name without ending: table02
    title: str
    data: pd.DataFrame
    display: pd.DataFrame
    notes: tuple[str, ...] = ()
    inputs: Inputs = field(default=())


def write_table(table: Table, folder: Path) -> None:
    """Write `tables/NAME.csv`, `.tex`, `.html` and `.json` (title, notes, inputs, printed form) under the run's `folder`."""
    target = folder / "tables" / table.name
    write_csv(target.with_suffix(".csv"), table.data)
    write_text(target.with_suffix(".tex"), to_latex(table))
    write_text(target.with_suffix(".html"), to_html(table))
    shown = {"columns": [str(c) for c in table.display.columns], "rows": table.display.astype(str).values.tolist()}
    named = {"table": table.name, "title": table.title, "notes": list(table.notes)}
    write_json(target.with_suffix(".json"), named | {"inputs": name_inputs(table.inputs, folder), "display": shown})


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
    escaped = table.display.astype(str).map(escape_latex).rename(columns=lambda name: escape_latex(str(name)))
    over_pages = {"column_format": _widths(table.display), "caption": caption, "label": f"tab:{table.name}"} if long else {}
    body = escaped.to_latex(index=False, escape=False, longtable=long, **over_pages)
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
    caption = escape(printable(table.title))
    notes = "".join(f"<p>{escape(printable(note))}</p>\n" for note in table.notes)
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


def escape_latex(text: str) -> str:
    """Text on one line with LaTeX's special characters and our signs replaced; control and format characters are left out.

    A star or bracket at the beginning would belong to the line before it (`\\\\*`, `\\\\[`), so it is put in braces.
    """
    line = unicodedata.normalize("NFC", " ".join(printable(text).split()))
    seen = "".join(_SPECIAL.get(c, c) for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cn", "Co", "Cs"))
    if seen.startswith(("*", "[")):
        seen = f"{{{seen[0]}}}{seen[1:]}"
    for sign, code in _SIGNS.items():
        seen = seen.replace(sign, code)
    return seen


def number(value: float, decimals: int = 3) -> str:
    """A number as printed; a dash where undefined."""
    return DASH if pd.isna(value) else f"{value:.{decimals}f}"


def p_value(value: float) -> str:
    """A p value as printed: four decimals, below that "< 0.0001"."""
    if pd.isna(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _count(value: float) -> str:
    return DASH if pd.isna(value) else f"{int(value):,}"


def printed(data: pd.DataFrame, *columns: tuple[str, str | pd.Series, int | str]) -> pd.DataFrame:
    """What is printed of `data`: (heading, column or values, format: a number of decimals, "p", "," for counts, "" for text)."""
    shown = {}
    for heading, values, form in columns:
        values = data[values] if isinstance(values, str) else values
        how = {"p": p_value, ",": _count, "": str}.get(form, lambda value, decimals=form: number(value, decimals))
        shown[heading] = values.map(how)
    return pd.DataFrame(shown)


def with_labels(frame: pd.DataFrame, names: Names) -> pd.DataFrame:
    """A copy with the model's printed name as second column `display`."""
    data = frame.copy()
    data.insert(1, "display", data["model"].map(names))
    return data


def set_labels(data: pd.DataFrame, names: Names) -> pd.Series:
    """The name of each row's set: "Llama 3.1 8B (F)", "Human speeches"."""
    return pd.Series([set_label(m, t, names) for m, t in zip(data["model"], data["type"], strict=True)], data.index, dtype=object)


def degrees(small: pd.Series) -> pd.Series:
    """° where a group is small."""
    return small.map({True: "°", False: ""})


def span(values: pd.Series) -> str:
    """Smallest and largest of whole numbers: "16" or "12–16"."""
    if values.empty:
        return "0"
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}–{high}"


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
    import pyarrow.parquet

    found = []
    for path in sorted([*folder.rglob("*.csv"), *folder.rglob("*.parquet")]):
        name = path.relative_to(folder).as_posix()
        if name.startswith(("studies/", "published/")):  # a study explains its own; published scores are in 08's frame again
            continue
        columns = read_csv(path, nrows=0).columns if path.suffix == ".csv" else pyarrow.parquet.read_schema(path).names
        found += [(name, column) for column in columns if describe(name, column) is None]
    return found


def codebook(folder: Path) -> Table:
    """The codebook as a table; a column of the run that it lacks is listed as not described."""
    missing = [{"file": f, "column": c, "meaning": MISSING, "unit": "", "source": ""} for f, c in undescribed(folder)]
    data = pd.DataFrame([*_book(), *missing])
    notes = ("File is a pattern under the run's folder; the first row that fits a file and column counts.",)
    return Table("codebook", "Columns of the run's files", data, data.rename(columns=str.capitalize), notes, (BOOK,))


MARKS = {"gain": "*", "decline": "†", "": ""}
TYPE_LETTERS = {"baseline": " (B)", "fine-tuned": " (F)", HUMAN: ""}  # other types are spelled out
SMALL_NOTE = f"° fewer than {SMALL_GROUP} speeches a model"
SELF_BLEU_NOTE = (
    "Self-BLEU grows with the number of speeches: it is computed again among the compared ones, as many to the same prompts in every "
    "set (scores read from a publication stay)."
)
MISSING_NOTE = "A group does not appear when every one of its prompts was left out (04_generate/summary/kept_prompts.json)"


def estimand_note(data: pd.DataFrame, what: str) -> str:
    """Which estimand the rows of `data` are of and, where they are weighted, between which numbers their effective n lies."""
    if data.empty:
        return ""
    name = data["estimand"].iloc[0]
    effective = f" Effective n, (Σw)²/Σw², of {what}: {span(data['n_effective'].round())}." if name != "prompts" else ""
    return ESTIMANDS[name] + effective


def set_label(model: str, kind: str, names: Names) -> str:
    """A row's name: "Llama 3.1 8B (F)", "Human speeches"."""
    return names[model] + TYPE_LETTERS.get(kind, f" ({kind})")


def table02(
    cells: pd.DataFrame, comparison: pd.DataFrame, names: Names, *, test: str, correction: str, rule: str, inputs: Inputs
) -> Table:
    """Mean ± sd of all metrics; `rule` says which prompts count. Improvements have an asterisk, declines a dagger."""
    marks = comparison.assign(mark=verdict(comparison, test, correction), type="fine-tuned")
    data = cells.merge(marks[["model", "type", "metric", "mark"]], on=["model", "type", "metric"], how="left")
    data = with_labels(data.assign(mark=data["mark"].fillna("")), names)
    data = _beside_published(data, published(2)[["model", "type", "metric", "mean", "sd"]], ["type", "metric"])
    most = data.groupby(["model", "type"])["n"].transform("max")
    fewer = (" (" + data["n"].astype(str) + ")").where(data["n"] < most, "")
    cell = data["mean"].map(number) + data["mark"].map(MARKS) + " ± " + data["sd"].map(number) + fewer
    labels = set_labels(data, names) + degrees(most < SMALL_GROUP)
    wide = pd.DataFrame({"Model": labels, "metric": data["metric"], "cell": cell})
    display = wide.pivot(index="Model", columns="metric", values="cell")
    display = display.reindex(index=dict.fromkeys(labels), columns=[m.name for m in METRICS])
    display.columns = [f"{m.name} {'↑' if m.higher_is_better else '↓'}" for m in METRICS]
    display.insert(0, "n", data.groupby(labels, sort=False)["n"].max().astype(str).reindex(display.index))
    family = comparison["family" if test == "pooled" else "paired_p_family"].iloc[0]
    kind = test if test == "paired" or data["estimand"].iloc[0] == "prompts" else "unpaired, unequal variances,"
    notes = (
        f"Mean ± sd (ddof 1); n is the number of valid values, in brackets where a metric has fewer. {rule}",
        estimand_note(data, "a cell"),
        f"* significant improvement, † significant decline: {kind} t-test, {correction} at 0.05 over {family}."
        + (" Self-BLEU: permutation of types." if test == "paired" else " Of Self-BLEU it is too sure (see Table 13)."),
        SELF_BLEU_NOTE,
        "Columns in the order of the paper's values (its printed header is out of order).",
        *([SMALL_NOTE.replace(" a model", "")] if most.lt(SMALL_GROUP).any() else []),
    )
    return Table("table02", "Baseline (B) and fine-tuned (F) models", data, display.reset_index(), notes, inputs)


def _beside_published(
    data: pd.DataFrame, paper: pd.DataFrame, keys: list[str], values: tuple[str, ...] = ("mean", "sd")
) -> pd.DataFrame:
    """Add `published_<value>` and `difference` (ours - theirs) where the model is one of the paper's."""
    theirs = paper.rename(columns={"model": "display"} | {value: f"published_{value}" for value in values})
    merged = data.merge(theirs, on=["display", *keys], how="left")
    merged["difference"] = merged[values[0]] - merged[f"published_{values[0]}"]
    return merged


def alignment_by(scores: pd.DataFrame, column: str, names: Names, inputs: Inputs, estimand: str = "prompts") -> Table:
    """Table 8 (`column` Party) or 11 (Topic): mean Party Align of the fine-tuned models, human speeches beside them."""
    number_of = {"Party": 8, "Topic": 11}[column]
    rows = scores[scores["type"].isin(["fine-tuned", HUMAN])]
    party_align = [m for m in METRICS if m.name == "Party Align"]
    data = cell_means(rows, [column], party_align, estimand).drop(columns="metric").sort_values([column], kind="stable")
    paper = published(number_of).rename(columns={"party": "Party", "topic": "Topic"})
    paper = paper.melt(id_vars=column, value_vars=list(PAPER_MODELS), var_name="model", value_name="mean")
    data = _beside_published(with_labels(data, names), paper, [column], ("mean",))
    tuned = data[data["type"] == "fine-tuned"]
    wide = tuned.pivot(index=column, columns="display", values="mean").reindex(columns=dict.fromkeys(tuned["display"]))
    human = data[data["type"] == HUMAN].set_index(column)["mean"]
    display = wide.map(number)
    display["Average"], display["Sd"] = wide.mean(axis=1).map(number), wide.std(axis=1, ddof=0).map(number)
    display[names[HUMAN]] = human.reindex(display.index).map(number)
    counts = tuned.groupby(column)["n"]
    display["n a model"] = counts.apply(span).reindex(display.index)
    display = display.rename_axis(columns=None)
    display.index += degrees(counts.min().lt(SMALL_GROUP).reindex(display.index))
    display = display.rename_axis(column).reset_index()
    kind = "political party" if column == "Party" else "topic"
    notes = (
        "Mean cosine to the expected party's centroid (Eq. 3). Average and Sd (ddof 0) over the models, human speeches apart.",
        estimand_note(data, "a cell"),
        SMALL_NOTE,
        MISSING_NOTE,
    )
    return Table(f"table{number_of:02d}", f"Party Align of the fine-tuned models by {kind}", data, display, notes, inputs)


def difficulty_table(frame: pd.DataFrame, column: str, inputs: Inputs) -> Table:
    """Table 9 (`column` Party) or 10 (Political Orientation) from `difficulty`, the paper's columns beside it in the CSV."""
    number_of, what = {"Party": (9, "Parties"), "Political Orientation": (10, "Political orientations")}[column]
    paper = published(number_of).rename(columns=lambda c: f"published_{c}")
    data = frame.merge(paper, left_on="group", right_on=paper.columns[1], how="left").drop(columns=paper.columns[1])
    display = printed(
        frame,
        *(("Rank", "rank", ","), (column, frame["group"] + degrees(frame["n"] < SMALL_GROUP), ""), ("Difficulty", "difficulty", 3)),
        *(("Consistency", "consistency", 1), ("n", "n", ""), ("Human speeches", "human", 3), ("n human", "n_human", "")),
    )
    unknown = () if column == "Party" else ("Unknown is no position: it has no rank here, where the paper ranks it last.",)
    absent = left_out(frame)
    notes = (
        DEFINITION + (f" Left out, as not every group has them or they have no spread: {absent}." if absent else ""),
        *(ESTIMANDS[name] for name in frame["estimand"].unique()),
        "The paper's own columns are in the CSV; they follow another, unpublished definition, so no difference is taken.",
        *unknown,
        SMALL_NOTE.replace(" a model", ""),
        MISSING_NOTE,
    )
    return Table(f"table{number_of:02d}", f"{what} ranked by difficulty, fine-tuned models", data, display, notes, inputs)


def table12(table: pd.DataFrame, names: Names, how: str, inputs: Inputs) -> Table:
    """Cross-context stability of all models and types, and the value that chance alone would give."""
    paper = published(12).assign(type="fine-tuned")
    data = _beside_published(with_labels(table, names), paper, ["type"], ("overall", *CONTEXTS))
    display = printed(
        data,
        ("Model", set_labels(data, names), ""),
        *((column.capitalize(), column, 1) for column in (*CONTEXTS, "overall")),
        ("Overall by chance", "overall_by_chance", 1),
        ("Uneven beyond chance", data["uneven"].astype(str) + " of " + data["tests"].astype(str), ""),
        ("n", "n", ""),
    )
    notes = (
        "Eq. 4, mean over all metrics; Overall is the plain mean of the three contexts. Every speech of a group counts the same.",
        f"Metrics normalised to [0, 1] ({'min-max over the run' if how == 'run' else 'fixed ranges'}), lower-is-better flipped.",
        "Speeches without a party, topic or orientation (Unknown) do not count in that context.",
        "By chance: the same speeches dealt to groups of the same sizes at random. Uneven beyond chance: metrics and contexts that "
        "are less even than 95 % of such deals; one in twenty would be by chance alone.",
    )
    return Table("table12", "Cross-context stability", data, display, notes, inputs)


def table13(comparison: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """All comparisons, significant or not, gains and declines alike."""
    paper = published(13).rename(columns={"model": "display", "t": "published_t", "cohens_d": "published_d"})
    data = with_labels(comparison, names).merge(
        paper[["display", "metric", "published_t", "published_d"]], on=["display", "metric"], how="left"
    )
    data["difference_t"], data["difference_d"] = data["t"] - data["published_t"], data["cohens_d"] - data["published_d"]
    data["verdict_pooled"], data["verdict_paired"] = verdict(comparison, "pooled"), verdict(comparison, "paired")
    interval = "[" + data["ci_low"].map(number) + ", " + data["ci_high"].map(number) + "]"
    permuted = data["permutation_p"].fillna(data["paired_p"]).map(p_value) + data["permutation_p"].notna().map(
        {True: "‡", False: ""}
    )
    display = printed(
        data,
        ("Model", "display", ""), ("Metric", "metric", ""),
        ("n B / F", data["n_baseline"].astype(str) + " / " + data["n_fine_tuned"].astype(str), ""),
        ("Human mean", "mean_human", 3), ("Mean diff.", "difference", 3), ("t", "t", 2), ("p", "p", "p"), ("d", "cohens_d", 2),
        ("Cliff's δ", "cliffs_delta", 2), ("Pairs", "n_pairs", ""),
        ("95 % CI of paired diff.", interval.where(data["ci_low"].notna(), DASH), ""), ("Paired t", "paired_t", 2),
        ("Paired p", permuted, ""), ("Wilcoxon p", "wilcoxon_p", "p"), ("Paired d", "paired_d", 2), ("Direction", "direction", ""),
        ("Pooled", data["verdict_pooled"].replace("", "n.s."), ""), ("Paired", data["verdict_paired"].replace("", "n.s."), ""),
    )  # fmt: skip
    notes = (
        "Fine-tuned minus baseline. t, p, d: pooled two-sample t-test (the paper's; of weighted means with unequal variances). "
        "Paired: within prompts, which all models share.",
        f"{estimand_note(data, 'the pairs')} Paired t, its interval and Wilcoxon's p count what is drawn as independent "
        f"({span(data['n_clusters'])} of them); where every pair has the same difference they are undefined, "
        "and the direction says which.",
        f"Pooled, Paired: gain or decline that is significant at 0.05 after Bonferroni; {comparison['family'].iloc[0]} "
        f"(paired: {comparison['paired_p_family'].iloc[0]}). Holm and Benjamini-Hochberg are in the CSV.",
        "‡ Self-BLEU compares the speeches of a set with each other, so its values are not independent and a t-test's p is too "
        "small: this p and interval are from permuting the types, of prompts as drawn (self_bleu_permutation.csv); Wilcoxon's p is "
        "left out.",
        SELF_BLEU_NOTE,
    )
    return Table("table13", "Fine-tuned against baseline: all tests", data, display, notes, inputs)


BITS = {"fp32": 32, "bf16": 16, "nf4": 4.5}  # nf4: 4 bits and the blocks' scales
DATASET_COLUMNS = ["speech_id", "speaker_id", "date", "Party", "Political Orientation", "Topic", "cap_topic", "topic_method"]


def read_dataset(folder: Path) -> pd.DataFrame:
    """Training and test speeches of 02 without their text, with `split`; of an imported run the prompts, a row each."""
    if (imported := imported_scores(folder)) is not None:
        prompts = imported.drop_duplicates("prompt_id", ignore_index=True)
        made = {"speech_id": prompts["prompt_id"], "topic_method": PUBLISHED, "cap_topic": None, "n_words": 0, "split": "test"}
        return prompts.assign(**made)[[*DATASET_COLUMNS, "n_words", "House", "split"]]
    parts = [pd.DataFrame(read_jsonl(folder / "02_dataset" / f"{split}.jsonl")).assign(split=split) for split in ("train", "test")]
    return pd.concat(parts, ignore_index=True)[[*DATASET_COLUMNS, "n_words", "House", "split"]]


def dataset_files(folder: Path) -> tuple[Path, ...]:
    """The files behind `read_dataset`."""
    if (folder / PUBLISHED).is_dir():
        return (folder / PUBLISHED / "scores.parquet",)
    return folder / "02_dataset/train.jsonl", folder / "02_dataset/test.jsonl"


def table01() -> Table:
    """The metrics by category, as the code scores them."""
    better = {True: "higher", False: "lower"}
    columns = ["metric", "column", "category", "kind", "better", "lowest", "highest", "section"]
    rows = [(m.name, m.column, m.category, m.kind, better[m.higher_is_better], *m.range, m.section) for m in METRICS]
    data = pd.DataFrame(rows, columns=columns)
    lists = data.groupby(["category", "kind"], sort=False)["metric"].agg(", ".join).unstack("kind")
    display = lists.reset_index()[["category", "computed", "judge"]].set_axis(
        ["Assessment Category", "Computational Metrics", "LLM-Judge Metrics"], axis=1
    )
    display.insert(0, "Evaluation Level", "Speech")
    display = display.rename_axis(columns=None)
    display.loc[len(display)] = ["Consistency", "Cross-Context Stability", "all of the above", "all of the above"]
    return Table("table01", "Evaluation framework", data, display)


def table03(dataset: pd.DataFrame, inputs: Inputs) -> Table:
    """Speeches, speakers and years of each affiliation of this run, the paper's counts beside them."""
    data = overview.party_table(dataset)
    paper = published(3)[["party", "speeches", "speakers"]]
    data = data.merge(paper.rename(columns=lambda c: c if c == "party" else f"published_{c}"), on="party", how="left")
    for what in ("speeches", "speakers"):
        data[f"difference_{what}"] = data[what] - data[f"published_{what}"]
    same = data["first_year"].astype(str) + "–" + data["last_year"].astype(str)
    display = printed(
        data,
        *(("Party", "party", ""), ("Orientation", "orientation", ""), ("Speeches", "speeches", ","), ("Speakers", "speakers", ",")),
        ("Active period", same.where(data["first_year"].notna(), DASH), ""),
        *(("Speeches, paper", "published_speeches", ","), ("Speakers, paper", "published_speakers", ",")),
    )
    people = dataset["speaker_id"].nunique()
    notes = (
        f"{len(dataset):,} speeches (training and test) by {people:,} people.",
        f"The rows' speakers add up to {data['speakers'].sum():,}: a person who changes affiliation counts in each.",
    )
    return Table("table03", "Parties in the dataset of this run", data, display, notes, inputs)


def table04(dataset: pd.DataFrame, inputs: Inputs) -> Table:
    """CAP category to EuroVoc domain with the number of speeches of this run; all 22 categories."""
    counts = overview.topic_table(dataset)
    paper = published(4).rename(columns={"eurovoc_domain": "published_domain", "method": "published_method"})
    data = paper.drop(columns="rationale").merge(counts, left_on="cap_category", right_on="cap_topic", how="outer")
    data["cap_category"] = data["cap_category"].fillna(data.pop("cap_topic"))
    data["speeches"] = data["speeches"].fillna(0).astype(int)
    order = {name: position for position, name in enumerate(paper["cap_category"])}
    data["order"] = data["cap_category"].map(order).fillna(len(order))
    data = data.sort_values(["order", "speeches", "Topic"], ascending=[True, False, True], ignore_index=True)
    data = data[["cap_category", "Topic", "topic_method", "speeches", "published_domain", "published_method"]]
    display = data.fillna(DASH).astype(str)
    display.columns = ["CAP category", "EuroVoc domain", "Method", "Speeches", "Paper's domain", "Paper's method"]
    notes = ("The text of section 9.2 says 16 direct and 6 automated categories; its table, repeated here, has 13 and 9.",)
    return Table("table04", "From CAP categories to EuroVoc domains", data, display, notes, inputs)


def table05(specs: Sequence, inputs: Inputs) -> Table:
    """The models of this run (`ModelSpec`s). Wall-clock speed is in the manifests, as it differs from run to run."""
    data = pd.DataFrame(
        [
            {"model": spec.display, "checkpoint": spec.id}
            | {"revision": spec.revision or (f"sha256 {spec.sha256[:12]}" if spec.sha256 else ""), "family": spec.family}
            | {"precision": spec.precision, "parameters": spec.n_parameters}
            | {"weights_mib": round(spec.n_parameters * BITS[spec.precision] / 8 / 2**20)}
            | {"memory_reduction_percent": round(100 * (1 - BITS[spec.precision] / 16)), "licence": spec.licence}
            for spec in specs
        ]
    )
    paper = published(5)[["model", "memory_reduction", "inference_speed"]].add_prefix("published_")
    data = data.merge(paper, left_on="model", right_on="published_model", how="left").drop(columns="published_model")
    display = data.fillna(DASH).astype(str)
    display["parameters"] = data["parameters"].map(lambda n: f"{n / 1e6:,.0f} M")
    display["revision"] = display["revision"].replace("", "not pinned yet")
    headings = {"weights_mib": "Weights, MiB", "memory_reduction_percent": "Memory reduction, %"}
    headings |= {"published_memory_reduction": "Reduction, paper", "published_inference_speed": "Speed, paper"}
    display = display.drop(columns="family").rename(columns=lambda name: headings.get(name, name.capitalize()))
    notes = (
        "Weights are computed from the number of parameters and the precision; the reduction is against 16 bits.",
        "Speed and memory as measured differ from run to run and so stand apart, in 08_statistics/measured.json.",
    )
    return Table("table05", "Models of this run", data, display, notes, inputs)


def measured(folder: Path, models: Sequence[str]) -> pd.DataFrame:
    """What generating took: model, words, seconds, words_a_second over all attempts of all types, and peak_memory_mib of the
    job, where a job had that model alone; NaN where nothing was measured.
    """
    rows = []
    for model in models:
        spoken = [r for f in sorted((folder / "04_generate" / model).glob("*/shard-*.jsonl")) for r in read_jsonl(f)]
        words, seconds = sum(r["n_words"] or 0 for r in spoken), sum(r["seconds"] or 0 for r in spoken)
        jobs = [json.loads(f.read_text(encoding="utf-8")) for f in (folder / "manifests").glob(f"04_generate-{model}-*.json")]
        peaks = [job["peak_memory_mib"] for job in jobs if job["status"] == "done"]
        speed = words / seconds if seconds else float("nan")
        rows.append({"model": model, "words": words, "seconds": seconds, "words_a_second": speed})
        rows[-1]["peak_memory_mib"] = max(peaks, default=float("nan"))
    return pd.DataFrame(rows)


def training_tables(folder: Path) -> tuple[Table, Table]:
    """Table 6 (LoRA) and 7 (training): the resolved parameters of 03 beside the paper profile's; dashes where 03 has not run."""
    paper = read_profile("03_finetune", "paper")
    manifests = sorted((folder / "manifests").glob("03_finetune*.json"))
    ours = json.loads(manifests[0].read_text(encoding="utf-8"))["parameters"] if manifests else dict.fromkeys(paper)
    keys = [key for key in paper if key not in (*FOR_ALL, "data_root", "offline")]
    lora = [key for key in keys if key.startswith("lora")]
    rest = [key for key in keys if key not in lora]
    source = (project_root() / "params/paper/03_finetune.yaml",)
    return (
        _settings("table06", "LoRA settings of this run and of the paper", lora, ours, paper, source),
        _settings("table07", "Training settings of this run and of the paper", rest, ours, paper, source),
    )


def _settings(name: str, title: str, keys: list[str], ours: Mapping, paper: Mapping, inputs: Inputs) -> Table:
    rows = [(key, _text(ours.get(key)), _text(paper[key]), ours.get(key) == paper[key]) for key in keys]
    data = pd.DataFrame(rows, columns=["parameter", "value", "paper_profile", "same"])
    display = printed(data, ("Parameter", "parameter", ""), ("This run", "value", ""), ("Paper profile", "paper_profile", ""))
    notes = (
        "From the resolved parameters of notebook 03; sections in params/paper/.",
        f"Computed with n_threads = {_text(ours.get('n_threads'))}: with another number the last digits of values can differ.",
    )
    return Table(name, title, data, display, notes, inputs)


def _text(value: object) -> str:
    if value is None:
        return DASH
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def anova_display(anova: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """F, df, p, eta squared and Kruskal-Wallis of each quantity, the control marked."""
    display = printed(
        anova,
        ("Quantity", anova["quantity"] + anova["control"].map({True: " (control)", False: ""}), ""),
        *(("By", "by", ""), ("Speeches of", set_labels(anova, {**names, "all": "All models"}), "")),
        ("n", anova["n"].astype(str) + degrees(anova["n"] < SMALL_GROUP), ""),
        *(("Groups", "groups", ""), ("F", "F", 2)),
        ("df", anova["df_between"].astype(str) + ", " + anova["df_within"].astype(str), ""),
        *(("p", "p", "p"), ("η²", "eta2", 3), ("H", "H", 2), ("p of H", "kruskal_p", "p")),
    )
    notes = (
        "Control: the same speeches scored as another party's or orientation's (06). Where it separates groups as well, the metric "
        "does not see the party. Groups of one speech are left out.",
        "Every speech counts the same. Speeches of all models to one prompt share it, so their p is too small; read the rows of "
        "single models.",
        SMALL_NOTE.replace(" a model", ""),
    )
    return Table("anova", "Variance between parties and orientations", anova, display, notes, inputs)


def mixed_display(mixed: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """Effects of fine-tuning from the analysis of all models together, metric by metric."""
    terms = {f"fine-tuned: {model}": f"Fine-tuning, {name}" for model, name in names.items()}
    terms |= {"fine-tuned": "Fine-tuning, all models", "type x model": "Differs between models"}
    interval = "[" + mixed["ci_low"].map(number) + ", " + mixed["ci_high"].map(number) + "]"
    df = mixed["df"].map(lambda v: number(v, 0)) + ", " + mixed["df_error"].map(lambda v: number(v, 1))
    noted = mixed["note"].fillna("").ne("")
    display = printed(
        mixed,
        *(("Metric", "metric", ""), ("Term", mixed["term"].map(terms), ""), ("Estimate", "estimate", 3)),
        *(("95 % CI", interval.where(mixed["estimate"].notna(), DASH), ""), ("t or F", "statistic", 2)),
        *(("df", df.where(mixed["p"].notna(), DASH), ""), ("p", "p", "p"), ("Sd prompts", "sd_prompt", 3)),
        *(("Sd rest", "sd_residual", 3), ("n", "n", ""), ("Prompts", "n_prompts", "")),
        ("Converged", mixed["converged"].map({True: "yes", False: "no"}) + noted.map({True: "¹", False: ""}), ""),
    )
    edges = "; ".join(f"{m}: {n}" for m, n in mixed.loc[noted, ["metric", "note"]].drop_duplicates().to_numpy())
    notes = (
        "score ~ type * model, speeches to a prompt exchangeable (generalised estimating equations); fine-tuned minus baseline. "
        "Errors are robust to models of unequal spread, by prompt, corrected for few prompts (Mancl and DeRouen); p uncorrected.",
        f"t with the second df; F: do the effects differ between models? {estimand_note(mixed, 'the prompts')}",
        "Self-BLEU's values depend on one another within a group, so its row here is too sure; Table 13 has its permutation p.",
        *([f"¹ {edges}."] if edges else []),
    )
    return Table("mixed_model", "Fine-tuning in one model of all speeches", mixed, display, notes, inputs)


def selection_display(selection: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """Who drops out: the mix of prompts before and after, single contexts printed, crossed ones in the CSV."""
    label = set_labels(selection, {**names, ALL: "All models"}).mask(selection["model"] == ALL, "All models")
    shown = selection[selection["by"] != CROSSED]
    display = printed(
        shown,
        *(("Speeches of", label[shown.index], ""), ("By", "by", ""), ("Group", "group", ""), ("Prompts", "prompts", "")),
        *(("Kept", "kept", ""), ("Share before", "share_before", 3), ("Share after", "share_after", 3)),
        ("Change", shown["change"].map(lambda v: DASH if pd.isna(v) else f"{v:+.3f}"), ""),
    )
    tests = selection.assign(who=label).drop_duplicates(["who", "by"])
    words = [f"{r.who}, {r.by}: χ² = {number(r.chi2, 2)}, df {r.df}, p = {p_value(r.p)}" for r in tests.itertuples()]
    notes = (
        "Is every prompt as likely to stay, whatever its group? "
        + "; ".join(words)
        + " (p by permutation; a dash: nothing to test). Members' own speeches do not decide; where the models keep different "
        "prompts, each has its rows.",
        "In CSV files: all three contexts crossed; worst-case bounds of each comparison (08_statistics/selection_bounds.csv).",
    )
    return Table("selection", "Prompts before and after the rule for missing values", selection, display, notes, inputs)


def coverage_display(coverage: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """Share of speeches without a value and of speeches read only in part, by set and metric."""
    data = with_labels(coverage, names)
    share = data["missing_share"].map("{:.1%}".format)
    cut = data["truncated_share"].map(lambda v: "" if pd.isna(v) else f" / {v:.1%}")
    label = set_labels(data, names)
    wide = pd.DataFrame({"Speeches of": label, "metric": data["metric"], "cell": share + cut})
    display = wide.pivot(index="Speeches of", columns="metric", values="cell")
    display = display.reindex(index=dict.fromkeys(label), columns=data["metric"].unique()).rename_axis(columns=None)
    display.insert(0, "n", data.groupby(label, sort=False)["n"].first().astype(str).reindex(display.index))
    notes = (
        "Share of a set's speeches that have no value (for J_…: the judge gave no readable rating); after the stroke, where the "
        "metric's model has a limit, the share of which it read only a part. Self-BLEU is taken among the compared speeches; "
        "others have none.",
    )
    return Table("coverage", "Speeches without a value, or read in part", data, display.reset_index(), notes, inputs)


def memorisation_display(summary: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """Overlap with training speeches by model and type, people as the yardstick."""
    data = with_labels(summary, names)
    display = printed(
        data,
        *(("Speeches of", set_labels(data, names), ""), ("n", data["n"].astype(str) + degrees(data["n"] < SMALL_GROUP), "")),
        *(("Longest run, median", "median_longest", 1), ("Longest run, most", "max_longest", "")),
        *((f"Shared {n}-grams", f"mean_overlap_{n}", 3) for n in ORDERS),
        *(("Above people's 95 %", "above_human_95", 3), ("Cliff's δ", "cliffs_delta", 2), ("p", "p", "p")),
    )
    notes = (
        "Words in a row that a training speech has too, and the mean share of a speech's n-grams that occur in training. Held-out "
        "human speeches share set phrases as well: a model memorises as far as it goes beyond them.",
        "Above people's 95 %: share of speeches with a longer run than 95 % of the human ones. δ and Mann-Whitney p: against people.",
        "Of the compared speeches; the longest run of more speeches is longer for that alone.",
        SMALL_NOTE.replace(" a model", ""),
    )
    return Table("memorisation", "Overlap with training speeches", data, display, notes, inputs)


def audit_display(findings: pd.DataFrame) -> Table:
    """Every claim of `paper.audit`."""
    display = findings.rename(columns=str.capitalize)
    notes = ("Yes: the published value lies in the interval that the rounding of the printed inputs allows.",)
    return Table("paper_audit", "What the paper's own tables say about its claims", findings, display, notes, (PAPER_TABLES,))


def paper_differences(tables: list[Table], inputs: Inputs) -> Table:
    """Every cell of `tables` that the paper publishes too: ours, theirs, the difference. Empty for models that it has not."""
    parts = [part for table in tables if table.name in _PUBLISHED for part in _differences(table, *_PUBLISHED[table.name])]
    columns = ["table", "model", "type", "item", "run", "published", "difference"]
    data = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    data = data[data["published"].notna()].reset_index(drop=True)
    display = (
        data.assign(**{c: data[c].map(number) for c in ("run", "published", "difference")})
        .astype(str)
        .rename(columns=str.capitalize)
    )
    notes = ("Only models of the paper. Tables 9 and 10 follow another definition and are left out.",)
    return Table("paper_differences", "This run beside the published numbers", data, display, notes, inputs)


# of each table: the column that names a row's item, and its values with their published ones
_PUBLISHED: dict[str, tuple[str, tuple[str, ...]]] = {
    "table02": ("metric", ("mean", "sd")),
    "table08": ("Party", ("mean",)),
    "table11": ("Topic", ("mean",)),
    "table12": ("", ("affiliation", "topic", "orientation", "overall")),
    "table13": ("metric", ("t", "d")),
}


def _differences(table: Table, item: str, values: tuple[str, ...]) -> list[pd.DataFrame]:
    data = table.data.rename(columns={"cohens_d": "d"})
    sets = {"table": table.name, "model": data["display"], "type": data.get("type", "fine-tuned")}
    return [
        pd.DataFrame(sets | {"item": (data[item] + ", " if item else "") + value, "run": data[value]}).assign(
            published=data[f"published_{value}"], difference=data[value] - data[f"published_{value}"]
        )
        for value in values
    ]


def model_names(models: Sequence[str]) -> Names:
    """Printed names of the run's models, and of the human row."""
    return {model: read_model_spec(model).display for model in models} | {HUMAN: "Human speeches"}


def setup_tables(folder: Path, models: Sequence[str]) -> list[Table]:
    """Tables 1 and 3 to 7 of the run in `folder`: metrics, corpus, topics, models and training settings."""
    dataset, files = read_dataset(folder), dataset_files(folder)
    models_table = table05([read_model_spec(model) for model in models], ())
    return [table01(), table03(dataset, files), table04(dataset, files), models_table, *training_tables(folder)]


def write_frames(folder: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    """Each frame under its file name: `.csv`, `.parquet`, or `.json` as a list of rows."""
    writers = {
        ".csv": write_csv,
        ".parquet": write_parquet,
        ".json": lambda path, frame: write_json(path, frame.to_dict("records")),
    }
    for name, frame in frames.items():
        writers[Path(name).suffix](folder / name, frame)
