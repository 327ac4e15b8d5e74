"""Party Align with topic and House held fixed: centroids of what is left of a speech without its context's mean.

A party that speaks about fishing has a centroid that smells of fish. Here the mean of all training speeches of the same
House and topic is taken away first, from the speeches of the centroid and from the one that is scored: what is left is
how this speaker differs from everybody else who spoke there. Not in the paper. Used by notebook 06.

    parts = residuals(["Green", "Labour"], party_sums, ["Commons/Energy"], context_sums, pair_counts)
    party_alignment(parts.of(vectors, contexts), expected, parts.centroids)

Centroids on disk: sums of training vectors, from which one debate and one speaker can be left out exactly.

Notebook 02 writes them once, from training speeches only; notebook 06 reads them. A cosine to a centroid needs the
direction of a sum only, so a cell (party, orientation, debate, speaker, context) keeps its sum and count, and leaving
something out is a subtraction. Every speech uses it, a member's or a model's: the debate and the speaker of its prompt
never speak in its centroids.

    write_centroids(this_run.stage_folder("02_dataset") / "shared", train, SentenceEncoder())
    store = read_centroids(this_run.stage_folder("02_dataset") / "shared")
    store.centroids("Party", without_debate=debate_id(sitting_id, section), without_speaker=speaker_id)

Political Spectrum Alignment and Party Align: cosines to centroids of training speeches (paper 4.1.1, Eqs. 1-3).

Used by notebook 06. Rows of NaN (empty speeches) stay NaN; an expected label that has no centroid is an error,
because a misspelt party must not look like a bad speech. Whoever answers a prompt, its member, a model or a speech
that was looked up, meets the same centroids: those without the prompt's own debate and speaker.

    own = centroids(train_vectors, train_parties)              # {"Labour": unit vector, ...}
    party_alignment(speech_vectors, ["Labour"], own)           # Eq. 3
    political_spectrum_alignment(speech_vectors, ["Centre-left"], centroids(train_vectors, orientations))  # Eqs. 1-2
    align(speeches, speech_vectors, read_centroids(folder))                                   # all columns of 06
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.corpus.dataset import debate_of
from parliabench_utils.models.embeddings import SentenceEncoder, unit_rows
from parliabench_utils.run.artefacts import whole_file, write_json

MIN_SPEECHES = 5  # a context with fewer training speeches has no mean of its own: its House's mean stands in
_NOTHING = 1e-6  # a mean residual shorter than this is rounding: nobody else spoke in the party's contexts


def context_key(house: str | None, topic: str | None) -> str:
    """One context of speaking: a topic in a House; `Unknown` where the corpus gives none (None, or a table's NaN)."""
    return "/".join(part if isinstance(part, str) else "Unknown" for part in (house, topic))


@dataclass(frozen=True)
class Residuals:
    """`centroids`: party -> unit vector; `means`: context, House, or "" (all speeches) -> mean vector, not of unit length."""

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
    parties: Sequence[str],
    party_sums: np.ndarray,
    contexts: Sequence[str],
    context_sums: np.ndarray,
    pair_counts: np.ndarray,
) -> Residuals:
    """From sums of training vectors by party (P, d) and by context (C, d) and speeches of each pair (P, C).

    A party that is alone in all its contexts has no centroid: it cannot be told from what it speaks about.
    """
    means = _means(contexts, context_sums, pair_counts.sum(axis=0))
    own = Residuals({}, means)
    left = party_sums - pair_counts @ np.stack([own.mean(context) for context in contexts])
    length = np.linalg.norm(left, axis=1) / np.maximum(pair_counts.sum(axis=1), 1)
    return Residuals({p: unit_rows(left[i]) for i, p in enumerate(parties) if length[i] > _NOTHING}, means)


