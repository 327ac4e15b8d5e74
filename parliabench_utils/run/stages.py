"""The nine stages as a table: what each reads and writes, and the jobs that a run is cut into.

The runner, Snakemake and Figure 1 share it. How much a job takes is `group_by`: `all` (one call of a notebook does
every model and type), `model`, or `model-type-shard`.

>>> [job.name for job in jobs("demo")][:2]
['01_ingest', '02_dataset']
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.params import Count, Natural, Parameters, read_yaml, resolve, schema_of
from parliabench_utils.run.project import corpus_folder, project_root

HUMAN = "human"
JOB_KEYS = ("model", "type", "shard")
IMPORT = "import-published"  # the job that brings a run's files instead of stages 01 to 07
CONFIG_KEYS = ("profile", "run", "group_by", "set")  # what --config of Snakemake may say
GROUPS = {"all": (), "model": ("model",), "model-type-shard": JOB_KEYS}
SCORED = (".parquet", ".signatures.json")  # what 05 and 06 write of a set
Paths = Callable[[Parameters, Path], list[Path]]
_NONE = object()


@dataclass(frozen=True)
class Stage:
    """One notebook: `inputs` and `outputs` take (parameters, run folder) and return files or folders.

    `job_keys` are the ways in which its work can be cut: none, by model, by type, by shard; `after` are the stages whose outputs it
    reads. `needed` are files in folders among the inputs: a run may lack one though the folder is there.
    """

    name: str
    title: str
    job_keys: tuple[str, ...]
    after: tuple[str, ...]
    inputs: Paths
    outputs: Paths
    needed: Paths = lambda params, folder: []


@dataclass(frozen=True)
class WorkflowJob:
    """One call of the runner: what it is cut down to (`{}`: everything), and the names of the jobs that it waits for."""

    name: str
    stage: str
    params: Parameters
    cut: dict[str, Any]
    after: tuple[str, ...]


def model_types(stage: str, params: Parameters) -> list[tuple[str, str]]:
    """The (model, type) pairs of a call, human speeches last; one pair when --model and --type are given."""
    types = ["fine-tuned"] if stage == "03_finetune" else params.types
    pairs = [(model, kind) for model in params.models for kind in types]
    if stage in ("05_text_metrics", "06_political_alignment", "07_judge"):
        pairs.append((HUMAN, HUMAN))
    wanted = [p for p in pairs if params.model in ("", p[0]) and params.type in ("", p[1])]
    if not wanted:
        known = ", ".join("/".join(pair) for pair in pairs)
        raise ValueError(f"{stage}: no job {params.model or 'any'}/{params.type or 'any'}; there are {known}")
    return wanted


def shard_numbers(folder: Path) -> list[int] | None:
    """The shards that `prompts.jsonl` of a run names, in order; None where there is none yet."""
    path = folder / "02_dataset/prompts.jsonl"
    return sorted({row.get("shard", 0) for row in read_jsonl(path)}) if path.exists() else None


def shards(params: Parameters, folder: Path) -> list[int]:
    """The shard numbers that a call of 04 generates: all that prompts.jsonl names, or the one of --shard."""
    known = shard_numbers(folder) or []
    if params.shard not in (-1, *known):
        raise ValueError(f"no shard {params.shard} in 02_dataset/prompts.jsonl; there are {known}")
    return known if params.shard == -1 else [params.shard]


def maker(path: Path, folder: Path) -> str | None:
    """The stage that writes a file or folder of a run; None for what lies elsewhere."""
    if not path.is_relative_to(folder):
        return None
    if path.is_relative_to(folder / "04_generate" / HUMAN):
        return "02_dataset"
    first = path.relative_to(folder).parts[0] if path != folder else ""
    last = dict.fromkeys(("figures", "release", "report.html"), "09_figures") | {"tables": "08_statistics", "published": IMPORT}
    return first if first in STAGES else last.get(first)


def is_imported(folder: Path) -> bool:
    """Whether a run holds published speeches that `import-published` brought, instead of its own."""
    return (folder / "manifests" / f"{IMPORT}.json").exists()


def writes_summary(params: Parameters) -> bool:
    """Whether a call compares models at its end: a call for one model, type or shard does not."""
    return not getattr(params, "model", "") and not getattr(params, "type", "") and getattr(params, "shard", -1) == -1


def job_name(stage: str, params: Parameters) -> str:
    """`04_generate`, or `04_generate-<model>-<type>-<shard>` with the parts that the call was cut down to."""
    parts = [str(getattr(params, key, "")) for key in JOB_KEYS]
    return "-".join([stage, *(part for part in parts if part not in ("", "-1"))])


def _dataset(folder: Path, *names: str) -> list[Path]:
    return [folder / "02_dataset" / name for name in names]


def _model_file(name: str) -> Path:
    return project_root() / "params/models" / f"{name}.yaml"


def _model_files(params: Parameters) -> list[Path]:
    chosen = [params.model] if getattr(params, "model", "") else params.models
    return [_model_file(name) for name in chosen if name != HUMAN]


def generated_files(params: Parameters, folder: Path, numbers: list[int]) -> list[Path]:
    """The files of 04 for the given shards, in `04_generate/<model>/<type>/`: speeches, rejected attempts, what made them."""
    names = [name for k in numbers for name in (f"shard-{k}.jsonl", f"rejected-{k}.jsonl", f"model-{k}.json")]
    return [folder / "04_generate" / m / t / name for m, t in model_types("04_generate", params) for name in names]


def _human_file(folder: Path) -> Path:
    return folder / "04_generate/human/human/shard-0.jsonl"


def _adapters(stage: str, params: Parameters, folder: Path, *names: str) -> list[Path]:
    tuned = dict.fromkeys(m for m, t in model_types(stage, params) if t == "fine-tuned")
    return [folder / "03_finetune" / model / name for model in tuned for name in names]


def _finetune_outputs(params: Parameters, folder: Path) -> list[Path]:
    adapter = ("adapter/adapter_model.safetensors", "adapter/adapter_config.json", "adapter/base.json")
    return _adapters("03_finetune", params, folder, *adapter, "train_log.jsonl", "README.md")


def _generate_inputs(params: Parameters, folder: Path) -> list[Path]:
    shown = {t for _, t in model_types("04_generate", params)} & {"few-shot", "retrieval"}
    dataset = _dataset(folder, "prompts.jsonl", *(("train.jsonl", "references.jsonl") if shown else ()))
    return [*dataset, _human_file(folder), *_adapters("04_generate", params, folder, "adapter"), *_model_files(params)]


def _generate_outputs(params: Parameters, folder: Path) -> list[Path]:
    summary = [folder / "04_generate/summary" / name for name in ("kept_prompts.json", "failures.csv")]
    numbers = shards(params, folder) if shard_numbers(folder) is not None else []
    return generated_files(params, folder, numbers) + (summary if writes_summary(params) else [])


def _needed_speeches(params: Parameters, folder: Path) -> list[Path]:
    parts = [
        (m, t, number)
        for m, t in model_types("05_text_metrics", params)  # 06 and 07 score the same
        for number in ([0] if m == HUMAN else shard_numbers(folder) or [])
    ]
    return [folder / "04_generate" / m / t / f"shard-{number}.jsonl" for m, t, number in parts]


def _needed_with(name: str) -> Paths:
    """The speeches, and what 02 has learnt for a metric."""
    learnt = [f"shared/{name}.{kind}" for kind in ("npz", "json")]
    return lambda params, folder: _needed_speeches(params, folder) + _dataset(folder, *learnt)


def _scoring_inputs(stage: str, params: Parameters, folder: Path, *dataset: str) -> list[Path]:
    return [*_dataset(folder, *dataset), *(folder / "04_generate" / m / t for m, t in model_types(stage, params))]


def _scored(stage: str, summary: str) -> Paths:
    def outputs(params: Parameters, folder: Path) -> list[Path]:
        files = [folder / stage / m / f"{t}{kind}" for m, t in model_types(stage, params) for kind in SCORED]
        return files + ([folder / stage / "summary" / summary] if writes_summary(params) else [])

    return outputs


def _text_metrics_inputs(params: Parameters, folder: Path) -> list[Path]:
    names = ("prompts.jsonl", "train.jsonl", "references.jsonl", "shared")
    reader = _model_file(params.language_model)  # a name for the hub has no file
    return [*_scoring_inputs("05_text_metrics", params, folder, *names), *([reader] if reader.exists() else [])]


def _alignment_inputs(params: Parameters, folder: Path) -> list[Path]:
    names = ("prompts.jsonl", "train.jsonl", "test.jsonl", "shared")
    spoken = folder / "01_ingest/speeches.parquet"  # who held office
    return [*_scoring_inputs("06_political_alignment", params, folder, *names), spoken]


def _judge_inputs(params: Parameters, folder: Path) -> list[Path]:
    judges = [name for name in (params.judge, params.second_judge) if name]
    files = dict.fromkeys(file for name in judges for file in _judge_files(name))
    return [*_scoring_inputs("07_judge", params, folder, "prompts.jsonl"), *files]


def _judge_files(name: str) -> list[Path]:
    """A judge's file, its model's, and the files of a judge that it extends."""
    file = project_root() / "params/judges" / f"{name}.yaml"
    values = read_yaml(file) if file.exists() else {}
    model, base = values.get("model"), values.get("extends")
    return [file, *([_model_file(model)] if isinstance(model, str) else []), *(_judge_files(base) if base else [])]


def _judge_outputs(params: Parameters, folder: Path) -> list[Path]:
    files = [folder / "07_judge" / params.judge / m / f"{t}.jsonl" for m, t in model_types("07_judge", params)]
    tables = ("failures.csv", "trust.csv", "trust_measures.csv", "trust.jsonl", "second_judge.jsonl")
    return files + [folder / "07_judge/summary" / name for name in tables if writes_summary(params)]


def _scores_of(params: Parameters, folder: Path, sets: list[tuple[str, str]], kinds: Sequence[str]) -> list[Path]:
    stages = ("05_text_metrics", "06_political_alignment")
    scored = [folder / stage / m / f"{t}{kind}" for stage in stages for m, t in sets for kind in kinds]
    return [*scored, *(folder / "07_judge" / params.judge / m / f"{t}.jsonl" for m, t in sets)]


def _needed_scores(params: Parameters, folder: Path) -> list[Path]:
    if is_imported(folder):
        return [folder / "published/scores.parquet", folder / "published/settings.json"]
    sets = [*((m, t) for m in params.models for t in params.types), (HUMAN, HUMAN)]
    prepared = _dataset(folder, "prompts.jsonl", "train.jsonl", "test.jsonl")
    return [*prepared, folder / "04_generate/summary/kept_prompts.json", *_scores_of(params, folder, sets, SCORED[:1])]


def _statistics_inputs(params: Parameters, folder: Path) -> list[Path]:
    """Speeches and scores of every set that is compared; of an imported run the one frame that was."""
    if is_imported(folder):
        return [folder / "published", *_model_files(params)]
    sets = [*((m, t) for m in params.models for t in params.types), (HUMAN, HUMAN)]
    prepared = ("01_ingest/speeches.parquet", "01_ingest/dropped.csv", "02_dataset", "04_generate/summary")
    speeches = [folder / "04_generate" / m / t for m, t in sets]
    return [*(folder / name for name in prepared), *speeches, *_scores_of(params, folder, sets, SCORED), *_model_files(params)]


def _statistics_outputs(params: Parameters, folder: Path) -> list[Path]:
    checks = ("anova", "mixed_model", "selection", "memorisation", "paper_audit", "codebook")
    names = [*(f"table{n:02d}" for n in range(1, 14)), *checks]
    tables = [folder / "tables" / f"{name}.{kind}" for name in names for kind in ("csv", "tex", "html", "json")]
    return [folder / "08_statistics/scores.parquet", *tables]


def _figure_inputs(params: Parameters, folder: Path) -> list[Path]:
    checks = [] if is_imported(folder) else [folder / "06_political_alignment/summary", folder / "07_judge/summary"]
    made = [folder / name for name in ("08_statistics", "tables")]
    return [*_statistics_inputs(params, folder), *checks, *made, project_root() / "params"]


def _figure_outputs(params: Parameters, folder: Path) -> list[Path]:
    names = [*(f"fig{n}" for n in range(1, 9)), *(f"s{n}" for n in range(1, 5))]
    figures = [folder / "figures" / f"{name}.{kind}" for name in names for kind in ("pdf", "png", "csv", "json")]
    release = [folder / "release" / name for name in ("generated.jsonl", "representative.jsonl", "README.md")]
    return [*figures, *release, folder / "report.html"]


_PREPARED = ("01_ingest", "02_dataset")
_SCORED = ("05_text_metrics", "06_political_alignment", "07_judge")
STAGES = {
    stage.name: stage
    for stage in (
        Stage(
            *("01_ingest", "Ingest", (), ()),
            inputs=lambda params, folder: [corpus_folder(params.corpus, params.data_root)],
            outputs=lambda params, folder: [folder / "01_ingest/speeches.parquet", folder / "01_ingest/dropped.csv"],
        ),
        Stage(
            *("02_dataset", "Dataset", (), ("01_ingest",)),
            inputs=lambda params, folder: [folder / "01_ingest/speeches.parquet"],
            outputs=lambda params, folder: [
                *_dataset(folder, "train.jsonl", "test.jsonl", "prompts.jsonl", "references.jsonl", "dropped.csv", "README.md"),
                *_dataset(folder, "shared"),
                _human_file(folder),
            ],
        ),
        Stage(
            *("03_finetune", "Fine-tune", ("model",), ("02_dataset",)),
            inputs=lambda params, folder: [*_dataset(folder, "train.jsonl", "test.jsonl"), *_model_files(params)],
            outputs=_finetune_outputs,
        ),
        Stage(
            *("04_generate", "Generate", JOB_KEYS, ("02_dataset", "03_finetune"), _generate_inputs, _generate_outputs),
            needed=lambda params, folder: _adapters(
                "04_generate", params, folder, "adapter/adapter_model.safetensors", "adapter/adapter_config.json"
            ),
        ),
        Stage(
            *("05_text_metrics", "Text metrics", ("model", "type"), ("02_dataset", "04_generate"), _text_metrics_inputs),
            *(_scored("05_text_metrics", "correlations.csv"), _needed_with("acceptability")),
        ),
        Stage(
            *("06_political_alignment", "Political alignment", ("model", "type"), (*_PREPARED, "04_generate"), _alignment_inputs),
            *(_scored("06_political_alignment", "validation.csv"), _needed_with("centroids")),
        ),
        Stage(
            *("07_judge", "Judge", ("model", "type"), ("02_dataset", "04_generate")),
            *(_judge_inputs, _judge_outputs, _needed_speeches),
        ),
        Stage(
            *("08_statistics", "Statistics", (), (*_PREPARED, "04_generate", *_SCORED)),
            *(_statistics_inputs, _statistics_outputs, _needed_scores),
        ),
        Stage(
            *("09_figures", "Figures and report", (), (*_PREPARED, "04_generate", *_SCORED, "08_statistics")),
            *(_figure_inputs, _figure_outputs),
            needed=lambda params, folder: [p for p in _statistics_outputs(params, folder) if p.suffix in (".parquet", ".csv")],
        ),
    )
}


def stage_of(notebook: str) -> Stage:
    """A notebook's stage; one of `notebooks/studies/` reads no file of the run and writes into `studies/<notebook>/`."""
    study = Stage(notebook, notebook, (), (), lambda params, folder: [], lambda params, folder: [folder / "studies" / notebook])
    return STAGES.get(notebook, study)


