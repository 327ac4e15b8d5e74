"""LoRA adapters: made on a base by PEFT or unsloth, and written so that they know their base (paper, sections 5.2 and 11.2).

Used by `finetune.py`, the engine of notebook 03.

    model = with_adapter(spec, settings)
    save_adapter(model, spec, folder / "adapter", spec.sha256)
"""

import shutil
import tempfile
from pathlib import Path

from parliabench_utils.models.loading import (
    ModelSpec,
    computing_type,
    keep_differentiable,
    load_base,
    running_precision,
    weights_location,
)
from parliabench_utils.models.packaged import file_sha256
from parliabench_utils.models.training_plan import TrainingSettings
from parliabench_utils.run.artefacts import write_json


def prepare_backend(settings: TrainingSettings) -> None:
    """Import unsloth where it is asked for: it patches transformers, trl and peft and must come before they are used."""
    if settings.backend != "unsloth":
        return
    if settings.n_processes > 1:
        raise ValueError("unsloth trains in one process: backend: peft for n_processes above 1")
    try:
        import unsloth  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "backend: unsloth needs unsloth; install it (README, 'On a GPU') or take backend: peft"
        ) from error


def with_adapter(spec: ModelSpec, settings: TrainingSettings):
    """The base with a fresh LoRA adapter. Seeded here, since the adapter's first weights are drawn here."""
    from transformers import set_seed

    set_seed(settings.lora_seed)
    if settings.backend == "unsloth":
        return _with_unsloth_adapter(spec, settings)
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    base = load_base(spec, running_precision(spec, "train"))
    base.config.use_cache = False
    if spec.precision == "nf4":
        base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=settings.gradient_checkpointing)
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=list(spec.lora_targets),
        bias="none",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, lora)


def _with_unsloth_adapter(spec: ModelSpec, settings: TrainingSettings):
    """The same through unsloth, which has its own loader and names."""
    from unsloth import FastLanguageModel

    where = weights_location(spec)
    model, _ = FastLanguageModel.from_pretrained(
        model_name=where.pop("pretrained_model_name_or_path"),
        **where,
        max_seq_length=settings.max_length,
        load_in_4bit=spec.precision == "nf4",
        dtype=computing_type(),
        trust_remote_code=False,
    )
    model = keep_differentiable(model)
    return FastLanguageModel.get_peft_model(
        model,
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=list(spec.lora_targets),
        bias="none",
        use_gradient_checkpointing="unsloth" if settings.gradient_checkpointing else False,
        random_state=settings.lora_seed,
    )


def save_adapter(model, spec: ModelSpec, folder: Path, sha256: str | None) -> None:
    """Write the adapter in one rename, naming its base by the hub's name and revision, not by a path of this machine."""
    for config in model.peft_config.values():
        config.base_model_name_or_path, config.revision = spec.id, spec.revision
        config.target_modules = list(spec.lora_targets)  # a set's order would differ from run to run
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".adapter.", dir=folder.parent))
    try:
        model.save_pretrained(scratch, safe_serialization=True, save_embedding_layers=False)  # LoRA leaves them alone
        (scratch / "README.md").unlink(missing_ok=True)  # PEFT's empty card; ours stands beside the adapter
        files = {file.name: file_sha256(file) for file in sorted(scratch.iterdir())}
        base = {"id": spec.id, "revision": spec.revision, "precision": spec.precision, "sha256": sha256}
        write_json(scratch / "base.json", base | {"files": files})
        for file in scratch.iterdir():
            file.chmod(0o644)
        scratch.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
