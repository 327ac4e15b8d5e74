"""The jobs of a run: how they are cut, what waits for what; Snakemake agrees."""

import os
import subprocess
import sys

import pytest

from parliabench_utils.run.workflow import jobs
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


@pytest.mark.parametrize("arguments", [["profile=demo"], ["profile=paper", "group_by=model-type-shard", "set=seed=7"]])
def test_snakemake_reads_the_same_jobs(tmp_path, arguments):
    environment = os.environ | {"PARLIABENCH_OUTPUTS": str(tmp_path)}
    command = [sys.executable, "-m", "snakemake", "--profile", "params/cluster/local", "--dry-run", "--quiet", "all"]
    result = subprocess.run(
        [*command, "--config", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