def jobs(profile: str, run: str | None = None, group_by: str = "all", settings: dict[str, Any] | None = None) -> list[WorkflowJob]:
    """All jobs of a run, each after those that it waits for. `settings` apply to the notebooks that declare the key, or to the one
    that it names (`04_generate.min_words`).

    Raises ValueError for an unknown group, or a setting that no notebook declares.
    """
    if group_by not in GROUPS:
        raise ValueError(f"group_by {group_by!r}: expected {', '.join(GROUPS)}")
    params = _resolved(profile, (settings or {}) | ({"run": run} if run is not None else {}))
    numbers = list(range(params["02_dataset"].n_shards))
    found: dict[str, list[WorkflowJob]] = {}
    for name, stage in STAGES.items():
        cuts = _cuts(stage, params[name], GROUPS[group_by], numbers)
        found[name] = [_job(stage, params[name], cut, found) for cut in cuts]
        found[name].append(_job(stage, params[name], {}, found))
    return [job for of_stage in found.values() for job in of_stage]


def _resolved(profile: str, settings: dict[str, Any]) -> dict[str, Parameters]:
    known = {name for stage in STAGES for key in schema_of(stage).model_fields for name in (key, f"{stage}.{key}")}
    if unknown := sorted(set(settings) - known):
        raise ValueError(f"no notebook has a parameter {', '.join(unknown)}")
    return {stage: resolve(stage, profile, settings_for(stage, settings)) for stage in STAGES}


