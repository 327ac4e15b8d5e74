"""The jobs of a run: how they are cut, what waits for what; Snakemake agrees."""

import os
import subprocess
import sys

import pytest
from snakemake.cli import parse_config

from parliabench_utils.run.stages import as_typed, jobs
from tests.conftest import ROOT


def names(found):
    return [job.name for job in found]


def test_the_demo_is_nine_calls_in_order(outputs):
    found = jobs("demo")
    assert len(found) == 9
    assert all(names(found).index(earlier.name) < i for i, job in enumerate(found) for earlier in job.after)


def test_the_paper_profile_is_cut_by_model_type_and_shard(outputs):
    found = jobs("paper", group_by="model-type-shard")
    by_name = {job.name: job for job in found}
    assert len(by_name) == len(found)
    job = by_name["04_generate-yi-6b-fine-tuned-3"]
    assert job.arguments == ("--model", "yi-6b", "--type", "fine-tuned", "--shard", "3")
    assert names(job.after) == ["02_dataset", "03_finetune-yi-6b"]
    assert names(by_name["04_generate-yi-6b-baseline-3"].after) == ["02_dataset"]
    assert set(names(by_name["05_text_metrics-yi-6b-baseline"].after)) == {
        "02_dataset",
        *(f"04_generate-yi-6b-baseline-{k}" for k in range(10)),
    }
    assert "07_judge-human-human" in by_name


def test_no_file_has_two_writers(outputs):
    for group_by in ("all", "model", "model-type-shard"):
        written = [path for job in jobs("paper", group_by=group_by) for path in job.outputs]
        assert len(written) == len(set(written)), group_by


def test_what_compares_models_waits_for_all_of_them(outputs):
    by_name = {job.name: job for job in jobs("demo", group_by="model-type-shard")}
    summary = by_name["04_generate"]
    assert {path.parent.name for path in summary.outputs} == {"summary"}
    assert {name for name in names(summary.after) if name.startswith("04_generate-")} == {
        f"04_generate-{m}-{t}-0" for m in ("smollm2-135m", "smollm2-135m-nf4") for t in ("baseline", "fine-tuned")
    }


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


@pytest.mark.parametrize("arguments", [["profile=demo"], ["profile=paper", "group_by=model-type-shard", "set=seed=7"]])
def test_snakemake_reads_the_same_jobs(tmp_path, arguments):
    environment = os.environ | {"PARLIABENCH_OUTPUTS": str(tmp_path)}
    command = [sys.executable, "-m", "snakemake", "--profile", "params/cluster/local", "--dry-run", "--quiet", "all"]
    result = subprocess.run(
        [*command, "--config", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
