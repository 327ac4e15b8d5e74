"""Does Party Align measure politics? Tests of the metric itself on human speeches, whose party is known.

Used by notebook 06, which writes the table as `summary/validation.csv`. A metric of politics should go on knowing parties when
topic, House and office are held fixed, when courtesy forms and party names are hidden, and when every speech is cut to the same
length. Centroids are always made from other speeches than those scored, with three splits: at random, debates kept apart, members
kept apart.

What is chance? Members have habits, and centroids of few members are poor: even odds (one in so many parties) are not what
a metric without politics gives. So the whole procedure, folds and centroids too, is run again with members dealt to
parties by lot, under each condition and split; its mean is that split's chance. The interval of a measure is the test turned
round: it holds chance exactly where the test does not reject, which without politics happens in 95 % of corpora, with any number
of members. (Drawing members again does not: centroids of a few members drawn twice are worse than the true ones.)

    controls = conditions(human, encoder.encode)
    table = validate(controls, human, folds=5, shuffles=200, seed=42)      # the columns of COLUMNS
    print("\\n".join(findings(table)))                                      # in words, none of them written beforehand
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse, stats
from threadpoolctl import threadpool_limits

from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.metrics.alignment import WIDEST, context_key, residuals
from parliabench_utils.metrics.distinct import first_words
from parliabench_utils.metrics.table import ROUNDING, settled
from parliabench_utils.models.embeddings import unit_rows

SPLITS = {"random": None, "by debate": "debate", "by speaker": "speaker_id"}
COLUMNS = ["condition", "split", "check", "statistic", "value", "low", "high", "n"]
ALL, FIRST_WORDS = "all speeches", 150
LOT = "labels shuffled over"
BEST = "always the best constant"

Key = tuple[str, str]  # check, statistic
MARGIN: Key = ("margin", "mean over the best other party")
ACCURACY: Key = ("nearest party", "balanced accuracy")
EVEN: Key = ("nearest party", "one party in those that speak")
CHANCE: Key = ("nearest party", "chance")
AUC: Key = ("AUC", "own against others, mean of parties")
F: Key = ("ANOVA", "F, true centroids")
ETA: Key = ("ANOVA", "eta squared, true centroids")
ETA_DERANGED: Key = ("ANOVA", "eta squared, deranged centroids: mean")
GAP: Key = ("ANOVA", "eta squared, true less deranged")
# What labels dealt by lot are compared on, each with its range: the others are levels, not differences between parties.
TESTED = {MARGIN: (-2.0, 2.0), ACCURACY: (0.0, 1.0), AUC: (0.0, 1.0), ETA: (0.0, 1.0), GAP: (-1.0, 1.0)}

# What members call parties, beside the corpus's names. "Green", "Alliance" and "Alba" alone are as often something else.
_NICKNAMES = (
    r"Conservatives?", r"Tory", r"Tories", r"(?:New )?Labour", r"Co-operative [Pp]arty", r"SNP", r"Nationalists?",
    r"Lib(?:eral)? Dem(?:ocrat)?s?", r"Liberals?", r"DUP", r"UUP", r"SDLP", r"(?:Democratic |Ulster )?Unionists?",
    r"Sinn F[eé]in", r"Plaid(?: Cymru)?", r"Greens", r"Green [Pp]arty", r"Alliance [Pp]arty", r"Alba [Pp]arty", r"UKIP",
    r"Brexit [Pp]arty", r"Reform UK", r"Change UK", r"Independent Group", r"Cross[- ]?[Bb]ench(?:er)?s?",
)  # fmt: skip
_NOT_A_NAME = {"Independent", "Non-Affiliated"}  # words that members use of much else
_ADDRESS = re.compile(r",?\s*\b(?:My Lords|(?:Mr|Madam)\.? (?:Deputy )?(?:Speaker|Chairman|Chair))\b,?")
_WORD = r"[A-Z][\w’'-]+"
_PLACE = rf"{_WORD}(?:\s+(?:(?:and|of|upon|on|under|the)\s+)*{_WORD})*"
_TITLED = rf"(?:Lord|Lady|Baroness|Viscount|Earl|Bishop)\s+(?:of\s+)?{_PLACE}"
# "Member for Birmingham, Erdington (Mrs ...)": a second place belongs to the seat where the name in brackets follows.
_SEAT = rf"Members?\s+for\s+{_PLACE}(?:,\s+{_PLACE}(?=\s+\())?(?:\s+\([^)]*\))?"
_STYLE = r"(?:[Rr]ight\s+)?(?:[Hh]on(?:\.|ourable\b)|[Nn]oble|[Rr]everend)(?:(?:,|\s+and)\s+(?:learned|gallant|reverend))*"
_NOUN = r"(?:[Ff]riends?|Members?|Gentlem[ae]n|Lad(?:y|ies)|Lords?|Baroness(?:es)?|Viscount|Earls?|Prelates?)"
_WHO = r"(?:(?:[Mm]y|[Tt]he|[Tt]hat|[Tt]his|[Hh]is|[Hh]er|[Oo]ur|[Aa]n?)\s+)?"
_PERSON = re.compile(rf"\b{_WHO}(?:{_STYLE}\s+(?:{_SEAT}|{_NOUN}\b(?:,?\s+(?:the\s+)?(?:{_SEAT}|{_TITLED}))?)|{_SEAT}|{_TITLED})")


def masker(parties: Sequence[str]) -> Callable[[str], str]:
    """A function that hides courtesy forms, members named by seat or title, and names of parties, case by case.

    What a speech says of "the Government" and "the Opposition" stays: it is half of what there is to say.
    """
    names = [re.escape(name) for name in parties if name not in _NOT_A_NAME]
    longest_first = sorted({*names, *_NICKNAMES}, key=lambda name: (-len(name), name))
    party = re.compile(rf"\b(?:{'|'.join(longest_first)})(?:\s+[Pp]arty)?\b")
    return lambda text: " ".join(party.sub("party", _PERSON.sub("a member", _ADDRESS.sub("", text))).split())


@dataclass(frozen=True)
class Condition:
    """How human speeches are tested: their vectors (n, d), which `rows` (n,) take part, within which `strata` (n,) they
    are compared, and in which `contexts` they are made residual (None: not)."""

    name: str
    vectors: np.ndarray
    rows: np.ndarray
    strata: np.ndarray
    contexts: Sequence[str] | None = None

    def only(self, rows: np.ndarray) -> "Condition":
        """The same condition for these row numbers alone."""
        contexts = None if self.contexts is None else [self.contexts[row] for row in rows]
        return Condition(self.name, self.vectors[rows], self.rows[rows], self.strata[rows], contexts)


def conditions(human: pd.DataFrame, encode: Callable[[list[str]], np.ndarray]) -> list[Condition]:
    """All conditions for speeches with `Speech, Party, Topic, House, is_government`; the first one changes nothing."""
    texts, office = human["Speech"].tolist(), human["is_government"].to_numpy(dtype=bool)
    everyone, together = np.ones(len(human), dtype=bool), np.zeros(len(human), dtype=int)
    topic, house = (pd.factorize(human[key].fillna("Unknown"), sort=True)[0] for key in ("Topic", "House"))
    contexts = [context_key(*pair) for pair in zip(human["House"], human["Topic"], strict=True)]
    vectors, hide = encode(texts), masker(sorted(human["Party"].unique()))
    cut = encode([first_words(text, FIRST_WORDS) for text in texts])
    return [
        Condition(ALL, vectors, everyone, together),
        Condition("within topic", vectors, everyone, topic),
        Condition("within House", vectors, everyone, house),
        Condition("within government", vectors, office, together),
        Condition("outside government", vectors, ~office, together),
        Condition("names masked", encode([hide(text) for text in texts]), everyone, together),
        Condition(f"first {FIRST_WORDS} words", cut, everyone, together),
        Condition("residual", vectors, everyone, together, contexts),
    ]


@dataclass(frozen=True)
class Scored:
    """Held-out speeches: cosines `table` (n, n_parties), NaN where a party has no centroid; own party's column `codes`
    (n,); `strata` (n,) within which they are compared; `rows` (n,), their places among all speeches."""

    table: np.ndarray
    codes: np.ndarray
    strata: np.ndarray
    rows: np.ndarray

    def shifted(self, k: int) -> np.ndarray:
        """Cosine to the centroid of the party k places on, (n,); k = 0 is the own party."""
        return self.table[np.arange(len(self.codes)), (self.codes + k) % self.table.shape[1]]


def measures(scored: Scored) -> dict[Key, float]:
    """(check, statistic) -> value."""
    own, others = scored.shifted(0), scored.table.copy()
    others[np.arange(len(own)), scored.codes] = np.nan
    best = np.nanmax(others, axis=1)
    f, true = anova(own, scored.codes, scored.strata)
    aucs = [auc(scored.table[:, code], scored.codes == code, scored.strata) for code in np.unique(scored.codes)]
    deranged = _mean([eta for _, _, eta in wrong_anovas(scored)])
    return {
        ("cosine", "own party, mean"): float(own.mean()),
        ("cosine", "other parties, mean"): float(np.nanmean(others, axis=1).mean()),
        MARGIN: float((own - best).mean()),
        ACCURACY: _balanced(own > best, scored),
        EVEN: _balanced(_even(scored), scored),
        AUC: _mean(aucs),
        F: f,
        ETA: true,
        ETA_DERANGED: deranged,
        GAP: true - deranged,
    }


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def _balanced(values: np.ndarray, scored: Scored) -> float:
    """Mean over parties of a party's mean, in each stratum; then over strata by their speeches.

    Big parties do not rule it, and a party that speaks on one topic above all is not found for that.
    """
    width = scored.table.shape[1]
    cells, cell = np.unique(scored.strata * width + scored.codes, return_inverse=True)
    counts = np.bincount(cell)
    stratum = np.unique(cells // width, return_inverse=True)[1]
    means = np.bincount(stratum, weights=np.bincount(cell, weights=values) / counts) / np.bincount(stratum)
    return float(means @ np.bincount(stratum, weights=counts) / len(values))


def _even(scored: Scored) -> np.ndarray:
    """What even odds would give: one in the parties that speak in a speech's stratum, less where speeches are nearest to parties
    that do not, (n,)."""
    found, value = np.nanargmax(scored.table, axis=1), np.empty(len(scored.codes))
    for stratum in np.unique(scored.strata):
        rows = scored.strata == stratum
        spoken = np.unique(scored.codes[rows])
        value[rows] = np.isin(found[rows], spoken).mean() / len(spoken)
    return value


def auc(scores: np.ndarray, own: np.ndarray, strata: np.ndarray) -> float:
    """Share of (own, other) pairs of one stratum in which the own speech scores higher, ties half; NaN without a pair."""
    known = ~np.isnan(scores)
    own, place = own[known], np.unique(strata[known], return_inverse=True)[1]
    rank = stats.rankdata(scores[known] + 4.0 * place)  # cosines: strata lie apart, in their order
    counts, mine = np.bincount(place), np.bincount(place, weights=own)
    below = np.cumsum(counts) - counts
    wins = np.bincount(place, weights=own * (rank - below[place])) - mine * (mine + 1) / 2
    pairs = mine * (counts - mine)
    return float(wins[pairs > 0].sum() / pairs.sum()) if pairs.sum() else np.nan


def anova(scores: np.ndarray, groups: np.ndarray, strata: np.ndarray | None = None) -> tuple[float, float]:
    """One-way F and eta squared (share of the spread that lies between groups); NaN where no spread can lie within.

    With `strata`, each score counts as its difference to its stratum's mean, and F pays a degree of freedom for each.
    """
    known = ~np.isnan(scores)
    scores, codes = scores[known], np.unique(groups[known], return_inverse=True)[1]
    strata = np.zeros(len(codes), dtype=int) if strata is None else np.unique(strata[known], return_inverse=True)[1]
    n_groups = len(np.unique(codes))
    free = len(codes) - n_groups - len(np.unique(strata)) + 1
    if n_groups < 2 or free < 1:
        return float("nan"), float("nan")
    centred = scores - (np.bincount(strata, weights=scores) / np.bincount(strata))[strata]
    scores = settled(centred, np.abs(scores).max(initial=0.0))  # what is only rounding becomes 0, here and below
    sums, counts, squares = np.bincount(codes, weights=scores), np.bincount(codes), (scores**2).sum()
    between = (sums**2 / counts).sum() - scores.sum() ** 2 / len(scores)
    within = ((scores - (sums / counts)[codes]) ** 2).sum()
    between, within = (float(part) if part > ROUNDING * squares else 0.0 for part in (between, within))
    f = (between / (n_groups - 1)) / (within / free) if within > 0 else float("nan")
    return f, between / (between + within) if between + within > 0 else float("nan")


def wrong_anovas(scored: Scored) -> list[tuple[int, float, float]]:
    """(k, F, eta squared) for every k: party i scored on the centroid of party i + k. Nobody meets his own party."""
    return [(k, *anova(scored.shifted(k), scored.codes, scored.strata)) for k in range(1, scored.table.shape[1])]


def folds_of(units: np.ndarray, codes: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold number for each speech; speeches of one unit share a fold, and each party's units are spread over the folds.

    Were they not, the party of which a fold holds many would have the poorer centroid just there, and chance would lie
    below even odds.
    """
    units = np.unique(units, return_inverse=True)[1]
    labels = _commonest(units, codes)
    number = np.empty(len(labels), dtype=int)
    number[np.lexsort((rng.random(len(labels)), labels))] = np.arange(len(labels)) % folds
    return number[units]


