"""Figures s1 to s4: stability, effect sizes, correlations of the judge, and whether a metric knows human speech. Notebook 09."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRIC_BY_NAME, METRICS
from parliabench_utils.results.cells import HUMAN
from parliabench_utils.results.compare import verdict
from parliabench_utils.results.figure_style import (
    BAR,
    COLUMN,
    DIVERGING,
    GREY,
    INK,
    MODEL_COLOURS,
    RC,
    SMALL,
    Drawing,
    footnote,
    heatmap,
    model_style,
    new_figure,
)
from parliabench_utils.results.stability import CONTEXTS
from parliabench_utils.results.tables_scores import set_label
from parliabench_utils.results.tabular import span


def s1(table: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Stability of each set in three contexts and overall; a bar marks what chance alone gives overall."""
    columns = [*CONTEXTS, "overall"]
    labels = [set_label(m, t, names) for m, t in zip(table["model"], table["type"], strict=True)]
    with mpl.rc_context(RC):
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
            table["overall_by_chance"],
            range(len(table)),
            ls="none",
            marker="|",
            ms=11,
            mew=1.3,
            color=INK,
            label="overall by chance",
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


def s2(comparison: pd.DataFrame, names: Mapping[str, str], note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Cohen's d by metric, turned so that right is better; filled where the paired test is significant after Bonferroni."""
    sign = comparison["metric"].map(lambda name: 1 if METRIC_BY_NAME[name].higher_is_better else -1)
    data = comparison[["model", "metric", "cohens_d", "paired_d", "n_pairs"]].assign(
        gain_d=comparison["cohens_d"] * sign, significant=verdict(comparison, "paired") != ""
    )
    models = list(dict.fromkeys(data["model"]))
    style, order = model_style(models), [m.name for m in METRICS]
    with mpl.rc_context(RC):
        figure = new_figure(1.4 + (0.2 + 0.025 * len(models)) * len(order), COLUMN)
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
        footnote(
            figure,
            f"Right of 0: fine-tuned is better. d with the pooled sd, as in the paper. Filled: significant, paired test, Bonferroni. "
            f"Up to {pairs:,} pairs a cell. {note}",
        )
    alt = f"Points by metric for {len(models)} models; {int(data['significant'].sum())} of {len(data)} effects are significant."
    return Drawing("s2", "Effect sizes of fine-tuning", alt, figure, data, inputs, note)


def s3(correlations: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """Spearman's rho, within sets, of the six judge dimensions (rows) with all metrics (columns); colours part at 0."""
    judge = [m.name for m in METRICS if m.kind == "judge"]
    order = [m.name for m in METRICS]
    wide = correlations.pivot(index="first", columns="second", values="rho").reindex(index=judge, columns=order)
    counts, sets = (correlations.loc[correlations["first"].isin(judge), column] for column in ("n", "sets"))
    with mpl.rc_context(RC):
        figure = new_figure(2.5)
        axes = figure.add_subplot()
        heatmap(axes, wide, decimals=2, limits=(-1, 1), palette=DIVERGING)
        footnote(
            figure,
            f"Spearman's rho within each generated set, plain mean over {span(sets)} sets, n = {span(counts)} speeches; red: above "
            f"0, blue: below, a dash: no spread. Raw values: of PPL and Self-BLEU less is better. {note}",
        )
    strongest = (
        correlations[(correlations["first"] != correlations["second"]) & correlations["first"].isin(judge)]["rho"]
        .abs()
        .max()
    )
    alt = f"Heat map of rank correlations of six judge dimensions with {len(order)} metrics; the largest in size is {strongest:.2f}."
    return Drawing("s3", "The judge and the other metrics", alt, figure, correlations, inputs, note)


def s4(preference: pd.DataFrame, note: str, inputs: tuple[Path, ...]) -> Drawing:
    """How often a human speech scores better than a generated one to the same prompt; 0.5 is guessing."""
    with mpl.rc_context(RC):
        figure = new_figure(1.1 + 0.22 * len(preference), COLUMN)
        axes = figure.add_subplot()
        for position, row in enumerate(preference.itertuples()):
            judged = METRIC_BY_NAME[row.metric].kind == "judge"
            colour, marker = (MODEL_COLOURS[1], "s") if judged else (BAR, "o")
            axes.plot([row.low, row.high], [position, position], color=colour, lw=1.2)
            axes.plot(row.preference, position, marker, color=colour, ms=4)
        axes.axvline(0.5, color=INK, lw=0.8, ls="--")
        axes.set_yticks(range(len(preference)), [f"{r.metric} ({r.n:,})" for r in preference.itertuples()])
        axes.set(
            xlim=(-0.03, 1.03),
            ylim=(len(preference) - 0.5, -0.5),
            xlabel=f"P({HUMAN} speech scores better)",
        )
        axes.grid(axis="both")
        axes.text(0.5, -0.55, "guessing ", ha="right", va="bottom", fontsize=SMALL + 0.2, color=GREY)
        footnote(
            figure,
            "Against a generated speech to the same prompt; in brackets: pairs. Circles: computed metrics, squares: the judge; "
            f"95 % intervals over prompts; ties count half. {note}",
        )
    text = ", ".join(f"{r.metric} {r.preference:.2f}" for r in preference.itertuples())
    return Drawing(
        "s4", "Does the metric know human speech?", f"Points with intervals: {text}.", figure, preference, inputs, note
    )
