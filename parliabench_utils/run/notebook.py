"""`start`, the third cell of every notebook: validated parameters, seeds, threads, folders, versions.

Under the runner it only joins the run that the runner has opened. In JupyterLab it does the runner's checks itself, and `finish`
writes the manifest with `mode: interactive`.

    this_run = start("05_text_metrics", globals())
    ...
    this_run.finish()

What a notebook writes lies in its job's staging folder until the end; what was there before stays until then. A cell that fails frees
the outputs for other processes; the notebook can go on from that cell as long as none has begun with them.

How tables look in a notebook: pandas sets everything to the right, and speeches are read from the left.

>>> import pandas as pd
>>> print(table_html(pd.DataFrame({"n": [1], "begins": ["My Lords"]})).splitlines()[0])
<div class="text-2"><style>.text-2 tbody td:nth-of-type(2),.text-2 thead th:nth-of-type(3) {text-align: left !important}</style>

Progress of long loops: at most one line in ten seconds, so that neither a log nor a notebook floods.

>>> list(progress([1, 2], "Counting"))
[1, 2]
"""

import logging
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from parliabench_utils.run import record as manifests
from parliabench_utils.run import stages
from parliabench_utils.run.params import Parameters, schema_of, validate
from parliabench_utils.run.project import outputs_root, project_root, shown
from parliabench_utils.run.record import Manifest, seed_everything
from parliabench_utils.run.staging import staging_folder

if TYPE_CHECKING:
    import pandas as pd


RUNNER_VARIABLE = "PARLIABENCH_RUNNER"


class Run:
    """A notebook's hold on its run: parameters, folders, the jobs it has to do, and notes for the manifest."""

    def __init__(self, stage: str, params: Parameters, interactive: Manifest | None = None):
        self.stage, self.params = stage, params
        self._interactive = interactive  # None under the runner, which keeps the manifest itself

    @property
    def folder(self) -> Path:
        """The run as this notebook sees it: what earlier stages wrote, and what it has written itself.

        RuntimeError after a failure when another process has begun with the same outputs.
        """
        run, job = outputs_root() / self.params.run, self._interactive
        if job and job.is_done:
            return run
        if job:
            job.retake()
        return staging_folder(run, stages.job_name(self.stage, self.params))

    def stage_folder(self, stage: str | None = None) -> Path:
        """The folder of a stage; this stage's own, made if need be, without an argument."""
        own = self.stage if self.stage in stages.STAGES else f"studies/{self.stage}"
        folder = self.folder / (stage or own)
        if stage is None:
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def model_types(self) -> list[tuple[str, str]]:
        """The (model, type) pairs that this call does."""
        return stages.model_types(self.stage, self.params)

    @property
    def shards(self) -> list[int]:
        """The shard numbers that this call of 04 does."""
        return stages.shards(self.params, self.folder)

    @property
    def writes_summary(self) -> bool:
        """Whether this call also compares models (it was not cut down to one model, type or shard)."""
        return stages.writes_summary(self.params)

    def note(self, key: str, value: Any) -> None:
        """Keep a JSON-able fact in the manifest: counts of dropped rows with reasons, signatures, precision."""
        self._open_again()
        manifests.add_note(outputs_root() / self.params.run, stages.job_name(self.stage, self.params), key, value)

    def finish(self) -> None:
        """The last line of a notebook: checks that every declared output is there; in JupyterLab, puts them in place."""
        self._open_again()
        folder = self.folder
        missing = [p for p in stages.stage_of(self.stage).outputs(self.params, folder) if not p.exists()]
        if missing:
            names = ", ".join(p.relative_to(folder).as_posix() for p in missing)
            raise FileNotFoundError(f"{self.stage} ended without writing {names}")
        if self._interactive:
            self._interactive.done()
        print(f"{self.stage}: done, everything is in {shown(outputs_root() / self.params.run)}")

    def _open_again(self) -> None:
        """The last cell may be run twice: the outputs that are in place are this call's to sign again."""
        if self._interactive and self._interactive.is_done:
            self._interactive = Manifest.open(self.stage, self.params, mode="interactive")

    def _after_cell(self, result: Any) -> None:
        """IPython's hook: a cell that failed or was interrupted must not keep others from the outputs."""
        error = result.error_before_exec or result.error_in_exec
        if error is not None and not self._interactive.is_done:
            self._interactive.failed(f"{type(error).__name__}: {error}")


