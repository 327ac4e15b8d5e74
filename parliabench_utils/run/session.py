"""`start`, the third cell of every notebook: validated parameters, seeds, threads, folders, versions.

Under the runner it only joins the run that the runner has opened. In JupyterLab it does the runner's checks itself, and `finish`
writes the manifest with `mode: interactive`.

    run = start("05_text_metrics", globals())
    ...
    run.finish()
"""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

from parliabench_utils.run import manifest as manifests
from parliabench_utils.run import stages
from parliabench_utils.run.display import left_align_text
from parliabench_utils.run.params import Common, schema_of, validate
from parliabench_utils.run.project import outputs_root, project_root
from parliabench_utils.run.seeds import seed_everything

RUNNER_VARIABLE = "PARLIABENCH_RUNNER"


class Run:
    """A notebook's hold on its run: parameters, folders, the jobs it has to do, and notes for the manifest."""

    def __init__(self, stage: str, params: Common):
        self.stage, self.params = stage, params
        self.folder = outputs_root() / params.run
        self._interactive = None

    def stage_folder(self, stage: str | None = None) -> Path:
        """`outputs/<run>/<stage>`; this stage's own, made if need be, without an argument."""
        folder = self.folder / (stage or self.stage)
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
        manifests.add_note(self.folder, manifests.job_name(self.stage, self.params), key, value)

    def finish(self) -> None:
        """The last line of a notebook: checks that every declared output is there; in JupyterLab, writes the manifest."""
        missing = [p for p in stages.STAGES[self.stage].outputs(self.params, self.folder) if not p.exists()]
        if missing:
            names = ", ".join(p.relative_to(self.folder).as_posix() for p in missing)
            raise FileNotFoundError(f"{self.stage} ended without writing {names}")
        if self._interactive:
            self._interactive.done()
        print(f"{self.stage}: done, everything is in {_short(self.folder)}")


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
    run = Run(stage, params)
    if os.environ.get(RUNNER_VARIABLE) != stage:
        run._interactive = manifests.Manifest.open(stage, params, mode="interactive")
    run.folder.mkdir(parents=True, exist_ok=True)
    print(_banner(run))
    return run


def _set_up(params: Common) -> None:
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
    from parliabench_utils.run.provenance import git_state, library_versions

    shown = ("torch", "transformers", "pandas", "numpy")
    versions = ", ".join(f"{name} {version}" for name, version in library_versions().items() if name in shown)
    commit = (git_state()["git_commit"] or "no git")[:10]
    return f"{run.stage} · run {run.params.run} · seed {run.params.seed} · code {commit}\n{versions}"


def _short(folder: Path) -> str:
    root = project_root()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else str(folder)
