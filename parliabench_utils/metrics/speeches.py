"""The speeches that are scored: what came out of generation, which prompts all answered, and the rows of notebooks 04 to 07.

The paper keeps only prompts with a valid speech from all ten model-type pairs (section 5.3).

    kept, left_out = split_prompts(read_generated(run.folder, run.model_types))        # 04
    speeches = read_speeches(run)                                       # 05: a row a valid speech, with its prompt's fields
    speeches["Dist-2"] = per_job(speeches, lambda job: distinct_n(job["generated_speech"].tolist()))
    write_scores(run, speeches, ["Dist-2"], {"Dist-2": signature(2)})
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.models.validation import NO_ANSWER, REASONS, ValidationSettings, similarity_to_prompt, validate_speech
from parliabench_utils.run.artefacts import read_jsonl, write_csv, write_json, write_parquet
from parliabench_utils.run.stages import HUMAN

JOB = ["model", "type"]
KEYS = ["prompt_id", "variant"]
PROMPT_FIELDS = (
    "speech_id", "speaker_id", "sitting_id", "context_id", "Party", "Political Orientation", "Section", "House", "Topic"
)  # fmt: skip
MIN_PAIRS = 5  # below, a set's rank correlation does not count


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
        keys = Counter((row["prompt_id"], row["variant"]) for row in found)
        prompts = {prompt for prompt, _ in keys}
        problems = {
            "two rows of one variant": [prompt for (prompt, _), count in keys.items() if count > 1],
            "a prompt that is not the shard's": sorted(prompts - wanted),
            "no row of a prompt": sorted(wanted - prompts),
        }
        for what, names in problems.items():
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                raise ValueError(f"{path} has {what} ({names[0]}{more}): delete the file and run its stage again")
        rows += [row for row in found if shard_of[row["prompt_id"]] in chosen]
    return rows


def read_generated(folder: Path, pairs: list[tuple[str, str]], shards: list[int] | None = None) -> pd.DataFrame:
    """The rows of the given (model, type) pairs, in order; `shards` and errors as in `generated_rows`."""
    return pd.DataFrame([row for model, kind in pairs for row in generated_rows(folder, model, kind, shards)])


def split_prompts(speeches: pd.DataFrame) -> tuple[list[str], dict[str, list[str]]]:
    """Prompts with a speech of every model, type and variant; and the others, each with the pairs that failed it."""
    failed = speeches[speeches["generated_speech"].isna()]
    pairs = (failed["model"] + "/" + failed["type"]).groupby(failed["prompt_id"], sort=True).unique()
    return sorted(set(speeches["prompt_id"]) - set(pairs.index)), {prompt: list(names) for prompt, names in pairs.items()}


def failure_counts(speeches: pd.DataFrame) -> pd.DataFrame:
    """How many speeches each check rejected: model, type, attempt, reason, count, share of that attempt's speeches.

    A speech can fail several checks; reason `any` counts it once, and `no_answer` one for which a server gave no text. Attempts
    without a failure have a row `any`, 0.
    """
    rows = []
    for (model, kind), group in speeches.groupby(JOB, sort=False):
        for attempt in range(1, int(group["attempts"].max()) + 1):
            made = int((group["attempts"] >= attempt).sum())
            rejected = [r[attempt - 1] for r in group["rejections"] if len(r) >= attempt]
            counts = {"any": len(rejected)} | {r: sum(r in reasons for reasons in rejected) for r in (*REASONS, NO_ANSWER)}
            rows += [(model, kind, attempt, r, n, n / made) for r, n in counts.items() if n or r == "any"]
    return pd.DataFrame(rows, columns=[*JOB, "attempt", "reason", "count", "share"])


def human_failures(human: pd.DataFrame, prompts: dict[str, dict], checks: ValidationSettings) -> pd.DataFrame:
    """The nine checks on what members really said: `failure_counts`' columns, so that false alarms stand beside failures."""
    texts = human["generated_speech"].tolist()
    similarities = similarity_to_prompt(texts, [prompts[i] for i in human["prompt_id"]], checks.encoder)
    reasons = [validate_speech(t, settings=replace(checks, similarity=s)) for t, s in zip(texts, similarities, strict=True)]
    return failure_counts(human.assign(attempts=1, rejections=[[r] if r else [] for r in reasons]))


