"""Figures 1 to 8 and s1 to s4, and how they are written: PDF, PNG, their values as CSV, and a JSON with title, alt text and inputs.

Drawn by notebook 09. Colours are Okabe and Ito's, told apart by colour-blind readers, and each model has its own marker too, so that
a grey print can be read. Same data give the same bytes: no dates and no version in the files.

    source = folder / "08_statistics/category_changes.csv"
    show(fig3(read_csv(source), names, note, (source,)), folder)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pandas as pd

from parliabench_utils.corpus import overview
from parliabench_utils.corpus.overview import BAR, GREY, INK, PALE, SMALL
from parliabench_utils.metrics.table import METRIC_BY_NAME, METRICS
from parliabench_utils.results.scores import ESTIMANDS, HUMAN, cell_means
from parliabench_utils.results.statistics import CATEGORIES, CONTEXTS, TUNED, left_out, verdict
from parliabench_utils.results.tables import name_inputs, number, set_labels, span, with_labels
from parliabench_utils.run.artefacts import whole_file, write_csv, write_json
from parliabench_utils.run.stages import STAGES

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MODEL_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7A5195")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HUMAN_COLOUR = "#444444"
HEAT = "cividis"
DIVERGING = "RdBu_r"  # red above 0, blue below; both ends dark in a grey print, where the cell's number tells them apart
WIDTH, COLUMN = 6.9, 3.35  # inches: the text, one column of a two-column paper; a figure is drawn for the one or the other
# The parties' own colours, used where a bar is a party and nowhere else; the four groups that are no parties are grey.
PARTY_COLOURS = {
    "Conservative": "#0087DC", "Labour": "#E4003B", "Liberal Democrats": "#FAA61A", "Scottish National Party": "#FDF38E",
    "Democratic Unionist Party": "#D46A4C", "Plaid Cymru": "#005B54", "Green Party": "#6AB023", "Crossbench": "#9A9A9A",
    "Independent": "#C4C4C4", "Non-Affiliated": "#DDDDDD", "Bishops": "#6E6E6E",
}  # fmt: skip
DPI = 200
RC = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "text.parse_math": False,  # a name with two dollar signs is a name, not a formula
    "font.size": 7.5, "axes.titlesize": 8.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.edgecolor": GREY,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.labelcolor": INK,
    "text.color": INK, "xtick.color": INK, "ytick.color": INK, "grid.color": PALE, "grid.linewidth": 0.6, "legend.frameon": False,
    "pdf.fonttype": 42, "svg.hashsalt": "parliabench",
}  # fmt: skip


@dataclass(frozen=True)
class Drawing:
    """A figure with its plotted values and what goes into its JSON."""

    name: str  # fig4
    title: str
    alt: str
    figure: "Figure"
    data: pd.DataFrame
    inputs: tuple[Path, ...] = ()
    caption: str = ""


def new_figure(height: float, width: float = WIDTH) -> "Figure":
    """An empty figure in our style, sizes in inches; without pyplot, so nothing global is changed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@mpl.rc_context(RC)
def write_figure(drawing: Drawing, folder: Path) -> Path:
    """Write `figures/NAME.pdf`, `.png`, `.csv` and `.json` under the run's `folder`; returns the PNG's path."""
    target = folder / "figures" / drawing.name
    quiet = {"pdf": {"CreationDate": None, "Creator": None, "Producer": None}, "png": {"Software": None}}
    for kind, metadata in quiet.items():
        with whole_file(target.with_suffix(f".{kind}")) as temporary:
            drawing.figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata, facecolor="white")
    write_csv(target.with_suffix(".csv"), drawing.data)
    named = {"figure": drawing.name, "title": drawing.title, "caption": drawing.caption, "alt": drawing.alt}
    write_json(target.with_suffix(".json"), named | {"inputs": name_inputs(drawing.inputs, folder)})
    return target.with_suffix(".png")


def show(drawing: Drawing, folder: Path) -> "Image":
    """Write the figure and show it in a notebook, at a width that goes with the one it is printed in."""
    from IPython.display import Image

    return Image(write_figure(drawing, folder), width=int(130 * drawing.figure.get_figwidth()))


