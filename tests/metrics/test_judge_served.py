"""A real server on the loopback behind the judge's HTTP back-end: `transformers serve` with the packaged model."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from parliabench_utils.metrics.judge import ServerEngine, judge_speeches
from parliabench_utils.metrics.judge_prompts import read_judge_spec
from parliabench_utils.models.specs import packaged_smollm2, read_model_spec
from tests.metrics.test_judge_prompting import SPEECH

pytestmark = pytest.mark.slow
FREE = read_judge_spec("smollm2-constrained").model_copy(update={"ending": "free", "max_new_tokens": 8, "batch_size": 2})


@contextmanager
def serving(*command: str, hub: Path):
    """The address of a server started as `command --port PORT`, once it answers; `hub` is its folder of models."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"},
    )
    try:
        url, deadline = f"http://127.0.0.1:{port}/v1", time.monotonic() + 240
        while not answers(url):
            assert process.poll() is None, "the server ended before it answered"
            assert time.monotonic() < deadline, "the server did not answer in four minutes"
            time.sleep(0.5)
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url):
    try:
        return httpx.get(f"{url}/models", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def judged(url, name, path):
    model = read_model_spec("smollm2-135m").model_copy(update={"id": name})
    spec = FREE.model_copy(update={"engine": "server", "model": model})
    return judge_speeches([SPEECH], spec, ServerEngine(spec, url), path, run_seed=1, max_attempts=1)


@pytest.mark.skipif(not all(map(find_spec, ("fastapi", "uvicorn", "openai"))), reason="pip install -r benchmarks/requirements.txt")
def test_transformers_serve_answers(tmp_path):
    folder = str(packaged_smollm2())
    start = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", start, "serve", folder, "--device", "cpu", "--dtype", "float32"]
    with serving(*command, hub=tmp_path) as url:
        rows = judged(url, folder, tmp_path / "rows.jsonl")
    assert len(rows) == 6 and all(row["raw"].strip() for row in rows)
    assert "no-answer" not in {row["parse_status"] for row in rows}
    assert {row["versions"] for row in rows} == {"server uvicorn"}
