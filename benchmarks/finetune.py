"""Training: TRL's SFTTrainer as notebook 03 uses it against a plain PyTorch loop with the same LoRA and the same batch.

python -m benchmarks.finetune
"""

import statistics
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import machine, markdown_table, versions

ROWS, LENGTH, STEPS = 8, 256, 5


def settings():
    """Notebook 03's demo settings with a batch of 8 x 256, all of it in every step, at a constant rate."""
    from parliabench_utils.models.finetune import TrainingSettings
    from parliabench_utils.run.params import schema_of

    demo = TrainingSettings.from_params(schema_of("03_finetune")())
    return replace(demo, batch_size=ROWS, max_steps=STEPS, max_length=LENGTH, scheduler="constant", warmup_share=0.0, held_out_rows=1,
                   eval_every=10**6, log_every=1, save_every=10**6)  # fmt: skip


def rows() -> list[dict]:
    """Eight training speeches that fill 256 tokens each."""
    one = {"Party": "Labour", "Topic": "Energy", "Section": "Energy Prices", "Political Orientation": "Centre-left",
           "House": "House of Commons", "Prompts": []}  # fmt: skip
    return [one | {"speech_id": f"u{i}", "Speech": f"I thank the Minister for answer {i} on bills. " * 60} for i in range(ROWS)]


def with_trl(spec) -> tuple[list[float], float]:
    """Losses of the steps, and the median seconds of a step after the first."""
    from transformers import TrainerCallback

    from parliabench_utils.models.finetune import make_trainer

    class Clock(TrainerCallback):
        times: list[float] = []  # noqa: RUF012

        def on_step_end(self, *_, **__):
            self.times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(spec, settings(), rows(), rows()[:1], Path(folder))
        trainer.args.eval_on_start, clock = False, Clock()
        clock.times = []
        trainer.add_callback(clock)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, _median_gap(clock.times)


def with_a_plain_loop(spec) -> tuple[list[float], float]:
    """The same with AdamW and the model's own loss, nothing else."""
    import torch

    from parliabench_utils.models.finetune import as_dataset, encode_rows, with_adapter
    from parliabench_utils.models.specs import load_tokenizer

    chosen = settings()
    model = with_adapter(spec, chosen).train()
    data = as_dataset(encode_rows(spec, load_tokenizer(spec), rows(), LENGTH), chosen)
    ids = torch.tensor(data["input_ids"][:])
    labels = ids.masked_fill(torch.tensor(data["completion_mask"][:]) == 0, -100)
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=chosen.learning_rate, weight_decay=chosen.weight_decay)
    losses, times = [], []
    for _ in range(STEPS):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(loss.item(), 4))
        times.append(time.perf_counter())
    return losses, _median_gap(times)


def _median_gap(times: list[float]) -> float:
    return statistics.median(b - a for a, b in pairwise(times))


def main() -> None:
    """Equal losses first, then the ratio, for bf16 LoRA and nf4 QLoRA."""
    from parliabench_utils.models.specs import read_model_spec

    print(f"{machine()}; {versions('torch', 'trl', 'peft', 'bitsandbytes')}; batch {ROWS} x {LENGTH}\n")
    table = []
    for name in ("smollm2-135m", "smollm2-135m-nf4"):
        spec = read_model_spec(name)
        trl_losses, trl = with_trl(spec)
        plain_losses, plain = with_a_plain_loop(spec)
        trl = min(trl, with_trl(spec)[1])
        plain = min(plain, with_a_plain_loop(spec)[1])
        apart = max(abs(a - b) for a, b in zip(trl_losses, plain_losses, strict=True))
        row = {"weights": spec.precision, "losses apart by at most": apart, "TRL, s a step": trl}
        table.append(row | {"plain loop, s a step": plain, "ratio": trl / plain})
    print(markdown_table(table))


if __name__ == "__main__":
    main()
