"""Tables 2 and 8 to 13, from the joined scores (section 6 and appendix 13). Notebook 08 writes them."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.cells import HUMAN, SMALL_GROUP, cell_means
from parliabench_utils.results.compare import verdict
from parliabench_utils.results.difficulty import DEFINITION, left_out
from parliabench_utils.results.paper import PAPER_MODELS, published
from parliabench_utils.results.stability import CONTEXTS
from parliabench_utils.results.tabular import DASH, Table, number, p_value, span

Names = Mapping[str, str]  # printed name of each model, and of "human"
MARKS = {"gain": "*", "decline": "†", "": ""}
TYPE_LETTERS = {"baseline": " (B)", "fine-tuned": " (F)", HUMAN: ""}  # other types are spelled out
SMALL_NOTE = f"° fewer than {SMALL_GROUP} speeches a model"
SELF_BLEU_NOTE = (
    "Self-BLEU grows with the number of speeches: it is computed again among the compared ones, as many to the same prompts in every "
    "set (scores read from a publication stay)."
)
MISSING_NOTE = (
    "A group does not appear when every one of its prompts was left out (04_generate/summary/kept_prompts.json)"
)


def set_label(model: str, kind: str, names: Names) -> str:
    """A row's name: "Llama 3.1 8B (F)", "Human speeches"."""
    return names[model] + TYPE_LETTERS.get(kind, f" ({kind})")


