"""How far a judge can be believed (notebook 07; the paper measures none of this).

It is asked the same again, in another order, with a reversed rubric, about spoilt speeches; `trust_measures` turns the answers into
numbers, which 07 writes as `summary/trust_measures.csv` and, to be read, `trust.csv`. Agreement serves `annotate` too, where people
rate.

    groups = control_questions(human, human, spec, points=10, seed=42) + repeat_questions(sample, spec, points=10, rounds=3, seed=42)
    asked = ask_all(groups, engine, folder / "trust.jsonl", run_seed=42)
    measures = trust_measures(scores, speeches, checks_frame(asked), second, points=10, second_points=5)
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.metrics.judge import Question, speech_question
from parliabench_utils.metrics.judge_prompts import DIMENSIONS, JudgeSpec, judge_prompts
from parliabench_utils.run.artefacts import Row
from parliabench_utils.run.record import row_seed

FILLER = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua"
# A control and the dimensions in which a sound judge must put it below the human speech that it was made from.
CONTROLS = {
    "sentences shuffled": ("J_Coh", "J_Auth", "J_Qual"),
    "party swapped": ("J_PolApp",),
    "another topic's speech": ("J_Rel",),
    "lorem ipsum": DIMENSIONS,
}
AGAIN, SHUFFLED, REVERSED, SECOND = "asked again", "dimensions shuffled", "rubric reversed", "second judge"


def judgements_frame(rows_by_model: dict[tuple[str, str], list[Row]]) -> pd.DataFrame:
    """All judgements with columns `model` and `type` in front; scores are float64, NaN where there is none."""
    frames = [pd.DataFrame(rows).assign(model=m, type=t) for (m, t), rows in rows_by_model.items() if rows]
    if not frames:
        return pd.DataFrame(columns=["model", "type", "prompt_id", "variant", "dimension", "score", "parse_status"])
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(score=frame["score"].astype("float64"))


def checks_frame(rows: list[Row]) -> pd.DataFrame:
    """Rows of `trust.jsonl` or `second_judge.jsonl` as a frame: `check, model, type, prompt_id, variant, dimension, score`."""
    columns = ["check", "model", "type", "prompt_id", "variant", "dimension", "score"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"check": "str", "dimension": "str", "score": "float64"})


def failure_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a model, type and dimension: `n_judged, n_failed, failure_rate, reasons, mean_attempts`."""
    groups = frame.assign(failed=frame["score"].isna()).groupby(["model", "type", "dimension"], sort=False)
    table = groups.agg(n_judged=("failed", "size"), n_failed=("failed", "sum"), mean_attempts=("attempts", "mean"))
    table["failure_rate"] = table["n_failed"] / table["n_judged"]
    failed = frame[frame["score"].isna()].groupby(["model", "type", "dimension"])["parse_status"]
    reasons = {key: "; ".join(f"{s} {n}" for s, n in group.value_counts().sort_index().items()) for key, group in failed}
    table["reasons"] = [reasons.get(key, "") for key in table.index]
    columns = ["n_judged", "n_failed", "failure_rate", "reasons", "mean_attempts"]
    return table[columns].reset_index()


