"""The published tables as data, and the audit of the paper against itself (`tables/paper_audit.csv`).

`paper_tables/claims.csv` holds the claims: what is said and where, which function here computes it from the tables (`computed_by`),
how that is shown (`recomputed`, `note`: templates) and when it agrees (`holds`). `notebooks/studies/paper_audit.py` shows each kind.

>>> published(12)["model"].tolist() == list(PAPER_MODELS)
True
>>> sorted(audit()["agrees"].unique())
['no', 'not computable', 'yes']
"""

import math
import operator
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.statistics import stability

PAPER_TABLES = Path(__file__).parent / "paper_tables"
PAPER_MODELS = ("Llama 3.1 8B", "Gemma 2 9B", "Mistral 7B v0.3", "Qwen2 7B", "Yi 6B")
MODEL_COLUMNS = sorted(PAPER_MODELS)  # of Tables 8 and 11
UNKNOWN = "Unknown"  # no position, so no orientation's mean
AUDIT_COLUMNS = ["item", "claim", "place", "published", "recomputed", "agrees", "note"]

# Tables 2 and 8 write YI, 11 and 12 Yi, and 13 uses first names.
_ALIASES = {
    "YI 6B": "Yi 6B",
    "llama": "Llama 3.1 8B",
    "gemma": "Gemma 2 9B",
    "mistral": "Mistral 7B v0.3",
    "qwen": "Qwen2 7B",
    "yi": "Yi 6B",
}
_TEXT_COLUMNS = {6: ["value"], 7: ["value"]}  # "16", "2e-4" and "7 layers" share a column

# The header of Table 2 as printed; its values stand in the order of Table 1's computational metrics, then the judge's.
PRINTED_HEADER = (
    *("PPL", "Dist-N", "Self-BLEU", "J_Coh", "J_Conc", "GRUEN", "BERTScore", "MoverScore", "J_Rel"),
    *("PSA", "Party Align", "J_Auth", "J_PolApp", "J_Qual"),
)
SPEECHES_A_SIDE = 2756  # 27,560 / 10, section 5.3
SPEECHES_A_SIDE_OTHER = 2684  # PSA (no unknown orientation) and Self-BLEU, bounded by their own t and d
FAMILY = 70
TOPIC_SPELLINGS = {"Economy": "Economics", "Agriculture, Forestry, Fisheries": "Agriculture, Forestry and Fisheries"}

Tables = dict[int, pd.DataFrame]
Facts = dict[str, Any]
Interval = tuple[float, float]
_EPSILON = 1e-9  # binary fractions: 0.5 steps of a decimal are not exact


def paper_table_path(number: int) -> Path:
    """File of published Table `number` (2 to 13)."""
    found = sorted(PAPER_TABLES.glob(f"table{number:02d}_*.csv"))
    if not found:
        raise ValueError(f"the paper's Table {number} is not kept as data; there are 2 to 13 in {PAPER_TABLES.name}/")
    return found[0]


def published(number: int) -> pd.DataFrame:
    """Published Table `number` with one canonical name a model (PAPER_MODELS), in the paper's row order."""
    types = dict.fromkeys(_TEXT_COLUMNS.get(number, []), str)
    frame = pd.read_csv(paper_table_path(number), dtype=types, keep_default_na=False, na_values=[""])
    if "model" in frame:
        frame["model"] = frame["model"].replace(_ALIASES)
    return frame.rename(columns=_ALIASES)


def claims() -> pd.DataFrame:
    """What is audited, as text: item, claim, place, published, computed_by, recomputed, holds, note (empty where there is none)."""
    return pd.read_csv(PAPER_TABLES / "claims.csv", dtype=str, keep_default_na=False)


