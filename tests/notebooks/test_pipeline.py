"""Every notebook through the real runner on a small slice of the demo, and what must hold of the numbers that come out."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from parliabench_utils import cli
from parliabench_utils.results.tables import undescribed
from parliabench_utils.run import runner
from parliabench_utils.run.artefacts import read_jsonl, write_jsonl
from parliabench_utils.run.record import outstanding
from parliabench_utils.run.stages import STAGES, jobs, maker
from tests.conftest import ROOT
from tests.slices import chosen_settings, command, environment, run_all, run_stage

TABLES = [f"table{n:02d}" for n in range(1, 14)]
DIMENSIONS = ("J_Coh", "J_Conc", "J_Rel", "J_Auth", "J_PolApp", "J_Qual")


@pytest.fixture
def run(slice_outputs):
    return slice_outputs / "slice"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_done_and_says_what_made_it(run, stage):
    manifest = json.loads((run / f"manifests/{stage}.json").read_text())
    assert manifest["status"] == "done"
    assert manifest["outputs"]
    assert manifest["environment"]["libraries"]["transformers"]
    assert (run / f"notebooks/{stage}.ipynb").stat().st_size < 5 * 2**20


def test_a_second_run_skips_every_stage(slice_outputs):
    for stage, printed in run_all(slice_outputs).items():
        assert f"{stage}: skipped" in printed


def test_snakemake_asks_only_for_what_does_not_hold_and_what_reads_it(slice_outputs, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_OUTPUTS", str(slice_outputs))
    settings = {f"{stage}.{key}": value for stage in STAGES for key, value in chosen_settings(stage).items()}
    assert outstanding(jobs("demo", "slice", settings=settings)) == []
    folder = shutil.copytree(slice_outputs / "slice", slice_outputs / "lacking")
    (folder / "05_text_metrics/smollm2-135m/baseline.parquet").unlink()
    names = [job.name for job in outstanding(jobs("demo", "lacking", settings=settings))]
    assert names == ["05_text_metrics", "08_statistics", "09_figures"]
    found = outstanding(jobs("demo", "slice", settings=settings | {"08_statistics.correction": "holm"}))
    assert [job.name for job in found] == ["08_statistics", "09_figures"]


def test_tables_and_figures_are_all_there(run):
    for name in TABLES:
        assert pd.read_csv(run / f"tables/{name}.csv").shape[0] > 0, name
        assert re.search(r"begin\{(tabular|longtable)", (run / f"tables/{name}.tex").read_text())
    for number in range(1, 9):
        assert (run / f"figures/fig{number}.pdf").read_bytes().startswith(b"%PDF")
        assert (run / f"figures/fig{number}.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((run / f"figures/fig{number}.json").read_text())


def test_every_column_of_every_file_is_in_the_codebook(run):
    assert undescribed(run) == []


def test_the_report_is_one_file_that_loads_nothing_from_elsewhere(run):
    html = (run / "report.html").read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?:https?:)?//""", html)
    assert "<script src" not in html and html.count("<script>") == 2  # tablesort and the browser for speeches


def test_all_models_and_types_answer_the_same_prompts(run):
    prompts = {row["prompt_id"] for row in read_jsonl(run / "02_dataset/prompts.jsonl")}
    folders = [folder for folder in (run / "04_generate").glob("*/*") if folder.is_dir()]
    assert len(folders) == 3
    for folder in folders:
        rows = [row for file in folder.glob("shard-*.jsonl") for row in read_jsonl(file)]
        assert {row["prompt_id"] for row in rows} == prompts


def test_no_judge_dimension_is_constant(run):
    rows = pd.DataFrame([row for file in (run / "07_judge").rglob("*.jsonl") for row in read_jsonl(file)])
    spread = rows.groupby("dimension")["score"].nunique()
    assert set(spread.index) == set(DIMENSIONS)
    assert (spread > 1).all(), spread.to_dict()


def test_another_seed_moves_the_speeches_and_their_scores(slice_outputs):
    shutil.copytree(slice_outputs / "slice", slice_outputs / "seed43")
    for stage in ("04_generate", "05_text_metrics"):
        run_stage(stage, slice_outputs, "seed43", seed=43)
    one, other = (pd.read_parquet(slice_outputs / r / "05_text_metrics/smollm2-135m/baseline.parquet") for r in ("slice", "seed43"))
    both = one.merge(other, on=["prompt_id", "variant"], suffixes=("", " other"))
    assert (both["PPL"] != both["PPL other"]).all()


