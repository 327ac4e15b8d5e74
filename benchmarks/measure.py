"""Time and memory of two ways to do the same thing, in one run, as ratios."""

import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    """The processor, its cores and Python's version, in one line for a benchmark's heading."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def versions(*packages: str) -> str:
    """`name version` of each package, joined by commas."""
    return ", ".join(f"{name} {version(name)}" for name in packages)


def alternate(ways: dict[str, Callable[[], object]], repeats: int = 3, warm_up: bool = True) -> dict[str, float]:
    """Median seconds of each way; the ways take turns, so that a slow moment of the machine meets all of them."""
    if warm_up:
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_memory_mib() -> float:
    """Peak resident memory of this process so far, MiB (kibibytes on Linux, bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def memory_added(way: Callable[[], object]) -> float:
    """MiB that `way` needs at its peak beyond what the process holds before it (Linux, which can set the peak back)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before = _status("VmRSS")
    way()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def in_own_process(module: str, *arguments: str) -> str:
    """Standard output of `python -m MODULE ARGUMENTS`: peak memory is a process's, so each way that is weighed needs its own."""
    return subprocess.run([sys.executable, "-m", module, *arguments], check=True, capture_output=True, text=True).stdout


def markdown_table(rows: list[dict[str, object]]) -> str:
    """The rows as a Markdown table; floats with three significant digits."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    shown = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in shown])