def audit(tables: Tables | None = None) -> pd.DataFrame:
    """Recompute what the paper claims, from its tables alone.

    `tables` maps a table's number to its frame (default: all as published); altering one alters the verdicts.
    Columns: `item` (subject), `claim`, `place`, `published`, `recomputed`, `agrees` (yes, no, not computable: within
    the interval that the rounding of the inputs allows) and `note`.
    """
    tables = {n: published(n) for n in range(2, 14)} | (tables or {})
    computed = cache(lambda name: COMPUTED[name](tables))
    rows = []
    for claim in claims().to_dict("records"):
        facts = computed(claim["computed_by"]) if claim["computed_by"] else {}
        for each in facts if isinstance(facts, list) else [facts]:
            shown = {column: claim[column].format_map(each) for column in AUDIT_COLUMNS if column != "agrees"}
            rows.append(shown | {"agrees": verdict(claim["holds"], each)})
    return pd.DataFrame(rows, columns=AUDIT_COLUMNS)


def verdict(condition: str, facts: Facts) -> str:
    """Whether each part of `a is b; c ~ 0.85; d` holds (~: rounds to the printed digits): yes or no; not computable without one."""
    relations = {"is": operator.eq, "<": operator.lt, ">": operator.gt, ">=": operator.ge, "~": rounds_to}
    holds = []
    for part in condition.split("; "):
        left, _, rest = part.partition(" ")
        relation, _, right = rest.partition(" ")
        holds.append(relations[relation](facts[left], facts.get(right, _number(right))) if rest else bool(left and facts[left]))
    return ("yes" if all(holds) else "no") if condition else "not computable"


def _number(text: str) -> Decimal | str:
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def rounds_to(value: float, printed: Decimal) -> bool:
    """Is `printed` what `value` gives when rounded to its last digit (`110E+3`: to thousands)?"""
    return abs(value - float(printed)) <= 0.5 * 10.0 ** printed.as_tuple().exponent + _EPSILON


def rounded(value: float, decimals: int) -> Interval:
    """All numbers that are printed as `value` at `decimals`."""
    return value - 0.5 * 10.0**-decimals, value + 0.5 * 10.0**-decimals


def intersect(a: Interval, b: Interval) -> Interval | None:
    """Common part of two intervals, None when they do not meet."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high + _EPSILON else None


def interval_quotient(top: Interval, bottom: Interval) -> Interval:
    """Smallest and largest quotient; ValueError where the bottom interval reaches zero."""
    if bottom[0] <= 0:
        raise ValueError(f"the denominator {bottom} reaches zero")
    corners = [a / b for a in top for b in bottom]
    return min(corners), max(corners)


def _span(interval: Interval, decimals: int = 3) -> str:
    return f"{interval[0]:.{decimals}f} to {interval[1]:.{decimals}f}"


def _listed(counts: pd.Series) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items())


def direction(metrics: pd.Series) -> pd.Series:
    """1 for metrics where higher is better, else -1."""
    return metrics.map(lambda name: 1 if METRIC_BY_NAME[name].higher_is_better else -1)


def n_a_side(metric: str) -> int:
    """Speeches a side behind a row of Table 13."""
    return SPEECHES_A_SIDE_OTHER if metric in ("PSA", "Self-BLEU") else SPEECHES_A_SIDE


def changes(table2: pd.DataFrame) -> pd.DataFrame:
    """One row a model and metric, from Table 2's rounded figures: means, sds, difference, Cohen's d and pooled t = d sqrt(n / 2)."""
    wide = table2.pivot_table(index=["model", "metric"], columns="type", values=["mean", "sd", "starred"], sort=False)
    sides = {
        "mean_b": ("mean", "baseline"),
        "mean_f": ("mean", "fine-tuned"),
        "sd_b": ("sd", "baseline"),
        "sd_f": ("sd", "fine-tuned"),
    }
    out = pd.DataFrame({name: wide[column] for name, column in sides.items()})
    out = out.assign(starred=wide[("starred", "fine-tuned")].astype(bool)).reset_index()
    out["difference"] = out["mean_f"] - out["mean_b"]
    out["d"] = out["difference"] / ((out["sd_b"] ** 2 + out["sd_f"] ** 2) / 2) ** 0.5
    out["t"] = out["d"] * (out["metric"].map(n_a_side) / 2) ** 0.5
    return out.assign(gain=out["difference"] * direction(out["metric"]))


def significant(tables: Tables) -> pd.DataFrame:
    """Table 13 with a column `better`: the change goes in the metric's good direction."""
    return tables[13].assign(better=tables[13]["mean_difference"] * direction(tables[13]["metric"]) > 0)


