"""LoRA and QLoRA fine-tuning with TRL's SFTTrainer (paper, sections 5.2 and 11.2): the engine of notebook 03.

One path from the packaged 135M model on two cores to an 8B model on a GPU: plan, adapter, trainer, card. The seed is set before the
adapter is made, the schedule is frozen by `max_steps`, and a killed run goes on from its last checkpoint with the same losses.
Where `n_processes` is above 1, torchrun starts this module in each; Table 7's batch is shared out, so that steps and losses stay.

    from parliabench_utils.models.finetune import derived_steps, finetune_model
    derived_steps(358_222, batch_size=64, accumulation=1, epochs=2)        # 11194, Table 7
    finetune_model("smollm2-135m", settings, this_run.folder, seed=42).log[-1]     # {"step": 8, "loss": 2.91, …}
"""

import gc
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parliabench_utils.models.backends import Sampling, decode_batch
from parliabench_utils.models.loading import keep_differentiable, load_base, load_model
from parliabench_utils.models.prompting import Example, encode, encode_example, render_prompt, stop_ids
from parliabench_utils.models.specs import (
    ModelSpec,
    computing_type,
    default_device,
    load_tokenizer,
    read_model_spec,
    running_precision,
    weights_location,
)
from parliabench_utils.run.artefacts import (
    file_sha256,
    markdown_table,
    markdown_text,
    read_jsonl,
    write_json,
    write_jsonl,
    write_text,
)
from parliabench_utils.run.record import row_seed


@dataclass(frozen=True)
class TrainingSettings:
    """What a training depends on: the training part of notebook 03's parameters, under the same names (Tables 6 and 7)."""

    backend: Literal["peft", "unsloth"]
    n_processes: int  # that share each batch; unsloth has one
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    lora_seed: int
    batch_size: int
    gradient_accumulation: int
    learning_rate: float
    scheduler: str
    warmup_share: float
    weight_decay: float
    optimizer: str
    max_length: int
    epochs: int
    max_steps: int  # 0: derived from rows, batch and epochs
    loss_on: Literal["answer", "all"]
    packing: bool
    group_by_length: bool
    gradient_checkpointing: bool
    held_out_rows: int
    eval_every: int
    log_every: int
    save_every: int
    max_dropped_share: float

    @classmethod
    def from_params(cls, p: Any) -> "TrainingSettings":
        """Take the fields of the same names from a notebook's parameters."""
        return cls(**{field.name: getattr(p, field.name) for field in fields(cls)})

    def prompt_part(self, example: Example) -> int:
        """How many tokens at an example's beginning bear no loss."""
        return example.n_prompt if self.loss_on == "answer" else 0


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: where the adapter is, its log, and the step of the checkpoint from which it went on."""

    adapter: Path
    log: list[dict[str, Any]]
    resumed_from: int  # or 0


def training_rows(folder: Path, settings: TrainingSettings, seed: int) -> tuple[list[dict], list[dict]]:
    """All training speeches of a run's 02_dataset, and the test speeches on which the held-out loss is taken.

    The held-out ones are drawn by their ids, so they are the same for every model and at every restart.
    """
    train_rows = read_jsonl(folder / "02_dataset/train.jsonl")
    test = sorted(read_jsonl(folder / "02_dataset/test.jsonl"), key=lambda row: row_seed(seed, "held-out", row["speech_id"]))
    return train_rows, test[: settings.held_out_rows]


def encode_rows(spec: ModelSpec, tokenizer, rows: list[dict], max_length: int) -> list[Example]:
    """Every row as token ids, in order, four bytes a token: the paper's corpus has some hundred million of them."""
    examples = (encode_example(spec, tokenizer, row, max_length) for row in rows)
    return [replace(example, ids=np.array(example.ids, dtype=np.int32)) for example in examples]


def masked_example(tokenizer, example: Example, settings: TrainingSettings) -> str:
    """One example as text with the part that bears no loss marked, to be looked at before training."""
    start = settings.prompt_part(example)
    masked, learnt = tokenizer.decode(example.ids[:start]), tokenizer.decode(example.ids[start:])
    return f"--- no loss: {start} tokens ---\n{masked}\n--- loss: {len(example.ids) - start} tokens ---\n{learnt}"


def as_dataset(examples: list[Example], settings: TrainingSettings):
    """Token ids and the mask of what bears loss, as TRL's prepared format; rows without anything to learn left out."""
    from datasets import Dataset

    kept = [e for e in examples if settings.loss_on == "all" or len(e.ids) > e.n_prompt]
    masks = [(np.arange(len(e.ids)) >= settings.prompt_part(e)).astype(np.int8) for e in kept]
    return Dataset.from_dict({"input_ids": [e.ids for e in kept], "completion_mask": masks})


