"""Killed ten times at random moments, the judge's file is whole and equal to an undisturbed run's (greedy, fp32, packaged model)."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from parliabench_utils.run.artefacts import read_jsonl
from tests.conftest import ROOT

KILLS, SPEECHES = 10, 12
JUDGE = f"""
import sys
from pathlib import Path
from parliabench_utils.metrics.judge import judge_speeches, open_engine, read_judge_spec
from tests.metrics.test_judge_prompting import SPEECH
spec = read_judge_spec("smollm2-constrained")
texts = ["My Lords, " + "this is late. " * (n + 5) for n in range({SPEECHES})]
speeches = [SPEECH | {{"prompt_id": f"p{{n:02d}}", "generated_speech": text}} for n, text in enumerate(texts)]
engine = open_engine(spec)
print("ready", flush=True)
judge_speeches(speeches, spec, engine, Path(sys.argv[1]), run_seed=1)
"""


def start(path):
    process = subprocess.Popen([sys.executable, "-c", JUDGE, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path):
    seed = int(os.environ.get("PARLIABENCH_KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"PARLIABENCH_KILL_SEED={seed}")
    moments = random.Random(seed)
    began = time.monotonic()
    whole = start(tmp_path / "whole.jsonl")
    assert whole.wait() == 0
    longest = (time.monotonic() - began) / SPEECHES  # at most this long: about a speech of judging between two kills
    kept = []
    for _ in range(KILLS):
        process = start(tmp_path / "killed.jsonl")
        time.sleep(moments.uniform(0, longest))
        process.send_signal(signal.SIGKILL)
        process.wait()
        partial = tmp_path / "killed.jsonl.partial"
        kept.append(partial.read_bytes().count(b"\n") if partial.exists() else 0)
    print(f"rows kept after each kill: {kept}")
    assert kept == sorted(kept) and kept[-1] < SPEECHES * 6
    assert start(tmp_path / "killed.jsonl").wait() == 0
    assert len(read_jsonl(tmp_path / "killed.jsonl")) == SPEECHES * 6
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not partial.exists()