def t_threshold(family: int = FAMILY, n: int = SPEECHES_A_SIDE) -> float:
    """|t| that is significant at 0.05 two-sided after Bonferroni over `family` tests with n a side."""
    from scipy import stats

    return float(stats.t.isf(0.025 / family, 2 * n - 2))


def header(tables: Tables) -> Facts:
    """Which order of Table 2's columns gives Table 13's mean differences?"""
    printed = dict(zip(dict.fromkeys(tables[2]["metric"]), PRINTED_HEADER, strict=True))
    counts = {}
    for order, table2 in (("printed", tables[2].assign(metric=tables[2]["metric"].map(printed))), ("true", tables[2])):
        merged = tables[13].merge(changes(table2), on=["model", "metric"])
        counts[order] = int(((merged["mean_difference"] - merged["difference"]).abs() <= 0.00105 + _EPSILON).sum())
    return counts | {"n": len(tables[13])}


def t_and_d(row: pd.Series) -> tuple[Interval, Interval] | None:
    """Possible t and d of a row of Table 13, given Table 2's rounded figures; None where its mean difference is not Table 2's."""
    difference = intersect((row["difference"] - 0.001, row["difference"] + 0.001), rounded(row["mean_difference"], 4))
    if difference is None:
        return None
    low, high = (math.sqrt(sum(max(row[sd] + half, 0.0) ** 2 for sd in ("sd_b", "sd_f")) / 2) for half in (-0.0005, 0.0005))
    d, root = interval_quotient(difference, (low, high)), math.sqrt(n_a_side(row["metric"]) / 2)
    return (d[0] * root, d[1] * root), d


def t_tests(tables: Tables) -> list[Facts]:
    """Each row of Table 13: do its t and d follow from Table 2?"""
    merged = tables[13].merge(changes(tables[2]), on=["model", "metric"], suffixes=("", "_2"), how="left")
    facts = []
    for _, row in merged.iterrows():
        found, text = t_and_d(row), "the mean difference is not Table 2's"
        if found is not None:
            text = f"t {_span(found[0])}, d {_span(found[1])}"
        follows = found is not None and all(intersect(a, rounded(row[b], 3)) for a, b in zip(found, ("t", "cohens_d"), strict=True))
        facts.append(row.to_dict() | {"text": text, "follows": follows, "n": n_a_side(row["metric"])})
    return facts


def sample_sizes(tables: Tables) -> list[Facts]:
    """n a side that Table 13's own t and d allow, since t = d sqrt(n / 2)."""
    groups = {"PSA": ["PSA"], "Self-BLEU": ["Self-BLEU"]}
    groups["the other 12 metrics"] = [m for m in tables[13]["metric"].unique() if m not in groups]
    facts = []
    for name, metrics in groups.items():
        bounds: Interval | None = (0.0, math.inf)
        for _, row in tables[13][tables[13]["metric"].isin(metrics)].iterrows():
            ratio = interval_quotient(rounded(abs(row["t"]), 3), rounded(abs(row["cohens_d"]), 3))
            bounds = bounds and intersect(bounds, (2 * ratio[0] ** 2, 2 * ratio[1] ** 2))
        fits = bounds is not None and bounds[0] <= SPEECHES_A_SIDE <= bounds[1]
        facts.append({"name": name, "fits": fits, "text": f"n from {_span(bounds, 1)}" if bounds else "no n fits all rows"})
    return facts


