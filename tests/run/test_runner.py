"""The runner, on a toy notebook in a project of its own: what it refuses, what it records, what it skips, what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from parliabench_utils.run import manifest, params, provenance, runner, stages
from parliabench_utils.run.runner import StageFailed, run_notebook
from parliabench_utils.run.staging import staging_folder
from tests.conftest import ROOT

NOTEBOOK = """\
# %% tags=["parameters"]
run = "toy"
word = "hello"

# %%
from pathlib import Path

print("a line that is seen live")

# %%
{body}
"""
WRITES = 'Path(folder, "toy.csv").write_text(f"x\\n{word}\\n")'


class Toy(params.Common):
    word: str = "hello"
    folder: str = ""


def staged(outputs):
    """Where the toy works until it is done; a real notebook gets it from `start`."""
    return staging_folder(outputs / "toy", "toy")


@pytest.fixture
def project(tmp_path, monkeypatch, outputs):
    """A project with one notebook, `toy`, that reads `input.txt` and writes `toy.csv`."""
    root = tmp_path / "project"
    (root / "notebooks").mkdir(parents=True)
    (root / "params/demo").mkdir(parents=True)
    (root / "params/demo/common.yaml").write_text("run: toy\n")
    (root / "params/demo/toy.yaml").write_text(f"folder: {staged(outputs)}\n")
    (root / "input.txt").write_text("input")
    stage = stages.Stage("toy", "Toy", (), lambda p, f: [root / "input.txt"], lambda p, f: [f / "toy.csv"])
    monkeypatch.setitem(params.SCHEMAS, "toy", Toy)
    monkeypatch.setitem(stages.STAGES, "toy", stage)
    for module in (runner, manifest, provenance, params):
        monkeypatch.setattr(module, "project_root", lambda: root)
    return root


def write(project, body=WRITES, text=NOTEBOOK):
    (project / "notebooks/toy.py").write_text(text.format(body=body))


def read_manifest(outputs):
    return json.loads((outputs / "toy/manifests/toy.json").read_text())


def test_a_run_records_what_made_the_output(project, outputs, capfd):
    write(project)
    run_notebook("toy", "demo", {"word": "order"})
    assert (outputs / "toy/toy.csv").read_text() == "x\norder\n"
    record = read_manifest(outputs)
    assert record["status"] == "done"
    assert record["mode"] == "runner"
    assert record["parameters"]["word"] == "order"
    assert record["outputs"]["toy.csv"]["rows"] == 1
    assert set(record["inputs"]) == {"input.txt"}
    assert record["environment"]["libraries"]["papermill"]
    assert (outputs / "toy/notebooks/toy.ipynb").exists()
    assert "a line that is seen live" in (outputs / "toy/notebooks/toy.log").read_text()
    assert "a line that is seen live" in capfd.readouterr().out


def test_a_second_run_is_skipped_until_something_changes(project, outputs, capfd):
    write(project)
    run_notebook("toy", "demo", {})
    run_notebook("toy", "demo", {})
    assert "toy: skipped" in capfd.readouterr().out
    changes = {
        "parameter": lambda: None,
        "input": lambda: (project / "input.txt").write_text("other input"),
        "code": lambda: write(project, WRITES + "\nprint(1)"),
        "output": lambda: (outputs / "toy/toy.csv").write_text("tampered"),
        "output removed": lambda: (outputs / "toy/toy.csv").unlink(),
    }
    for name, change in changes.items():
        change()
        run_notebook("toy", "demo", {"word": "other"})
        assert "toy: done" in capfd.readouterr().out, name
        run_notebook("toy", "demo", {"word": "other"})
        assert "toy: skipped" in capfd.readouterr().out, name


def test_refused_before_a_kernel_starts(project, outputs, monkeypatch):
    monkeypatch.setattr(runner, "_execute", lambda *_: pytest.fail("a kernel was started"))
    write(project)
    with pytest.raises(ValueError, match="did you mean 'word'"):
        run_notebook("toy", "demo", {"wrod": "x"})
    with pytest.raises(ValueError, match="toy: seed"):
        run_notebook("toy", "demo", {"seed": "seven"})
    write(project, text=NOTEBOOK.replace(' tags=["parameters"]', ""))
    with pytest.raises(ValueError, match="0 cells are tagged `parameters`"):
        run_notebook("toy", "demo", {})
    write(project)
    (project / "input.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"missing input: input\.txt"):
        run_notebook("toy", "demo", {})
    assert not (outputs / "toy/notebooks").exists()


def test_a_failing_cell_is_named(project, outputs):
    write(project, "raise RuntimeError('the chamber is empty')")
    with pytest.raises(StageFailed, match="RuntimeError: the chamber is empty") as failure:
        run_notebook("toy", "demo", {})
    assert "a line that is seen live" in str(failure.value)
    assert str(outputs / "toy/notebooks/toy.ipynb") in str(failure.value)
    assert read_manifest(outputs)["status"] == "failed"


def test_a_killed_kernel_is_a_failure(project, outputs):
    write(project, WRITES + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(StageFailed, match="killed"):
        run_notebook("toy", "demo", {})
    assert read_manifest(outputs)["status"] == "failed"


def test_a_notebook_that_writes_nothing_is_a_failure(project, outputs):
    write(project, "pass")
    with pytest.raises(FileNotFoundError, match=r"without writing toy\.csv"):
        run_notebook("toy", "demo", {})
    assert read_manifest(outputs)["status"] == "failed"


def test_partial_rows_live_as_long_as_parameters_inputs_and_code(project, outputs):
    write(project, "raise RuntimeError")
    partial = staged(outputs) / "toy.csv.partial"
    with pytest.raises(StageFailed):
        run_notebook("toy", "demo", {})
    partial.write_text("half")
    with pytest.raises(StageFailed):
        run_notebook("toy", "demo", {})
    assert partial.read_text() == "half"
    with pytest.raises(StageFailed):
        run_notebook("toy", "demo", {"word": "other"})
    assert not partial.exists()


def test_kernels_keep_no_history_and_leave_the_environment_alone(project, outputs):
    before = dict(os.environ)
    write(project, WRITES + "\nassert not get_ipython().history_manager.enabled")
    run_notebook("toy", "demo", {})
    assert dict(os.environ) == before


def test_command_line_exit_codes():
    def run(*arguments):
        command = [sys.executable, "-m", "parliabench_utils", "run", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    wrong = run("01_ingest", "--set", "sede=9")
    assert wrong.returncode == 2
    assert "did you mean 'seed'?" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_wrong_corpus_is_refused_before_anything_is_cleared(outputs, tmp_path):
    (outputs / "demo/01_ingest").mkdir(parents=True)
    kept = outputs / "demo/01_ingest/speeches.parquet"
    kept.write_text("an earlier result")
    for corpus in ("", str(tmp_path), str(tmp_path / "nowhere")):
        with pytest.raises((ValueError, FileNotFoundError), match="corpus"):
            run_notebook("01_ingest", "demo", {"corpus": corpus})
    assert kept.exists()
