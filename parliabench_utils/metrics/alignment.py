"""Political Spectrum Alignment and Party Align: cosines to centroids of training speeches (paper 4.1.1, Eqs. 1-3).

Notebook 02 writes the centroids once, from training speeches only; notebook 06 reads them. Whoever answers a prompt, its member or
a model, meets the same ones: those without the prompt's own debate and speaker. Rows of NaN (empty speeches) stay NaN; an expected
label that has no centroid is an error, because a misspelt party must not look like a bad speech.

    own = centroids(train_vectors, train_parties)              # {"Labour": unit vector, ...}
    party_alignment(speech_vectors, ["Labour"], own)           # Eq. 3
    align(speeches, speech_vectors, read_centroids(folder))    # all columns of 06
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.corpus.dataset import debate_of
from parliabench_utils.corpus.people import ORIENTATION_SCALE, UNKNOWN_ORIENTATION
from parliabench_utils.models.embeddings import SentenceEncoder, unit_rows
from parliabench_utils.run.artefacts import whole_file, write_json

WIDEST = 12.0  # Far-left (-6) to Far-right (+6), the divisor of Eq. 2
MIN_SPEECHES = 5  # a context with fewer training speeches has no mean of its own: its House's mean stands in
NOTHING = 1e-6  # a mean residual shorter than this is rounding: nobody else spoke in the party's contexts
FILE = "centroids.npz"
KEYS = ("Party", "Political Orientation", "debate", "speaker_id", "context")
COLUMNS = ["similarity", "nearest_orientation", "distance", "PSA"]
COLUMNS += ["Party Align", "margin", "nearest_party", "Party Align deranged", "Party Align residual"]
EQUATIONS = {
    "PSA": "eq:1-2,distance:12",
    "Party Align": "eq:3",
    "Party Align residual": f"eq:3,without:house-and-topic-mean,min:{MIN_SPEECHES}",
}
LEFT_OUT = {"prompt": "the prompt's debate and speaker", "none": "none"}
Centroids = Mapping[str, np.ndarray]


def signature(encoder: str, leave_out: str = "prompt", metric: str = "Party Align") -> str:
    """What fixes a value of PSA or Party Align: equation, where centroids come from, who is left out, encoder."""
    return f"{metric}|{EQUATIONS[metric]}|centroids:training-mean|left-out:{LEFT_OUT[leave_out]}|{encoder}|v2"


def centroids(embeddings: np.ndarray, labels: Sequence[str | None]) -> dict[str, np.ndarray]:
    """Label -> unit vector along the mean of its rows, each brought to length one first; unlabelled and NaN rows do not count."""
    rows = unit_rows(np.asarray(embeddings, dtype=np.float64))
    labels = pd.Series(list(labels), dtype=object)
    usable = labels.notna().to_numpy() & ~np.isnan(rows).any(axis=1)
    return {str(label): unit_rows(rows[usable & (labels == label).to_numpy()].sum(axis=0)) for label in sorted(set(labels[usable]))}


def cosines(embeddings: np.ndarray, centroids: Centroids) -> pd.DataFrame:
    """Cosine in [-1, 1] of each speech to each centroid: (n_speeches, n_labels), a column a label."""
    if not centroids:
        raise ValueError("there are no centroids: was there a training speech with a known label?")
    rows = unit_rows(np.atleast_2d(np.asarray(embeddings, dtype=np.float64)))
    return pd.DataFrame(np.clip(rows @ np.stack(list(centroids.values())).T, -1, 1), columns=list(centroids))


def party_alignment(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """Cosine in [-1, 1] to the expected party's centroid, shape (n_speeches,), paper Eq. 3."""
    return own(cosines(embeddings, centroids), expected)


