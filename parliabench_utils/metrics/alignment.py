"""Political Spectrum Alignment and Party Align: cosines to centroids of training speeches (paper 4.1.1, Eqs. 1-3).

Used by notebook 06. Rows of NaN (empty speeches) stay NaN; an expected label that has no centroid is an error,
because a misspelt party must not look like a bad speech. Whoever answers a prompt, its member, a model or a speech
that was looked up, meets the same centroids: those without the prompt's own debate and speaker.

    own = centroids(train_vectors, train_parties)              # {"Labour": unit vector, ...}
    party_alignment(speech_vectors, ["Labour"], own)           # Eq. 3
    political_spectrum_alignment(speech_vectors, ["Centre-left"], centroids(train_vectors, orientations))  # Eqs. 1-2
    align(speeches, speech_vectors, read_centroids(folder))                                   # all columns of 06
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from parliabench_utils.corpus.dataset import debate_id, debate_of
from parliabench_utils.metrics.centroid_store import CentroidStore, read_centroids, write_centroids
from parliabench_utils.metrics.residual import MIN_SPEECHES, context_key
from parliabench_utils.models.encoders import unit_rows

__all__ = [
    "COLUMNS", "CentroidStore", "align", "centroids", "cosines", "debate_id", "nearest", "party_alignment",
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
    return {
        str(label): unit_rows(rows[usable & (labels == label).to_numpy()].sum(axis=0))
        for label in sorted(set(labels[usable]))
    }


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
    return _psa(cosines(embeddings, centroids), expected)


def swap(centroids: Centroids, first: str, second: str) -> dict[str, np.ndarray]:
    """The same centroids with two labels exchanged: Party Align must fall for these two and for no other."""
    return {**centroids, first: centroids[second], second: centroids[first]}


def _psa(table: pd.DataFrame, expected: Sequence[str | None]) -> pd.DataFrame:
    """`psa_parts` from cosines to orientations (n_speeches, n_orientations), NaN where leaving out has left no centroid.

    Where that befell the expected one, distance and PSA are NaN: nothing could be found at its place.
    """
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE, UNKNOWN_ORIENTATION

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
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE

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
