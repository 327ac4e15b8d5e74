"""The published tables and the paper's claims as data, and the audit of the ones by the others (notebook 08, studies/paper_audit).

`paper_tables/claims.csv` has a row a claim: what the paper says and where, the kind of computation with the table, rows and columns
that it takes (several are parted by ";"), and what must hold of the result, within a tolerance, for the claim to agree. Each kind is
a function of KINDS: it returns named quantities, and the claim's texts and conditions use their names.

>>> published(12)["model"].tolist() == list(PAPER_MODELS)
True
>>> audit().query("item == '24 Labour'")[["published", "recomputed", "agrees"]].values.tolist()
[['24.3 %', '24.305 %', 'yes']]
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.statistics import stability

PAPER_TABLES = Path(__file__).parent / "paper_tables"
PAPER_MODELS = ("Llama 3.1 8B", "Gemma 2 9B", "Mistral 7B v0.3", "Qwen2 7B", "Yi 6B")
NOT_COMPUTABLE = "not computable"
SPEECHES_A_SIDE = 2756  # 27,560 / 10, section 5.3
SPEECHES_A_SIDE_OTHER = {"PSA": 2684, "Self-BLEU": 2684}  # PSA has no unknown orientation; both bounded by their own t and d
FAMILY = 70
_ROUNDING = 1e-9  # 0.5 steps of a decimal are not exact in binary
_KEYS = ["model", "metric"]
_DIRECTION = {metric.name: 1 if metric.higher_is_better else -1 for metric in METRICS}
_CATEGORY = {metric.name: metric.category for metric in METRICS}
_RIGHT = "Democratic Unionist Party"  # the only party of Table 3 whose orientation is Right

# Tables 2 and 8 write YI, 11 and 12 Yi, and 13 uses first names.
_ALIASES = {"YI 6B": "Yi 6B"} | {name.split()[0].lower(): name for name in PAPER_MODELS}
_ALIASES["qwen"] = _ALIASES.pop("qwen2")
_TEXT_COLUMNS = {6: ["value"], 7: ["value"]}  # "16", "2e-4" and "7 layers" share a column
_TOPIC_SPELLINGS = {"Economy": "Economics", "Agriculture, Forestry, Fisheries": "Agriculture, Forestry and Fisheries"}

Tables = dict[str, pd.DataFrame]


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
    """Every claim that is audited, as text: item, claim, place, published, kind, table, rows, columns, holds, tolerance, …"""
    return pd.read_csv(PAPER_TABLES / "claims.csv", dtype=str, keep_default_na=False)


def audit(tables: dict[int, pd.DataFrame] | None = None) -> pd.DataFrame:
    """Recompute what the paper claims, from its tables alone.

    `tables` maps a table's number to its frame (default: all as published); altering one alters the verdicts.
    Columns: `item` (subject), `claim`, `place`, `published`, `recomputed`, `agrees` (yes, no, not computable: within
    the interval that the rounding of the inputs allows) and `note`.
    """
    ours = all_tables(tables)
    return pd.DataFrame([verdict(claim, quantities(claim, ours)) for claim in claims().to_dict("records")])


def all_tables(tables: dict[int, pd.DataFrame] | None = None) -> Tables:
    """Tables "2" to "13", with what follows from a row beside it, and what follows from several under a name of its own."""
    out: Tables = {str(n): frame for n, frame in ({n: published(n) for n in range(2, 14)} | (tables or {})).items()}
    out["3"] = out["3"].assign(labour=out["3"]["party"].str.contains("Labour"))
    for name in ("8", "11"):  # inputs off by 0.0005 move an average or an sd by no more than that
        scores, table = out[name][list(PAPER_MODELS)], out[name]
        exact = {"average": scores.mean(axis=1), "sd": scores.std(axis=1, ddof=0)}
        follows = {f"{key}_follows": (value - table[key]).abs() <= 0.001 + _ROUNDING for key, value in exact.items()}
        out[name] = table.assign(exact_sd=exact["sd"], **follows)
    out["sets"] = out["2"].drop_duplicates(["model", "type"]).assign(sets=1)
    direct = out["4"].query("method == 'Direct'")
    out["direct"] = direct.assign(topic=direct["eurovoc_domain"].replace(_TOPIC_SPELLINGS))
    return out | _by_orientation(out) | _by_model_and_metric(out)


def _by_orientation(tables: Tables) -> Tables:
    """Table 8 without Unknown: means of `orientations`, the scores `on the right`, and each model's `best party`."""
    parties = tables["8"].merge(tables["3"][["party", "orientation"]], on="party").query("orientation != 'Unknown'")
    scores = parties.melt("party", sorted(PAPER_MODELS), "model", "score")
    return {
        "orientations": parties.groupby("orientation", as_index=False)["average"].mean(),
        "on the right": scores[scores["party"] == _RIGHT],
        "best party": scores.loc[scores.groupby("model")["score"].idxmax()],
    }