def political_spectrum_alignment(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """PSA in [-1, 1], shape (n_speeches,), paper Eqs. 1-2; NaN where the expected orientation is None or `Unknown`."""
    return psa(cosines(embeddings, centroids), expected)["PSA"].to_numpy(dtype=np.float64)


def psa(table: pd.DataFrame, expected: Sequence[str | None]) -> pd.DataFrame:
    """PSA by steps, a row a speech: `similarity`, `nearest_orientation` (Eq. 1), `distance` 0 to 12, `PSA` (Eq. 2).

    `table` holds cosines (n_speeches, n_orientations), NaN where leaving out has left no centroid: where that befell the expected
    one, distance and PSA are NaN. The similarity is that to the *nearest* orientation, as the paper has it: a speech close to a
    wrong one keeps it, and loses by the distance. A negative similarity is not clipped. ValueError for an orientation that is not
    on the scale, and where there are not as many orientations as speeches.
    """
    if len(expected) != len(table):
        raise ValueError(f"{len(table)} speeches and {len(expected)} expected orientations")
    named = pd.Series(list(expected), dtype=object)
    known = set(named.dropna()) - {UNKNOWN_ORIENTATION}
    if strange := sorted((set(table.columns) | known) - set(ORIENTATION_SCALE)):
        raise ValueError(f"orientation {strange[0]!r} is not on the scale ({', '.join(ORIENTATION_SCALE)})")
    closest, similarity = pd.Series(nearest(table), dtype=object), table.max(axis=1).to_numpy(dtype=np.float64)
    held = named.isin(list(table.columns))
    lost = held.to_numpy() & np.isnan(own(table, named.where(held, None)))
    place, found = (labels.map(ORIENTATION_SCALE).to_numpy(dtype=np.float64) for labels in (named, closest))
    distance = np.where(lost, np.nan, np.abs(place - found))
    value = similarity * np.maximum(0.0, 1 - distance / WIDEST)
    return pd.DataFrame({"similarity": similarity, "nearest_orientation": closest, "distance": distance, "PSA": value})


def own(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    """The expected label's cosine, row by row: (n_speeches,); ValueError for a label that has no column."""
    labels = pd.Series(list(expected), dtype=object)
    if strange := sorted(set(labels.dropna()) - set(table.columns)):
        raise ValueError(f"no centroid for {strange[0]!r}; there are {', '.join(map(str, table.columns))}")
    known = labels.notna().to_numpy()
    scores = np.full(len(labels), np.nan)
    scores[known] = table.to_numpy()[known, table.columns.get_indexer(labels[known])]
    return scores


def margin(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    """The expected label's cosine minus the best other one, in [-2, 2]: positive where it is nearest."""
    others = table.where(table.columns.to_numpy() != np.array(list(expected), dtype=object)[:, None])
    return own(table, expected) - others.max(axis=1).to_numpy(dtype=np.float64)


def nearest(table: pd.DataFrame) -> np.ndarray:
    """Label with the highest cosine, object array (n_speeches,); None for a row of NaN."""
    labels = table.columns.to_numpy(dtype=object)[table.fillna(-2).to_numpy().argmax(axis=1)]
    return np.where(table.isna().all(axis=1), None, labels)


def deranged(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    """The cosine to the label after the expected one (the next that has a centroid, round the end): a control in which
    nobody meets his own party; NaN where he has none, or nobody else has."""
    values, mine = table.to_numpy(), own(table, expected)
    places = np.maximum(table.columns.get_indexer(pd.Series(list(expected), dtype=object)), 0)
    following = (places[:, None] + np.arange(1, len(table.columns))) % len(table.columns)  # (n_speeches, n_labels - 1)
    wrong = np.column_stack([np.take_along_axis(values, following, axis=1), np.full(len(mine), np.nan)])
    first = np.argmax(~np.isnan(wrong), axis=1)
    return np.where(np.isnan(mine), np.nan, wrong[np.arange(len(mine)), first])


def context_key(house: str | None, topic: str | None) -> str:
    """One context of speaking: a topic in a House; `Unknown` where the corpus gives none (None, or a table's NaN)."""
    return "/".join(part if isinstance(part, str) else "Unknown" for part in (house, topic))


@dataclass(frozen=True)
class Residuals:
    """Party Align with topic and House held fixed (not in the paper): a party that speaks about fishing has a centroid that smells
    of fish, so the mean of all training speeches of the same House and topic is taken away first, from the speeches of the centroid
    and from the one that is scored.

    `centroids`: party -> unit vector; `means`: context, House, or "" (all speeches) -> mean vector, not of unit length.
    """

    centroids: dict[str, np.ndarray]
    means: dict[str, np.ndarray]

    def mean(self, context: str) -> np.ndarray:
        """The mean of the context, of its House where it has none, of everything where the House is new."""
        return next(self.means[key] for key in (context, context.partition("/")[0], "") if key in self.means)

    def of(self, vectors: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
        """Unit rows (n_speeches, dimension) of what is left of each vector; NaN where it was NaN."""
        known = {context: self.mean(context) for context in set(contexts)}
        return unit_rows(vectors - np.stack([known[context] for context in contexts]))


def residuals(
    parties: Sequence[str], party_sums: np.ndarray, contexts: Sequence[str], context_sums: np.ndarray, pair_counts: np.ndarray
) -> Residuals:
    """From sums of training vectors by party (P, d) and by context (C, d) and speeches of each pair (P, C).

    A party that is alone in all its contexts has no centroid: it cannot be told from what it speaks about.
    """
    counts, houses = pair_counts.sum(axis=0), np.array([context.partition("/")[0] for context in contexts])
    means = {c: context_sums[i] / counts[i] for i, c in enumerate(contexts) if counts[i] >= MIN_SPEECHES}
    for house in sorted(set(houses[counts > 0])):
        means[house] = context_sums[houses == house].sum(axis=0) / counts[houses == house].sum()
    made = Residuals({}, means | {"": context_sums.sum(axis=0) / max(counts.sum(), 1)})
    left = party_sums - pair_counts @ np.stack([made.mean(context) for context in contexts])
    length = np.linalg.norm(left, axis=1) / np.maximum(pair_counts.sum(axis=1), 1)
    made.centroids.update({party: unit_rows(left[i]) for i, party in enumerate(parties) if length[i] > NOTHING})
    return made


@dataclass(frozen=True)
class CentroidStore:
    """Sums of training vectors, from which one debate and one speaker can be left out exactly: a cosine to a centroid needs the
    direction of a sum only, so leaving out is a subtraction.

    `cells`: a row a cell with the five keys and `n`; `sums`: float32 (n_cells, dimension), sums of unit vectors.
    """

    cells: pd.DataFrame
    sums: np.ndarray
    encoder: str

    def centroids(self, label: str, without_debate: str | None = None, without_speaker: str | None = None) -> dict[str, np.ndarray]:
        """Label -> unit vector for "Party" or "Political Orientation" (labels on the scale only), sorted by name.

        A label of which nothing is left is not in the result.
        """
        totals, counts = self._without(label, self._left_out(without_debate, without_speaker))
        return {name: unit_rows(totals[i]) for i, name in enumerate(self._groups[label][0]) if counts[i] > 0}

    def residuals(self, without_debate: str | None = None, without_speaker: str | None = None) -> Residuals:
        """The party centroids that hold topic and House fixed, and the means that they are measured from."""
        gone = self._left_out(without_debate, without_speaker)
        kept = np.setdiff1d(np.arange(len(self.cells)), gone)
        (parties, party_of, *_), (contexts, context_of, *_) = self._groups["Party"], self._groups["context"]
        pairs = np.zeros((len(parties), len(contexts)), dtype=int)
        np.add.at(pairs, (party_of[kept], context_of[kept]), self.cells["n"].to_numpy()[kept])
        return residuals(parties, self._without("Party", gone)[0], contexts, self._without("context", gone)[0], pairs)

    def counts(self, label: str) -> dict[str, int]:
        """Training speeches behind each centroid."""
        names, _, _, counts = self._groups[label]
        return dict(zip(names, counts.tolist(), strict=True))

    def _left_out(self, debate: str | None, speaker: str | None) -> np.ndarray:
        """The numbers of the cells that go, sorted."""
        found = (self._index[column].get(value, ()) for column, value in (("debate", debate), ("speaker_id", speaker)))
        return np.array(sorted({row for rows in found for row in rows}), dtype=int)

    def _without(self, label: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts of each label without these cells."""
        names, codes, totals, counts = self._groups[label]
        gone = (codes[rows] == np.arange(len(names))[:, None]).astype(np.float64)  # (n_labels, n_rows)
        left = totals - gone @ self.sums[rows].astype(np.float64)
        return left, counts - (gone @ self.cells["n"].to_numpy()[rows]).astype(int)

    @cached_property
    def _index(self) -> dict[str, dict[str, list[int]]]:
        return {column: self.cells.groupby(column).indices for column in ("debate", "speaker_id")}

    @cached_property
    def _groups(self) -> dict[str, tuple[list[str], np.ndarray, np.ndarray, np.ndarray]]:
        """Label -> names, each cell's code (-1: none), float64 sums (n_names, dimension), counts (n_names,)."""
        groups = {}
        for label in ("Party", "Political Orientation", "context"):
            values = self.cells[label]
            if label == "Political Orientation":  # Unknown and non-partisan groups have no place on the scale
                values = values.where(values.isin(list(ORIENTATION_SCALE)))
            names = sorted(values.dropna().unique())
            codes = pd.Categorical(values, categories=names).codes.astype(int)
            totals, there = np.zeros((len(names), self.sums.shape[1])), codes >= 0
            np.add.at(totals, codes[there], self.sums[there].astype(np.float64))
            counts = np.bincount(codes[there], weights=self.cells["n"][there], minlength=len(names)).astype(int)
            groups[label] = (names, codes, totals, counts)
        return groups


def write_centroids(folder: Path, train: pd.DataFrame, encoder: SentenceEncoder) -> CentroidStore:
    """Embed the training speeches; write `centroids.npz` (cells) and `centroids.json` (who is in them).

    `train` needs `speech_id, speaker_id, sitting_id, Section, Party, Political Orientation, House, Topic, Speech`; the
    order of its rows does not matter.
    """
    train = train.sort_values("speech_id").reset_index(drop=True)
    vectors = encoder.encode(train["Speech"].tolist())
    contexts = [context_key(*pair) for pair in zip(train["House"], train["Topic"], strict=True)]
    keys = train.assign(debate=debate_of(train), context=contexts)[list(KEYS)].fillna("Unknown").astype(str)
    usable = ~np.isnan(vectors).any(axis=1)
    cell = keys[usable].groupby(list(KEYS), sort=True)
    sums = pd.DataFrame(vectors[usable].astype(np.float64), index=keys.index[usable]).groupby(cell.ngroup()).sum()
    store = CentroidStore(cell.size().rename("n").reset_index(), sums.to_numpy(dtype=np.float32), encoder.signature)
    columns = {key: store.cells[key].to_numpy(dtype=str) for key in KEYS} | {"n": store.cells["n"].to_numpy()}
    with whole_file(Path(folder) / FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, sums=store.sums, encoder=np.array(store.encoder), **columns)
    described = {"encoder": store.encoder, "cells": len(store.cells), "speeches": int(store.cells["n"].sum())}
    labels = {label: store.counts(label) for label in ("Party", "Political Orientation")}
    write_json(Path(folder) / "centroids.json", described | labels)
    return store


def read_centroids(folder: Path) -> CentroidStore:
    """What `write_centroids` left in `folder`; an error names the stage to run where it is missing or of an older make."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run 02_dataset first")
    with np.load(path, allow_pickle=False) as data:
        if missing := sorted({*KEYS, "n", "sums", "encoder"} - set(data.files)):
            raise ValueError(f"{path} has no {missing[0]!r}, an older version made it: run 02_dataset again")
        cells = pd.DataFrame({key: data[key] for key in (*KEYS, "n")})
        return CentroidStore(cells, data["sums"], str(data["encoder"]))


def align(speeches: pd.DataFrame, vectors: np.ndarray, store: CentroidStore, leave_out: str = "prompt") -> pd.DataFrame:
    """All columns of notebook 06, a row a speech, for speeches with their prompt's `Party`, `Political Orientation`,
    `House`, `Topic`, `sitting_id`, `Section`, `speaker_id`.

    By "prompt", each speech is scored against centroids without its prompt's debate and speaker, whoever wrote it; a
    party or orientation of which that leaves nothing gives NaN. "none" leaves out nothing, for nobody. ValueError for a
    party without training speeches, and where a prompt does not say what to leave out.
    """
    names = [list(store.counts(label)) for label in ("Party", "Political Orientation", "Party")]
    tables = [pd.DataFrame(np.nan, range(len(speeches)), labels) for labels in names]
    contexts = np.array([context_key(*pair) for pair in zip(speeches["House"], speeches["Topic"], strict=True)])
    for gone, rows in _left_out(speeches, leave_out).items():  # many speeches answer one prompt
        left = store.residuals(*gone)
        made = [*(store.centroids(label, *gone) for label in ("Party", "Political Orientation")), left.centroids]
        spoken = [vectors[rows], vectors[rows], left.of(vectors[rows], contexts[rows])]
        for table, said, directions in zip(tables, spoken, made, strict=True):
            if directions:
                table.loc[rows, list(directions)] = cosines(said, directions).to_numpy()
    (parties, orientations, residual), expected = tables, speeches["Party"].tolist()
    scored = psa(orientations, speeches["Political Orientation"].tolist())
    scored["Party Align"], scored["margin"] = own(parties, expected), margin(parties, expected)
    scored["nearest_party"], scored["Party Align deranged"] = nearest(parties), deranged(parties, expected)
    scored["Party Align residual"] = own(residual, expected)
    return scored[COLUMNS].set_axis(speeches.index)


def _left_out(speeches: pd.DataFrame, leave_out: str) -> dict[tuple[str | None, str | None], np.ndarray]:
    """(debate, speaker) -> the row numbers for which they are left out."""
    if leave_out not in LEFT_OUT:
        raise ValueError(f"leave_out is one of {', '.join(LEFT_OUT)}, not {leave_out!r}")
    if leave_out == "none":
        return {(None, None): np.arange(len(speeches))}
    for column in ("sitting_id", "speaker_id"):
        if (lacking := speeches[column].isna()).any():
            raise ValueError(
                f"{lacking.sum()} speeches answer prompts without {column}, so it is not known whom to leave out: "
                "make prompts.jsonl with notebook 02, or set leave_out to none"
            )
    keys = pd.DataFrame({"debate": debate_of(speeches).to_numpy(), "speaker": speeches["speaker_id"].to_numpy()})
    return keys.groupby(["debate", "speaker"], sort=True).indices
