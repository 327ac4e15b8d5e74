"""Audit of Tables 8 and 11 (parties, topics, orientations) and of sections 6.2 to 6.4 (`paper.audit`)."""

import pandas as pd

from parliabench_utils.results.audit_tools import NOT_COMPUTABLE, Finding, agrees, rounds_to

MODELS = ["Gemma 2 9B", "Llama 3.1 8B", "Mistral 7B v0.3", "Qwen2 7B", "Yi 6B"]
# Parties of one orientation share its mean; "Unknown" is no position.
UNKNOWN = "Unknown"


def _mean_or_sd_holds(row: pd.Series, which: str) -> bool:
    """Does the printed average or sd (ddof 0) follow from the five printed scores?"""
    values = row[MODELS].astype(float)
    exact = values.mean() if which == "average" else values.std(ddof=0)
    # each input may be off by 0.0005, which moves a mean or an sd by no more than that
    return abs(exact - row[which]) <= 0.001 + 1e-9


def check_margins(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Average and sd columns of Tables 8 and 11."""
    findings = []
    for number in (8, 11):
        table = tables[number]
        for which in ("average", "sd"):
            good = [_mean_or_sd_holds(row, which) for _, row in table.iterrows()]
            wrong = ", ".join(table.iloc[:, 0][[not g for g in good]])
            claim = f"the {which} column follows from the five models' scores"
            findings.append(
                Finding(
                    "30 margins",
                    claim,
                    f"Table {number}",
                    f"{len(table)} rows",
                    f"{sum(good)} rows",
                    agrees(all(good)),
                    wrong and f"not: {wrong}",
                )
            )
    return findings


def orientation_means(tables: dict[int, pd.DataFrame]) -> pd.Series:
    """Five-model mean of Table 8 for each orientation (plain mean over its parties), Unknown left out."""
    merged = tables[8].merge(tables[3][["party", "orientation"]], on="party")
    return merged[merged["orientation"] != UNKNOWN].groupby("orientation")["average"].mean()


def check_orientations(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Section 6.4: the centre's scores, and who is best on the right."""
    means = orientation_means(tables)
    table8 = tables[8].set_index("party")
    left = ", ".join(f"{p} {table8.loc[p, 'average']:.3f}" for p in ("Labour", "Scottish National Party"))
    lowest, highest = means.idxmin(), means.idxmax()
    right = table8.loc["Democratic Unionist Party", MODELS].astype(float)
    oriented = table8.loc[tables[3].loc[tables[3]["orientation"] != UNKNOWN, "party"], MODELS].astype(float)
    best_right = [m for m in MODELS if oriented[m].idxmax() == "Democratic Unionist Party"]
    centre = rounds_to(means["Centre-right"], 0.551, 3)
    return [
        Finding(
            "14 Centre-left",
            "Centre-left scores 0.607",
            "6.4",
            "0.607",
            f"{means['Centre-left']:.4f}",
            agrees(rounds_to(means["Centre-left"], 0.607, 3)),
            f"{left}; 0.607 is Llama's and Yi's Labour cell",
        ),
        Finding(
            "14 Centre-right",
            "Centre-right scores 0.551",
            "6.4",
            "0.551",
            f"{means['Centre-right']:.4f}",
            agrees(centre),
        ),
        Finding(
            "25 centre",
            "centrist positions score higher",
            "6.4",
            "higher",
            f"lowest: {lowest} {means.min():.3f}; highest: {highest} {means.max():.3f}",
            agrees(lowest not in ("Centre-left", "Centre-right")),
        ),
        Finding(
            "25 right",
            "Gemma and Qwen achieve their highest scores on the right",
            "6.4",
            "Gemma, Qwen",
            ", ".join(best_right),
            agrees({"Gemma 2 9B", "Qwen2 7B"} <= set(best_right)),
        ),
        Finding(
            "25 Mistral",
            "Mistral underperforms consistently",
            "6.4",
            "lowest everywhere",
            f"on the right lowest is {right.idxmin()} {right.min():.3f}, Mistral {right['Mistral 7B v0.3']:.3f}",
            agrees(right.idxmin() == "Mistral 7B v0.3"),
        ),
    ]


def check_party_scores(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Section 6.2 on Table 8."""
    table8, size = tables[8].set_index("party"), tables[3].set_index("party")["speeches"]
    yi, worst = table8["Yi 6B"], table8["Mistral 7B v0.3"].idxmin()
    best_qwen = table8["Qwen2 7B"].idxmax()
    minor = table8.drop(index=["Conservative", "Labour"])["sd"]
    major = table8.loc["Conservative", "sd"]
    calm = minor[minor <= major]
    rho, p = _spearman(table8["average"], size.loc[table8.index])
    return [
        Finding(
            "21 Yi",
            "Yi scores 0.614 to 0.633 across parties",
            "6.2",
            "0.614-0.633",
            f"{yi.min():.3f}-{yi.max():.3f}",
            agrees(rounds_to(yi.min(), 0.614, 3) and rounds_to(yi.max(), 0.633, 3)),
        ),
        Finding(
            "22 minor parties",
            "minor parties vary more than the major ones",
            "6.2",
            "more",
            f"{len(calm)} of {len(minor)} minor parties have an sd of at most the Conservatives' {major:.3f}",
            agrees(calm.empty),
            ", ".join(calm.index),
        ),
        Finding(
            "23 abundance",
            "Party Align depends on data abundance",
            "6.2",
            "depends",
            f"Spearman with party size {rho:.2f} (p = {p:.2f}, {len(table8)} parties)",
            agrees(rho > 0 and p < 0.05),
        ),
        Finding(
            "21 Mistral",
            "Mistral's lowest score is Non-Affiliated, 0.436",
            "6.2",
            "0.436",
            f"{worst} {table8.loc[worst, 'Mistral 7B v0.3']:.3f}",
            agrees(worst == "Non-Affiliated" and rounds_to(table8.loc[worst, "Mistral 7B v0.3"], 0.436, 3)),
        ),
        Finding(
            "21 Qwen",
            "Qwen excels with Bishops, 0.664",
            "6.2",
            "0.664",
            f"{best_qwen} {table8['Qwen2 7B'].max():.3f}",
            agrees(best_qwen == "Bishops" and rounds_to(table8["Qwen2 7B"].max(), 0.664, 3)),
        ),
        Finding(
            "36 Bishops",
            "Bishops are an ideologically coherent minority",
            "6.2",
            "coherent",
            f"orientation in Table 3: {_orientation(tables, 'Bishops')}",
            agrees(_orientation(tables, "Bishops") != UNKNOWN),
        ),
    ]


def _orientation(tables: dict[int, pd.DataFrame], party: str) -> str:
    return str(tables[3].set_index("party").loc[party, "orientation"])


def _spearman(a: pd.Series, b: pd.Series) -> tuple[float, float]:
    from scipy import stats

    result = stats.spearmanr(a, b)
    return float(result.statistic), float(result.pvalue)


def check_topics(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Section 6.3 on Table 11."""
    table = tables[11].set_index("topic")
    mean, sd = table["average"], table["sd"]
    rank = mean.rank(ascending=False, method="min").astype(int)
    exact = {topic: float(table.loc[topic, MODELS].astype(float).std(ddof=0)) for topic in table.index}
    low_half = [t for t in ("Science", "Geography") if sd[t] <= sd.median()]
    top = mean.nlargest(2)
    return [
        Finding(
            "26 Geography",
            "Geography is among the most difficult topics",
            "6.3",
            "most difficult",
            f"average {mean['Geography']:.3f}: rank {rank['Geography']} from the top of {len(mean)}",
            agrees(rank["Geography"] > len(mean) / 2),
        ),
        Finding(
            "26 Science",
            "Science has the lowest score, 0.516",
            "6.3",
            "0.516",
            f"{mean.idxmin()} {mean.min():.3f}",
            agrees(mean.idxmin() == "Science" and rounds_to(mean.min(), 0.516, 3)),
        ),
        Finding(
            "26 Economics",
            "Economics (0.610) and European Union (0.606) score highest",
            "6.3",
            "0.610, 0.606",
            ", ".join(f"{t} {v:.3f}" for t, v in top.items()),
            agrees(list(top.index) == ["Economics", "European Union"]),
        ),
        Finding(
            "27 disagreement",
            "models disagree more on technical topics",
            "6.3",
            "more",
            "sd: "
            + ", ".join(f"{t} {sd[t]:.3f}" for t in ("Science", "Geography", "European Union"))
            + f", median {sd.median():.3f}",
            agrees(not low_half and exact["European Union"] < min(exact["Science"], exact["Geography"])),
            f"in the lower half: {', '.join(low_half)}" if low_half else "",
        ),
        Finding(
            "26 difficulty",
            "topic difficulty as in Figure 7",
            "6.3, Figure 7",
            "a ranking",
            "",
            NOT_COMPUTABLE,
            "neither the values nor a definition are published",
        ),
    ]


CHECKS = (check_party_scores, check_orientations, check_topics, check_margins)