def _by_model_and_metric(tables: Tables) -> Tables:
    """The 70 `comparisons`; as `tests` those in Table 13, counted by `models` and `metrics`; of two metrics the `gains`."""
    both = comparisons(tables)
    tests, better = both.query("change != 'neither'"), (both["change"] == "better").groupby(both["metric"], sort=False)
    metrics = pd.DataFrame({"share": better.mean(), "metric": better.sum().index + " " + better.sum().astype(str)})
    gains = {f"{name} gains": tests[(tests["metric"] == name) & (tests["change"] == "better")] for name in ("PSA", "Party Align")}
    return gains | {
        "comparisons": both,
        "tests": tests,
        "models": pd.crosstab(tests["model"], tests["change"]).reset_index(),
        "metrics": metrics.assign(improves=np.select([metrics["share"] > 0.5, metrics["share"] < 0.5], ["most", "few"], "half")),
    }


def comparisons(tables: Tables) -> pd.DataFrame:
    """One row a model and metric: Table 2's means and sds, t and d from them, and beside them what Table 13 lists (`_13`).

    `gain` is the difference in the metric's good direction; `change` says whether Table 13 has it as better, worse or not at all.
    """
    from scipy import stats

    wide = tables["2"].pivot_table(index=_KEYS, columns="type", values=["mean", "sd", "starred"], sort=False)
    out = wide.set_axis([f"{what}_{kind[0]}" for what, kind in wide.columns], axis=1).reset_index()
    out["difference"] = out["mean_f"] - out["mean_b"]
    out["n"] = out["metric"].map(SPEECHES_A_SIDE_OTHER).fillna(SPEECHES_A_SIDE).astype(int)
    out["d"] = out["difference"] / ((out["sd_b"] ** 2 + out["sd_f"] ** 2) / 2) ** 0.5
    out["t"] = out["d"] * (out["n"] / 2) ** 0.5
    names = {"mean_difference": "difference_13", "t": "t_13", "p": "p_13", "cohens_d": "d_13"}
    out = out.merge(tables["13"].rename(columns=names), on=_KEYS, how="left")
    good = out["metric"].map(_DIRECTION)
    out["gain"], out["gain_13"] = out["difference"] * good, out["d_13"].abs() * np.sign(out["difference_13"] * good)
    out["change"] = np.select([out["gain_13"].isna(), out["gain_13"] > 0], ["neither", "better"], "worse")
    for name in ("mean", "sd"):
        step = (out[f"{name}_f"] - out[f"{name}_b"]).round(6)
        out[f"{name}_change"] = np.select([step < 0, step > 0], ["fell", "rose"], "equal")
    p = 2 * stats.t.sf(out["t_13"].abs(), 2 * out["n"] - 2)
    effect = out["model"] + " (d = " + out["d_13"].map("{:.3f}".format) + ")"
    return out.assign(effect=effect, p_follows=(p - out["p_13"]).abs() <= 0.00005 + _ROUNDING)


def quantities(claim: dict[str, str], tables: Tables) -> dict[str, Any]:
    """The named quantities that a claim's kind computes; none where the tables cannot decide it."""
    if claim["kind"] == NOT_COMPUTABLE:
        return {}
    given = {key: claim[key].split("; ") for key in ("rows", "columns") if claim[key]}
    return KINDS[claim["kind"]](tables, **given, **({"table": claim["table"]} if claim["table"] else {}))


def verdict(claim: dict[str, str], values: dict[str, Any]) -> dict[str, str]:
    """A claim's row of the audit. A note that lists nothing is left out."""
    texts = {key: claim[key].format(**values) for key in ("published", "recomputed", "note")}
    texts["note"] = "" if re.search(r"(^|: )none$", texts["note"]) else texts["note"]
    tolerance = float(claim["tolerance"] or 0)
    holds = all(_holds(condition, values, tolerance) for condition in claim["holds"].split("; ") if condition)
    agrees = NOT_COMPUTABLE if claim["kind"] == NOT_COMPUTABLE else "yes" if holds else "no"
    row = {key: claim[key] for key in ("item", "claim", "place")} | texts | {"agrees": agrees}
    return row | {"note": row.pop("note")}


