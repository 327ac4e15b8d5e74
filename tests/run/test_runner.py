"""The runner, on a toy notebook in a project of its own: what it refuses, what it records, what it skips, what a failure leaves."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import jupytext
import psutil
import pytest

from parliabench_utils import cli
from parliabench_utils.run import record as manifest
from parliabench_utils.run import runner
from parliabench_utils.run.record import vouch_for_import
from parliabench_utils.run.runner import StageFailed, run_notebook
from tests.conftest import ROOT
from tests.run.toy import NOTEBOOK, WRITES, install, make_project, staged, write


@pytest.fixture
def project(tmp_path, monkeypatch, outputs):
    root = tmp_path / "project"
    make_project(root, outputs)
    install(root, monkeypatch.setitem, monkeypatch.setattr)
    return root


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


FAILURES = {
    "a cell fails": "raise RuntimeError('the chamber is empty')",
    "the kernel is killed": WRITES + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "the disk is full": WRITES + "\nraise OSError(28, 'No space left on device')",
    "nothing is written": "pass",
}


def test_what_a_whole_run_left_stays_until_another_is_whole(project, outputs):
    write(project)
    run_notebook("toy", "demo", {})
    kept = {path: path.read_bytes() for path in (outputs / "toy").rglob("*") if path.parent.name != "notebooks" and path.is_file()}
    assert outputs / "toy/toy.csv" in kept and outputs / "toy/manifests/toy.json" in kept
    for name, body in FAILURES.items():
        write(project, body)
        with pytest.raises((StageFailed, OSError)):
            run_notebook("toy", "demo", {"word": "other"})
        assert {path: path.read_bytes() for path in kept} == kept, name
    write(project)
    run_notebook("toy", "demo", {"word": "other"})
    assert (outputs / "toy/toy.csv").read_text() == "x\nother\n"
    assert not (outputs / "toy/.partial").exists()


def test_a_kill_while_outputs_are_put_in_place_is_mended(project, outputs, monkeypatch, capfd):
    write(project)
    run_notebook("toy", "demo", {})
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "put_in_place", lambda *_: os._exit(9))
        if not (child := os.fork()):
            run_notebook("toy", "demo", {"word": "other"})
        os.waitpid(child, 0)
    assert (outputs / "toy/toy.csv").read_text() == "x\nhello\n"
    run_notebook("toy", "demo", {"word": "other"})
    assert "toy: skipped" in capfd.readouterr().out
    assert (outputs / "toy/toy.csv").read_text() == "x\nother\n"
    assert read_manifest(outputs)["parameters"]["word"] == "other"


def test_an_input_that_changes_meanwhile_is_named(project, outputs, monkeypatch):
    made = outputs / "toy/01_ingest/dropped.csv"
    made.parent.mkdir(parents=True)
    made.write_text("first")
    vouch_for_import(outputs / "toy", project / "input.txt")
    from parliabench_utils.run import stages

    stage = stages.Stage("toy", "Toy", (), (), lambda p, f: [made], lambda p, f: [f / "toy.csv"])
    monkeypatch.setitem(stages.STAGES, "toy", stage)
    write(project, WRITES + f"\nPath({str(made)!r}).write_text('second')")
    with pytest.raises(ValueError, match=r"01_ingest/dropped\.csv changed while it ran"):
        run_notebook("toy", "demo", {})


def test_saving_in_jupyterlab_without_an_edit_changes_nothing(project, capfd):
    write(project, text=NOTEBOOK + "\n# %% [markdown]\n# Prose.\n")
    run_notebook("toy", "demo", {})
    path = project / "notebooks/toy.py"
    notebook = jupytext.read(path)
    notebook.metadata["kernelspec"] = {"display_name": "Other", "language": "python", "name": "other"}
    notebook.metadata["widgets"] = {"state": {}}
    notebook.cells[1].metadata["collapsed"] = True
    notebook.cells[2].source += "\n\n"
    notebook.cells[3].source = "Other prose."
    before = path.read_bytes()
    jupytext.write(notebook, path, fmt="py:percent")
    assert path.read_bytes() != before
    run_notebook("toy", "demo", {})
    assert "toy: skipped" in capfd.readouterr().out
    write(project, WRITES + "\nprint(1)")
    run_notebook("toy", "demo", {})
    assert "toy: done" in capfd.readouterr().out


def toy(root, *settings, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.run.toy", str(root), *settings],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_kernel_and_its_children_and_leaves_no_temporary_folder(project, outputs, tmp_path, number):
    temporary, started = tmp_path / "tmp", tmp_path / "pids"
    temporary.mkdir()
    sleeper = "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    write(project, sleeper + f"Path({str(started)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(600)")
    process = toy(project, TMPDIR=str(temporary))
    deadline = time.monotonic() + 120
    while not (started.exists() and started.read_text()) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.strip().count("\n") == 0 and "goes on from what is done" in errors
    assert list(temporary.iterdir()) == []
    assert not any(psutil.pid_exists(int(pid)) for pid in started.read_text().split())
    assert read_manifest(outputs)["status"] == "failed"
    write(project)
    run_notebook("toy", "demo", {})


def test_a_fault_of_the_disk_is_one_line_and_exit_2(project, outputs, monkeypatch, capsys):
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\nPath(folder, 'toy.csv').write_text('x' * 100)"
    for body in (
        limit,
        WRITES + "\nraise OSError('Error writing bytes to file. Detail: [errno 28] No space left on device')",
    ):
        write(project, body)
        assert cli.main(["run", "toy"]) == 2
        errors = capsys.readouterr().err
        assert errors.count("\n") == 1 and "what is done is kept" in errors, errors
    write(project)
    monkeypatch.setattr(manifest, "write_json", lambda path, _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full", str(path))))
    assert cli.main(["run", "toy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    for place in ("/dev/null/outputs", "/proc/outputs"):
        monkeypatch.setenv("PARLIABENCH_OUTPUTS", place)
        assert cli.main(["run", "toy"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--run", "r" * 300],
        ["--run", "../elsewhere"],
        ["--run", "a/b"],
        ["--run", ".."],
        ["--profile", "p" * 300],
        ["--profile", "../params/demo"],
        ["--set", "models=[../../x]"],
        ["--set", f"models=[{'m' * 300}]"],
        ["--set", "models=[no-such-model]"],
        ["--model", "../x"],
        ["--set", f"models={DEEP}"],
    ],
)
def test_names_and_values_that_are_none_are_one_line_and_touch_nothing(outputs, capsys, arguments):
    assert cli.main(["run", "03_finetune", *arguments]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ") and errors.count("\n") == 1
    assert not outputs.exists()


@pytest.mark.parametrize("judge", ["../smollm2-constrained", "a/b", "j" * 300, "no-such-judge"])
def test_a_judge_that_is_none_is_refused(outputs, capsys, judge):
    assert cli.main(["run", "07_judge", "--set", f"judge={judge}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not outputs.exists()


def test_deeply_nested_files_are_named(project, outputs, capsys):
    write(project)
    (project / "input.jsonl").write_text('{"a": ' + DEEP)
    from parliabench_utils.run import stages

    stages.STAGES["toy"] = stages.Stage("toy", "Toy", (), (), lambda p, f: [project / "input.jsonl"], lambda p, f: [f / "toy.csv"])
    assert cli.main(["run", "toy"]) == 2
    errors = capsys.readouterr().err
    assert "input.jsonl, line 1" in errors and errors.count("\n") == 1
    (outputs / "toy/manifests").mkdir(parents=True)
    (outputs / "toy/manifests/toy.json").write_text(DEEP)
    (project / "input.jsonl").write_text("{}")
    assert cli.main(["run", "toy"]) == 2
    assert "manifests/toy.json" in capsys.readouterr().err
    (project / "params/demo/toy.yaml").write_text("a: " + DEEP)
    assert cli.main(["run", "toy"]) == 2
    assert "toy.yaml" in capsys.readouterr().err