def counts(tables: Tables) -> Facts:
    """Table 13's p values and rule; 45 of 70, its share a model, the asterisks, and the declines the text does not mention."""
    from scipy import stats

    rows, table2, threshold = significant(tables), changes(tables[2]), t_threshold()
    p = [2 * stats.t.sf(abs(t), 2 * n_a_side(m) - 2) for t, m in zip(rows["t"], rows["metric"], strict=True)]
    keys = pd.MultiIndex.from_frame(table2[["model", "metric"]])
    left_out = table2[~keys.isin(pd.MultiIndex.from_frame(rows[["model", "metric"]]))]
    gains = pd.MultiIndex.from_frame(rows.loc[rows["better"], ["model", "metric"]])
    by_model = (
        rows.groupby(["model", "better"], sort=False).size().unstack(fill_value=0).reindex(columns=[True, False], fill_value=0)
    )
    unmarked = table2[(table2["gain"] > 0) & ~table2["starred"] & (table2["t"].abs() > t_threshold(1))]
    names = ", ".join(f"{r.model} {r.metric} (t = {r.t:.2f})" for r in unmarked.itertuples())
    better, worse = int(rows["better"].sum()), int((~rows["better"]).sum())
    return (
        {"n": len(rows)}
        | {"right": sum(intersect(rounded(theirs, 4), (mine, mine)) is not None for mine, theirs in zip(p, rows["p"], strict=True))}
        | {"threshold": threshold, "inside": int((rows["t"].abs() > threshold).sum()), "highest": left_out["t"].abs().max()}
        | {"left_out": ", ".join(f"{r.model} {r.metric}" for r in left_out.itertuples()), "better": better, "worse": worse}
        | {"rest": FAMILY - better - worse, "yi": by_model.loc["Yi 6B", True], "llama": by_model.loc["Llama 3.1 8B", True]}
        | {"others": by_model[True].drop("Llama 3.1 8B").max()}
        | {"other": by_model[True].sort_index().drop("Llama 3.1 8B").idxmax(), "gemma": by_model.loc["Gemma 2 9B", True]}
        | {"gemma_worse": by_model.loc["Gemma 2 9B", False], "share": 100 * by_model.loc["Yi 6B", True] / 14}
        | {"declines": _listed(by_model.loc[by_model[False] > 0, False]), "starred": int(table2["starred"].sum())}
        | {"marked": int(keys[table2["starred"]].isin(gains).sum()), "n_unmarked": len(unmarked)}
        | {"unmarked": f"{len(unmarked)} unmarked" + (f": {names}" if names else "")}
        | {"bleu_rose": int((table2.loc[table2["metric"] == "Self-BLEU", "difference"] > 0).sum())}
    )


def _gains(tables: Tables) -> pd.Series:
    """Models in which each metric improves significantly, in Table 2's order."""
    rows = significant(tables)
    return rows[rows["better"]].groupby("metric").size().reindex(tables[2]["metric"].unique(), fill_value=0)


def majority(tables: Tables) -> Facts:
    """The abstract's "majority of metrics", and in how many models each improves."""
    gains, models = _gains(tables), tables[13]["model"].nunique()
    most = int((gains * 2 > models).sum())
    return {"most": most, "half": len(gains) / 2, "n": len(gains), "models": models, "few": _listed(gains[gains * 2 < models])}


def minority(tables: Tables) -> list[Facts]:
    """The metrics that improve in fewer than half of the models."""
    gains, models = _gains(tables), tables[13]["model"].nunique()
    return [{"metric": metric, "n": n, "models": models, "in_most": False} for metric, n in gains[gains * 2 < models].items()]


def winners(tables: Tables) -> Facts:
    """Who is best in each metric, among tuned models and overall (the first when several tie); how many sds fell."""
    ordered = tables[2].assign(goodness=tables[2]["mean"] * direction(tables[2]["metric"]))
    tuned, overall = (
        rows.loc[rows.groupby("metric", sort=False)["goodness"].idxmax()]
        for rows in (ordered[ordered["type"] == "fine-tuned"], ordered)
    )
    wins, untuned = tuned["model"].value_counts(), overall[overall["type"] == "baseline"]
    wins = wins[sorted(wins.index, key=lambda model: (-wins[model], model))]
    table2 = changes(tables[2])
    change = (table2["sd_f"] - table2["sd_b"]).round(6)
    risers = table2.loc[change > 0, "model"].value_counts()
    return (
        {"llama": int(wins.get("Llama 3.1 8B", 0)), "most": wins.max(), "wins": _listed(wins), "n_untuned": len(untuned)}
        | {"untuned": ", ".join(f"{r.metric} ({r.model})" for r in untuned.itertuples()), "n": len(change)}
        | {"fell": int((change < 0).sum()), "same": int((change == 0).sum()), "rose": int((change > 0).sum())}
        | {"risers": f"most rises: {_listed(risers.head(1))}" if len(risers) else ""}
    )


