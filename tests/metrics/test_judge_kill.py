"""Killed ten times at random moments, the judge's file is whole and equal to an undisturbed run's (greedy, fp32)."""

import json
import os
import random
import subprocess
import sys

import pytest

from parliabench_utils.run.artefacts import read_jsonl
from tests.conftest import ROOT

KILLS, SPEECHES = 10, 8
# One process loads the model; each attempt is a fork of it that judges, and gets SIGKILL at a moment drawn from the seed.
SCRIPT = f"""
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from parliabench_utils.metrics.judge import judge_prompts, judge_speeches, open_engine
from parliabench_utils.metrics.judge_prompts import read_judge_spec
from parliabench_utils.metrics.judge import ConstrainedEngine
from tests.models.tiny import tiny_loaded
from tests.metrics.test_judge_prompting import SPEECH

torch.set_num_threads(1)
folder, moments = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
spec = read_judge_spec("smollm2-constrained")
texts = ["My Lords, " + "this is late. " * (n + 3) for n in range({SPEECHES})]
speeches = [SPEECH | {{"prompt_id": f"p{{n:02d}}", "generated_speech": text}} for n, text in enumerate(texts)]
engine = open_engine(spec) if sys.argv[3] == "packaged" else ConstrainedEngine(tiny_loaded(), spec)

engine.ask(judge_prompts(spec, speeches[0]), [0] * 6)  # what loads late is loaded once, before the first fork

def attempt(name, seconds=None):
    child = os.fork()
    if not child:
        judge_speeches(speeches, spec, engine, folder / name, run_seed=1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]

began = time.monotonic()
assert attempt("whole.jsonl") == 0
seconds = time.monotonic() - began
whole, killed, partial = (folder / name for name in ("whole.jsonl", "killed.jsonl", "killed.jsonl.partial"))
kept = []
while len(kept) < {KILLS}:
    if attempt("killed.jsonl", moments.uniform(0, 0.6 * seconds)) == signal.SIGKILL:
        kept.append(partial.read_bytes().count(b"\\n") if partial.exists() else 0)
    else:  # it was through before the signal came: once more from the beginning
        assert killed.read_bytes() == whole.read_bytes()
        killed.unlink()
assert attempt("killed.jsonl") == 0
print(json.dumps(kept))
"""


@pytest.mark.parametrize("model", ["tiny", pytest.param("packaged", marks=pytest.mark.slow)])
def test_ten_kills_change_nothing(tmp_path, model):
    seed = os.environ.get("PARLIABENCH_KILL_SEED") or str(random.SystemRandom().randrange(10**6))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), seed, model]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"PARLIABENCH_KILL_SEED={seed}\n{result.stderr[-2000:]}"
    kept = json.loads(result.stdout.splitlines()[-1])
    print(f"seed {seed}: rows kept after each kill: {kept}")
    assert len(kept) == KILLS and any(kept)
    assert len(read_jsonl(tmp_path / "killed.jsonl")) == SPEECHES * 6
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not (tmp_path / "killed.jsonl.partial").exists()
