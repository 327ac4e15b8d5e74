"""Vectors on disk by text hash, for one encoder and its settings; many processes may read and write at once.

Each process appends fixed-size records (32-byte key, float32 vector) to a file of its own, so that there is nothing to
lock, and reads everybody's. A record that a kill left incomplete or damaged is not a unit vector and is passed over.

    cache = EmbeddingCache("all-MiniLM-L6-v2-53aa5117-chunk")
    cache.append({text_key("Order."): vector})
    cache.read()[text_key("Order.")]
"""

import hashlib
import os
import uuid
from pathlib import Path

import numpy as np

from parliabench_utils.run.project import cache_folder

KEY_BYTES = 32


def text_key(text: str) -> bytes:
    """sha256 of the text."""
    return hashlib.sha256(text.encode()).digest()


class EmbeddingCache:
    """All vectors under one key (encoder, weights, settings): `read` and `append`."""

    def __init__(self, key: str):
        self.folder = cache_folder("embeddings") / key
        self._own = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._rows: dict[bytes, np.ndarray] = {}
        self._seen: dict[Path, int] = {}  # bytes read so far, by file

    def read(self) -> dict[bytes, np.ndarray]:
        """Text key -> float32 vector, with what other processes have added since the last call."""
        for path in sorted(self.folder.glob("*.f32")):
            self._read_file(path)
        return self._rows

    def append(self, rows: dict[bytes, np.ndarray]) -> None:
        """Add vectors of one length to this process's file."""
        if not rows:
            return
        width = len(next(iter(rows.values())))
        self.folder.mkdir(parents=True, exist_ok=True)
        records = b"".join(key + np.asarray(vector, dtype="<f4").tobytes() for key, vector in rows.items())
        with (self.folder / f"{self._own}.{width}.f32").open("ab") as file:
            file.write(records)

    def _read_file(self, path: Path) -> None:
        width = int(path.suffixes[-2][1:])
        record = np.dtype([("key", "V32"), ("vector", "<f4", (width,))])
        begin = self._seen.get(path, 0)
        whole = (path.stat().st_size - begin) // record.itemsize
        if whole <= 0:
            return
        rows = np.fromfile(path, dtype=record, count=whole, offset=begin)
        self._seen[path] = begin + len(rows) * record.itemsize
        good = np.abs(np.linalg.norm(rows["vector"], axis=1) - 1) < 1e-3
        self._rows |= {row["key"].tobytes(): row["vector"] for row in rows[good]}