def test_edited_ratings_are_refused_by_name(slice_outputs):
    """All of a set's ratings made 10 by hand: 08 says so before a kernel starts, and the run's tables stay."""
    folder = shutil.copytree(slice_outputs / "slice", slice_outputs / "edited")
    name = "07_judge/smollm2-constrained/smollm2-135m/fine-tuned.jsonl"
    write_jsonl(folder / name, [row | {"score": 10.0} for row in read_jsonl(folder / name)])
    before = (folder / "tables/table02.csv").read_bytes()
    refused = subprocess.run(
        command("08_statistics", "edited", correction="holm"),
        cwd=ROOT, env=environment(slice_outputs), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert f"{name} was changed after 07_judge wrote it: run 07_judge again" in " ".join(refused.stderr.split())
    assert (folder / "tables/table02.csv").read_bytes() == before


def test_a_servers_password_is_in_no_file(slice_outputs):
    folder = shutil.copytree(slice_outputs / "slice", slice_outputs / "secret")
    address = "http://ann:hush-hush-77@127.0.0.1:9/v1?api_key=key-hush-77"
    settings = {
        "judge": "flow-judge-server",
        "server_url": address,
        "second_judge": '""',
        "model": "human",
        "type": "human",
    }
    failed = subprocess.run(
        command("07_judge", "secret", **settings),
        cwd=ROOT, env=environment(slice_outputs), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert failed.returncode == 1 and "hush" not in failed.stderr
    record = json.loads((folder / "manifests/07_judge-human-human.json").read_text())
    assert record["parameters"]["server_url"] == "http://127.0.0.1:9/v1?api_key=[removed]"
    assert [f for f in folder.rglob("*") if f.is_file() and b"hush" in f.read_bytes()] == []


def test_nothing_that_a_run_keeps_names_this_machine(run):
    places = [str(place).encode() for place in (ROOT, ROOT.resolve(), run.parent, Path.home(), tempfile.gettempdir())]
    files = [
        file for file in run.rglob("*") if file.suffix in {".ipynb", ".log", ".json", ".jsonl", ".md", ".html", ".csv", ".tex"}
    ]
    assert len(files) > 100
    found = {(file.name, place) for file in files for place in places if place + b"/" in file.read_bytes()}
    assert found == set()
    for file in (run / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(file, 4)
        nbformat.validate(notebook)
        assert notebook.metadata.papermill.output_path == f"notebooks/{file.name}"


NEEDED = {
    "02_dataset": "01_ingest/speeches.parquet",
    "03_finetune": "02_dataset/train.jsonl",
    "04_generate": "03_finetune/smollm2-135m/adapter/adapter_config.json",
    "05_text_metrics": "04_generate/smollm2-135m/baseline/shard-1.jsonl",
    "06_political_alignment": "02_dataset/shared/centroids.npz",
    "07_judge": "04_generate/human/human/shard-0.jsonl",
    "08_statistics": "06_political_alignment/smollm2-135m/baseline.parquet",
    "09_figures": "tables/table08.csv",
}


@pytest.mark.parametrize("stage", NEEDED)
def test_a_missing_file_is_refused_before_a_kernel_starts_and_nothing_is_touched(slice_outputs, stage, monkeypatch, capsys):
    monkeypatch.setenv("PARLIABENCH_OUTPUTS", str(slice_outputs))
    monkeypatch.setattr(runner, "_execute", lambda *_: pytest.fail("a kernel was started"))
    run, lacking = slice_outputs / "slice", slice_outputs / "slice" / NEEDED[stage]
    aside = lacking.replace(slice_outputs / "aside")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    try:
        assert cli.main(command(stage, "slice")[3:]) == 2
    finally:
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
        aside.replace(lacking)
    assert f"missing input: {NEEDED[stage]} (run {maker(lacking, run)} first)" in capsys.readouterr().err


def _shard(outputs, kind, number):
    """A job of one shard of the run `shards`, started."""
    return subprocess.Popen(
        [*command("04_generate", "shards"), "--model", "smollm2-135m", "--type", kind, "--shard", str(number)],
        cwd=ROOT,
        env=environment(outputs),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_shards_side_by_side_and_alone_give_the_rows_of_one_call(slice_outputs):
    run = slice_outputs / "shards"
    shutil.copytree(slice_outputs / "slice", run)
    shutil.rmtree(run / "04_generate/smollm2-135m")
    shutil.rmtree(run / "04_generate/summary")
    (run / "manifests/04_generate.json").unlink()
    both = [_shard(slice_outputs, "baseline", number) for number in (0, 1)]
    for process in both:
        printed, _ = process.communicate()
        assert process.returncode == 0, printed
        assert "waiting" not in printed
    alone = _shard(slice_outputs, "fine-tuned", 1)
    assert alone.communicate() and alone.returncode == 0
    made = {file: file.stat().st_ino for file in (run / "04_generate").glob("*/*/shard-*.jsonl")}
    assert len(made) == 4  # two of the base, one of the tuned model, and the human one
    run_stage("04_generate", slice_outputs, "shards")
    assert all(file.stat().st_ino == inode for file, inode in made.items())  # the last call makes only what is missing
    records = [json.loads((slice_outputs / r / "manifests/04_generate.json").read_text()) for r in ("shards", "slice")]
    assert records[0]["outputs"] == records[1]["outputs"]
