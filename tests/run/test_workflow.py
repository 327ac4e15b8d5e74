"""The jobs of a run: how they are cut, what waits for what; Snakemake agrees."""

import os
import subprocess
import sys

import pytest
from snakemake.cli import parse_config

from parliabench_utils.run.artefacts import write_json
from parliabench_utils.run.record import why_failed
from parliabench_utils.run.stages import STAGES, as_typed, generated_files, jobs, read_resources
from tests.conftest import ROOT


def names(found):
    return [job.name for job in found]


def test_the_demo_is_nine_calls_in_order(outputs):
    found = jobs("demo")
    assert len(found) == 9
    assert all(names(found).index(earlier) < i for i, job in enumerate(found) for earlier in job.after)


def test_the_paper_profile_is_cut_by_model_type_and_shard(outputs):
    found = jobs("paper", group_by="model-type-shard")
    by_name = {job.name: job for job in found}
    assert len(by_name) == len(found)
    job = by_name["04_generate-yi-6b-fine-tuned-3"]
    assert job.cut == {"model": "yi-6b", "type": "fine-tuned", "shard": 3}
    assert job.after == ("02_dataset", "03_finetune-yi-6b")
    assert by_name["04_generate-yi-6b-baseline-3"].after == ("02_dataset",)
    assert by_name["07_judge-human-human"].after == ("02_dataset",)
    assert set(by_name["05_text_metrics-yi-6b-baseline"].after) == {
        "02_dataset",
        *(f"04_generate-yi-6b-baseline-{k}" for k in range(10)),
    }


def written(job, numbers, folder):
    outputs = STAGES[job.stage].outputs(job.params, folder)
    if job.stage == "04_generate" and job.cut:  # before 02 has run nothing names the shards
        outputs = generated_files(job.params, folder, [job.params.shard] if job.params.shard >= 0 else numbers)
    return outputs


@pytest.mark.parametrize("group_by", ["all", "model", "model-type-shard"])
def test_a_job_waits_for_exactly_those_whose_files_it_reads(outputs, group_by):
    """`Stage.after` says again what `inputs` and `outputs` say file by file: held together here."""
    folder, found = outputs / "paper", jobs("paper", group_by=group_by)
    made = {job.name: written(job, list(range(10)), folder) for job in found}
    cut = {path for job in found if job.cut for path in made[job.name]}
    for name in [job.name for job in found if not job.cut]:
        made[name] = [path for path in made[name] if path not in cut]
    assert len({path for paths in made.values() for path in paths}) == sum(map(len, made.values())), "a file has two writers"
    for job in found:
        read = STAGES[job.stage].inputs(job.params, folder)
        feeds = {o for o, paths in made.items() for p in paths if any(p == r or p.is_relative_to(r) for r in read)}
        assert feeds == set(job.after) if job.cut else feeds <= set(job.after), job.name


def test_what_compares_models_waits_for_all_of_them(outputs):
    summary = {job.name: job for job in jobs("demo", group_by="model-type-shard")}["04_generate"]
    assert {name for name in summary.after if name.startswith("04_generate-")} == {
        f"04_generate-{m}-{t}-0" for m in ("smollm2-135m", "smollm2-135m-nf4") for t in ("baseline", "fine-tuned")
    }


def test_a_setting_may_name_its_notebook(outputs):
    found = {job.stage: job.params for job in jobs("demo", settings={"min_words": 36, "04_generate.min_words": 40})}
    assert (found["02_dataset"].min_words, found["04_generate"].min_words) == (36, 40)
    with pytest.raises(ValueError, match=r"no notebook has a parameter 04_generate\.corpus"):
        jobs("demo", settings={"04_generate.corpus": "mini", "corpus": "mini"})


