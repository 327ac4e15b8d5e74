"""Sentences of the report that are read from the run's own files: what is significant, what reads the speeches, how far to trust.

significance(this_run.folder, names)      # "Paired test, bonferroni, 28 tests: …; gains: …; declines: …." and the same, pooled
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parliabench_utils.models.judge_prompting import read_judge_spec
from parliabench_utils.models.loading import as_spec
from parliabench_utils.results.compare import verdict
from parliabench_utils.run.artefacts import read_csv
from parliabench_utils.run.params import read_profile

READERS = {  # metric -> the parameter of notebook 05 that names what reads the speeches
    "PPL": "language_model",
    "GRUEN's grammar": "grammar",
    "BERTScore": "bertscore_encoder",
    "MoverScore": "moverscore_encoder",
}


def _parameters(folder: Path, stage: str) -> dict[str, Any]:
    """The parameters that a stage's manifests resolved; empty where it has not run."""
    files = sorted((folder / "manifests").glob(f"{stage}*.json"))
    return json.loads(files[0].read_text(encoding="utf-8"))["parameters"] if files else {}


def significance(folder: Path, names: Mapping[str, str]) -> list[str]:
    """One sentence for the paired test and one for the paper's pooled one: which metrics rise and fall, for which model."""
    table = read_csv(folder / "08_statistics/comparison.csv")
    correction = _parameters(folder, "08_statistics").get("correction", "bonferroni")
    titles = {"paired": "Paired by prompt", "pooled": "Pooled, as in the paper"}
    said = []
    for test, title in titles.items():
        marks = verdict(table, test, correction)
        found = {
            mark: ", ".join(f"{row.metric} ({names[row.model]})" for row in table[marks == mark].itertuples()) or "none"
            for mark in ("gain", "decline")
        }
        family = table["family" if test == "pooled" else "paired_p_family"].iloc[0]
        said.append(f"{title} ({correction}, {family}): gains: {found['gain']}; declines: {found['decline']}.")
    return said


def other_readers(folder: Path) -> list[str]:
    """A warning where a metric's model is not the paper's."""
    ours, paper = _parameters(folder, "05_text_metrics"), read_profile("05_text_metrics", "paper")
    other = [f"{m} by {ours[k]} (paper: {paper[k]})" for m, k in READERS.items() if k in ours and ours[k] != paper[k]]
    return [f"Not the paper's models read the speeches: {', '.join(other)}. Values do not compare."] if other else []


def guessing(folder: Path) -> list[str]:
    """A warning where no model's PSA is clearly above that of a guesser who does not read (notebook 06)."""
    file = folder / "06_political_alignment/summary/validation.csv"
    if not file.exists():
        return []
    found = read_csv(file)
    low = found.loc[found["statistic"] == "PSA less the better guesser's", "low"]
    if not len(low) or (low > 0).any():
        return []
    return [
        "PSA of no set, human speeches included, is clearly above that of the better of two guessers who do not read (Checks)."
    ]


def trust_note(folder: Path) -> str:
    """What a reader of the trust table must know: how the judge draws, and who the second one is."""
    used = _parameters(folder, "07_judge")
    if not used:
        return ""
    judge, said = read_judge_spec(used["judge"]), []
    if judge.temperature == 0:
        said.append("The judge draws at temperature 0, so asking again must give the same rating: no merit of its own.")
    if used.get("second_judge"):
        second = read_judge_spec(used["second_judge"])
        if as_spec(second.model).id == as_spec(judge.model).id:
            scale = f"rates on {used['second_points']} points: a test of the scale, no second opinion."
            said.append(f"The second judge has the same weights and {scale}")
    said.append(
        "Rows from “asked again” on rest on the few speeches of column n; above a control, one half is guessing."
    )
    return " ".join(said)
