"""ParliaBench as a workflow: a rule a stage, its jobs by wildcards (model, type, shard). It only orders calls of the runner.

    snakemake --profile params/cluster/local --config profile=demo
    snakemake --profile params/cluster/slurm --config profile=paper group_by=model-type-shard set="seed=7 04_generate.min_words=40"

Snakemake gives order, parallel jobs and clusters. Whether a job's outputs still hold the runner's manifests alone decide: jobs that hold
are not asked for, all others are called (`forceall` in the profiles). On a node the one job is known by its name, and nothing is planned.
"""

import atexit
import re
import shlex
import sys
import time

from parliabench_utils.run.params import parse_setting, split_settings
from parliabench_utils.run.project import outputs_root
from parliabench_utils.run.record import outstanding, why_failed
from parliabench_utils.run.stages import JOB_KEYS, as_typed, jobs, read_resources, settings_for

BEGAN = time.time()
GIVEN = as_typed(workflow.config_settings.config_args, config, sys.argv)
PROFILE = GIVEN.get("profile", "demo")
TEXTS = split_settings(GIVEN.get("set", ""))
GROUP_BY = GIVEN.get("group_by", "all")
JOBS = {job.name: job for job in jobs(PROFILE, GIVEN.get("run"), GROUP_BY, dict(map(parse_setting, TEXTS)))}
RUN = JOBS["01_ingest"].params.run
RESOURCES = read_resources(PROFILE)
TODO = {} if workflow.remote_exec else {job.name: job for job in outstanding(JOBS.values())}


def done(name):
    """An empty file that says that the call has ended well."""
    return str(outputs_root() / RUN / "manifests" / f".{name}.done")


def job_of(stage, wildcards):
    return JOBS["-".join([stage, *wildcards])]


def command(job):
    given = settings_for(job.stage, {parse_setting(text)[0]: text.partition("=")[2] for text in TEXTS})
    settings = [text for key, value in given.items() for text in ("--set", f"{key}={value}")]
    cut = [text for key, value in job.cut.items() for text in (f"--{key}", str(value))]
    return shlex.join(
        [sys.executable, "-m", "parliabench_utils", "run", job.stage, "--profile", PROFILE, "--run", RUN, *cut, *settings]
    )


def waits_for(job):
    """The jobs whose outputs it reads; where one call does all models, also the call before it, so that each has the machine.

    (Snakemake 9.15 does not count the cores of a job that is ready alone, and would start 05, 06 and 07 on top of each other.)
    """
    names = list(TODO)
    before = names[: names.index(job.name)][-1:] if GROUP_BY == "all" and job.name in TODO else []
    return [done(name) for name in dict.fromkeys([*job.after, *before]) if name in TODO]


onerror:
    for line in why_failed(TODO.values(), BEGAN):  # after all that Snakemake has to say
        atexit.register(print, line, file=sys.stderr)


localrules:
    all,


rule all:
    input:
        [done(name) for name in TODO],


wildcard_constraints:
    **{key: "|".join(sorted({re.escape(str(job.cut[key])) for job in JOBS.values() if key in job.cut})) or "-" for key in JOB_KEYS},


CUT = {job.stage for job in JOBS.values() if job.cut}
for (stage, keys), job in {(job.stage, tuple(job.cut)): job for job in JOBS.values()}.items():

    rule:
        name:
            f"{stage}_compared" if stage in CUT and not keys else stage
        input:
            lambda wildcards, stage=stage: waits_for(job_of(stage, wildcards)),
        output:
            touch(done("-".join([stage, *(f"{{{key}}}" for key in keys)]))),
        params:
            command=lambda wildcards, stage=stage: command(job_of(stage, wildcards)),
        threads: job.params.n_threads
        resources:
            **RESOURCES[stage].asked(getattr(job.params, "n_processes", 1)),
        shell:
            "{params.command}"
