"""Seeds: one for the run, and one for each row that depends on nothing but the run's seed and the row's ids.

Used by every notebook (through `start`) and by generation and judging.

>>> row_seed(42, "prompt-1", 0) == row_seed(42, "prompt-1", 0) != row_seed(42, "prompt-1", 1)
True
"""

import hashlib
import os
import random
import sys


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
