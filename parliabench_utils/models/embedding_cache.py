"""Vectors on disk by text hash, for one encoder and its settings; many processes may read and write at once.

Each process appends fixed-size records (32-byte key, float32 vector, 8-byte hash of both) to a file of its own, so that there is
nothing to lock, and finds everybody's. A record that is not what its hash says is passed over, so that its vector is computed again,
and counted in `damaged`; what a kill left incomplete is passed over too. Only the places of the vectors stay in memory.

    cache = EmbeddingCache("all-MiniLM-L6-v2-53aa5117-chunk")
    cache.append({text_key("Order."): vector})
    cache.find([text_key("Order.")])
"""

import hashlib
import os
import uuid
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from parliabench_utils.run.project import cache_folder

LAYOUT = 2  # raise it when a record is written otherwise: files of older layouts are then left alone
KEY_BYTES, HASH_BYTES = 32, 8
RECORDS_AT_ONCE = 8192


def text_key(text: str) -> bytes:
    """sha256 of the text."""
    return hashlib.sha256(text.encode()).digest()


def _hash(record: bytes) -> bytes:
    """Of a record's key and vector."""
    return hashlib.blake2b(record, digest_size=HASH_BYTES).digest()


class EmbeddingCache:
    """All vectors under one key (encoder, weights, settings): `find` and `append`."""

    def __init__(self, key: str):
        self.folder = cache_folder("embeddings") / f"{key}-v{LAYOUT}"
        self.damaged = 0  # records that were not what their hash says
        self._own = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._place: dict[bytes, tuple[Path, int]] = {}  # file and offset of each record
        self._seen: dict[Path, int] = {}  # bytes read so far, by file

    def find(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """Text key -> float32 vector of those `keys` that any process has written until now."""
        before = self.damaged
        for path in sorted(self.folder.glob("*.f32")):
            self._place |= self._new_records(path)
        by_file: dict[Path, list[tuple[int, bytes]]] = {}
        for key in {key for key in keys if key in self._place}:
            path, offset = self._place[key]
            by_file.setdefault(path, []).append((offset, key))
        found = {key: vector for path, places in by_file.items() for key, vector in self._read(path, sorted(places))}
        if self.damaged > before:
            count = self.damaged - before
            warnings.warn(
                f"{self.folder.name}: {count} cached vectors are damaged and are computed again", stacklevel=2
            )
        return found

    def append(self, rows: dict[bytes, np.ndarray]) -> None:
        """Add vectors of one length to this process's file; the folder is made again where somebody deleted it."""
        if not rows:
            return
        width = len(next(iter(rows.values())))
        self.folder.mkdir(parents=True, exist_ok=True)
        plain = [key + np.asarray(vector, dtype="<f4").tobytes() for key, vector in rows.items()]
        with (self.folder / f"{self._own}.{width}.f32").open("ab") as file:
            file.write(b"".join(record + _hash(record) for record in plain))

    def _new_records(self, path: Path) -> Iterator[tuple[bytes, tuple[Path, int]]]:
        """Key and place of the whole records that were added to a file since it was last looked at."""
        size = _record_bytes(path)
        with path.open("rb") as file:
            begin = self._seen.get(path, 0)
            if path.stat().st_size < begin:  # deleted and begun again
                begin = 0
                for key in [key for key, (file_of_key, _) in self._place.items() if file_of_key == path]:
                    del self._place[key]
            file.seek(begin)
            while len(block := file.read(RECORDS_AT_ONCE * size)) >= size:
                for start in range(0, len(block) - size + 1, size):
                    record = block[start : start + size]
                    if _hash(record[:-HASH_BYTES]) == record[-HASH_BYTES:]:
                        yield record[:KEY_BYTES], (path, begin + start)
                    else:
                        self.damaged += 1
                begin += len(block) // size * size
            self._seen[path] = begin

    def _read(self, path: Path, places: list[tuple[int, bytes]]) -> Iterator[tuple[bytes, np.ndarray]]:
        """The vectors at these places; none that changed, or whose file went, since its place was noted."""
        if not path.is_file():
            return
        size = _record_bytes(path)
        with path.open("rb") as file:
            for offset, key in places:
                file.seek(offset)
                record = file.read(size)
                if record[:KEY_BYTES] == key and _hash(record[:-HASH_BYTES]) == record[-HASH_BYTES:]:
                    yield key, np.frombuffer(record[KEY_BYTES:-HASH_BYTES], dtype="<f4")
                else:
                    self.damaged += 1
                    del self._place[key]


def _record_bytes(path: Path) -> int:
    """Bytes of a record in a file, whose name says how long its vectors are."""
    return KEY_BYTES + 4 * int(path.suffixes[-2][1:]) + HASH_BYTES
