"""Statistics at the paper's size: 10 x 2,756 speeches and the human ones, 14 metrics, 2,000 bootstrap draws.

    python -m benchmarks.statistics

All values are drawn at random; nothing in them was measured. All that notebook 08 computes from the scores, with the time of each
part and the peak memory of the process.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure import in_own_process, machine, markdown_table, peak_memory_mib, versions
from parliabench_utils.corpus.topics import EUROVOC_DOMAINS
from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results import robustness, tables
from parliabench_utils.results import scores as cells
from parliabench_utils.results import statistics as s
from parliabench_utils.results.paper import PAPER_MODELS, audit, published

PROMPTS, DRAWS, CHANCE, SEED = 2756, 2000, 200, 42
NAMES = {name: name for name in PAPER_MODELS} | {"human": "Human speeches"}
SETS = [(model, kind) for model in PAPER_MODELS for kind in ("baseline", "fine-tuned")] + [("human", "human")]


def made_up_scores() -> pd.DataFrame:
    """A score frame of the paper's size, parties and topics in the paper's shares, a few values missing."""
    rng, parties = np.random.default_rng(SEED), published(3)
    share = parties["speeches"] / parties["speeches"].sum()
    which = rng.choice(len(parties), PROMPTS, p=share)
    prompts = pd.DataFrame({"prompt_id": [f"p{i:05d}" for i in range(PROMPTS)], "variant": 0})
    prompts["Party"] = parties["party"].to_numpy()[which]
    prompts["Political Orientation"] = parties["orientation"].to_numpy()[which]
    prompts["Topic"] = rng.choice(sorted(EUROVOC_DOMAINS), PROMPTS)
    prompts["House"] = rng.choice(["House of Commons", "House of Lords"], PROMPTS, p=[0.78, 0.22])
    prompts["context_id"] = prompts["Party"] + prompts["Topic"] + prompts["House"]
    level = rng.normal(size=(PROMPTS, len(METRICS)))
    parts = [_made_up_set(prompts, model, kind, level, rng) for model, kind in SETS]
    scores = pd.concat(parts, ignore_index=True)
    scores.loc[scores["Political Orientation"] == "Unknown", "PSA"] = np.nan
    dropped = prompts["prompt_id"].sample(frac=0.05, random_state=SEED)
    return scores.assign(compared=~scores["prompt_id"].isin(set(dropped)))


def _made_up_set(prompts: pd.DataFrame, model: str, kind: str, level: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    part = prompts.assign(model=model, type=kind, generated_speech="made up")
    noise = 0.5 * level + rng.normal(size=level.shape) + (0.1 if kind == "fine-tuned" else 0.0)
    for column, metric in enumerate(METRICS):
        low, high = metric.range[0], metric.range[1] or 100.0
        values = low + (high - low) * np.clip(0.5 + 0.1 * noise[:, column], 0, 1)
        part[metric.column] = np.round(values) if metric.kind == "judge" else values
    part["Party Align deranged"] = part["Party Align"] - 0.05
    part["similarity"], part["nearest_orientation"] = part["PSA"] + 0.05, "Centre-right"
    return part


def whole_notebook() -> None:
    """Every computation of notebook 08 that takes its time from the scores' size, and its tables, timed part by part."""
    made, started = {}, time.perf_counter()
    rows = []

    def part(name: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        made[name] = work()
        rows.append({"part": name, "seconds": time.perf_counter() - start})

    scores = made_up_scores()
    compared = cells.compared_rows(scores)
    part("means", lambda: cells.cell_means(compared))
    part("selection", lambda: (robustness.composition(scores, DRAWS, SEED), robustness.worst_case(scores)))
    part("Self-BLEU permutation", lambda: robustness.self_bleu_test(compared, "context", 4, DRAWS, SEED))
    permuted = made["Self-BLEU permutation"].set_index("model")["p"]
    part("comparisons, complete", lambda: s.compare(compared, draws=DRAWS, seed=SEED, permuted=permuted))
    part("comparisons, available", lambda: s.compare(scores, draws=DRAWS, seed=SEED, permuted=permuted))
    part("mixed models", lambda: robustness.mixed_models(compared))
    part("variance", lambda: s.anova_table(compared))
    part("difficulty", lambda: [s.difficulty(compared, c) for c in ("Party", "Political Orientation", "Topic")])
    part("stability, 200 permutations", lambda: s.stability_by_metric(compared, "run", CHANCE, SEED))
    part("human preference", lambda: robustness.human_preference(compared))
    part("correlations", lambda: robustness.correlations(compared))
    part("paper audit", audit)
    part("tables", lambda: _write(made, compared))
    print(markdown_table([*rows, {"part": "all, with making up the scores", "seconds": time.perf_counter() - started}]))
    print(f"\nPeak memory of the process: {peak_memory_mib():,.0f} MiB; {len(scores):,} rows, {len(METRICS)} metrics.")


def _write(made: dict, compared: pd.DataFrame) -> None:
    marks = {"test": "pooled", "correction": "bonferroni", "rule": "", "inputs": ()}
    comparison, hard = made["comparisons, complete"], made["difficulty"]
    stability = s.stability_table(made["stability, 200 permutations"])
    scored = [
        tables.table02(made["means"], comparison, NAMES, **marks),
        *(tables.alignment_by(compared, column, NAMES, ()) for column in ("Party", "Topic")),
        tables.difficulty_table(hard[0], "Party", ()),
        tables.difficulty_table(hard[1], "Political Orientation", ()),
        tables.table12(stability, NAMES, "run", ()),
        tables.table13(comparison, NAMES, ()),
    ]
    checks = [tables.anova_display(made["variance"], NAMES, ()), tables.mixed_display(made["mixed models"], NAMES, ())]
    checks += [tables.selection_display(made["selection"][0], NAMES, ()), tables.paper_differences(scored, ())]
    with tempfile.TemporaryDirectory() as folder:
        for table in [*scored, *checks]:
            tables.write_table(table, Path(folder))


def main() -> None:
    """Print the benchmark; with the argument `whole` do it, in a process that is weighed by itself."""
    if sys.argv[1:] == ["whole"]:
        whole_notebook()
        return
    print(f"{machine()}; {versions('numpy', 'pandas', 'scipy', 'statsmodels')}\n")
    print(in_own_process("benchmarks.statistics", "whole"))


if __name__ == "__main__":
    main()
