"""The nine stages as a table: what each reads and writes, for given parameters. The runner, Snakemake and Figure 1
share it.

>>> STAGES["04_generate"].title
'Generate'

The jobs of a run and what each waits for; the Snakefile turns them into rules, Figure 1 draws them.

How much a job takes is `group_by`: `all` (one call of a notebook does every model and type), `model`, or `model-type-shard`.

>>> [job.name for job in jobs("demo")][:2]
['01_ingest', '02_dataset']
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parliabench_utils.run.params import Common, read_yaml, resolve
from parliabench_utils.run.project import corpus_folder, outputs_root, project_root

HUMAN = "human"
JOB_KEYS = ("model", "type", "shard")
IMPORT = "import-published"  # the job that brings a run's files instead of stages 01 to 07


@dataclass(frozen=True)
class Stage:
    """One notebook: `inputs` and `outputs` take (parameters, run folder) and return files or folders.

    `job_keys` are the ways in which its work can be cut: none, by model, by type, by shard.
    """

    name: str
    title: str
    job_keys: tuple[str, ...]
    inputs: Callable[[Common, Path], list[Path]]
    outputs: Callable[[Common, Path], list[Path]]


def model_types(stage: str, params: Common) -> list[tuple[str, str]]:
    """The (model, type) pairs of a call, human speeches last; one pair when --model and --type are given."""
    if stage == "03_finetune":
        pairs = [(model, "fine-tuned") for model in params.models]
    else:
        pairs = [(model, kind) for model in params.models for kind in params.types]
    if stage in ("05_text_metrics", "06_political_alignment", "07_judge"):
        pairs.append((HUMAN, HUMAN))
    wanted = [p for p in pairs if params.model in ("", p[0]) and params.type in ("", p[1])]
    if not wanted:
        known = ", ".join("/".join(pair) for pair in pairs)
        raise ValueError(f"{stage}: no job {params.model or 'any'}/{params.type or 'any'}; there are {known}")
    return wanted


def shards(params: Common, folder: Path) -> list[int]:
    """The shard numbers that a call of 04 generates: all that prompts.jsonl names, or the one of --shard."""
    known = _known_shards(folder)
    if params.shard == -1:
        return known
    if params.shard not in known:
        raise ValueError(f"no shard {params.shard} in 02_dataset/prompts.jsonl; there are {known}")
    return [params.shard]


def shard_numbers(folder: Path) -> set[int] | None:
    """The shards that `prompts.jsonl` of a run names; None where there is none yet."""
    return set(_known_shards(folder)) if (folder / "02_dataset/prompts.jsonl").exists() else None


def _known_shards(folder: Path) -> list[int]:
    from parliabench_utils.run.artefacts import read_jsonl

    return sorted({row.get("shard", 0) for row in read_jsonl(folder / "02_dataset/prompts.jsonl")})


def maker(path: Path, folder: Path) -> str | None:
    """The stage that writes a file or folder of a run; None for what lies elsewhere."""
    if not path.is_relative_to(folder):
        return None
    name = path.relative_to(folder).as_posix()
    if name == f"04_generate/{HUMAN}" or name.startswith(f"04_generate/{HUMAN}/"):
        return "02_dataset"
    first = name.partition("/")[0]
    last = {"tables": "08_statistics", "figures": "09_figures", "release": "09_figures", "report.html": "09_figures"}
    return first if first in STAGES else last.get(first)


def writes_summary(params: Common) -> bool:
    """Whether a call compares models at its end: a call for one model, type or shard does not."""
    return not getattr(params, "model", "") and not getattr(params, "type", "") and getattr(params, "shard", -1) == -1


def _dataset(*names: str) -> Callable[[Common, Path], list[Path]]:
    return lambda params, folder: [folder / "02_dataset" / name for name in names]


def _model_files(params: Common) -> list[Path]:
    chosen = [params.model] if getattr(params, "model", "") else params.models
    return [_model_file(name) for name in chosen if name != HUMAN]


def _model_file(name: str) -> Path:
    return project_root() / "params/models" / f"{name}.yaml"


def generated_files(params: Common, folder: Path, numbers: list[int]) -> list[Path]:
    """The files of 04 for the given shards, in `04_generate/<model>/<type>/`: speeches, rejected attempts, what made them."""
    names = [name for k in numbers for name in (f"shard-{k}.jsonl", f"rejected-{k}.jsonl", f"model-{k}.json")]
    return [folder / "04_generate" / m / t / name for m, t in model_types("04_generate", params) for name in names]


def _generated_folders(stage: str, params: Common, folder: Path) -> list[Path]:
    return [folder / "04_generate" / m / t for m, t in model_types(stage, params)]


def _ingest_inputs(params: Common, folder: Path) -> list[Path]:
    return [corpus_folder(params.corpus, params.data_root)]


def _finetune_inputs(params: Common, folder: Path) -> list[Path]:
    return [*_dataset("train.jsonl", "test.jsonl")(params, folder), *_model_files(params)]


def _adapter_files(params: Common, folder: Path) -> list[Path]:
    adapter = ("adapter/adapter_model.safetensors", "adapter/adapter_config.json", "adapter/base.json")
    names = (*adapter, "train_log.jsonl", "README.md")
    return [folder / "03_finetune" / model / name for model, _ in model_types("03_finetune", params) for name in names]


def _generate_inputs(params: Common, folder: Path) -> list[Path]:
    tuned = [m for m, t in model_types("04_generate", params) if t == "fine-tuned"]
    adapters = [folder / "03_finetune" / model / "adapter" for model in tuned]
    shown = {t for _, t in model_types("04_generate", params)} & {"few-shot", "retrieval"}
    dataset = _dataset("prompts.jsonl", *(("train.jsonl", "references.jsonl") if shown else ()))(params, folder)
    return [*dataset, _human_file(folder), *adapters, *_model_files(params)]


def _human_file(folder: Path) -> Path:
    return folder / "04_generate/human/human/shard-0.jsonl"


def _generate_outputs(params: Common, folder: Path) -> list[Path]:
    summary = [folder / "04_generate/summary" / name for name in ("kept_prompts.json", "failures.csv")]
    numbers = shards(params, folder) if (folder / "02_dataset/prompts.jsonl").exists() else []
    return generated_files(params, folder, numbers) + (summary if writes_summary(params) else [])


def needed_files(stage: str, params: Common, folder: Path) -> list[Path]:
    """Files that a stage reads from the folders among its inputs. A run may lack one though its folder is there."""
    needed = {
        "04_generate": _needed_adapters,
        "05_text_metrics": lambda p, f: _needed_speeches(p, f) + _learnt_files(f, "acceptability"),
        "06_political_alignment": lambda p, f: _needed_speeches(p, f) + _learnt_files(f, "centroids"),
        "07_judge": _needed_speeches,
        "08_statistics": _needed_scores,
        "09_figures": _needed_tables,
    }
    return needed[stage](params, folder) if stage in needed else []


def _needed_adapters(params: Common, folder: Path) -> list[Path]:
    tuned = dict.fromkeys(m for m, t in model_types("04_generate", params) if t == "fine-tuned")
    names = ("adapter_model.safetensors", "adapter_config.json")
    return [folder / "03_finetune" / model / "adapter" / name for model in tuned for name in names]


def _needed_speeches(params: Common, folder: Path) -> list[Path]:
    known = _known_shards(folder) if (folder / "02_dataset/prompts.jsonl").exists() else []
    pairs = model_types("05_text_metrics", params)  # 06 and 07 score the same
    parts = [(m, t, number) for m, t in pairs for number in ([0] if m == HUMAN else known)]
    return [folder / "04_generate" / m / t / f"shard-{number}.jsonl" for m, t, number in parts]


def _learnt_files(folder: Path, name: str) -> list[Path]:
    return [folder / "02_dataset/shared" / f"{name}.{kind}" for kind in ("npz", "json")]


def _needed_scores(params: Common, folder: Path) -> list[Path]:
    """An imported run has no human speeches and no training."""
    pairs = [(m, t) for m in params.models for t in params.types]
    pairs += [(HUMAN, HUMAN)] * (folder / "04_generate" / HUMAN).is_dir()
    scored = [f"{stage}/{m}/{t}.parquet" for stage in ("05_text_metrics", "06_political_alignment") for m, t in pairs]
    judged = [f"07_judge/{params.judge}/{m}/{t}.jsonl" for m, t in pairs]
    prepared = ["02_dataset/prompts.jsonl", "02_dataset/train.jsonl", "02_dataset/test.jsonl"]
    return [folder / name for name in [*prepared, "04_generate/summary/kept_prompts.json", *scored, *judged]]


def _needed_tables(params: Common, folder: Path) -> list[Path]:
    return [path for path in _statistics_outputs(params, folder) if path.suffix in (".parquet", ".csv")]


def _scoring_inputs(stage: str, *dataset: str) -> Callable[[Common, Path], list[Path]]:
    return lambda params, folder: [*_dataset(*dataset)(params, folder), *_generated_folders(stage, params, folder)]


def _scored(stage: str, suffix: str, *summary: str) -> Callable[[Common, Path], list[Path]]:
    def outputs(params: Common, folder: Path) -> list[Path]:
        names = (suffix, ".signatures.json")
        files = [folder / stage / m / f"{t}{name}" for m, t in model_types(stage, params) for name in names]
        compared = [folder / stage / "summary" / name for name in summary] if writes_summary(params) else []
        return files + compared

    return outputs


def _text_metrics_inputs(params: Common, folder: Path) -> list[Path]:
    names = ("prompts.jsonl", "train.jsonl", "references.jsonl", "shared")
    reader = _model_file(params.language_model)  # a name for the hub has no file
    return [*_scoring_inputs("05_text_metrics", *names)(params, folder), *([reader] if reader.exists() else [])]


def _alignment_inputs(params: Common, folder: Path) -> list[Path]:
    names = ("prompts.jsonl", "train.jsonl", "test.jsonl", "shared")
    spoken = folder / "01_ingest/speeches.parquet"  # who held office
    return [*_scoring_inputs("06_political_alignment", *names)(params, folder), spoken]


def _judge_inputs(params: Common, folder: Path) -> list[Path]:
    judges = [name for name in (params.judge, params.second_judge) if name]
    files = dict.fromkeys(file for name in judges for file in _judge_files(name))
    return [*_scoring_inputs("07_judge", "prompts.jsonl")(params, folder), *files]


def _judge_files(name: str) -> list[Path]:
    """A judge's file, its model's, and the files of a judge that it extends."""
    file = project_root() / "params/judges" / f"{name}.yaml"
    values = read_yaml(file) if file.exists() else {}
    model, base = values.get("model"), values.get("extends")
    return [file, *([_model_file(model)] if isinstance(model, str) else []), *(_judge_files(base) if base else [])]


def _judge_outputs(params: Common, folder: Path) -> list[Path]:
    files = [folder / "07_judge" / params.judge / m / f"{t}.jsonl" for m, t in model_types("07_judge", params)]
    tables = ("failures.csv", "trust.csv", "trust_measures.csv", "trust.jsonl", "second_judge.jsonl")
    return files + [folder / "07_judge/summary" / name for name in tables if writes_summary(params)]


def _statistics_inputs(params: Common, folder: Path) -> list[Path]:
    prepared = ["01_ingest/speeches.parquet", "01_ingest/dropped.csv", "02_dataset", "04_generate/summary"]
    return [*(folder / name for name in prepared), *_scores_of_sets(params, folder), *_model_files(params)]


def _scores_of_sets(params: Common, folder: Path) -> list[Path]:
    """Speeches and scores of every set that is compared; only imported published speeches come without human ones."""
    sets = [(m, t) for m in params.models for t in params.types]
    sets += [] if is_imported(folder) else [(HUMAN, HUMAN)]
    scored = [
        folder / stage / m / f"{t}{kind}"
        for stage in ("05_text_metrics", "06_political_alignment")
        for m, t in sets
        for kind in (".parquet", ".signatures.json")
    ]
    judged = [folder / "07_judge" / params.judge / m / f"{t}.jsonl" for m, t in sets]
    return [*(folder / "04_generate" / m / t for m, t in sets), *scored, *judged]


def is_imported(folder: Path) -> bool:
    """Whether a run holds published speeches that `import-published` brought, instead of its own."""
    return (folder / "manifests" / f"{IMPORT}.json").exists()


def _statistics_outputs(params: Common, folder: Path) -> list[Path]:
    checks = ("anova", "mixed_model", "selection", "memorisation", "paper_audit", "codebook")
    names = [*(f"table{n:02d}" for n in range(1, 14)), *checks]
    tables = [folder / "tables" / f"{name}.{kind}" for name in names for kind in ("csv", "tex", "html", "json")]
    return [folder / "08_statistics/scores.parquet", *tables]


def _figure_inputs(params: Common, folder: Path) -> list[Path]:
    checks = [] if is_imported(folder) else [folder / "06_political_alignment/summary", folder / "07_judge/summary"]
    made = [folder / name for name in ("08_statistics", "tables")]
    return [*_statistics_inputs(params, folder), *checks, *made, project_root() / "params"]


def _figure_outputs(params: Common, folder: Path) -> list[Path]:
    names = [*(f"fig{n}" for n in range(1, 9)), *(f"s{n}" for n in range(1, 5))]
    figures = [folder / "figures" / f"{name}.{kind}" for name in names for kind in ("pdf", "png", "csv", "json")]
    release = [folder / "release" / name for name in ("generated.jsonl", "representative.jsonl", "README.md")]
    return [*figures, *release, folder / "report.html"]


STAGES = {
    stage.name: stage
    for stage in (
        Stage(
            "01_ingest",
            "Ingest",
            (),
            _ingest_inputs,
            lambda params, folder: [folder / "01_ingest/speeches.parquet", folder / "01_ingest/dropped.csv"],
        ),
        Stage(
            "02_dataset",
            "Dataset",
            (),
            lambda params, folder: [folder / "01_ingest/speeches.parquet"],
            lambda params, folder: [
                *_dataset(
                    "train.jsonl",
                    "test.jsonl",
                    "prompts.jsonl",
                    "references.jsonl",
                    "dropped.csv",
                    "README.md",
                    "shared",
                )(params, folder),
                _human_file(folder),
            ],
        ),
        Stage("03_finetune", "Fine-tune", ("model",), _finetune_inputs, _adapter_files),
        Stage("04_generate", "Generate", JOB_KEYS, _generate_inputs, _generate_outputs),
        Stage(
            "05_text_metrics",
            "Text metrics",
            ("model", "type"),
            _text_metrics_inputs,
            _scored("05_text_metrics", ".parquet", "correlations.csv"),
        ),
        Stage(
            "06_political_alignment",
            "Political alignment",
            ("model", "type"),
            _alignment_inputs,
            _scored("06_political_alignment", ".parquet", "validation.csv"),
        ),
        Stage("07_judge", "Judge", ("model", "type"), _judge_inputs, _judge_outputs),
        Stage("08_statistics", "Statistics", (), _statistics_inputs, _statistics_outputs),
        Stage(
            "09_figures",
            "Figures and report",
            (),
            _figure_inputs,
            _figure_outputs,
        ),
    )
}


def job_name(stage: str, params: Common) -> str:
    """`04_generate`, or `04_generate-<model>-<type>-<shard>` with the parts that the call was cut down to."""
    parts = [str(getattr(params, key, "")) for key in JOB_KEYS]
    return "-".join([stage, *(part for part in parts if part not in ("", "-1"))])


def done_path(folder: Path, name: str) -> Path:
    """A small file with the hashes of a finished job's outputs, written last; Snakemake waits for it."""
    return folder / "manifests" / f".{name}.done"


