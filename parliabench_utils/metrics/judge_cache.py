"""Replies on disk by prompt, judge, parameters and seed, so that nothing is asked twice, in whatever run.

Used by notebook 07 where its parameter `cache` is true. Each process appends to a file of its own, so that there is nothing to lock,
and reads everybody's. What is kept is the raw reply with a hash: it is read anew each time, a line that is not what its hash says is
counted in `damaged` and asked again, and a line that a kill cut short is passed over.

    cache = JudgementCache(engine)
    cache.put(prompt, seed, "<feedback>Clear.</feedback><score>8</score>", "stop")
    cache.get(prompt, seed)     # ("<feedback>Clear.</feedback><score>8</score>", "stop")
"""

import hashlib
import json
import os
import uuid
import warnings
from pathlib import Path

from parliabench_utils.models.judge_prompting import JudgePrompt
from parliabench_utils.run.project import cache_folder

LAYOUT = 2  # raise it when a line is written otherwise, or an engine answers otherwise under the same signature


class JudgementCache:
    """All replies of one engine: its signature, which names weights and parameters, and its libraries' versions."""

    def __init__(self, engine):
        name = hashlib.sha256(f"{LAYOUT}\n{engine.signature}\n{engine.versions}".encode()).hexdigest()[:16]
        self.folder = cache_folder("judgements") / name
        self._own = self.folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self._replies: dict[str, tuple[str, str]] = {}
        self.used = self.damaged = 0
        for file in sorted(self.folder.glob("*.jsonl")):
            self._read(file)
        if self.damaged:
            warnings.warn(f"{self.damaged} cached replies are damaged and are asked for again", stacklevel=2)

    def get(self, prompt: JudgePrompt, seed: int) -> tuple[str, str] | None:
        """The raw reply to this prompt with this seed and why it ended, or None where it has not been asked."""
        return self._replies.get(_key(prompt, seed))

    def put(self, prompt: JudgePrompt, seed: int, raw: str, finish: str = "") -> None:
        """Keep a reply; the folder is made again where somebody deleted it."""
        key = _key(prompt, seed)
        self._replies[key] = raw, finish
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._own.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, raw, finish, _digest(key, raw, finish)]) + "\n")

    def _read(self, file: Path) -> None:
        """The whole lines of a file, each held against its hash."""
        *lines, _ = file.read_text(encoding="utf-8", errors="replace").split(
            "\n"
        )  # the last is empty, or cut by a kill
        for line in lines:
            try:
                key, raw, finish, digest = json.loads(line)
                good = digest == _digest(key, raw, finish)
            except (ValueError, TypeError, RecursionError):
                good = False
            if good:
                self._replies[key] = raw, finish
            else:
                self.damaged += 1


def _key(prompt: JudgePrompt, seed: int) -> str:
    return f"{prompt.sha256}-{seed}"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
