"""A model by the name of its file in `params/models/`: specification, weights, adapter.

Used by notebooks 03 (train), 04 (generate), 05 (score) and 07 (judge). Weights are safetensors or GGUF only, code from
a hub is never run, and an adapter is refused when it was trained on another base.

    from parliabench_utils.models.loading import load_model
    base = load_model("smollm2-135m", purpose="score")
    base.model(**base.tokenizer("My Lords,", return_tensors="pt")).logits.shape     # (1, n_tokens, 49152)
"""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from parliabench_utils.models.attention import use_folded_attention
from parliabench_utils.models.packaged import (
    SMOLLM2_SHA256,
    current_sha256,
    file_sha256,
    folder_sha256,
    packaged_smollm2,
    quiet_loading,
)
from parliabench_utils.run.params import read_yaml
from parliabench_utils.run.project import project_root, public_url

Precision = Literal["fp32", "bf16", "nf4"]
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
Purpose = Literal["score", "generate", "train"]
Specification = TypeVar("Specification", bound=BaseModel)
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")  # paper section 11.2


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
    family: Literal["smollm2", "mistral", "llama3", "gemma2", "qwen2", "yi", "phi3"]
    precision: Precision  # of the weights that LoRA (fp32, bf16) or QLoRA (nf4) trains on; a CPU computes in fp32
    prequantised: bool = False  # the checkpoint itself is 4-bit, it is not quantised on loading
    attention: Literal["sdpa", "eager"] = "sdpa"
    system_role: bool = True  # false: the system text is put in front of the user's (Gemma 2)
    chat_template: str | None = None  # Jinja; null takes the tokenizer's own
    stop: list[str]  # tokens that end the assistant's turn, each one token of the vocabulary
    lora_targets: list[str] = list(LORA_TARGETS)
    sha256: str | None = (
        None  # of the packaged GGUF file, of `path`'s file, or of its folder's weights (packaged.folder_sha256)
    )
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


def weights_location(spec: ModelSpec) -> dict[str, str]:
    """Arguments of `from_pretrained` that point at the weights: a folder, or a hub name with its revision.

    ValueError where the weights have not the sha256 that the specification declares, or where nothing can be held against it.
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
    _refuse_unchecked(spec)
    if spec.source == "hub":
        return {"pretrained_model_name_or_path": spec.id} | ({"revision": spec.revision} if spec.revision else {})
    where = (
        f"runs on a server ({public_url(spec.server_url or '')})"
        if spec.source == "server"
        else "is a GGUF file for llama.cpp"
    )
    raise ValueError(f"model {spec.name!r} {where}; it can neither be trained nor score here")


def _refuse_unchecked(spec: ModelSpec) -> None:
    if spec.sha256 and spec.source in ("hub", "server"):
        pinned = "`revision` pins it" if spec.source == "hub" else "its weights are not here"
        raise ValueError(
            f"params/models/{spec.name}.yaml: sha256 cannot be checked for source: {spec.source} ({pinned}); delete it"
        )


def weights_identity(spec: ModelSpec, model: Any) -> str:
    """What tells the weights of a loaded base from others: a commit, or the beginning of their sha256."""
    if spec.source == "packaged":
        return (spec.sha256 or SMOLLM2_SHA256)[:12]
    if spec.source == "path":
        return folder_sha256(project_root() / spec.path)[:12]
    return spec.revision or getattr(model.config, "_commit_hash", None) or "unpinned"


def load_tokenizer(name_or_spec: str | ModelSpec):
    """The tokenizer with left padding, a padding token and the specification's chat template."""
    from transformers import AutoTokenizer

    spec = as_spec(name_or_spec)
    where = weights_location(_with_tokenizer(spec))
    tokenizer = AutoTokenizer.from_pretrained(**where, padding_side="left", trust_remote_code=False)
    if spec.chat_template is not None:
        tokenizer.chat_template = spec.chat_template
    if tokenizer.chat_template is None:
        raise ValueError(f"params/models/{spec.name}.yaml: chat_template is null and {spec.id} ships none; write one")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _with_tokenizer(spec: ModelSpec) -> ModelSpec:
    """Where a tokenizer is: of a served or GGUF model in `path`'s folder or on the hub, since prompts are rendered here."""
    if spec.source == "server":
        return spec.model_copy(update={"source": "path" if spec.path else "hub", "sha256": None})
    if spec.source == "gguf":
        folder = Path(spec.path).parent if spec.path else None
        beside = folder is not None and (project_root() / folder / "tokenizer.json").is_file()
        source = "packaged" if folder is None else "path" if beside else "hub"
        own = spec.sha256 if source == "packaged" else None  # else it is the GGUF file's
        return spec.model_copy(update={"source": source, "path": str(folder), "sha256": own})
    return spec


