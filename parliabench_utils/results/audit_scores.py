"""Audit of Tables 2 and 13: header order, t-tests, asterisks, and what section 6.1 says about them (`paper.audit`).

Table 13 is the pooled two-sample t-test with n speeches a side; n follows from its own t and d, as t = d * sqrt(n / 2).
"""

import math

import pandas as pd

from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.audit_tools import (
    Finding,
    Interval,
    agrees,
    contains,
    intersect,
    interval_quotient,
    rounded,
    rounds_to,
    show,
)

# The header of Table 2 as printed; its values stand in the order of METRICS.
PRINTED_HEADER = (
    *("PPL", "Dist-N", "Self-BLEU", "J_Coh", "J_Conc", "GRUEN", "BERTScore", "MoverScore", "J_Rel"),
    *("PSA", "Party Align", "J_Auth", "J_PolApp", "J_Qual"),
)

SPEECHES_A_SIDE = 2756  # 27,560 / 10, section 5.3
SPEECHES_A_SIDE_OTHER = 2684  # PSA (no unknown orientation) and Self-BLEU, bounded by their own t and d
FAMILY = 70


def n_a_side(metric: str) -> int:
    """Speeches a side behind a row of Table 13."""
    return SPEECHES_A_SIDE_OTHER if metric in ("PSA", "Self-BLEU") else SPEECHES_A_SIDE


def differences(table2: pd.DataFrame) -> pd.DataFrame:
    """One row a model and metric: means, sds, their differences, t and d from Table 2's rounded figures."""
    wide = table2.pivot_table(index=["model", "metric"], columns="type", values=["mean", "sd", "starred"], sort=False)
    out = pd.DataFrame(
        {
            "mean_b": wide[("mean", "baseline")],
            "mean_f": wide[("mean", "fine-tuned")],
            "sd_b": wide[("sd", "baseline")],
            "sd_f": wide[("sd", "fine-tuned")],
            "starred": wide[("starred", "fine-tuned")].astype(bool),
        }
    ).reset_index()
    out["difference"] = out["mean_f"] - out["mean_b"]
    pooled = ((out["sd_b"] ** 2 + out["sd_f"] ** 2) / 2) ** 0.5
    out["d"] = out["difference"] / pooled
    out["t"] = out["d"] * (out["metric"].map(n_a_side) / 2) ** 0.5
    sign = out["metric"].map(lambda name: 1 if METRIC_BY_NAME[name].higher_is_better else -1)
    out["gain"] = out["difference"] * sign
    return out


