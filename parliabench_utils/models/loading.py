"""A model by the name of its file in `params/models/`: weights, adapter, attention; and its weights fetched from a hub.

Used by notebooks 03 (train), 04 (generate), 05 (score) and 07 (judge), and by `python -m parliabench_utils fetch-models`. Weights are
safetensors or GGUF only, code from a hub is never run, and an adapter is refused when it was trained on another base.

    from parliabench_utils.models.loading import load_model
    base = load_model("smollm2-135m", purpose="score")
    base.model(**base.tokenizer("My Lords,", return_tensors="pt")).logits.shape     # (1, n_tokens, 49152)
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from parliabench_utils.models.backends import GgufModel, ServerModel, gguf_file
from parliabench_utils.models.embeddings import ON_HUB, PACKAGED
from parliabench_utils.models.specs import (
    DTYPES,
    LoadedModel,
    ModelSpec,
    Precision,
    Purpose,
    as_spec,
    computing_type,
    current_sha256,
    default_device,
    load_tokenizer,
    quiet_loading,
    refuse_unchecked,
    running_precision,
    weights_identity,
    weights_location,
)
from parliabench_utils.run.artefacts import file_sha256, write_text
from parliabench_utils.run.params import RULES, read_given_text, read_profile, read_yaml
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
            four_bits = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": computing}
            options["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, **four_bits)
    options |= {"attn_implementation": spec.attention, "use_safetensors": True, "trust_remote_code": False}  # a pickle can run code
    with quiet_loading():
        model = AutoModelForCausalLM.from_pretrained(**weights_location(spec), **options)
    return (keep_differentiable(model) if precision == "nf4" else model.to(default_device())).eval()


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
    if (adapter / "base.json").is_file():  # what finetune.save_adapter noted of adapter and base
        record = json.loads((adapter / "base.json").read_text(encoding="utf-8"))
        if record["precision"] != spec.precision:
            raise ValueError(f"{adapter} was trained on {record['precision']} weights, {spec.name!r} is {spec.precision}")
        if record.get("sha256") and spec.sha256 and record["sha256"] != spec.sha256:
            raise ValueError(f"{adapter} was trained on weights {record['sha256'][:12]}…, {spec.name!r} has {spec.sha256[:12]}…")
        written = record.get("files", {}).items()
        if changed := [n for n, digest in written if not (adapter / n).is_file() or file_sha256(adapter / n) != digest]:
            raise ValueError(f"{adapter}: {', '.join(changed)} changed after it was written: run notebook 03 again")
    return file_sha256(adapter / "adapter_model.safetensors")


def _load_elsewhere(spec: ModelSpec, adapter: Path | str | None, purpose: Purpose) -> LoadedModel:
    """A model that does not run in this process's PyTorch: on a server, or a GGUF file through llama.cpp."""
    if spec.source == "server":
        refuse_unchecked(spec)
    if purpose != "generate" or (spec.source == "server" and not spec.server_url):
        weights_location(spec)  # raises: they can only generate
    if spec.source == "gguf":
        if adapter is not None:
            raise ValueError(f"model {spec.name!r} is a GGUF file and takes no adapter: leave fine-tuned out of `types`")
        file = gguf_file(spec)
        return LoadedModel(GgufModel(file), load_tokenizer(spec), spec, f"{spec.id} gguf {current_sha256(file)[:12]}", "gguf")
    if adapter is not None:
        check_adapter(Path(adapter), spec)
    model = ServerModel(spec.server_url, f"{spec.name}-fine-tuned" if adapter else spec.id)
    model.check()
    return LoadedModel(model, load_tokenizer(spec), spec, f"{model.name} on a server", "server")


def load_model(
    name_or_spec: str | ModelSpec, adapter: Path | str | None = None, purpose: Purpose = "score", precision: Precision | None = None
) -> LoadedModel:
    """Load a model for scoring, generating or training; an adapter is merged in memory unless the weights stay 4-bit.

    `precision` overrides `running_precision`: an nf4 model is then loaded as it was trained and dequantised, so that it stays the
    model that was tuned. ValueError for an adapter of another base, an unknown precision, or nf4 asked of a bf16 model.
    """
    import torch
    from peft import PeftModel

    spec = as_spec(name_or_spec)
    if spec.source in ("server", "gguf"):
        return _load_elsewhere(spec, adapter, purpose)
    wanted = precision or running_precision(spec, purpose)
    if wanted not in (known := get_args(Precision)):
        raise ValueError(f"precision {wanted!r} of {spec.name!r}: expected {', '.join(known)}")
    if wanted == "nf4" and spec.precision != "nf4":
        raise ValueError(f"model {spec.name!r} is {spec.precision}; write another params/models file to run it in nf4")
    tokenizer, precision_text = load_tokenizer(spec), wanted
    model = load_base(spec, spec.precision if spec.precision == "nf4" else wanted)
    if spec.precision == "nf4" != wanted:
        model, precision_text = model.dequantize().to(getattr(torch, DTYPES[wanted])), f"nf4 dequantised to {wanted}"
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