def default_device() -> str:
    """`cuda` where there is one, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def computing_type():
    """What 4-bit weights are multiplied in: float32 on a CPU, where bf16 is slow without units for it and its results
    would depend on having them; bfloat16 on a GPU."""
    import torch

    return torch.float32 if default_device() == "cpu" else torch.bfloat16


def load_base(spec: ModelSpec, precision: Precision):
    """The base weights at a precision, in evaluation mode; nf4 quantises on loading unless the file is 4-bit."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    computing = computing_type() if precision == "nf4" else getattr(torch, DTYPES[precision])
    options: dict[str, Any] = {"dtype": computing}
    if precision == "nf4":
        if find_spec("bitsandbytes") is None:
            raise ImportError(f"model {spec.name!r} is 4-bit and needs bitsandbytes: pip install bitsandbytes")
        options["device_map"] = {"": default_device()}
        if not spec.prequantised:
            options["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=computing,
            )
    with quiet_loading():
        model = AutoModelForCausalLM.from_pretrained(
            **weights_location(spec),
            **options,
            attn_implementation=spec.attention,
            use_safetensors=True,  # a pickle can run code
            trust_remote_code=False,
        )
    model = keep_differentiable(model) if precision == "nf4" else model.to(default_device())
    return model.eval()


def keep_differentiable(model):
    """Switch off bitsandbytes' repacking of 4-bit weights on CPUs with AVX512-BF16.

    It happens at the first pass in evaluation mode and for good, and the packed kernel has no backward pass: a training that
    had taken a held-out loss would go on without gradients through the base's layers, with a warning at most.
    """
    from bitsandbytes.nn import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return model


def check_adapter(adapter: Path, spec: ModelSpec) -> str:
    """Refuse an adapter that was trained on another base, or changed after it was written; return the sha256 of its weights.

    ValueError names both bases or the changed files. A server or PEFT itself would answer with nonsense instead of an error.
    """
    for needed in ("adapter_config.json", "adapter_model.safetensors"):
        if not (adapter / needed).is_file():
            raise FileNotFoundError(f"{adapter} has no {needed}: is it an adapter, written whole by notebook 03?")
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    trained_on = (config.get("base_model_name_or_path"), config.get("revision"))
    if trained_on != (spec.id, spec.revision):
        raise ValueError(f"{adapter} was trained on {trained_on}, model {spec.name!r} is {(spec.id, spec.revision)}")
    if (adapter / "base.json").is_file():
        _check_record(adapter, json.loads((adapter / "base.json").read_text(encoding="utf-8")), spec)
    return file_sha256(adapter / "adapter_model.safetensors")


def _check_record(adapter: Path, record: dict[str, Any], spec: ModelSpec) -> None:
    """Hold an adapter against what `adapters.save_adapter` noted of it and of its base."""
    if record["precision"] != spec.precision:
        raise ValueError(f"{adapter} was trained on {record['precision']} weights, {spec.name!r} is {spec.precision}")
    if record.get("sha256") and spec.sha256 and record["sha256"] != spec.sha256:
        raise ValueError(
            f"{adapter} was trained on weights {record['sha256'][:12]}…, {spec.name!r} has {spec.sha256[:12]}…"
        )
    written = record.get("files", {})
    changed = [n for n, digest in written.items() if not (adapter / n).is_file() or file_sha256(adapter / n) != digest]
    if changed:
        raise ValueError(f"{adapter}: {', '.join(changed)} changed after it was written: run notebook 03 again")


