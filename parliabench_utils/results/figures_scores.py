"""Figures 3 to 8: what fine-tuning changes, and scores and difficulty by party, topic and orientation. Drawn by notebook 09."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.cells import HUMAN, cell_means, normalise
from parliabench_utils.results.compare import BASELINE, TUNED, bootstrap_means
from parliabench_utils.results.difficulty import left_out
from parliabench_utils.results.figure_style import (
    BAR,
    COLUMN,
    GREY,
    INK,
    PARTY_COLOURS,
    RC,
    SMALL,
    Drawing,
    footnote,
    heatmap,
    model_style,
    new_figure,
    with_n,
)
from parliabench_utils.results.figures_corpus import ORIENTATIONS

CATEGORIES = tuple(dict.fromkeys(metric.category for metric in METRICS))


def category_changes(scores: pd.DataFrame, how: str, draws: int, seed: int) -> pd.DataFrame:
    """Fine-tuned minus baseline by category, paired by prompt: model, category, change, low, high (95 %), n (prompts).

    The change is the mean over the category's metrics that both sides have, each normalised to [0, 1] with 1 the good end.
    """
    values = normalise(scores, how)
    groups = {c: [m.name for m in METRICS if m.category == c] for c in CATEGORIES}
    frame = pd.concat([scores[["model", "type", "prompt_id"]], values], axis=1)
    rows = []
    for model in dict.fromkeys(frame.loc[frame["type"] == TUNED, "model"]):
        sides = [frame[(frame["model"] == model) & (frame["type"] == kind)] for kind in (BASELINE, TUNED)]
        before, after = (side.groupby("prompt_id")[list(values)].mean() for side in sides)
        apart = after - before  # by metric first: a metric that one side lacks is no change
        gaps = pd.DataFrame({c: apart[names].mean(axis=1) for c, names in groups.items()}).dropna(how="all")
        low, high = bootstrap_means(gaps.to_numpy(), gaps.index.to_numpy(), draws, seed)
        for position, category in enumerate(CATEGORIES):
            change = gaps[category]
            rows.append(
                {
                    "model": model,
                    "category": category,
                    "change": change.mean(),
                    "low": low[position],
                    "high": high[position],
                    "n": int(change.count()),
                }
            )
    return pd.DataFrame(rows)


def fig3(changes: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Change by category, one mark a model with its 95 % interval."""
    models = list(dict.fromkeys(changes["model"]))
    style = model_style(models)
    with mpl.rc_context(RC):
        figure = new_figure(1.5 + 0.16 * len(models) * len(CATEGORIES), COLUMN)
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
        axes.set(
            xlabel="mean change of the normalised metrics",
            ylim=(len(CATEGORIES) - 0.5, -0.5),
        )
        axes.grid(axis="x")
        figure.legend(loc="outside upper left", ncols=2, fontsize=SMALL + 0.5)
        n = int(changes["n"].max()) if len(changes) else 0
        footnote(
            figure,
            f"Right of 0: fine-tuned is better. Paired by prompt, n = {n:,} prompts; 95 % bootstrap intervals over prompts. {note}",
        )
    text = "; ".join(f"{names[r.model]}, {r.category}: {r.change:+.3f}" for r in changes.itertuples())
    return Drawing(
        "fig3", "Change by category with fine-tuning", f"Points with intervals. {text}.", figure, changes, inputs, note
    )


def alignment_heatmap(
    name: str, title: str, data: pd.DataFrame, column: str, note: str, inputs: tuple[Path, ...]
) -> Drawing:
    """Figure 4 (Party) or 6 (Topic), from the data of Table 8 or 11: groups in rows, models and human speeches in columns."""
    wide, counts = _wide(data, column)
    with mpl.rc_context(RC):
        figure = new_figure(1.4 + 0.25 * len(wide), COLUMN)
        axes = figure.add_subplot()
        heatmap(axes, wide.set_axis(with_n(wide.index, counts), axis=0))
        axes.xaxis.tick_top()
        footnote(figure, f"Mean cosine to the expected party's centroid (Eq. 3); in brackets: speeches a model. {note}")
    means = wide.mean(axis=1).dropna()
    ends = f"highest on average {means.idxmax()}, lowest {means.idxmin()}" if len(means) else "no group has a value"
    alt = f"Heat map of {len(wide)} groups by {len(wide.columns)} columns; {ends}."
    return Drawing(name, title, alt, figure, data, inputs, note)


