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
    """A row a condition and split: the main measures as printed, `0.32 [0.28, 0.36]`, and the number of speeches."""
    keys = ["condition", "split"]
    tests = validation[validation["split"] != "none"]
    parts = {"speeches": tests.groupby(keys, sort=False)["n"].max().astype(int)}
    for name, (check, statistic) in _SHOWN.items():
        rows = tests[(tests["check"] == check) & (tests["statistic"] == statistic)].set_index(keys)
        parts[name] = rows.apply(_printed, axis=1) if len(rows) else pd.Series(dtype=object)
    return pd.DataFrame(parts).reindex(parts["speeches"].index).fillna("—").reset_index()


def _printed(row: pd.Series) -> str:
    if pd.isna(row["value"]):
        return "—"
    exact = pd.isna(row["low"]) or row["low"] == row["high"]
    return f"{row['value']:.2f}" + ("" if exact else f" [{row['low']:.2f}, {row['high']:.2f}]")


def findings(validation: pd.DataFrame) -> list[str]:
    """Sentences about this run's values, whatever they are."""
    table = validation.set_index(["condition", "split", "statistic"])[["value", "low", "high", "n"]]

    def at(statistic: str, split: str = "by speaker", condition: str = ALL) -> pd.Series:
        return table.loc[(condition, split, statistic)]

    wrong, members = at("F, deranged centroids: middle, least, most"), at("F, labels shuffled over members")
    share = at("deranged centroids with F at least the true one, share")["value"]
    accuracy = {split: at("balanced accuracy", split) for split in ("random", "by debate", "by speaker")}
    strangers = at("balanced accuracy, labels shuffled over members", "random")
    said = [
        f"The paper's test, members kept apart: F = {at('F, true centroids')['value']:.1f} with each party's own centroid, "
        f"{wrong['low']:.1f} to {wrong['high']:.1f} with another party's; {share:.0%} of the wrong assignments reach the true F. "
        f"Invented parties of members drawn by lot give {members['low']:.1f} to {members['high']:.1f}.",
        "Balanced accuracy of the nearest centroid: "
        + ", ".join(f"{row['value']:.2f} {split}" for split, row in accuracy.items())
        + f"; chance is {at('chance')['value']:.2f}. Invented parties of real members are found with "
        f"{strangers['value']:.2f} in the random split: that much is knowing people, not parties.",
    ]
    below = [name for name in table.index.unique("condition") if _at_chance(table, name)]
    gap = at("eta squared, true less deranged")
    verdict = "more" if gap["low"] > 0 else "no more"
    said.append(f"Own centroids separate parties {verdict} than wrong ones do ({_printed(gap)} of the spread).")
    if below:
        said.append(f"With members kept apart it is not clearly better than chance here: {', '.join(below)}.")
    return said


def _at_chance(table: pd.DataFrame, condition: str) -> bool:
    """Does the accuracy's interval reach down to chance, or is there nothing to compare?"""
    try:
        accuracy = table.loc[(condition, "by speaker", "balanced accuracy")]
    except KeyError:  # rows of PSA's guessers
        return False
    return not accuracy["low"] > table["value"].get((condition, "by speaker", "chance"), 1.0)


def evidence_figure(validation: pd.DataFrame) -> Any:
    """Balanced accuracy by condition, a marker a split with its interval; a tick marks chance."""
    from matplotlib import pyplot as plt

    rows = validation[(validation["check"] == "nearest party") & (validation["split"] != "none")]
    names = list(dict.fromkeys(rows["condition"]))
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.42 * len(names)), layout="constrained")
    for shift, (split, part) in zip((-0.22, 0, 0.22), rows.groupby("split", sort=False), strict=False):
        part = part[part["statistic"] == "balanced accuracy"].dropna(subset="value")
        places = [names.index(name) + shift for name in part["condition"]]
        spread = [(part["value"] - part["low"]).clip(lower=0), (part["high"] - part["value"]).clip(lower=0)]
        ax.errorbar(part["value"], places, xerr=spread, fmt="o", ms=4, lw=1.2, label=split)
    chance = rows[(rows["statistic"] == "chance") & (rows["split"] == "by speaker")]
    where = [names.index(name) for name in chance["condition"]]
    ax.plot(chance["value"], where, "|", color="black", ms=16, label="chance")
    ax.set(
        yticks=range(len(names)), yticklabels=names, xlabel="balanced accuracy of the nearest centroid", xlim=(0, None)
    )
    ax.invert_yaxis()
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return fig
