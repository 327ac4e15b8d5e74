"""Does Party Align measure politics? Tests of the metric itself on human speeches, whose party is known.

Used by notebook 06, which writes the table as `summary/validation.csv`. Centroids are always made from other speeches
than those scored (cross-validation), with three splits: at random, debates kept apart, members kept apart.

What is chance? Members have habits, and centroids of few members are poor: even odds (one in so many parties) are not what
a metric without politics gives. So the whole procedure, folds and centroids too, is run again with members dealt to
parties by lot, under each condition and split; its mean is that split's chance. The interval of a measure is the test
turned round: the values from which what was found lies no further than lot falls from chance in 95 % of the deals. It
holds chance exactly where the test does not reject, which without politics happens in 95 % of corpora, with any number of
members. (Drawing members again while their centroids stay, or once more with them, does not: centroids of a few
members drawn twice are worse than the true ones.)

    controls = conditions(human, encoder.encode)
    table = validate(controls, human, folds=5, shuffles=200, seed=42)      # the columns of COLUMNS
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import sparse, stats
from threadpoolctl import threadpool_limits

from parliabench_utils.metrics.alignment_controls import Condition, guessing
from parliabench_utils.metrics.alignment_measures import (
    ACCURACY,
    EVEN,
    TESTED,
    F,
    Scored,
    auc,
    measures,
    wrong_anovas,
)
from parliabench_utils.metrics.residual import residuals
from parliabench_utils.models.encoders import unit_rows

SPLITS = {"random": None, "by debate": "debate", "by speaker": "speaker_id"}
COLUMNS = ["condition", "split", "check", "statistic", "value", "low", "high", "n"]
LOT = "labels shuffled over"


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
            found = _checks(test, shuffles, rng)
            if control is controls[0]:
                found = [*found, *_first(test, office[there], shuffles, rng)]
            rows += [{"condition": control.name, "split": split} | row for row in found]
    return pd.DataFrame(rows, columns=COLUMNS)


class _Test:
    """One condition under one split: what is scored, once with its own labels and often with others."""

    def __init__(self, control: Condition, codes, members, units, folds: int, seed: int):
        self.control, self.codes, self.units, self.folds, self.seed = control, codes, units, folds, seed
        self.members = np.unique(members, return_inverse=True)[1]
        self.scored = self.score(codes, np.random.default_rng(seed))

    def score(self, codes: np.ndarray, rng: np.random.Generator) -> Scored:
        fold = folds_of(self.units, codes, self.folds, rng)
        return score(self.control, codes, fold, self.codes.max(initial=0) + 1)

    def by_lot(self, groups: np.ndarray, shuffles: int, rng: np.random.Generator) -> pd.DataFrame:
        """The measures of `shuffles` deals, a row a deal: the labels of `groups` are permuted, centroids made anew.

        Whose groups each lie in one stratum (members in their House) are dealt labels there.
        """
        labels = _commonest(groups, self.codes)
        strata = _commonest(groups, np.unique(self.control.strata, return_inverse=True)[1])
        nested = (strata[groups] == np.unique(self.control.strata, return_inverse=True)[1]).all()
        blocks = strata if nested else np.zeros_like(strata)
        deals = (self.score(_permuted(labels, blocks, rng)[groups], rng) for _ in range(shuffles))
        return pd.DataFrame([measures(scored) for scored in deals if len(scored.codes)])


def _commonest(groups: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The commonest code of each group, (n_groups,); the first of equal ones."""
    counts = np.zeros((groups.max(initial=-1) + 1, codes.max(initial=0) + 1), dtype=int)
    np.add.at(counts, (groups, codes), 1)
    return counts.argmax(axis=1)