def model_style(models: Sequence[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each model, in the run's order; human speeches dark grey."""
    own = [model for model in models if model != HUMAN]
    looks = [{"color": MODEL_COLOURS[i % len(MODEL_COLOURS)], "marker": MARKERS[i % len(MARKERS)]} for i in range(len(own))]
    return dict(zip(own, looks, strict=True)) | {HUMAN: {"color": HUMAN_COLOUR, "marker": "*"}}


def footnote(figure: "Figure", text: str) -> None:
    """A small grey line under the panels; long text is wrapped to the figure's width."""
    lines = fill(text, int(19 * figure.get_figure(root=True).get_figwidth()))
    figure.supxlabel(lines, fontsize=SMALL + 0.2, color=GREY, x=0.01, ha="left")


def heatmap(
    axes: "Axes",
    values: pd.DataFrame,
    decimals: int = 3,
    limits: tuple[float, float] | None = None,
    upright: int = 4,
    palette: str = HEAT,
) -> None:
    """Cells with their numbers, dark text on light cells; an undefined cell stays white with a dash.

    HEAT grows lighter from end to end, so that a grey print can be read. With DIVERGING give `limits` as far below 0 as above, and
    nothing is white. Where there are `upright` columns or more, their names stand upright.
    """
    import seaborn

    low, high = limits or ((values.min().min(), values.max().max()) if values.notna().any(axis=None) else (0.0, 1.0))
    stands = len(values.columns) >= upright
    names = [fill(str(c), 13 if stands else 9, break_long_words=False) for c in values.columns]
    shown = {"annot": values.map(lambda v: f"{v:z.{decimals}f}"), "fmt": "", "annot_kws": {"fontsize": SMALL + 0.3}}
    seaborn.heatmap(
        values.astype(float), ax=axes, cmap=palette, vmin=low, vmax=high if high > low else low + 1e-9, cbar=False,
        linewidths=1.5, linecolor="white", xticklabels=names, yticklabels=list(values.index), **shown,
    )  # fmt: skip
    cells = axes.collections[0].get_facecolors()[values.notna().to_numpy().ravel()]
    for text, cell in zip(axes.texts, cells, strict=True):  # seaborn's own limit, 0.408, leaves white words on rather light cells
        text.set_color(INK if seaborn.utils.relative_luminance(cell) > 0.3 else "white")
    for row, column in np.argwhere(values.isna().to_numpy()):
        axes.text(column + 0.5, row + 0.5, "—", ha="center", va="center", fontsize=SMALL + 0.3)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", rotation=90 if stands else 0)
    axes.tick_params(axis="y", rotation=0)
    axes.set(xlabel="", ylabel="")


def with_n(labels: Sequence[str], counts: Mapping[str, int], width: int = 26) -> list[str]:
    """Group names with their number of speeches in brackets, on two lines where they are long."""
    return [fill(f"{label}\N{NO-BREAK SPACE}({counts[label]:,})", width) for label in labels]


def pipeline_edges() -> pd.DataFrame:
    """Which stage reads what which other writes: columns source, target, and `direct` (no longer way round)."""
    above: dict[str, set[str]] = {}
    rows = []
    for name, stage in STAGES.items():
        longer = set().union(*(above[source] for source in stage.after))
        rows += [(source, name, source not in longer) for source in stage.after]
        above[name] = longer | set(stage.after)
    return pd.DataFrame(sorted(rows), columns=["source", "target", "direct"])


@mpl.rc_context(RC)
def fig1(inputs: tuple[Path, ...]) -> Drawing:
    """The stages as boxes, placed by the longest way that leads to them; arrows are the files that they read."""
    edges = pipeline_edges()
    direct = list(edges.loc[edges["direct"], ["source", "target"]].itertuples(index=False, name=None))
    places = _places(direct)
    figure = new_figure(2.3)
    axes = figure.add_subplot()
    for source, target in direct:
        _arrow(axes, places[source], places[target])
    for stage, (x, y) in places.items():
        _box(axes, x, y, stage)
    columns = max(x for x, _ in places.values())
    axes.set(xlim=(-0.5, columns + 0.5), ylim=(-1.55, 1.55))
    axes.axis("off")
    footnote(figure, "Drawn from the workflow's own graph; arrows that a longer way already implies are left out.")
    alt = "Nine boxes joined by arrows: " + "; ".join(f"{STAGES[a].title} feeds {STAGES[b].title}" for a, b in direct) + "."
    return Drawing("fig1", "The pipeline as run", alt, figure, edges, inputs)


def _places(edges: Sequence[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """x = longest way from the start, y spreads the stages of one column."""
    depth = dict.fromkeys(STAGES, 0)
    for _ in STAGES:
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    places = {}
    for column in sorted(set(depth.values())):
        members = [stage for stage in STAGES if depth[stage] == column]
        for position, stage in enumerate(members):
            places[stage] = (float(column), 1.1 * ((len(members) - 1) / 2 - position))
    return places


def _box(axes: "Axes", x: float, y: float, stage: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    patch = FancyBboxPatch(
        (x - 0.38, y - 0.36), 0.76, 0.72, boxstyle="round,pad=0,rounding_size=0.08", fc="#EEF3F8", ec=BAR, lw=0.9
    )
    axes.add_patch(patch)
    axes.text(x, y + 0.16, stage[:2], ha="center", va="center", fontsize=6.5, color=GREY)
    title = STAGES[stage].title.replace(" and ", "\nand ").replace(" alignment", "\nalignment").replace(" metrics", "\nmetrics")
    axes.text(x, y - 0.08, title, ha="center", va="center", fontsize=7.2, color=INK, linespacing=1.05)


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    rad = 0.0 if abs(start[1] - end[1]) > 0.01 or end[0] - start[0] <= 1 else -0.45
    style = {"arrowstyle": "-|>", "color": GREY, "lw": 0.8, "shrinkA": 0, "shrinkB": 0, "connectionstyle": f"arc3,rad={rad}"}
    if rad:
        axes.annotate("", (end[0] - 0.2, end[1] + 0.37), (start[0] + 0.2, start[1] + 0.37), arrowprops=style)
    else:
        axes.annotate("", (end[0] - 0.39, end[1]), (start[0] + 0.39, start[1]), arrowprops=style)


@mpl.rc_context(RC)
def fig2(dataset: pd.DataFrame, inputs: tuple[Path, ...]) -> Drawing:
    """Four panels: words a speech, speeches a year and House, topics, orientations from left to right."""
    figure = new_figure(overview.dataset_height(dataset))
    data = overview.draw_dataset(dataset, figure)
    footnote(figure, f"{len(dataset):,} speeches of this run's dataset (training and test).")
    common = ", ".join(overview.topic_counts(dataset).index[::-1][:3])
    alt = (
        f"Four panels on {len(dataset):,} speeches: lengths with a median of {dataset['n_words'].median():.0f} words; speeches a "
        f"year by house; topics, most often {common}; orientations from left to right."
    )
    return Drawing("fig2", "The dataset of this run", alt, figure, data, inputs)


UNITS = {"prompt_id": "prompts", "context_id": "contexts", "sitting_id": "sittings", "speaker_id": "speakers"}


def _estimand_of(data: pd.DataFrame) -> str:
    return ESTIMANDS[data["estimand"].iloc[0]] if "estimand" in data and len(data) else ""


@mpl.rc_context(RC)
def fig3(changes: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Change by category, one mark a model with its 95 % interval."""
    models = list(dict.fromkeys(changes["model"]))
    style = model_style(models)
    figure = new_figure(1.6 + 0.16 * len(models) * len(CATEGORIES), COLUMN)
    axes = figure.add_subplot()
    for position, model in enumerate(models):
        part = changes[changes["model"] == model].set_index("category").reindex(CATEGORIES)
        y = np.arange(len(CATEGORIES)) + (position - (len(models) - 1) / 2) * min(0.22, 0.7 / len(models))
        spread = [part["change"] - part["low"], part["high"] - part["change"]]
        axes.errorbar(
            part["change"],
            y,
            xerr=spread,
            ls="none",
            ms=3.8,
            lw=1,
            capsize=2,
            label=names[model],
            fmt=style[model]["marker"],
            color=style[model]["color"],
        )
    axes.axvline(0, color=INK, lw=0.8)
    axes.set_yticks(range(len(CATEGORIES)), [category.replace(" ", "\n") for category in CATEGORIES])
    axes.set(xlabel="mean change of the normalised metrics", ylim=(len(CATEGORIES) - 0.5, -0.5))
    axes.grid(axis="x")
    figure.legend(loc="outside upper left", ncols=2, fontsize=SMALL + 0.5)
    n = int(changes["n"].max()) if len(changes) else 0
    by = UNITS[changes["cluster"].iloc[0]] if len(changes) else "prompts"
    footnote(
        figure,
        f"Right of 0: fine-tuned is better. Paired by prompt, n = {n:,} prompts; 95 % intervals, {by} being independent. "
        f"{_estimand_of(changes)} {note}",
    )
    text = "; ".join(f"{names[r.model]}, {r.category}: {r.change:+.3f}" for r in changes.itertuples())
    return Drawing("fig3", "Change by category with fine-tuning", f"Points with intervals. {text}.", figure, changes, inputs, note)


@mpl.rc_context(RC)
def _alignment(name: str, data: pd.DataFrame, column: str, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Groups in rows, models and human speeches in columns."""
    wide, counts = _wide(data, column)
    figure = new_figure(1.5 + 0.25 * len(wide), COLUMN)
    axes = figure.add_subplot()
    heatmap(axes, wide.set_axis(with_n(wide.index, counts), axis=0))
    axes.xaxis.tick_top()
    said = "Mean cosine to the expected party's centroid (Eq. 3); in brackets: speeches a model."
    footnote(figure, f"{said} {_estimand_of(data)} {note}")
    means = wide.mean(axis=1).dropna()
    ends = f"highest on average {means.idxmax()}, lowest {means.idxmin()}" if len(means) else "no group has a value"
    alt = f"Heat map of {len(wide)} groups by {len(wide.columns)} columns; {ends}."
    return Drawing(name, f"Party Align by {column.lower()}", alt, figure, data, inputs, note)


def fig4(table08: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Party Align by party, from the data of Table 8."""
    return _alignment("fig4", table08, "Party", note, inputs)


def fig6(table11: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Party Align by topic, from the data of Table 11."""
    return _alignment("fig6", table11, "Topic", note, inputs)


def _wide(data: pd.DataFrame, column: str) -> tuple[pd.DataFrame, dict[str, int]]:
    labels = dict.fromkeys(data.loc[data["type"] != HUMAN, "display"]) | dict.fromkeys(data["display"])
    wide = data.pivot(index=column, columns="display", values="mean").reindex(columns=list(labels))
    counts = data[data["type"] != HUMAN].groupby(column)["n"].max()
    return wide, counts.reindex(wide.index).fillna(0).astype(int).to_dict()


@mpl.rc_context(RC)
def _difficulty(name: str, title: str, table: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Difficulty of each group (our definition), hardest on top; beside it difficulty and consistency; parties in their colours."""
    figure = new_figure(1.15 + 0.25 * len(table), COLUMN)
    axes = figure.add_subplot()
    colours = [PARTY_COLOURS.get(group, BAR) for group in table["group"]]
    axes.barh(range(len(table)), table["difficulty"], color=colours, edgecolor=GREY, linewidth=0.4, height=0.66)
    look = {"textcoords": "offset points", "va": "center", "fontsize": SMALL + 0.3}
    for position, row in enumerate(table.itertuples()):
        if not np.isnan(row.difficulty):
            said = f"{row.difficulty:.3f} · {number(row.consistency, 1)}"
            place = (row.difficulty, position)
            axes.annotate(said, place, xytext=(3, 0), bbox={"fc": "white", "ec": "none", "pad": 0.6}, **look)
    axes.set_yticks(range(len(table)), with_n(table["group"], dict(zip(table["group"], table["n"], strict=True))))
    widest = 1.5 * table["difficulty"].fillna(0).max() or 1
    axes.set(xlim=(0, widest), ylim=(len(table) - 0.5, -0.5), xlabel="difficulty (0 easy, 1 hard)")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    absent = left_out(table)
    footnote(
        figure,
        f"Beside each bar: difficulty · consistency. Difficulty: 1 minus the mean of the metrics that all groups have"
        f"{f' ({absent} left out)' if absent else ''}; our own definition, the paper gives none. In brackets: speeches. "
        f"{_estimand_of(table)} {note}",
    )
    text = ", ".join(f"{r.group} {r.difficulty:.3f}" for r in table.itertuples())
    return Drawing(name, title, f"Bars, hardest first: {text}.", figure, table, inputs, note)


def fig5(table09: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """How hard each party is to speak for, from the data of Table 9."""
    return _difficulty("fig5", "Parties by difficulty", table09, note, inputs)


def fig7(topics: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """The same for topics."""
    return _difficulty("fig7", "Topics by difficulty", topics, note, inputs)


@mpl.rc_context(RC)
def fig8(scores: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...], estimand: str = "prompts") -> Drawing:
    """Party Align and PSA of fine-tuned and human speeches by orientation, left to right."""
    column = "Political Orientation"
    rows = scores[scores["type"].isin([TUNED, HUMAN])]
    wanted = [m for m in METRICS if m.name in ("Party Align", "PSA")]
    data = cell_means(rows, [column], wanted, estimand)
    data = with_labels(data, names)
    order = [o for o in overview.ORIENTATIONS if o in set(data[column])]
    figure = new_figure(1.6 + 0.26 * len(order))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric in zip(panels, ("Party Align", "PSA"), strict=True):
        wide, _ = _wide(data[data["metric"] == metric], column)
        _, counts = _wide(data[data["metric"] == "Party Align"], column)
        heatmap(axes, wide.reindex(order).set_axis(with_n(order, counts), axis=0))
        axes.xaxis.tick_top()
        axes.set_title(metric, pad=10)
    footnote(figure, f"In brackets: speeches a model. PSA is not defined for an unknown orientation. {ESTIMANDS[estimand]} {note}")
    alt = "Two heat maps, Party Align and PSA, with orientations from left to right in rows and models in columns."
    return Drawing("fig8", "Scores by political orientation", alt, figure, data, inputs, note)


@mpl.rc_context(RC)
def s1(table: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Stability of each set in three contexts and overall; a bar marks what chance alone gives overall."""
    columns = [*CONTEXTS, "overall"]
    labels = set_labels(table, names)
    figure = new_figure(1.5 + 0.24 * len(table), COLUMN)
    axes = figure.add_subplot()
    for position, (column, marker) in enumerate(zip(columns, "os^D", strict=True)):
        axes.plot(
            table[column],
            np.arange(len(table)) + 0.18 * (position - 1.5),
            ls="none",
            marker=marker,
            ms=3.8,
            color=MODEL_COLOURS[position],
            label=column,
        )
    axes.plot(
        table["overall_by_chance"], range(len(table)), ls="none", marker="|", ms=11, mew=1.3, color=INK, label="overall by chance"
    )
    axes.set_yticks(range(len(table)), labels)
    axes.set(xlabel="stability (Eq. 4)", ylim=(len(table) - 0.5, -0.5))
    axes.grid(axis="both")
    figure.legend(loc="outside upper left", ncols=3, fontsize=SMALL + 0.5, columnspacing=1, handletextpad=0.2)
    footnote(
        figure,
        f"100: the same in every context. n = {int(table['n'].max()):,} speeches a set. By chance: groups of the same "
        f"sizes dealt at random. {note}",
    )
    text = ", ".join(f"{label} {value:.1f}" for label, value in zip(labels, table["overall"], strict=True))
    return Drawing("s1", "Cross-context stability", f"Points; overall stability: {text}.", figure, table, inputs, note)


@mpl.rc_context(RC)
def s2(comparison: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Cohen's d by metric, turned so that right is better; filled where the paired test is significant after Bonferroni."""
    sign = comparison["metric"].map(lambda name: 1 if METRIC_BY_NAME[name].higher_is_better else -1)
    data = comparison[["model", "metric", "cohens_d", "paired_d", "n_pairs"]].assign(
        gain_d=comparison["cohens_d"] * sign, significant=verdict(comparison, "paired") != ""
    )
    models = list(dict.fromkeys(data["model"]))
    style, order = model_style(models), [m.name for m in METRICS]
    figure = new_figure(1.5 + (0.2 + 0.025 * len(models)) * len(order), COLUMN)
    axes = figure.add_subplot()
    for position, model in enumerate(models):
        part = data[data["model"] == model].set_index("metric").reindex(order)
        y = np.arange(len(order)) + (position - (len(models) - 1) / 2) * min(0.2, 0.8 / len(models))
        fill = [style[model]["color"] if known else "white" for known in part["significant"]]
        axes.scatter(
            part["gain_d"],
            y,
            s=15,
            marker=style[model]["marker"],
            c=fill,
            edgecolors=style[model]["color"],
            linewidths=0.9,
            zorder=3,
        )
        axes.plot([], [], ls="none", ms=4, label=names[model], **style[model])
    axes.axvline(0, color=INK, lw=0.8)
    axes.set_yticks(range(len(order)), order)
    axes.set(xlabel="Cohen's d, direction-aware", ylim=(len(order) - 0.4, -0.6))
    axes.grid(axis="both")
    figure.legend(loc="outside upper left", ncols=2, fontsize=SMALL + 0.5)
    pairs = int(data["n_pairs"].max()) if len(data) else 0
    of = ESTIMANDS[comparison["estimand"].iloc[0]] if len(comparison) else ""
    footnote(
        figure,
        f"Right of 0: fine-tuned is better. d with the pooled sd, as in the paper. Filled: significant, paired test, Bonferroni. "
        f"Up to {pairs:,} pairs a cell. {of} {note}",
    )
    alt = f"Points by metric for {len(models)} models; {int(data['significant'].sum())} of {len(data)} effects are significant."
    return Drawing("s2", "Effect sizes of fine-tuning", alt, figure, data, inputs, note)


@mpl.rc_context(RC)
def s3(correlations: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Spearman's rho, within sets, of the six judge dimensions (rows) with all metrics (columns); colours part at 0."""
    judge = [m.name for m in METRICS if m.kind == "judge"]
    order = [m.name for m in METRICS]
    wide = correlations.pivot(index="first", columns="second", values="rho").reindex(index=judge, columns=order)
    counts, sets = (correlations.loc[correlations["first"].isin(judge), column] for column in ("n", "sets"))
    figure = new_figure(2.5)
    axes = figure.add_subplot()
    heatmap(axes, wide, decimals=2, limits=(-1, 1), palette=DIVERGING)
    footnote(
        figure,
        f"Spearman's rho within each generated set, plain mean over {span(sets)} sets, n = {span(counts)} speeches; red: above "
        f"0, blue: below, a dash: no spread. Raw values: of PPL and Self-BLEU less is better. {note}",
    )
    strongest = (
        correlations[(correlations["first"] != correlations["second"]) & correlations["first"].isin(judge)]["rho"].abs().max()
    )
    alt = (
        f"Heat map of rank correlations of six judge dimensions with {len(order)} metrics; the largest in size is {strongest:.2f}."
    )
    return Drawing("s3", "The judge and the other metrics", alt, figure, correlations, inputs, note)


@mpl.rc_context(RC)
def s4(preference: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """How often a human speech scores better than a generated one to the same prompt; 0.5 is guessing."""
    figure = new_figure(1.1 + 0.22 * len(preference), COLUMN)
    axes = figure.add_subplot()
    for position, row in enumerate(preference.itertuples()):
        judged = METRIC_BY_NAME[row.metric].kind == "judge"
        colour, marker = (MODEL_COLOURS[1], "s") if judged else (BAR, "o")
        axes.plot([row.low, row.high], [position, position], color=colour, lw=1.2)
        axes.plot(row.preference, position, marker, color=colour, ms=4)
    axes.axvline(0.5, color=INK, lw=0.8, ls="--")
    axes.set_yticks(range(len(preference)), [f"{r.metric} ({r.n:,})" for r in preference.itertuples()])
    axes.set(xlim=(-0.03, 1.03), ylim=(len(preference) - 0.5, -0.5), xlabel=f"P({HUMAN} speech scores better)")
    axes.grid(axis="both")
    axes.text(0.5, -0.55, "guessing ", ha="right", va="bottom", fontsize=SMALL + 0.2, color=GREY)
    footnote(
        figure,
        "Against a generated speech to the same prompt; in brackets: pairs. Circles: computed metrics, squares: the judge; "
        f"95 % intervals over prompts; ties count half. {note}",
    )
    text = ", ".join(f"{r.metric} {r.preference:.2f}" for r in preference.itertuples())
    return Drawing("s4", "Does the metric know human speech?", f"Points with intervals: {text}.", figure, preference, inputs, note)
