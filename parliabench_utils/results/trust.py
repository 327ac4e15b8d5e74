"""How far a judge can be believed, in numbers: spread, length, repetition, order, rubric, a second judge, controls.

`metrics.judge_trust` asks; this counts. Notebook 07 writes the numbers as `07_judge/summary/trust_measures.csv`, and as a table to be
read, which the report shows too, `trust.csv`.

    measures = trust_measures(scores, speeches, asked, second, points=10, second_points=5)
    trust_display(measures)
"""

import numpy as np
import pandas as pd

from parliabench_utils.metrics.judge_trust import AGAIN, CONTROLS, REVERSED, SHUFFLED
from parliabench_utils.models.judge_prompting import DIMENSIONS
from parliabench_utils.results.agreement import (
    absolute_icc,
    length_slope,
    ordinal_alpha,
    pair_agreement,
    quadratic_kappa,
    share_interval,
)
from parliabench_utils.run.artefacts import Row

SPEECH = ["model", "type", "prompt_id", "variant"]
NARROW = 0.05  # a spread below this share of the scale is next to a constant
LENGTH = "points per 100 words, set and prompt fixed"
# Shares of the scale for 100 words: a judge that surely pays more than the first rewards length, one that surely pays less than
# the second does not (an equivalence bound); between them there are too few speeches to tell.
PAYS, BLIND = 0.025, 0.1
# check -> what a sound judge has
SOUND = {
    "mean score": "",
    "standard deviation": "well above 0",
    "different scores": "many",
    "human minus models": "above 0",
    LENGTH: "0",
    f"{AGAIN}: standard deviation": "0",
    f"{AGAIN}: alpha": "1",
    f"{SHUFFLED}: largest change": "0",
    f"{REVERSED}: Kendall's tau": "1",
    f"{REVERSED}: change of the mean": "0",
    "second judge: quadratic kappa": "1",
    "second judge: ICC(A,1)": "1",
    "second judge: Kendall's tau of the sets": "1",
    **{f"above its control: {name}": "1" for name in CONTROLS},
}


def trust_measures(
    frame: pd.DataFrame,
    speeches: dict[tuple[str, str], list[Row]],
    asked: pd.DataFrame,
    second: pd.DataFrame,
    points: int,
    second_points: int,
) -> pd.DataFrame:
    """All checks in long form: `check, dimension, value, low, high, n`; low and high are a 95 % interval where there is one.

    `frame` holds the run's judgements, `asked` and `second` the rows of `trust.jsonl` and `second_judge.jsonl`.
    """
    context = [
        {key: s[key] for key in [*SPEECH, "n_words", "Party", "Topic"]} for rows in speeches.values() for s in rows
    ]
    frame = frame.merge(pd.DataFrame(context, columns=[*SPEECH, "n_words", "Party", "Topic"]), on=SPEECH, how="left")
    rows = []
    for name in DIMENSIONS:
        own, again, other = (part[part["dimension"] == name] for part in (frame, asked, second))
        found = _spread(own) | _repeats(own, again, points) | _second(own, other, points, second_points)
        found |= {f"above its control: {c}": _control(own, again, c) for c, ds in CONTROLS.items() if name in ds}
        rows += [(check, name, *_filled(found[check])) for check in SOUND if check in found]
    return pd.DataFrame(rows, columns=["check", "dimension", "value", "low", "high", "n"])


def _filled(value: tuple) -> tuple:
    """(value, low, high, n) of (value, n) or of all four."""
    return value if len(value) == 4 else (value[0], np.nan, np.nan, value[1])


def _spread(own: pd.DataFrame) -> dict[str, tuple]:
    scores, human = own["score"].dropna(), own["type"] == "human"
    n = len(scores)
    return {
        "mean score": (scores.mean(), n),
        "standard deviation": (scores.std(), n),
        "different scores": (float(scores.round(3).nunique()), n),
        "human minus models": (own.loc[human, "score"].mean() - own.loc[~human, "score"].mean(), n),
        LENGTH: length_slope(own.assign(set=own["model"] + "/" + own["type"])),
    }