def _means(contexts: Sequence[str], sums: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    houses = np.array([context.partition("/")[0] for context in contexts])
    found = {c: sums[i] / counts[i] for i, c in enumerate(contexts) if counts[i] >= MIN_SPEECHES}
    for house in sorted(set(houses[counts > 0])):
        found[house] = sums[houses == house].sum(axis=0) / counts[houses == house].sum()
    return found | {"": sums.sum(axis=0) / max(counts.sum(), 1)}


KEYS = ("Party", "Political Orientation", "debate", "speaker_id", "context")
LABELS = ("Party", "Political Orientation", "context")
FILE = "centroids.npz"


@dataclass(frozen=True)
class CentroidStore:
    """`cells`: a row a cell with the five keys and `n`; `sums`: float32 (n_cells, dimension), sums of unit vectors."""

    cells: pd.DataFrame
    sums: np.ndarray
    encoder: str

    def centroids(self, label: str, without_debate: str | None = None, without_speaker: str | None = None) -> dict[str, np.ndarray]:
        """Label -> unit vector for "Party" or "Political Orientation" (labels on the scale only), sorted by name.

        A label of which nothing is left is not in the result.
        """
        totals, counts = self._without(label, self._left_out(without_debate, without_speaker))
        return {name: unit_rows(totals[i]) for i, name in enumerate(self._groups[label].names) if counts[i] > 0}

    def residuals(self, without_debate: str | None = None, without_speaker: str | None = None) -> Residuals:
        """The party centroids that hold topic and House fixed, and the means that they are measured from."""
        rows = self._left_out(without_debate, without_speaker)
        parties, contexts = self._groups["Party"], self._groups["context"]
        pairs = self._pairs.copy()
        np.subtract.at(pairs, (parties.codes[rows], contexts.codes[rows]), self.cells["n"].to_numpy()[rows])
        party_sums, context_sums = (self._without(label, rows)[0] for label in ("Party", "context"))
        return residuals(parties.names, party_sums, contexts.names, context_sums, pairs)

    def counts(self, label: str) -> dict[str, int]:
        """Training speeches behind each centroid."""
        groups = self._groups[label]
        return dict(zip(groups.names, groups.counts.tolist(), strict=True))

    def _left_out(self, debate: str | None, speaker: str | None) -> np.ndarray:
        """The numbers of the cells that go, sorted."""
        found = (self._index[column].get(value, ()) for column, value in (("debate", debate), ("speaker_id", speaker)))
        return np.array(sorted({row for rows in found for row in rows}), dtype=int)

    def _without(self, label: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts of each label without these cells."""
        groups = self._groups[label]
        gone = (groups.codes[rows] == np.arange(len(groups.names))[:, None]).astype(np.float64)  # (n_labels, n_rows)
        totals = groups.totals - gone @ self.sums[rows].astype(np.float64)
        return totals, groups.counts - (gone @ self.cells["n"].to_numpy()[rows]).astype(int)

    @cached_property
    def _index(self) -> dict[str, dict[str, list[int]]]:
        return {column: self.cells.groupby(column).indices for column in ("debate", "speaker_id")}

    @cached_property
    def _groups(self) -> dict[str, "_Groups"]:
        return {label: _group(self.cells, self.sums, label) for label in LABELS}

    @cached_property
    def _pairs(self) -> np.ndarray:
        """Speeches of each party in each context, int (n_parties, n_contexts)."""
        parties, contexts = self._groups["Party"], self._groups["context"]
        pairs = np.zeros((len(parties.names), len(contexts.names)), dtype=int)
        np.add.at(pairs, (parties.codes, contexts.codes), self.cells["n"].to_numpy())
        return pairs


@dataclass(frozen=True)
class _Groups:
    names: list[str]
    codes: np.ndarray  # of each cell, -1 where it counts for no label
    totals: np.ndarray  # float64 (n_labels, dimension)
    counts: np.ndarray


def _group(cells: pd.DataFrame, sums: np.ndarray, label: str) -> _Groups:
    from parliabench_utils.corpus.people import ORIENTATION_SCALE

    values = cells[label]
    if label == "Political Orientation":  # Unknown and non-partisan groups have no place on the scale
        values = values.where(values.isin(list(ORIENTATION_SCALE)))
    names = sorted(values.dropna().unique())
    codes = pd.Categorical(values, categories=names).codes.astype(int)
    totals = np.zeros((len(names), sums.shape[1]))
    np.add.at(totals, codes[codes >= 0], sums[codes >= 0].astype(np.float64))
    counts = np.bincount(codes[codes >= 0], weights=cells["n"][codes >= 0], minlength=len(names)).astype(int)
    return _Groups(names, codes, totals, counts)


def write_centroids(folder: Path, train: pd.DataFrame, encoder: SentenceEncoder) -> CentroidStore:
    """Embed the training speeches; write `centroids.npz` (cells) and `centroids.json` (who is in them).

    `train` needs `speech_id, speaker_id, sitting_id, Section, Party, Political Orientation, House, Topic, Speech`; the
    order of its rows does not matter.
    """
    train = train.sort_values("speech_id").reset_index(drop=True)
    vectors = encoder.encode(train["Speech"].tolist())
    rows = train.assign(
        debate=debate_of(train),
        context=[context_key(*pair) for pair in zip(train["House"], train["Topic"], strict=True)],
    )
    keys = rows[list(KEYS)].fillna("Unknown").astype(str)
    usable = ~np.isnan(vectors).any(axis=1)
    cell = keys[usable].groupby(list(KEYS), sort=True)
    sums = pd.DataFrame(vectors[usable].astype(np.float64), index=keys.index[usable]).groupby(cell.ngroup()).sum()
    store = CentroidStore(cell.size().rename("n").reset_index(), sums.to_numpy(dtype=np.float32), encoder.signature)
    _write(Path(folder), store)
    return store


def _write(folder: Path, store: CentroidStore) -> None:
    columns = {key: store.cells[key].to_numpy(dtype=str) for key in KEYS} | {"n": store.cells["n"].to_numpy()}
    with whole_file(folder / FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, sums=store.sums, encoder=np.array(store.encoder), **columns)
    described = {"encoder": store.encoder, "cells": len(store.cells), "speeches": int(store.cells["n"].sum())}
    labels = {label: store.counts(label) for label in ("Party", "Political Orientation")}
    write_json(folder / "centroids.json", described | labels)


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


WIDEST = 12.0  # Far-left (-6) to Far-right (+6), the divisor of Eq. 2
Centroids = Mapping[str, np.ndarray]


EQUATIONS = {
    "PSA": "eq:1-2,distance:12",
    "Party Align": "eq:3",
    "Party Align residual": f"eq:3,without:house-and-topic-mean,min:{MIN_SPEECHES}",
}


LEFT_OUT = {"prompt": "the prompt's debate and speaker", "none": "none"}


def signature(encoder: str, leave_out: str = "prompt", metric: str = "Party Align") -> str:
    """What fixes a value of PSA or Party Align: equation, where centroids come from, who is left out, encoder."""
    return f"{metric}|{EQUATIONS[metric]}|centroids:training-mean|left-out:{LEFT_OUT[leave_out]}|{encoder}|v2"


def centroids(embeddings: np.ndarray, labels: Sequence[str | None]) -> dict[str, np.ndarray]:
    """Label -> unit vector along the mean of its unit rows, labels sorted; unlabelled and NaN rows do not count.

    The length of a row does not matter: rows are brought to length one first.
    """
    rows = unit_rows(np.asarray(embeddings, dtype=np.float64))
    labels = pd.Series(list(labels), dtype=object)
    usable = labels.notna().to_numpy() & ~np.isnan(rows).any(axis=1)
    return {str(label): unit_rows(rows[usable & (labels == label).to_numpy()].sum(axis=0)) for label in sorted(set(labels[usable]))}


def cosines(embeddings: np.ndarray, centroids: Centroids) -> pd.DataFrame:
    """Cosine in [-1, 1] of each speech to each centroid: (n_speeches, n_labels), a column a label."""
    if not centroids:
        raise ValueError("there are no centroids: was there a training speech with a known label?")
    return pd.DataFrame(_cosines(embeddings, centroids), columns=list(centroids))


def _cosines(embeddings: np.ndarray, centroids: Centroids) -> np.ndarray:
    rows = unit_rows(np.atleast_2d(np.asarray(embeddings, dtype=np.float64)))
    return np.clip(rows @ np.stack(list(centroids.values())).T, -1, 1)


def party_alignment(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """Cosine in [-1, 1] to the expected party's centroid, shape (n_speeches,), paper Eq. 3."""
    return _own(cosines(embeddings, centroids), expected)


def party_margin(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """Cosine to the expected party minus the best other party's, in [-2, 2]: positive where it is nearest."""
    return _margin(cosines(embeddings, centroids), expected)


def nearest(embeddings: np.ndarray, centroids: Centroids) -> np.ndarray:
    """Label of the nearest centroid, object array (n_speeches,); None for a row of NaN."""
    return _nearest(cosines(embeddings, centroids))


def political_spectrum_alignment(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """PSA in [-1, 1], shape (n_speeches,), paper Eqs. 1-2; NaN where the expected orientation is None or `Unknown`."""
    return psa_parts(embeddings, expected, centroids)["PSA"].to_numpy(dtype=np.float64)


def psa_parts(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> pd.DataFrame:
    """PSA by steps, a row a speech: `similarity`, `nearest_orientation` (Eq. 1), `distance` 0 to 12, `PSA` (Eq. 2).

    The similarity is that to the *nearest* orientation, as the paper has it: a speech close to a wrong one keeps it,
    and loses by the distance. A negative similarity is not clipped. ValueError for an orientation that is not on the
    scale, and where there are not as many orientations as speeches.
    """
    return _psa(cosines(embeddings, centroids), expected)


def swap(centroids: Centroids, first: str, second: str) -> dict[str, np.ndarray]:
    """The same centroids with two labels exchanged: Party Align must fall for these two and for no other."""
    return {**centroids, first: centroids[second], second: centroids[first]}


def _psa(table: pd.DataFrame, expected: Sequence[str | None]) -> pd.DataFrame:
    """`psa_parts` from cosines to orientations (n_speeches, n_orientations), NaN where leaving out has left no centroid.

    Where that befell the expected one, distance and PSA are NaN: nothing could be found at its place.
    """
    from parliabench_utils.corpus.people import ORIENTATION_SCALE, UNKNOWN_ORIENTATION

    if len(expected) != len(table):
        raise ValueError(f"{len(table)} speeches and {len(expected)} expected orientations")
    named = pd.Series(list(expected), dtype=object)
    known = set(named.dropna()) - {UNKNOWN_ORIENTATION}
    if strange := sorted((set(table.columns) | known) - set(ORIENTATION_SCALE)):
        raise ValueError(f"orientation {strange[0]!r} is not on the scale ({', '.join(ORIENTATION_SCALE)})")
    closest, similarity = _nearest(table), table.max(axis=1).to_numpy(dtype=np.float64)
    held = named.isin(list(table.columns)).to_numpy()
    lost = held & np.isnan(_own(table, named.where(held, None)))
    distance = np.where(lost, np.nan, np.abs(_positions(expected) - _positions(closest)))
    psa = similarity * np.maximum(0.0, 1 - distance / WIDEST)
    return pd.DataFrame(
        {
            "similarity": similarity,
            "nearest_orientation": pd.Series(closest, dtype=object),
            "distance": distance,
            "PSA": psa,
        }
    )


def _own(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    """The expected label's column, row by row: (n_speeches,)."""
    labels = pd.Series(list(expected), dtype=object)
    if strange := sorted(set(labels.dropna()) - set(table.columns)):
        raise ValueError(f"no centroid for {strange[0]!r}; there are {', '.join(map(str, table.columns))}")
    known = labels.notna().to_numpy()
    scores = np.full(len(labels), np.nan)
    scores[known] = table.to_numpy()[known, table.columns.get_indexer(labels[known])]
    return scores


def _margin(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    own = _own(table, expected)
    others = table.where(table.columns.to_numpy() != np.array(list(expected), dtype=object)[:, None])
    return own - others.max(axis=1).to_numpy(dtype=np.float64)


def _nearest(table: pd.DataFrame) -> np.ndarray:
    labels = table.columns.to_numpy(dtype=object)[table.fillna(-2).to_numpy().argmax(axis=1)]
    return np.where(table.isna().all(axis=1), None, labels)


def _deranged(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    """The cosine to the label after the expected one (the next that has a centroid, round the end): a control in which
    nobody meets his own party; NaN where he has none, or nobody else has."""
    values, own = table.to_numpy(), _own(table, expected)
    places = np.maximum(table.columns.get_indexer(pd.Series(list(expected), dtype=object)), 0)
    following = (places[:, None] + np.arange(1, len(table.columns))) % len(table.columns)  # (n_speeches, n_labels - 1)
    wrong = np.column_stack([np.take_along_axis(values, following, axis=1), np.full(len(own), np.nan)])
    first = np.argmax(~np.isnan(wrong), axis=1)
    return np.where(np.isnan(own), np.nan, wrong[np.arange(len(own)), first])


def _positions(orientations: Sequence[str | None]) -> np.ndarray:
    from parliabench_utils.corpus.people import ORIENTATION_SCALE

    return np.array([float(ORIENTATION_SCALE.get(label, np.nan)) for label in orientations])


COLUMNS = ["similarity", "nearest_orientation", "distance", "PSA"]
COLUMNS += ["Party Align", "margin", "nearest_party", "Party Align deranged", "Party Align residual"]


def align(speeches: pd.DataFrame, vectors: np.ndarray, store: CentroidStore, leave_out: str = "prompt") -> pd.DataFrame:
    """All columns of notebook 06, a row a speech, for speeches with their prompt's `Party`, `Political Orientation`,
    `House`, `Topic`, `sitting_id`, `Section`, `speaker_id`.

    By "prompt", each speech is scored against centroids without its prompt's debate and speaker, whoever wrote it; a
    party or orientation of which that leaves nothing gives NaN. "none" leaves out nothing, for nobody. ValueError for a
    party without training speeches, and where a prompt does not say what to leave out.
    """
    parties, orientations, residual = _tables(speeches, vectors, store, leave_out)
    expected = speeches["Party"].tolist()
    scored = _psa(orientations, speeches["Political Orientation"].tolist())
    scored["Party Align"] = _own(parties, expected)
    scored["margin"] = _margin(parties, expected)
    scored["nearest_party"] = _nearest(parties)
    scored["Party Align deranged"] = _deranged(parties, expected)
    scored["Party Align residual"] = _own(residual, expected)
    return scored[COLUMNS].set_axis(speeches.index)


def _tables(
    speeches: pd.DataFrame, vectors: np.ndarray, store: CentroidStore, leave_out: str
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Cosines of each speech (rows) to parties, to orientations and, without topic and House, to parties."""
    names = [list(store.counts(label)) for label in ("Party", "Political Orientation", "Party")]
    tables = [np.full((len(speeches), len(labels)), np.nan) for labels in names]
    contexts = np.array([context_key(*pair) for pair in zip(speeches["House"], speeches["Topic"], strict=True)])
    for (debate, speaker), rows in _left_out(speeches, leave_out).items():
        made = [store.centroids(label, debate, speaker) for label in ("Party", "Political Orientation")]
        left = store.residuals(debate, speaker)
        spoken = [vectors[rows], vectors[rows], left.of(vectors[rows], contexts[rows])]
        for table, labels, said, centroids in zip(tables, names, spoken, [*made, left.centroids], strict=True):
            there = [labels.index(label) for label in centroids]
            if there:
                table[np.ix_(rows, there)] = _cosines(said, centroids)
    return tuple(pd.DataFrame(table, columns=labels) for table, labels in zip(tables, names, strict=True))


def _left_out(speeches: pd.DataFrame, leave_out: str) -> dict[tuple[str | None, str | None], np.ndarray]:
    """(debate, speaker) -> the row numbers for which they are left out: many speeches answer one prompt."""
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