def rows_after_packing(data, settings: TrainingSettings) -> int:
    """How many rows the trainer will see: packing joins several speeches to one, and steps are counted in rows."""
    if not settings.packing:
        return len(data)
    from trl import pack_dataset

    return len(pack_dataset(data.select_columns(["input_ids"]), settings.max_length, "bfd"))


def derived_steps(rows: int, batch_size: int, accumulation: int, epochs: int) -> int:
    """Optimizer steps of whole epochs, a last incomplete batch left out: 11,194 for the paper's corpus (Table 7)."""
    per_epoch = rows // (batch_size * accumulation)
    if per_epoch == 0:
        raise ValueError(f"{rows} training rows are less than one batch of {batch_size * accumulation}: lower batch_size")
    return per_epoch * epochs


def steps_of(settings: TrainingSettings, rows: int) -> tuple[int, int]:
    """Steps of the run and its warm-up steps, rounded up: 3 % of 11,194 are 336 (Table 7)."""
    steps = settings.max_steps or derived_steps(rows, settings.batch_size, settings.gradient_accumulation, settings.epochs)
    return steps, math.ceil(steps * settings.warmup_share)


def preflight(examples: list[Example], settings: TrainingSettings) -> dict[str, Any]:
    """What training will see: rows, tokens, trainable_tokens, the longest, the share that is cut, and dropped rows, whose prompt
    fills max_length alone. ValueError when more than `max_dropped_share` are dropped."""
    trainable = [len(e.ids) - settings.prompt_part(e) for e in examples]
    report = {
        "rows": len(examples),
        "tokens": sum(len(e.ids) for e in examples),
        "trainable_tokens": sum(trainable),
        "longest": max(len(e.ids) for e in examples),
        "share_cut": sum(len(e.ids) >= settings.max_length for e in examples) / len(examples),
        "dropped": sum(n == 0 for n in trainable),
    }
    if report["dropped"] > settings.max_dropped_share * report["rows"]:
        raise ValueError(
            f"{report['dropped']} of {report['rows']} prompts fill max_length={settings.max_length} alone and would be dropped; "
            f"raise max_length or, if that is meant, max_dropped_share (now {settings.max_dropped_share})"
        )
    return report


def memory_gb(spec: ModelSpec, settings: TrainingSettings, longest: int, hidden: int, layers: int, vocab: int) -> float:
    """A rough upper estimate in GB for each process: weights, adapter with AdamW's states, activations of one batch, logits.

    Activations: about 34 numbers per token, layer and hidden unit (Korthikanti et al., 2022), or one with checkpointing, of
    2 bytes, on a CPU 4. Logits: fp32, with their gradient, on a chunk of 256 tokens.
    """
    weights = spec.n_parameters * {"fp32": 4, "bf16": 2, "nf4": 0.55}[running_precision(spec, "train")]
    adapter = 16 * layers * 7 * settings.lora_rank * 2 * hidden * 2  # weights, gradient and two moments in fp32
    tokens = settings.batch_size // settings.n_processes * (settings.max_length if settings.packing else longest)
    activations = tokens * layers * hidden * (1 if settings.gradient_checkpointing else 34) * computing_type().itemsize
    return round((weights + adapter + activations + 256 * vocab * 8) / 1e9, 2)


def estimated_seconds(spec: ModelSpec, settings: TrainingSettings, tokens_per_row: float, steps: int, size: int = 1024) -> float:
    """Steps times 4 N multiply-adds a token (forward, and backward to the activations), at half the rate of a product of square
    matrices on this device. An order of magnitude only, for deciding whether to start; the log has the measured time."""
    import torch

    a = torch.ones(size, size, dtype=computing_type(), device=default_device())
    for repeat in range(6):
        if repeat == 2:  # warmed up
            began = time.perf_counter()
        (a @ a).sum().item()  # .item() waits for the device
    rate = 4 * 2 * size**3 / (time.perf_counter() - began)
    tokens = steps * settings.batch_size * settings.gradient_accumulation * tokens_per_row / settings.n_processes
    return (6 if settings.gradient_checkpointing else 4) * spec.n_parameters * tokens / (0.5 * rate)


