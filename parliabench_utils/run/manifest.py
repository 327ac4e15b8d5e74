"""The manifest of a stage: what went in, what came out, with which code and versions, and whether it can be trusted.

`Manifest.open` does the runner's steps 4 to 6: hash, claim the outputs, decide whether they are still valid, lay out the job's
staging folder, mark as running. `done` puts the outputs in place, the manifest last. `outputs/<run>/manifests/<job>.json` is the
last whole run's, whatever an attempt after it came to; before there is a whole run, the attempt's record stands there.

>>> from parliabench_utils.run.params import Job
>>> job_name("04_generate", Job(model="smollm2-135m"))
'04_generate-smollm2-135m'
"""

import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parliabench_utils.run import provenance
from parliabench_utils.run.artefacts import read_json, write_json
from parliabench_utils.run.params import Common
from parliabench_utils.run.project import outputs_root, project_root
from parliabench_utils.run.stages import JOB_KEYS, STAGES, needed_files
from parliabench_utils.run.staging import Claim, lay_out, put_in_place, staging_folder


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
    return read_json(path) if path.exists() else None


def add_note(folder: Path, name: str, key: str, value: Any) -> None:
    """Add a fact to the notes that become part of the job's manifest when it ends."""
    path = _notes_path(folder, name)
    write_json(path, read_json(path) | {key: value})