def summary(speeches: pd.DataFrame) -> pd.DataFrame:
    """A row a model and type: speeches, valid ones, mean attempts, share trimmed, share that stopped by themselves, median words."""
    valid = speeches["generated_speech"].notna()
    frame = speeches.assign(valid=valid, stopped=speeches["finish_reason"] == "stop", words=speeches["n_words"].where(valid))
    table = frame.assign(speeches=1).groupby(JOB, sort=False)
    how = {"speeches": "sum", "valid": "sum", "attempts": "mean", "trimmed": "mean", "stopped": "mean", "words": "median"}
    return table.agg(how).reset_index()


def write_summary(folder: Path, kept: list[str], left_out: dict[str, list[str]], failures: pd.DataFrame) -> None:
    """`kept_prompts.json`: the prompts that are compared, and who failed on the others; `failures.csv`: `failure_counts`."""
    write_json(folder / "kept_prompts.json", {"kept": kept, "left_out": left_out})
    write_csv(folder / "failures.csv", failures)


def read_speeches(run: Any) -> pd.DataFrame:
    """Every speech of this call's jobs that passed 04's checks, sorted by job and prompt, with the fields of its prompt.

    Adds to `attrs` `failed`, how many prompts of each job have no speech, and `variants`, how many speeches of a prompt the
    models were asked for (0 where only members speak).
    """
    rows = read_generated(run.folder, run.model_types)
    prompts = pd.DataFrame(read_jsonl(run.folder / "02_dataset/prompts.jsonl")).reindex(columns=["prompt_id", *PROMPT_FIELDS])
    spoken = rows[rows["generated_speech"].notna()]
    if spoken.empty:
        raise ValueError(f"no speech of {run.model_types} passed the checks of 04 (see its failures.csv): nothing to score")
    spoken = spoken.merge(prompts, on="prompt_id", how="left", validate="many_to_one")
    order = {job: i for i, job in enumerate(run.model_types)}
    jobs = [order[job] for job in zip(spoken["model"], spoken["type"], strict=True)]
    spoken = spoken.assign(_job=jobs).sort_values(["_job", *KEYS], ignore_index=True).drop(columns="_job")
    silent = rows[rows["generated_speech"].isna()].groupby(JOB).size()
    spoken.attrs["variants"] = int(rows.loc[rows["type"] != HUMAN, "variant"].nunique())
    spoken.attrs["failed"] = {"/".join(job): int(n) for job, n in silent.items()}
    return spoken


def read_references(folder: Path, prompt_ids: Sequence[str]) -> list[list[str]]:
    """The texts of each prompt's references, best first: ids of `references.jsonl`, words of `train.jsonl`.

    A prompt without references gets an empty list, which BERTScore and MoverScore answer with NaN. ValueError for a
    reference that is no training speech.
    """
    texts = {row["speech_id"]: row["Speech"] for row in read_jsonl(folder / "train.jsonl")}
    chosen: dict[str, list[tuple[int, str]]] = {}
    for row in read_jsonl(folder / "references.jsonl"):
        if row["speech_id"] not in texts:
            raise ValueError(f"{folder / 'references.jsonl'} names {row['speech_id']}, which train.jsonl lacks: run 02 again")
        chosen.setdefault(row["prompt_id"], []).append((row["rank"], texts[row["speech_id"]]))
    return [[text for _, text in sorted(chosen.get(prompt_id, []))] for prompt_id in prompt_ids]


def all_references(folder: Path) -> list[str]:
    """Each text once that is a reference of any prompt, sorted: what rarity is counted in, whoever answers."""
    ids = dict.fromkeys(row["prompt_id"] for row in read_jsonl(folder / "references.jsonl"))
    return sorted({text for texts in read_references(folder, list(ids)) for text in texts})


def per_job(speeches: pd.DataFrame, score: Callable[[pd.DataFrame], Any]) -> Any:
    """`score(job)` for each model and type apart, put together again: a value then never depends on who else is scored.

    `score` returns an array (n,), or a DataFrame of n rows, for the job's n speeches.
    """
    parts = []
    for _, job in speeches.groupby(JOB, sort=False):
        values = score(job)
        parts.append(values.set_axis(job.index) if isinstance(values, pd.DataFrame) else pd.Series(values, job.index))
    return pd.concat(parts).loc[speeches.index]