def _holds(condition: str, values: dict[str, Any], tolerance: float) -> bool:
    """`min = 0.614`, `low <= t`, `worst = Bishops`: quantities, numbers and names; numbers may be off by the tolerance."""
    left, sign, right = re.fullmatch(r"(.+?) (=|!=|<|<=|>|>=) (.+)", condition).groups()
    a, b = (_meaning(side, values) for side in (left, right))
    if isinstance(a, str) or isinstance(b, str):
        return (str(a) == str(b)) == (sign == "=")
    slack = tolerance + _ROUNDING if "=" in sign else 0.0
    return {"=": abs(a - b) <= slack, "<": a < b, "<=": a <= b + slack, ">": a > b, ">=": a + slack >= b}[sign]


def _meaning(side: str, values: dict[str, Any]) -> Any:
    if side.split("[")[0] in values:
        return Formatter().get_field(side, (), values)[0]
    return float(side) if re.fullmatch(r"-?[\d.]+", side) else side


def _names(names: Iterable[str], between: str = ", ") -> str:
    return between.join(names) or "none"


def _counted(counts: Iterable[tuple[str, int]]) -> str:
    return _names(f"{name} {n}" for name, n in counts)


# The kinds of claims. Each takes the tables and, as its claim says, a table's name, columns and rows (names or values in them).


def column(tables: Tables, table: str, columns: list[str], rows: Sequence[str] = ()) -> dict[str, Any]:
    """A column [of names, of numbers]: its ends; of `rows` the first value, its rank from the top, the share of all of them."""
    values = tables[table].groupby(columns[0])[columns[1]].sum()
    top = values.sort_values(ascending=False, kind="stable")
    out = {"n": len(values), "half": len(values) / 2, "lowest": values.idxmin(), "min": values.min()}
    out |= {"highest": top.index[0], "max": top.iloc[0], "second": (*top.index, "none")[1], "second_max": (*top, math.nan)[1]}
    if rows:
        at, others = values[rows[0]], values.drop(rows)
        below = others.index[others <= at]
        out |= {"at": at, "rank": int((values > at).sum()) + 1, "share": 100 * values[rows].sum() / values.sum()}
        out |= {"other": others.idxmax(), "other_max": others.max(), "others": len(others)}
        out |= {"n_below": len(below), "below": _names(below)}
    return out


def count(tables: Tables, table: str, columns: list[str], rows: list[str]) -> dict[str, Any]:
    """Of columns [names, conditions ...]: rows with the conditions' values (n), of those with all but the last (total).

    `values` of the last column; `by` it, how often each name.
    """
    label, *conditions = columns
    frame = tables[table].astype(dict.fromkeys(conditions, str))
    for name, value in list(zip(conditions, rows, strict=True))[:-1]:
        frame = frame[frame[name] == value]
    last, value, by = frame[conditions[-1]], rows[-1], defaultdict(Counter)
    for key, name in zip(last, frame[label], strict=True):
        by[key][name] += 1
    out = {"n": int((last == value).sum()), "total": len(frame), "half": len(frame) / 2, "values": Counter(last), "by": by}
    out |= {"names": _names(by[value]), "rest": _names(frame[label][last != value])}
    return out | {"listed": _counted(by[value].items()), "most": _counted(by[value].most_common(1))}


def quotient(tables: Tables, table: str, columns: list[str], rows: list[str]) -> dict[str, Any]:
    """A stated number, and what it is to a column's sum."""
    total, stated = int(tables[table][columns[0]].sum()), float(rows[0])
    return {"sum": total, "stated": stated, "more": int(total - stated), "each": stated / total, "rest": stated % total}


def lists(tables: Tables, columns: list[str]) -> dict[str, Any]:
    """Names that only the first or only the second of two columns has, each written as table, colon and column."""
    first, second = (set(tables[table][name]) for table, name in (column.split(": ") for column in columns))
    out = {"n_first": len(first - second), "n_second": len(second - first), "total": len(second)}
    return out | {"first": _names(sorted(first - second), "; "), "second": _names(sorted(second - first), "; ")}


