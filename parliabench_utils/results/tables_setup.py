"""Tables 1 and 3 to 7: metrics, corpus, topics, models and training settings, from the run itself. Notebook 08 writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.paper import published
from parliabench_utils.results.tabular import DASH, Table
from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.params import read_profile
from parliabench_utils.run.project import project_root

BITS = {"fp32": 32, "bf16": 16, "nf4": 4.5}  # nf4: 4 bits and the blocks' scales
TABLE05_COLUMNS = {
    "model": "Model",
    "checkpoint": "Checkpoint",
    "revision": "Revision",
    "precision": "Precision",
    "parameters": "Parameters",
    "weights_mib": "Weights, MiB",
    "memory_reduction_percent": "Memory reduction, %",
    "licence": "Licence",
    "published_memory_reduction": "Reduction, paper",
    "published_inference_speed": "Speed, paper",
}
DATASET_COLUMNS = [
    "speech_id",
    "speaker_id",
    "date",
    "Party",
    "Political Orientation",
    "Topic",
    "cap_topic",
    "topic_method",
]


def read_dataset(folder: Path) -> pd.DataFrame:
    """Training and test speeches of 02 without their text, with `split`."""
    parts = [
        pd.DataFrame(read_jsonl(folder / "02_dataset" / f"{split}.jsonl")).assign(split=split)
        for split in ("train", "test")
    ]
    return pd.concat(parts, ignore_index=True)[[*DATASET_COLUMNS, "n_words", "House", "split"]]


def dataset_files(folder: Path) -> tuple[Path, ...]:
    """The files behind `read_dataset`."""
    return folder / "02_dataset/train.jsonl", folder / "02_dataset/test.jsonl"


def table01() -> Table:
    """The metrics by category, as the code scores them."""
    data = pd.DataFrame(
        {
            "metric": [m.name for m in METRICS],
            "column": [m.column for m in METRICS],
            "category": [m.category for m in METRICS],
            "kind": [m.kind for m in METRICS],
            "better": ["higher" if m.higher_is_better else "lower" for m in METRICS],
            "lowest": [m.range[0] for m in METRICS],
            "highest": [m.range[1] for m in METRICS],
            "section": [m.section for m in METRICS],
        }
    )
    lists = data.groupby(["category", "kind"], sort=False)["metric"].agg(", ".join).unstack("kind")
    display = pd.DataFrame(
        {
            "Evaluation Level": "Speech",
            "Assessment Category": lists.index,
            "Computational Metrics": lists["computed"].to_numpy(),
            "LLM-Judge Metrics": lists["judge"].to_numpy(),
        }
    )
    display.loc[len(display)] = ["Consistency", "Cross-Context Stability", "all of the above", "all of the above"]
    return Table("table01", "Evaluation framework", data, display)


def table03(dataset: pd.DataFrame, inputs: tuple[Path, ...]) -> Table:
    """Speeches, speakers and years of each affiliation of this run, the paper's counts beside them."""
    years = pd.to_datetime(dataset["date"]).dt.year.astype("Int64")
    grouped = dataset.assign(year=years).groupby("Party")
    data = grouped.agg(
        orientation=("Political Orientation", lambda s: " / ".join(sorted(set(s)))),
        speeches=("speech_id", "count"),
        speakers=("speaker_id", "nunique"),
        first_year=("year", "min"),
        last_year=("year", "max"),
    ).reset_index(names="party")
    paper = published(3)[["party", "speeches", "speakers"]]
    data = data.merge(paper.rename(columns=lambda c: c if c == "party" else f"published_{c}"), on="party", how="left")
    for what in ("speeches", "speakers"):
        data[f"difference_{what}"] = data[what] - data[f"published_{what}"]
    data = data.sort_values(["speeches", "party"], ascending=[False, True], ignore_index=True)
    display = pd.DataFrame(
        {
            "Party": data["party"],
            "Orientation": data["orientation"],
            "Speeches": data["speeches"].map("{:,}".format),
            "Speakers": data["speakers"].map("{:,}".format),
            "Active period": [_period(*years) for years in zip(data["first_year"], data["last_year"], strict=True)],
            "Speeches, paper": data["published_speeches"].map(_count),
            "Speakers, paper": data["published_speakers"].map(_count),
        }
    )
    people = dataset["speaker_id"].nunique()
    notes = (
        f"{len(dataset):,} speeches (training and test) by {people:,} people.",
        f"The rows' speakers add up to {data['speakers'].sum():,}: a person who changes affiliation counts in each.",
    )
    return Table("table03", "Parties in the dataset of this run", data, display, notes, inputs)


def _period(first: float, last: float) -> str:
    return DASH if pd.isna(first) else f"{int(first)}–{int(last)}"


def _count(value: float) -> str:
    return DASH if pd.isna(value) else f"{int(value):,}"


