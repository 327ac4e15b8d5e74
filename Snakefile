"""ParliaBench as a workflow: one rule a job, made from the table in parliabench_utils/run/stages.py. It only orders calls of the runner.

    snakemake --profile params/cluster/local --config profile=demo
    snakemake --profile params/cluster/slurm --config profile=paper group_by=model-type-shard set="seed=7"

Snakemake gives order, parallel jobs and clusters. Whether a job's outputs still hold the runner alone decides: the profiles have every job called
(`forceall`), and one that holds ends in a moment.
"""

import shlex
import sys

from parliabench_utils.run.params import parse_setting, split_settings
from parliabench_utils.run.project import outputs_root
from parliabench_utils.run.stages import as_typed, jobs

GIVEN = as_typed(workflow.config_settings.config_args, config, sys.argv)
PROFILE = GIVEN.get("profile", "demo")
SETTINGS = split_settings(GIVEN.get("set", ""))
GROUP_BY = GIVEN.get("group_by", "all")
JOBS = jobs(PROFILE, GIVEN.get("run"), GROUP_BY, dict(map(parse_setting, SETTINGS)))


def done(job):
    """An empty file that says that the call has ended well."""
    return str(outputs_root() / job.params.run / "manifests" / f".{job.name}.done")


def command(job):
    declared = [text for text in SETTINGS if parse_setting(text)[0] in type(job.params).model_fields]
    options = [text for setting in declared for text in ("--set", setting)]
    return shlex.join(
        [sys.executable, "-m", "parliabench_utils", "run", job.stage, "--profile", PROFILE, "--run", job.params.run]
        + [*job.arguments, *options]
    )


def waits_for(number):
    """The jobs whose outputs it reads; where one call does all models, also the call before it, so that each has the machine.

    (Snakemake 9.15 does not count the cores of a job that is ready alone, and would start 05, 06 and 07 on top of each other.)
    """
    before = JOBS[max(number - 1, 0) : number] if GROUP_BY == "all" else []
    return list(dict.fromkeys(done(job) for job in [*JOBS[number].after, *before]))


localrules:
    all,


rule all:
    input:
        [done(job) for job in JOBS],


for number, job in enumerate(JOBS):

    rule:
        name:
            job.name.replace("-", "_").replace(".", "_")
        input:
            waits_for(number),
        output:
            touch(done(job)),
        params:
            command=command(job),
        threads: job.params.n_threads
        shell:
            "{params.command}"
