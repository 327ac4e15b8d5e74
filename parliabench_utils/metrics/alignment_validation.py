"""Does Party Align measure politics? Tests of the metric itself on human speeches, whose party is known.

Used by notebook 06, which writes the table as `summary/validation.csv`. Centroids are always made from other speeches
than those scored (cross-validation), with three splits: at random, debates kept apart, members kept apart.

    controls = conditions(human, encoder.encode)
    table = validate(controls, human, folds=5, shuffles=200, draws=500, seed=42)      # the columns of COLUMNS
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from parliabench_utils.metrics.alignment_controls import Condition, guessing
from parliabench_utils.metrics.alignment_measures import (
    Scored,
    anova,
    auc,
    balanced_accuracy,
    cluster_weights,
    interval,
    measures,
    wrong_anovas,
)
from parliabench_utils.metrics.residual import residuals
from parliabench_utils.models.encoders import unit_rows

SPLITS = {"random": None, "by debate": "debate", "by speaker": "speaker_id"}
COLUMNS = ["condition", "split", "check", "statistic", "value", "low", "high", "n"]


@threadpool_limits.wrap(limits=1)  # many small products: more threads only wait for each other
def validate(
    controls: Sequence[Condition], human: pd.DataFrame, folds: int, shuffles: int, draws: int, seed: int
) -> pd.DataFrame:
    """All checks under all conditions and splits, tidy: a row a value, `low` and `high` its 95 % interval or NaN.

    `human` needs `Party`, `debate`, `speaker_id` and `is_government`, a row a vector. Intervals of measures draw members
    of each party with replacement `draws` times; those of shuffled labels are over `shuffles` runs of everything.
    """
    rng = np.random.default_rng(seed)
    codes, parties = pd.factorize(human["Party"], sort=True)
    members = pd.factorize(human["speaker_id"], sort=True)[0]
    rows = []
    for split, apart in SPLITS.items():
        fold = folds_of(human, apart, folds, seed)
        for control in controls:
            scored = score(control, codes, members, fold, len(parties))
            rows += [{"condition": control.name, "split": split} | row for row in _checks(scored, draws, rng)]
        plain = {"condition": controls[0].name, "split": split}
        scored = score(controls[0], codes, members, fold, len(parties))
        if not len(scored.codes):
            continue
        rows += [plain | row for row in _shifts(scored)]
        rows.append(plain | _office(scored, human["is_government"].to_numpy(dtype=bool), draws, rng))
        for unit, groups in (("speeches", np.arange(len(codes))), ("members", members)):
            rows += [plain | row for row in _shuffled(controls[0], codes, groups, fold, unit, shuffles, rng)]
    return pd.DataFrame(rows, columns=COLUMNS)


def folds_of(human: pd.DataFrame, apart: str | None, folds: int, seed: int) -> np.ndarray:
    """A fold number for each speech; speeches that share `apart` share a fold."""
    keys = human[apart] if apart else pd.Series(np.arange(len(human)), index=human.index)
    codes = pd.factorize(keys, sort=True)[0]
    return np.random.default_rng(seed).permutation(codes.max() + 1)[codes] % folds


def score(control: Condition, codes: np.ndarray, members: np.ndarray, fold: np.ndarray, n_parties: int) -> Scored:
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
    parties = pd.Series(codes[usable]).groupby(control.strata[usable]).transform("nunique").to_numpy()
    usable[usable] = parties > 1
    there = np.flatnonzero((~np.isnan(table[usable])).any(axis=0))
    return Scored(
        table[usable][:, there],
        np.searchsorted(there, codes[usable]),
        control.strata[usable],
        members[usable],
        np.flatnonzero(usable),
    )


def held_out_cosines(
    vectors: np.ndarray, codes: np.ndarray, fold: np.ndarray, n_parties: int, contexts: np.ndarray | None = None
) -> np.ndarray:
    """(n, n_parties) cosines of each speech to party centroids made without its fold; NaN where a party has none.

    With `contexts`, both are residual: without the mean of their topic and House, taken from the same training speeches.
    """
    table = np.full((len(vectors), n_parties), np.nan)
    labels = np.eye(n_parties, dtype=vectors.dtype)[codes]
    for number in np.unique(fold):
        train, test = fold != number, fold == number
        if not train.any():
            continue
        rows, sums, counts = vectors[test], labels[train].T @ vectors[train], labels[train].sum(axis=0)
        if contexts is not None:
            made = _residual_sums(vectors[train], labels[train], contexts[train], sums)
            rows, sums = made.of(rows, contexts[test]), _stacked(made.centroids, n_parties, vectors.shape[1])
        table[test] = np.where(counts > 0, rows @ unit_rows(sums).T, np.nan)
    return table


def _residual_sums(vectors: np.ndarray, labels: np.ndarray, contexts: np.ndarray, sums: np.ndarray):
    where, names = pd.factorize(contexts, sort=True)
    spoken = np.eye(len(names), dtype=vectors.dtype)[where]
    return residuals(range(labels.shape[1]), sums, list(names), spoken.T @ vectors, labels.T @ spoken)


def _stacked(made: Mapping[int, np.ndarray], n: int, width: int) -> np.ndarray:
    rows = np.full((n, width), np.nan)
    for code, direction in made.items():
        rows[code] = direction
    return rows


def _checks(scored: Scored, draws: int, rng: np.random.Generator) -> Iterator[dict]:
    """Every measure with its interval; F, which has none; the range of the deranged centroids."""
    n = len(scored.codes)
    if n == 0:
        yield _row("nearest party", "balanced accuracy", np.nan, n=0)
        return
    weights = cluster_weights(scored.codes, scored.members, draws, rng)
    for (check, statistic), (value, low, high) in measures(scored, weights).items():
        yield _row(check, statistic, value, low, high, n)
    f, _ = anova(scored.own, scored.codes, scored.strata)
    yield _row("ANOVA", "F, true centroids", f, n=n)
    wrong = np.array([row[1] for row in wrong_anovas(scored)])
    wrong = wrong[~np.isnan(wrong)]
    if len(wrong):
        yield _row("ANOVA", "F, deranged centroids: middle, least, most", np.median(wrong), wrong.min(), wrong.max(), n)
        yield _row("ANOVA", "deranged centroids with F at least the true one, share", np.mean(wrong >= f), n=n)


def _shifts(scored: Scored) -> Iterator[dict]:
    """Each derangement by itself: party i scored on party i + k."""
    for shift, f, eta in wrong_anovas(scored):
        yield _row("ANOVA", f"F, deranged by {shift}", f, n=len(scored.codes))
        yield _row("ANOVA", f"eta squared, deranged by {shift}", eta, n=len(scored.codes))


def _office(scored: Scored, office: np.ndarray, draws: int, rng: np.random.Generator) -> dict:
    """Does the cosine to their party tell holders of office from the others in it? 0.5 where it does not; NaN: no office."""
    held = office[scored.rows]
    weights = cluster_weights(scored.codes, scored.members, draws, rng)
    value = auc(scored.own, held, scored.codes, np.ones((1, len(held))))[0]
    spread = interval(auc(scored.own, held, scored.codes, weights))
    return _row("office", "AUC, holders of office against others of their party", value, *spread, int(held.sum()))


def _shuffled(
    control: Condition, codes: np.ndarray, groups: np.ndarray, fold: np.ndarray, unit: str, shuffles: int, rng
) -> Iterator[dict]:
    """The whole procedure, centroids too, with labels dealt out anew: means over `shuffles` and their 95 % range.

    Over speeches a label means nothing at all; over members it still means "one of these people".
    """
    found, (_, start, place) = [], np.unique(groups, return_index=True, return_inverse=True)
    for _ in range(shuffles):
        dealt = rng.permutation(codes[start])[place]  # who changed party counts with one of them here
        scored = score(control, dealt, groups, fold, codes.max() + 1)
        found.append((*anova(scored.own, scored.codes), balanced_accuracy(scored)))
    names = [("ANOVA", "F"), ("ANOVA", "eta squared"), ("nearest party", "balanced accuracy")]
    for (check, statistic), column in zip(names, np.array(found).T, strict=True):
        low, high = np.nanquantile(column, [0.025, 0.975])
        yield _row(check, f"{statistic}, labels shuffled over {unit}", np.nanmean(column), low, high, len(codes))


def guess_rows(speeches: pd.DataFrame, counts: Mapping[str, int], draws: int, seed: int) -> pd.DataFrame:
    """PSA of each model and type beside the two guessers', and how far it is above the better one; COLUMNS.

    `speeches` needs `model, type, prompt_id, similarity, PSA, Political Orientation`. Intervals draw prompts.
    """
    rng, rows = np.random.default_rng(seed), []
    for (model, kind), job in speeches.dropna(subset="PSA").groupby(["model", "type"], sort=False):
        guesses = guessing(job["similarity"], job["Political Orientation"], counts)
        values = {"PSA": job["PSA"].to_numpy(dtype=float)} | {name: guesses[name].to_numpy() for name in guesses}
        better = guesses.mean().idxmax()
        values["PSA less the better guesser's"] = values["PSA"] - values[better]
        prompts = pd.factorize(job["prompt_id"], sort=True)[0]
        weights = cluster_weights(np.zeros(len(job), dtype=int), prompts, draws, rng)
        for name, column in values.items():
            low, high = interval(weights @ column / weights.sum(axis=1))
            row = _row("PSA against guessing", name, column.mean(), low, high, len(job))
            rows.append({"condition": f"{model} {kind}", "split": "none"} | row)
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(check: str, statistic: str, value: float, low: float = np.nan, high: float = np.nan, n: int = 0) -> dict:
    return {"check": check, "statistic": statistic, "value": float(value), "low": low, "high": high, "n": n}