def start(stage: str, namespace: dict[str, Any]) -> Run:
    """Open a run for a notebook. `namespace` is the notebook's `globals()`, from which the parameters are read by name.

    Raises ValueError for a wrong parameter and FileNotFoundError for a missing input, before anything is computed.
    """
    os.chdir(project_root())
    names = schema_of(stage).model_fields
    absent = [name for name in names if name not in namespace]
    if absent:
        raise ValueError(f"{stage}: the cell tagged `parameters` does not set {', '.join(absent)}")
    params = validate(stage, {name: namespace[name] for name in names})
    _set_up(params)
    left_align_text()
    if os.environ.get(RUNNER_VARIABLE) == stage:
        run = Run(stage, params)
    else:
        run = Run(stage, params, Manifest.open(stage, params, mode="interactive"))
        _free_after_failures(run)
    print(_banner(run))
    return run


def _free_after_failures(run: Run) -> None:
    """Let IPython call the run's hook after each cell, in the place of an earlier run's in this kernel."""
    from IPython import get_ipython

    if shell := get_ipython():
        for hook in list(shell.events.callbacks["post_run_cell"]):
            if isinstance(getattr(hook, "__self__", None), Run):
                shell.events.unregister("post_run_cell", hook)
        shell.events.register("post_run_cell", run._after_cell)


def _set_up(params: Parameters) -> None:
    """Seeds, threads and the offline switch, set before any library that reads them is loaded."""
    if params.offline:
        os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["OMP_NUM_THREADS"] = str(params.n_threads)
    # Threads that spin while they wait make a busy laptop many times slower, and a free one hardly faster.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    warnings.filterwarnings("ignore", message="IProgress not found")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # a line about a faster kernel that needs the network
    seed_everything(params.seed)


def _banner(run: Run) -> str:
    from parliabench_utils.run.record import git_state, library_versions

    shown = ("torch", "transformers", "pandas", "numpy")
    versions = ", ".join(f"{name} {version}" for name, version in library_versions().items() if name in shown)
    commit = (git_state()["git_commit"] or "no git")[:10]
    return f"{run.stage} · run {run.params.run} · seed {run.params.seed} · code {commit}\n{versions}"


def left_align_text() -> None:
    """From now on a notebook shows columns of text from the left; without a notebook nothing changes."""
    import pandas as pd
    from IPython import get_ipython

    if shell := get_ipython():
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, table_html)


def table_html(frame: "pd.DataFrame") -> str | None:
    """pandas' own HTML of the frame with its columns of text to the left; None where pandas is told to give none."""
    import pandas as pd

    html, shown = frame._repr_html_(), pd.get_option("display.max_columns")
    text = [n for n, dtype in enumerate(frame.dtypes, start=1) if pd.api.types.is_string_dtype(dtype)]
    if html is None or not text or len(frame.columns) > (shown or len(frame.columns)):  # with columns left out, n is not the place
        return html
    name = f"text-{'-'.join(map(str, text))}"
    cells = [f".{name} tbody td:nth-of-type({n}),.{name} thead th:nth-of-type({n + frame.index.nlevels})" for n in text]
    return f'<div class="{name}"><style>{",".join(cells)} {{text-align: left !important}}</style>\n{html}</div>'


Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 10.0


def progress(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield `items`; print `label`, how many are done, of how many, and the time left, at most every ten seconds."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    began = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(_line(label, done, total, now - began), flush=True)
        yield item


def _line(label: str, done: int, total: int | None, seconds: float) -> str:
    if not total or not done:
        return f"{label}: {done} done, {seconds:.0f} s"
    return f"{label}: {done} of {total}, {seconds:.0f} s, about {seconds / done * (total - done):.0f} s left"
