"""LoRA and QLoRA fine-tuning with TRL's SFTTrainer (paper, sections 5.2 and 11.2): the engine of notebook 03.

One path from the packaged 135M model on two cores to an 8B model on a GPU. The seed is set before the adapter is made, the
schedule is frozen by `max_steps`, and a killed run goes on from its last checkpoint with the same loss series.

    from parliabench_utils.models.finetune import train
    result = train(spec, settings, train_rows, held_out_rows, this_run.stage_folder() / spec.name)
    result.log[-1]          # {"step": 36, "loss": 2.91, "held_out_loss": 3.05, "learning_rate": 2.8e-05, "tokens": 61234}
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.models.adapters import prepare_backend, save_adapter, with_adapter
from parliabench_utils.models.loading import ModelSpec, load_tokenizer
from parliabench_utils.models.prompting import Example
from parliabench_utils.models.training_plan import TrainingSettings, encode_rows, preflight, steps_of
from parliabench_utils.run.artefacts import write_jsonl, write_text

OUT_OF_MEMORY = (
    "out of memory while training {name}: halve batch_size and double gradient_accumulation (the same training), set "
    "gradient_checkpointing: true, lower max_length, or take the model's 4-bit file"
)


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: where the adapter is, and its log."""

    adapter: Path
    log: list[dict[str, Any]]
    steps: int
    resumed_from: int  # 0, or the checkpoint's step


def as_dataset(examples: list[Example], settings: TrainingSettings):
    """Token ids and the mask of what bears loss, as TRL's prepared format; rows without anything to learn left out."""
    from datasets import Dataset

    whole = settings.loss_on == "all"
    kept = [e for e in examples if whole or len(e.ids) > e.n_prompt]
    masks = [(np.arange(len(e.ids)) >= (0 if whole else e.n_prompt)).astype(np.int8) for e in kept]
    return Dataset.from_dict({"input_ids": [e.ids for e in kept], "completion_mask": masks})


def rows_after_packing(data, settings: TrainingSettings) -> int:
    """How many rows the trainer will see: packing joins several speeches to one, and steps are counted in rows."""
    if not settings.packing:
        return len(data)
    from trl import pack_dataset

    return len(pack_dataset(data.select_columns(["input_ids"]), settings.max_length, "bfd"))


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


def whole_batches(rows: int, at_most: int) -> int:
    """The largest batch size that leaves no row over: the trainer drops an incomplete batch, held-out ones too."""
    return next((size for size in range(min(rows, at_most), 1, -1) if rows % size == 0), 1)


def trainer_arguments(
    settings: TrainingSettings, rows: int, folder: Path, resuming: bool = False, held_out: int | None = None
):
    """TRL's SFTConfig: every value from the settings, nothing left to a default that a release may change."""
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


def log_rows(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trainer's history as one row a step: step, loss, held_out_loss, learning_rate, tokens (null where not taken)."""
    rows: dict[int, dict[str, Any]] = {}
    for entry in history:
        row = rows.setdefault(
            entry["step"],
            {"step": entry["step"], "loss": None, "held_out_loss": None, "learning_rate": None, "tokens": None},
        )
        for key, name in (("loss", "loss"), ("eval_loss", "held_out_loss"), ("learning_rate", "learning_rate")):
            if key in entry:
                row[name] = round(float(entry[key]), 8 if key == "learning_rate" else 4)
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


def make_trainer(spec, settings: TrainingSettings, train_rows: list[dict], held_out: list[dict], folder: Path):
    """Model, tokenizer, data and schedule put together; nothing is trained yet."""
    prepare_backend(settings)
    tokenizer = load_tokenizer(spec)
    examples = encode_rows(spec, tokenizer, train_rows, settings.max_length)
    preflight(examples, settings)
    model = with_adapter(spec, settings)
    from datasets import disable_progress_bars
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
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_live_log(folder / "train_log.jsonl.partial"))
    return trainer


def drop_other_checkpoints(spec: ModelSpec, settings: TrainingSettings, rows: list[dict], folder: Path) -> None:
    """Delete checkpoints that another base, other settings or other speeches made; sign the folder for this training."""
    import hashlib

    text = json.dumps([spec.model_dump(), asdict(settings), rows], sort_keys=True, default=str)
    signature, file = hashlib.sha256(text.encode()).hexdigest(), folder / "checkpoints" / "signature.txt"
    if not file.is_file() or file.read_text(encoding="utf-8") != signature:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        write_text(file, signature)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: a kill while one is written leaves it without its last file, `trainer_state.json`."""
    whole = [file.parent for file in (folder / "checkpoints").glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.split("-")[1]), default=None)


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
        raise MemoryError(OUT_OF_MEMORY.format(name=spec.name)) from error
    log = log_rows(trainer.state.log_history)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        save_adapter(trainer.model, spec, folder / "adapter", spec.sha256)
        write_jsonl(folder / "train_log.jsonl", log)
        (folder / "train_log.jsonl.partial").unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    resumed = int(checkpoint.name.split("-")[1]) if checkpoint else 0
    return TrainingResult(folder / "adapter", log, trainer.state.global_step, resumed)
