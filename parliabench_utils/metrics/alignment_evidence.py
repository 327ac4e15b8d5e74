"""What notebook 06's test of Party Align says, read from its own table: an overview, sentences, a picture.

overview(validation)                     # a row a condition and split, printed values with intervals
print("\n".join(findings(validation)))   # the same in words; nothing in them is written beforehand
"""

from typing import Any

import pandas as pd

ALL = "all speeches"
_SHOWN = {
    "margin": ("margin", "mean over the best other party"),
    "balanced accuracy": ("nearest party", "balanced accuracy"),
    "chance": ("nearest party", "chance"),
    "AUC": ("AUC", "own against others, mean of parties"),
    "eta²": ("ANOVA", "eta squared, true centroids"),
    "eta² of deranged": ("ANOVA", "eta squared, deranged centroids: mean"),
}


def overview(validation: pd.DataFrame) -> pd.DataFrame:
    """A row a condition and split: the main measures as printed, `0.32 [0.28, 0.36]`, and the number of speeches.

    `chance` is that split's own: the mean and the 95 % range of the accuracy with members dealt to parties by lot.
    """
    keys = ["condition", "split"]
    tests = validation[validation["split"] != "none"]
    parts = {"speeches": tests.groupby(keys, sort=False)["n"].max().astype(int)}
    for name, (check, statistic) in _SHOWN.items():
        rows = tests[(tests["check"] == check) & (tests["statistic"] == statistic)].set_index(keys)
        parts[name] = rows.apply(_printed, axis=1) if len(rows) else pd.Series(dtype=object)
    table = pd.DataFrame(parts).reindex(parts["speeches"].index).fillna("—").reset_index()
    order = {name: i for i, name in enumerate(table["condition"].unique())}
    return table.sort_values("condition", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def _printed(row: pd.Series) -> str:
    if pd.isna(row["value"]):
        return "—"
    return f"{row['value']:.2f}" + ("" if pd.isna(row["low"]) else f" [{row['low']:.2f}, {row['high']:.2f}]")


def findings(validation: pd.DataFrame) -> list[str]:
    """Sentences about this run's values, whatever they are."""
    table = validation.set_index(["condition", "split", "statistic"])[["value", "low", "high", "n"]].sort_index()
    if table.loc[(ALL, "by speaker", "balanced accuracy"), "n"] == 0:
        return ["There are no two parties here whose speeches can be compared: nothing was tested."]
    return [_of_f(table.loc[(ALL, "by speaker")]), _of_accuracy(table.loc[ALL]), *_of_conditions(validation)]


def _of_f(at: pd.DataFrame) -> str:
    wrong, lot = at.loc["F, deranged centroids: middle, least, most"], at.loc["F, labels shuffled over members"]
    share = at.loc["deranged centroids with F at least the true one, share", "value"]
    gap = at.loc["eta squared, true less deranged"]
    even = at.loc["eta squared, true less deranged, labels shuffled over members"]
    verdict = "more" if gap["low"] > even["value"] else "no more"
    return (
        f"The paper's test, members kept apart: F = {at.loc['F, true centroids', 'value']:.1f} with each party's own "
        f"centroid, {wrong['low']:.1f} to {wrong['high']:.1f} with another party's; {share:.0%} of the wrong assignments "
        f"reach the true F. Invented parties of members drawn by lot give {lot['low']:.1f} to {lot['high']:.1f}. Own "
        f"centroids separate parties {verdict} than wrong ones do, beyond what lot does (eta² differs by {_printed(gap)}, by "
        f"lot {_printed(even)})."
    )


def _of_accuracy(at: pd.DataFrame) -> str:
    splits = [split for split in ("random", "by debate", "by speaker") if (split, "chance") in at.index]
    found = [f"{at.loc[(split, 'balanced accuracy'), 'value']:.2f} {split}" for split in splits]
    lot = [f"{at.loc[(split, 'chance'), 'value']:.2f}" for split in splits]
    office = _printed(at.loc[("by speaker", "AUC, holders of office against others of their party")])
    return (
        f"Balanced accuracy of the nearest centroid: {', '.join(found)}. With invented parties of the same members, chance "
        f"is {', '.join(lot)} in these splits; so much is knowing people, and how centroids lie, not parties. "
        f"The cosine to their party tells holders of office from its other members with AUC {office}."
    )


def _of_conditions(validation: pd.DataFrame) -> list[str]:
    """Which conditions Party Align passes with members kept apart: is the whole interval of its accuracy above the chance of
    that condition?"""
    rows = validation[(validation["split"] == "by speaker") & (validation["check"] == "nearest party")]
    wide = rows.pivot(index="condition", columns="statistic", values="value").reindex(rows["condition"].unique())
    low = rows[rows["statistic"] == "balanced accuracy"].set_index("condition")["low"]
    above, tested = low > wide["chance"], wide["balanced accuracy"].notna()
    groups = {
        "Above chance with members kept apart": tested & above,
        "Not clearly above chance": tested & ~above,
        "Nothing to compare, one party speaks": ~tested,
    }
    said = []
    for title, members in groups.items():
        values = [
            f"{name}" + (f" {row['balanced accuracy']:.2f} (chance {row['chance']:.2f})" if tested[name] else "")
            for name, row in wide[members].iterrows()
        ]
        said += [f"{title}: {', '.join(values)}."] if values else []
    return said


def evidence_figure(validation: pd.DataFrame) -> Any:
    """Balanced accuracy by condition, a marker a split with its interval; behind it, that split's chance and its range."""
    from matplotlib import pyplot as plt

    rows = validation[(validation["check"] == "nearest party") & (validation["split"] != "none")]
    names = list(dict.fromkeys(rows["condition"]))
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.42 * len(names)), layout="constrained")
    for shift, (split, part) in zip((-0.24, 0, 0.24), rows.groupby("split", sort=False), strict=False):
        for statistic, style in (("chance", CHANCE), ("balanced accuracy", {"fmt": "o", "ms": 4, "lw": 1.2})):
            shown = part[part["statistic"] == statistic].dropna(subset="value")
            places = [names.index(name) + shift for name in shown["condition"]]
            spread = [(shown["value"] - shown["low"]).clip(lower=0), (shown["high"] - shown["value"]).clip(lower=0)]
            ax.errorbar(shown["value"], places, xerr=spread, label=split if statistic != "chance" else None, **style)
    ax.errorbar([], [], xerr=[], label="chance, its range", **CHANCE)
    ax.set(
        yticks=range(len(names)), yticklabels=names, xlabel="balanced accuracy of the nearest centroid", xlim=(0, None)
    )
    ax.invert_yaxis()
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return fig


CHANCE = {"fmt": "|", "ms": 8, "lw": 5, "color": "0.4", "ecolor": "0.85", "zorder": 0}