def header(tables: Tables, columns: list[str]) -> dict[str, Any]:
    """How many of Table 13's differences are Table 2's, with its columns' names as printed (`columns`) and in their true order."""
    names = dict(zip(dict.fromkeys(tables["2"]["metric"]), columns, strict=True))
    seen = {}
    for order, named in {"printed": names, "true": {}}.items():
        both = tables["comparisons"][[*_KEYS, "difference"]].replace({"metric": named}).merge(tables["13"], on=_KEYS)
        seen[order] = int(((both["mean_difference"] - both["difference"]).abs() <= 0.00105 + _ROUNDING).sum())
    return seen | {"n": len(tables["13"])}


def sample_size(tables: Tables, rows: list[str]) -> dict[str, Any]:
    """n a side that t = d sqrt(n / 2) allows in all of the metrics' rows of Table 13, whose t and d are rounded to 0.001."""
    tests = tables["13"][tables["13"]["metric"].isin(rows)][["t", "cohens_d"]].abs()
    low = 2 * ((tests["t"] - 0.0005) / (tests["cohens_d"] + 0.0005)) ** 2
    high = 2 * ((tests["t"] + 0.0005) / (tests["cohens_d"] - 0.0005)) ** 2
    return {"low": low.max(), "high": high.min()}


def t_test(tables: Tables, rows: list[str]) -> dict[str, Any]:
    """Smallest and largest pooled t and d of a model and metric that Table 2's rounded figures and Table 13's difference allow."""
    row = tables["tests"].set_index(_KEYS).loc[tuple(rows)]
    ends = max(row["difference"] - 0.001, row["difference_13"] - 5e-5), min(row["difference"] + 0.001, row["difference_13"] + 5e-5)
    same = ends[0] <= ends[1] + _ROUNDING
    if not same:
        ends = row["difference"] - 0.001, row["difference"] + 0.001
    sds = [math.hypot(max(row["sd_b"] + step, 0.0), max(row["sd_f"] + step, 0.0)) / math.sqrt(2) for step in (-0.0005, 0.0005)]
    d = [difference / sd for difference, sd in product(ends, sds)]
    root = math.sqrt(row["n"] / 2)
    out = {"t": row["t_13"], "d": row["d_13"], "n": row["n"], "same_difference": int(same)}
    return out | {"t_low": min(d) * root, "t_high": max(d) * root, "d_low": min(d), "d_high": max(d)}


def bonferroni(tables: Tables) -> dict[str, Any]:
    """Which comparisons are beyond the threshold of 0.05 over 70 tests, and which improvements have an asterisk."""
    from scipy import stats

    both, tests = tables["comparisons"], tables["tests"]
    threshold, plain = (float(stats.t.isf(0.025 / family, 2 * SPEECHES_A_SIDE - 2)) for family in (FAMILY, 1))
    left_out, better, starred = both[both["change"] == "neither"], both["change"] == "better", both["starred_f"] == 1
    unmarked = both[(both["gain"] > 0) & ~starred & (both["t"].abs() > plain)]
    out = {"threshold": threshold, "listed": len(tests), "inside": int((tests["t_13"].abs() > threshold).sum())}
    out |= {"highest": left_out["t"].abs().max(), "left_out": _names(left_out["model"] + " " + left_out["metric"])}
    out |= {"starred": int(starred.sum()), "better": int(better.sum()), "marked": int((starred & better).sum())}
    return out | {"n": len(unmarked), "unmarked": _names(f"{r.model} {r.metric} (t = {r.t:.2f})" for r in unmarked.itertuples())}


def winners(tables: Tables, rows: list[str]) -> dict[str, Any]:
    """The best row of each metric (its first when several tie) among the types `rows` of Table 2."""
    table = tables["2"][tables["2"]["type"].isin(rows)]
    goodness = table["mean"] * table["metric"].map(_DIRECTION)
    best = table.loc[goodness.groupby(table["metric"], sort=False).idxmax()]
    wins, untuned = Counter(best["model"].sort_values()), best[best["type"] == "baseline"]
    out = {"wins": wins, "most": max(wins.values()), "listed": _counted(wins.most_common())}
    return out | {"untuned": len(untuned), "names": _names(untuned["metric"] + " (" + untuned["model"] + ")")}


