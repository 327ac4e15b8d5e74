"""Judgements a second with the packaged model: asked in batches against one at a time; and the six dimensions of a speech together
against apart, through a server with a prefix cache.

    pip install -r benchmarks/requirements.txt      # for `transformers serve`, the last part; without it the part is left out
    python -m benchmarks.judge
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec

import httpx

from benchmarks.measure import alternate, machine, markdown_table, versions
from parliabench_utils.metrics.judge import ConstrainedEngine, Reply, ServerEngine, TextEngine
from parliabench_utils.metrics.judge_prompts import JudgePrompt, judge_prompts, read_judge_spec
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.specs import packaged_smollm2, read_model_spec

SENTENCES = (
    "I thank the Minister for her statement and for advance sight of it. Passengers in my constituency have waited nine years for "
    "the second platform at Penryn, and they have been told three times that it was a matter of months. The line carries twice "
    "as many people as it did when the timetable was last redrawn. Can she say when the funding will be released, and will she "
    "meet me and the borough council? "
)
CONTEXT = {"House": "House of Commons", "instruction": "Ask the Minister about the railway.", "Topic": "TRANSPORT"}
SPEC = read_judge_spec("smollm2-constrained")
FREE = SPEC.model_copy(update={"ending": "free", "max_new_tokens": 16})


def speech(number: int) -> dict:
    """A speech of about 230 words, the paper's mean, unlike the others from its first words on."""
    party = {"Party": "Labour", "Political Orientation": "Centre-left"}
    return CONTEXT | party | {"generated_speech": f"Question {number}. " + SENTENCES * 3}


def in_batches(engine, prompts: list[JudgePrompt], size: int) -> list[Reply]:
    """Replies to all prompts, `size` at a time, in their order."""
    parts = [prompts[i : i + size] for i in range(0, len(prompts), size)]
    return [reply for part in parts for reply in engine.ask(part, [0] * len(part))]


def in_process() -> list[dict]:
    """Free text of 16 tokens, and the constrained ending with the shared prefix computed once."""
    loaded = load_model("smollm2-135m", precision="fp32")
    constrained, free = ConstrainedEngine(loaded, SPEC), TextEngine(loaded, FREE)
    prompts = [q for number in range(2) for q in judge_prompts(SPEC, speech(number))]
    rows = []
    for name, engine, size in (("constrained ending", constrained, 6), ("free text, 16 tokens", free, 12)):
        together, alone = in_batches(engine, prompts, size), in_batches(engine, prompts, 1)
        gap = max(abs((a.judgement.score or 0) - (b.judgement.score or 0)) for a, b in zip(together, alone, strict=True))
        same = sum(a.raw == b.raw for a, b in zip(together, alone, strict=True))
        ways = {
            "together": lambda engine=engine, size=size: in_batches(engine, prompts, size),
            "alone": lambda engine=engine: in_batches(engine, prompts, 1),
        }
        equal = f"{same} of {len(prompts)} texts equal" if engine is free else f"scores within {gap:.5f}"
        rows.append(_row(name, ways, len(prompts), equal))
    return rows


def through_a_server() -> list[dict]:
    """`transformers serve` keeps blocks of 32 tokens by their content, here about two prompts' worth, as a big run's cache holds a
    small part of its prompts: a speech's six dimensions in a row find the speech already read, far apart they do not.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = str(packaged_smollm2())
    start = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", folder]
    start += ["--device", "cpu", "--dtype", "float32", "--attn-implementation", "sdpa", "--continuous-batching"]
    start += ["--cb-block-size", "32", "--cb-num-blocks", "40", "--cb-max-batch-tokens", "512"]
    start += ["--host", "127.0.0.1", "--port", str(port)]
    hub = tempfile.TemporaryDirectory()  # its list of models is an error where the hub's folder is missing
    environment = os.environ | {"HF_HUB_CACHE": hub.name, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        _wait_for(f"http://127.0.0.1:{port}/v1/models", process)
        model = read_model_spec("smollm2-135m").model_copy(update={"id": folder})
        spec = FREE.model_copy(update={"engine": "server", "model": model, "max_new_tokens": 2})
        engine = ServerEngine(spec, f"http://127.0.0.1:{port}/v1")
        by_speech = [judge_prompts(SPEC, speech(number)) for number in range(4)]
        together = [q for prompts in by_speech for q in prompts]
        apart = [q for prompts in zip(*by_speech, strict=True) for q in prompts]
        answers = [{q.sha256: r.raw for q, r in zip(o, in_batches(engine, o, 1), strict=True)} for o in (together, apart)]
        same = sum(answers[0][key] == answers[1][key] for key in answers[0])
        ways = {"together": lambda: in_batches(engine, together, 1), "alone": lambda: in_batches(engine, apart, 1)}
        row = _row("server: a speech's six in a row / far apart", ways, len(together), f"{same} of {len(together)} texts equal")
    finally:
        process.kill()
        process.wait()
        hub.cleanup()
    return [row]


def _wait_for(url: str, process: subprocess.Popen) -> None:
    for _ in range(240):
        if process.poll() is not None:
            raise ChildProcessError(f"transformers serve ended with status {process.returncode}")
        try:
            httpx.get(url, timeout=5).raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise TimeoutError(f"{url} does not answer")


def _row(name: str, ways: dict[str, Callable[[], object]], n: int, equal: str) -> dict:
    seconds = alternate(ways, repeats=2, warm_up=False)  # both ways have run once already
    together, alone = (n / seconds[way] for way in ("together", "alone"))
    return {
        "what": name,
        "together, a second": together,
        "one at a time": alone,
        "ratio": together / alone,
        "values": equal,
    }


def main() -> None:
    """Print the table."""
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    print(f"{machine()}; {versions('torch', 'transformers')}\n")
    rows = in_process()
    print(markdown_table(rows), "\n", flush=True)
    if all(map(find_spec, ("fastapi", "uvicorn", "openai"))):
        print(markdown_table(through_a_server()))


if __name__ == "__main__":
    main()