def effects(tables: Tables) -> Facts:
    """Effect sizes of PSA and Party Align in section 6.1; which model gains most in each category."""
    rows = significant(tables)
    psa, party = rows[rows["metric"] == "PSA"], rows[rows["metric"] == "Party Align"]
    up, down = party[party["better"]], party[~party["better"]]
    declines = ", ".join(f"{r.model} (d = {r.cohens_d:.3f})" for r in down.itertuples())
    rows["gain"] = rows["cohens_d"].abs().where(rows["better"], -rows["cohens_d"].abs())
    rows["category"] = rows["metric"].map(lambda name: METRIC_BY_NAME[name].category)
    best = rows.pivot_table(index="model", columns="category", values="gain", aggfunc="sum", fill_value=0.0).idxmax()
    return (
        {"psa_low": psa["cohens_d"].min(), "psa_high": psa["cohens_d"].max(), "psa_up": int(psa["better"].sum())}
        | {"psa_n": len(psa), "party_up": len(up), "party_low": up["cohens_d"].min(), "party_high": up["cohens_d"].max()}
        | {"party_down": len(down), "declines": f"significant decline: {declines}" if len(down) else "none"}
        | {"best": ", ".join(f"{category}: {model}" for category, model in best.items()), "all_yi": (best == "Yi 6B").all()}
    )


def margins(tables: Tables) -> list[Facts]:
    """Average and sd columns (ddof 0) of Tables 8 and 11: each input may be off by 0.0005, which moves both by no more than that."""
    facts = []
    for number in (8, 11):
        scores = tables[number][MODEL_COLUMNS].astype(float)
        for which, exact in (("average", scores.mean(axis=1)), ("sd", scores.std(axis=1, ddof=0))):
            good = (exact - tables[number][which]).abs() <= 0.001 + _EPSILON
            wrong = ", ".join(tables[number].loc[~good].iloc[:, 0])
            facts.append(
                {"number": number, "which": which, "n": len(good), "good": int(good.sum()), "wrong": wrong and f"not: {wrong}"}
            )
    return facts


def parties(tables: Tables) -> Facts:
    """Sections 6.2 and 6.4 on Table 8."""
    from scipy import stats

    table3, table8 = tables[3].set_index("party"), tables[8].set_index("party")
    yi, mistral, qwen = (table8[model] for model in ("Yi 6B", "Mistral 7B v0.3", "Qwen2 7B"))
    major, minor = table8.loc["Conservative", "sd"], table8.drop(index=["Conservative", "Labour"])["sd"]
    calm = minor[minor <= major]
    rho = stats.spearmanr(table8["average"], table3["speeches"].loc[table8.index])
    oriented = table3[table3["orientation"] != UNKNOWN]
    means = table8["average"].groupby(oriented["orientation"]).mean()
    right = table8.loc["Democratic Unionist Party", MODEL_COLUMNS].astype(float)
    best_right = [m for m in MODEL_COLUMNS if table8.loc[oriented.index, m].idxmax() == "Democratic Unionist Party"]
    return (
        {"yi_low": yi.min(), "yi_high": yi.max(), "mistral_party": mistral.idxmin(), "mistral_low": mistral.min()}
        | {"qwen_party": qwen.idxmax(), "qwen_high": qwen.max(), "bishops": str(table3.loc["Bishops", "orientation"])}
        | {"bishops_placed": table3.loc["Bishops", "orientation"] != UNKNOWN, "n": len(table8), "major": major}
        | {"n_minor": len(minor), "n_calm": len(calm), "calm": ", ".join(calm.index), "rho": float(rho.statistic)}
        | {"p": float(rho.pvalue), "left": means["Centre-left"], "centre_right": means["Centre-right"]}
        | {"left_parties": ", ".join(f"{p} {table8.loc[p, 'average']:.3f}" for p in ("Labour", "Scottish National Party"))}
        | {"lowest": means.idxmin(), "low": means.min(), "highest": means.idxmax(), "high": means.max()}
        | {"centre_is_not_lowest": means.idxmin() not in ("Centre-left", "Centre-right")}
        | {"best_right": ", ".join(best_right), "both_right": {"Gemma 2 9B", "Qwen2 7B"} <= set(best_right)}
        | {"right_model": right.idxmin(), "right_low": right.min(), "right_mistral": right["Mistral 7B v0.3"]}
    )


