"""The manifest of a stage: what went in, what came out, with which code and versions, and whether it can be trusted.

`Manifest.open` does the runner's steps 4 to 6: hash, decide whether the outputs are still valid, lock, clear stale files, mark as
running. `done` and `failed` write the end. Files: `outputs/<run>/manifests/<stage>[-model-type-shard].json`.

>>> from parliabench_utils.run.params import Job
>>> job_name("04_generate", Job(model="smollm2-135m"))
'04_generate-smollm2-135m'
"""

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from parliabench_utils.run import provenance
from parliabench_utils.run.artefacts import write_json
from parliabench_utils.run.params import Common
from parliabench_utils.run.project import outputs_root, project_root
from parliabench_utils.run.stages import JOB_KEYS, STAGES


def job_name(stage: str, params: Common) -> str:
    """`04_generate`, or `04_generate-<model>-<type>-<shard>` with the parts that the call was cut down to."""
    parts = [str(getattr(params, key, "")) for key in JOB_KEYS]
    return "-".join([stage, *(part for part in parts if part not in ("", "-1"))])


def manifest_path(folder: Path, name: str) -> Path:
    return folder / "manifests" / f"{name}.json"


def done_path(folder: Path, name: str) -> Path:
    """A small file with the hashes of a finished job's outputs, written last; Snakemake waits for it."""
    return folder / "manifests" / f".{name}.done"


def read_manifest(folder: Path, name: str) -> dict[str, Any] | None:
    """A job's manifest, or None where there is none yet."""
    path = manifest_path(folder, name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def add_note(folder: Path, name: str, key: str, value: Any) -> None:
    """Add a fact to the notes that become part of the job's manifest when it ends."""
    path = _notes_path(folder, name)
    notes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, notes | {key: value})


def _notes_path(folder: Path, name: str) -> Path:
    return folder / "manifests" / f".{name}.notes.json"


@dataclass
class Manifest:
    """One job of one stage, from its first check to its end."""

    stage: str
    params: Common
    mode: str
    folder: Path
    inputs: dict[str, str]
    code: str
    fingerprint: str
    lock: FileLock | None = None
    skipped: bool = False
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, stage: str, params: Common, mode: str = "runner") -> "Manifest":
        """Lock; hash inputs, parameters and code; remove what other inputs, parameters or code left; mark as running.

        Raises FileNotFoundError that names each missing input and the stage that writes it.
        """
        lock = _locked(outputs_root() / params.run, job_name(stage, params))
        return cls.prepare(stage, params, mode, lock)._started()

    @classmethod
    def prepare(cls, stage: str, params: Common, mode: str, lock: FileLock | None = None) -> "Manifest":
        """The job with its hashes, nothing written."""
        folder = outputs_root() / params.run
        inputs = STAGES[stage].inputs(params, folder)
        _require(stage, inputs, folder)
        hashes = provenance.describe(inputs, folder)
        code = provenance.code_hash(project_root() / "notebooks" / f"{stage}.py")
        mark = provenance.fingerprint(_selected(params), hashes, code)
        return cls(stage, params, mode, folder, hashes, code, mark, lock)

    @property
    def name(self) -> str:
        return job_name(self.stage, self.params)

    @property
    def path(self) -> Path:
        return manifest_path(self.folder, self.name)

    @property
    def outputs(self) -> list[Path]:
        return STAGES[self.stage].outputs(self.params, self.folder)

    def is_valid(self) -> bool:
        """Whether a finished run with this fingerprint left outputs that still have the recorded hashes."""
        old = read_manifest(self.folder, self.name)
        if not old or old["status"] != "done" or old["fingerprint"] != self.fingerprint:
            return False
        if not all(path.exists() for path in self.outputs):
            return False
        return provenance.describe(self.outputs, self.folder, rows=True) == old["outputs"]

    def _started(self) -> "Manifest":
        old = read_manifest(self.folder, self.name)
        valid = self.is_valid()
        self.skipped = valid and self.mode == old["mode"] == "runner"
        if self.skipped:
            self._close(old["outputs"])
            return self
        resumes = old and old["fingerprint"] == self.fingerprint and old["status"] != "done"
        if not resumes and not (valid and self.mode == "interactive"):
            self._clear()
        _notes_path(self.folder, self.name).unlink(missing_ok=True)
        done_path(self.folder, self.name).unlink(missing_ok=True)
        self._write("running")
        return self

    def _clear(self) -> None:
        """Remove this job's outputs and partial files: they belong to other parameters, inputs or code."""
        for path in set(self.outputs) - self._outputs_of_cut_jobs():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            path.with_name(path.name + ".partial").unlink(missing_ok=True)

    def _outputs_of_cut_jobs(self) -> set[Path]:
        """Valid outputs of calls that did a part of this one (`--model`, `--type`, `--shard`): they are not made again."""
        kept: set[Path] = set()
        for file in (self.folder / "manifests").glob(f"{self.stage}-*.json"):
            part = read_manifest(self.folder, file.stem)
            cut = {key: part["parameters"][key] for key in JOB_KEYS}
            job = Manifest.prepare(self.stage, self.params.model_copy(update=cut), self.mode)
            if job.name != self.name and job.is_valid():
                kept |= set(job.outputs)
        return kept

    def done(self) -> None:
        """Check, count and hash the outputs, then write the manifest: its existence with `done` means complete."""
        missing = [provenance.name_in_manifest(path, self.folder) for path in self.outputs if not path.exists()]
        if missing:
            raise FileNotFoundError(f"{self.name} ended without writing {', '.join(missing)}")
        outputs = provenance.describe(self.outputs, self.folder, rows=True)
        self._write("done", outputs=outputs)
        self._close(outputs)

    def _close(self, outputs: dict[str, Any]) -> None:
        write_json(done_path(self.folder, self.name), outputs)
        self.lock.release(force=True)

    def failed(self, reason: str) -> None:
        """Record the failure; partial files stay for the next attempt."""
        self._write("failed", reason=reason)
        self.lock.release(force=True)

    def _write(self, status: str, **more: Any) -> None:
        notes = _notes_path(self.folder, self.name)
        record = {
            "stage": self.stage,
            "job": self.name,
            "status": status,
            "mode": self.mode,
            "parameters": self.params.model_dump(),
            "inputs": self.inputs,
            "outputs": {},
            "code_sha256": self.code,
            "fingerprint": self.fingerprint,
            "seed": self.params.seed,
            "notes": json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else {},
            "environment": provenance.environment(),
            "seconds": round(time.monotonic() - self.began, 1),
            "peak_memory_mib": peak_memory_mib(),
        }
        write_json(self.path, record | more)
        if status != "running":
            notes.unlink(missing_ok=True)


