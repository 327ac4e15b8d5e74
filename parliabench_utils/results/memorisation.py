"""Do models repeat their training speeches? Longest common run of words and shared n-grams, calibrated by people (notebook 08).

Held-out members' speeches share phrases with the training speeches too ("the right hon. Member for"). A model memorises
as far as its overlap goes beyond theirs.

>>> found = memorised(["we shall fight on"], ["They said that we shall fight and win."])
>>> int(found["longest_run"][0]), found["longest_passage"][0]
(3, 'we shall fight')
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from parliabench_utils.results.cells import HUMAN, SET
from parliabench_utils.results.compare import cliffs_delta
from parliabench_utils.results.ngrams import Encoded, encode, longer

ORDERS = (5, 8, 13)  # words; 13 is a usual mark of contamination, 5 still meets set phrases
CHUNK = 20_000  # training speeches held at a time
COLUMNS = ["n_words", "longest_run", *(f"overlap_{n}" for n in ORDERS), "longest_passage"]


def memorised(texts: Sequence[str | None], training: Sequence[str]) -> pd.DataFrame:
    """COLUMNS for each text: words; words of the longest run that a training speech has word for word, and that run; share of the
    text's n-grams that a training speech has, in [0, 1], NaN for a text shorter than n. Case is folded, marks count as words.
    """
    corpus = encode(texts)
    runs = np.zeros(corpus.codes.size, dtype=np.int64)  # longest match that starts at each word
    for first in range(0, len(training), CHUNK):
        runs = np.maximum(runs, _runs(corpus, encode(training[first : first + CHUNK])))
    pieces = np.split(runs, np.cumsum(corpus.lengths)[:-1])
    return pd.DataFrame([_one_text(*pair) for pair in zip(pieces, corpus.words, strict=True)], columns=COLUMNS)


def _runs(texts: Encoded, training: Encoded) -> np.ndarray:
    """Words of the longest run from each position of `texts` that occurs in `training`, shape (n_words,)."""
    found = np.zeros(texts.codes.size, dtype=np.int64)
    here, there = np.arange(texts.codes.size), np.arange(training.codes.size)
    mine, theirs, n = texts.codes, training.codes, 1
    while here.size and there.size:
        shared = _among(mine, theirs)
        found[here[shared]] = n
        both = _among(theirs, mine[shared])
        mine, here = longer(mine[shared], here[shared], n, texts)
        theirs, there = longer(theirs[both], there[both], n, training)
        n += 1
    return found


def _among(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of `values` are among `others`; for millions of numbers faster than `np.isin`."""
    known = np.sort(others)
    if not known.size:
        return np.zeros(values.size, dtype=bool)
    return known[np.minimum(np.searchsorted(known, values), known.size - 1)] == values


def _one_text(runs: np.ndarray, text: list[str]) -> list:
    if not len(text):
        return [0, 0, *[np.nan] * len(ORDERS), ""]
    at = int(runs.argmax())
    shares = [float((runs[: len(text) - n + 1] >= n).mean()) if len(text) >= n else np.nan for n in ORDERS]
    return [len(text), int(runs[at]), *shares, " ".join(text[at : at + runs[at]])]


def memorisation(scores: pd.DataFrame, training: Sequence[str]) -> pd.DataFrame:
    """`memorised` for every row of a score frame that has a speech, with its prompt_id, variant, model and type."""
    rows = scores[scores["generated_speech"].notna()].reset_index(drop=True)
    found = memorised(rows["generated_speech"].tolist(), training)
    return pd.concat([rows[["prompt_id", "variant", *SET]], found], axis=1)


def memorisation_summary(found: pd.DataFrame) -> pd.DataFrame:
    """One row a model and type, people too: n, median and longest run, mean overlaps, and against people: the share of
    speeches above the people's 95th percentile (0.05 or less is no more than people do), Cliff's delta and Mann-Whitney p.
    """
    human = found.loc[found["type"] == HUMAN, "longest_run"].to_numpy(float)
    bar = np.percentile(human, 95) if human.size else np.nan
    return pd.DataFrame(
        [
            {"model": model, "type": kind, "n": len(part)}
            | {"median_longest": part["longest_run"].median(), "max_longest": int(part["longest_run"].max())}
            | {f"mean_overlap_{n}": part[f"overlap_{n}"].mean() for n in ORDERS}
            | _against(part["longest_run"].to_numpy(float), human, bar, kind)
            for (model, kind), part in found.groupby(SET, sort=False)
        ]
    )


def _against(runs: np.ndarray, human: np.ndarray, bar: float, kind: str) -> dict[str, float]:
    from scipy import stats

    above = float((runs > bar).mean()) if human.size else np.nan
    if kind == HUMAN or not human.size:
        return {"above_human_95": above, "cliffs_delta": np.nan, "p": np.nan}
    test = stats.mannwhitneyu(runs, human)
    return {"above_human_95": above, "cliffs_delta": cliffs_delta(human, runs), "p": float(test.pvalue)}