def test_resources_of_a_stage_grow_with_each_try(tmp_path, monkeypatch):
    monkeypatch.setattr("parliabench_utils.run.stages.project_root", lambda: tmp_path)
    assert read_resources("none")["04_generate"].asked() == {}
    (tmp_path / "params/big").mkdir(parents=True)
    file = tmp_path / "params/big/resources.yaml"
    file.write_text("04_generate: {memory_gb: 48, minutes: 60, gpus: 1}\n", encoding="utf-8")
    asked = read_resources("big")["04_generate"].asked()
    assert [asked["mem_mb"](None, 2), asked["runtime"](None, 3), asked["gpu"]] == [96_000, 180, 1]
    assert read_resources("big")["04_generate"].asked(n_processes=4)["gpu"] == 4
    for text, fault in (
        ("04_generat: {}", "no stage 04_generat"),
        ("04_generate: {memory: 4}", "memory"),
        ("04_generate: 4", "mapping"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=fault):
            read_resources("big")


def test_settings_go_to_the_notebooks_that_declare_them(outputs):
    found = {job.stage: job.params for job in jobs("demo", run="other", settings={"seed": 7, "corpus": "elsewhere"})}
    assert all(params.seed == 7 and params.run == "other" for params in found.values())
    assert found["01_ingest"].corpus == "elsewhere"
    with pytest.raises(ValueError, match="no notebook has a parameter sede"):
        jobs("demo", settings={"sede": 7})
    with pytest.raises(ValueError, match="group_by"):
        jobs("demo", group_by="speaker")


TYPED = ["2026_11_30", "2026-11-30", "007", "1e5", "0x1F", "true", "null", "3.10", "no"]


def test_snakemakes_config_is_what_was_typed():
    for name in TYPED:
        arguments = ["profile=demo", f"run={name}", "set=seed=7 models=[a, b]"]
        config = parse_config(arguments)
        assert as_typed(arguments, config, arguments) == {"profile": "demo", "run": name, "set": "seed=7 models=[a, b]"}
    assert as_typed(["run='007'"], {"run": 7}, ["run='007'"]) == {"run": "007"}
    assert as_typed(None, {"run": "from a file"}, []) == {"run": "from a file"}


@pytest.mark.parametrize(
    ("arguments", "config", "message"),
    [
        (["run=7"], {"run": 7}, "run: 7 is read from a file as no text; give run on the command line"),  # a profile's 007
        (None, {"run": 7}, "run: 7 is no text; write it in quotes"), (None, {"runs": "x"}, "unknown runs; known: profile, run"),
    ],
)  # fmt: skip
def test_a_config_that_is_not_what_was_typed_is_refused(arguments, config, message):
    with pytest.raises(ValueError, match=message):
        as_typed(arguments, config, ["snakemake"])


@pytest.mark.parametrize("name", ["2026_11_30", "007"])
def test_the_runner_gets_the_runs_name_as_typed(tmp_path, name):
    environment = os.environ | {"PARLIABENCH_OUTPUTS": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--dry-run",
        "--printshellcmds",
        "--cores",
        "1",
        "--config",
        "profile=demo",
    ]
    result = subprocess.run([*command, f"run={name}"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.stdout + result.stderr).count(f"--profile demo --run {name}") == 9


@pytest.mark.parametrize(
    "arguments", [["profile=demo"], ["profile=paper", "group_by=model-type-shard", "set=n_shards=64 04_generate.min_words=40"]]
)
def test_snakemake_reads_the_same_jobs(tmp_path, arguments):
    environment = os.environ | {"PARLIABENCH_OUTPUTS": str(tmp_path)}
    command = [sys.executable, "-m", "snakemake", "--profile", "params/cluster/local", "--dry-run", "--quiet", "all"]
    result = subprocess.run(
        [*command, "--config", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_why_jobs_failed_is_said_in_a_line_each(outputs):
    """Of this attempt: what failed before it began is an old story, and a job that was not reached has none."""
    found = jobs("demo", run="one")[:3]
    for job, status in zip(found, ("failed", "done", "failed"), strict=True):
        path = outputs / f"one/.partial/{job.name}/one/manifests/{job.name}.json"
        write_json(path, {"status": status, "reason": "ValueError: no\n such column"})
    os.utime(path, (1, 1))
    log = outputs / "one/notebooks/01_ingest.log"
    assert why_failed([*found, *jobs("demo", run="one")[3:]], since=100.0) == [
        f"01_ingest: ValueError: no such column (log: {log})"
    ]
