"""Progress of long loops: at most one line in ten seconds, so that neither a log nor a notebook floods.

>>> list(progress([1, 2], "Counting"))
[1, 2]
"""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

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