def _permuted(labels: np.ndarray, blocks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The labels in another order, within each block."""
    dealt = np.empty_like(labels)
    dealt[np.argsort(blocks, kind="stable")] = labels[np.lexsort((rng.random(len(labels)), blocks))]
    return dealt


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
    return Scored(
        table[usable][:, there],
        np.searchsorted(there, codes[usable]),
        control.strata[usable],
        np.flatnonzero(usable),
    )


def held_out_cosines(
    vectors: np.ndarray, codes: np.ndarray, fold: np.ndarray, n_parties: int, contexts: np.ndarray | None = None
) -> np.ndarray:
    """(n, n_parties) cosines of each speech to party centroids made without its fold; NaN where a party has none.

    With `contexts`, both are residual: without the mean of their topic and House, taken from the same training speeches.
    """
    table = np.full((len(vectors), n_parties), np.nan)
    counts, sums = _without(fold, codes, n_parties, vectors)  # (n_folds, n_parties), (n_folds, n_parties, d)
    where, names = pd.factorize(contexts, sort=True) if contexts is not None else (np.zeros(len(fold), dtype=int), [""])
    if contexts is not None:
        _, means = _without(fold, where, len(names), vectors)
        pairs, _ = _without(fold, codes * len(names) + where, n_parties * len(names))
    for number in np.unique(fold):
        test, directions = fold == number, sums[number]
        rows = vectors[test]
        if not counts[number].any():
            continue
        if contexts is not None:
            made = residuals(range(n_parties), directions, names, means[number], pairs[number].reshape(n_parties, -1))
            rows, directions = made.of(rows, contexts[test]), _stacked(made.centroids, n_parties, vectors.shape[1])
        table[test] = np.where(counts[number] > 0, rows @ unit_rows(directions).T, np.nan)
    return table


def _without(
    fold: np.ndarray, codes: np.ndarray, n: int, vectors: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Counts (n_folds, n), and sums of vectors (n_folds, n, d), of each code in all folds but one."""
    n_folds = fold.max() + 1
    counts = np.bincount(fold * n + codes, minlength=n_folds * n).reshape(n_folds, n)
    counts = counts.sum(axis=0) - counts
    if vectors is None:
        return counts, None
    cells = sparse.csr_array((np.ones(len(fold)), (fold * n + codes, np.arange(len(fold)))), (n_folds * n, len(fold)))
    sums = (cells @ vectors).reshape(n_folds, n, -1)
    return counts, sums.sum(axis=0) - sums


def _stacked(made: Mapping[int, np.ndarray], n: int, width: int) -> np.ndarray:
    rows = np.full((n, width), np.nan)
    for code, direction in made.items():
        rows[code] = direction
    return rows


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
        name = "chance" if key == ACCURACY else _dealt(key, "members")
        yield _row(key[0], name, *_spread(lot[key]), n=n)
    wrong = np.array([f for _, f, _ in wrong_anovas(test.scored) if not np.isnan(f)])
    if len(wrong):
        yield _row("ANOVA", "F, deranged centroids: middle, least, most", np.median(wrong), wrong.min(), wrong.max(), n)
        share = np.mean(wrong >= found[F])
        yield _row("ANOVA", "deranged centroids with F at least the true one, share", share, n=n)


def _dealt(key: tuple[str, str], unit: str) -> str:
    return f"{key[1].removesuffix(', true centroids')}, {LOT} {unit}"


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


def _first(test: _Test, office: np.ndarray, shuffles: int, rng: np.random.Generator) -> Iterator[dict]:
    """What only the plain condition is asked: each derangement, office, and labels that mean nothing at all."""
    n = len(test.scored.codes)
    if n == 0:
        return
    for shift, f, eta in wrong_anovas(test.scored):
        yield _row("ANOVA", f"F, deranged by {shift}", f, n=n)
        yield _row("ANOVA", f"eta squared, deranged by {shift}", eta, n=n)
    yield _office(test, office, shuffles, rng)
    lot = test.by_lot(np.arange(len(test.codes)), shuffles, rng)
    for key in (F, ("ANOVA", "eta squared, true centroids"), ACCURACY) if len(lot) else ():
        yield _row(key[0], _dealt(key, "speeches"), *_spread(lot[key]), n=n)


def _office(test: _Test, office: np.ndarray, shuffles: int, rng: np.random.Generator) -> dict:
    """Does the cosine to their party tell holders of office from the others in it? 0.5 where it does not; NaN: no office.

    By lot: office is dealt to other members of the party. (No centroid depends on it.)
    """
    scored = test.scored
    held, members = office[scored.rows], np.unique(test.members[scored.rows], return_inverse=True)[1]
    value = auc(scored.own, held, scored.codes)
    holders, parties = _commonest(members, held.astype(int)), _commonest(members, scored.codes)
    deals = (_permuted(holders, parties, rng)[members] > 0 for _ in range(shuffles))
    lot = pd.Series([auc(scored.own, dealt, scored.codes) for dealt in deals])
    bounds = _turned_round(value, lot, 0.0, 1.0)
    return _row("office", "AUC, holders of office against others of their party", value, *bounds, int(held.sum()))


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
        names, share = list(guesses), means[:, -1]
        best = means[:, 1:-1].max(axis=1)
        values = {"PSA": means[:, 0], BEST: best, names[-1]: share}
        values["PSA less the better guesser's"] = means[:, 0] - np.maximum(best, share)
        for name, (value, *drawn) in values.items():
            half = stats.t.ppf(0.975, n - 1) * np.std(drawn) * np.sqrt(n / (n - 1)) if n > 1 else np.nan
            row = _row("PSA against guessing", name, value, value - half, value + half, len(job))
            rows.append({"condition": f"{model} {kind}", "split": "none"} | row)
    return pd.DataFrame(rows, columns=COLUMNS)


BEST = "always the best constant"


def _row(check: str, statistic: str, value: float, low: float = np.nan, high: float = np.nan, n: int = 0) -> dict:
    return {"check": check, "statistic": statistic, "value": float(value), "low": low, "high": high, "n": n}
