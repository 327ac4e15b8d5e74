"""What planning a large run costs: processor seconds of a dry run of the paper profile, cut into more and more jobs.

python -m benchmarks.scaling
"""

import os
import subprocess
import sys
import tempfile

from benchmarks.measure import machine, markdown_table, versions

SHARDS = (10, 64, 190)


def planning(shards: int) -> dict[str, object]:
    """Jobs and processor seconds of a dry run of the paper profile with so many shards; nothing of it has been run."""
    given = ["profile=paper", "group_by=model-type-shard", f"set=n_shards={shards}"]
    command = [sys.executable, "-m", "snakemake", "--profile", "params/cluster/slurm", "-n", "--quiet", "rules", "--config", *given]
    before = os.times()
    with tempfile.TemporaryDirectory() as outputs:
        environment = os.environ | {"PARLIABENCH_OUTPUTS": outputs}
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    after = os.times()
    (jobs,) = {line.split()[1] for line in (said.stdout + said.stderr).splitlines() if line.startswith("total ")}
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"shards": shards, "jobs": int(jobs) - 1, "processor s": round(spent, 1)}  # `all` is no job


if __name__ == "__main__":
    print(f"{machine()}; {versions('snakemake')}\n\n{markdown_table([planning(n) for n in SHARDS])}")
