"""A run over two Slurm nodes that lose jobs and a node on the way, against the same run without Slurm."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parliabench_utils.run.params import schema_of
from parliabench_utils.run.stages import STAGES
from tests.cluster.two_nodes import Slurm, two_nodes
from tests.conftest import ROOT
from tests.slices import EXCEPTIONS, SETTINGS, environment, yaml_text

pytestmark = pytest.mark.cluster
MINUTES = 15
COMPARED = ("tables", "figures", "03_finetune", "05_text_metrics", "06_political_alignment", "07_judge", "08_statistics")


def settings() -> str:
    """The slice's settings as Snakemake's `set=`: each key that means something else elsewhere names its notebooks."""
    texts = []
    for key, value in (SETTINGS | {"n_threads": 1}).items():
        users = [stage for stage in STAGES if key in schema_of(stage).model_fields]
        plain = not any(key in EXCEPTIONS.get(stage, ()) for stage in users)
        names = [key] if plain else [f"{stage}.{key}" for stage in users if key not in EXCEPTIONS.get(stage, ())]
        texts += [f"{name}={yaml_text(value)}" for name in names]
    return " ".join(texts)


def start(profile: str, outputs: Path, *options: str) -> subprocess.Popen:
    given = ["profile=demo", "run=slice", "group_by=model-type-shard", f"set={settings()}"]
    command = [sys.executable, "-m", "snakemake", "--profile", f"params/cluster/{profile}", *options, "--config", *given]
    with (outputs / f"{profile}.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment(outputs), stdout=log, stderr=log, text=True)


def on_slurm(outputs: Path) -> subprocess.Popen:
    """The README's command, but that a job which fails stays failed and that a node here has little memory."""
    return start(
        "slurm",
        outputs,
        "--retries",
        "0",
        "--slurm-init-seconds-before-status-checks",
        "3",
        "--default-resources",
        "mem_mb=1800",
        "runtime=60",
    )


def in_the_middle(slurm: Slurm, workflow: subprocess.Popen, outputs: Path, marks: dict[str, str]) -> tuple[str, str, str]:
    """Wait until a job of one of these stages has begun its file `marks[stage]` on a node; its stage, Slurm id and node."""
    until = time.monotonic() + MINUTES * 60
    while time.monotonic() < until and workflow.poll() is None:
        for job, node, comment in slurm.jobs():
            stage = comment.removeprefix("rule_").partition("_wildcards")[0]
            if stage in marks and list((outputs / "slice/.partial").glob(f"{stage}-*/slice/**/{marks[stage]}")):
                return stage, job, node
        time.sleep(0.2)
    raise AssertionError(f"no job of {', '.join(marks)} was seen at work; the log ends with\n{log_of(outputs)[-3000:]}")


def log_of(outputs: Path, profile: str = "slurm") -> str:
    return (outputs / f"{profile}.log").read_text(encoding="utf-8")


def files(run: Path) -> dict[str, bytes]:
    """Every file that is compared; what is measured in seconds apart."""
    found = [path for name in COMPARED for path in (run / name).rglob("*") if path.is_file() and path.name != "measured.json"]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in found}


def test_a_run_on_two_nodes_that_fail_is_the_local_run(tmp_path):
    local, remote = tmp_path / "local", tmp_path / "remote"
    (remote / "slice/manifests").mkdir(parents=True)
    local.mkdir()
    began = time.monotonic()
    assert start("local", local).wait() == 0, log_of(local, "local")[-3000:]
    print(f"local: {time.monotonic() - began:.0f} s")
    for name in ("01_ingest", "02_dataset", "04_generate/human"):  # the test is about 03 to 09
        shutil.copytree(local / "slice" / name, remote / "slice" / name)
    for name in ("01_ingest", "02_dataset"):
        shutil.copy(local / f"slice/manifests/{name}.json", remote / "slice/manifests")

    with two_nodes(tmp_path / "cluster") as slurm:
        workflow = on_slurm(remote)
        marks = {"03_finetune": "train_log.jsonl*", "04_generate": "shard-*.partial"}
        while marks:
            stage, job, _ = in_the_middle(slurm, workflow, remote, marks)
            subprocess.run(["scancel", job], check=True)
            del marks[stage]
        assert workflow.wait() == 1
        assert log_of(remote).rstrip().splitlines()[-1].endswith(".log)"), log_of(remote)[-2000:]
        print(f"two jobs cancelled: {time.monotonic() - began:.0f} s")

        workflow = on_slurm(remote)
        _, job, node = in_the_middle(slurm, workflow, remote, {"07_judge": "*.jsonl.partial"})
        slurm.kill_node(node, job)
        time.sleep(1)
        assert workflow.poll() is None
        time.sleep(15)
        slurm.start_node(node)
        assert workflow.wait() == 0, log_of(remote)[-3000:]
        print(f"a node killed, and to the end: {time.monotonic() - began:.0f} s")

        before = log_of(remote)
        assert on_slurm(remote).wait() == 0
        assert "submitted" not in log_of(remote).removeprefix(before)

    expected, found = files(local / "slice"), files(remote / "slice")
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