def _commonest(groups: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The commonest code of each group, (n_groups,); the first of equal ones."""
    counts = np.zeros((groups.max(initial=-1) + 1, codes.max(initial=0) + 1), dtype=int)
    np.add.at(counts, (groups, codes), 1)
    return counts.argmax(axis=1)


def score(control: Condition, codes: np.ndarray, fold: np.ndarray, n_parties: int) -> Scored:
    """The speeches of a condition against centroids made without their fold, within their stratum.

    A speech whose party has no centroid there is left out, and a stratum in which one party only is left.
    """
    table = np.full((len(codes), n_parties), np.nan)
    spoken = control.rows & ~np.isnan(control.vectors).any(axis=1)
    for stratum in np.unique(control.strata[spoken]):
        chosen = np.flatnonzero(spoken & (control.strata == stratum))
        contexts = None if control.contexts is None else np.array(control.contexts, dtype=object)[chosen]
        table[chosen] = held_out_cosines(control.vectors[chosen], codes[chosen], fold[chosen], n_parties, contexts)
    usable = ~np.isnan(table[np.arange(len(codes)), codes])
    cells = np.unique(np.stack([control.strata[usable], codes[usable]]), axis=1)
    spoken_by, parties = np.unique(cells[0], return_counts=True)
    usable &= np.isin(control.strata, spoken_by[parties > 1])
    there = np.flatnonzero((~np.isnan(table[usable])).any(axis=0))
    return Scored(table[usable][:, there], np.searchsorted(there, codes[usable]), control.strata[usable], np.flatnonzero(usable))


def held_out_cosines(
    vectors: np.ndarray, codes: np.ndarray, fold: np.ndarray, n_parties: int, contexts: np.ndarray | None = None
) -> np.ndarray:
    """(n, n_parties) cosines of each speech to party centroids made without its fold; NaN where a party has none.

    With `contexts`, both are residual: without the mean of their topic and House, taken from the same training speeches.
    """
    table = np.full((len(vectors), n_parties), np.nan)
    counts, sums = _without(fold, codes, n_parties, vectors)  # (n_folds, n_parties), (n_folds, n_parties, d)
    if contexts is not None:
        where, names = pd.factorize(contexts, sort=True)
        means = _without(fold, where, len(names), vectors)[1]
        pairs = _without(fold, codes * len(names) + where, n_parties * len(names))[0]
    for number in np.unique(fold):
        test, directions = fold == number, sums[number]
        if not counts[number].any():
            continue
        rows = vectors[test]
        if contexts is not None:
            made = residuals(range(n_parties), directions, names, means[number], pairs[number].reshape(n_parties, -1))
            rows, directions = made.of(rows, contexts[test]), np.full((n_parties, vectors.shape[1]), np.nan)
            for code, direction in made.centroids.items():
                directions[code] = direction
        table[test] = np.where(counts[number] > 0, rows @ unit_rows(directions).T, np.nan)
    return table


def _without(
    fold: np.ndarray, codes: np.ndarray, n: int, vectors: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Counts (n_folds, n), and sums of vectors (n_folds, n, d), of each code in all folds but one."""
    n_folds, cell = fold.max() + 1, fold * n + codes
    counts = np.bincount(cell, minlength=n_folds * n).reshape(n_folds, n)
    counts = counts.sum(axis=0) - counts
    if vectors is None:
        return counts, None
    cells = sparse.csr_array((np.ones(len(fold)), (cell, np.arange(len(fold)))), (n_folds * n, len(fold)))
    sums = (cells @ vectors).reshape(n_folds, n, -1)
    return counts, sums.sum(axis=0) - sums


@threadpool_limits.wrap(limits=1)  # many small products: more threads only wait for each other
def validate(controls: Sequence[Condition], human: pd.DataFrame, folds: int, shuffles: int, seed: int) -> pd.DataFrame:
    """All checks under all conditions and splits, tidy: a row a value, `low` and `high` its 95 % interval or NaN.

    `human` needs `Party`, `debate`, `speaker_id` and `is_government`, a row a vector. The row `chance`, and those of
    labels shuffled, are the mean and the 95 % range of `shuffles` runs of everything with labels dealt by lot.
    """
    rng, rows = np.random.default_rng(seed), []
    codes, members = (pd.factorize(human[column], sort=True)[0] for column in ("Party", "speaker_id"))
    office = human["is_government"].to_numpy(dtype=bool)
    for split, apart in SPLITS.items():
        units = pd.factorize(human[apart], sort=True)[0] if apart else np.arange(len(human))
        for control in controls:
            there = np.flatnonzero(control.rows & ~np.isnan(control.vectors).any(axis=1))
            test = _Test(control.only(there), codes[there], members[there], units[there], folds, seed)
            found = [*_checks(test, shuffles, rng)]
            if control is controls[0] and len(test.scored.codes):
                found += _checks_of_plain(test, office[there], shuffles, rng)
            rows += [{"condition": control.name, "split": split} | row for row in found]
    return pd.DataFrame(rows, columns=COLUMNS)


class _Test:
    """One condition under one split: what is scored, once with its own labels and often with others."""

    def __init__(self, control: Condition, codes, members, units, folds: int, seed: int):
        self.control, self.codes, self.units, self.folds = control, codes, units, folds
        self.members = np.unique(members, return_inverse=True)[1]
        self.scored = self.score(codes, np.random.default_rng(seed))

    def score(self, codes: np.ndarray, rng: np.random.Generator) -> Scored:
        fold = folds_of(self.units, codes, self.folds, rng)
        return score(self.control, codes, fold, self.codes.max(initial=0) + 1)

    def by_lot(self, groups: np.ndarray, shuffles: int, rng: np.random.Generator) -> pd.DataFrame:
        """The measures of `shuffles` deals, a row a deal: the labels of `groups` are permuted, centroids made anew.

        Whose groups each lie in one stratum (members in their House) are dealt labels there.
        """
        labels, stratum = _commonest(groups, self.codes), np.unique(self.control.strata, return_inverse=True)[1]
        strata = _commonest(groups, stratum)
        blocks = strata if (strata[groups] == stratum).all() else np.zeros_like(strata)
        deals = (self.score(_permuted(labels, blocks, rng)[groups], rng) for _ in range(shuffles))
        return pd.DataFrame([measures(scored) for scored in deals if len(scored.codes)])


def _permuted(labels: np.ndarray, blocks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The labels in another order, within each block."""
    dealt = np.empty_like(labels)
    dealt[np.argsort(blocks, kind="stable")] = labels[np.lexsort((rng.random(len(labels)), blocks))]
    return dealt


def _checks(test: _Test, shuffles: int, rng: np.random.Generator) -> Iterator[dict]:
    """Every measure, those that are tested with an interval and with what labels dealt to members give; wrong centroids."""
    n = len(test.scored.codes)
    if n == 0:
        yield _row(*ACCURACY, np.nan, n=0)
        return
    found, lot = measures(test.scored), test.by_lot(test.members, shuffles, rng)
    if len(lot):
        lot[ACCURACY] += found[EVEN] - lot[EVEN]  # a deal may have other parties in a stratum
    for key, value in found.items():
        bounds = _turned_round(value, lot[key], *TESTED[key]) if key in TESTED and len(lot) else ()
        yield _row(*key, value, *bounds, n=n)
    for key in (*TESTED, F) if len(lot) else ():
        yield _row(*(CHANCE if key == ACCURACY else _dealt(key, "members")), *_spread(lot[key]), n=n)
    wrong = np.array([f for _, f, _ in wrong_anovas(test.scored) if not np.isnan(f)])
    if len(wrong):
        yield _row("ANOVA", "F, deranged centroids: middle, least, most", np.median(wrong), wrong.min(), wrong.max(), n)
        share = np.mean(wrong >= found[F])
        yield _row("ANOVA", "deranged centroids with F at least the true one, share", share, n=n)


def _checks_of_plain(test: _Test, office: np.ndarray, shuffles: int, rng: np.random.Generator) -> Iterator[dict]:
    """What only the plain condition is asked: each derangement, office, and labels that mean nothing at all.

    Office: does the cosine to their party tell its holders from the others in it? 0.5 where it does not; NaN: no office. By lot it
    is dealt to other members of the party. (No centroid depends on it.)
    """
    scored, n = test.scored, len(test.scored.codes)
    for shift, f, eta in wrong_anovas(scored):
        yield _row("ANOVA", f"F, deranged by {shift}", f, n=n)
        yield _row("ANOVA", f"eta squared, deranged by {shift}", eta, n=n)
    held, members = office[scored.rows], np.unique(test.members[scored.rows], return_inverse=True)[1]
    value = auc(scored.shifted(0), held, scored.codes)
    holders, parties = _commonest(members, held.astype(int)), _commonest(members, scored.codes)
    deals = (_permuted(holders, parties, rng)[members] > 0 for _ in range(shuffles))
    dealt = pd.Series([auc(scored.shifted(0), deal, scored.codes) for deal in deals])
    bounds = _turned_round(value, dealt, 0.0, 1.0)
    yield _row("office", "AUC, holders of office against others of their party", value, *bounds, int(held.sum()))
    lot = test.by_lot(np.arange(len(test.codes)), shuffles, rng)
    for key in (F, ETA, ACCURACY) if len(lot) else ():
        yield _row(*_dealt(key, "speeches"), *_spread(lot[key]), n=n)


def _row(check: str, statistic: str, value: float, low: float = np.nan, high: float = np.nan, n: int = 0) -> dict:
    return {"check": check, "statistic": statistic, "value": float(value), "low": low, "high": high, "n": n}


def _dealt(key: Key, unit: str) -> Key:
    return key[0], f"{key[1].removesuffix(', true centroids')}, {LOT} {unit}"


def _spread(values: pd.Series) -> tuple[float, float, float]:
    """Mean, and the range outside which a further deal falls in 5 of 100 cases (Weibull's quantiles); NaN without one."""
    known = values.dropna().to_numpy()
    if not len(known):
        return np.nan, np.nan, np.nan
    return float(known.mean()), *map(float, np.quantile(known, [0.025, 0.975], method="weibull"))


def _turned_round(value: float, lot: pd.Series, least: float, most: float) -> tuple[float, float]:
    """The 95 % interval of a measure in [least, most] from its values by lot: where chance could lie and not be rejected."""
    middle, low, high = _spread(lot)
    return max(value - (high - middle), least), min(value + (middle - low), most)


def guessing(similarity: Sequence[float], expected: Sequence[str | None], counts: Mapping[str, int]) -> pd.DataFrame:
    """Expected PSA (n_speeches,) of models that do not read, a column each; NaN where the orientation is not on the scale.

    They keep the speech's own `similarity` (Eq. 2's first factor) and only guess its place: `always O` for each of the
    orientations O of the scale, and, last, one drawn by its share in `counts`, training speeches of each orientation.
    """
    places = np.array(list(ORIENTATION_SCALE.values()), dtype=np.float64)
    share = np.array([counts.get(name, 0) for name in ORIENTATION_SCALE]) / sum(counts.values())
    own = np.array([float(ORIENTATION_SCALE.get(label, np.nan)) for label in expected])
    factor = 1 - np.abs(own[:, None] - places[None, :]) / WIDEST  # (n_speeches, n_orientations)
    scale = np.asarray(similarity, dtype=np.float64)[:, None]
    guesses = pd.DataFrame(scale * factor, columns=[f"always {name}" for name in ORIENTATION_SCALE])
    return guesses.assign(**{"drawn by corpus share": (scale * factor) @ share})


def guess_rows(speeches: pd.DataFrame, counts: Mapping[str, int], draws: int, seed: int) -> pd.DataFrame:
    """PSA of each model and type beside the two guessers', and how far it is above the better one; COLUMNS.

    `speeches` needs `model, type, prompt_id, similarity, PSA, Political Orientation`; `similarity` is that of the same
    centroids. 95 % intervals draw prompts, `draws` times, and choose the better guesser in each draw anew: the draws'
    standard error times Student's t, with a degree of freedom less than there are prompts. NaN with one prompt.
    """
    rng, rows = np.random.default_rng(seed), []
    for (model, kind), job in speeches.dropna(subset="PSA").groupby(["model", "type"], sort=False):
        guesses = guessing(job["similarity"], job["Political Orientation"], counts)
        columns = np.column_stack([job["PSA"].to_numpy(dtype=float), guesses.to_numpy()])
        prompts = pd.factorize(job["prompt_id"], sort=True)[0]
        n = prompts.max() + 1
        weights = np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), size=draws)])[:, prompts]
        means = weights @ columns / weights.sum(axis=1, keepdims=True)  # (1 + draws, 1 + n_guessers)
        best, share = means[:, 1:-1].max(axis=1), means[:, -1]
        values = {"PSA": means[:, 0], BEST: best, guesses.columns[-1]: share}
        values["PSA less the better guesser's"] = means[:, 0] - np.maximum(best, share)
        for name, (value, *drawn) in values.items():
            half = stats.t.ppf(0.975, n - 1) * np.std(drawn) * np.sqrt(n / (n - 1)) if n > 1 else np.nan
            row = _row("PSA against guessing", name, value, value - half, value + half, len(job))
            rows.append({"condition": f"{model} {kind}", "split": "none"} | row)
    return pd.DataFrame(rows, columns=COLUMNS)