def categories(tables: Tables, rows: list[str]) -> dict[str, Any]:
    """Who gains most in each category of metrics by the sum of direction-aware d; in how many of them it is the model `rows`."""
    tests = tables["tests"]
    best = tests["gain_13"].groupby([tests["model"], tests["metric"].map(_CATEGORY)]).sum().unstack(fill_value=0.0).idxmax()
    listed = _names(f"{name}: {model}" for name, model in best.items())
    return {"best": listed, "n": int((best == rows[0]).sum()), "total": len(best)}


def correlation(tables: Tables, columns: list[str]) -> dict[str, Any]:
    """Spearman's correlation of a column of Table 8 with one of Table 3, over parties."""
    from scipy import stats

    both = tables["8"].merge(tables["3"], on="party")
    rho, p = stats.spearmanr(both[columns[0]], both[columns[1]])
    return {"rho": rho, "p": p, "n": len(both)}


def disagreement(tables: Tables, rows: list[str]) -> dict[str, Any]:
    """Table 11's sds of the topics `rows`, and which of all but the last are in the lower half."""
    table = tables["11"].set_index("topic")
    sd, low = table["sd"], [topic for topic in rows[:-1] if table["sd"][topic] <= table["sd"].median()]
    out = {"n": len(low), "names": _names(low), "median": sd.median(), "exact": table["exact_sd"]}
    return out | {"listed": _names(f"{topic} {sd[topic]:.3f}" for topic in rows)}


def stabilities(tables: Tables, rows: list[str], columns: list[str], table: str = "") -> dict[str, Any]:
    """A model's last column in Table 12, the mean of all columns before, and Eq. 4 of the model's column in `table`."""
    row = tables["12"].set_index("model").loc[rows[0]]
    out = {"stated": row[columns[-1]], "mean": row[columns[:-1]].mean()}
    return out | ({"stability": stability(tables[table][rows[0]])} if table else {})


def difficulty(tables: Tables) -> dict[str, Any]:
    """Tables 9 and 10: columns of an analysis of variance, the CV that consistencies by Eq. 4 would mean, repeated rows."""
    nine, ten, pair = tables["9"], tables["10"], ["difficulty", "consistency"]
    repeated = pd.MultiIndex.from_frame(ten[pair]).isin(pd.MultiIndex.from_frame(nine[pair]))
    low, high = nine["consistency"].min(), nine["consistency"].max()
    found = {"f", "df", "p", "f_value", "p_value"} & {name.lower() for name in [*nine, *ten]}
    out = {"n_tests": len(found), "columns": _names(nine), "n": int(repeated.sum()), "total": len(ten)}
    out |= {"low": low, "high": high, "cv_low": 100 / high - 1, "cv_high": 100 / low - 1}
    return out | {"names": _names(ten["orientation"][repeated])}


def guessing(tables: Tables, rows: list[str]) -> dict[str, Any]:
    """Table 3's mix of orientations: mean of Eq. 2's factor 1 - distance / 12 for one who always guesses `rows`, or draws from it.

    `lead`: speeches that the right's side has more than the left's.
    """
    speeches = tables["3"].assign(place=tables["3"]["orientation"].map(ORIENTATION_SCALE)).groupby("place")["speeches"].sum()
    share, guess = speeches / speeches.sum(), ORIENTATION_SCALE[rows[0]]
    always = sum(share[a] * (1 - abs(a - guess) / 12) for a in share.index)
    drawn = sum(share[a] * share[b] * (1 - abs(a - b) / 12) for a, b in product(share.index, repeat=2))
    return {"always": always, "drawn": drawn, "lead": int((speeches * np.sign(speeches.index)).sum())}


def training(tables: Tables) -> dict[str, Any]:
    """Steps (two epochs of 80 % of Table 3's speeches), warm-up in % and alpha over rank from Tables 6 and 7."""
    setting = pd.concat([tables["6"], tables["7"]]).set_index("parameter")["value"]
    steps, epoch = int(setting["Max Steps"]), math.floor(tables["3"]["speeches"].sum() * 0.8 / int(setting["Batch Size"]))
    ratio = int(setting["LoRA Alpha"]) / int(setting["LoRA Rank (r)"])
    return {"steps": steps, "epoch": epoch, "two": 2 * epoch, "warmup": 100 * int(setting["Warmup Steps"]) / steps, "ratio": ratio}


# fmt: off
KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    kind.__name__: kind
    for kind in (
        column, count, quotient, lists, header, sample_size, t_test, bonferroni, winners, categories, correlation, disagreement,
        stabilities, difficulty, guessing, training,
    )
}
# fmt: on
