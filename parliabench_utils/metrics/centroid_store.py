"""Centroids on disk: sums of training vectors, from which one debate and one speaker can be left out exactly.

Notebook 02 writes them once, from training speeches only; notebook 06 reads them. A cosine to a centroid needs the
direction of a sum only, so a cell (party, orientation, debate, speaker, context) keeps its sum and count, and leaving
something out is a subtraction. Every speech uses it, a member's or a model's: the debate and the speaker of its prompt
never speak in its centroids.

    write_centroids(this_run.stage_folder("02_dataset") / "shared", train, SentenceEncoder())
    store = read_centroids(this_run.stage_folder("02_dataset") / "shared")
    store.centroids("Party", without_debate=debate_id(sitting_id, section), without_speaker=speaker_id)
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.corpus.dataset import debate_of
from parliabench_utils.metrics.residual import Residuals, context_key, residuals
from parliabench_utils.models.embeddings import SentenceEncoder
from parliabench_utils.models.encoders import unit_rows
from parliabench_utils.run.artefacts import whole_file, write_json

KEYS = ("Party", "Political Orientation", "debate", "speaker_id", "context")
LABELS = ("Party", "Political Orientation", "context")
FILE = "centroids.npz"


@dataclass(frozen=True)
class CentroidStore:
    """`cells`: a row a cell with the five keys and `n`; `sums`: float32 (n_cells, dimension), sums of unit vectors."""

    cells: pd.DataFrame
    sums: np.ndarray
    encoder: str

    def centroids(
        self, label: str, without_debate: str | None = None, without_speaker: str | None = None
    ) -> dict[str, np.ndarray]:
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
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE

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