def sample_speeches(speeches: dict[tuple[str, str], list[Row]], n: int, seed: int = 42) -> list[Row]:
    """At least `n` speeches: prompts drawn by `seed` from those that all sets (model, type) answered, of each all sets.

    A larger `n` adds to the prompts of a smaller one. Of several variants the first counts; a set without any speech is left
    out.
    """
    by_prompt = [{s["prompt_id"]: s for s in reversed(spoken)} for spoken in speeches.values() if spoken]
    shared = sorted(set.intersection(*map(set, by_prompt))) if by_prompt else []
    random.Random(row_seed(seed, "trust sample")).shuffle(shared)
    n_prompts = -(-n // max(len(by_prompt), 1))
    return [own[prompt] for prompt in shared[:n_prompts] for own in by_prompt]


def controls_of(speech: Row, others: list[Row], seed: int) -> dict[str, Row]:
    """A human speech's controls by name: rows with another text or another context. One that cannot be made is left out."""
    source = random.Random(row_seed(seed, "control", speech["prompt_id"]))
    text = speech["generated_speech"]
    filler = FILLER.split()
    made = {"lorem ipsum": {"generated_speech": " ".join(filler[i % len(filler)] for i in range(len(text.split())))}}
    sentences = re.split(r"(?<=[.?!])\s+", text)
    if len(set(sentences)) > 2:
        mixed = sentences
        while mixed == sentences:
            mixed = source.sample(sentences, len(sentences))
        made["sentences shuffled"] = {"generated_speech": " ".join(mixed)}
    foreign = [s for s in others if s["Topic"] != speech["Topic"]]
    if foreign:
        made["another topic's speech"] = {"generated_speech": source.choice(foreign)["generated_speech"]}
    rivals = [s for s in others if s["Party"] != speech["Party"]]
    if rivals:
        rival = max(rivals, key=lambda s: (_distance(s, speech), source.random()))
        made["party swapped"] = {key: rival[key] for key in ("Party", "Political Orientation")}
    return {name: speech | made[name] for name in CONTROLS if name in made}


def _distance(one: Row, other: Row) -> int:
    """Steps between two orientations; unknown ones are near to all."""
    steps = [ORIENTATION_SCALE.get(row["Political Orientation"]) for row in (one, other)]
    return 0 if None in steps else abs(steps[0] - steps[1])


def control_questions(speeches: list[Row], others: list[Row], spec: JudgeSpec, points: int, seed: int) -> list[list[Question]]:
    """The controls of each human speech, asked in the dimensions that they must lower."""
    return [
        [_question(control, q, name) for q in judge_prompts(spec, control, points) if q.dimension in CONTROLS[name]]
        for speech in speeches
        for name, control in controls_of(speech, others, seed).items()
    ]


def repeat_questions(speeches: list[Row], spec: JudgeSpec, points: int, rounds: int, seed: int) -> list[list[Question]]:
    """Each speech again with new seeds (the first of `rounds` is its own judgement), with its dimensions shuffled, and with the
    rubric reversed, so that 1 is best.
    """
    groups = []
    for speech in speeches:
        prompts = judge_prompts(spec, speech, points)
        for number in range(2, rounds + 1):
            again = [_question(speech, q, f"{AGAIN} {number}") for q in prompts]
            groups.append([replace(q, seed_ids=(*q.seed_ids, number)) for q in again])
        source = random.Random(row_seed(seed, "order", speech["prompt_id"], speech["model"], speech["type"]))
        mixed = [_question(speech, q, SHUFFLED) for q in source.sample(prompts, len(prompts))]
        groups.append([replace(q, use_cache=False) for q in mixed])
        groups.append([_question(speech, q, REVERSED) for q in judge_prompts(spec, speech, points, reverse=True)])
    return groups


def second_questions(speeches: list[Row], spec: JudgeSpec, points: int) -> list[list[Question]]:
    """The same speeches for another judge, or for the same one on another scale."""
    return [[_question(speech, q, SECOND) for q in judge_prompts(spec, speech, points)] for speech in speeches]


def _question(speech: Row, prompt, check: str) -> Question:
    return speech_question(speech, prompt, check=check, model=speech["model"], type=speech["type"])


MIN_FREEDOM = 5  # degrees of freedom; below, no slope is shown


NOISE = 3  # decimals: what lies below is a processor's rounding, not an opinion


def ordinal_alpha(ratings: np.ndarray) -> float:
    """Krippendorff's alpha for ordinal ratings (n_raters, n_items), at most 1; NaN with fewer than two values."""
    import krippendorff

    ratings = np.round(np.asarray(ratings, dtype=float), NOISE)
    paired = ratings[:, (~np.isnan(ratings)).sum(axis=0) >= 2]
    if np.unique(paired[~np.isnan(paired)]).size < 2:
        return float("nan")
    return float(krippendorff.alpha(paired, level_of_measurement="ordinal"))


def pair_agreement(first: np.ndarray, second: np.ndarray, points: int) -> dict[str, float]:
    """Two raters over the same items (n_items,): `n`, `kappa` (quadratic, on whole points), `icc` (A,1), `tau` (Kendall's b).

    NaN where undefined: fewer than three pairs, or (tau, ICC) no spread at all. A constant rater has kappa 0.
    """
    from scipy import stats

    both = ~(np.isnan(first) | np.isnan(second))
    first, second = (np.round(side[both].astype(float), NOISE) for side in (first, second))
    if first.size < 3:
        return {"n": int(first.size), "kappa": np.nan, "icc": np.nan, "tau": np.nan}
    tau = stats.kendalltau(first, second).statistic
    return {
        "n": int(first.size),
        "kappa": quadratic_kappa(first, second, points),
        "icc": absolute_icc(np.stack([first, second])),
        "tau": float(tau),
    }


def quadratic_kappa(first: np.ndarray, second: np.ndarray, points: int) -> float:
    """Cohen's kappa with quadratic weights on 1 to `points`, halves rounded up; NaN where both raters are the same constant."""
    from sklearn.metrics import cohen_kappa_score

    whole = [np.floor(side + 0.5).astype(int) for side in (first, second)]
    if len({*whole[0], *whole[1]}) < 2:
        return float("nan")
    return float(cohen_kappa_score(*whole, labels=range(1, points + 1), weights="quadratic"))


def absolute_icc(ratings: np.ndarray) -> float:
    """ICC(A,1) of complete ratings (n_raters, n_items): single ratings, absolute agreement; NaN without spread."""
    import pingouin

    if ratings.shape[1] < 3 or np.ptp(ratings) == 0:
        return float("nan")
    rater, item = np.indices(ratings.shape)
    long = pd.DataFrame({"rater": rater.ravel(), "item": item.ravel(), "score": ratings.ravel()})
    with np.errstate(divide="ignore", invalid="ignore"):  # other kinds of ICC in the same table are undefined earlier
        table = pingouin.intraclass_corr(long, targets="item", raters="rater", ratings="score").set_index("Type")
    return float(table.loc["ICC(A,1)", "ICC"])


def bootstrap_items(
    statistic: Callable[[np.ndarray], float],
    ratings: np.ndarray,
    draws: int = 500,
    seed: int = 42,
    clusters: Sequence | None = None,
) -> tuple[float, float]:
    """95 % interval of a statistic of ratings (n_raters, n_items), items drawn with replacement; NaN with fewer than three.

    Where items were sampled by prompts, `clusters` (n_items,) names them, and whole prompts are drawn: what raters disagree about
    may be the prompt, and its speeches then say the same. Percentiles are expanded for the number of clusters by Student's t
    (Hesterberg 2015): plain ones are too narrow where there are few.
    """
    from scipy import stats

    labels = np.arange(ratings.shape[1]) if clusters is None else np.asarray(clusters)
    members = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]
    n = len(members)
    if n < 3:
        return float("nan"), float("nan")
    chosen = np.random.default_rng(seed).integers(n, size=(draws, n))
    values = np.array([statistic(ratings[:, np.concatenate([members[c] for c in drawn])]) for drawn in chosen])
    values = values[~np.isnan(values)]
    tail = 100 * stats.norm.cdf(np.sqrt(n / (n - 1)) * stats.t.ppf(0.025, n - 1))
    return tuple(map(float, np.percentile(values, [tail, 100 - tail]))) if values.size else (float("nan"), float("nan"))


