"""The jobs of a run and what each waits for; the Snakefile turns them into rules, Figure 1 draws them.

How much a job takes is `group_by`: `all` (one call of a notebook does every model and type), `model`, or `model-type-shard`.

>>> [job.name for job in jobs("demo")][:2]
['01_ingest', '02_dataset']
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parliabench_utils.run.manifest import done_path, job_name
from parliabench_utils.run.params import Common, resolve
from parliabench_utils.run.project import outputs_root
from parliabench_utils.run.stages import JOB_KEYS, STAGES, Stage, generated_files, model_types

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


def jobs(
    profile: str, run: str | None = None, group_by: str = "all", settings: dict[str, Any] | None = None
) -> list[WorkflowJob]:
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
