"""What the report says about a run besides its tables and figures: warnings, dropped rows, settings, provenance.

`report.write_report` (notebook 09) puts these together; each function here returns plain rows.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from parliabench_utils.metrics.alignment_evidence import overview
from parliabench_utils.models.judge_prompting import read_judge_spec
from parliabench_utils.models.loading import ModelSpec, as_spec
from parliabench_utils.results.cells import SMALL_GROUP
from parliabench_utils.results.report_findings import guessing, other_readers, trust_note
from parliabench_utils.results.tabular import number
from parliabench_utils.run.artefacts import read_csv
from parliabench_utils.run.params import read_profile
from parliabench_utils.run.stages import STAGES

TRUST = "How far the judge can be trusted (07)"
SMALL_JUDGE = 1_000_000_000  # parameters; below, a judge's scores say next to nothing
NOT_SETTINGS = {"run", "profile", "model", "type", "shard"}
DEMO_NOTE = "Demo models: they show that the pipeline works, not what large models can do."


def demo_note(specs: Sequence[ModelSpec]) -> str:
    """A sentence for captions where the run's models are the packaged demo ones, else nothing."""
    return DEMO_NOTE if all(spec.source == "packaged" for spec in specs) else ""


def read_manifests(folder: Path) -> list[dict[str, Any]]:
    """All manifests of a run, in the order of the stages."""
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted((folder / "manifests").glob("[0-9]*.json"))]


def differences(folder: Path, profile: str) -> list[dict[str, str]]:
    """Every setting of the run that is not the paper profile's: notebook, key, run's value, paper's value.

    The run's values are those its manifests resolved, so `--set` counts; a stage that has not run shows its profile.
    """
    resolved = {record["stage"]: record["parameters"] for record in read_manifests(folder)}
    rows = []
    for stage in STAGES:
        paper = read_profile(stage, "paper")
        ours = read_profile(stage, profile) | resolved.get(stage, {})
        for key in dict.fromkeys([*paper, *ours]):
            if key not in NOT_SETTINGS and ours.get(key) != paper.get(key):
                rows.append({"stage": stage, "key": key, "run": _text(ours.get(key)), "paper": _text(paper.get(key))})
    return _common_once(rows)


