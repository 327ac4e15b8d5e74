"""A run folder of made-up scores in the layout that the stages write. Test data only: nothing in it was measured.

`write_run(folder)` needs neither models nor a corpus; speeches are sentences put together at random.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.run.artefacts import write_csv, write_json, write_jsonl, write_parquet
from parliabench_utils.run.params import resolve
from parliabench_utils.run.record import describe
from parliabench_utils.run.stages import STAGES, maker

MODELS = ["smollm2-135m", "smollm2-135m-nf4"]
SETS = [(m, t) for m in MODELS for t in ("baseline", "fine-tuned")] + [("human", "human")]
PARTIES = {"Conservative": "Centre-right", "Labour": "Centre-left", "Scottish National Party": "Centre-left",
           "Liberal Democrats": "Centre to centre-left", "Crossbench": "Unknown", "Democratic Unionist Party": "Right"}  # fmt: skip
TOPICS = ["Politics", "Law", "Social Questions", "Production, Technology and Research", "Trade"]
WORDS = (
    *("the", "hon", "Member", "asked", "about", "schools", "&", "roads", "in", "her", "constituency,", "and", "100%"),
    *("of", "us", "_agree_", "that", "<b>trade</b>", "matters"),
)
TYPICAL = {  # mean and sd
    "PPL": (40, 12), "Dist-2": (0.9, 0.03), "Self-BLEU": (0.2, 0.05), "GRUEN": (0.5, 0.1), "BERTScore F1": (0.8, 0.02),
    "MoverScore": (0.5, 0.01), "PSA": (0.4, 0.1), "Party Align": (0.5, 0.1),
}  # fmt: skip
CONTEXT = ("Party", "Topic", "Political Orientation", "Section", "House")
FEEDBACK = {"baseline": "Plain <b>words</b> of a judge."}
SIGNATURES = {"PPL": "model:made-up|max_words:512", "Self-BLEU": "Self-BLEU-4|group:model|refs:all-others"}
SIGNATURES |= {"settings": {"Self-BLEU": {"group": "model", "max_n": 4}}}
RANKS = {"baseline": 0.0, "fine-tuned": 1.0, "human": 1.5}


def write_run(folder: Path, n_prompts: int = 18, seed: int = 7, hostile: str = "") -> Path:
    """A whole run up to 07; `hostile` replaces the text of one speech."""
    rng = np.random.default_rng(seed)
    prompts = _prompts(n_prompts, rng)
    _dataset(folder, prompts, rng)
    for model, kind in SETS:
        _speeches(folder, prompts, model, kind, rng, hostile if (model, kind) == SETS[1] else "")
        _scores(folder, prompts, model, kind, rng)
    kept = [p["prompt_id"] for p in prompts[:-1]]
    write_json(folder / "04_generate/summary/kept_prompts.json", {"kept": kept})
    write_csv(
        folder / "04_generate/summary/failures.csv",
        pd.DataFrame({"model": MODELS, "type": "baseline", "reason": "length", "n": [1, 0]}),
    )
    write_csv(folder / "07_judge/summary/trust.csv", pd.DataFrame({"dimension": ["J_Coh"], "alpha": [0.1]}))
    write_parquet(folder / "01_ingest/speeches.parquet", pd.DataFrame({"speech_id": ["s000"], "text": ["My Lords."]}))
    write_csv(folder / "07_judge/summary/failures.csv", pd.DataFrame({"model": MODELS, "missing": [0, 1]}))
    accuracy = {
        "condition": "all speeches",
        "split": "random",
        "check": "nearest party",
        "statistic": "balanced accuracy",
    }
    validation = pd.DataFrame([accuracy | {"value": 0.25, "low": 0.2, "high": 0.3, "n": 40}])
    write_csv(folder / "06_political_alignment/summary/validation.csv", validation)
    for model in MODELS:
        write_jsonl(folder / "03_finetune" / model / "train_log.jsonl", [{"step": 1, "loss": 3.0}])
    _manifests(folder)
    return folder


def _prompts(n: int, rng: np.random.Generator) -> list[dict]:
    parties = list(PARTIES)
    return [
        {
            "prompt_id": f"p{i:03d}", "speech_id": f"s{i:03d}", "context_id": f"c{i % 4}", "kind": "generic",
            "instruction": "Generate a parliamentary speech.", "Party": parties[i % len(parties)],
            "Topic": TOPICS[i % len(TOPICS)], "Political Orientation": PARTIES[parties[i % len(parties)]],
            "Section": "Road safety", "House": "House of Commons" if i % 5 else "House of Lords", "weight": 1.0,
            "shard": 0, "sitting_id": f"d{i % 3}", "speaker_id": f"m{i % 9}", "date": "2019-03-05", "cap_topic": "Law and Crime",
        }
        for i in range(n)
    ]  # fmt: skip


def _dataset(folder: Path, prompts: list[dict], rng: np.random.Generator) -> None:
    write_jsonl(folder / "02_dataset/prompts.jsonl", prompts)
    for split, n in (("train", 160), ("test", max(40, len(prompts)))):
        rows = [
            {
                "speech_id": f"{split}{i}", "speaker_id": f"m{rng.integers(30)}", "sitting_id": f"d{i % 9}",
                "date": f"{2015 + i % 8}-0{1 + i % 6}-11", "cap_topic": ["Law and Crime", "Health"][i % 2],
                "topic_method": ["direct", "classified"][i % 2], "topic_score": 1.0, "n_words": int(40 + rng.gamma(2, 40)),
                "Party": (party := list(PARTIES)[int(rng.integers(6))]), "Political Orientation": PARTIES[party],
                "Topic": TOPICS[i % 5], "Section": "Road safety", "Speech": _text(rng), "Prompts": [],
                "House": "House of Commons" if i % 4 else "House of Lords",
            }
            for i in range(n)
        ]  # fmt: skip
        for row, prompt in zip(rows, prompts if split == "test" else [], strict=False):  # the prompts' own speeches
            row |= {key: prompt[key] for key in ("speech_id", *CONTEXT)}
        write_jsonl(folder / f"02_dataset/{split}.jsonl", rows)
    for stage in ("01_ingest", "02_dataset"):
        write_csv(
            folder / stage / "dropped.csv",
            pd.DataFrame({"id": ["x1", "x2"], "rule": ["too short", "excluded section"], "text": ["", ""]}),
        )


def _text(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, size=60)).capitalize() + "."


def _speeches(folder: Path, prompts: list[dict], model: str, kind: str, rng: np.random.Generator, hostile: str) -> None:
    rows = []
    for i, prompt in enumerate(prompts):
        failed = kind == "baseline" and i == len(prompts) - 1
        text = None if failed else hostile if hostile and i == 0 else _text(rng)
        rows.append(
            {
                "prompt_id": prompt["prompt_id"], "variant": 0, "model": model, "type": kind, "generated_speech": text,
                "n_words": len(text.split()) if text else 0, "attempts": 3 if failed else 1,
                "rejections": [["length"]] * 3 if failed else [], "seed": i, "finish_reason": "stop", "trimmed": bool(i % 3),
                "seconds": 1.0,
            }
        )  # fmt: skip
    write_jsonl(folder / "04_generate" / model / kind / "shard-0.jsonl", rows)


def _scores(folder: Path, prompts: list[dict], model: str, kind: str, rng: np.random.Generator) -> None:
    last = len(prompts) - 1
    kept = [p for i, p in enumerate(prompts) if not (kind == "baseline" and i == last)]
    frame = pd.DataFrame({"prompt_id": [p["prompt_id"] for p in kept], "variant": 0})
    for metric in METRICS:
        if metric.kind == "computed":
            mean, sd = TYPICAL[metric.column]
            sign = 1 if metric.higher_is_better else -1
            shift = RANKS[kind] * sd * sign * (-0.6 if metric.name == "GRUEN" else 0.8)
            frame[metric.column] = np.clip(mean + shift + rng.normal(0, sd, len(kept)), *metric.range)
    frame["Party Align deranged"] = frame["Party Align"] - 0.05 + rng.normal(0, 0.02, len(kept))
    frame.loc[[p["Political Orientation"] == "Unknown" for p in kept], "PSA"] = np.nan
    frame["similarity"], frame["nearest_orientation"] = frame["PSA"] + 0.05, "Centre-right"
    political = ["PSA", "Party Align", "Party Align deranged", "similarity", "nearest_orientation"]
    write_parquet(folder / "05_text_metrics" / model / f"{kind}.parquet", frame.drop(columns=political))
    write_json(folder / "05_text_metrics" / model / f"{kind}.signatures.json", SIGNATURES)
    write_parquet(folder / "06_political_alignment" / model / f"{kind}.parquet", frame[["prompt_id", "variant", *political]])
    write_json(folder / "06_political_alignment" / model / f"{kind}.signatures.json", {"PSA": "encoder:made-up"})
    rows = [
        {
            "prompt_id": p["prompt_id"], "variant": 0, "dimension": m.column,
            "score": int(np.clip(rng.normal(5 + RANKS[kind], 2), 1, 10)), "parse_status": "ok", "raw": "", "seed": 1,
            "feedback": FEEDBACK.get(kind, ""), "prompt_sha256": "0", "attempts": 1,
        }
        for p in kept for m in METRICS if m.kind == "judge"
    ]  # fmt: skip
    write_jsonl(folder / "07_judge/smollm2-constrained" / model / f"{kind}.jsonl", rows)


def _manifests(folder: Path) -> None:
    for stage in list(STAGES)[:7]:
        written = [p for p in sorted(folder.rglob("*")) if p.is_file() and maker(p, folder) == stage]
        record = {
            "stage": stage, "job": stage, "status": "done", "mode": "runner", "seed": 42, "notes": {"dropped": {"too short": 1}},
            "parameters": resolve(stage, "demo", {}).model_dump(), "inputs": {},
            "outputs": describe(written, folder, rows=True),
            "environment": {"python": "3.11", "libraries": {"numpy": "2"}, "git_commit": "0" * 40, "git_dirty": False},
            "seconds": 1.0, "peak_memory_mib": 1, "code_sha256": "0", "fingerprint": "0",
        }  # fmt: skip
        path = folder / "manifests" / f"{stage}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
