"""Does Party Align measure politics? Tests of the metric itself on human speeches, whose party is known.

Used by notebook 06, which writes the table as `summary/validation.csv`. Centroids are always made from other speeches
than those scored (cross-validation), with three splits: at random, debates kept apart, speakers kept apart.

    table = validate(vectors, speeches, folds=5, shuffles=200, seed=42)    # split, check, statistic, value, n
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.alignment import WIDEST, centroids, cosines, nearest, party_margin

SPLITS = {"random": None, "by debate": "debate", "by speaker": "speaker_id"}


def validate(vectors: np.ndarray, speeches: pd.DataFrame, folds: int, shuffles: int, seed: int) -> pd.DataFrame:
    """All checks under all splits, long form: `split, check, statistic, value, n`.

    `speeches` needs `Party`, `debate` and `speaker_id`, a row a vector. A party that a fold lacks in training is left
    out of that fold's scores.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for split, column in SPLITS.items():
        scored = cross_scores(vectors, speeches, column, folds, seed)
        rows += [{"split": split} | row for row in _checks(scored, shuffles, rng)]
    return pd.DataFrame(rows, columns=["split", "check", "statistic", "value", "n"])


def cross_scores(vectors: np.ndarray, speeches: pd.DataFrame, apart: str | None, folds: int, seed: int) -> pd.DataFrame:
    """Cosines of each speech to party centroids made without its fold, a column a party, and `expected`, `nearest`, `margin`."""
    parties, fold = speeches["Party"].to_numpy(dtype=object), _folds(speeches, apart, folds, seed)
    parts = []
    for number in range(folds):
        made = centroids(vectors[fold != number], parties[fold != number])
        rows = np.flatnonzero((fold == number) & np.isin(parties, list(made)))
        if len(rows):
            table = cosines(vectors[rows], made)
            extra = {"expected": parties[rows], "nearest": nearest(vectors[rows], made)}
            parts.append(table.assign(**extra, margin=party_margin(vectors[rows], parties[rows], made), row=rows))
    return pd.concat(parts, ignore_index=True).sort_values("row", ignore_index=True)


def _folds(speeches: pd.DataFrame, apart: str | None, folds: int, seed: int) -> np.ndarray:
    """A fold number for each speech; speeches that share `apart` share a fold."""
    keys = speeches[apart] if apart else pd.Series(np.arange(len(speeches)), index=speeches.index)
    codes = pd.factorize(keys, sort=True)[0]
    return np.random.default_rng(seed).permutation(codes.max() + 1)[codes] % folds


def _checks(scored: pd.DataFrame, shuffles: int, rng: np.random.Generator) -> list[dict]:
    expected = scored["expected"].to_numpy(dtype=object)
    table = scored.drop(columns=["expected", "nearest", "margin", "row"])
    own = _column(table, expected)
    others = (table.sum(axis=1).to_numpy() - own) / (table.notna().sum(axis=1).to_numpy() - 1)
    parties = sorted(set(expected))
    hits = balanced_accuracy(expected, scored["nearest"].to_numpy(dtype=object))
    shuffled = [
        balanced_accuracy(rng.permutation(expected), scored["nearest"].to_numpy(dtype=object)) for _ in range(shuffles)
    ]
    values = [
        ("cosine", "own party, mean", own.mean()),
        ("cosine", "other parties, mean", np.nanmean(others)),
        ("margin", "mean over the best other party", scored["margin"].mean()),
        ("nearest party", "balanced accuracy", hits),
        ("nearest party", "chance", 1 / len(parties)),
        ("nearest party", "labels shuffled, 95th percentile", float(np.quantile(shuffled, 0.95))),
        ("AUC", "own against others, mean of parties", one_against_rest(table, expected)),
    ]
    values += [("ANOVA", name, value) for name, value in anova_controls(table, expected, rng).items()]
    return [
        {"check": check, "statistic": name, "value": float(value), "n": len(scored)} for check, name, value in values
    ]


def anova_controls(table: pd.DataFrame, expected: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """F and eta squared of the paper's test (does Party Align differ between parties) with true and with wrong
    centroids.

    A metric that measured politics would have a high F for the true ones only. `deranged` scores party i on party i +
    k.
    """
    parties = list(table.columns)
    found = {}
    wrong = {
        f"deranged by {k}": dict(zip(parties, parties[k:] + parties[:k], strict=True))
        for k in range(1, min(4, len(parties)))
    }
    for name, chosen in ({"true centroids": dict(zip(parties, parties, strict=True))} | wrong).items():
        found |= _named(name, _column(table, [chosen[party] for party in expected]), expected)
    return found | _named("labels shuffled", _column(table, expected), rng.permutation(expected))


def _named(name: str, scores: np.ndarray, groups: Sequence[str]) -> dict[str, float]:
    f, eta = anova(scores, groups)
    return {f"F, {name}": f, f"eta squared, {name}": eta}


def anova(scores: np.ndarray, groups: Sequence[str]) -> tuple[float, float]:
    """One-way F and eta squared (share of the spread that lies between groups), NaN with fewer than two groups of two."""
    from scipy.stats import f_oneway

    table = pd.DataFrame({"score": scores, "group": list(groups)}).dropna()
    samples = [group["score"].to_numpy() for _, group in table.groupby("group") if len(group) > 1]
    if len(samples) < 2:
        return float("nan"), float("nan")
    everything = np.concatenate(samples)
    between = sum(len(sample) * (sample.mean() - everything.mean()) ** 2 for sample in samples)
    return float(f_oneway(*samples).statistic), float(between / ((everything - everything.mean()) ** 2).sum())


def balanced_accuracy(expected: np.ndarray, found: np.ndarray) -> float:
    """Mean over parties of the share of their speeches that are nearest to them: big parties do not rule it."""
    return float(pd.Series(expected == found).groupby(expected).mean().mean())


def one_against_rest(table: pd.DataFrame, expected: np.ndarray) -> float:
    """Mean over parties of the AUC with which the cosine to a party tells its speeches from the others'; 0.5 is guessing."""
    from sklearn.metrics import roc_auc_score

    aucs = []
    for party in table.columns:
        known = table[party].notna().to_numpy()
        own = expected[known] == party
        if own.any() and not own.all():
            aucs.append(roc_auc_score(own, table[party].to_numpy()[known]))
    return float(np.mean(aucs)) if aucs else float("nan")


def guessers(orientations: Sequence[str]) -> dict[str, float]:
    """PSA's distance factor, 1 - distance / 12, of two models that do not read: always the commonest; drawn by share.

    A model's own factor must come above these before its PSA says that it knows a party's place.
    """
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE

    shares = pd.Series([o for o in orientations if o in ORIENTATION_SCALE]).value_counts(normalize=True)
    places = shares.index.map(ORIENTATION_SCALE).to_numpy(dtype=float)
    factor = 1 - np.abs(places[:, None] - places[None, :]) / WIDEST  # (expected, guessed)
    drawn = float(shares.to_numpy() @ factor @ shares.to_numpy())
    return {"always the commonest": float(shares.to_numpy() @ factor[:, 0]), "drawn by share": drawn}


def _column(table: pd.DataFrame, labels: Sequence[str]) -> np.ndarray:
    return table.to_numpy()[np.arange(len(table)), table.columns.get_indexer(list(labels))]