def plan(spec: ModelSpec, settings: TrainingSettings, rows: list[dict]) -> dict[str, Any]:
    """One row of the table that notebook 03 prints before training: counts, memory in GB, an order of magnitude of time."""
    from transformers import AutoConfig

    examples = encode_rows(spec, load_tokenizer(spec), rows, settings.max_length)
    report = preflight(examples, settings)
    seen = rows_after_packing(as_dataset(examples, settings), settings)
    steps, warmup = steps_of(settings, seen)
    config = AutoConfig.from_pretrained(**weights_location(spec), trust_remote_code=False)
    shape = (config.hidden_size, config.num_hidden_layers, config.vocab_size)
    return {
        "model": spec.name,
        **report,
        "steps": steps,
        "warm-up": warmup,
        "memory, GB": memory_gb(spec, settings, report["longest"], *shape),
        "minutes, roughly": round(estimated_seconds(spec, settings, report["tokens"] / seen, steps) / 60, 1),
    }


def prepare_backend(settings: TrainingSettings) -> None:
    """Import unsloth where it is asked for: it patches transformers, trl and peft and must come before they are used."""
    if settings.backend != "unsloth":
        return
    if settings.n_processes > 1:
        raise ValueError("unsloth trains in one process: backend: peft for n_processes above 1")
    try:
        import unsloth  # noqa: F401
    except ImportError as error:
        raise ImportError("backend: unsloth needs unsloth; install it (README, 'Hardware') or take backend: peft") from error


def with_adapter(spec: ModelSpec, settings: TrainingSettings):
    """The base with a fresh LoRA adapter: W + (alpha / r) B A in `lora_targets`. Seeded here, since A is drawn here."""
    from transformers import set_seed

    set_seed(settings.lora_seed)
    lora = {
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        "lora_dropout": settings.lora_dropout,
        "target_modules": list(spec.lora_targets),
        "bias": "none",
    }
    if settings.backend == "unsloth":  # has its own loader and names
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
        checkpointing = "unsloth" if settings.gradient_checkpointing else False
        options = {"use_gradient_checkpointing": checkpointing, "random_state": settings.lora_seed}
        return FastLanguageModel.get_peft_model(keep_differentiable(model), **lora, **options)
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    base = load_base(spec, running_precision(spec, "train"))
    base.config.use_cache = False
    if spec.precision == "nf4":
        base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=settings.gradient_checkpointing)
    return get_peft_model(base, LoraConfig(**lora, task_type="CAUSAL_LM"))


def save_adapter(model, spec: ModelSpec, folder: Path) -> None:
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
        base = {"id": spec.id, "revision": spec.revision, "precision": spec.precision, "sha256": spec.sha256}
        write_json(scratch / "base.json", base | {"files": files})
        for file in scratch.iterdir():
            file.chmod(0o644)
        scratch.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def whole_batches(rows: int, at_most: int) -> int:
    """The largest batch size that leaves no row over: the trainer drops an incomplete batch, held-out ones too."""
    return next((size for size in range(min(rows, at_most), 1, -1) if rows % size == 0), 1)


def trainer_arguments(settings: TrainingSettings, rows: int, folder: Path, resuming: bool = False, held_out: int | None = None):
    """TRL's SFTConfig: every value that shapes the training from the settings, none left to a default that a release may change."""
    import torch
    from trl import SFTConfig

    steps, warmup = steps_of(settings, rows)
    share, rest = divmod(settings.batch_size, settings.n_processes)
    held_out_share, held_out_rest = divmod(held_out or settings.held_out_rows, settings.n_processes)
    if rest or held_out_rest:
        raise ValueError(f"batch_size and held_out_rows must be multiples of n_processes, {settings.n_processes}")
    arguments = SFTConfig(
        output_dir=str(folder / "checkpoints"),
        max_steps=steps,
        warmup_steps=warmup,
        per_device_train_batch_size=share,
        per_device_eval_batch_size=whole_batches(held_out_share, share),
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.scheduler,
        weight_decay=settings.weight_decay,
        optim=settings.optimizer,
        max_length=settings.max_length,
        packing=settings.packing,
        packing_strategy="bfd",  # whole speeches; each attends to itself only, by its position ids
        eval_packing=False,
        train_sampling_strategy="random",  # group_by_length has its own sampler
        gradient_checkpointing=settings.gradient_checkpointing,
        completion_only_loss=True,
        dataloader_drop_last=True,
        eval_strategy="steps",
        eval_steps=min(settings.eval_every, steps),
        eval_on_start=not resuming,  # the log of a resumed run has the base's loss already
        logging_strategy="steps",
        logging_steps=min(settings.log_every, steps),
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=2,
        include_num_input_tokens_seen="non_padding",
        seed=settings.lora_seed,
        data_seed=settings.lora_seed,
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),  # on a CPU everything is fp32
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
    )
    if arguments.world_size != settings.n_processes:  # some launchers start one process without a word
        raise RuntimeError(f"n_processes is {settings.n_processes}, the launcher started {arguments.world_size}")
    return arguments