def peak_memory_mib() -> int:
    """The largest resident size of this process or of a child that has ended, in MiB."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return max(peaks) * unit // 2**20


def _selected(params: Common) -> dict[str, Any]:
    """Parameters for the fingerprint: a job for one model or type does not depend on the lists of all."""
    values = params.model_dump()
    for key, many in (("model", "models"), ("type", "types")):
        if values.get(key):
            values[many] = [values[key]]
    return values


def _require(stage: str, inputs: list[Path], folder: Path) -> None:
    missing = [path for path in inputs if not path.exists() or (stage == "01_ingest" and _is_no_corpus(path))]
    if not missing:
        return
    lines = [f"{_shown(path, folder)}{_fault(path)} ({_remedy(stage, path, folder)})" for path in missing]
    raise FileNotFoundError(f"{stage}: missing input: {'; '.join(lines)}")


def _shown(path: Path, folder: Path) -> Path | str:
    """The run's and the project's own paths short, any other in full."""
    near = path.is_relative_to(folder) or path.is_relative_to(provenance.project_root())
    return provenance.name_in_manifest(path, folder) if near else path


def _fault(path: Path) -> str:
    if not path.exists():
        return ""
    return " is no XML file (an archive?)" if path.is_file() else " holds no XML file"


def _is_no_corpus(path: Path) -> bool:
    """An archive, or a folder without XML in it or (as archives unpack) one or two below."""
    if path.is_file():
        return path.suffix.lower() != ".xml"
    return not any(any(path.glob(f"{below}*.[xX][mM][lL]")) for below in ("", "*/", "*/*/"))


def _remedy(stage: str, path: Path, folder: Path) -> str:
    if path.is_relative_to(folder):
        writer = path.relative_to(folder).parts[0]
        return f"run {writer if writer in STAGES else '08_statistics'} first"
    if stage == "01_ingest":
        return "give an unpacked corpus with --set corpus=FOLDER, or run `python -m parliabench_utils fetch-corpus`"
    return "check the name"


def _locked(folder: Path, name: str) -> FileLock:
    """The job's lock, freed by the system when its holder dies; waits for a living holder and says so."""
    path = folder / "manifests" / f".{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, is_singleton=True)
    while True:
        try:
            lock.acquire(timeout=10)
        except Timeout:
            print(f"{name}: another process writes this stage (lock {path.name}); waiting for it", flush=True)
        else:
            return lock