def folded_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """transformers' attention interface: `query` (B, H, T, D), `key` and `value` (B, G, N, D) → (B, T, H, D), no weights.

    Stock code repeats the keys and values of a group for each of its heads, which takes most of a step at batch 32. Here the heads of
    a group stand as queries of one attention, which is the same sum. Only single tokens (T = 1) are folded.
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

    AttentionInterface.register("folded", folded_attention)
    AttentionMaskInterface.register("folded", sdpa_mask)
    model.set_attn_implementation("folded")


CHECKPOINTS = {  # parameters that name one, and where they are read only with another parameter's value, that one
    **dict.fromkeys(("encoder", "language_model", "sentence_encoder", "bertscore_encoder", "moverscore_encoder")),
    **dict.fromkeys(("masked_model", "acceptability_model"), ("grammar", "masked")),
    "topic_model": ("topic_classifier", "transformers"),
}


def fetch_profile(profile: str) -> dict[str, str]:
    """Download all that a profile's notebooks load from a hub, so that they run with `offline=true`; name → commit.

    Files of `params/models/` and `params/judges/` are pinned (`fetch_model`), encoders and readers come as the hub has them today.
    """
    files, wanted = _model_files(), {}
    for values in (read_profile(stage, profile) for stage in RULES):
        asked = [key for key, only in CHECKPOINTS.items() if key in values and (not only or values[only[0]] == only[1])]
        wanted |= {values[key]: key for key in asked}
        judges = [name for name in (values.get("judge"), values.get("second_judge")) if name]
        bases = [read_yaml(files[judge]).get("extends", judge) if judge in files else judge for judge in judges]
        wanted |= dict.fromkeys([*values["models"], *bases], "models")
    commits = {}
    for name, key in wanted.items():
        if _on_hub(files[name]) if name in files else key == "models":
            commits[name] = fetch_model(name)  # an unknown one is refused by name
        elif name not in files and name not in PACKAGED and not Path(name).is_dir():
            commits[name] = _download(ON_HUB.get(name, name), pickle=key == "acceptability_model")
    return commits


def _model_files() -> dict[str, Path]:
    return {file.stem: file for kind in ("judges", "models") for file in (project_root() / "params" / kind).glob("*.yaml")}


def _on_hub(file: Path) -> dict[str, Any] | None:
    """What the file says of a checkpoint on a hub; None where its weights come from elsewhere."""
    values = read_yaml(file)
    values = values["model"] if isinstance(values.get("model"), dict) else values
    return values if values.get("source") == "hub" else None


def _download(checkpoint: str, revision: str | None = None, pickle: bool = False) -> str:
    """A checkpoint's tokenizer and weights as safetensors; `pickle`: also the file that is read as tensors only. Its commit."""
    from huggingface_hub import HfApi, snapshot_download

    commit = HfApi().model_info(checkpoint, revision=revision).sha
    wanted = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.model", "*.txt", *(["pytorch_model.bin"] if pickle else [])]
    snapshot_download(checkpoint, revision=commit, allow_patterns=wanted)
    return commit


def fetch_model(name: str) -> str:
    """Download `params/models/<name>.yaml` or `params/judges/<name>.yaml`'s checkpoint and pin it; returns the commit.

    Weights and tokenizer files only, no code. A file that is pinned already is fetched at that revision. Raises FileNotFoundError
    for an unknown name and ValueError for a model that is not on a hub.
    """
    files = _model_files()
    if name not in files:
        raise FileNotFoundError(f"no model or judge {name!r}; known: {', '.join(sorted(files))}")
    if (values := _on_hub(files[name])) is None:
        raise ValueError(f"{name}.yaml: nothing to fetch, its weights are on no hub")
    commit = _download(values["id"], values.get("revision"))
    # the value of the one `revision:` line is replaced, so that the file keeps its comments
    pinned, count = re.subn(r"(?m)^(\s*revision:\s*)\S+", rf"\g<1>{commit}", read_given_text(files[name]))
    if count != 1:
        raise ValueError(f"{files[name]}: expected one line `revision:`, found {count}")
    write_text(files[name], pinned)
    return commit