def table04(dataset: pd.DataFrame, inputs: tuple[Path, ...]) -> Table:
    """CAP category to EuroVoc domain with the number of speeches of this run; all 22 categories."""
    counted = dataset.assign(cap_topic=dataset["cap_topic"].fillna("(none)"))
    counts = counted.groupby(["cap_topic", "Topic", "topic_method"]).size().rename("speeches").reset_index()
    paper = published(4).rename(columns={"eurovoc_domain": "published_domain", "method": "published_method"})
    data = paper.drop(columns="rationale").merge(counts, left_on="cap_category", right_on="cap_topic", how="outer")
    data["cap_category"] = data["cap_category"].fillna(data.pop("cap_topic"))
    data["speeches"] = data["speeches"].fillna(0).astype(int)
    order = {name: position for position, name in enumerate(paper["cap_category"])}
    data["order"] = data["cap_category"].map(order).fillna(len(order))
    data = data.sort_values(["order", "speeches", "Topic"], ascending=[True, False, True], ignore_index=True)
    data = data[["cap_category", "Topic", "topic_method", "speeches", "published_domain", "published_method"]]
    display = data.fillna(DASH).astype(str)
    display.columns = ["CAP category", "EuroVoc domain", "Method", "Speeches", "Paper's domain", "Paper's method"]
    notes = (
        "The text of section 9.2 says 16 direct and 6 automated categories; its table, repeated here, has 13 and 9.",
    )
    return Table("table04", "From CAP categories to EuroVoc domains", data, display, notes, inputs)


def table05(specs: Sequence, inputs: tuple[Path, ...]) -> Table:
    """The models of this run (`ModelSpec`s). Wall-clock speed is in the manifests, as it differs from run to run."""
    data = pd.DataFrame(
        [
            {
                "model": spec.display,
                "checkpoint": spec.id,
                "revision": spec.revision or (f"sha256 {spec.sha256[:12]}" if spec.sha256 else ""),
                "family": spec.family,
                "precision": spec.precision,
                "parameters": spec.n_parameters,
                "weights_mib": round(spec.n_parameters * BITS[spec.precision] / 8 / 2**20),
                "memory_reduction_percent": round(100 * (1 - BITS[spec.precision] / 16)),
                "licence": spec.licence,
            }
            for spec in specs
        ]
    )
    paper = published(5)[["model", "memory_reduction", "inference_speed"]].add_prefix("published_")
    data = data.merge(paper, left_on="model", right_on="published_model", how="left").drop(columns="published_model")
    display = data.fillna(DASH).astype(str)
    display["parameters"] = data["parameters"].map(lambda n: f"{n / 1e6:,.0f} M")
    display["revision"] = display["revision"].replace("", "not pinned yet")
    display = display.drop(columns="family").rename(columns=TABLE05_COLUMNS)
    notes = (
        "Weights are computed from the number of parameters and the precision; the reduction is against 16 bits.",
        "Speed and memory as measured differ from run to run and so stand apart, in 08_statistics/measured.json.",
    )
    return Table("table05", "Models of this run", data, display, notes, inputs)


def measured(folder: Path, models: Sequence[str]) -> pd.DataFrame:
    """What generating took: model, words, seconds, words_a_second over all attempts of all types, and peak_memory_mib of the
    job, where a job had that model alone; NaN where nothing was measured.
    """
    rows = []
    for model in models:
        spoken = [r for f in sorted((folder / "04_generate" / model).glob("*/shard-*.jsonl")) for r in read_jsonl(f)]
        words, seconds = sum(r["n_words"] or 0 for r in spoken), sum(r["seconds"] or 0 for r in spoken)
        jobs = [
            json.loads(f.read_text(encoding="utf-8"))
            for f in (folder / "manifests").glob(f"04_generate-{model}-*.json")
        ]
        peaks = [job["peak_memory_mib"] for job in jobs if job["status"] == "done"]
        speed = words / seconds if seconds else float("nan")
        rows.append({"model": model, "words": words, "seconds": seconds, "words_a_second": speed})
        rows[-1]["peak_memory_mib"] = max(peaks, default=float("nan"))
    return pd.DataFrame(rows)


def training_tables(folder: Path) -> tuple[Table, Table]:
    """Table 6 (LoRA) and 7 (training): the resolved parameters of 03 beside the paper profile's; dashes where 03 has not run."""
    paper = read_profile("03_finetune", "paper")
    manifests = sorted((folder / "manifests").glob("03_finetune*.json"))
    ours = json.loads(manifests[0].read_text(encoding="utf-8"))["parameters"] if manifests else dict.fromkeys(paper)
    common = set(read_profile("01_ingest", "paper")) & set(read_profile("09_figures", "paper"))
    keys = [key for key in paper if key not in common]
    lora = [key for key in keys if key.startswith("lora")]
    rest = [key for key in keys if key not in lora]
    source = (project_root() / "params/paper/03_finetune.yaml",)
    return (
        _settings("table06", "LoRA settings of this run and of the paper", lora, ours, paper, source),
        _settings("table07", "Training settings of this run and of the paper", rest, ours, paper, source),
    )


def _settings(name: str, title: str, keys: list[str], ours: Mapping, paper: Mapping, inputs: tuple[Path, ...]) -> Table:
    data = pd.DataFrame(
        {
            "parameter": keys,
            "value": [_text(ours.get(key)) for key in keys],
            "paper_profile": [_text(paper[key]) for key in keys],
            "same": [ours.get(key) == paper[key] for key in keys],
        }
    )
    display = data.drop(columns="same").rename(
        columns={"parameter": "Parameter", "value": "This run", "paper_profile": "Paper profile"}
    )
    return Table(
        name, title, data, display, ("From the resolved parameters of notebook 03; sections in params/paper/.",), inputs
    )


def _text(value: object) -> str:
    if value is None:
        return DASH
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
