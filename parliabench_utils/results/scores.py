"""All scores of a run in one frame: one row a speech, joined by id; notebook 08 writes it as `08_statistics/scores.parquet`.

scores = join_scores(this_run.folder, present_sets(this_run.folder, models, types), judge="smollm2-constrained")
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from parliabench_utils.models.selection import generated_rows
from parliabench_utils.results.cells import HUMAN, JUDGE_COLUMNS
from parliabench_utils.run.artefacts import read_jsonl

ID = ["prompt_id", "variant"]
PROMPT_COLUMNS = [
    *("prompt_id", "context_id", "kind", "instruction", "Party", "Topic", "Political Orientation", "Section", "House"),
    *("weight", "speaker_id", "sitting_id", "date"),
]
SPEECH_COLUMNS = [*ID, "model", "type", "generated_speech", "n_words", "attempts", "finish_reason", "trimmed"]


def join_scores(folder: Path, sets: Iterable[tuple[str, str]], judge: str) -> pd.DataFrame:
    """Prompts, speeches (04), text metrics (05), political alignment (06) and ratings (07) of all `sets` (model, type).

    One row a prompt, variant, model and type; a speech that no attempt produced has null text and scores. Raises
    FileNotFoundError that names the file and its stage, and ValueError when a score belongs to no speech.
    """
    prompts = pd.DataFrame(read_jsonl(_existing(folder / "02_dataset/prompts.jsonl")))[PROMPT_COLUMNS]
    parts = [_one_set(folder, model, kind, judge) for model, kind in sets]
    speeches = pd.concat(parts, ignore_index=True)
    unknown = set(speeches["prompt_id"]) - set(prompts["prompt_id"])
    if unknown:
        raise ValueError(
            f"04_generate has speeches to prompts that 02_dataset lacks: {sorted(unknown)[:3]}; run 04 again"
        )
    return speeches.merge(prompts, on="prompt_id", how="left", validate="many_to_one")


def all_sets(models: Iterable[str], types: Iterable[str]) -> list[tuple[str, str]]:
    """(model, type) of every set of speeches, human ones last."""
    kinds = list(types)
    return [(model, kind) for model in models for kind in kinds] + [(HUMAN, HUMAN)]


def present_sets(folder: Path, models: Iterable[str], types: Iterable[str]) -> list[tuple[str, str]]:
    """`all_sets` without the human one where the run has no human speeches (imported published ones)."""
    sets = all_sets(models, types)
    return sets if (folder / "04_generate" / HUMAN).is_dir() else sets[:-1]


def training_speeches(folder: Path) -> list[str]:
    """The texts of 02's training set."""
    with _existing(folder / "02_dataset/train.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["Speech"] for line in lines]


def _one_set(folder: Path, model: str, kind: str, judge: str) -> pd.DataFrame:
    speeches = read_speeches(folder, model, kind)
    text = pd.read_parquet(_existing(folder / "05_text_metrics" / model / f"{kind}.parquet"))
    politics = pd.read_parquet(_existing(folder / "06_political_alignment" / model / f"{kind}.parquet"))
    ratings = read_ratings(_existing(folder / "07_judge" / judge / model / f"{kind}.jsonl"))
    for stage, frame in (("05_text_metrics", text), ("06_political_alignment", politics), ("07_judge", ratings)):
        _require_speeches(frame, speeches, f"{stage}/{model}/{kind}")
        speeches = speeches.merge(frame, on=ID, how="left", validate="one_to_one")
    return speeches


def read_speeches(folder: Path, model: str, kind: str) -> pd.DataFrame:
    """All shards of one model and type, as SPEECH_COLUMNS; errors as in `selection.generated_rows`."""
    return pd.DataFrame(generated_rows(folder, model, kind), columns=SPEECH_COLUMNS)


def read_ratings(path: Path) -> pd.DataFrame:
    """A judge's file as one row a speech: prompt_id, variant, one column a dimension, NaN where it gave no score."""
    rows = pd.DataFrame(read_jsonl(path), columns=[*ID, "dimension", "score"])
    rows["score"] = rows["score"].astype(float)
    wide = rows.pivot(index=ID, columns="dimension", values="score").reindex(columns=JUDGE_COLUMNS)
    return wide.rename_axis(columns=None).reset_index()


def read_judgements(folder: Path, judge: str, sets: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """The judge's rows of all sets with `model` and `type`: dimension, score, parse_status, feedback."""
    parts = []
    for model, kind in sets:
        rows = pd.DataFrame(read_jsonl(_existing(folder / "07_judge" / judge / model / f"{kind}.jsonl")))
        parts.append(rows.assign(model=model, type=kind))
    return pd.concat(parts, ignore_index=True)


def kept_prompts(folder: Path) -> list[str]:
    """Prompts that every model and type answered (04's summary)."""
    return json.loads(_existing(folder / "04_generate/summary/kept_prompts.json").read_text(encoding="utf-8"))["kept"]


def _existing(path: Path) -> Path:
    if not path.exists():
        stage = next(part for part in path.parts[::-1] if part[:2].isdigit())
        raise FileNotFoundError(f"{stage} has not written {path.name} ({path}): run {stage} first")
    return path


def _require_speeches(frame: pd.DataFrame, speeches: pd.DataFrame, where: str) -> None:
    known = set(map(tuple, speeches[ID].to_numpy()))
    stray = set(map(tuple, frame[ID].to_numpy())) - known
    if stray:
        raise ValueError(
            f"{where} has scores of speeches that 04_generate lacks, such as {sorted(stray)[0]}: run it again"
        )
