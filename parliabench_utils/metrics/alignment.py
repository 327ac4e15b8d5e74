"""Political Spectrum Alignment and Party Align: cosines to centroids of training speeches (paper 4.1.1, Eqs. 1-3).

Used by notebook 06. Rows of NaN (empty speeches) stay NaN; an expected label that has no centroid is an error,
because a misspelt party must not look like a bad speech.

    own = centroids(train_vectors, train_parties)              # {"Labour": unit vector, ...}
    party_alignment(speech_vectors, ["Labour"], own)           # Eq. 3
    political_spectrum_alignment(speech_vectors, ["Centre-left"], centroids(train_vectors, orientations))  # Eqs. 1-2
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.centroid_store import CentroidStore, debate_id, read_centroids, write_centroids
from parliabench_utils.metrics.residual import MIN_SPEECHES, Residuals, context_key
from parliabench_utils.models.encoders import unit_rows

__all__ = [
    "COLUMNS", "CentroidStore", "align", "centroids", "cosines", "debate_id", "derange", "nearest", "party_alignment",
    "party_margin", "political_spectrum_alignment", "psa_parts", "read_centroids", "signature", "swap",
    "write_centroids",
]  # fmt: skip

WIDEST = 12.0  # Far-left (-6) to Far-right (+6), the divisor of Eq. 2
Centroids = Mapping[str, np.ndarray]


EQUATIONS = {
    "PSA": "eq:1-2,distance:12",
    "Party Align": "eq:3",
    "Party Align residual": f"eq:3,without:house-and-topic-mean,min:{MIN_SPEECHES}",
}


def signature(encoder: str, left_out: str = "none", metric: str = "Party Align") -> str:
    """What fixes a value of PSA or Party Align: equation, where centroids come from, who is left out, encoder."""
    return f"{metric}|{EQUATIONS[metric]}|centroids:training-mean|left-out:{left_out}|{encoder}|v1"


def centroids(embeddings: np.ndarray, labels: Sequence[str | None]) -> dict[str, np.ndarray]:
    """Label -> unit vector along the mean of its unit rows, labels sorted; unlabelled and NaN rows do not count.

    The length of a row does not matter: rows are brought to length one first.
    """
    rows = unit_rows(np.asarray(embeddings, dtype=np.float64))
    labels = pd.Series(list(labels), dtype=object)
    usable = labels.notna().to_numpy() & ~np.isnan(rows).any(axis=1)
    return {
        str(label): unit_rows(rows[usable & (labels == label).to_numpy()].sum(axis=0))
        for label in sorted(set(labels[usable]))
    }


def cosines(embeddings: np.ndarray, centroids: Centroids) -> pd.DataFrame:
    """Cosine in [-1, 1] of each speech to each centroid: (n_speeches, n_labels), a column a label."""
    if not centroids:
        raise ValueError("there are no centroids: was there a training speech with a known label?")
    rows = unit_rows(np.atleast_2d(np.asarray(embeddings, dtype=np.float64)))
    return pd.DataFrame(np.clip(rows @ np.stack(list(centroids.values())).T, -1, 1), columns=list(centroids))


def party_alignment(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """Cosine in [-1, 1] to the expected party's centroid, shape (n_speeches,), paper Eq. 3."""
    return _own(cosines(embeddings, centroids), expected)


