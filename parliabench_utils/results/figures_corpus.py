"""Figure 1, the pipeline as it runs, and Figure 2, the corpus (sections 1 and 3). Drawn by notebook 09."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pandas as pd

from parliabench_utils.corpus.organisations import ORIENTATION_SCALE, UNKNOWN_ORIENTATION
from parliabench_utils.results.figure_style import (
    BAR,
    GREY,
    INK,
    PALE,
    PALE_BAR,
    RC,
    SMALL,
    Drawing,
    footnote,
    new_figure,
)
from parliabench_utils.run.stages import STAGES
from parliabench_utils.run.workflow import jobs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORIENTATIONS = (*ORIENTATION_SCALE, UNKNOWN_ORIENTATION)  # left to right


def pipeline_edges(profile: str) -> pd.DataFrame:
    """Which stage waits for which, from the workflow's jobs: columns source, target, and `direct` (no longer way round)."""
    found = {(other.stage, job.stage) for job in jobs(profile) for other in job.after if other.stage != job.stage}
    edges = pd.DataFrame(sorted(found), columns=["source", "target"])
    edges["direct"] = [not _way_round(found, a, b) for a, b in zip(edges["source"], edges["target"], strict=True)]
    return edges


def _way_round(edges: set[tuple[str, str]], source: str, target: str) -> bool:
    """Is there a path of two or more steps from source to target?"""
    waiting, seen = [b for a, b in edges if a == source and b != target], set()
    while waiting:
        stage = waiting.pop()
        if (stage, target) in edges:
            return True
        if stage not in seen:
            seen.add(stage)
            waiting += [b for a, b in edges if a == stage]
    return False


def fig1(profile: str, inputs: tuple[Path, ...]) -> Drawing:
    """The stages as boxes, placed by the longest way that leads to them; arrows are the files that they read."""
    edges = pipeline_edges(profile)
    direct = list(edges.loc[edges["direct"], ["source", "target"]].itertuples(index=False, name=None))
    places = _places(direct)
    with mpl.rc_context(RC):
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
    alt = (
        "Nine boxes joined by arrows: "
        + "; ".join(f"{STAGES[a].title} feeds {STAGES[b].title}" for a, b in direct)
        + "."
    )
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
    title = (
        STAGES[stage]
        .title.replace(" and ", "\nand ")
        .replace(" alignment", "\nalignment")
        .replace(" metrics", "\nmetrics")
    )
    axes.text(x, y - 0.08, title, ha="center", va="center", fontsize=7.2, color=INK, linespacing=1.05)


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    rad = 0.0 if abs(start[1] - end[1]) > 0.01 or end[0] - start[0] <= 1 else -0.45
    style = {
        "arrowstyle": "-|>",
        "color": GREY,
        "lw": 0.8,
        "shrinkA": 0,
        "shrinkB": 0,
        "connectionstyle": f"arc3,rad={rad}",
    }
    if rad:
        axes.annotate("", (end[0] - 0.2, end[1] + 0.37), (start[0] + 0.2, start[1] + 0.37), arrowprops=style)
    else:
        axes.annotate("", (end[0] - 0.39, end[1]), (start[0] + 0.39, start[1]), arrowprops=style)


def fig2(dataset: pd.DataFrame, inputs: tuple[Path, ...]) -> Drawing:
    """Four panels: words a speech, topics, orientations from left to right, speeches a year and house."""
    topics = dataset["Topic"].value_counts().sort_index().sort_values(kind="stable")
    with mpl.rc_context(RC):
        bottom = max(1.4, 0.17 * len(topics) + 0.7)
        figure = new_figure(2.2 + bottom)
        upper, lower = figure.subfigures(2, 1, height_ratios=[2.1, bottom])
        (length, year), (topic, orientation) = upper.subplots(1, 2), lower.subplots(1, 2)
        panels = [
            _lengths(length, dataset["n_words"]),
            _years(year, dataset),
            _bars(topic, topics, "c", "Topics"),
            _bars(orientation, _by_orientation(dataset), "d", "Orientation"),
        ]
        footnote(lower, f"{len(dataset):,} speeches of this run's dataset (training and test).")
    data = pd.concat(panels, ignore_index=True)
    common = ", ".join(topics.index[::-1][:3])
    alt = (
        f"Four panels on {len(dataset):,} speeches: lengths with a median of {dataset['n_words'].median():.0f} words; speeches a "
        f"year by house; topics, "
        f"most often {common}; orientations from left to right."
    )
    return Drawing("fig2", "The dataset of this run", alt, figure, data, inputs)


def _by_orientation(dataset: pd.DataFrame) -> pd.Series:
    counts = dataset["Political Orientation"].value_counts()
    return counts.reindex([o for o in ORIENTATIONS if o in counts.index][::-1])


def _lengths(axes: "Axes", words: pd.Series) -> pd.DataFrame:
    counts, edges = np.histogram(words, bins=min(40, max(8, int(len(words) ** 0.5))))
    axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=BAR, edgecolor="white", linewidth=0.4)
    axes.axvline(words.median(), color=INK, lw=1, ls="--")
    axes.text(words.median(), counts.max() * 1.02, f" median {words.median():.0f}", va="bottom", fontsize=7)
    axes.set(title="(a) Speech length", xlabel="words", ylabel="speeches", ylim=(0, counts.max() * 1.15))
    axes.grid(axis="y")
    return pd.DataFrame({"panel": "a", "group": edges[:-1].round(1).astype(str), "house": "", "speeches": counts})


def _bars(axes: "Axes", counts: pd.Series, letter: str, title: str) -> pd.DataFrame:
    axes.barh(range(len(counts)), counts.to_numpy(), color=BAR, height=0.72)
    axes.set_yticks(range(len(counts)), counts.index)
    for position, value in enumerate(counts):
        axes.text(value, position, f" {value:,}", va="center", fontsize=SMALL + 0.3, color=GREY)
    axes.set(
        title=f"({letter}) {title}", xlabel="speeches", xlim=(0, counts.max() * 1.15), ylim=(-0.6, len(counts) - 0.4)
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    return pd.DataFrame({"panel": letter, "group": counts.index, "house": "", "speeches": counts.to_numpy()})


def _years(axes: "Axes", dataset: pd.DataFrame) -> pd.DataFrame:
    dated = dataset[dataset["date"].notna()]  # an imported run knows no dates
    counts = pd.crosstab(dated["date"].astype(str).str[:4], dated["House"])
    width = 0.8 / max(len(counts.columns), 1)
    for position, (house, hatch) in enumerate(zip(counts.columns, ("", "////"), strict=False)):
        places = np.arange(len(counts)) + (position - (len(counts.columns) - 1) / 2) * width
        colour = (BAR, PALE_BAR)[position]
        axes.bar(
            places, counts[house], width=width, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.4, label=house
        )
    axes.set_xticks(range(len(counts)), counts.index, rotation=45 if len(counts) > 5 else 0)
    axes.set(title="(b) Speeches a year", ylabel="speeches", ylim=(0, counts.to_numpy().max(initial=1) * 1.3))
    if len(counts):
        axes.legend(loc="upper left", ncols=2, fontsize=6.5, borderpad=0, handlelength=1.2, columnspacing=1)
    axes.grid(axis="y", color=PALE)
    long = counts.rename_axis("group").reset_index().melt(id_vars="group", var_name="house", value_name="speeches")
    return long.assign(panel="b")[["panel", "group", "house", "speeches"]]