SHOWN = {
    "margin": MARGIN,
    "balanced accuracy": ACCURACY,
    "chance": CHANCE,
    "AUC": AUC,
    "eta²": ETA,
    "eta² of deranged": ETA_DERANGED,
}


def overview(validation: pd.DataFrame) -> pd.DataFrame:
    """A row a condition and split: the main measures as printed, `0.32 [0.28, 0.36]`, and the number of speeches.

    `chance` is that split's own: the mean and the 95 % range of the accuracy with members dealt to parties by lot.
    """
    keys = ["condition", "split"]
    tests = validation[validation["split"] != "none"]
    parts = {"speeches": tests.groupby(keys, sort=False)["n"].max().astype(int)}
    for name, (check, statistic) in SHOWN.items():
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
    """Sentences about this run's values, whatever they are: the paper's test, knowing parties, and under which conditions."""
    table = validation.set_index(["condition", "split", "statistic"])[["value", "low", "high", "n"]].sort_index()
    everyone, at = table.loc[ALL], table.loc[(ALL, "by speaker")]
    if at.loc[ACCURACY[1], "n"] == 0:
        return ["There are no two parties here whose speeches can be compared: nothing was tested."]
    wrong, lot = at.loc["F, deranged centroids: middle, least, most"], at.loc[_dealt(F, "members")[1]]
    share = at.loc["deranged centroids with F at least the true one, share", "value"]
    gap, even = at.loc[GAP[1]], at.loc[_dealt(GAP, "members")[1]]
    verdict = "more" if gap["low"] > even["value"] else "no more"
    splits = [split for split in SPLITS if (split, "chance") in everyone.index]
    found, chance = ([everyone.loc[(split, key[1]), "value"] for split in splits] for key in (ACCURACY, CHANCE))
    return [
        f"The paper's test, members kept apart: F = {at.loc[F[1], 'value']:.1f} with each party's own "
        f"centroid, {wrong['low']:.1f} to {wrong['high']:.1f} with another party's; {share:.0%} of the wrong assignments "
        f"reach the true F. Invented parties of members drawn by lot give {lot['low']:.1f} to {lot['high']:.1f}. Own "
        f"centroids separate parties {verdict} than wrong ones do, beyond what lot does (eta² differs by {_printed(gap)}, by "
        f"lot {_printed(even)}).",
        f"Balanced accuracy of the nearest centroid: {', '.join(f'{v:.2f} {s}' for v, s in zip(found, splits, strict=True))}. With "
        f"invented parties of the same members, chance is {', '.join(f'{v:.2f}' for v in chance)} in these splits; so much is "
        "knowing people, and how centroids lie, not parties. The cosine to their party tells holders of office from its other "
        f"members with AUC {_printed(at.loc['AUC, holders of office against others of their party'])}.",
        *_of_conditions(validation),
    ]


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
    values = wide["balanced accuracy"].map(" {:.2f}".format) + wide["chance"].map(" (chance {:.2f})".format)
    printed = wide.index.to_series() + values.where(tested, "")
    return [f"{title}: {', '.join(printed[which])}." for title, which in groups.items() if which.any()]