CONFIG_KEYS = ("profile", "run", "group_by", "set")  # what --config of Snakemake may say
GROUPS = {"all": (), "model": ("model",), "model-type-shard": JOB_KEYS}


@dataclass(frozen=True)
class WorkflowJob:
    """One call of the runner: the jobs it waits for, the files it leaves, the arguments that select it.

    `done` is the file that the runner writes last; it holds the hashes of the outputs, so that a job that ran again and changed
    nothing starts nothing after it.
    """

    name: str
    stage: str
    params: Common
    after: tuple["WorkflowJob", ...]
    outputs: tuple[Path, ...]
    arguments: tuple[str, ...]
    done: Path


def jobs(profile: str, run: str | None = None, group_by: str = "all", settings: dict[str, Any] | None = None) -> list[WorkflowJob]:
    """All jobs of a run, each after those that it waits for. `settings` apply to the notebooks that declare the key.

    Raises ValueError for an unknown group, or a setting that no notebook declares.
    """
    if group_by not in GROUPS:
        raise ValueError(f"group_by {group_by!r}: expected {', '.join(GROUPS)}")
    given = (settings or {}) | ({"run": run} if run is not None else {})
    resolved = {stage: resolve(stage, profile, _declared(stage, given)) for stage in STAGES}
    _refuse_unknown(given)
    folder = outputs_root() / resolved["01_ingest"].run
    numbers = list(range(resolved["02_dataset"].n_shards))
    found: list[WorkflowJob] = []
    for stage in STAGES.values():
        for cut in _cuts(stage, resolved[stage.name], GROUPS[group_by], numbers):
            params = resolved[stage.name].model_copy(update=cut)
            found.append(_job(stage, params, folder, numbers, cut, found))
    return found


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