def write_scores(run: Any, speeches: pd.DataFrame, columns: Sequence[str], signatures: Mapping[str, Any]) -> None:
    """`<model>/<type>.parquet` at 6 decimals and `<type>.signatures.json` for each job, an empty one where all failed.

    A signature says to people which settings made a metric; `signatures["settings"]` holds those that a later notebook reads.
    """
    for model, kind in run.model_types:
        rows = speeches[(speeches["model"] == model) & (speeches["type"] == kind)]
        table = rows[[*KEYS, *columns]].round(6).reset_index(drop=True)
        table.attrs.clear()  # parquet would keep them, and they speak of the other jobs too
        write_parquet(run.stage_folder() / model / f"{kind}.parquet", table)
        write_json(run.stage_folder() / model / f"{kind}.signatures.json", dict(signatures))


def rank_correlations(speeches: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Spearman's rho of every two columns within each set (model, type), and their plain mean over the sets.

    Over all sets at once two numbers would seem to agree for no other reason than that sets differ in both. Returns three
    frames (columns, columns): the mean in [-1, 1], the speeches behind it, and the sets. A set counts where it has at least
    MIN_PAIRS speeches with both and spread in both; NaN where none has.
    """
    names = list(columns)
    total, weight, sets = (np.zeros((len(names), len(names))) for _ in range(3))
    for _, job in speeches.groupby(JOB, sort=False):
        data = job[names].astype(float)
        rho = data.corr(method="spearman", min_periods=MIN_PAIRS).to_numpy()
        known, valid = data.notna().to_numpy(float), ~np.isnan(rho)
        total += np.where(valid, rho, 0.0)
        weight += np.where(valid, known.T @ known, 0.0)
        sets += valid
    mean = np.divide(total, sets, out=np.full(total.shape, np.nan), where=sets > 0)
    return tuple(pd.DataFrame(table, names, names) for table in (mean, weight.astype(int), sets.astype(int)))


def correlations(speeches: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """`rank_correlations` of every two columns, in a row each: `metric_a, metric_b, spearman, n, sets`."""
    tables = rank_correlations(speeches, columns)
    rows = [(a, b, *(table.loc[a, b] for table in tables)) for a, b in combinations(columns, 2)]
    return pd.DataFrame(rows, columns=["metric_a", "metric_b", "spearman", "n", "sets"]).round({"spearman": 6})


def extremes(speeches: pd.DataFrame, column: str, n_words: int = 60) -> pd.DataFrame:
    """The speech with the lowest and the one with the highest value, and how they begin."""
    known = speeches.dropna(subset=column).sort_values([column, *KEYS])
    shown = known.iloc[[0, -1] if len(known) else []][["model", "type", "Party", column, "generated_speech"]].copy()
    shown["generated_speech"] = shown["generated_speech"].str.split().str[:n_words].str.join(" ")
    return shown.rename(columns={"generated_speech": "begins"}).set_axis(["lowest", "highest"][: len(shown)])


def by_job(speeches: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Mean of each column for each model and type, and the number of speeches, jobs in their order."""
    groups = speeches.groupby(JOB, sort=False)
    return groups[list(columns)].mean().assign(n=groups.size()).round(3)


def boxes(speeches: pd.DataFrame, columns: Sequence[str], logarithmic: Sequence[str] = ("PPL",)) -> Any:
    """A figure of one panel a column, in it a box for each model and type, first job on top."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    jobs = {f"{model} {kind}": job for (model, kind), job in speeches.groupby(JOB, sort=False)}
    n_rows = -(-len(columns) // 3)
    size = (10, 0.6 + n_rows * (0.9 + 0.28 * len(jobs)))
    fig, axes = plt.subplots(n_rows, min(3, len(columns)), figsize=size, sharey=True, layout="constrained", squeeze=False)
    for axis, column in zip(axes.flat, columns, strict=False):
        axis.boxplot([job[column].dropna() for job in jobs.values()], tick_labels=list(jobs), orientation="horizontal", widths=0.6)
        axis.set(title=column, xscale="log" if column in logarithmic else "linear")
        if column in logarithmic:  # 20, 50, 100 in full: powers of ten with factors run into each other
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())
        axis.tick_params(labelsize=8)
    axes.flat[0].invert_yaxis()
    return fig
