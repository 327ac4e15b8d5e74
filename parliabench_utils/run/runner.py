"""The only thing that starts a notebook: jupytext → parameter check → papermill → manifest.

Papermill alone runs on with a misspelt parameter, a lost tag or a string where a number belongs, and its executed notebook looks
fine when the kernel was killed. This module refuses the first three before a kernel starts, and writes the status itself, last.

    python -m parliabench_utils run 01_ingest --profile demo
"""

import errno
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from parliabench_utils.run.artefacts import ScrubbedNotebooks, ScrubbedStream, Scrubber
from parliabench_utils.run.notebook import RUNNER_VARIABLE
from parliabench_utils.run.params import notebook_path, parameters_cell, resolve
from parliabench_utils.run.project import project_root
from parliabench_utils.run.record import Manifest

LOG_LINES_SHOWN = 20
LARGE_NOTEBOOK_BYTES = 5 * 2**20
KERNEL_CONFIGURATION = "c.HistoryManager.enabled = False\nc.IPKernelApp.log_level = 50  # the interrupt at shutdown is no error\n"


# What no notebook can help: a full or read-only disk, a quota, a limit on a file's size or name.
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.ENAMETOOLONG)


class StageFailed(RuntimeError):
    """A notebook did not end well; the message names the executed notebook, the failing cell and the last log lines."""


class Stopped(SystemExit):
    """A signal asked the runner to end; its children have ended when this is raised. The code is the shell's: 128 + signal."""

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.number = number

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.number).name}; the same command goes on from what is done"


def run_notebook(notebook: str, profile: str, settings: dict[str, Any]) -> Path:
    """Run a notebook with a profile's parameters and `settings` on top; skip it when its outputs are still valid.

    Returns the path of its manifest. Raises ValueError (parameters, tags) and FileNotFoundError (inputs) before a kernel starts,
    StageFailed afterwards, OSError where the disk is at fault, Stopped after SIGINT, SIGTERM and SIGHUP.
    """
    params = resolve(notebook, profile, settings)
    source = read_notebook(notebook)
    with _ending_at_signals():
        job = Manifest.open(notebook, params)
        if job.skipped:
            print(f"{job.name}: skipped, parameters, inputs and code are the same", flush=True)
            return job.path
        print(f"{job.name}: started", flush=True)
        try:
            _execute(source, job)
            job.done()
        except BaseException as error:
            job.failed(f"{type(error).__name__}: {error}")
            raise
    print(f"{job.name}: done", flush=True)
    return job.path


@contextmanager
def _ending_at_signals() -> Iterator[None]:
    """Signals that end a process first end its kernel and whatever that has started, then raise `Stopped`."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: Any) -> None:
    import psutil

    signal.signal(number, signal.SIG_IGN)
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    for child in psutil.wait_procs(children, timeout=5)[1]:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    raise Stopped(number)


def read_notebook(notebook: str) -> Any:
    """A notebook's file as a notebook. Raises ValueError unless exactly one cell is tagged `parameters`."""
    import jupytext

    parameters_cell(notebook_path(notebook))
    source = jupytext.read(notebook_path(notebook))
    source.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return source


def _execute(source: Any, job: Manifest) -> None:
    """Run the notebook in one kernel of this environment; its output goes to the terminal and a log as it comes."""
    import nbformat
    import papermill

    executed = job.folder / "notebooks" / f"{job.name}.ipynb"
    executed.parent.mkdir(parents=True, exist_ok=True)
    log = executed.with_suffix(".log")
    with _kernel_environment(job.stage) as scratch, log.open("w", encoding="utf-8") as file:
        nbformat.write(source, scratch / "source.ipynb")
        scrubber = Scrubber(job.params.model_dump())
        kept = ScrubbedStream(file, scrubber)
        output = _Tee(sys.stdout, kept)
        try:
            papermill.execute_notebook(
                str(scratch / "source.ipynb"),
                ScrubbedNotebooks.target(executed, scrubber),
                parameters=job.params.model_dump(),
                kernel_name="python3",
                language="python",
                cwd=str(project_root()),
                progress_bar=False,
                stdout_file=output,
                stderr_file=output,
            )
        except OSError:
            raise
        except Exception as error:
            kept.finish()
            _raise_disk_fault(job.name, error)
            raise StageFailed(scrubber.without_secrets(_failure(job.name, executed, log, error))) from error
        finally:
            kept.finish()
    if executed.stat().st_size > LARGE_NOTEBOOK_BYTES:
        print(f"{job.name}: the executed notebook has {executed.stat().st_size / 2**20:.1f} MiB", flush=True)


@contextmanager
def _kernel_environment(stage: str) -> Iterator[Path]:
    """A private IPython folder without history, so that parallel kernels share no database; variables are put back after."""
    with tempfile.TemporaryDirectory(prefix="parliabench-") as name:
        profile = Path(name) / "profile_default"
        profile.mkdir()
        (profile / "ipython_kernel_config.py").write_text(KERNEL_CONFIGURATION, encoding="utf-8")
        mine = {"IPYTHONDIR": name, "JUPYTER_PREFER_ENV_PATH": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1", RUNNER_VARIABLE: stage}
        before = {key: os.environ.get(key) for key in mine}
        os.environ.update(mine)
        try:
            yield Path(name)
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.update({key: value})


class _Tee:
    """A text stream that writes to several others at once."""

    def __init__(self, *streams: TextIO):
        self.streams = streams

    def write(self, text: str) -> None:
        for stream in self.streams:
            stream.write(text)

    def flush(self) -> None:
        for stream in self.streams:
            stream.flush()


def _raise_disk_fault(name: str, error: Exception) -> None:
    """OSError in one line where the error in the cell was the disk's."""
    text = str(getattr(error, "evalue", ""))
    for number in DISK_FAULTS:
        if re.search(rf"\[Errno {number}\]|{re.escape(os.strerror(number))}", text):
            raise OSError(number, f"{name}: {text}; what is done is kept for the same command") from error


def _failure(name: str, executed: Path, log: Path, error: Exception) -> str:
    """What a person needs to go on: which cell, which error, the last log lines, where the whole story is."""
    source = getattr(error, "source", None)
    if source is not None:
        problem = f"cell [{error.exec_count}] raised {error.ename}: {error.evalue}\n{source.strip()}"
    else:
        problem = f"{type(error).__name__}: {error} (was the kernel killed, for want of memory perhaps?)"
    lines = log.read_text(encoding="utf-8").splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join([f"{name} failed: {problem}", "last lines of the log:", *lines, f"see {executed} and {log.name}"])
