"""Sentence embeddings, kept on disk, and token embeddings, kept in memory.

Notebooks 02 (references, centroids), 04 (does a speech touch its context), 05 (BERTScore, MoverScore, GRUEN's focus)
and 06 use it. Weights are read when the first text that is not in the cache turns up.

    encoder = SentenceEncoder()
    vectors = encoder.encode(["My Lords, I beg to move.", "Order."])   # (2, 384) unit rows
    float(vectors[0] @ vectors[1])
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.models.embedding_cache import EmbeddingCache, text_key
from parliabench_utils.models.encoders import (
    PACKAGED,
    batches_by_length,
    clean,
    cut_layers,
    encoder_folder,
    load_encoder,
    piece_limit,
    read_batches,
    require_mean_pooling,
    special_frame,
    unit_rows,
)
from parliabench_utils.models.loading import default_device

LONG_TEXT = {
    "chunk": "chunks of equal size, averaged by length",
    "cut": "cut at the limit, as sentence-transformers does",
}


class SentenceEncoder:
    """Unit vectors of texts by mean pooling, float32 on the CPU or the GPU that is there.

    `long_text`: `chunk` (default) splits a text over the encoder's limit into chunks of equal size and averages their
    vectors, weighted by length; `cut` drops the rest. A batch of another size moves the seventh decimal: rows are rounded
    to 6, and on a CPU each chunk is read alone (`batch_size` None; 32 on a GPU), so that no vector depends on its company.
    """

    def __init__(
        self,
        name: str = "all-MiniLM-L6-v2",
        long_text: str = "chunk",
        cache: bool = True,
        batch_size: int | None = None,
    ):
        if long_text not in LONG_TEXT:
            raise ValueError(f"long_text {long_text!r}: one of {', '.join(LONG_TEXT)}")
        self.name, self.long_text = name, long_text
        self.batch_size = batch_size or (1 if default_device() == "cpu" else 32)
        self._cache = EmbeddingCache(self._cache_key) if cache else None

    @cached_property
    def _cache_key(self) -> str:
        fingerprint = PACKAGED[self.name][2][:16] if self.name in PACKAGED else self._loaded[2]
        return f"{Path(self.name).name}-{fingerprint[:16]}-{self.long_text}-batch{self.batch_size}"

    @cached_property
    def _loaded(self) -> tuple[Any, Any, str]:
        tokenizer, model, fingerprint = load_encoder(self.name)
        require_mean_pooling(encoder_folder(self.name))
        return tokenizer, model.to(default_device()), fingerprint

    @cached_property
    def limit(self) -> int:
        """Pieces, special ones included, that one pass reads: 256 for MiniLM, 384 for mpnet."""
        folder, (tokenizer, model, _) = encoder_folder(self.name), self._loaded
        config = folder / "sentence_bert_config.json" if isinstance(folder, Path) else None
        named = {"all-mpnet-base-v2": 384}.get(Path(self.name).name, 512)
        if config and config.is_file():
            named = json.loads(config.read_text())["max_seq_length"]
        return piece_limit(tokenizer, model, named)

    @property
    def signature(self) -> str:
        """What fixes a vector: model, weights, pooling, what happens to long texts, precision."""
        return f"encoder:{self._cache_key}|pool:mean|norm:l2|dtype:fp32|round:6"

    def encode(self, texts: Sequence[str | None]) -> np.ndarray:
        """float32 array (n_texts, dimension) of unit rows; NaN rows for empty texts. Equal texts are encoded once."""
        cleaned = [clean(text) for text in texts]
        keys = [text_key(text) for text in cleaned]
        known = self._cache.find(keys) if self._cache else {}
        missing = {key: text for key, text in zip(keys, cleaned, strict=True) if text and key not in known}
        known = known | self._compute(missing)
        width = len(next(iter(known.values()))) if known else self._loaded[1].config.hidden_size
        nothing = np.full(width, np.nan, dtype=np.float32)
        rows = [known[key] if text else nothing for key, text in zip(keys, cleaned, strict=True)]
        return np.stack(rows) if rows else np.empty((0, width), dtype=np.float32)

    def _compute(self, missing: dict[bytes, str], block: int = 128) -> dict[bytes, np.ndarray]:
        """Vectors of `missing`, written to the cache block by block, so that a kill loses a second's work."""
        # Texts of like length together: little padding.
        order = sorted(missing, key=lambda key: (len(missing[key]), key))
        found: dict[bytes, np.ndarray] = {}
        for start in range(0, len(order), block):
            part = order[start : start + block]
            vectors = self._forward([missing[key] for key in part])
            rows = dict(zip(part, vectors, strict=True))
            if self._cache:
                self._cache.append(rows)
            found |= rows
        return found

    def _forward(self, texts: list[str]) -> np.ndarray:
        pieces = self._loaded[0](texts, add_special_tokens=False, verbose=False)["input_ids"]
        chunks = [(row, chunk) for row, ids in enumerate(pieces) for chunk in self._chunks(ids)]
        owner = np.array([row for row, _ in chunks])
        vectors = self._pooled([chunk for _, chunk in chunks])  # (n_chunks, dimension), unit rows
        weight = np.array([len(chunk) or 1 for _, chunk in chunks], dtype=np.float64)
        total = np.zeros((len(texts), vectors.shape[1]))
        np.add.at(total, owner, vectors * weight[:, None])
        return unit_rows(total).round(6).astype(np.float32)

    def _chunks(self, ids: list[int]) -> list[list[int]]:
        room = self.limit - self._loaded[0].num_special_tokens_to_add()
        if len(ids) <= room or self.long_text == "cut":
            return [ids[:room]]
        return [part.tolist() for part in np.array_split(np.array(ids), -(-len(ids) // room))]

    def _pooled(self, chunks: list[list[int]]) -> np.ndarray:
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

    Texts are cut at the encoder's limit (`truncated` counts them). Vectors of the texts used last stay in memory, at
    most `keep_mb`, so that references shared by many speeches are encoded once.
    """

    def __init__(
        self, name: str = "all-MiniLM-L6-v2", layer: int = -1, batch_size: int | None = None, keep_mb: int = 512
    ):
        self.name, self.layer, self.keep_mb = name, layer, keep_mb
        self.batch_size = batch_size
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

    @property
    def signature(self) -> str:
        """What fixes a vector."""
        spaced = "+space" if self._prefix else ""
        return (
            f"encoder:{Path(self.name).name}-{self._loaded[2]}{spaced}|layer:{self.layer}|limit:{self.limit}|dtype:fp32"
        )

    @cached_property
    def _prefix(self) -> str:
        """Byte-level BPE writes a word with a space before it in another way than one without: give the first word its own."""
        return " " if "Ġthe" in self._loaded[0].get_vocab() else ""

    @cached_property
    def special_ids(self) -> list[int]:
        """Ids of the pieces that open, close and pad a text; an unknown piece is not one of them."""
        tokenizer = self._loaded[0]
        opening, closing = special_frame(tokenizer)
        return sorted({*opening, *closing, tokenizer.pad_token_id} - {None})

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
        self._keep(found)
        return [found[text] for text in cleaned]

    @cached_property
    def _room(self) -> int:
        return self.limit - self._loaded[0].num_special_tokens_to_add()

    def _ids(self, texts: Sequence[str | None]) -> list[list[int]]:
        """Ids of each text without special pieces, however many."""
        cleaned = [clean(text) for text in texts]
        spaced = [self._prefix + text if text else "" for text in cleaned]
        return self._loaded[0](spaced, add_special_tokens=False, verbose=False)["input_ids"] if spaced else []

    def _forward(self, texts: list[str], ids: list[list[int]]) -> dict[str, Tokens]:
        import torch

        tokenizer, model, _ = self._loaded
        inputs = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(model.device)
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state.float()
            vectors = (hidden / hidden.norm(dim=-1, keepdim=True)).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ValueError(f"{self.name}, layer {self.layer}: vectors that are no numbers, for one of {texts!r:.400}")
        return {
            text: self._tokens(np.array(row), vectors[i, : len(row)].copy())
            for i, (text, row) in enumerate(zip(texts, ids, strict=True))
        }

    def _tokens(self, ids: np.ndarray, vectors: np.ndarray) -> Tokens:
        special = np.isin(ids, self.special_ids)
        return Tokens(ids, vectors, special, self._words[ids] | special)

    @cached_property
    def _words(self) -> np.ndarray:
        """Bool array (vocabulary,): does the piece open a word.

        WordPiece marks pieces that continue a word, byte-level BPE those that open one (here each word, see `_prefix`).
        """
        tokenizer = self._loaded[0]
        names = [
            name or "" for name in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        ]  # an id may be free
        opens = (name.startswith("Ġ") if self._prefix else not name.startswith("##") for name in names)
        return np.array([o and any(map(str.isalnum, n.removeprefix("Ġ"))) for o, n in zip(opens, names, strict=True)])

    def _keep(self, used: dict[str, Tokens]) -> None:
        for text, tokens in used.items():
            self._bytes += tokens.vectors.nbytes if text not in self._kept else 0
            self._kept[text] = tokens
            self._kept.move_to_end(text)
        while self._bytes > self.keep_mb * 2**20:
            self._bytes -= self._kept.popitem(last=False)[1].vectors.nbytes
