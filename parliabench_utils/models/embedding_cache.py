"""Vectors on disk by text hash, for one encoder and its settings; many processes may read and write at once.

Each process appends fixed-size records (32-byte key, float32 vector) to a file of its own, so that there is nothing to
lock, and finds everybody's. A record that a kill left incomplete or damaged is not a unit vector and is passed over.
Only the places of the vectors stay in memory, not the vectors.

    cache = EmbeddingCache("all-MiniLM-L6-v2-53aa5117-chunk")
    cache.append({text_key("Order."): vector})
    cache.find([text_key("Order.")])
"""

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from parliabench_utils.run.project import cache_folder

KEY_BYTES = 32
RECORDS_AT_ONCE = 8192


def text_key(text: str) -> bytes:
    """sha256 of the text."""
    return hashlib.sha256(text.encode()).digest()


class EmbeddingCache:
    """All vectors under one key (encoder, weights, settings): `find` and `append`."""

    def __init__(self, key: str):
        self.folder = cache_folder("embeddings") / key
        self._own = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._place: dict[bytes, tuple[Path, int]] = {}  # file and offset of each vector
        self._seen: dict[Path, int] = {}  # bytes read so far, by file

    def find(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """Text key -> float32 vector of those `keys` that any process has written until now."""
        for path in sorted(self.folder.glob("*.f32")):
            self._place |= self._new_records(path)
        by_file: dict[Path, list[tuple[int, bytes]]] = {}
        for key in {key for key in keys if key in self._place}:
            path, offset = self._place[key]
            by_file.setdefault(path, []).append((offset, key))
        return {key: vector for path, places in by_file.items() for key, vector in _read(path, sorted(places))}

    def append(self, rows: dict[bytes, np.ndarray]) -> None:
        """Add vectors of one length to this process's file."""
        if not rows:
            return
        width = len(next(iter(rows.values())))
        self.folder.mkdir(parents=True, exist_ok=True)
        records = b"".join(key + np.asarray(vector, dtype="<f4").tobytes() for key, vector in rows.items())
        with (self.folder / f"{self._own}.{width}.f32").open("ab") as file:
            file.write(records)

    def _new_records(self, path: Path) -> Iterator[tuple[bytes, tuple[Path, int]]]:
        """Key and place of the whole records that were added to a file since it was last looked at."""
        record = np.dtype([("key", "V32"), ("vector", "<f4", (_width(path),))])
        while True:
            begin = self._seen.get(path, 0)
            count = min(RECORDS_AT_ONCE, (path.stat().st_size - begin) // record.itemsize)
            if count <= 0:
                return
            rows = np.fromfile(path, dtype=record, count=count, offset=begin)
            self._seen[path] = begin + len(rows) * record.itemsize
            good = np.abs(np.linalg.norm(rows["vector"], axis=1) - 1) < 1e-3
            for i in np.flatnonzero(good):
                yield rows["key"][i].tobytes(), (path, begin + int(i) * record.itemsize + KEY_BYTES)


def _width(path: Path) -> int:
    return int(path.suffixes[-2][1:])


def _read(path: Path, places: list[tuple[int, bytes]]) -> Iterator[tuple[bytes, np.ndarray]]:
    with path.open("rb") as file:
        for offset, key in places:
            file.seek(offset)
            yield key, np.frombuffer(file.read(4 * _width(path)), dtype="<f4")