def party_margin(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> np.ndarray:
    """Cosine to the expected party minus the best other party's, in [-2, 2]: positive where it is nearest."""
    table = cosines(embeddings, centroids)
    own, others = _own(table, expected), table.to_numpy().copy()
    known = ~np.isnan(own)
    columns = [table.columns.get_loc(label) for label in np.asarray(list(expected), dtype=object)[known]]
    others[np.flatnonzero(known), columns] = -np.inf
    margin = own - others.max(axis=1)
    return np.where(np.isfinite(margin), margin, np.nan)


def nearest(embeddings: np.ndarray, centroids: Centroids) -> np.ndarray:
    """Label of the nearest centroid, object array (n_speeches,); None for a row of NaN."""
    table = cosines(embeddings, centroids)
    empty = table.isna().any(axis=1).to_numpy()
    labels = table.columns.to_numpy(dtype=object)[table.fillna(-2).to_numpy().argmax(axis=1)]
    return np.where(empty, None, labels)


def political_spectrum_alignment(
    embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids
) -> np.ndarray:
    """PSA in [-1, 1], shape (n_speeches,), paper Eqs. 1-2; NaN where the expected orientation is None or `Unknown`."""
    return psa_parts(embeddings, expected, centroids)["PSA"].to_numpy(dtype=np.float64)


def psa_parts(embeddings: np.ndarray, expected: Sequence[str | None], centroids: Centroids) -> pd.DataFrame:
    """PSA by steps, a row a speech: `similarity`, `nearest_orientation` (Eq. 1), `distance` 0 to 12, `PSA` (Eq. 2).

    The similarity is that to the *nearest* orientation, as the paper has it: a speech close to a wrong one keeps it,
    and loses by the distance. A negative similarity is not clipped. ValueError for an orientation that is not on the
    scale, and where there are not as many orientations as speeches.
    """
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE, UNKNOWN_ORIENTATION

    if len(expected) != len(embeddings):
        raise ValueError(f"{len(embeddings)} speeches and {len(expected)} expected orientations")
    named = set(pd.Series(list(expected), dtype=object).dropna()) - {UNKNOWN_ORIENTATION}
    if strange := sorted((set(centroids) | named) - set(ORIENTATION_SCALE)):
        raise ValueError(f"orientation {strange[0]!r} is not on the scale ({', '.join(ORIENTATION_SCALE)})")
    table = cosines(embeddings, centroids)
    closest = nearest(embeddings, centroids)
    distance = np.abs(_positions(expected) - _positions(closest))
    similarity = table.max(axis=1).to_numpy(dtype=np.float64)
    return pd.DataFrame(
        {
            "similarity": similarity,
            "nearest_orientation": pd.Series(closest, dtype=object),
            "distance": distance,
            "PSA": similarity * np.maximum(0.0, 1 - distance / WIDEST),
        }
    )


def derange(centroids: Centroids, shift: int = 1) -> dict[str, np.ndarray]:
    """Every label with the centroid of the label `shift` places on: a control in which nobody meets his own party."""
    labels = list(centroids)
    return {label: centroids[labels[(i + shift) % len(labels)]] for i, label in enumerate(labels)}


def swap(centroids: Centroids, first: str, second: str) -> dict[str, np.ndarray]:
    """The same centroids with two labels exchanged: Party Align must fall for these two and for no other."""
    return {**centroids, first: centroids[second], second: centroids[first]}


def _own(table: pd.DataFrame, expected: Sequence[str | None]) -> np.ndarray:
    labels = pd.Series(list(expected), dtype=object)
    if strange := sorted(set(labels.dropna()) - set(table.columns)):
        raise ValueError(f"no centroid for {strange[0]!r}; there are {', '.join(map(str, table.columns))}")
    known = labels.notna().to_numpy()
    scores = np.full(len(labels), np.nan)
    scores[known] = table.to_numpy()[known, table.columns.get_indexer(labels[known])]
    return scores


def _positions(orientations: Sequence[str | None]) -> np.ndarray:
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE

    return np.array([float(ORIENTATION_SCALE.get(label, np.nan)) for label in orientations])


COLUMNS = ["similarity", "nearest_orientation", "distance", "PSA"]
COLUMNS += ["Party Align", "margin", "nearest_party", "Party Align deranged", "Party Align residual"]


def align(speeches: pd.DataFrame, vectors: np.ndarray, store: CentroidStore, leave_out: bool = False) -> pd.DataFrame:
    """All columns of notebook 06 for speeches with `Party`, `Political Orientation`, `House`, `Topic`, `sitting_id`,
    `Section`, `speaker_id`.

    With `leave_out` each speech is scored against centroids without its own debate and speaker (human speeches).
    """
    if not leave_out:
        return _align(speeches, vectors, store, {})
    rows = []
    for i, row in enumerate(speeches.itertuples()):
        without = {"without_debate": debate_id(row.sitting_id, row.Section), "without_speaker": row.speaker_id}
        rows.append(_align(speeches.iloc[[i]], vectors[[i]], store, without))
    return pd.concat(rows) if rows else pd.DataFrame(columns=COLUMNS)


def _align(speeches: pd.DataFrame, vectors: np.ndarray, store: CentroidStore, without: dict[str, str]) -> pd.DataFrame:
    """A party of which leaving out has left nothing gets NaN; without leaving out, one that is not there is an error."""
    parties, left = store.centroids("Party", **without), store.residuals(**without)
    expected = _known(speeches["Party"], parties) if without else speeches["Party"].tolist()
    orientations = store.centroids("Political Orientation", **without)
    table = psa_parts(vectors, speeches["Political Orientation"].tolist(), orientations)
    table["Party Align"] = party_alignment(vectors, expected, parties)
    table["margin"] = party_margin(vectors, expected, parties)
    table["nearest_party"] = nearest(vectors, parties)
    table["Party Align deranged"] = party_alignment(vectors, expected, derange(parties))
    table["Party Align residual"] = _residual_alignment(speeches, vectors, left)
    return table[COLUMNS].set_axis(speeches.index)


def _residual_alignment(speeches: pd.DataFrame, vectors: np.ndarray, left: Residuals) -> np.ndarray:
    """Cosine in [-1, 1] of what is left of a speech without its topic and House to what is left of its party; NaN where
    the party speaks alone in all its contexts."""
    if not left.centroids:
        return np.full(len(speeches), np.nan)
    contexts = [context_key(*pair) for pair in zip(speeches["House"], speeches["Topic"], strict=True)]
    return party_alignment(left.of(vectors, contexts), _known(speeches["Party"], left.centroids), left.centroids)


def _known(labels: pd.Series, centroids: Centroids) -> list[str | None]:
    return [label if label in centroids else None for label in labels]
