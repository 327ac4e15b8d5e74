"""Where a job works until its outputs are whole, and which other jobs must wait for it.

A job sees its run through `outputs/<run>/.partial/<job>/<run>/`: links to every finished file, and the files that it writes itself,
which are put into the run's own folder together when the job is done. Until then, and when it fails or is killed, the old ones stay.

    claim, waited = Claim.wait_for(folder, "04_generate", outputs, mode="runner")  # nobody else writes these files now
    lay_out(folder, staging_folder(folder, "04_generate"), own=set(outputs))
    ...
    put_in_place(staging_folder(folder, "04_generate"), folder, last=manifest)
    claim.end()
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from parliabench_utils.run.artefacts import is_finished, whole_file, write_json
from parliabench_utils.run.project import PARTIAL

SECONDS_BETWEEN_TRIES = 0.5
SECONDS_BETWEEN_LINES = 60.0
HOLDER = "holder.json"


def staging_folder(folder: Path, job: str) -> Path:
    """The job's own view of the run in `folder`; its last part is the run's name, as the run's is."""
    return folder / PARTIAL / job / folder.name


def lay_out(folder: Path, staging: Path, own: set[Path]) -> None:
    """Link every finished file of the run into `staging`, but for `own` (files and folders that this job makes again).

    What the job itself has written there stays, and old links go: the run may have changed since an interrupted start.
    """
    staging.mkdir(parents=True, exist_ok=True)
    for link in [path for path in _files(staging) if path.is_symlink()]:
        link.unlink()
    for file in _files(folder):
        target = staging / file.relative_to(folder)
        if is_finished(file) and not {file, *file.parents} & own and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)


def put_in_place(staging: Path, folder: Path, last: Path) -> None:
    """Move what the job wrote from `staging` over the run's files, `last` (its manifest) at the end.

    Each file is replaced in one step. After a kill in between, the same call moves the rest.
    """
    written = [path for path in _files(staging) if not path.is_symlink() and is_finished(path)]
    for file in sorted(written, key=lambda path: (path == last, path)):
        _move(file, folder / file.relative_to(staging))


def _files(folder: Path) -> Iterator[Path]:
    """All files of a run but hidden ones; a stage's folder may be a link to another disk."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


def _move(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.stat().st_dev == target.parent.stat().st_dev:
        file.replace(target)
        return
    with whole_file(target) as copy:
        shutil.copyfile(file, copy)
    file.unlink()


@dataclass(eq=False)
class Claim:
    """The right to write some of a run's files: no other living process has one that shares a file with it.

    The system frees it when the process ends, however that happens. `holder.json` beside the staging folder says whose it is.
    """

    folder: Path
    job: str
    lock: FileLock

    @classmethod
    def wait_for(cls, folder: Path, job: str, outputs: Iterable[Path], mode: str) -> tuple["Claim", bool]:
        """The claim, and whether another job had to be waited for: whoever waits is told for whom, and what to end."""
        names, told = sorted({path.relative_to(folder).as_posix() for path in outputs}), -SECONDS_BETWEEN_LINES
        waited = False
        while True:
            holder = cls._other_holder(folder, job, names, mode)
            if holder is None:
                return _HELD[folder, job], waited
            waited = True
            if time.monotonic() - told >= SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                print(f"{job}: waiting for {_who(holder)}", flush=True)
            time.sleep(SECONDS_BETWEEN_TRIES)

    @classmethod
    def _other_holder(cls, folder: Path, job: str, names: list[str], mode: str) -> dict[str, Any] | None:
        """Take the claim, or the record of a living job that stands in its way. This process's own are given up for it."""
        with _guard(folder):
            for record in _records(folder):
                if record["job"] != job and not _overlap(record["outputs"], names):
                    continue
                if (folder, record["job"]) in _HELD:
                    _HELD[folder, record["job"]]._free()
                elif _is_held(folder, record["job"]):
                    return record
            lock = _lock(folder, job)
            lock.acquire(blocking=False)
            who = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(" ", "seconds")}
            write_json(_place(folder, job) / HOLDER, {"job": job, "mode": mode, **who, "outputs": names})
            _HELD[folder, job] = cls(folder, job, lock)
        return None

    @property
    def is_mine(self) -> bool:
        """Whether this claim still holds: it was neither freed nor taken over by a later one of this process."""
        return _HELD.get((self.folder, self.job)) is self

    def free(self) -> None:
        """Let others write; the staging folder stays for the next attempt."""
        if self.is_mine:
            with _guard(self.folder):
                self._free()

    def _free(self) -> None:
        del _HELD[self.folder, self.job]
        (_place(self.folder, self.job) / HOLDER).unlink(missing_ok=True)
        self.lock.release(force=True)

    def end(self) -> None:
        """The job is done: its staging folder goes, and the folder of all of them with the last one."""
        with _guard(self.folder):
            shutil.rmtree(staging_folder(self.folder, self.job), ignore_errors=True)
            self._free()
            shutil.rmtree(_place(self.folder, self.job), ignore_errors=True)
            with suppress(OSError):
                (self.folder / PARTIAL).rmdir()


_HELD: dict[tuple[Path, str], Claim] = {}  # this process's claims


def _place(folder: Path, job: str) -> Path:
    return folder / PARTIAL / job


def _lock(folder: Path, job: str) -> FileLock:
    _place(folder, job).mkdir(parents=True, exist_ok=True)
    return FileLock(_place(folder, job) / "lock", thread_local=False)


@contextmanager
def _guard(folder: Path) -> Iterator[None]:
    """Held for an instant by whoever reads or changes claims."""
    (folder / "manifests").mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "manifests" / ".guard.lock", thread_local=False):
        yield


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / PARTIAL).glob(f"*/{HOLDER}"))]


def _is_held(folder: Path, job: str) -> bool:
    """Whether a living process holds the job: a dead one's record is of no account."""
    lock = _lock(folder, job)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    lock.release()
    return False


def _overlap(ours: list[str], theirs: list[str]) -> bool:
    """Whether two jobs write the same file, or one of them a folder that holds a file of the other's."""
    return any(a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/") for a in ours for b in theirs)


def _who(record: dict[str, Any]) -> str:
    remedy = {
        "interactive": "run that notebook to its last cell, or shut its kernel down",
        "runner": f"it goes on when that has ended; to end it now: kill {record['pid']}",
    }
    return (
        f"{record['job']}, which writes the same files: process {record['pid']} on {record['host']}, since "
        f"{record['since']} ({record['mode']}): {remedy[record['mode']]}"
    )