def grouped_by_length(lengths: list[int], batch: int, seed: int):
    """A sampler of batches of about equally long rows, in an order that depends on seed and epoch alone.

    The trainer's own draws it from PyTorch's global state, which a resumed run does not have.
    """
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    class GroupedByLength(torch.utils.data.Sampler):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return len(lengths)

        def __iter__(self):
            generator = torch.Generator().manual_seed(seed + self.epoch)
            return iter(get_length_grouped_indices(lengths, batch, generator=generator))

    return GroupedByLength()


def log_rows(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trainer's history as one row a step: step, loss, held_out_loss, learning_rate, tokens (null where not taken)."""
    rows: dict[int, dict[str, Any]] = {}
    for entry in history:
        empty = {"step": entry["step"], "loss": None, "held_out_loss": None, "learning_rate": None, "tokens": None}
        row = rows.setdefault(entry["step"], empty)
        for key, name, digits in (("loss", "loss", 4), ("eval_loss", "held_out_loss", 4), ("learning_rate", "learning_rate", 8)):
            if key in entry:
                row[name] = round(float(entry[key]), digits)
        if "num_input_tokens_seen" in entry:
            row["tokens"] = int(entry["num_input_tokens_seen"])
    return [rows[step] for step in sorted(rows)]


def _live_log(path: Path):
    """A callback that rewrites the log after each entry (a resumed run has the earlier ones in its state) and prints it."""
    from transformers import TrainerCallback

    class LiveLog(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if not state.is_world_process_zero or not {"loss", "eval_loss"} & set(logs or {}):
                return  # another process, or the trainer's closing summary, which is about seconds
            rows = log_rows(state.log_history)
            write_jsonl(path, rows)
            shown = {key: value for key, value in rows[-1].items() if value is not None}
            print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)

    return LiveLog()


def make_trainer(spec: ModelSpec, settings: TrainingSettings, train_rows: list[dict], held_out: list[dict], folder: Path):
    """Model, tokenizer, data and schedule put together; nothing is trained yet."""
    prepare_backend(settings)
    tokenizer = load_tokenizer(spec)
    examples = encode_rows(spec, tokenizer, train_rows, settings.max_length)
    preflight(examples, settings)
    model = with_adapter(spec, settings)
    from datasets import disable_progress_bars
    from transformers import PrinterCallback
    from trl import SFTTrainer

    disable_progress_bars()  # each step of a bar is a line of the executed notebook
    data = as_dataset(examples, settings)
    held_out_data = as_dataset(encode_rows(spec, tokenizer, held_out, settings.max_length), settings)
    rows, resuming = rows_after_packing(data, settings), last_checkpoint(folder) is not None
    trainer = SFTTrainer(
        model=model,
        args=trainer_arguments(settings, rows, folder, resuming, len(held_out_data)),
        train_dataset=data,
        eval_dataset=held_out_data,
        processing_class=tokenizer,
    )
    if settings.group_by_length:
        lengths = [len(ids) for ids in trainer.train_dataset["input_ids"]]
        batch = settings.batch_size * settings.gradient_accumulation
        trainer._get_train_sampler = lambda *_: grouped_by_length(lengths, batch, settings.lora_seed)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_live_log(folder / "train_log.jsonl.partial"))
    return trainer


