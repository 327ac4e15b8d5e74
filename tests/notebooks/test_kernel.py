"""Notebooks as JupyterLab runs them: twice in one kernel, and with cells that fail on the way."""

import json
import shutil
import subprocess
import sys

import pytest

from parliabench_utils.run.stages import STAGES
from tests.conftest import ROOT
from tests.slices import environment

# A cell of 01 fails in a kernel: others get its outputs; the kernel goes on while none has begun with them, and not afterwards.
FAILING = """
import sys
from parliabench_utils.run.project import outputs_root
from tests.notebooks.kernel import cells, shell
from tests.slices import run_stage

run, ip = sys.argv[1], shell()
folder = outputs_root() / run
kept = (folder / "01_ingest/speeches.parquet").read_bytes()
first, opens, *others = cells("01_ingest", run, "all")
holder = folder / ".partial/01_ingest/holder.json"
for source in (first, opens):
    ip.run_cell(source).raise_error()
assert holder.exists()
for failing in ("1 / 0", "raise KeyboardInterrupt", "this is no Python"):
    assert ip.run_cell(failing).success is False
    assert not holder.exists(), failing
    assert (folder / "01_ingest/speeches.parquet").read_bytes() == kept
    ip.run_cell("this_run.stage_folder()").raise_error()  # the next cell goes on
    assert holder.exists(), failing
for source in others:
    ip.run_cell(source).raise_error()
assert not (folder / ".partial").exists()
ip.run_cell(others[-1]).raise_error()  # the last cell once more
assert not (folder / ".partial").exists()
ip.run_cell(opens).raise_error()
ip.run_cell("1 / 0")
assert "done" in run_stage("01_ingest", outputs_root(), run)
result = ip.run_cell("this_run.folder")
assert "run this notebook from its first cell again" in str(result.error_in_exec)
ip.run_cell(opens).raise_error()
ip.run_cell("this_run.finish()").raise_error()
print("all went well")
"""


@pytest.fixture
def copy(slice_outputs, request):
    """A copy of the finished slice under a name of its own."""
    name = f"kernel-{abs(hash(request.node.name)) % 10**6}"
    shutil.copytree(slice_outputs / "slice", slice_outputs / name)
    return slice_outputs, name


def kernel(outputs, *arguments):
    result = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment(outputs), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def require_whole(outputs, name, stages):
    for stage in stages:
        record = json.loads((outputs / name / f"manifests/{stage}.json").read_text())
        assert (record["status"], record["mode"]) == ("done", "interactive")
        before = json.loads((outputs / f"slice/manifests/{stage}.json").read_text())
        assert record["outputs"] == before["outputs"], stage
    assert not (outputs / name / ".partial").exists()


def test_every_notebook_can_be_opened_and_finished_twice_in_one_kernel(copy):
    printed = kernel(copy[0], "-m", "tests.notebooks.kernel", copy[1], "ends", *STAGES)
    assert printed.count("time 2 done") == len(STAGES)
    require_whole(*copy, STAGES)


def test_all_cells_of_a_notebook_run_twice_in_one_kernel(copy):
    kernel(copy[0], "-m", "tests.notebooks.kernel", copy[1], "all", "01_ingest", "04_generate")
    require_whole(*copy, ["01_ingest", "04_generate"])


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_run_all_twice(copy, stage):
    kernel(copy[0], "-m", "tests.notebooks.kernel", copy[1], "all", stage)
    require_whole(*copy, [stage])


def test_a_failed_cell_frees_the_outputs_and_the_kernel_goes_on(copy):
    assert "all went well" in kernel(copy[0], "-c", FAILING, copy[1])