def _declared(stage: str, settings: dict[str, Any]) -> dict[str, Any]:
    from parliabench_utils.run.params import schema_of

    return {key: value for key, value in settings.items() if key in schema_of(stage).model_fields}


def _refuse_unknown(settings: dict[str, Any]) -> None:
    known = {key for stage in STAGES for key in _declared(stage, settings)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ValueError(f"no notebook has a parameter {', '.join(unknown)}")


def _cuts(stage: Stage, params: Common, keys: tuple[str, ...], numbers: list[int]) -> list[dict[str, Any]]:
    """How a stage is cut into calls: the cut calls first, then the one that compares models (an empty cut)."""
    keys = tuple(key for key in keys if key in stage.job_keys)
    if not keys:
        return [{}]
    cuts = []
    for model, kind in model_types(stage.name, params):
        cut = {"model": model} | ({"type": kind} if "type" in keys else {})
        cuts += [cut | {"shard": number} for number in numbers] if "shard" in keys else [cut]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(cut.items()) for cut in cuts)] + [{}]


def _job(
    stage: Stage, params: Common, folder: Path, numbers: list[int], cut: dict[str, Any], earlier: list[WorkflowJob]
) -> WorkflowJob:
    outputs = stage.outputs(params, folder)
    if stage.name == "04_generate":
        outputs = [*generated_files(params, folder, [params.shard] if params.shard >= 0 else numbers), *outputs]
    needed = stage.inputs(params, folder)
    after = [job for job in earlier if any(_feeds(job, path) for path in needed)]
    if not cut:
        after += [job for job in earlier if job.stage == stage.name]
    made = {path for job in earlier for path in job.outputs}
    return WorkflowJob(
        job_name(stage.name, params),
        stage.name,
        params,
        tuple(after),
        tuple(path for path in dict.fromkeys(outputs) if path not in made),
        tuple(text for key, value in cut.items() for text in (f"--{key}", str(value))),
        done_path(folder, job_name(stage.name, params)),
    )


def _feeds(job: WorkflowJob, path: Path) -> bool:
    """Whether a job writes `path` or a file below it."""
    return any(file == path or file.is_relative_to(path) for file in job.outputs)
