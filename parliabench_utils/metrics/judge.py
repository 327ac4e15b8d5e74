"""Ask a judge about speeches and keep every answer: prompt, call, parse, retry, one row a dimension (paper section 10).

Used by notebook 07. Rows go to disk as they come, so that a killed run goes on where it stopped; a judgement that fails
has the score null and its reason, and is never averaged.

    spec = read_judge_spec("smollm2-constrained")
    rows = judge_speeches(speeches, spec, open_engine(spec), path, run_seed=42)
"""

from collections.abc import Iterator
from pathlib import Path

from parliabench_utils.metrics.judge_engine import Reply, open_engine
from parliabench_utils.metrics.judge_parsing import Judgement, parse_judgement
from parliabench_utils.models.judge_prompting import (
    DIMENSIONS,
    JudgePrompt,
    JudgeSpec,
    judge_prompts,
    read_judge_spec,
)
from parliabench_utils.run.artefacts import ResumableJsonl, Row, read_jsonl
from parliabench_utils.run.progress import progress
from parliabench_utils.run.seeds import row_seed

__all__ = [
    "DIMENSIONS",
    "Judgement",
    "judge_prompts",
    "judge_speeches",
    "open_engine",
    "parse_judgement",
    "read_judge_spec",
    "speeches_of",
]
KEY = ("prompt_id", "variant", "dimension")
Task = tuple[Row, JudgePrompt]


def speeches_of(folder: Path, model: str, kind: str) -> list[Row]:
    """What (model, type) said, with the context fields of its prompt: rows of stage 04 joined to `prompts.jsonl` by id.

    `folder` is the run's; prompts that got no valid speech are left out. KeyError names a prompt that stage 02 does not know.
    """
    prompts = {row["prompt_id"]: row for row in read_jsonl(folder / "02_dataset/prompts.jsonl")}
    files = sorted((folder / "04_generate" / model / kind).glob("shard-*.jsonl"))
    spoken = [row for file in files for row in read_jsonl(file) if row["generated_speech"]]
    return [prompts[row["prompt_id"]] | row for row in spoken]


def judge_speeches(
    speeches: list[Row],
    spec: JudgeSpec,
    engine,
    path: Path,
    run_seed: int,
    points: int = 10,
    max_attempts: int = 3,
    label: str = "Judging",
) -> list[Row]:
    """Judge all six dimensions of each speech into the JSONL file `path`; what is there already is not asked again.

    A reply without a score is asked again with a new seed, at most `max_attempts` times in all. Returns the rows in section
    10's order of dimensions: `prompt_id, variant, dimension, score, parse_status, feedback, raw, prompt_sha256, attempts, seed`.
    """
    with ResumableJsonl(path, key=KEY) as log:
        open_speeches = [s for s in speeches if any((*_ids(s), d) not in log.done for d in DIMENSIONS)]
        size = 1 if engine.whole_speech else max(1, spec.batch_size // len(DIMENSIONS))
        batches = [open_speeches[i : i + size] for i in range(0, len(open_speeches), size)]
        for batch in progress(batches, label):
            tasks = [(s, prompt) for s in batch for prompt in judge_prompts(spec, s, points)]
            missing = [t for t in tasks if (*_ids(t[0]), t[1].dimension) not in log.done]
            # a speech cut in half by a kill is computed whole again: its rows depend, in their last digits, on its batch
            for row in _judge_batch(tasks if engine.whole_speech else missing, engine, run_seed, max_attempts):
                if tuple(row[k] for k in KEY) not in log.done:
                    log.append(row)
        log.finish(lambda row: (row["prompt_id"], row["variant"], DIMENSIONS.index(row["dimension"])))
        return log.rows


def _ids(speech: Row) -> tuple[str, int]:
    return speech["prompt_id"], speech["variant"]


def _judge_batch(tasks: list[Task], engine, run_seed: int, max_attempts: int) -> Iterator[Row]:
    """One row a task, in the tasks' order, after as many attempts as each needs."""
    rows: dict[int, Row] = {}
    waiting = list(range(len(tasks)))
    for attempt in range(1, max_attempts + 1):
        seeds = [row_seed(run_seed, *_ids(tasks[i][0]), tasks[i][1].dimension, attempt) for i in waiting]
        replies = engine.ask([tasks[i][1] for i in waiting], seeds)
        for i, seed, reply in zip(waiting, seeds, replies, strict=True):
            rows[i] = _row(*tasks[i], reply, attempt, seed)
        waiting = [i for i in waiting if rows[i]["score"] is None and rows[i]["parse_status"] != "prompt-too-long"]
        if not waiting:
            break
    return (rows[i] for i in range(len(tasks)))


def _row(speech: Row, prompt: JudgePrompt, reply: Reply, attempt: int, seed: int) -> Row:
    return {
        "prompt_id": speech["prompt_id"],
        "variant": speech["variant"],
        "dimension": prompt.dimension,
        "score": reply.judgement.score,
        "parse_status": reply.judgement.status,
        "feedback": reply.judgement.feedback,
        "raw": reply.raw,
        "prompt_sha256": prompt.sha256,
        "attempts": attempt,
        "seed": seed,
    }
