"""What a stage reads of its run is what the stages before it wrote: inputs held against the manifests of their makers.

`Manifest.open` calls it before a stage starts, the commands `annotate` and `report` before they read a run.

    check_inputs("08_statistics", [folder / "07_judge/summary"], folder)  # ValueError: … was changed after 07_judge wrote it
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from parliabench_utils.run.artefacts import read_json, write_json
from parliabench_utils.run.provenance import describe, environment, file_hash, finished_files
from parliabench_utils.run.scrubbing import scrub
from parliabench_utils.run.stages import IMPORT, maker, shard_numbers

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

    def _take(self, record: dict[str, Any], shards: set[int] | None) -> None:
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
            found.append(
                f"{name} is not of the last call of {stage}, which was for other models or settings: run {stage} again"
            )
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
    record = {
        "stage": IMPORT,
        "job": IMPORT,
        "status": "done",
        "inputs": {source.name: hashlib.sha256(source.read_bytes()).hexdigest()},
        "outputs": outputs,
        "environment": environment(),
    }
    write_json(folder / "manifests" / f"{IMPORT}.json", scrub(record))