def _common_once(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A setting that differs in all nine notebooks alike is one row, `all`."""
    count: dict[tuple[str, ...], int] = {}
    for row in rows:
        mark = (row["key"], row["run"], row["paper"])
        count[mark] = count.get(mark, 0) + 1
    shared = {mark for mark, n in count.items() if n == len(STAGES)}
    common = [
        {"stage": "all", "key": key, "run": ours, "paper": paper}
        for key, ours, paper in count
        if (key, ours, paper) in shared
    ]
    return common + [row for row in rows if (row["key"], row["run"], row["paper"]) not in shared]


def _text(value: object) -> str:
    if value is None:
        return "not stated"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def dropped_rows(folder: Path) -> list[dict[str, str]]:
    """Reasons and counts of what each stage left out."""
    rows = []
    for stage in ("01_ingest", "02_dataset"):
        frame = read_csv(folder / stage / "dropped.csv", dtype=str)
        rows += [{"stage": stage, "reason": rule, "rows": f"{n:,}"} for rule, n in frame["rule"].value_counts().items()]
    return rows


def failures(folder: Path) -> pd.DataFrame:
    """04's failed attempts as its summary counts them."""
    return _printed(read_csv(folder / "04_generate/summary/failures.csv"))


def checks(folder: Path) -> list[tuple[str, pd.DataFrame, str]]:
    """What earlier stages found out about their own metrics: title, printed table and note of each summary that there is
    (imported published speeches have none).
    """
    validation, summary = folder / "06_political_alignment/summary/validation.csv", folder / "07_judge/summary"
    titles, notes = {}, {}
    if validation.exists():
        found = read_csv(validation)
        guessed = found[found["split"] == "none"].drop(columns=["split", "check"])
        titles["What Party Align sees in human speeches, by condition and by what training and test share (06)"] = (
            overview(found)
        )
        titles["PSA beside the two guessers' (06)"] = guessed
    if summary.is_dir():
        titles[TRUST] = read_csv(summary / "trust.csv")
        notes[TRUST] = trust_note(folder)
        titles["What the judge could not rate (07)"] = read_csv(summary / "failures.csv")
    return [(title, _printed(frame), notes.get(title, "")) for title, frame in titles.items()]


def _printed(frame: pd.DataFrame) -> pd.DataFrame:
    floats = {name: frame[name].map(number) for name in frame.select_dtypes("floating")}
    return frame.assign(**floats).fillna("—").astype(str)


def missing_scores(scores: pd.DataFrame, kept: Sequence[str], compared: int) -> list[dict[str, str]]:
    """From speeches to the prompts that the tables compare."""
    asked = scores["prompt_id"].nunique()
    silent = int(scores["generated_speech"].isna().sum())
    return [
        {"stage": "04_generate", "reason": "no attempt passed the checks (speeches)", "rows": f"{silent:,}"},
        {
            "stage": "04_generate",
            "reason": "prompts that not every model and type answered",
            "rows": f"{asked - len(set(kept)):,}",
        },
        {
            "stage": "08_statistics",
            "reason": "answered prompts without all ratings",
            "rows": f"{max(len(set(kept)) - compared, 0):,}",
        },
        {"stage": "08_statistics", "reason": "prompts that remain and are compared", "rows": f"{compared:,}"},
    ]


def warnings(folder: Path, specs: Sequence[ModelSpec], judge: str, n_prompts: int) -> list[str]:
    """What a reader must know before believing a number of this run."""
    found = [DEMO_NOTE] if demo_note(specs) else []
    if any(record["parameters"].get("corpus") == "mini" for record in read_manifests(folder)):
        found.append(
            "The corpus is the embedded one: invented debates by invented members, written for this project with a large language "
            "model. No party said any of it, and its row “Human speeches” is that corpus, not people."
        )
    scorer = _signature(folder, specs[0].name, "PPL")
    own = [
        spec.display
        for spec in specs
        if spec.id in scorer or spec.id.rpartition("/")[2] in scorer or spec.name in scorer
    ]
    if own:
        who = ", ".join(own)
        found.append(f"Perplexity is scored by the generators' own base ({who}), so it favours their wording.")
    found += other_readers(folder) + guessing(folder)
    found += _judge_warnings(specs, judge)
    if n_prompts < SMALL_GROUP:
        found.append(
            f"{n_prompts} prompts are compared: with fewer than {SMALL_GROUP} most differences cannot be told from chance."
        )
    if any(record["environment"].get("git_dirty") for record in read_manifests(folder)):
        found.append("The code had changes that no commit holds when a stage ran.")
    return found


def _judge_warnings(specs: Sequence[ModelSpec], judge: str) -> list[str]:
    spec, found = as_spec(read_judge_spec(judge).model), []
    if spec.n_parameters < SMALL_JUDGE:
        size = f"The judge has {spec.n_parameters / 1e6:,.0f} million parameters"
        found.append(
            f"{size}: its scores (J_…) show the mechanism and say next to nothing about speeches (see Checks)."
        )
    if spec.id in {s.id for s in specs}:
        found.append("The judge is one of the generators: it judges its own kind.")
    return found


def _signature(folder: Path, model: str, metric: str) -> str:
    files = sorted((folder / "05_text_metrics" / model).glob("*.signatures.json"))
    return str(json.loads(files[0].read_text(encoding="utf-8")).get(metric, "")) if files else ""


def signatures(folder: Path, sets: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Each metric's signature and whose speeches have it: the settings under which numbers may be compared."""
    found: dict[tuple[str, str], list[str]] = {}
    for stage in ("05_text_metrics", "06_political_alignment"):
        for model, kind in sets:
            record = json.loads((folder / stage / model / f"{kind}.signatures.json").read_text(encoding="utf-8"))
            for metric, signature in record.items():
                found.setdefault((metric, _text(signature)), []).append(f"{model}/{kind}")
    return [
        {"metric": metric, "signature": signature, "of": "all" if len(owners) == len(sets) else ", ".join(owners)}
        for (metric, signature), owners in found.items()
    ]


def provenance_rows(folder: Path) -> list[dict[str, str]]:
    """What ran: job, status, seed, commit, and its notes. Durations and memory are in the manifests themselves."""
    rows = []
    for record in read_manifests(folder):
        if record["status"] == "running":
            continue  # notebook 09 itself, while it writes this
        commit = record["environment"].get("git_commit") or "no git"
        rows.append(
            {
                "job": record["job"],
                "status": record["status"],
                "seed": str(record["seed"]),
                "commit": commit[:10],
                "notes": json.dumps(record["notes"], ensure_ascii=False, sort_keys=True, indent=1),
            }
        )
    return rows


def model_rows(specs: Sequence[ModelSpec]) -> pd.DataFrame:
    """The run's models for the card of the release: checkpoint, revision and licence of each."""
    rows = [(spec.display, spec.id, spec.revision or "not pinned", spec.precision, spec.licence) for spec in specs]
    return pd.DataFrame(rows, columns=["model", "checkpoint", "revision", "precision", "licence"])