def _notes_path(folder: Path, name: str) -> Path:
    return staging_folder(folder, name).with_name("notes.json")


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
    claim: Claim | None = None
    skipped: bool = False
    is_done: bool = False
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, stage: str, params: Common, mode: str = "runner") -> "Manifest":
        """Hash inputs, parameters and code; claim the outputs; lay out the staging folder; mark as running.

        Raises FileNotFoundError that names each missing input and the stage that writes it, before anything is touched.
        """
        job = cls.prepare(stage, params, mode)
        claim, waited = Claim.wait_for(job.folder, job.name, job.outputs, mode)
        try:
            job = cls.prepare(stage, params, mode) if waited else job  # the other job may have made an input anew
            job.claim = claim
            return job._started()
        except BaseException:
            claim.free()
            raise

    @classmethod
    def prepare(
        cls, stage: str, params: Common, mode: str, known: dict[Path, str] | None = None, code: str | None = None
    ) -> "Manifest":
        """The job with its hashes, nothing written; `known` keeps the hash of each file, `code` is that of the stage if at hand."""
        folder = outputs_root() / params.run
        inputs = STAGES[stage].inputs(params, folder)
        _require(stage, [*inputs, *needed_files(stage, params, folder)], folder)
        hashes = provenance.describe(inputs, folder, known=known)
        code = code or provenance.code_hash(project_root() / "notebooks" / f"{stage}.py")
        mark = provenance.fingerprint(_selected(params), hashes, code)
        return cls(stage, params, mode, folder, hashes, code, mark)

    @property
    def name(self) -> str:
        return job_name(self.stage, self.params)

    @property
    def path(self) -> Path:
        return manifest_path(self.folder, self.name)

    @property
    def staging(self) -> Path:
        """The run as this job sees and writes it until it is done."""
        return staging_folder(self.folder, self.name)

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
        resumes = self._resumes()
        old, valid = read_manifest(self.folder, self.name), self.is_valid()
        self.skipped = valid and self.mode == old["mode"] == "runner"
        if self.skipped:
            self._close(old["outputs"])
            return self
        if not resumes:
            shutil.rmtree(self.staging, ignore_errors=True)
        again = valid and self.mode == "interactive"
        kept = set(self.outputs) if again else self._outputs_of_cut_jobs()
        lay_out(self.folder, self.staging, {*self.outputs, self.path} - kept)
        write_json(_notes_path(self.folder, self.name), old["notes"] if again else {})
        self._write("running")
        return self

    def _resumes(self) -> bool:
        """Whether an unfinished attempt with this fingerprint has left something; one killed at its very end is ended."""
        attempt = read_manifest(self.staging, self.name)
        if not attempt or attempt["fingerprint"] != self.fingerprint:
            return False
        if attempt["status"] == "done":
            put_in_place(self.staging, self.folder, manifest_path(self.staging, self.name))
        return True

    def _outputs_of_cut_jobs(self) -> set[Path]:
        """Valid outputs of calls that did a part of this one (`--model`, `--type`, `--shard`): they are not made again."""
        kept: set[Path] = set()
        known: dict[Path, str] = {}
        for file in sorted((self.folder / "manifests").glob(f"{self.stage}-*.json")):
            part = read_manifest(self.folder, file.stem)
            cut = {key: part["parameters"][key] for key in JOB_KEYS}
            with suppress(ValueError, FileNotFoundError):  # a part of other models, types or shards
                job = Manifest.prepare(self.stage, self.params.model_copy(update=cut), self.mode, known, self.code)
                if job.name != self.name and job.is_valid():
                    kept |= set(job.outputs)
        return kept

    def retake(self) -> None:
        """Claim the outputs again after a failure. RuntimeError when another process has begun with them since."""
        if self.claim.is_mine:
            return
        self.claim, _ = Claim.wait_for(self.folder, self.name, self.outputs, self.mode)
        if (read_manifest(self.staging, self.name) or {}).get("attempt") != self.attempt:
            self.claim.free()
            raise RuntimeError(f"{self.name} was begun anew elsewhere: run this notebook from its first cell again")
        self._write("running")

    def done(self) -> None:
        """Check, count and hash the outputs, then put them in place: a manifest with `done` means complete.

        ValueError when an earlier stage wrote anew meanwhile: nobody could say what the outputs were made from.
        """
        outputs = STAGES[self.stage].outputs(self.params, self.staging)
        missing = [provenance.name_in_manifest(path, self.staging) for path in outputs if not path.exists()]
        if missing:
            raise FileNotFoundError(f"{self.name} ended without writing {', '.join(missing)}")
        self._require_same_inputs()
        described = provenance.describe(outputs, self.staging, rows=True)
        self._write("done", outputs=described)
        put_in_place(self.staging, self.folder, manifest_path(self.staging, self.name))
        self._close(described)

    def _require_same_inputs(self) -> None:
        made_here = [p for p in STAGES[self.stage].inputs(self.params, self.folder) if p.is_relative_to(self.folder)]
        now = provenance.describe([path for path in made_here if path.exists()], self.folder)
        names = [provenance.name_in_manifest(path, self.folder) for path in made_here]
        if changed := [name for name in names if now.get(name) != self.inputs.get(name)]:
            raise ValueError(f"{self.name}: {', '.join(changed)} changed while it ran: run it again")

    def _close(self, outputs: dict[str, Any]) -> None:
        write_json(done_path(self.folder, self.name), outputs)
        self.is_done = True
        self.claim.end()

    def failed(self, reason: str) -> None:
        """Record the failure and free the outputs; what was made so far stays for the next attempt, the last whole run too."""
        if not self.claim.is_mine:
            return
        with suppress(OSError):  # on a full disk; the reason itself is told by whoever calls
            self._write("failed", reason=reason)
        self.claim.free()

    def _write(self, status: str, **more: Any) -> None:
        record = {
            "stage": self.stage,
            "job": self.name,
            "status": status,
            "mode": self.mode,
            "attempt": self.attempt,
            "parameters": self.params.model_dump(),
            "inputs": self.inputs,
            "outputs": {},
            "code_sha256": self.code,
            "fingerprint": self.fingerprint,
            "seed": self.params.seed,
            "notes": read_json(_notes_path(self.folder, self.name)),
            "environment": provenance.environment(),
            "seconds": round(time.monotonic() - self.began, 1),
            "peak_memory_mib": peak_memory_mib(),
        }
        write_json(manifest_path(self.staging, self.name), record | more)
        whole = read_manifest(self.folder, self.name)
        if status != "done" and not (whole and whole["status"] == "done"):
            write_json(self.path, record | more)


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