def drop_other_checkpoints(spec: ModelSpec, settings: TrainingSettings, rows: list[dict], folder: Path) -> None:
    """Delete checkpoints that another base, other settings or other speeches made; sign the folder for this training."""
    text = json.dumps([spec.model_dump(), asdict(settings), rows], sort_keys=True, default=str)
    signature, file = hashlib.sha256(text.encode()).hexdigest(), folder / "checkpoints" / "signature.txt"
    if not file.is_file() or file.read_text(encoding="utf-8") != signature:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        write_text(file, signature)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: a kill while one is written leaves it without its last file, `trainer_state.json`."""
    whole = [file.parent for file in (folder / "checkpoints").glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=_step_of, default=None)


def _step_of(checkpoint: Path | None) -> int:
    return int(checkpoint.name.split("-")[1]) if checkpoint else 0


def train(
    spec: ModelSpec, settings: TrainingSettings, train_rows: list[dict], held_out: list[dict], folder: Path
) -> TrainingResult:
    """Train, or go on from the last checkpoint; write `adapter/` and `train_log.jsonl`; drop the checkpoints at the end.

    MemoryError says what to change. Returns the log with losses in nats a token.
    """
    import torch

    drop_other_checkpoints(spec, settings, train_rows, folder)
    checkpoint = last_checkpoint(folder)
    try:
        trainer = make_trainer(spec, settings, train_rows, held_out, folder)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"out of memory while training {spec.name}: halve batch_size and double gradient_accumulation (the same training), set "
            "gradient_checkpointing: true, lower max_length, or take the model's 4-bit file"
        ) from error
    log = log_rows(trainer.state.log_history)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        save_adapter(trainer.model, spec, folder / "adapter")
        write_jsonl(folder / "train_log.jsonl", log)
        (folder / "train_log.jsonl.partial").unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return TrainingResult(folder / "adapter", log, _step_of(checkpoint))


def train_in_processes(name: str, settings: TrainingSettings, folder: Path, seed: int) -> int:
    """`train` for one model of the run in `folder`, in `settings.n_processes` processes; prints their log.

    Returns the step of the checkpoint from which it went on, or 0. RuntimeError with the last lines when they fail.
    """
    (rows, _), out, processes = training_rows(folder, settings, seed), folder / "03_finetune" / name, settings.n_processes
    drop_other_checkpoints(read_model_spec(name), settings, rows, out)  # once, not by each process
    resumed_from = _step_of(last_checkpoint(out))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    job = ["-m", __name__, name, str(folder.resolve()), str(seed), json.dumps(asdict(settings))]
    threads = max(1, int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1) // processes)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    if default_device() == "cpu":
        environment["ACCELERATE_USE_CPU"] = "true"
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "backslashreplace"}
    process, lines = subprocess.Popen([*launcher, *job], env=environment, **output), []
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("step "):  # the live log; the launcher's own lines are of use only after a failure
                print(line, end="", flush=True)
    except BaseException:  # a notebook's interrupt reaches this process alone
        process.terminate()  # the launcher ends its processes
        raise
    if process.wait():
        raise RuntimeError(f"training {name} in {processes} processes failed:\n{''.join(lines[-60:])}")
    return resumed_from


def model_card(spec: ModelSpec, settings: TrainingSettings, facts: dict[str, Any], log: list[dict]) -> str:
    """The adapter's README: base, data with hashes, hyperparameters, losses. Nothing in it depends on the clock."""
    before, *_, after = [row for row in log if row["held_out_loss"] is not None]
    losses = f"{before['held_out_loss']:.4f} before, {after['held_out_loss']:.4f} after {after['step']} steps"
    computed = str(computing_type()).removeprefix("torch.")
    return f"""# {markdown_text(spec.display)}, tuned on parliamentary speeches

A LoRA adapter for `{spec.id}`, revision `{spec.revision or "not pinned"}`, trained on
{spec.precision} weights, computed in {computed}.
Base licence: {markdown_text(spec.licence)}. The speeches are CC BY 4.0 (ParlaMint). It writes invented speeches:
never present one as said by a member.

Held-out loss (nats a token): {losses}.

## Data

{markdown_table(["", ""], facts.items())}
## Training

{markdown_table(["", ""], asdict(settings).items())}"""


def finetune_model(name: str, settings: TrainingSettings, folder: Path, seed: int) -> TrainingResult:
    """Train one model on the run in `folder`; a training that is already whole is read instead (after a restart)."""
    spec, out = read_model_spec(name), folder / "03_finetune" / name
    adapter, log_file = out / "adapter", out / "train_log.jsonl"
    whole = log_file.is_file() and (adapter / "adapter_model.safetensors").is_file()
    if not whole and settings.n_processes == 1:
        result = train(spec, settings, *training_rows(folder, settings, seed), out)
    else:
        resumed = None if whole else train_in_processes(name, settings, folder, seed)
        log = read_jsonl(log_file)
        result = TrainingResult(adapter, log, log[-1]["step"] if whole else resumed)
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
    loaded = load_model(name, adapter=adapter, purpose="generate")
    prompt = encode(loaded.tokenizer, render_prompt(loaded.spec, loaded.tokenizer, row, "train"))
    greedy = Sampling(temperature=0, top_p=1.0, repetition_penalty=1.2)
    stops, pad = stop_ids(loaded.spec, loaded.tokenizer), loaded.tokenizer.pad_token_id
    ids, _ = decode_batch(loaded.model, [prompt], [0], greedy, tokens, stops, pad)[0]
    return loaded.tokenizer.decode(ids, skip_special_tokens=True).strip()


def main(name: str, folder: str, seed: str, settings: str) -> None:
    """What each process of torchrun runs."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    chosen, run = TrainingSettings(**json.loads(settings)), Path(folder)
    train(read_model_spec(name), chosen, *training_rows(run, chosen, int(seed)), run / "03_finetune" / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
