"""The speeches that notebooks 05 and 06 score, and the files that they write about them.

speeches = read_speeches(run)                                       # a row a valid speech, with its prompt's fields
speeches["Dist-2"] = per_job(speeches, lambda job: distinct_n(job["generated_speech"].tolist()))
write_scores(run, speeches, ["Dist-2"], {"Dist-2": signature(2)})
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.models.selection import read_generated
from parliabench_utils.run.artefacts import read_jsonl, write_json, write_parquet
from parliabench_utils.run.stages import HUMAN

JOB = ["model", "type"]
KEYS = ["prompt_id", "variant"]
PROMPT_FIELDS = (
    "speech_id", "speaker_id", "sitting_id", "context_id", "Party", "Political Orientation", "Section", "House", "Topic"
)  # fmt: skip


def read_speeches(run: Any) -> pd.DataFrame:
    """Every speech of this call's jobs that passed 04's checks, sorted by job and prompt, with the fields of its
    prompt.

    Adds to `attrs` `failed`, how many prompts of each job have no speech, and `variants`, how many speeches of a prompt the
    models were asked for (0 where only members speak).
    """
    rows = read_generated(run.folder, run.model_types)
    prompts = pd.DataFrame(read_jsonl(run.folder / "02_dataset/prompts.jsonl"))
    prompts = prompts.reindex(columns=["prompt_id", *PROMPT_FIELDS])
    spoken = rows[rows["generated_speech"].notna()]
    if spoken.empty:
        raise ValueError(
            f"no speech of {run.model_types} passed the checks of 04 (see its failures.csv): nothing to score"
        )
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
            raise ValueError(
                f"{folder / 'references.jsonl'} names {row['speech_id']}, which train.jsonl lacks: run 02 again"
            )
        chosen.setdefault(row["prompt_id"], []).append((row["rank"], texts[row["speech_id"]]))
    return [[text for _, text in sorted(chosen.get(prompt_id, []))] for prompt_id in prompt_ids]


def all_references(folder: Path) -> list[str]:
    """Each text once that is a reference of any prompt, sorted: what rarity is counted in, whoever answers."""
    ids = dict.fromkeys(row["prompt_id"] for row in read_jsonl(folder / "references.jsonl"))
    return sorted({text for texts in read_references(folder, list(ids)) for text in texts})


def require_references(candidates: Sequence[str | None], references: Sequence[Sequence[str]]) -> None:
    """ValueError where there is not one list of texts for each candidate; a bare string would be read letter by letter."""
    if len(candidates) != len(references):
        raise ValueError(f"{len(candidates)} speeches and {len(references)} lists of references")
    if bare := [i for i, texts in enumerate(references) if isinstance(texts, str)]:
        raise ValueError(f"the references of speech {bare[0]} are one string; a list of texts is wanted: [text]")


def per_job(speeches: pd.DataFrame, score: Callable[[pd.DataFrame], Any]) -> Any:
    """`score(job)` for each model and type apart, put together again: a value then never depends on who else is scored.

    `score` returns an array (n,), or a DataFrame of n rows, for the job's n speeches.
    """
    parts = []
    for _, job in speeches.groupby(JOB, sort=False):
        values = score(job)
        parts.append(values.set_axis(job.index) if isinstance(values, pd.DataFrame) else pd.Series(values, job.index))
    return pd.concat(parts).loc[speeches.index]


def write_scores(run: Any, speeches: pd.DataFrame, columns: Sequence[str], signatures: Mapping[str, str]) -> None:
    """`<model>/<type>.parquet` at 6 decimals and `<type>.signatures.json` for each job, an empty one where all failed."""
    for model, kind in run.model_types:
        rows = speeches[(speeches["model"] == model) & (speeches["type"] == kind)]
        folder = run.stage_folder() / model
        table = rows[[*KEYS, *columns]].round(6).reset_index(drop=True)
        table.attrs.clear()  # parquet would keep them, and they speak of the other jobs too
        write_parquet(folder / f"{kind}.parquet", table)
        write_json(folder / f"{kind}.signatures.json", dict(signatures))


MIN_PAIRS = 5  # below, a set's rank correlation does not count


def rank_correlations(
    speeches: pd.DataFrame, columns: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
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
    rho, n, sets = rank_correlations(speeches, columns)
    rows = [
        {"metric_a": a, "metric_b": b, "spearman": rho.loc[a, b], "n": n.loc[a, b], "sets": sets.loc[a, b]}
        for i, a in enumerate(columns)
        for b in columns[i + 1 :]
    ]
    return pd.DataFrame(rows).round({"spearman": 6})


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
    fig, axes = plt.subplots(
        n_rows, min(3, len(columns)), figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    for axis, column in zip(axes.flat, columns, strict=False):
        values = [job[column].dropna() for job in jobs.values()]
        axis.boxplot(values, tick_labels=list(jobs), orientation="horizontal", widths=0.6)
        axis.set(title=column, xscale="log" if column in logarithmic else "linear")
        if column in logarithmic:  # 20, 50, 100 in full: powers of ten with factors run into each other
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())
        axis.tick_params(labelsize=8)
    axes.flat[0].invert_yaxis()
    return fig
