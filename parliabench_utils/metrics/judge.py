"""Ask a judge about speeches and keep every answer: prompt, call, parse, retry, one row a dimension (paper section 10).

Used by notebook 07. Rows go to disk as they come, so that a killed run goes on where it stopped; a judgement that fails
has the score null and its reason, and is never averaged.

    spec = read_judge_spec("smollm2-constrained")
    rows = judge_speeches(speeches, spec, open_engine(spec), path, run_seed=42)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from parliabench_utils.metrics.judge_cache import JudgementCache
from parliabench_utils.metrics.judge_engine import Reply, open_engine
from parliabench_utils.metrics.judge_parsing import Judgement, parse_judgement
from parliabench_utils.models.judge_prompting import (
    DIMENSIONS,
    JudgePrompt,
    JudgeSpec,
    judge_prompts,
    read_judge_spec,
)
from parliabench_utils.models.selection import generated_rows
from parliabench_utils.run.artefacts import ResumableJsonl, Row, read_jsonl
from parliabench_utils.run.progress import progress
from parliabench_utils.run.seeds import row_seed

__all__ = [
    "DIMENSIONS",
    "Judgement",
    "JudgementCache",
    "Question",
    "ask_all",
    "judge_prompts",
    "judge_speeches",
    "open_engine",
    "parse_judgement",
    "read_judge_spec",
    "speeches_of",
]
NOT_THE_JUDGES = ("no-answer", "prompt-too-long")  # statuses without a reply of the judge


@dataclass(frozen=True)
class Question:
    """A prompt, the columns that name its row, and what its seed is drawn from besides the run's seed and the attempt."""

    ids: Row
    prompt: JudgePrompt
    seed_ids: tuple
    use_cache: bool = True  # false where the question is whether the judge says the same again


def speeches_of(folder: Path, model: str, kind: str) -> list[Row]:
    """What (model, type) said, with the context fields of its prompt: rows of stage 04 joined to `prompts.jsonl` by id.

    `folder` is the run's; prompts that got no valid speech are left out. Errors as in `selection.generated_rows`.
    """
    prompts = {row["prompt_id"]: row for row in read_jsonl(folder / "02_dataset/prompts.jsonl")}
    spoken = [row for row in generated_rows(folder, model, kind) if row["generated_speech"]]
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
    cache: JudgementCache | None = None,
) -> list[Row]:
    """Judge all six dimensions of each speech into the JSONL file `path`; what is there already is not asked again.

    A reply without a score is asked again with a new seed, at most `max_attempts` times in all. Returns the rows by prompt, variant
    and section 10's order of dimensions: `prompt_id, variant, dimension` and the columns of `ask_all`.
    """
    ordered = sorted(speeches, key=lambda s: (s["prompt_id"], s["variant"]))
    groups = [[speech_question(s, prompt) for prompt in judge_prompts(spec, s, points)] for s in ordered]
    return ask_all(groups, engine, path, run_seed, max_attempts, spec.batch_size, label, cache)


def speech_question(speech: Row, prompt: JudgePrompt, **more) -> Question:
    """The question about one dimension of a speech; `more` are columns in front of its ids."""
    ids = {"prompt_id": speech["prompt_id"], "variant": speech["variant"], "dimension": prompt.dimension}
    return Question(more | ids, prompt, tuple(ids.values()))


def ask_all(
    groups: Sequence[list[Question]],
    engine,
    path: Path,
    run_seed: int,
    max_attempts: int = 1,
    batch_size: int = 32,
    label: str = "Judging",
    cache: JudgementCache | None = None,
) -> list[Row]:
    """Ask groups of questions (each about one speech) into the JSONL file `path`, in their order, resuming what is there.

    Columns after the ids: `score, parse_status, feedback, raw, finish_reason, prompt_sha256, attempts, seed, earlier` (status, raw
    text and seed of failed attempts), `engine, versions`.
    """
    key = tuple(groups[0][0].ids) if groups else ("prompt_id",)
    place = {tuple(q.ids.values()): n for n, q in enumerate(q for group in groups for q in group)}
    with ResumableJsonl(path, key=key) as log:
        if stray := log.done - place.keys():
            raise ValueError(f"{path} holds other judgements than were asked for, such as {min(stray)}: delete it")
        missing = [group for group in groups if any(tuple(q.ids.values()) not in log.done for q in group)]
        size = 1 if engine.whole_speech else max(1, batch_size // len(DIMENSIONS))
        for batch in progress([missing[i : i + size] for i in range(0, len(missing), size)], label):
            questions = [q for group in batch for q in group]
            # a speech cut in half by a kill is computed whole again: its rows depend, in their last digits, on its batch
            if not engine.whole_speech:
                questions = [q for q in questions if tuple(q.ids.values()) not in log.done]
            for row in _answers(questions, engine, run_seed, max_attempts, cache):
                if tuple(row[k] for k in key) not in log.done:
                    log.append(row)
        log.finish(lambda row: place[tuple(row[k] for k in key)])
        return log.rows


def _answers(
    questions: list[Question], engine, run_seed: int, max_attempts: int, cache: JudgementCache | None
) -> Iterator[Row]:
    """One row a question, in their order, after as many attempts as each needs."""
    rows: dict[int, Row] = {}
    waiting = list(range(len(questions)))
    for attempt in range(1, max_attempts + 1):
        seeds = [row_seed(run_seed, *questions[i].seed_ids, attempt) for i in waiting]
        replies = _replies([questions[i] for i in waiting], seeds, engine, cache)
        for i, seed, reply in zip(waiting, seeds, replies, strict=True):
            rows[i] = _row(questions[i], reply, attempt, seed, engine, rows.get(i))
        waiting = [i for i in waiting if rows[i]["score"] is None and rows[i]["parse_status"] != "prompt-too-long"]
        if not waiting:
            break
    return (rows[i] for i in range(len(questions)))


def _replies(questions: list[Question], seeds: list[int], engine, cache: JudgementCache | None) -> list[Reply]:
    """Replies from the cache, and from the engine for the rest; a speech that is one batch comes from one of them as a whole."""
    pairs = list(zip(questions, seeds, strict=True))
    known = [cache.get(q.prompt, seed) if cache and q.use_cache else None for q, seed in pairs]
    if engine.whole_speech and None in known:
        known = [None] * len(pairs)
    asked = [pair for pair, kept in zip(pairs, known, strict=True) if kept is None]
    fresh = iter(engine.ask([q.prompt for q, _ in asked], [seed for _, seed in asked]) if asked else [])
    replies = [next(fresh) if kept is None else Reply(kept[0], engine.read(*kept), kept[1]) for kept in known]
    for (question, seed), kept, reply in zip(pairs, known, replies, strict=True):
        if cache and kept is not None:
            cache.used += 1
        elif cache and question.use_cache and reply.judgement.status not in NOT_THE_JUDGES:
            cache.put(question.prompt, seed, reply.raw, reply.finish)
    return replies


def _row(question: Question, reply: Reply, attempt: int, seed: int, engine, before: Row | None) -> Row:
    failed = [{key: before[key] for key in ("parse_status", "raw", "seed")}] if before else []
    return question.ids | {
        "score": reply.judgement.score,
        "parse_status": reply.judgement.status,
        "feedback": reply.judgement.feedback,
        "raw": reply.raw,
        "finish_reason": reply.finish,
        "prompt_sha256": question.prompt.sha256,
        "attempts": attempt,
        "seed": seed,
        "earlier": (before["earlier"] if before else []) + failed,
        "engine": engine.signature,
        "versions": engine.versions,
    }
