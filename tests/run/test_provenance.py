"""What a stage reads is what its maker wrote; what a data file's change makes run again."""

import json
import shutil

import pytest

from parliabench_utils.run import record as provenance
from parliabench_utils.run.artefacts import read_jsonl, without_credentials, write_json, write_jsonl
from parliabench_utils.run.params import resolve
from parliabench_utils.run.record import (
    FAULTS_SHOWN,
    check_inputs,
    data_files,
    data_readers,
    describe,
    earlier_outputs,
    fingerprint,
    name_in_manifest,
    source_files,
    vouch_for_import,
)
from parliabench_utils.run.stages import STAGES, maker
from tests.conftest import ROOT
from tests.results.synthetic import write_run

SPEECHES = "04_generate/smollm2-135m/baseline"
RATINGS = "07_judge/smollm2-constrained/smollm2-135m/fine-tuned.jsonl"
LATER = ("08_statistics", "09_figures")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run up to 07 with the manifests of its stages, each with the hashes of what it read."""
    folder = write_run(tmp_path_factory.mktemp("outputs") / "run")
    read_again(folder, list(STAGES)[1:7])
    return folder


def read_again(folder, stages):
    """The manifests of `stages` with what now lies there as their inputs."""
    for stage in stages:
        params = resolve(stage, "demo", {})
        read = [path for path in STAGES[stage].inputs(params, folder) if path.exists() and maker(path, folder)]
        change(folder, stage, inputs=describe(read, folder))


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "outputs/run")


def change(folder, name, **values):
    path = folder / f"manifests/{name}.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, record | values)


def check(folder, stage="08_statistics", **settings):
    params = resolve(stage, "demo", settings)
    check_inputs(stage, [p for p in STAGES[stage].inputs(params, folder) if p.exists()], folder)


def tamper(path, **values):
    write_jsonl(path, [row | values for row in read_jsonl(path)])


@pytest.mark.parametrize("stage", ["05_text_metrics", "06_political_alignment", "07_judge", "08_statistics"])
def test_an_untouched_run_is_read(run, stage):
    check(run, stage)


def test_ratings_set_to_ten_are_refused_by_name(run):
    tamper(run / RATINGS, score=10.0)
    with pytest.raises(ValueError, match=f"08_statistics: .*\n  {RATINGS} was changed after 07_judge .*run 07_judge again"):
        check(run)


@pytest.mark.parametrize(
    "name",
    [
        "01_ingest/dropped.csv",
        "01_ingest/speeches.parquet",
        "02_dataset/train.jsonl",
        "02_dataset/prompts.jsonl",
        "04_generate/summary/kept_prompts.json",
        "04_generate/human/human/shard-0.jsonl",
        f"{SPEECHES}/shard-0.jsonl",
        "05_text_metrics/smollm2-135m/baseline.parquet",
        "05_text_metrics/human/human.signatures.json",
        "06_political_alignment/human/human.parquet",
        RATINGS,
    ],
)
def test_any_byte_of_an_input_counts(run, name):
    path = run / name
    if path.suffix == ".jsonl":
        first = read_jsonl(path)[0]
        tamper(path, **{next(iter(first)): first[next(iter(first))]}, added=1)
    else:
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ValueError, match=f"{name} was changed after {maker(path, run)} wrote it"):
        check(run)


def test_seconds_of_a_rerun_do_not_count(run):
    tamper(run / f"{SPEECHES}/shard-0.jsonl", seconds=99.0)
    check(run)


def test_files_added_or_taken_away_by_hand_are_refused(run):
    added = run / f"{SPEECHES}/shard-1.jsonl"
    write_jsonl(added, [])
    with pytest.raises(ValueError, match=r"shard-1\.jsonl was written by no job of 04_generate: move it out"):
        check(run, "05_text_metrics")
    added.unlink()
    (run / "02_dataset/dropped.csv").unlink()
    with pytest.raises(ValueError, match=r"dropped\.csv is gone since 02_dataset wrote it: run 02_dataset again"):
        check(run)


def test_a_folder_that_was_listed_as_one_is_checked_as_one(run):
    shared = run / "02_dataset/shared"
    write_json(shared / "centroids.json", {"cells": 1})
    listed = json.loads((run / "manifests/02_dataset.json").read_text())["outputs"]
    change(run, "02_dataset", outputs=listed | describe([shared], run, rows=True))
    check(run, "06_political_alignment")
    write_json(shared / "centroids.json", {"cells": 2})
    with pytest.raises(ValueError, match="02_dataset/shared was changed after 02_dataset wrote it"):
        check(run, "06_political_alignment")


@pytest.mark.parametrize("status", ["failed", "running", None])
def test_outputs_of_a_stage_that_has_not_ended_are_not_whole(run, status):
    if status:
        change(run, "07_judge", status=status, outputs={})
    else:
        (run / "manifests/07_judge.json").unlink()
    said = f"manifest says {status}" if status else "has no manifest here"
    with pytest.raises(ValueError, match=f"it belongs to 07_judge, .*{said}: run 07_judge again"):
        check(run)


def test_a_manifest_that_cannot_be_read_is_named(run):
    (run / "manifests/05_text_metrics.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifests/05_text_metrics\.json is no manifest .*run 05_text_metrics again"):
        check(run)


def test_a_job_vouches_for_what_it_wrote_after_the_whole_stage(run):
    shard = run / f"{SPEECHES}/shard-0.jsonl"
    tamper(shard, generated_speech="My Lords.")
    with pytest.raises(ValueError, match=r"shard-0\.jsonl was changed"):
        check(run, "05_text_metrics", model="smollm2-135m", type="baseline")
    written = describe([shard], run, rows=True)
    job = "04_generate-smollm2-135m-baseline-0"
    change(run, job, stage="04_generate", job=job, status="done", inputs={}, outputs=written, parameters={"shard": 0})
    check(run, "05_text_metrics", model="smollm2-135m", type="baseline")


def test_scores_of_other_speeches_than_lie_here_are_refused(run):
    """04 was run again and 05 to 07 were not; or 03, and not 04."""
    shard = run / f"{SPEECHES}/shard-0.jsonl"
    tamper(shard, generated_speech="My Lords.")
    listed = json.loads((run / "manifests/04_generate.json").read_text())["outputs"]
    change(run, "04_generate", outputs=listed | describe([shard], run, rows=True))
    check(run, "05_text_metrics")
    with pytest.raises(ValueError, match=f"05_text_metrics was made from another {SPEECHES} than lies here: run 05"):
        check(run)
    prompts = run / "02_dataset/prompts.jsonl"
    tamper(prompts, instruction="Speak.")
    listed = json.loads((run / "manifests/02_dataset.json").read_text())["outputs"]
    change(run, "02_dataset", outputs=listed | describe([prompts], run, rows=True))
    with pytest.raises(ValueError, match=r"04_generate was made from another 02_dataset/prompts\.jsonl"):
        check(run, "05_text_metrics")


def test_what_an_earlier_call_left_is_no_fault_where_nobody_reads_it(run):
    other = run / "07_judge/other/smollm2-135m/baseline.jsonl"
    write_jsonl(other, [{"score": 1.0}])
    old = {"outputs": describe([other], run, rows=True), "earlier_outputs": {"a": "0", RATINGS: "1"}}
    kept = earlier_outputs(old, [run / RATINGS], run)
    assert set(kept) == {"07_judge/other/smollm2-135m/baseline.jsonl", "a"}
    change(run, "07_judge", earlier_outputs=kept)
    check(run)
    with pytest.raises(ValueError, match="is not of the last call of 07_judge, which was for other models or settings"):
        check_inputs("08_statistics", [other], run)


def test_shards_that_no_prompt_names_any_more_are_past(run):
    for name in ("shard-3.jsonl", "rejected-3.jsonl"):
        write_jsonl(run / SPEECHES / name, [])
    job = "04_generate-smollm2-135m-baseline-3"
    written = describe([run / SPEECHES / "shard-3.jsonl", run / SPEECHES / "rejected-3.jsonl"], run, rows=True)
    old = {"02_dataset/prompts.jsonl": "of more shards"}
    change(run, job, stage="04_generate", job=job, status="done", inputs=old, outputs=written, parameters={"shard": 3})
    check(run, "05_text_metrics")
    read_again(run, ["05_text_metrics", "06_political_alignment", "07_judge"])
    check(run)


def test_an_imported_run_is_vouched_for_by_its_import(run):
    shutil.rmtree(run / "manifests")
    write_json(run / "published/settings.json", {"kept": []})
    shutil.copy(run / "01_ingest/speeches.parquet", run / "published/scores.parquet")
    vouch_for_import(run, run / "02_dataset/test.jsonl")
    check(run)
    write_json(run / "published/settings.json", {"kept": ["p001"]})
    with pytest.raises(ValueError, match=r"published/settings\.json was changed after import-published wrote it"):
        check(run)


def test_many_faults_are_counted(run):
    shutil.rmtree(run / "manifests")
    with pytest.raises(ValueError, match=r"… and \d\d more") as refused:
        check(run)
    assert str(refused.value).count("\n") == FAULTS_SHOWN + 1


def hashed_data(notebook):
    files = source_files(ROOT / "notebooks" / f"{notebook}.py")
    return {file.relative_to(ROOT / "parliabench_utils").as_posix() for file in files if file.suffix != ".py"}


@pytest.mark.parametrize(
    ("name", "stages"),
    {
        "results/codebook.csv": ("08_statistics",),
        "results/paper_tables/table02_scores.csv": LATER,
        "results/paper_tables/table03_parties.csv": LATER,
        "corpus/eurovoc/concepts.csv": ("02_dataset",),
        "corpus/eurovoc/microthesauri.csv": ("02_dataset",),
        "results/templates/report.html.j2": ("09_figures",),
        "results/templates/browser.html.j2": ("09_figures",),
        "results/templates/report.css": ("09_figures",),
    }.items(),
)
def test_data_that_code_reads_is_in_the_hash_of_who_reads_it(name, stages):
    assert all(name in hashed_data(stage) for stage in stages)
    assert name not in hashed_data("03_finetune") and name not in hashed_data("05_text_metrics")


def test_every_data_file_of_the_package_has_a_reader():
    package = ROOT / "parliabench_utils"
    assert data_files(package) and all(data_readers(package, file) for file in data_files(package))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A project of its own: a notebook that imports `one`, which imports `two`; `three` is imported by nobody."""
    root, room = tmp_path / "project", tmp_path / "project/parliabench_utils/room"
    (root / "notebooks").mkdir(parents=True)
    room.mkdir(parents=True)
    (root / "notebooks/n.py").write_text("from parliabench_utils.room import one\n")
    (room.parent / "__init__.py").write_text("")
    (room / "__init__.py").write_text("")
    (room / "one.py").write_text(
        '"""Docstrings name mine.csv, theirs.yaml."""\n'
        'from parliabench_utils.room import two\nRUN = ["-m", "parliabench_utils.room.four"]\n'
    )
    (room / "two.py").write_text('FOLDER = "lists"\n')
    (room / "three.py").write_text('FILE = "theirs.yaml"\n')
    (room / "four.py").write_text('TABLE = "room/mine.csv"\n')
    for name in ("lists/a.txt", "lists/deep/b.json", "theirs.yaml", "mine.csv", "unnamed.bin", ".swp"):
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_text("1")
    monkeypatch.setattr(provenance, "project_root", lambda: root)
    return root


