"""From a model's name to its adapter with a model card: what notebook 03 calls for each model.

from parliabench_utils.models.training_card import finetune_model
result = finetune_model("smollm2-135m", settings, this_run.folder, seed=42)
"""

import gc
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parliabench_utils.models.finetune import TrainingResult, as_dataset, rows_after_packing, train
from parliabench_utils.models.loading import ModelSpec, computing_type, load_model, load_tokenizer, read_model_spec
from parliabench_utils.models.packaged import file_sha256
from parliabench_utils.models.prompting import encode, render_prompt, stop_ids
from parliabench_utils.models.training_plan import (
    TrainingSettings,
    encode_rows,
    estimated_seconds,
    memory_gb,
    preflight,
    steps_of,
    training_rows,
)
from parliabench_utils.run.artefacts import markdown_table, markdown_text, read_jsonl, write_text


def plan(spec: ModelSpec, settings: TrainingSettings, rows: list[dict]) -> dict[str, Any]:
    """One row of the table that notebook 03 prints before training: counts, memory in GB, an order of magnitude of time."""
    from transformers import AutoConfig

    from parliabench_utils.models.loading import weights_location

    examples = encode_rows(spec, load_tokenizer(spec), rows, settings.max_length)
    report = preflight(examples, settings)
    seen = rows_after_packing(as_dataset(examples, settings), settings)
    steps, warmup = steps_of(settings, seen)
    config = AutoConfig.from_pretrained(**weights_location(spec), trust_remote_code=False)
    shape = (config.hidden_size, config.num_hidden_layers, config.vocab_size)
    return {
        "model": spec.name,
        **asdict(report),
        "steps": steps,
        "warm-up": warmup,
        "memory, GB": memory_gb(spec, settings, report.longest, *shape),
        "minutes, roughly": round(estimated_seconds(spec, settings, report.tokens / seen, steps) / 60, 1),
    }


def model_card(spec: ModelSpec, settings: TrainingSettings, facts: dict[str, Any], log: list[dict]) -> str:
    """The adapter's README: base, data with hashes, hyperparameters, losses. Nothing in it depends on the clock."""
    before, *_, after = [row for row in log if row["held_out_loss"] is not None]
    losses = f"{before['held_out_loss']:.4f} before, {after['held_out_loss']:.4f} after {after['step']} steps"
    lines = [
        f"# {markdown_text(spec.display)}, tuned on parliamentary speeches",
        "",
        f"A LoRA adapter for `{spec.id}`, revision `{spec.revision or 'not pinned'}`, trained on",
        f"{spec.precision} weights, computed in {str(computing_type()).removeprefix('torch.')}.",
        f"Base licence: {markdown_text(spec.licence)}. The speeches are CC BY 4.0 (ParlaMint). It writes invented speeches:",
        "never present one as said by a member.",
        "",
        f"Held-out loss (nats a token): {losses}.",
        "",
        *_table("Data", facts),
        *_table("Training", asdict(settings)),
    ]
    return "\n".join(lines)


def _table(title: str, facts: dict[str, Any]) -> list[str]:
    return [f"## {title}", "", markdown_table(["", ""], facts.items())]


def finetune_model(name: str, settings: TrainingSettings, folder: Path, seed: int) -> TrainingResult:
    """Train one model on the run in `folder`; a training that is already whole is read instead (after a restart)."""
    spec, out = read_model_spec(name), folder / "03_finetune" / name
    adapter, log_file = out / "adapter", out / "train_log.jsonl"
    if log_file.is_file() and (adapter / "adapter_model.safetensors").is_file():
        log = read_jsonl(log_file)
        result = TrainingResult(adapter, log, log[-1]["step"], log[-1]["step"])
    elif settings.n_processes == 1:
        result = train(spec, settings, *training_rows(folder, settings, seed), out)
    else:
        from parliabench_utils.models.distributed import train_in_processes

        resumed = train_in_processes(name, settings, folder, seed)
        log = read_jsonl(log_file)
        result = TrainingResult(adapter, log, log[-1]["step"], resumed)
    facts = {
        "train.jsonl": f"sha256 {file_sha256(folder / '02_dataset/train.jsonl')}",
        "test.jsonl (held out)": f"sha256 {file_sha256(folder / '02_dataset/test.jsonl')}",
        "adapter_model.safetensors": f"sha256 {file_sha256(adapter / 'adapter_model.safetensors')}",
    }
    write_text(out / "README.md", model_card(spec, settings, facts, result.log))
    gc.collect()  # the trainer holds the model in cycles
    return result


def greedy_samples(name: str, row: dict, tokens: int, adapter: Path | None = None) -> str:
    """The likeliest continuation of a row's training prompt, with or without the adapter: the same at every run."""
    from parliabench_utils.models.sampling import Sampling, decode_batch

    loaded = load_model(name, adapter=adapter, purpose="generate")
    prompt = encode(loaded.tokenizer, render_prompt(loaded.spec, loaded.tokenizer, row, "train"))
    greedy = Sampling(temperature=0, top_p=1.0, repetition_penalty=1.2)
    stops, pad = stop_ids(loaded.spec, loaded.tokenizer), loaded.tokenizer.pad_token_id
    ids, _ = decode_batch(loaded.model, [prompt], [0], greedy, tokens, stops, pad)[0]
    return loaded.tokenizer.decode(ids, skip_special_tokens=True).strip()
