"""Who may write which files, and what a job's staging folder shows, keeps and puts in place."""

import signal
import socket
import subprocess
import sys

import pytest

from parliabench_utils.run import staging
from parliabench_utils.run.params import resolve
from parliabench_utils.run.stages import STAGES
from parliabench_utils.run.staging import Claim, lay_out, put_in_place, staging_folder
from tests.conftest import ROOT

HOLDS = """
import sys, time
from pathlib import Path
from parliabench_utils.run.staging import Claim
folder = Path(sys.argv[1])
Claim.wait_for(folder, sys.argv[2], [folder / name for name in sys.argv[4:]], sys.argv[3])
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Starts processes that claim files as a job and keep them."""
    started = []

    def start(job, *files, mode="runner"):
        command = [sys.executable, "-c", HOLDS, str(tmp_path / "demo"), job, mode, *files]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_jobs_that_share_a_file_exclude_each_other_and_the_others_do_not(holder, tmp_path):
    first = holder("04_generate-m-t-0", "04_generate/m/t/shard-0.jsonl")
    assert first.stdout.readline() == "held\n"
    beside = holder("04_generate-m-t-1", "04_generate/m/t/shard-1.jsonl")
    assert beside.stdout.readline() == "held\n"
    whole = holder("04_generate", "04_generate/m/t/shard-0.jsonl", "04_generate/summary/failures.csv")
    line = whole.stdout.readline()
    assert "waiting for 04_generate-m-t-0" in line
    assert f"process {first.pid} on {socket.gethostname()}, since 20" in line and f"kill {first.pid}" in line
    same_folder = holder("other", "04_generate")
    assert "waiting for" in same_folder.stdout.readline()
    same_folder.kill()
    first.send_signal(signal.SIGKILL)  # the system frees what a dead process held
    assert whole.stdout.readline() == "held\n"


def test_who_waits_for_a_kernel_is_told_to_shut_it_down(holder):
    kernel = holder("01_ingest", "01_ingest/speeches.parquet", mode="interactive")
    assert kernel.stdout.readline() == "held\n"
    line = holder("01_ingest", "01_ingest/speeches.parquet").stdout.readline()
    assert str(kernel.pid) in line and "to its last cell, or shut its kernel down" in line


def test_a_process_takes_over_what_it_holds_itself(tmp_path):
    folder = tmp_path / "demo"
    first, _ = Claim.wait_for(folder, "job", [folder / "a"], "interactive")
    second, waited = Claim.wait_for(folder, "part", [folder / "a"], "interactive")
    assert not waited and second.is_mine and not first.is_mine
    first.free()  # a claim that was taken over frees nothing
    assert second.is_mine
    second.end()
    assert not (folder / ".partial/part").exists()


def test_the_parts_of_a_stage_share_no_file_and_the_whole_shares_one_with_each(tmp_path):
    (tmp_path / "02_dataset").mkdir()
    (tmp_path / "02_dataset/prompts.jsonl").write_text('{"shard": 0}\n{"shard": 1}\n')

    def names(**cut):
        params = resolve("04_generate", "demo", {"models": ["m"], "types": ["baseline"], **cut})
        return [path.relative_to(tmp_path).as_posix() for path in STAGES["04_generate"].outputs(params, tmp_path)]

    parts = [names(model="m", type="baseline", shard=k) for k in (0, 1)]
    assert not staging._overlap(*parts)
    assert all(staging._overlap(names(), part) for part in parts)
    assert staging._overlap(names(shard=1), names(model="m"))


def test_what_a_job_writes_reaches_the_run_when_it_is_put_in_place(tmp_path):
    folder, place = tmp_path / "demo", staging_folder(tmp_path / "demo", "job")
    for name in ("in.txt", "out/old.txt", "manifests/job.json", ".hidden"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")
    lay_out(folder, place, {folder / "out"})
    assert (place / "in.txt").read_text() == "old"
    assert not (place / "out").exists() and not (place / ".hidden").exists()
    for name in ("out/old.txt", "manifests/job.json", "out/left.partial"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).unlink(missing_ok=True)
        (place / name).write_text("new")
    assert (folder / "out/old.txt").read_text() == (folder / "manifests/job.json").read_text() == "old"
    put_in_place(place, folder, place / "manifests/job.json")
    assert (folder / "out/old.txt").read_text() == (folder / "manifests/job.json").read_text() == "new"
    assert not (folder / "out/left.partial").exists()
    assert (folder / "in.txt").read_text() == "old" and not (folder / "in.txt").is_symlink()


def test_the_manifest_comes_last_and_a_cut_move_goes_on(tmp_path, monkeypatch):
    folder, place = tmp_path / "demo", staging_folder(tmp_path / "demo", "job")
    for name in ("manifests/job.json", "z.txt", "a.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("new")
    moved, move = [], staging._move

    def stop_after_one(file, target):
        if moved:
            raise KeyboardInterrupt
        moved.append(target.name)
        move(file, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(staging, "_move", stop_after_one)
        put_in_place(place, folder, place / "manifests/job.json")
    assert not (folder / "manifests/job.json").exists()
    put_in_place(place, folder, place / "manifests/job.json")
    assert all((folder / name).read_text() == "new" for name in ("a.txt", "z.txt", "manifests/job.json"))


def test_links_are_made_anew_and_own_work_is_kept(tmp_path):
    folder, place = tmp_path / "demo", staging_folder(tmp_path / "demo", "job")
    folder.mkdir()
    (folder / "in.txt").write_text("1")
    lay_out(folder, place, set())
    (place / "mine.txt.partial").write_text("half")
    (folder / "in.txt").unlink()
    (folder / "other.txt").write_text("2")
    lay_out(folder, place, set())
    assert sorted(path.name for path in place.iterdir()) == ["mine.txt.partial", "other.txt"]
