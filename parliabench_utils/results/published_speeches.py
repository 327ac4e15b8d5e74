"""The authors' generated speeches (JSONL, section 3.3) as a score frame, and as a run on which 08 and 09 work alone.

    python -m parliabench_utils import-published generated.jsonl --run published
    python -m parliabench_utils run 08_statistics --profile paper --run published

A line has the training data's keys (Party, Topic, Political Orientation, Section, House, Prompts) and Model, Type, Generated
Speech and Evaluation Scores, the last an object of metric name and value. Our own `release/generated.jsonl` has the same keys.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.cells import SET
from parliabench_utils.run.artefacts import read_jsonl, write_csv, write_json, write_jsonl, write_parquet, write_text
from parliabench_utils.run.makers import vouch_for_import
from parliabench_utils.run.params import read_profile
from parliabench_utils.run.project import project_root

CONTEXT = ["Party", "Topic", "Political Orientation", "Section", "House"]
REQUIRED = [*CONTEXT, "Model", "Type", "Generated Speech", "Evaluation Scores"]
FAMILIES = {
    "llama": "llama-3.1-8b",
    "gemma": "gemma-2-9b",
    "mistral": "mistral-7b-v0.3",
    "qwen": "qwen2-7b",
    "yi": "yi-6b",
}
TYPES = {"baseline": "baseline", "base": "baseline", "finetuned": "fine-tuned"}
# Other spellings of our metrics' names and columns, in small letters without marks.
SPELLINGS = {
    "perplexity": "PPL", "distn": "Dist-2", "distinctn": "Dist-2", "distinct2": "Dist-2", "bertscore": "BERTScore F1",
    "bertscoref1": "BERTScore F1", "politicalspectrumalignment": "PSA", "partyalignment": "Party Align", "coherence": "J_Coh",
    "conciseness": "J_Conc", "relevance": "J_Rel", "authenticity": "J_Auth", "politicalappropriateness": "J_PolApp",
    "overallquality": "J_Qual",
}  # fmt: skip


def load_published(path: Path) -> pd.DataFrame:
    """One row a speech, the columns of `scores.parquet`: prompt_id, variant, model, type, context, text and metrics.

    The prompt's id is the file's, else made from context and prompts; the k-th speech of a model and type to one prompt is
    matched with the k-th of the others. Missing scores are NaN, the judge's -1 ("no score") too. `attrs["ignored"]` counts
    scores that are none of the fourteen. Raises ValueError with file and line for a missing key, model or type.
    """
    ignored: Counter[str] = Counter()
    rows = [_row(record, f"{path}, line {line}", ignored) for line, record in enumerate(read_jsonl(path), start=1)]
    if not rows:
        raise ValueError(f"{path} has no speeches")
    frame = pd.DataFrame(rows)
    turn = frame.groupby(["prompt_id", *SET, "variant"]).cumcount()
    frame["prompt_id"] += turn.map(lambda k: f".{k}" if k else "")
    frame.attrs["ignored"] = dict(ignored)
    return frame


def _row(record: dict[str, Any], where: str, ignored: Counter) -> dict[str, Any]:
    missing = [key for key in REQUIRED if key not in record]
    if missing:
        raise ValueError(f"{where}: no {', '.join(missing)}; a line needs {', '.join(REQUIRED)}")
    text = record["Generated Speech"] or None
    row = {"prompt_id": record.get("prompt_id") or _prompt_id(record), "variant": int(record.get("variant") or 0)}
    row |= {"model": _model(record["Model"], where), "type": _type(record["Type"], where), "generated_speech": text}
    row |= {key: record[key] for key in CONTEXT} | {"instruction": record.get("instruction") or _instruction(record)}
    return row | {"n_words": len((text or "").split())} | _scores(record["Evaluation Scores"], where, ignored)


def _prompt_id(record: dict[str, Any]) -> str:
    parts = json.dumps([record[key] for key in CONTEXT] + [record.get("Prompts")], ensure_ascii=False)
    return "published-" + hashlib.sha256(parts.encode()).hexdigest()[:12]


def _instruction(record: dict[str, Any]) -> str:
    prompts = record.get("Prompts") or []
    return prompts if isinstance(prompts, str) else " ".join(map(str, prompts))


def _plain(name: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _model(name: object, where: str) -> str:
    if (project_root() / "params/models" / f"{name}.yaml").exists():
        return str(name)
    parts = re.findall(r"[a-z]+", str(name).lower())
    found = [model for family, model in FAMILIES.items() if family in parts]
    if len(found) != 1:
        raise ValueError(f"{where}: model {name!r} is none of {', '.join(FAMILIES)} and has no file in params/models")
    return found[0]


def _type(name: object, where: str) -> str:
    if _plain(name) not in TYPES:
        raise ValueError(f"{where}: type {name!r}, expected baseline or fine-tuned")
    return TYPES[_plain(name)]


def _scores(given: object, where: str, ignored: Counter) -> dict[str, float]:
    if not isinstance(given, dict):
        raise ValueError(f"{where}: Evaluation Scores is no object of metric and value")
    known = {_plain(name): metric.column for metric in METRICS for name in (metric.name, metric.column)} | SPELLINGS
    judged = {metric.column for metric in METRICS if metric.kind == "judge"}
    scores = dict.fromkeys((metric.column for metric in METRICS), np.nan)
    for name, value in given.items():
        column = known.get(_plain(name))
        if column is None:
            ignored[name] += 1
        elif value is not None and not (column in judged and value < 0):
            scores[column] = float(value)
    return scores


def import_published(path: Path, folder: Path) -> pd.DataFrame:
    """Write the speeches of `path` in the layout of stages 01 to 07 under `folder`, which must be new; returns the score frame.

    A prompt to which a model and type say nothing gets a row without a speech, as 04 writes it. There are no human speeches,
    no training set and no adapters in such a run, and its files say so by being empty.
    """
    if folder.exists():
        raise ValueError(f"{folder} is there already: give the run another name or remove it")
    scores = load_published(path)
    prompts = scores.drop_duplicates("prompt_id").sort_values("prompt_id")
    write_jsonl(folder / "02_dataset/prompts.jsonl", _prompt_rows(prompts))
    write_jsonl(folder / "02_dataset/test.jsonl", _test_rows(prompts))
    write_jsonl(folder / "02_dataset/train.jsonl", [])
    for stage in ("01_ingest", "02_dataset"):
        write_csv(folder / stage / "dropped.csv", pd.DataFrame(columns=["id", "rule", "text"]))
    write_parquet(folder / "01_ingest/speeches.parquet", pd.DataFrame({"speech_id": [], "text": []}, dtype=str))
    write_text(
        folder / "03_finetune/README.md", f"Nothing was trained here: the speeches were read from {path.name}.\n"
    )
    for (model, kind), part in scores.groupby(SET, sort=False):
        silent = prompts.loc[~prompts["prompt_id"].isin(part["prompt_id"]), ["prompt_id"]]
        silent = silent.assign(variant=0, model=model, type=kind, generated_speech=None, n_words=0)
        _write_set(folder, model, kind, pd.concat([part, silent]).sort_values(["prompt_id", "variant"]))
    answered = (
        scores.dropna(subset=["generated_speech"]).groupby("prompt_id")[SET].apply(lambda p: len(p.drop_duplicates()))
    )
    kept = sorted(answered.index[answered == len(scores[SET].drop_duplicates())])
    write_json(folder / "04_generate/summary/kept_prompts.json", {"kept": kept, "left_out": {}})
    write_csv(
        folder / "04_generate/summary/failures.csv",
        pd.DataFrame(columns=["model", "type", "attempt", "reason", "count", "share"]),
    )
    vouch_for_import(folder, path)
    return scores


def _prompt_rows(prompts: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in prompts.to_dict("records"):
        context = f"{row['Party']} / {row['Topic']} / {row['House']}"
        ids = {"prompt_id": row["prompt_id"], "speech_id": row["prompt_id"], "context_id": context}
        unknown = {"weight": 1.0, "shard": 0, "sitting_id": None, "speaker_id": None, "date": None, "cap_topic": None}
        kind = {"kind": "question" if row["instruction"] else "generic", "instruction": row["instruction"]}
        yield ids | kind | {key: row[key] for key in CONTEXT} | unknown


def _test_rows(prompts: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in prompts.to_dict("records"):
        unknown = dict.fromkeys(("speaker_id", "sitting_id", "date", "cap_topic"))
        yield {key: row[key] for key in CONTEXT} | {"Speech": "", "Prompts": []} | {
            "speech_id": row["prompt_id"], "topic_method": "published", "topic_score": None, "n_words": 0
        } | unknown  # fmt: skip


def _write_set(folder: Path, model: str, kind: str, part: pd.DataFrame) -> None:
    unknown = {
        "attempts": 1,
        "rejections": [],
        "seed": None,
        "finish_reason": "published",
        "trimmed": False,
        "seconds": 0,
    }
    keys = ["prompt_id", "variant", "model", "type", "generated_speech", "n_words"]
    write_jsonl(
        folder / "04_generate" / model / kind / "shard-0.jsonl", [r | unknown for r in part[keys].to_dict("records")]
    )
    spoken = part[part["generated_speech"].notna()]
    computed = [metric.column for metric in METRICS if metric.kind == "computed"]
    political = ["PSA", "Party Align"]
    for stage, columns in (
        ("05_text_metrics", [c for c in computed if c not in political]),
        ("06_political_alignment", political),
    ):
        frame = spoken[["prompt_id", "variant", *columns]]
        if stage == "06_political_alignment":
            frame = frame.assign(**{"Party Align deranged": np.nan})
        write_parquet(folder / stage / model / f"{kind}.parquet", frame.reset_index(drop=True))
        signatures = dict.fromkeys(columns, "published")
        if "Self-BLEU" in signatures:
            signatures["Self-BLEU"] = "Self-BLEU-4|group:prompt|published"
        write_json(folder / stage / model / f"{kind}.signatures.json", signatures)
    judge = read_profile("07_judge", "paper")["judge"]
    rows = spoken.melt(["prompt_id", "variant"], [m.column for m in METRICS if m.kind == "judge"], "dimension", "score")
    status = {"feedback": "", "raw": "", "prompt_sha256": "", "attempts": 1, "seed": None}
    records = rows.sort_values(["prompt_id", "variant", "dimension"]).to_dict("records")
    given = ({"parse_status": "published" if pd.notna(r["score"]) else "missing"} for r in records)
    write_jsonl(
        folder / "07_judge" / judge / model / f"{kind}.jsonl",
        [r | g | status for r, g in zip(records, given, strict=True)],
    )