def topics(tables: Tables) -> Facts:
    """Section 6.3 on Table 11."""
    table = tables[11].set_index("topic")
    mean, sd = table["average"], table["sd"]
    exact = table[MODEL_COLUMNS].astype(float).std(axis=1, ddof=0)
    low_half = [t for t in ("Science", "Geography") if sd[t] <= sd.median()]
    top, technical = mean.nlargest(2), ("Science", "Geography", "European Union")
    rank = int(mean.rank(ascending=False, method="min")["Geography"])
    return (
        {"geography": mean["Geography"], "rank": rank, "n": len(mean), "half": len(mean) / 2, "lowest": mean.idxmin()}
        | {"low": mean.min(), "top": ", ".join(f"{t} {v:.3f}" for t, v in top.items()), "first": ", ".join(top.index)}
        | {"sds": ", ".join(f"{t} {sd[t]:.3f}" for t in technical), "median": sd.median()}
        | {"low_half": f"in the lower half: {', '.join(low_half)}" if low_half else ""}
        | {"disagree": not low_half and exact["European Union"] < min(exact["Science"], exact["Geography"])}
    )


def stabilities(tables: Tables) -> list[Facts]:
    """Table 12, a model a row: its own mean, and Eq. 4 of Table 8's and Table 11's column."""
    facts = []
    for row in tables[12].to_dict("records"):
        mean = sum(row[c] for c in ("affiliation", "topic", "orientation")) / 3
        is_mean = intersect((mean - 0.05, mean + 0.05), rounded(row["overall"], 1)) is not None
        claim = f"{row['model']}: Overall is the mean of the three columns"
        stated = {"item": "9 overall", "claim": claim, "place": "Table 12", "note": ""}
        facts.append(stated | {"published": row["overall"], "value": f"{mean:.2f}", "agrees": is_mean})
        for column, number in (("affiliation", 8), ("topic", 11)):
            value = stability(tables[number][row["model"]])
            claim = f"{row['model']}: {column} stability is Eq. 4 of Table {number}'s column"
            note = "Table 12 is over all normalised metrics; how they were normalised is not stated"
            same = intersect((value, value), rounded(row[column], 1)) is not None
            stated = {"item": "9 source", "claim": claim, "place": "Table 12, Eq. 4", "note": note}
            facts.append(stated | {"published": row[column], "value": f"{value:.1f}", "agrees": same})
    return facts


def difficulties(tables: Tables) -> Facts:
    """Tables 9, 10 and 12: what they hold and what they are said to hold."""
    overall, nine, ten = tables[12].set_index("model")["overall"], tables[9], tables[10]
    digits = [frame[["difficulty", "consistency"]].apply(tuple, axis=1) for frame in (nine, ten)]
    shared = digits[1].isin(digits[0])
    return (
        {"stable_low": overall.min(), "stable_high": overall.max(), "stablest": overall.idxmax()}
        | {"gemma": overall["Gemma 2 9B"], "low": nine["difficulty"].min(), "high": nine["difficulty"].max()}
        | {"columns": ", ".join(nine.columns)}
        | {"n_anova": sum(c.lower() in ("f", "df", "p", "f_value", "p_value") for c in [*nine.columns, *ten.columns])}
        | {"even_low": nine["consistency"].min(), "even_high": nine["consistency"].max()}
        | {"cv_low": 100 / nine["consistency"].max() - 1, "cv_high": 100 / nine["consistency"].min() - 1, "n_ten": len(ten)}
        | {"n_shared": int(shared.sum()), "shared": ", ".join(ten.loc[shared, "orientation"])}
    )


