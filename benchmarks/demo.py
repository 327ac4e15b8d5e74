"""What the demo costs on this machine: processor and wall seconds of each stage, beside the machine's rate of products.

    python -m benchmarks.demo [KEY=VALUE ...]

Every stage runs in a process of its own, into a folder and a cache that are new, as on a machine that sees the project for the
first time. Processor seconds count all processes of a stage (the kernel too) and hardly depend on what else the machine does.
"""

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.measure import machine, markdown_table, versions
from parliabench_utils.run.params import schema_of
from parliabench_utils.run.stages import STAGES


def gflops(precision: str, size: int = 1024, repeats: int = 5) -> float:
    """10^9 operations a second in products of square matrices, two threads, the best of some tries."""
    import torch

    torch.set_num_threads(2)
    a = torch.ones(size, size, dtype=getattr(torch, precision))
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        for _ in range(4):
            a @ a
        seconds.append(time.perf_counter() - began)
    return 4 * 2 * size**3 / min(seconds[1:]) / 1e9


def run_stage(stage: str, settings: list[str], environment: dict[str, str]) -> dict[str, object]:
    """Run one stage of the demo; `processor s` is user and system time of everything that it started."""
    known = schema_of(stage).model_fields
    options = [part for setting in settings if setting.split("=")[0] in known for part in ("--set", setting)]
    command = [sys.executable, "-m", "parliabench_utils", "run", stage, "--profile", "demo", *options]
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | environment, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return {"stage": stage, "processor s": round(spent), "wall s": round(wall)}


def main(settings: list[str]) -> None:
    rates = {name: gflops(name) for name in ("float32", "bfloat16")}
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PARLIABENCH_OUTPUTS": f"{folder}/outputs", "PARLIABENCH_CACHE": f"{folder}/cache"}
        rows = [run_stage(stage, settings, environment) for stage in STAGES]
    total = {"stage": "all"} | {key: sum(row[key] for row in rows) for key in ("processor s", "wall s")}
    shown = ", ".join(f"{name} {rate:.0f} GFLOP/s" for name, rate in rates.items())
    print(f"{machine()}; {versions('torch', 'transformers')}; {shown}\n\n{markdown_table([*rows, total])}")


if __name__ == "__main__":
    main(sys.argv[1:])
