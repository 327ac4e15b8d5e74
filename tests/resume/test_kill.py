"""`kill -9` in the middle of 04 and 07, then the same command again: the same rows as an undisturbed run."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.record import file_hash
from parliabench_utils.run.staging import staging_folder
from tests.conftest import ROOT
from tests.slices import command, environment, run_stage

CASES = {
    "04_generate": ("04_generate/smollm2-135m/baseline/shard-0.jsonl", {"batch_size": 1}),
    "07_judge": ("07_judge/smollm2-constrained/human/human.jsonl", {}),
}


@pytest.mark.parametrize("stage", CASES)
def test_a_killed_stage_goes_on_where_it_stopped(slice_outputs, stage):
    name, settings = CASES[stage]
    run = f"killed-{stage}"
    shutil.copytree(slice_outputs / "slice", slice_outputs / run)
    (slice_outputs / run / f"manifests/{stage}.json").unlink()
    for file in (slice_outputs / run / stage).rglob("*.jsonl"):
        if "human" not in file.parts or stage == "07_judge":
            file.unlink()
    partial = staging_folder(slice_outputs / run, stage) / f"{name}.partial"
    process = subprocess.Popen(
        command(stage, run, **settings),
        cwd=ROOT,
        env=environment(slice_outputs),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 180
    while not (partial.exists() and partial.stat().st_size) and time.monotonic() < deadline:
        assert process.poll() is None, "the stage ended before it could be killed"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = partial.read_text().count("\n")
    assert kept > 0
    run_stage(stage, slice_outputs, run, **settings)
    whole = slice_outputs / run / name
    assert len(read_jsonl(whole)) > kept
    assert file_hash(whole) == file_hash(slice_outputs / "slice" / name)
