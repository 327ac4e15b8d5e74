"""What is asked of a judge to see how far it can be believed: the same again, another order, a reversed rubric, controls.

Second half of notebook 07; the paper measures none of this. `judge_measures` turns the answers into numbers.

    groups = control_questions(human, human, spec, points=10, seed=42) + repeat_questions(sample, spec, points=10, rounds=3, seed=42)
    asked = ask_all(groups, engine, folder / "trust.jsonl", run_seed=42)
"""

import random
import re
from dataclasses import replace

import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.metrics.judge import Question, speech_question
from parliabench_utils.metrics.judge_prompts import DIMENSIONS, JudgeSpec, judge_prompts
from parliabench_utils.run.artefacts import Row
from parliabench_utils.run.record import row_seed

FILLER = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua"
# A control and the dimensions in which a sound judge must put it below the human speech that it was made from.
CONTROLS = {
    "sentences shuffled": ("J_Coh", "J_Auth", "J_Qual"),
    "party swapped": ("J_PolApp",),
    "another topic's speech": ("J_Rel",),
    "lorem ipsum": DIMENSIONS,
}
AGAIN, SHUFFLED, REVERSED, SECOND = "asked again", "dimensions shuffled", "rubric reversed", "second judge"


def judgements_frame(rows_by_model: dict[tuple[str, str], list[Row]]) -> pd.DataFrame:
    """All judgements with columns `model` and `type` in front; scores are float64, NaN where there is none."""
    frames = [pd.DataFrame(rows).assign(model=m, type=t) for (m, t), rows in rows_by_model.items() if rows]
    if not frames:
        return pd.DataFrame(columns=["model", "type", "prompt_id", "variant", "dimension", "score", "parse_status"])
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(score=frame["score"].astype("float64"))


def checks_frame(rows: list[Row]) -> pd.DataFrame:
    """Rows of `trust.jsonl` or `second_judge.jsonl` as a frame: `check, model, type, prompt_id, variant, dimension, score`."""
    columns = ["check", "model", "type", "prompt_id", "variant", "dimension", "score"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"check": "str", "dimension": "str", "score": "float64"})


def failure_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a model, type and dimension: `n_judged, n_failed, failure_rate, reasons, mean_attempts`."""
    groups = frame.assign(failed=frame["score"].isna()).groupby(["model", "type", "dimension"], sort=False)
    table = groups.agg(n_judged=("failed", "size"), n_failed=("failed", "sum"), mean_attempts=("attempts", "mean"))
    table["failure_rate"] = table["n_failed"] / table["n_judged"]
    failed = frame[frame["score"].isna()].groupby(["model", "type", "dimension"])["parse_status"]
    reasons = {key: "; ".join(f"{s} {n}" for s, n in group.value_counts().sort_index().items()) for key, group in failed}
    table["reasons"] = [reasons.get(key, "") for key in table.index]
    columns = ["n_judged", "n_failed", "failure_rate", "reasons", "mean_attempts"]
    return table[columns].reset_index()


def sample_speeches(speeches: dict[tuple[str, str], list[Row]], n: int, seed: int = 42) -> list[Row]:
    """At least `n` speeches: prompts drawn by `seed` from those that all sets (model, type) answered, of each all sets.

    A larger `n` adds to the prompts of a smaller one. Of several variants the first counts; a set without any speech is left
    out.
    """
    by_prompt = [{s["prompt_id"]: s for s in reversed(spoken)} for spoken in speeches.values() if spoken]
    shared = sorted(set.intersection(*map(set, by_prompt))) if by_prompt else []
    random.Random(row_seed(seed, "trust sample")).shuffle(shared)
    n_prompts = -(-n // max(len(by_prompt), 1))
    return [own[prompt] for prompt in shared[:n_prompts] for own in by_prompt]


def controls_of(speech: Row, others: list[Row], seed: int) -> dict[str, Row]:
    """A human speech's controls by name: rows with another text or another context. One that cannot be made is left out."""
    source = random.Random(row_seed(seed, "control", speech["prompt_id"]))
    text = speech["generated_speech"]
    filler = FILLER.split()
    made = {"lorem ipsum": {"generated_speech": " ".join(filler[i % len(filler)] for i in range(len(text.split())))}}
    sentences = re.split(r"(?<=[.?!])\s+", text)
    if len(set(sentences)) > 2:
        mixed = sentences
        while mixed == sentences:
            mixed = source.sample(sentences, len(sentences))
        made["sentences shuffled"] = {"generated_speech": " ".join(mixed)}
    foreign = [s for s in others if s["Topic"] != speech["Topic"]]
    if foreign:
        made["another topic's speech"] = {"generated_speech": source.choice(foreign)["generated_speech"]}
    rivals = [s for s in others if s["Party"] != speech["Party"]]
    if rivals:
        rival = max(rivals, key=lambda s: (_distance(s, speech), source.random()))
        made["party swapped"] = {key: rival[key] for key in ("Party", "Political Orientation")}
    return {name: speech | made[name] for name in CONTROLS if name in made}


def _distance(one: Row, other: Row) -> int:
    """Steps between two orientations; unknown ones are near to all."""
    steps = [ORIENTATION_SCALE.get(row["Political Orientation"]) for row in (one, other)]
    return 0 if None in steps else abs(steps[0] - steps[1])


def control_questions(speeches: list[Row], others: list[Row], spec: JudgeSpec, points: int, seed: int) -> list[list[Question]]:
    """The controls of each human speech, asked in the dimensions that they must lower."""
    return [
        [_question(control, q, name) for q in judge_prompts(spec, control, points) if q.dimension in CONTROLS[name]]
        for speech in speeches
        for name, control in controls_of(speech, others, seed).items()
    ]


def repeat_questions(speeches: list[Row], spec: JudgeSpec, points: int, rounds: int, seed: int) -> list[list[Question]]:
    """Each speech again with new seeds (the first of `rounds` is its own judgement), with its dimensions shuffled, and with the
    rubric reversed, so that 1 is best.
    """
    groups = []
    for speech in speeches:
        prompts = judge_prompts(spec, speech, points)
        for number in range(2, rounds + 1):
            again = [_question(speech, q, f"{AGAIN} {number}") for q in prompts]
            groups.append([replace(q, seed_ids=(*q.seed_ids, number)) for q in again])
        source = random.Random(row_seed(seed, "order", speech["prompt_id"], speech["model"], speech["type"]))
        mixed = [_question(speech, q, SHUFFLED) for q in source.sample(prompts, len(prompts))]
        groups.append([replace(q, use_cache=False) for q in mixed])
        groups.append([_question(speech, q, REVERSED) for q in judge_prompts(spec, speech, points, reverse=True)])
    return groups


def second_questions(speeches: list[Row], spec: JudgeSpec, points: int) -> list[list[Question]]:
    """The same speeches for another judge, or for the same one on another scale."""
    return [[_question(speech, q, SECOND) for q in judge_prompts(spec, speech, points)] for speech in speeches]


def _question(speech: Row, prompt, check: str) -> Question:
    return speech_question(speech, prompt, check=check, model=speech["model"], type=speech["type"])