def _wide(data: pd.DataFrame, column: str) -> tuple[pd.DataFrame, dict[str, int]]:
    labels = dict.fromkeys(data.loc[data["type"] != HUMAN, "display"]) | dict.fromkeys(data["display"])
    wide = data.pivot(index=column, columns="display", values="mean").reindex(columns=list(labels))
    counts = data[data["type"] != HUMAN].groupby(column)["n"].max()
    return wide, counts.reindex(wide.index).fillna(0).astype(int).to_dict()


def difficulty_bars(name: str, title: str, table: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Figure 5 or 7: difficulty of each group (our definition), hardest on top, then in figures difficulty and consistency.

    Parties stand in their own colours, other groups in one.
    """
    absent = left_out(table)
    without = f" ({absent} left out)" if absent else ""
    with mpl.rc_context(RC):
        figure = new_figure(1.0 + 0.25 * len(table), COLUMN)
        axes = figure.add_subplot()
        colours = [PARTY_COLOURS.get(group, BAR) for group in table["group"]]
        axes.barh(range(len(table)), table["difficulty"], color=colours, edgecolor=GREY, linewidth=0.4, height=0.66)
        for position, row in enumerate(table.itertuples()):
            if np.isnan(row.difficulty):
                continue
            text = "—" if np.isnan(row.consistency) else f"{row.consistency:.1f}"
            axes.annotate(
                f"{row.difficulty:.3f} · {text}",
                (row.difficulty, position),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL + 0.3,
                bbox={"fc": "white", "ec": "none", "pad": 0.6},
            )
        axes.set_yticks(range(len(table)), with_n(table["group"], dict(zip(table["group"], table["n"], strict=True))))
        axes.set(
            xlim=(0, 1.5 * table["difficulty"].fillna(0).max() or 1),
            ylim=(len(table) - 0.5, -0.5),
            xlabel="difficulty (0 easy, 1 hard)",
        )
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        footnote(
            figure,
            f"Beside each bar: difficulty · consistency. Difficulty: 1 minus the mean of the metrics that all groups have{without}; "
            f"our own definition, the paper gives none. In brackets: speeches. {note}",
        )
    text = ", ".join(f"{r.group} {r.difficulty:.3f}" for r in table.itertuples())
    return Drawing(name, title, f"Bars, hardest first: {text}.", figure, table, inputs, note)


def fig8(scores: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Party Align and PSA of fine-tuned and human speeches by orientation, left to right."""
    column = "Political Orientation"
    rows = scores[scores["type"].isin([TUNED, HUMAN])]
    wanted = [m for m in METRICS if m.name in ("Party Align", "PSA")]
    data = cell_means(rows, [column], wanted)
    data.insert(1, "display", data["model"].map(names))
    order = [o for o in ORIENTATIONS if o in set(data[column])]
    with mpl.rc_context(RC):
        figure = new_figure(1.5 + 0.26 * len(order))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, metric in zip(panels, ("Party Align", "PSA"), strict=True):
            wide, _ = _wide(data[data["metric"] == metric], column)
            _, counts = _wide(data[data["metric"] == "Party Align"], column)
            heatmap(axes, wide.reindex(order).set_axis(with_n(order, counts), axis=0))
            axes.xaxis.tick_top()
            axes.set_title(metric, pad=10)
        footnote(figure, f"In brackets: speeches a model. PSA is not defined for an unknown orientation. {note}")
    alt = "Two heat maps, Party Align and PSA, with orientations from left to right in rows and models in columns."
    return Drawing("fig8", "Scores by political orientation", alt, figure, data, inputs, note)
