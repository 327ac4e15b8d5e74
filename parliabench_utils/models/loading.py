"""A model by the name of its file in `params/models/`: specification, weights, adapter.

Used by notebooks 03 (train), 04 (generate), 05 (score) and 07 (judge). Weights are safetensors or GGUF only, code from
a hub is never run, and an adapter is refused when it was trained on another base.

    from parliabench_utils.models.loading import load_model
    base = load_model("smollm2-135m", purpose="score")
    base.model(**base.tokenizer("My Lords,", return_tensors="pt")).logits.shape     # (1, n_tokens, 49152)

Attention of one new token without copying keys and values, for generation with models that share them among heads.

Where a batch is padded, transformers repeats the keys and values of a group for each of its heads at every token: with SmolLM2 at
batch 32 that copying takes most of a step. Here the heads of a group stand as queries of one attention, which is the same sum.

    use_folded_attention(model)         # load_model does it for purpose="generate"

Fetch the weights that a parameter file names, and write the revision that came into the file.

Used by the command line: `python -m parliabench_utils fetch-models llama-3.1-8b flow-judge`. Afterwards notebooks run offline.
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from parliabench_utils.models.specs import (
    DTYPES,
    LoadedModel,
    ModelSpec,
    Precision,
    Purpose,
    _refuse_unchecked,
    as_spec,
    computing_type,
    current_sha256,
    default_device,
    file_sha256,
    load_tokenizer,
    quiet_loading,
    running_precision,
    weights_identity,
    weights_location,
)
from parliabench_utils.run.artefacts import write_text
from parliabench_utils.run.params import read_given_text, read_yaml
from parliabench_utils.run.project import project_root


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
        raise ValueError(f"{adapter} was trained on weights {record['sha256'][:12]}…, {spec.name!r} has {spec.sha256[:12]}…")
    written = record.get("files", {})
    changed = [n for n, digest in written.items() if not (adapter / n).is_file() or file_sha256(adapter / n) != digest]
    if changed:
        raise ValueError(f"{adapter}: {', '.join(changed)} changed after it was written: run notebook 03 again")


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
    from parliabench_utils.models.backends import ServerModel

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
    from parliabench_utils.models.backends import GgufModel, gguf_file

    if purpose != "generate":
        weights_location(spec)  # raises
    if adapter is not None:
        raise ValueError(f"model {spec.name!r} is a GGUF file and takes no adapter: leave fine-tuned out of `types`")
    file = gguf_file(spec)
    return LoadedModel(GgufModel(file), load_tokenizer(spec), spec, f"{spec.id} gguf {current_sha256(file)[:12]}", "gguf")


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


NAME = "folded"


def folded_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """transformers' attention interface: `query` (B, H, T, D), `key` and `value` (B, G, N, D) → (B, T, H, D), no weights.

    Only single tokens (T = 1) are folded; the prompt is read by the stock function.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, length, size = query.shape
    groups = key.shape[1]
    if length > 1 or heads == groups:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    folded = query.reshape(batch, groups, heads // groups, size)
    out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(batch, 1, heads, size), None


def use_folded_attention(model) -> None:
    """Make a loaded model use it, with the masks of `sdpa`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, folded_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


WANTED_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.model", "*.txt"]


def fetch_model(name: str) -> str:
    """Download `params/models/<name>.yaml` or `params/judges/<name>.yaml`'s checkpoint and pin it; returns the commit.

    Safetensors and tokenizer files only: no pickles, no code. A file that is pinned already is fetched at that revision. Raises
    FileNotFoundError for an unknown name and ValueError for a model that is not on a hub.
    """
    from huggingface_hub import HfApi, snapshot_download

    file = _parameter_file(name)
    checkpoint, revision = _hub_id(file)
    commit = HfApi().model_info(checkpoint, revision=revision).sha
    snapshot_download(checkpoint, revision=commit, allow_patterns=WANTED_FILES)
    _pin(file, commit)
    return commit


def _parameter_file(name: str) -> Path:
    folders = [project_root() / "params" / kind for kind in ("models", "judges")]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = ", ".join(sorted(file.stem for folder in folders for file in folder.glob("*.yaml")))
    raise FileNotFoundError(f"no model or judge {name!r}; known: {known}")


def _hub_id(file: Path) -> tuple[str, str | None]:
    values = read_yaml(file)
    values = values["model"] if isinstance(values.get("model"), dict) else values
    if values.get("source") != "hub":
        raise ValueError(f"{file.name}: nothing to fetch, its weights come from {values.get('source') or values.get('model')}")
    return values["id"], values.get("revision")


def _pin(file: Path, commit: str) -> None:
    """Replace the value of the one `revision:` line, keeping the file's comments."""
    text = read_given_text(file)
    pinned, count = re.subn(r"(?m)^(\s*revision:\s*)\S+", rf"\g<1>{commit}", text)
    if count != 1:
        raise ValueError(f"{file}: expected one line `revision:`, found {count}")
    write_text(file, pinned)
