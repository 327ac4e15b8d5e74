"""ParliaBench as a workflow: one rule a job, made from the table in parliabench_utils/run/stages.py. It only calls the runner.

    snakemake --profile params/cluster/local --config profile=demo
    snakemake --profile params/cluster/slurm --config profile=paper group_by=model-type-shard set="seed=7"

The runner decides whether a job's outputs are still valid; Snakemake gives order, parallel jobs and clusters.
"""

import shlex
import sys

from parliabench_utils.run.params import split_settings
from parliabench_utils.run.params import parse_setting
from parliabench_utils.run.project import project_root
from parliabench_utils.run.record import code_hash
from parliabench_utils.run.stages import as_typed
from parliabench_utils.run.stages import jobs

GIVEN = as_typed(workflow.config_settings.config_args, config, sys.argv)
PROFILE = GIVEN.get("profile", "demo")
SETTINGS = split_settings(GIVEN.get("set", ""))
RUN = GIVEN.get("run")
GROUP_BY = GIVEN.get("group_by", "all")
JOBS = jobs(PROFILE, RUN, GROUP_BY, dict(map(parse_setting, SETTINGS)))


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
    return list(dict.fromkeys(str(job.done) for job in [*JOBS[number].after, *before]))


# A job whose outputs were removed is not done; the runner looks at their hashes too.
for job in JOBS:
    if not all(path.exists() for path in job.outputs):
        job.done.unlink(missing_ok=True)


localrules:
    all,


rule all:
    input:
        [str(job.done) for job in JOBS],


for number, job in enumerate(JOBS):

    rule:
        name:
            job.name.replace("-", "_").replace(".", "_")
        input:
            waits_for(number),
        output:
            str(job.done),
        params:
            command=command(job),
            values=job.params.model_dump_json(exclude={"run", "profile", "n_threads"}),
            code=code_hash(project_root() / "notebooks" / f"{job.stage}.py"),
        threads: job.params.n_threads
        shell:
            "{params.command}"