def table02(
    cells: pd.DataFrame,
    comparison: pd.DataFrame,
    names: Names,
    *,
    test: str,
    correction: str,
    rule: str,
    inputs: tuple[Path, ...],
) -> Table:
    """Mean ± sd of all metrics; `rule` says which prompts count. Improvements have an asterisk, declines a dagger."""
    marks = comparison.assign(mark=verdict(comparison, test, correction), type="fine-tuned")
    data = cells.merge(marks[["model", "type", "metric", "mark"]], on=["model", "type", "metric"], how="left")
    data["mark"] = data["mark"].fillna("")
    data.insert(1, "display", data["model"].map(names))
    data = _beside_published(data, published(2)[["model", "type", "metric", "mean", "sd"]], ["type", "metric"])
    most = data.groupby(["model", "type"])["n"].transform("max")
    fewer = (" (" + data["n"].astype(str) + ")").where(data["n"] < most, "")
    printed = data["mean"].map(number) + data["mark"].map(MARKS) + " ± " + data["sd"].map(number) + fewer
    small = most.lt(SMALL_GROUP).map({True: "°", False: ""})
    labels = [set_label(m, t, names) + s for m, t, s in zip(data["model"], data["type"], small, strict=True)]
    wide = pd.DataFrame({"Model": labels, "metric": data["metric"], "cell": printed})
    display = wide.pivot(index="Model", columns="metric", values="cell")
    display = display.reindex(index=dict.fromkeys(labels), columns=[m.name for m in METRICS])
    display.columns = [f"{m.name} {'↑' if m.higher_is_better else '↓'}" for m in METRICS]
    display.insert(0, "n", data.groupby(labels, sort=False)["n"].max().astype(str).reindex(display.index))
    family = comparison["family" if test == "pooled" else "paired_p_family"].iloc[0]
    notes = (
        f"Mean ± sd (ddof 1); n is the number of valid values, in brackets where a metric has fewer. {rule}",
        f"* significant improvement, † significant decline: {test} t-test, {correction} at 0.05 over {family}."
        + (" Self-BLEU: permutation of types." if test == "paired" else " Of Self-BLEU it is too sure (see Table 13)."),
        SELF_BLEU_NOTE,
        "Columns in the order of the paper's values (its printed header is out of order).",
        *([SMALL_NOTE.replace(" a model", "")] if small.any() else []),
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


def alignment_by(scores: pd.DataFrame, column: str, names: Names, inputs: tuple[Path, ...]) -> Table:
    """Table 8 (`column` Party) or 11 (Topic): mean Party Align of the fine-tuned models, human speeches beside them."""
    number_of = {"Party": 8, "Topic": 11}[column]
    rows = scores[scores["type"].isin(["fine-tuned", HUMAN])]
    party_align = [m for m in METRICS if m.name == "Party Align"]
    data = cell_means(rows, [column], party_align).drop(columns="metric").sort_values([column], kind="stable")
    data.insert(1, "display", data["model"].map(names))
    data = _beside_published(data, _published_long(number_of), [column], ("mean",))
    tuned = data[data["type"] == "fine-tuned"]
    wide = tuned.pivot(index=column, columns="display", values="mean").reindex(columns=dict.fromkeys(tuned["display"]))
    human = data[data["type"] == HUMAN].set_index(column)["mean"]
    display = wide.map(number)
    display["Average"], display["Sd"] = wide.mean(axis=1).map(number), wide.std(axis=1, ddof=0).map(number)
    display[names[HUMAN]] = human.reindex(display.index).map(number)
    counts = tuned.groupby(column)["n"]
    display["n a model"] = counts.apply(span).reindex(display.index)
    display = display.rename_axis(columns=None)
    display.index = [f"{g}{'°' if counts.min()[g] < SMALL_GROUP else ''}" for g in display.index]
    display = display.rename_axis(column).reset_index()
    kind = "political party" if column == "Party" else "topic"
    notes = (
        "Mean cosine to the expected party's centroid (Eq. 3). Average and Sd (ddof 0) over the models, human speeches apart.",
        SMALL_NOTE,
        MISSING_NOTE,
    )
    return Table(
        f"table{number_of:02d}", f"Party Align of the fine-tuned models by {kind}", data, display, notes, inputs
    )


def _published_long(number_of: int) -> pd.DataFrame:
    paper = published(number_of)
    column = paper.columns[0]
    long = paper.melt(id_vars=column, value_vars=list(PAPER_MODELS), var_name="model", value_name="mean")
    return long.rename(columns={column: column.capitalize()})


def difficulty_table(frame: pd.DataFrame, column: str, inputs: tuple[Path, ...]) -> Table:
    """Table 9 (`column` Party) or 10 (Political Orientation) from `difficulty`, the paper's columns beside it in the CSV."""
    number_of, what = {"Party": (9, "Parties"), "Political Orientation": (10, "Political orientations")}[column]
    paper = published(number_of).rename(columns=lambda c: f"published_{c}")
    data = frame.merge(paper, left_on="group", right_on=paper.columns[1], how="left").drop(columns=paper.columns[1])
    groups = frame["group"] + frame["n"].map(lambda n: "°" if n < SMALL_GROUP else "")
    display = pd.DataFrame(
        {
            "Rank": frame["rank"].map(lambda rank: DASH if pd.isna(rank) else str(rank)),
            column: groups,
            "Difficulty": frame["difficulty"].map(number),
            "Consistency": frame["consistency"].map(lambda v: number(v, 1)),
            "n": frame["n"].astype(str),
            "Human speeches": frame["human"].map(number),
            "n human": frame["n_human"].astype(str),
        }
    )
    unknown = (
        () if column == "Party" else ("Unknown is no position: it has no rank here, where the paper ranks it last.",)
    )
    absent = left_out(frame)
    notes = (
        DEFINITION + (f" Left out, as not every group has them or they have no spread: {absent}." if absent else ""),
        "The paper's own columns are in the CSV; they follow another, unpublished definition, so no difference is taken.",
        *unknown,
        SMALL_NOTE.replace(" a model", ""),
        MISSING_NOTE,
    )
    return Table(
        f"table{number_of:02d}", f"{what} ranked by difficulty, fine-tuned models", data, display, notes, inputs
    )


def table12(table: pd.DataFrame, names: Names, how: str, inputs: tuple[Path, ...]) -> Table:
    """Cross-context stability of all models and types, and the value that chance alone would give."""
    data = table.copy()
    data.insert(1, "display", data["model"].map(names))
    paper = published(12).assign(type="fine-tuned")
    columns = [*CONTEXTS, "overall"]
    data = _beside_published(data, paper, ["type"], ("overall", *CONTEXTS))
    display = pd.DataFrame(
        {"Model": [set_label(m, t, names) for m, t in zip(data["model"], data["type"], strict=True)]}
    )
    for column in columns:
        display[column.capitalize()] = data[column].map(lambda v: number(v, 1))
    display["Overall by chance"] = data["overall_by_chance"].map(lambda v: number(v, 1))
    display["Uneven beyond chance"] = data["uneven"].astype(str) + " of " + data["tests"].astype(str)
    display["n"] = data["n"].astype(str)
    notes = (
        "Eq. 4, mean over all metrics; Overall is the plain mean of the three contexts.",
        f"Metrics normalised to [0, 1] ({'min-max over the run' if how == 'run' else 'fixed ranges'}), lower-is-better flipped.",
        "Speeches without a party, topic or orientation (Unknown) do not count in that context.",
        "By chance: the same speeches dealt to groups of the same sizes at random. Uneven beyond chance: metrics and contexts that "
        "are less even than 95 % of such deals; one in twenty would be by chance alone.",
    )
    return Table("table12", "Cross-context stability", data, display, notes, inputs)


def table13(comparison: pd.DataFrame, names: Names, inputs: tuple[Path, ...]) -> Table:
    """All comparisons, significant or not, gains and declines alike."""
    data = comparison.copy()
    data.insert(1, "display", data["model"].map(names))
    paper = published(13).rename(columns={"cohens_d": "d"})[["model", "metric", "t", "d"]]
    data = data.merge(
        paper.rename(columns={"model": "display", "t": "published_t", "d": "published_d"}),
        on=["display", "metric"],
        how="left",
    )
    data["difference_t"], data["difference_d"] = data["t"] - data["published_t"], data["cohens_d"] - data["published_d"]
    data["verdict_pooled"], data["verdict_paired"] = verdict(comparison, "pooled"), verdict(comparison, "paired")
    interval = "[" + data["ci_low"].map(number) + ", " + data["ci_high"].map(number) + "]"
    display = pd.DataFrame(
        {
            "Model": data["display"],
            "Metric": data["metric"],
            "n B / F": data["n_baseline"].astype(str) + " / " + data["n_fine_tuned"].astype(str),
            "Human mean": data["mean_human"].map(number),
            "Mean diff.": data["difference"].map(number),
            "t": data["t"].map(lambda v: number(v, 2)),
            "p": data["p"].map(p_value),
            "d": data["cohens_d"].map(lambda v: number(v, 2)),
            "Cliff's δ": data["cliffs_delta"].map(lambda v: number(v, 2)),
            "Pairs": data["n_pairs"].astype(str),
            "95 % CI of paired diff.": interval.where(data["ci_low"].notna(), "—"),
            "Paired t": data["paired_t"].map(lambda v: number(v, 2)),
            "Paired p": data["permutation_p"].fillna(data["paired_p"]).map(p_value)
            + data["permutation_p"].notna().map({True: "‡", False: ""}),
            "Wilcoxon p": data["wilcoxon_p"].map(p_value),
            "Paired d": data["paired_d"].map(lambda v: number(v, 2)),
            "Direction": data["direction"],
            "Pooled": data["verdict_pooled"].replace("", "n.s."),
            "Paired": data["verdict_paired"].replace("", "n.s."),
        }
    )
    notes = (
        "Fine-tuned minus baseline. t, p, d: pooled two-sample t-test (the paper's). Paired: within prompts, which all models share.",
        f"Pooled, Paired: gain or decline that is significant at 0.05 after Bonferroni; {comparison['family'].iloc[0]} "
        f"(paired: {comparison['paired_p_family'].iloc[0]}). Holm and Benjamini-Hochberg are in the CSV.",
        "‡ Self-BLEU compares the speeches of a set with each other, so its values are not independent and a t-test's p is too "
        "small: this p and interval are from permuting the types (self_bleu_permutation.csv); Wilcoxon's p is left out.",
        SELF_BLEU_NOTE,
    )
    return Table("table13", "Fine-tuned against baseline: all tests", data, display, notes, inputs)