def significant(tables: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Table 13 with a column `better`: the change goes in the metric's good direction."""
    table13 = tables[13].copy()
    sign = table13["metric"].map(lambda name: 1 if METRIC_BY_NAME[name].higher_is_better else -1)
    table13["better"] = table13["mean_difference"] * sign > 0
    return table13


def t_threshold(family: int = FAMILY, n: int = SPEECHES_A_SIDE) -> float:
    """|t| that is significant at 0.05 two-sided after Bonferroni over `family` tests with n a side."""
    from scipy import stats

    return float(stats.t.isf(0.025 / family, 2 * n - 2))


def check_header(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Which order of Table 2's columns gives Table 13's mean differences?"""
    true_order = list(dict.fromkeys(tables[2]["metric"]))
    printed = dict(zip(true_order, PRINTED_HEADER, strict=True))
    counts = {}
    for name, renaming in (("printed", printed), ("true", {m: m for m in true_order})):
        table2 = tables[2].assign(metric=tables[2]["metric"].map(renaming))
        merged = tables[13].merge(differences(table2), on=["model", "metric"])
        counts[name] = int(((merged["mean_difference"] - merged["difference"]).abs() <= 0.00105 + 1e-9).sum())
    total = len(tables[13])
    note = f"in the true order (Table 1's computational metrics, then the judge's) it is {counts['true']} of {total}"
    return [
        Finding(
            "1 header",
            "Table 2's columns stand under their names, so that its differences are Table 13's",
            "Table 2",
            f"{total} of {total}",
            f"{counts['printed']} of {total} mean differences",
            agrees(counts["printed"] == total),
            note,
        )
    ]


def _row_intervals(row: pd.Series) -> tuple[Interval, Interval] | None:
    """Possible (t, d) of one row of Table 13, given Table 2's rounded figures and the row's mean difference."""
    difference = intersect((row["difference"] - 0.001, row["difference"] + 0.001), rounded(row["mean_difference"], 4))
    if difference is None:
        return None
    squares = [max(row[sd] + sign * 0.0005, 0.0) ** 2 for sign in (-1, 1) for sd in ("sd_b", "sd_f")]
    pooled = (math.sqrt((squares[0] + squares[1]) / 2), math.sqrt((squares[2] + squares[3]) / 2))
    d = interval_quotient(difference, pooled)
    root = math.sqrt(n_a_side(row["metric"]) / 2)
    return (d[0] * root, d[1] * root), d


def check_t_tests(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Each of Table 13's rows: do t and d follow from Table 2?"""
    merged = tables[13].merge(differences(tables[2]), on=["model", "metric"], suffixes=("", "_2"), how="left")
    findings = []
    for _, row in merged.iterrows():
        intervals = _row_intervals(row)
        holds = intervals is not None and contains(intervals[0], row["t"], 3) and contains(intervals[1], row["cohens_d"], 3)
        text = "the mean difference is not Table 2's" if intervals is None else f"t {show(intervals[0])}, d {show(intervals[1])}"
        findings.append(
            Finding(
                "2 t-tests",
                f"{row['model']}, {row['metric']}: pooled t and Cohen's d",
                "Table 13",
                f"t = {row['t']:.3f}, d = {row['cohens_d']:.3f}",
                text,
                agrees(holds),
                f"from Table 2's means and sds, n = {n_a_side(row['metric'])} a side",
            )
        )
    return findings


def check_n(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """n a side that Table 13's own t and d allow."""
    groups = {"PSA": ["PSA"], "Self-BLEU": ["Self-BLEU"]}
    groups["the other 12 metrics"] = [m for m in tables[13]["metric"].unique() if m not in ("PSA", "Self-BLEU")]
    findings = []
    for name, metrics in groups.items():
        bounds: Interval | None = (0.0, math.inf)
        for _, row in tables[13][tables[13]["metric"].isin(metrics)].iterrows():
            ratio = interval_quotient(rounded(abs(row["t"]), 3), rounded(abs(row["cohens_d"]), 3))
            bounds = bounds and intersect(bounds, (2 * ratio[0] ** 2, 2 * ratio[1] ** 2))
        holds = bounds is not None and bounds[0] <= SPEECHES_A_SIDE <= bounds[1]
        text = "no n fits all rows" if bounds is None else f"n from {show(bounds, 1)}"
        claim = f"{name}: 27,560 / 10 speeches a side"
        findings.append(Finding("2 n", claim, "5.3, Table 13", str(SPEECHES_A_SIDE), text, agrees(holds)))
    return findings


def check_p_values(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Table 13's p values, and Bonferroni over 70 as the rule that chose its rows."""
    from scipy import stats

    table13, threshold = tables[13], t_threshold()
    p = [2 * stats.t.sf(abs(t), 2 * n_a_side(m) - 2) for t, m in zip(table13["t"], table13["metric"], strict=True)]
    right = sum(rounds_to(mine, theirs, 4) for mine, theirs in zip(p, table13["p"], strict=True))
    listed = set(zip(table13["model"], table13["metric"], strict=True))
    all_rows = differences(tables[2])
    left_out = all_rows[[key not in listed for key in zip(all_rows["model"], all_rows["metric"], strict=True)]]
    inside = int((table13["t"].abs() > threshold).sum())
    highest = left_out["t"].abs().max()
    return [
        Finding(
            "3 p",
            "p values follow from t",
            "Table 13",
            f"{len(table13)} rows",
            f"{right} rows",
            agrees(right == len(table13)),
        ),
        Finding(
            "3 rule",
            "the rows are those significant after Bonferroni over 70",
            "Table 13",
            f"{len(table13)} rows",
            f"{inside} rows have |t| > {threshold:.3f}; largest |t| left out {highest:.2f}",
            agrees(inside == len(table13) and highest < threshold),
            "left out: " + ", ".join(f"{r.model} {r.metric}" for r in left_out.itertuples()),
        ),
    ]


def check_counts(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """45 of 70, its share a model, the asterisks, and the declines the text does not mention."""
    table13, changes = significant(tables), differences(tables[2])
    better, worse = int(table13["better"].sum()), int((~table13["better"]).sum())
    by_model = table13[table13["better"]].groupby("model", sort=False).size()
    starred = set(zip(*[changes.loc[changes["starred"], c] for c in ("model", "metric")], strict=True))
    gains = set(zip(*[table13.loc[table13["better"], c] for c in ("model", "metric")], strict=True))
    losses = table13[~table13["better"]].groupby("model", sort=False).size()
    spelled = ", ".join(f"{model} {n}" for model, n in losses.items())
    lead = f"Yi {by_model['Yi 6B']}, Llama {by_model['Llama 3.1 8B']}"
    return [
        Finding("3 count", "45 of 70 comparisons improve significantly", "6.1, 6.5", "45", str(better), agrees(better == 45)),
        Finding(
            "3 leaders",
            "Yi and Llama improve in 11 of 14 metrics (79 %)",
            "6.1",
            "11 each",
            lead,
            agrees(by_model["Yi 6B"] == by_model["Llama 3.1 8B"] == 11 and rounds_to(1100 / 14, 79, 0)),
        ),
        Finding(
            "3 asterisks",
            "asterisks mark the significant improvements",
            "Table 2",
            f"{len(starred)} asterisks",
            f"{len(starred & gains)} of {len(gains)} improvements",
            agrees(starred == gains),
        ),
        Finding(
            "3 declines",
            "what is significant and not an improvement",
            "6.1",
            "not mentioned",
            f"{worse} significant declines",
            agrees(worse == 0),
            spelled,
        ),
        Finding(
            "15 consistent",
            "fine-tuned models consistently outperform baselines",
            "6.1",
            "consistently",
            f"{better} better, {worse} worse, {FAMILY - better - worse} not significant",
            agrees(worse == 0),
            f"Gemma {by_model['Gemma 2 9B']} : {losses.get('Gemma 2 9B', 0)}",
        ),
    ]


def check_asterisk_rule(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """The caption says p < 0.05; an unmarked improvement above that shows that it is not the rule used."""
    changes, plain = differences(tables[2]), t_threshold(1)
    unmarked = changes[(changes["gain"] > 0) & ~changes["starred"] & (changes["t"].abs() > plain)]
    text = ", ".join(f"{r.model} {r.metric} (t = {r.t:.2f})" for r in unmarked.itertuples())
    return [
        Finding(
            "3 caption",
            "asterisks mark improvements with p < 0.05",
            "Table 2, caption",
            "0 such improvements unmarked",
            f"{len(unmarked)} unmarked: {text}" if text else "0 unmarked",
            agrees(unmarked.empty),
            f"Bonferroni over 70, |t| > {t_threshold():.3f}, gives the asterisks",
        )
    ]


def check_self_bleu(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Self-BLEU: higher means less varied."""
    rows = differences(tables[2])
    rose = int((rows.loc[rows["metric"] == "Self-BLEU", "difference"] > 0).sum())
    claim = "Self-BLEU decreased with fine-tuning"
    return [Finding("4 Self-BLEU", claim, "project page", "decreased", f"rose in {rose} of 5 models", agrees(rose == 0))]


CHECKS = (
    check_header,
    check_n,
    check_p_values,
    check_counts,
    check_asterisk_rule,
    check_self_bleu,
    check_t_tests,
)
