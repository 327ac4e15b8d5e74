"""What a training run will do, worked out before it starts: steps, trainable tokens, cuts, memory, time.

Notebook 03 prints it, and stops where too many speeches would contribute nothing.

    from parliabench_utils.models.training_plan import derived_steps
    derived_steps(358_222, batch_size=64, accumulation=1, epochs=2)        # 11194, Table 7
"""

import math
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parliabench_utils.models.loading import ModelSpec, computing_type, default_device, running_precision
from parliabench_utils.models.prompting import Example, encode_example
from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.seeds import row_seed


@dataclass(frozen=True)
class TrainingSettings:
    """The training part of notebook 03's parameters, under the same names (Tables 6 and 7)."""

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


@dataclass(frozen=True)
class Preflight:
    """What the training rows hold once rendered and cut."""

    rows: int
    tokens: int
    trainable_tokens: int
    longest: int
    share_cut: float  # speeches that reached max_length
    dropped: int  # rows whose prompt alone fills max_length: nothing to learn from


def derived_steps(rows: int, batch_size: int, accumulation: int, epochs: int) -> int:
    """Optimizer steps of whole epochs, a last incomplete batch left out: 11,194 for the paper's corpus (Table 7)."""
    per_epoch = rows // (batch_size * accumulation)
    if per_epoch == 0:
        raise ValueError(
            f"{rows} training rows are less than one batch of {batch_size * accumulation}: lower batch_size"
        )
    return per_epoch * epochs


def steps_of(settings: TrainingSettings, rows: int) -> tuple[int, int]:
    """Steps of the run and its warm-up steps, rounded up: 3 % of 11,194 are 336 (Table 7)."""
    steps = settings.max_steps or derived_steps(
        rows, settings.batch_size, settings.gradient_accumulation, settings.epochs
    )
    return steps, math.ceil(steps * settings.warmup_share)


def training_rows(folder: Path, settings: TrainingSettings, seed: int) -> tuple[list[dict], list[dict]]:
    """All training speeches of a run's 02_dataset, and the test speeches on which the held-out loss is taken.

    The held-out ones are drawn by their ids, so they are the same for every model and at every restart.
    """
    train_rows = read_jsonl(folder / "02_dataset/train.jsonl")
    test = sorted(
        read_jsonl(folder / "02_dataset/test.jsonl"), key=lambda row: row_seed(seed, "held-out", row["speech_id"])
    )
    return train_rows, test[: settings.held_out_rows]


def encode_rows(spec: ModelSpec, tokenizer, rows: list[dict], max_length: int) -> list[Example]:
    """Every row as token ids, in order, four bytes a token: the paper's corpus has some hundred million of them."""
    examples = (encode_example(spec, tokenizer, row, max_length) for row in rows)
    return [replace(example, ids=np.array(example.ids, dtype=np.int32)) for example in examples]


def preflight(examples: list[Example], settings: TrainingSettings) -> Preflight:
    """Count what training will see. ValueError when more rows than `max_dropped_share` have nothing to learn from."""
    trainable = [len(e.ids) - (e.n_prompt if settings.loss_on == "answer" else 0) for e in examples]
    report = Preflight(
        rows=len(examples),
        tokens=sum(len(e.ids) for e in examples),
        trainable_tokens=sum(trainable),
        longest=max(len(e.ids) for e in examples),
        share_cut=sum(len(e.ids) >= settings.max_length for e in examples) / len(examples),
        dropped=sum(n == 0 for n in trainable),
    )
    if report.dropped > settings.max_dropped_share * report.rows:
        raise ValueError(
            f"{report.dropped} of {report.rows} prompts fill max_length={settings.max_length} alone and would be dropped; "
            f"raise max_length or, if that is meant, max_dropped_share (now {settings.max_dropped_share})"
        )
    return report


def masked_example(tokenizer, example: Example, settings: TrainingSettings) -> str:
    """One example as text with the part that bears no loss marked, to be looked at before training."""
    start = example.n_prompt if settings.loss_on == "answer" else 0
    masked, learnt = tokenizer.decode(example.ids[:start]), tokenizer.decode(example.ids[start:])
    return f"--- no loss: {start} tokens ---\n{masked}\n--- loss: {len(example.ids) - start} tokens ---\n{learnt}"


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


def measured_flops(size: int = 1024) -> float:
    """Multiply-adds of this device a second, times two: one product of square matrices as training has them, warmed up."""
    import torch

    a = torch.ones(size, size, dtype=computing_type(), device=default_device())
    for _ in range(2):
        (a @ a).sum().item()
    began = time.perf_counter()
    for _ in range(4):
        (a @ a).sum().item()  # .item() waits for the device
    return 4 * 2 * size**3 / (time.perf_counter() - began)


def estimated_seconds(spec: ModelSpec, settings: TrainingSettings, tokens_per_row: float, steps: int) -> float:
    """Steps times 4 N multiply-adds a token (forward, and backward to the activations), at half the measured rate.

    An order of magnitude only, for deciding whether to start; the log has the measured time.
    """
    tokens = steps * settings.batch_size * settings.gradient_accumulation * tokens_per_row / settings.n_processes
    passes = 6 if settings.gradient_checkpointing else 4
    return passes * spec.n_parameters * tokens / (0.5 * measured_flops())