def settings_for(stage: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `settings` that concern a notebook; what names it (`04_generate.min_words`) goes before what is for all."""
    found = ((key, settings.get(f"{stage}.{key}", settings.get(key, _NONE))) for key in schema_of(stage).model_fields)
    return {key: value for key, value in found if value is not _NONE}


def _cuts(stage: Stage, params: Parameters, keys: tuple[str, ...], numbers: list[int]) -> list[dict[str, Any]]:
    """What a stage's calls are cut down to; none where one call does all."""
    keys = tuple(key for key in keys if key in stage.job_keys)
    cuts = [
        {"model": model, "type": kind, "shard": number}
        for model, kind in (model_types(stage.name, params) if keys else [])
        for number in (numbers if "shard" in keys else [0])
    ]
    return [dict(pairs) for pairs in dict.fromkeys(tuple((key, cut[key]) for key in keys) for cut in cuts)]


def _job(stage: Stage, params: Parameters, cut: dict[str, Any], earlier: dict[str, list[WorkflowJob]]) -> WorkflowJob:
    """A call, after those of earlier stages that share its models, types and shards, and after its own stage's cut ones.

    A cut call waits for none that compares models.
    """
    others = [job for name in stage.after for job in earlier[name] if _feeds(job, cut, is_cut=len(earlier[name]) > 1)]
    params = params.model_copy(update=cut)
    waits = [job.name for job in [*others, *(() if cut else earlier.get(stage.name, ()))]]
    return WorkflowJob(job_name(stage.name, params), stage.name, params, cut, tuple(waits))


def _feeds(job: WorkflowJob, cut: dict[str, Any], is_cut: bool) -> bool:
    made = {"type": "fine-tuned"} | job.cut if job.stage == "03_finetune" and job.cut else job.cut
    return not (cut and is_cut and not job.cut) and all(cut.get(key, value) == value for key, value in made.items())


class Resources(BaseModel):
    """What one call of a stage asks of a cluster; the cluster decides what is not said. Threads are the parameter `n_threads`."""

    model_config = ConfigDict(extra="forbid", strict=True)
    memory_gb: Count | None = None
    minutes: Count | None = None
    gpus: Natural = 0

    def asked(self, n_processes: int = 1) -> dict[str, Any]:
        """Snakemake's resources: a call that is tried again gets more memory and time, one of several processes a GPU each."""
        once = {"mem_mb": 1000 * (self.memory_gb or 0), "runtime": self.minutes or 0}
        growing = {key: lambda wildcards, attempt, n=n: n * attempt for key, n in once.items() if n}
        return growing | ({"gpu": max(self.gpus, n_processes)} if self.gpus else {})


def read_resources(profile: str) -> dict[str, Resources]:
    """Each stage's resources, from `params/<profile>/resources.yaml`; ValueError names the file where it says what nobody reads."""
    path = project_root() / "params" / profile / "resources.yaml"
    given = read_yaml(path) if path.exists() else {}
    if unknown := sorted(set(given) - set(STAGES)):
        raise ValueError(f"{path}: no stage {', '.join(unknown)}; there are {', '.join(STAGES)}")
    try:
        return {stage: Resources(**given.get(stage, {})) for stage in STAGES}
    except (TypeError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


def as_typed(arguments: Iterable[str] | None, config: Mapping[str, Any], command_line: Sequence[str]) -> dict[str, str]:
    """Snakemake's `config` as its texts were typed: Snakemake itself takes `run=007` and `run=2026_11_30` for numbers.

    `arguments` are `workflow.config_settings.config_args`, the raw `KEY=VALUE`. A name that stands elsewhere (`--configfile`, a
    Snakemake profile) must come as text. Raises ValueError for a key that the workflow does not know.
    """
    if unknown := sorted(set(config) - set(CONFIG_KEYS)):
        raise ValueError(f"--config: unknown {', '.join(map(str, unknown))}; known: {', '.join(CONFIG_KEYS)}")
    typed = {}
    for argument in arguments or ():
        key, _, value = argument.partition("=")
        if argument not in command_line and not isinstance(config[key], str):
            raise ValueError(f"{key}: {config[key]!r} is read from a file as no text; give {key} on the command line")
        typed[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] in "\"'" else value
    for key in set(config) - set(typed):
        if not isinstance(config[key], str):
            raise ValueError(f"{key}: {config[key]!r} is no text; write it in quotes in the file of --configfile")
        typed[key] = config[key]
    return typed