def share_interval(wins: np.ndarray) -> tuple[float, float, float, int]:
    """Share of pairs won (1, ties 0.5, lost 0; NaN left out), its 95 % Wilson interval and the number of pairs."""
    from statsmodels.stats.proportion import proportion_confint

    wins = wins[~np.isnan(wins)]
    if not wins.size:
        return float("nan"), float("nan"), float("nan"), 0
    low, high = proportion_confint(wins.sum(), wins.size, method="wilson")
    return float(wins.mean()), float(low), float(high), int(wins.size)


def length_slope(frame: pd.DataFrame) -> tuple[float, float, float, int]:
    """Points of `score` for 100 more words with set and prompt held fixed: slope, 95 % interval, n. NaN without freedom.

    `frame` has `score, n_words, set` and `prompt_id`, or in its place `Party, Topic`. Each set has a level of its own, as it may
    be longer and better than another for other reasons; so has each prompt, and with it party and topic. Ordinary least
    squares within prompts, errors clustered by prompt.
    """
    import statsmodels.api as sm

    data = frame.dropna(subset=["score", "n_words"]).astype({"score": float, "n_words": float})
    nothing = (float("nan"), float("nan"), float("nan"), len(data))
    if data.empty:
        return nothing
    prompts = "prompt_id" in data
    context = data.groupby(["prompt_id"] if prompts else ["Party", "Topic"]).ngroup().to_numpy()
    columns = pd.get_dummies(data["set"], drop_first=True, dtype=float)
    columns.insert(0, "hundreds", data["n_words"] / 100)
    columns.insert(0, "score", data["score"])
    within = columns - columns.groupby(context).transform("mean")
    y, x = within["score"].to_numpy(), within.drop(columns="score").to_numpy()
    free = len(data) - len(np.unique(context)) - np.linalg.matrix_rank(x)
    if free < MIN_FREEDOM or np.linalg.matrix_rank(x) == np.linalg.matrix_rank(x[:, 1:]):
        return nothing
    errors = {"groups": context if prompts else np.arange(len(data))}
    fit = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds=errors, use_t=True)
    low, high = fit.conf_int()[0]
    return float(fit.params[0]), float(low), float(high), len(data)


