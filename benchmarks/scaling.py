"""What a cluster costs and brings: planning a large run, and 04 to 07 on one and on two nodes.

    python -m benchmarks.scaling             # as root, with Debian's slurm-wlm and munge; it starts a Slurm of two one-core nodes

Planning counts processor seconds of a dry run of the paper profile. For the scaling the same small run, prepared to 03, does 04
to 07 on one node and on two; `seconds in jobs` is what its manifests say, so that the rest is Slurm's and Snakemake's.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import machine, markdown_table
from tests.cluster.test_slurm import start
from tests.cluster.two_nodes import ask, two_nodes
from tests.conftest import ROOT

SHARDS = (10, 64, 190)
SCALED = ("04_generate", "05_text_metrics", "06_political_alignment", "07_judge")


def planning(shards: int) -> dict[str, object]:
    """Jobs and processor seconds of a dry run of the paper profile."""
    given = ["profile=paper", "group_by=model-type-shard", f"set=n_shards={shards}"]
    command = [sys.executable, "-m", "snakemake", "--profile", "params/cluster/slurm", "-n", "--quiet", "rules", "--config", *given]
    before = os.times()
    with tempfile.TemporaryDirectory() as outputs:
        environment = os.environ | {"PARLIABENCH_OUTPUTS": outputs}
        said = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    after = os.times()
    (jobs,) = {line.split()[1] for line in (said.stdout + said.stderr).splitlines() if line.startswith("total ")}
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"shards": shards, "jobs": int(jobs) - 1, "processor s": round(spent, 1)}  # `all` is no job


def scaled(outputs: Path, prepared: Path, nodes: int) -> dict[str, object]:
    """Wall seconds of 04 to 07 on so many nodes, and the seconds of their jobs together."""
    shutil.copytree(prepared, outputs / "slice", symlinks=True)
    ask("scontrol", "update", "NodeName=n2", f"State={'RESUME' if nodes == 2 else 'DRAIN'}", "Reason=benchmark")
    began = time.time()
    options = ("--slurm-init-seconds-before-status-checks", "1", "--default-resources", "mem_mb=1800", "runtime=60")
    targets = ("--until", *(f"{stage}_compared" for stage in SCALED))
    if start("slurm", outputs, *options, *targets).wait():
        raise RuntimeError((outputs / "slurm.log").read_text(encoding="utf-8")[-2000:])
    wall = time.time() - began
    records = [json.loads(file.read_text(encoding="utf-8")) for file in (outputs / "slice/manifests").glob("*.json")]
    worked = sum(record["seconds"] for record in records if record["stage"] in SCALED)
    return {"nodes": nodes, "wall s": round(wall), "seconds in jobs": round(worked)}


def main() -> None:
    print(f"{machine()}\n\n{markdown_table([planning(n) for n in SHARDS])}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "prepared").mkdir()
        if start("local", home / "prepared", "--until", "03_finetune_compared").wait():
            raise RuntimeError((home / "prepared/local.log").read_text(encoding="utf-8")[-2000:])
        with two_nodes(home / "cluster"):
            rows = []
            for nodes in (1, 2):
                (home / f"on-{nodes}").mkdir()
                rows.append(scaled(home / f"on-{nodes}", home / "prepared/slice", nodes))
    rows[1]["ratio"] = round(rows[0]["wall s"] / rows[1]["wall s"], 2)
    print(markdown_table(rows))


if __name__ == "__main__":
    main()
