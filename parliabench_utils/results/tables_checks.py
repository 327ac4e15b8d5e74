"""Tables beside the paper's thirteen: variance, mixed model, selection, memorisation, audit, differences (notebook 08)."""

from pathlib import Path

import pandas as pd

from parliabench_utils.results.cells import SMALL_GROUP
from parliabench_utils.results.memorisation import ORDERS
from parliabench_utils.results.paper import PAPER_TABLES
from parliabench_utils.results.selection import ALL, CROSSED
from parliabench_utils.results.tables_scores import SMALL_NOTE, Names, set_label
from parliabench_utils.results.tabular import DASH, Table, number, p_value

Inputs = tuple[Path, ...]


def anova_display(anova: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """F, df, p, eta squared and Kruskal-Wallis of each quantity, the control marked."""
    known = {**names, "all": "All models"}
    display = pd.DataFrame(
        {
            "Quantity": anova["quantity"] + anova["control"].map({True: " (control)", False: ""}),
            "By": anova["by"],
            "Speeches of": [set_label(m, t, known) for m, t in zip(anova["model"], anova["type"], strict=True)],
            "n": anova["n"].astype(str) + anova["n"].lt(SMALL_GROUP).map({True: "°", False: ""}),
            "Groups": anova["groups"].astype(str),
            "F": anova["F"].map(lambda v: number(v, 2)),
            "df": anova["df_between"].astype(str) + ", " + anova["df_within"].astype(str),
            "p": anova["p"].map(p_value),
            "η²": anova["eta2"].map(number),
            "H": anova["H"].map(lambda v: number(v, 2)),
            "p of H": anova["kruskal_p"].map(p_value),
        }
    )
    notes = (
        "Control: the same speeches scored as another party's or orientation's (06). Where it separates groups as well, the metric "
        "does not see the party. Groups of one speech are left out.",
        "Speeches of all models to one prompt share it, so their p is too small; read the rows of single models.",
        SMALL_NOTE.replace(" a model", ""),
    )
    return Table("anova", "Variance between parties and orientations", anova, display, notes, inputs)


def mixed_display(mixed: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """Effects of fine-tuning from the mixed model of each metric."""
    printed = {f"fine-tuned: {model}": f"Fine-tuning, {name}" for model, name in names.items()}
    printed |= {"fine-tuned": "Fine-tuning, all models", "type x model": "Differs between models"}
    interval = "[" + mixed["ci_low"].map(number) + ", " + mixed["ci_high"].map(number) + "]"
    display = pd.DataFrame(
        {
            "Metric": mixed["metric"],
            "Term": mixed["term"].map(printed),
            "Estimate": mixed["estimate"].map(number),
            "95 % CI": interval.where(mixed["estimate"].notna(), DASH),
            "z or χ²": mixed["statistic"].map(lambda v: number(v, 2)),
            "df": mixed["df"].map(lambda v: number(v, 0)),
            "p": mixed["p"].map(p_value),
            "Sd prompts": mixed["sd_prompt"].map(number),
            "Sd rest": mixed["sd_residual"].map(number),
            "n": mixed["n"].astype(str),
            "Prompts": mixed["n_prompts"].astype(str),
            "Converged": mixed["converged"].map({True: "yes", False: "no"})
            + mixed["note"].fillna("").ne("").map({True: "¹", False: ""}),
        }
    )
    edges = "; ".join(
        f"{m}: {n}"
        for m, n in mixed.loc[mixed["note"].fillna("") != "", ["metric", "note"]].drop_duplicates().to_numpy()
    )
    notes = (
        "score ~ type * model + (1 | prompt), restricted maximum likelihood; fine-tuned minus baseline; p uncorrected.",
        "Self-BLEU's values depend on one another within a group, so its row here is too sure; Table 13 has its permutation p.",
        *([f"¹ {edges}."] if edges else []),
    )
    return Table("mixed_model", "Fine-tuning in a mixed model of all models", mixed, display, notes, inputs)


def selection_display(selection: pd.DataFrame, names: Names, inputs: Inputs) -> Table:
    """Who drops out: the mix of prompts before and after, single contexts printed, crossed ones in the CSV."""
    known = {**names, ALL: "All models"}
    label = pd.Series([set_label(m, t, known) for m, t in selection[["model", "type"]].to_numpy()], selection.index)
    label = label.mask(selection["model"] == ALL, known[ALL])
    shown = selection[selection["by"] != CROSSED]
    display = pd.DataFrame(
        {
            "Speeches of": label[shown.index],
            "By": shown["by"],
            "Group": shown["group"],
            "Prompts": shown["prompts"].astype(str),
            "Kept": shown["kept"].astype(str),
            "Share before": shown["share_before"].map(number),
            "Share after": shown["share_after"].map(number),
            "Change": shown["change"].map(lambda v: DASH if pd.isna(v) else f"{v:+.3f}"),
        }
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
    data = coverage.copy()
    data.insert(1, "display", data["model"].map(names))
    share = data["missing_share"].map("{:.1%}".format)
    cut = data["truncated_share"].map(lambda v: "" if pd.isna(v) else f" / {v:.1%}")
    label = [set_label(m, t, names) for m, t in zip(data["model"], data["type"], strict=True)]
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
    data = summary.copy()
    data.insert(1, "display", data["model"].map(names))
    small = data["n"].lt(SMALL_GROUP).map({True: "°", False: ""})
    display = pd.DataFrame(
        {
            "Speeches of": [set_label(m, t, names) for m, t in zip(data["model"], data["type"], strict=True)],
            "n": data["n"].astype(str) + small,
            "Longest run, median": data["median_longest"].map(lambda v: number(v, 1)),
            "Longest run, most": data["max_longest"].astype(str),
        }
        | {f"Shared {n}-grams": data[f"mean_overlap_{n}"].map(number) for n in ORDERS}
        | {
            "Above people's 95 %": data["above_human_95"].map(number),
            "Cliff's δ": data["cliffs_delta"].map(lambda v: number(v, 2)),
            "p": data["p"].map(p_value),
        }
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
    return Table(
        "paper_audit", "What the paper's own tables say about its claims", findings, display, notes, (PAPER_TABLES,)
    )


def paper_differences(tables: list[Table], inputs: Inputs) -> Table:
    """Every cell of `tables` that the paper publishes too: ours, theirs, the difference. Empty for models that it has not."""
    parts = [
        part for table in tables if table.name in _PUBLISHED for part in _differences(table, *_PUBLISHED[table.name])
    ]
    columns = ["table", "model", "type", "item", "run", "published", "difference"]
    data = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    data = data[data["published"].notna()].reset_index(drop=True)
    printed = {c: data[c].map(number) for c in ("run", "published", "difference")}
    display = data.assign(**printed).astype(str).rename(columns=str.capitalize)
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
    return [
        pd.DataFrame(
            {
                "table": table.name,
                "model": data["display"],
                "type": data.get("type", "fine-tuned"),
                "item": (data[item] + ", " if item else "") + value,
                "run": data[value],
                "published": data[f"published_{value}"],
                "difference": data[value] - data[f"published_{value}"],
            }
        )
        for value in values
    ]