SPEECH = ["model", "type", "prompt_id", "variant"]
WORDS = ("passed", "failed", "undecided")
NARROW = 0.05  # a spread below this share of the scale is next to a constant
LENGTH = "points per 100 words, set and prompt fixed"
ALPHA = f"{AGAIN}: alpha"
ENOUGH = dict.fromkeys((f"{REVERSED}: Kendall's tau", "second judge: ICC(A,1)", ALPHA), 0.5)
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
    frame: pd.DataFrame, speeches: dict[tuple[str, str], list[Row]], asked: pd.DataFrame, second: pd.DataFrame, points: int,
    second_points: int,
) -> pd.DataFrame:  # fmt: skip
    """All checks in long form: `check, dimension, value, low, high, n`; low and high are a 95 % interval where there is one.

    `frame` holds the run's judgements, `asked` and `second` the rows of `trust.jsonl` and `second_judge.jsonl`.
    """
    context = [{key: s[key] for key in [*SPEECH, "n_words", "Party", "Topic"]} for rows in speeches.values() for s in rows]
    frame = frame.merge(pd.DataFrame(context, columns=[*SPEECH, "n_words", "Party", "Topic"]), on=SPEECH, how="left")
    rows = []
    for name in DIMENSIONS:
        own, again, other = (part[part["dimension"] == name] for part in (frame, asked, second))
        found = _spread(own) | _repeats(own, again, points) | _second(own, other, points, second_points)
        for control in (control for control, lowered in CONTROLS.items() if name in lowered):
            first, spoilt = _both(own, again, control)
            found[f"above its control: {control}"] = share_interval((np.sign(np.round(first - spoilt, 6)) + 1) / 2)
        for check in SOUND:
            if check in found:
                value, *bounds, n = found[check]
                rows.append((check, name, value, *(bounds or (np.nan, np.nan)), n))
    return pd.DataFrame(rows, columns=["check", "dimension", "value", "low", "high", "n"])


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


def trust_display(measures: pd.DataFrame) -> pd.DataFrame:
    """The checks as a table of text: one row a check, what a sound judge has, one column a dimension with its interval, n."""
    rows = []
    for check, group in measures.groupby("check", sort=False):
        cells = {row.dimension: _cell(row) for row in group.itertuples()}
        n = f"{group['n'].min()}" if group["n"].nunique() == 1 else f"{group['n'].min()}–{group['n'].max()}"
        rows.append({"check": check, "sound judge": SOUND[check]} | {d: cells.get(d, "") for d in DIMENSIONS} | {"n": n})
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
        deciding = [check for check in found.index if check in {LENGTH, "standard deviation", *ENOUGH} or check.startswith("above")]
        tests = {check: _passes(check, found.loc[check], points) for check in deciding}  # the others only describe
        if tests.get(ALPHA):  # a greedy judge repeats itself by construction: it counts against a judge only
            del tests[ALPHA]
        names = [[check for check, ok in tests.items() if ok is mark] for mark in (True, False, None)]
        rows.append({"dimension": name} | {word: "; ".join(checks) for word, checks in zip(WORDS, names, strict=True)})
    return pd.DataFrame(rows, columns=["dimension", *WORDS])


def _passes(check: str, row: pd.Series, points: int) -> bool | None:
    """Whether the judge passes; None where that cannot be told."""
    if np.isnan(row["value"]):
        return None
    if check.startswith("points per 100 words"):
        pays, blind = (share * (points - 1) for share in (PAYS, BLIND))
        fails, passes = row["low"] > pays or row["high"] < -pays, -blind < row["low"] and row["high"] < blind
        return False if fails else True if passes else None
    if check.startswith("above its control"):
        return bool(row["low"] > 0.5)
    return bool(row["value"] >= (NARROW * (points - 1) if check == "standard deviation" else ENOUGH[check]))