def running_precision(spec: ModelSpec, purpose: Purpose) -> Precision:
    """The default: fp32 on a CPU (any CPU gives the same, batch size changes nothing), bf16 on a GPU; nf4 trains in nf4."""
    if purpose == "train" and (spec.precision == "nf4" or default_device() != "cpu"):
        return spec.precision
    return "fp32" if default_device() == "cpu" else "bf16"


def _with_precision(spec: ModelSpec, wanted: Precision):
    """Weights as trained, then cast: an nf4 model is dequantised, so that it stays the model that was tuned."""
    import torch

    model = load_base(spec, spec.precision if spec.precision == "nf4" else wanted)
    if spec.precision != "nf4" or wanted == "nf4":
        return model, wanted
    model = model.dequantize().to(getattr(torch, DTYPES[wanted]))
    return model, f"nf4 dequantised to {wanted}"


def _served(spec: ModelSpec, adapter: Path | str | None, purpose: Purpose) -> LoadedModel:
    """A model on a server: the base under its id, a tuned one as `<name>-fine-tuned`, its adapter checked here."""
    from parliabench_utils.models.server import ServerModel

    _refuse_unchecked(spec)
    if purpose != "generate" or not spec.server_url:
        weights_location(spec)  # raises: only generation can be asked of a server
    if adapter is not None:
        check_adapter(Path(adapter), spec)
    model = ServerModel(spec.server_url, f"{spec.name}-fine-tuned" if adapter else spec.id)
    model.check()
    return LoadedModel(model, load_tokenizer(spec), spec, f"{model.name} on a server", "server")


def _by_llama_cpp(spec: ModelSpec, adapter: Path | str | None, purpose: Purpose) -> LoadedModel:
    """A GGUF file through llama.cpp; ValueError for an adapter, which would have to be in GGUF too."""
    from parliabench_utils.models.gguf import GgufModel, gguf_file

    if purpose != "generate":
        weights_location(spec)  # raises
    if adapter is not None:
        raise ValueError(f"model {spec.name!r} is a GGUF file and takes no adapter: leave fine-tuned out of `types`")
    file = gguf_file(spec)
    return LoadedModel(
        GgufModel(file), load_tokenizer(spec), spec, f"{spec.id} gguf {current_sha256(file)[:12]}", "gguf"
    )


def load_model(
    name_or_spec: str | ModelSpec,
    adapter: Path | str | None = None,
    purpose: Purpose = "score",
    precision: Precision | None = None,
) -> LoadedModel:
    """Load a model for scoring, generating or training; an adapter is merged in memory unless the weights stay 4-bit.

    `precision` overrides `running_precision`. ValueError for an adapter of another base, an unknown precision, or nf4 asked of a
    bf16 model.
    """
    from peft import PeftModel

    spec = as_spec(name_or_spec)
    if spec.source == "server":
        return _served(spec, adapter, purpose)
    if spec.source == "gguf":
        return _by_llama_cpp(spec, adapter, purpose)
    wanted = precision or running_precision(spec, purpose)
    if wanted not in (known := get_args(Precision)):
        raise ValueError(f"precision {wanted!r} of {spec.name!r}: expected {', '.join(known)}")
    if wanted == "nf4" and spec.precision != "nf4":
        raise ValueError(f"model {spec.name!r} is {spec.precision}; write another params/models file to run it in nf4")
    tokenizer = load_tokenizer(spec)
    model, precision_text = _with_precision(spec, wanted)
    fingerprint = f"{spec.id}@{weights_identity(spec, model)} {precision_text}"
    if adapter is not None:
        digest = check_adapter(Path(adapter), spec)
        model = PeftModel.from_pretrained(model, str(adapter))
        if wanted != "nf4":
            model = model.merge_and_unload()
        fingerprint += f" + adapter {digest[:12]}"
    if purpose == "generate" and spec.attention == "sdpa":
        use_folded_attention(model)
    return LoadedModel(model.eval(), tokenizer, spec, fingerprint, precision_text)
