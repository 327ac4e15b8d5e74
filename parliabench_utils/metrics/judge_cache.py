"""Replies on disk by prompt, judge, parameters and seed, so that nothing is asked twice, in whatever run.

Used by notebook 07 where its parameter `cache` is true. Each process appends to a file of its own, so that there is nothing to lock,
and reads everybody's; a line that a kill cut short is passed over. What is kept is the raw reply: it is read anew each time.

    cache = JudgementCache(engine)
    cache.put(prompt, seed, "<feedback>Clear.</feedback><score>8</score>")
    cache.get(prompt, seed)
"""

import hashlib
import json
import os
import uuid
from pathlib import Path

from parliabench_utils.models.judge_prompting import JudgePrompt
from parliabench_utils.run.project import cache_folder

LAYOUT = (
    1  # raise it when an engine begins to answer otherwise with the same signature: older replies are then left alone
)


class JudgementCache:
    """All replies of one engine: its signature, which names weights and parameters, and its libraries' versions."""

    def __init__(self, engine):
        name = hashlib.sha256(f"{LAYOUT}\n{engine.signature}\n{engine.versions}".encode()).hexdigest()[:16]
        self.folder = cache_folder("judgements") / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own = self.folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self._raw = dict(pair for file in sorted(self.folder.glob("*.jsonl")) for pair in _pairs(file))
        self.used = 0

    def get(self, prompt: JudgePrompt, seed: int) -> str | None:
        """The raw reply to this prompt with this seed, or None where it has not been asked."""
        return self._raw.get(_key(prompt, seed))

    def put(self, prompt: JudgePrompt, seed: int, raw: str) -> None:
        """Keep a reply."""
        key = _key(prompt, seed)
        self._raw[key] = raw
        with self._own.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, raw]) + "\n")


def _key(prompt: JudgePrompt, seed: int) -> str:
    return f"{prompt.sha256}-{seed}"


def _pairs(file: Path) -> list[list[str]]:
    """(key, raw) of the whole lines of a file."""
    pairs = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            pair = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(pair, list) and len(pair) == 2:
            pairs.append(pair)
    return pairs