def evidence_figure(validation: pd.DataFrame) -> Any:
    """Balanced accuracy by condition, a marker a split with its interval; behind it, that split's chance and its range."""
    from matplotlib import pyplot as plt

    behind = {"fmt": "|", "ms": 8, "lw": 5, "color": "0.4", "ecolor": "0.85", "zorder": 0}
    rows = validation[(validation["check"] == "nearest party") & (validation["split"] != "none")]
    names = list(dict.fromkeys(rows["condition"]))
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.42 * len(names)), layout="constrained")
    for shift, (split, part) in zip((-0.24, 0, 0.24), rows.groupby("split", sort=False), strict=False):
        for statistic, style in (("chance", behind), ("balanced accuracy", {"fmt": "o", "ms": 4, "lw": 1.2, "label": split})):
            shown = part[part["statistic"] == statistic].dropna(subset="value")
            places = [names.index(name) + shift for name in shown["condition"]]
            spread = [(shown["value"] - shown["low"]).clip(lower=0), (shown["high"] - shown["value"]).clip(lower=0)]
            ax.errorbar(shown["value"], places, xerr=spread, **style)
    ax.errorbar([], [], xerr=[], label="chance, its range", **behind)
    ax.set(yticks=range(len(names)), yticklabels=names, xlabel="balanced accuracy of the nearest centroid", xlim=(0, None))
    ax.invert_yaxis()
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return fig
