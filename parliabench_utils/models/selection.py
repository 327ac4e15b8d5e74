"""What came out of generation: failures by model, attempt and reason, and the prompts that every model answered.

The end of notebook 04, before what tuning changed (`tuning.py`).
The paper keeps only prompts with a valid speech from all ten model-type pairs (section 5.3).

    from parliabench_utils.models.selection import read_generated, split_prompts
    kept, left_out = split_prompts(read_generated(this_run.folder, this_run.model_types))
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parliabench_utils.models.validation import (
    NO_ANSWER,
    REASONS,
    ValidationSettings,
    similarity_to_prompt,
    validate_speech,
)
from parliabench_utils.run.artefacts import read_jsonl, write_csv, write_json
from parliabench_utils.run.stages import HUMAN

if TYPE_CHECKING:
    import pandas as pd


def generated_rows(folder: Path, model: str, kind: str, shards: list[int] | None = None) -> list[dict[str, Any]]:
    """All rows of a model and type, shard by shard, as `prompts.jsonl` of the run in `folder` names the shards.

    With `shards` only those of these shards' prompts: a job of one shard does not wait for the others. FileNotFoundError where a
    shard is missing. ValueError where its rows are not the prompts' ones: a prompt lacking, twice with the same variant, or
    unknown. Files of shards that no prompt names any more are left alone.
    """
    shard_of = {row["prompt_id"]: row.get("shard", 0) for row in read_jsonl(folder / "02_dataset/prompts.jsonl")}
    chosen = sorted(set(shard_of.values())) if shards is None else shards
    rows: list[dict[str, Any]] = []
    for number in [0] if kind == HUMAN else chosen:
        path = folder / "04_generate" / model / kind / f"shard-{number}.jsonl"
        if not path.is_file():
            raise FileNotFoundError(f"no {path}: run {'02' if kind == HUMAN else '04'} for {model}, {kind}")
        found = read_jsonl(path)
        wanted = {prompt for prompt, shard in shard_of.items() if kind == HUMAN or shard == number}
        _require_rows(path, [(row["prompt_id"], row["variant"]) for row in found], wanted)
        rows += [row for row in found if shard_of[row["prompt_id"]] in chosen]
    return rows


def _require_rows(path: Path, keys: list[tuple[str, int]], wanted: set[str]) -> None:
    prompts = {prompt for prompt, _ in keys}
    twice = [key for key, count in Counter(keys).items() if count > 1]
    problems = {
        "two rows of one variant": [prompt for prompt, _ in twice],
        "a prompt that is not the shard's": sorted(prompts - wanted),
        "no row of a prompt": sorted(wanted - prompts),
    }
    for what, names in problems.items():
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(f"{path} has {what} ({names[0]}{more}): delete the file and run its stage again")


def read_generated(folder: Path, pairs: list[tuple[str, str]], shards: list[int] | None = None) -> "pd.DataFrame":
    """The rows of the given (model, type) pairs, in order; `shards` and errors as in `generated_rows`."""
    import pandas as pd

    return pd.DataFrame([row for model, kind in pairs for row in generated_rows(folder, model, kind, shards)])


def split_prompts(speeches: "pd.DataFrame") -> tuple[list[str], dict[str, list[str]]]:
    """Prompts with a speech of every model, type and variant; and the others, each with the pairs that failed it."""
    failed = speeches[speeches["generated_speech"].isna()]
    left_out: dict[str, list[str]] = {}
    for prompt, model, kind in zip(failed["prompt_id"], failed["model"], failed["type"], strict=True):
        left_out.setdefault(prompt, [])
        if f"{model}/{kind}" not in left_out[prompt]:
            left_out[prompt].append(f"{model}/{kind}")
    kept = sorted(set(speeches["prompt_id"]) - set(left_out))
    return kept, dict(sorted(left_out.items()))


def failure_counts(speeches: "pd.DataFrame") -> "pd.DataFrame":
    """How many speeches each check rejected: model, type, attempt, reason, count, share of that attempt's speeches.

    A speech can fail several checks; reason `any` counts it once, and `no_answer` one for which a server gave no text. Attempts
    without a failure have a row `any`, 0.
    """
    import pandas as pd

    rows = []
    for (model, kind), group in speeches.groupby(["model", "type"], sort=False):
        for attempt in range(1, int(group["attempts"].max()) + 1):
            made = int((group["attempts"] >= attempt).sum())
            rejected = [r[attempt - 1] for r in group["rejections"] if len(r) >= attempt]
            counts = {"any": len(rejected)} | {
                r: sum(r in reasons for reasons in rejected) for r in (*REASONS, NO_ANSWER)
            }
            rows += [
                {"model": model, "type": kind, "attempt": attempt, "reason": r, "count": n, "share": n / made}
                for r, n in counts.items()
                if n or r == "any"
            ]
    return pd.DataFrame(rows, columns=["model", "type", "attempt", "reason", "count", "share"])


def human_failures(human: "pd.DataFrame", prompts: dict[str, dict], checks: ValidationSettings) -> "pd.DataFrame":
    """The nine checks on what members really said: `failure_counts`' columns, so that false alarms stand beside failures."""
    from dataclasses import replace

    texts = human["generated_speech"].tolist()
    similarities = similarity_to_prompt(texts, [prompts[i] for i in human["prompt_id"]], checks.encoder)
    reasons = [
        validate_speech(t, settings=replace(checks, similarity=s)) for t, s in zip(texts, similarities, strict=True)
    ]
    return failure_counts(human.assign(attempts=1, rejections=[[r] if r else [] for r in reasons]))


def summary(speeches: "pd.DataFrame") -> "pd.DataFrame":
    """A row a model and type: speeches, valid ones, mean attempts, share trimmed, share that stopped by themselves, median words."""
    valid = speeches["generated_speech"].notna()
    frame = speeches.assign(
        valid=valid, stopped=speeches["finish_reason"] == "stop", words=speeches["n_words"].where(valid)
    )
    return (
        frame.groupby(["model", "type"], sort=False)
        .agg(
            speeches=("valid", "size"),
            valid=("valid", "sum"),
            attempts=("attempts", "mean"),
            trimmed=("trimmed", "mean"),
            stopped=("stopped", "mean"),
            words=("words", "median"),
        )
        .reset_index()
    )


def composition(prompts: list[dict], kept: list[str], by: str = "Party") -> "pd.DataFrame":
    """Share of each party (or another field) among all prompts and among those kept: does selection change the mix?"""
    import pandas as pd

    frame = pd.DataFrame(prompts)
    shares = {
        "all prompts": frame[by].value_counts(normalize=True),
        "kept": frame[frame["prompt_id"].isin(kept)][by].value_counts(normalize=True),
    }
    return pd.DataFrame(shares).fillna(0.0).sort_index().rename_axis(by).reset_index()


def write_summary(folder: Path, kept: list[str], left_out: dict[str, list[str]], failures: "pd.DataFrame") -> None:
    """`kept_prompts.json`: the prompts that are compared, and who failed on the others; `failures.csv`: `failure_counts`."""
    write_json(folder / "kept_prompts.json", {"kept": kept, "left_out": left_out})
    write_csv(folder / "failures.csv", failures)