def _both(own: pd.DataFrame, again: pd.DataFrame, check: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the same speeches: the run's own, and under the check."""
    pairs = own.merge(again[again["check"] == check], on=SPEECH, suffixes=("", "_again"))
    pairs = pairs.dropna(subset=["score", "score_again"])
    return pairs["score"].to_numpy(float), pairs["score_again"].to_numpy(float)


def _repeats(own: pd.DataFrame, again: pd.DataFrame, points: int) -> dict[str, tuple]:
    rounds = again[again["check"].str.startswith(AGAIN)].pivot_table(index=SPEECH, columns="check", values="score")
    table = rounds.join(own.set_index(SPEECH)["score"], how="left").to_numpy(float)  # (n_speeches, rounds)
    rated = (~np.isnan(table)).sum(axis=1) >= 2  # of one rating there is nothing to compare
    spreads = np.nanstd(table[rated], axis=1, ddof=1)
    first, mixed = _both(own, again, SHUFFLED)
    straight, turned = _both(own, again, REVERSED)
    turned = points + 1 - turned
    return {
        f"{AGAIN}: standard deviation": (_mean(spreads), spreads.size),
        f"{AGAIN}: alpha": (ordinal_alpha(table.T) if table.size else np.nan, spreads.size),
        f"{SHUFFLED}: largest change": (np.abs(first - mixed).max() if first.size else np.nan, first.size),
        f"{REVERSED}: Kendall's tau": (pair_agreement(straight, turned, points)["tau"], straight.size),
        f"{REVERSED}: change of the mean": (_mean(turned - straight), straight.size),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else np.nan


def _second(own: pd.DataFrame, other: pd.DataFrame, points: int, second_points: int) -> dict[str, tuple]:
    """Agreement with the second judge, its scale stretched to the first's; tau over the sets' means on the same speeches."""
    if other.empty:
        return {}
    pairs = own.merge(other, on=SPEECH, suffixes=("", "_other")).dropna(subset=["score", "score_other"])
    pairs["score_other"] = 1 + (pairs["score_other"] - 1) * (points - 1) / (second_points - 1)
    first, second = pairs["score"].to_numpy(float), pairs["score_other"].to_numpy(float)
    means = pairs.groupby(["model", "type"])[["score", "score_other"]].mean().to_numpy()
    return {
        "second judge: quadratic kappa": (quadratic_kappa(first, second, points), len(pairs)),
        "second judge: ICC(A,1)": (absolute_icc(np.stack([first, second])), len(pairs)),
        "second judge: Kendall's tau of the sets": (pair_agreement(*means.T, points)["tau"], len(means)),
    }


def _control(own: pd.DataFrame, again: pd.DataFrame, control: str) -> tuple:
    first, spoilt = _both(own, again, control)
    return share_interval((np.sign(np.round(first - spoilt, 6)) + 1) / 2)


def trust_display(measures: pd.DataFrame) -> pd.DataFrame:
    """The checks as a table of text: one row a check, what a sound judge has, one column a dimension with its interval, n."""
    rows = []
    for check, group in measures.groupby("check", sort=False):
        cells = {row.dimension: _cell(row) for row in group.itertuples()}
        n = f"{group['n'].min()}" if group["n"].nunique() == 1 else f"{group['n'].min()}–{group['n'].max()}"
        rows.append(
            {"check": check, "sound judge": SOUND[check]} | {d: cells.get(d, "") for d in DIMENSIONS} | {"n": n}
        )
    return pd.DataFrame(rows)


def _cell(row) -> str:
    if np.isnan(row.value):
        return "—"
    text = f"{row.value:.0f}" if row.check == "different scores" else f"{row.value:.2f}"
    return text if np.isnan(row.low) else f"{text} [{row.low:.2f}, {row.high:.2f}]"


def verdicts(measures: pd.DataFrame, points: int) -> pd.DataFrame:
    """One row a dimension: `dimension, passed, failed, undecided` (names of checks).

    Undecided is what could not be measured, or only too coarsely to tell; it is not passed.
    """
    rows = []
    for name in DIMENSIONS:
        found = measures[measures["dimension"] == name].set_index("check")
        tests = {check: _passes(check, found.loc[check], points) for check in found.index if _decides(check)}
        if tests.get(ALPHA):  # a greedy judge repeats itself by construction: it counts against a judge only
            del tests[ALPHA]
        names = [[check for check, ok in tests.items() if ok is mark] for mark in (True, False, None)]
        rows.append({"dimension": name} | {word: "; ".join(checks) for word, checks in zip(WORDS, names, strict=True)})
    return pd.DataFrame(rows, columns=["dimension", *WORDS])


WORDS = ("passed", "failed", "undecided")
ALPHA = f"{AGAIN}: alpha"
ENOUGH = dict.fromkeys((f"{REVERSED}: Kendall's tau", "second judge: ICC(A,1)", ALPHA), 0.5)


def _decides(check: str) -> bool:
    """Whether a check speaks for or against a judge; the others only describe."""
    slope = check.startswith("points per 100 words")
    return slope or check in ENOUGH or check == "standard deviation" or check.startswith("above its control")


def _passes(check: str, row: pd.Series, points: int) -> bool | None:
    """Whether the judge passes; None where that cannot be told."""
    if np.isnan(row["value"]):
        return None
    if check.startswith("points per 100 words"):
        return _blind_to_length(row["low"], row["high"], points)
    if check.startswith("above its control"):
        return bool(row["low"] > 0.5)
    return bool(row["value"] >= (NARROW * (points - 1) if check == "standard deviation" else ENOUGH[check]))


def _blind_to_length(low: float, high: float, points: int) -> bool | None:
    pays, blind = (share * (points - 1) for share in (PAYS, BLIND))
    if low > pays or high < -pays:
        return False
    return True if -blind < low and high < blind else None
