"""What a run hands on: the generated speeches in the paper's format with a card, and representative ones (notebook 09).

    scores = with_composite(pd.read_parquet(this_run.folder / "08_statistics/scores.parquet"), "run")
    write_release(this_run.folder, scores, names)

`release/generated.jsonl` has the training data's keys and, as section 3.3 names them, Model, Type, Generated Speech and
Evaluation Scores; keys in small letters are ours. `representative.jsonl` has the same keys and `role`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.cells import SET, generated
from parliabench_utils.results.difficulty import speech_difficulty
from parliabench_utils.run.artefacts import markdown_table, markdown_text, read_jsonl, write_jsonl, write_text
from parliabench_utils.run.provenance import file_hash

PAPER_KEYS = ("Party", "Topic", "Political Orientation", "Section", "House", "Speech", "Prompts")
ROLES = ("best", "median", "worst")
RULE = (
    "Of each model and type the best, the median and the worst speech by composite, which is the plain mean of the metrics that "
    "every party has, each normalised to [0, 1] with 1 the good end. Only speeches that the tables compare can be chosen. Equal "
    "composites are put in order of prompt and variant; of an even number the lower of the two middle ones is the median."
)
AI_GENERATED = (
    "Every `Generated Speech` was written by a language model. No member said it, whatever party it is written for; do not pass it "
    "off as a real speech. `Speech` is the speech that the corpus has in its place."
)
_CARD = """---
license: cc-by-4.0
language: en
task_categories: [text-generation]
tags: [ai-generated, synthetic, parliament]
configs:
- config_name: generated
  data_files: generated.jsonl
- config_name: representative
  data_files: representative.jsonl
---

# Generated speeches of the ParliaBench run {run}

> **AI-generated.** {mark}

## Before you use the numbers
{warnings}

## Speeches
{counts}
`compared` says which of them the tables count.

## Models
{models}
## Evaluation Scores
{metrics}
A score is null where it is undefined or where the judge gave none. Self-BLEU was taken among the compared speeches only.

## Representative speeches
{rule}

## Files
{files}
Parliamentary text: ParlaMint (CC BY 4.0, CLARIN), contains Parliamentary information licensed under the Open Parliament Licence
v3.0; or, in the demo, the embedded invented debates.
"""


def with_composite(scores: pd.DataFrame, how: str) -> pd.DataFrame:
    """`scores` with `composite` in [0, 1]: the metrics that every party has, over the compared rows; NaN for the others."""
    return scores.assign(composite=(1.0 - speech_difficulty(scores[scores["compared"]], how)).round(6))


def representative(scores: pd.DataFrame) -> pd.DataFrame:
    """Best, median and worst generated speech of each model and type by `RULE`: the rows of `scores` with `role`."""
    known = generated(scores).dropna(subset=["composite"])
    ordered = known.sort_values(["composite", "prompt_id", "variant"], kind="stable")
    parts = []
    for _, part in ordered.groupby(SET, sort=False):
        places = {"best": len(part) - 1, "median": (len(part) - 1) // 2, "worst": 0}
        parts.append(part.iloc[[places[role] for role in ROLES]].assign(role=ROLES))
    if not parts:
        return known.assign(role="")
    order = scores[SET].drop_duplicates().reset_index(drop=True).reset_index(names="_set")
    chosen = pd.concat(parts).merge(order, on=SET, how="left")
    return chosen.sort_values("_set", kind="stable").drop(columns="_set").reset_index(drop=True)


def write_release(
    folder: Path, scores: pd.DataFrame, names: Mapping[str, str], models: pd.DataFrame, warnings: Sequence[str]
) -> Path:
    """Write `release/`: generated.jsonl, representative.jsonl and the card README.md; returns the folder.

    `scores` has `composite`; `models` is one row a model for the card. Raises ValueError where a prompt's speech is not in 02's
    test set.
    """
    target, originals = folder / "release", _originals(folder)
    spoken = generated(scores).dropna(subset=["generated_speech"])
    write_jsonl(target / "generated.jsonl", _rows(spoken, names, originals))
    chosen = representative(scores)
    rows = _rows(chosen, names, originals)
    write_jsonl(
        target / "representative.jsonl", ({"role": r} | row for r, row in zip(chosen["role"], rows, strict=True))
    )
    write_text(target / "README.md", _card(folder, spoken, names, models, warnings))
    return target


def _originals(folder: Path) -> dict[str, dict[str, Any]]:
    """By prompt: the test set's speech that was given in its place, as the paper's keys and `speech_id`."""
    speeches = {row["speech_id"]: row for row in read_jsonl(folder / "02_dataset/test.jsonl")}
    prompts = {row["prompt_id"]: row["speech_id"] for row in read_jsonl(folder / "02_dataset/prompts.jsonl")}
    stray = sorted(set(prompts.values()) - set(speeches))
    if stray:
        raise ValueError(f"02_dataset/prompts.jsonl names speeches that test.jsonl lacks: {stray[:3]}; run 02 again")
    keys = (*PAPER_KEYS, "speech_id")
    return {prompt: {key: speeches[speech][key] for key in keys} for prompt, speech in prompts.items()}


def _rows(scores: pd.DataFrame, names: Mapping[str, str], originals: Mapping[str, dict]) -> Iterator[dict[str, Any]]:
    for row in scores.to_dict("records"):
        yield {key: originals[row["prompt_id"]][key] for key in PAPER_KEYS} | {
            "Model": names[row["model"]],
            "Type": row["type"],
            "Generated Speech": row["generated_speech"],
            "Evaluation Scores": {metric.name: row[metric.column] for metric in METRICS},
            "ai_generated": True,
            "prompt_id": row["prompt_id"],
            "variant": row["variant"],
            "speech_id": originals[row["prompt_id"]]["speech_id"],
            "instruction": row["instruction"],
            "compared": row["compared"],
            "composite": row["composite"],
        }


def _card(
    folder: Path, spoken: pd.DataFrame, names: Mapping[str, str], models: pd.DataFrame, warnings: Sequence[str]
) -> str:
    counts = spoken.groupby(SET, sort=False)["compared"].agg(speeches="size", compared="sum").reset_index()
    better = {True: "higher", False: "lower"}
    metrics = [[m.name, m.category, better[m.higher_is_better], m.section] for m in METRICS]
    files = [[n, file_hash(folder / "release" / n)] for n in ("generated.jsonl", "representative.jsonl")]
    return _CARD.format(
        run=folder.name,
        mark=AI_GENERATED,
        warnings="\n".join(f"- {markdown_text(warning)}" for warning in warnings) or "- Nothing that the run noticed.",
        counts=_table(counts.assign(model=counts["model"].map(names))),
        models=_table(models),
        metrics=_table(pd.DataFrame(metrics, columns=["metric", "what", "better", "section of the paper"])),
        rule=RULE,
        files=_table(pd.DataFrame(files, columns=["file", "sha256"])),
    )


def _table(frame: pd.DataFrame) -> str:
    return markdown_table(frame.columns, frame.itertuples(index=False))


def normalisation_of(folder: Path) -> str:
    """How notebook 08 normalised the metrics of this run, from its manifest. Raises FileNotFoundError before 08 has run."""
    path = folder / "manifests/08_statistics.json"
    if not path.exists():
        raise FileNotFoundError(f"{folder.name} has no manifest of 08_statistics: run 08_statistics first")
    return json.loads(path.read_text(encoding="utf-8"))["parameters"]["normalisation"]