def test_imports_subprocesses_and_named_folders_are_followed(package):
    found = {f.name for f in source_files(package / "notebooks/n.py")}
    assert found == {"n.py", "__init__.py", "one.py", "two.py", "four.py", "a.txt", "b.json", "mine.csv", "unnamed.bin"}


@pytest.mark.parametrize("name", ["lists/a.txt", "lists/deep/b.json", "mine.csv", "unnamed.bin"])
def test_an_edit_of_data_changes_the_code_hash(package, name):
    notebook, file = package / "notebooks/n.py", package / "parliabench_utils/room" / name
    before = provenance.code_hash(notebook)
    file.write_text("2")
    assert provenance.code_hash(notebook) != before


def test_a_new_password_is_no_new_stage_and_another_server_is():
    mark = {url: fingerprint({"server_url": url}, {}, "code") for url in ("http://a:b@h/v1", "http://h/v1", "http://i/v1")}
    assert len(set(mark.values())) == 2 and mark["http://a:b@h/v1"] == mark["http://h/v1"]
    assert without_credentials("http://a:b@h/v1") == "http://h/v1"


def test_another_number_of_threads_is_another_run():
    """Scores and adapters differ in their last digits then; the run's name and profile move no value."""
    marks = [fingerprint({"n_threads": n, "run": run, "profile": run}, {}, "code") for n, run in ((1, "a"), (1, "b"), (2, "a"))]
    assert marks[0] == marks[1] != marks[2]


def test_a_manifest_names_no_folder_of_the_machine(tmp_path):
    assert name_in_manifest(tmp_path / "zuleika/corpus", tmp_path / "outputs/demo") == "corpus"
