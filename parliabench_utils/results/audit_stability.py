"""Audit of Tables 9, 10 and 12 (difficulty, consistency, stability) and of section 13 (`paper.audit`)."""

import pandas as pd

from parliabench_utils.results.audit_tools import NOT_COMPUTABLE, Finding, agrees, intersect, rounded, rounds_to
from parliabench_utils.results.statistics import stability


def check_stability(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Table 12: its own mean, Table 8 as a source, and what text and page say."""
    table12 = tables[12].set_index("model")
    contexts = ["affiliation", "topic", "orientation"]
    findings = []
    for model in table12.index:
        mean = table12.loc[model, contexts].mean()
        holds = intersect((mean - 0.05, mean + 0.05), rounded(table12.loc[model, "overall"], 1)) is not None
        findings.append(
            Finding(
                "9 overall",
                f"{model}: Overall is the mean of the three columns",
                "Table 12",
                f"{table12.loc[model, 'overall']:.1f}",
                f"{mean:.2f}",
                agrees(holds),
            )
        )
        for column, number in (("affiliation", 8), ("topic", 11)):
            value = stability(tables[number][model])
            findings.append(
                Finding(
                    "9 source",
                    f"{model}: {column} stability is Eq. 4 of Table {number}'s column",
                    "Table 12, Eq. 4",
                    f"{table12.loc[model, column]:.1f}",
                    f"{value:.1f}",
                    agrees(rounds_to(value, table12.loc[model, column], 1)),
                    "Table 12 is over all normalised metrics; how they were normalised is not stated",
                )
            )
    overall = table12["overall"]
    return [
        *findings,
        Finding(
            "9 range",
            "composite stability 91.4 to 96.2, Mistral first",
            "6.1, 13.4",
            "91.4-96.2",
            f"{overall.min():.1f}-{overall.max():.1f}, {overall.idxmax()}",
            agrees(overall.min() == 91.4 and overall.max() == 96.2 and overall.idxmax() == "Mistral 7B v0.3"),
        ),
        Finding(
            "12 most stable",
            "Gemma is the most stable model",
            "project page",
            "Gemma",
            f"{overall.idxmax()} ({overall.max():.1f}); Gemma {overall['Gemma 2 9B']:.1f}",
            agrees(overall.idxmax() == "Gemma 2 9B"),
        ),
        Finding(
            "32 maintained",
            "fine-tuned models maintain stability",
            "13.4",
            "maintained",
            "",
            NOT_COMPUTABLE,
            "no baseline stability is published",
        ),
    ]


def check_difficulty(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Tables 9 and 10: what they hold and what they are said to hold."""
    nine, ten = tables[9], tables[10]
    shared = ten[["difficulty", "consistency"]].apply(tuple, axis=1).isin(nine[["difficulty", "consistency"]].apply(tuple, axis=1))
    anova = [c for c in [*nine.columns, *ten.columns] if c.lower() in ("f", "df", "p", "f_value", "p_value")]
    cv_low, cv_high = 100 / nine["consistency"].max() - 1, 100 / nine["consistency"].min() - 1
    low, high = nine["difficulty"].min(), nine["difficulty"].max()
    return [
        Finding(
            "10 difficulty",
            "difficulty and consistency columns",
            "Tables 9, 10",
            "11 and 7 rows",
            "",
            NOT_COMPUTABLE,
            "neither is defined; our own definition is written beside our tables",
        ),
        Finding(
            "10 range",
            "party difficulty ranges from 0.382 to 0.456",
            "6.2",
            "0.382-0.456",
            f"{low:.3f}-{high:.3f}",
            agrees(rounds_to(low, 0.382, 3) and rounds_to(high, 0.456, 3)),
        ),
        Finding(
            "28 ANOVA",
            "Tables 9 and 10 present ANOVA results",
            "13.2",
            "ANOVA",
            f"{len(anova)} columns with F, df or p",
            agrees(bool(anova)),
            f"columns: {', '.join(nine.columns)}",
        ),
        Finding(
            "28 consistency",
            "consistency applies Eq. 4 (0 to 100, high when even)",
            "6.2, Table 9",
            f"{nine['consistency'].min():.1f}-{nine['consistency'].max():.1f}",
            f"would need a CV of {cv_low:.1f} to {cv_high:.1f}",
            agrees(cv_low < 1),
        ),
        Finding(
            "29 repeated rows",
            "orientations are ranked on their own data",
            "Table 10",
            f"{len(ten)} rows",
            f"{int(shared.sum())} repeat the digits of a row of Table 9",
            agrees(not shared.any()),
            ", ".join(ten.loc[shared, "orientation"]),
        ),
    ]


CHECKS = (check_stability, check_difficulty)
