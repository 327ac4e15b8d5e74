"""Training of one model in several processes, by torchrun: one a GPU, or (with gloo) processes on a CPU.

Notebook 03 does it where `n_processes` is above 1. The batch of Table 7 is shared out, so the steps and their losses are those of
one process, to rounding.

    python -m torch.distributed.run --standalone --nproc_per_node=2 -m parliabench_utils.models.distributed \
        smollm2-135m outputs/demo 42 '{"backend": "peft", ...}'
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from parliabench_utils.models.finetune import drop_other_checkpoints, last_checkpoint, train
from parliabench_utils.models.loading import default_device, read_model_spec
from parliabench_utils.models.training_plan import TrainingSettings, training_rows


def train_in_processes(name: str, settings: TrainingSettings, folder: Path, seed: int) -> int:
    """`finetune.train` for one model of the run in `folder`, in `settings.n_processes` processes; prints their log.

    Returns the step of the checkpoint from which it went on, or 0. RuntimeError with the last lines when they fail.
    """
    (rows, _), out = training_rows(folder, settings, seed), folder / "03_finetune" / name
    drop_other_checkpoints(read_model_spec(name), settings, rows, out)  # once, not by each process
    checkpoint = last_checkpoint(out)
    processes = settings.n_processes
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    job = ["-m", __name__, name, str(folder.resolve()), str(seed), json.dumps(asdict(settings))]
    threads = max(1, int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1) // processes)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    if default_device() == "cpu":
        environment["ACCELERATE_USE_CPU"] = "true"
    process = subprocess.Popen(
        [*launcher, *job],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="backslashreplace",
    )
    lines = []
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
    return int(checkpoint.name.split("-")[1]) if checkpoint else 0


def main(name: str, folder: str, seed: str, settings: str) -> None:
    """What each process runs."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    chosen, run = TrainingSettings(**json.loads(settings)), Path(folder)
    train(read_model_spec(name), chosen, *training_rows(run, chosen, int(seed)), run / "03_finetune" / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