def corpus(tables: Tables) -> Facts:
    """Table 3's sums and the percentages that the text draws from it (sections 3 and 6)."""
    table3 = tables[3]
    total, speakers, side = (
        int(table3["speeches"].sum()),
        int(table3["speakers"].sum()),
        table3["orientation"].map(ORIENTATION_SCALE),
    )
    share = 100 * table3.set_index("party")["speeches"] / total
    centre = 100 * table3.groupby("orientation")["speeches"].sum()[["Centre-left", "Centre-right"]].sum() / total
    return (
        {"total": total, "speakers": speakers, "more": speakers - 1901, "words": 99.94e6 / total, "centre": centre}
        | {"conservative": share["Conservative"], "labour": share["Labour"]}
        | {"lead": int(table3.loc[side > 0, "speeches"].sum() - table3.loc[side < 0, "speeches"].sum())}
        | {"orientation": str(table3.set_index("party").loc["Labour", "orientation"])}
        | {"names": ", ".join(p for p in table3["party"] if "Labour" in p)}
        | {"so_named": "Labour Party" in set(table3["party"])}
    )


def mapping(tables: Tables) -> Facts:
    """Table 4's mapping against the text and against Table 11's domains; the models of Table 5 against those with results."""
    table4, domains = tables[4], set(tables[11]["topic"])
    direct = set(table4.loc[table4["method"] == "Direct", "eurovoc_domain"])
    other, left = sorted(direct - domains), sorted(domains - {TOPIC_SPELLINGS.get(name, name) for name in direct})
    listed, used = set(tables[5]["model"]), set(tables[2]["model"])
    return (
        {"direct": int((table4["method"] == "Direct").sum()), "automated": int((table4["method"] == "Automated").sum())}
        | {"n_other": len(other), "other": "; ".join(other), "n_domains": len(domains), "n_left": len(left)}
        | {"left": "; ".join(left), "listed": ", ".join(sorted(listed - used)) or "none"}
        | {"used": ", ".join(sorted(used - listed)) or "none", "same": listed == used}
    )


def training(tables: Tables) -> Facts:
    """Steps, epochs and warm-up of Table 7, alpha of Table 6, and the counts of section 5.3."""
    setting, lora = (tables[n].set_index("parameter")["value"] for n in (7, 6))
    steps, sets = int(setting["Max Steps"]), tables[2].groupby(["model", "type"]).ngroups
    epoch = math.floor(tables[3]["speeches"].sum() * 0.8 / int(setting["Batch Size"]))
    return (
        {"steps": steps, "epoch": epoch, "two_epochs": 2 * epoch, "warmup": 100 * int(setting["Warmup Steps"]) / steps}
        | {"alpha": int(lora["LoRA Alpha"]) / int(lora["LoRA Rank (r)"]), "sets": sets, "rated": 27_560, "kept": 29_220}
        | {"a_rated": 27_560 / sets, "a_kept": 29_220 / sets, "rated_left": 27_560 % sets, "kept_left": 29_220 % sets}
    )


def distance_factor(table3: pd.DataFrame, guess: pd.Series) -> float:
    """Mean of Eq. 2's factor 1 - distance / 12 for a speaker whose orientation is drawn from `guess`, on Table 3's mix."""
    mix = _mix(table3)
    return float(
        sum(m * g * (1 - abs(ORIENTATION_SCALE[o] - ORIENTATION_SCALE[h]) / 12) for o, m in mix.items() for h, g in guess.items())
    )


def _mix(table3: pd.DataFrame) -> pd.Series:
    """Share of the speeches by orientation, where it has a place on the scale."""
    mix = table3[table3["orientation"].isin(ORIENTATION_SCALE)].groupby("orientation")["speeches"].sum()
    return mix / mix.sum()


def guessing(tables: Tables) -> Facts:
    """What PSA's distance factor is worth to a model that guesses."""
    always, drawn = distance_factor(tables[3], pd.Series({"Centre-right": 1.0})), distance_factor(tables[3], _mix(tables[3]))
    return {"always": always, "drawn": drawn, "best_guess": max(always, drawn)}


COMPUTED = {
    function.__name__: function
    for function in (
        *(header, sample_sizes, counts, t_tests, majority, minority, winners, effects, parties, topics, margins),
        *(stabilities, difficulties, corpus, mapping, training, guessing),
    )
}  # what `computed_by` in claims.csv may name
