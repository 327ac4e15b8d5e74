"""The frame of notebooks 05 and 06: references by prompt, jobs apart, extremes, files."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.speeches import (
    all_references,
    by_job,
    correlations,
    extremes,
    per_job,
    read_references,
    write_scores,
)
from parliabench_utils.run.artefacts import write_jsonl


@pytest.fixture
def speeches():
    return pd.DataFrame(
        {
            "prompt_id": ["a", "b", "c", "a"],
            "variant": 0,
            "model": ["m", "m", "m", "human"],
            "type": ["baseline"] * 3 + ["human"],
            "Party": "Labour",
            "generated_speech": ["one", "two", "three", "four"],
            "x": [3.0, 1.0, np.nan, 2.0],
            "y": [1.0, 2.0, 3.0, 4.0],
        }
    )


def test_a_job_s_file_does_not_tell_of_the_other_jobs(tmp_path, speeches):
    run = SimpleNamespace(model_types=[("m", "baseline")], stage_folder=lambda: tmp_path)
    write_scores(run, speeches, ["x"], {})
    alone = (tmp_path / "m/baseline.parquet").read_bytes()
    speeches.attrs["failed"] = {"other/baseline": 3}
    write_scores(run, speeches, ["x"], {})
    assert (tmp_path / "m/baseline.parquet").read_bytes() == alone


def test_references_are_in_rank_order_and_may_be_few_or_none(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", [{"speech_id": name, "Speech": name.upper()} for name in "xyz"])
    chosen = [("p", 2, "x"), ("p", 1, "y"), ("q", 1, "z")]
    rows = [{"prompt_id": p, "rank": rank, "speech_id": s, "similarity": 0.5} for p, rank, s in chosen]
    write_jsonl(tmp_path / "references.jsonl", rows)
    assert read_references(tmp_path, ["p", "q", "none", "p"]) == [["Y", "X"], ["Z"], [], ["Y", "X"]]
    assert all_references(tmp_path) == ["X", "Y", "Z"], "of all prompts, whoever answered them"
    write_jsonl(tmp_path / "references.jsonl", [*rows, rows[0] | {"speech_id": "gone"}])
    with pytest.raises(ValueError, match=r"references\.jsonl names gone"):
        read_references(tmp_path, ["p"])


def test_jobs_are_scored_apart_and_put_back_in_place(speeches):
    mixed = speeches.iloc[[3, 0, 2, 1]]
    sizes = per_job(mixed, lambda job: np.full(len(job), len(job)))
    assert sizes.tolist() == [1, 3, 3, 3]
    table = per_job(mixed, lambda job: pd.DataFrame({"n": range(len(job))}))
    assert table["n"].tolist() == [0, 0, 1, 2]
    assert by_job(speeches, ["x"])["n"].tolist() == [3, 1]


def test_extremes_pass_over_what_is_undefined(speeches):
    assert extremes(speeches, "x")["begins"].tolist() == ["two", "one"]
    assert len(extremes(speeches.assign(x=np.nan), "x")) == 0


def test_correlations_are_within_jobs():
    job = pd.DataFrame({"x": range(6), "y": [5, 4, 3, 2, 1, 0], "model": "m", "type": "baseline"}, dtype=object)
    both = pd.concat([job, job.assign(type="fine-tuned", x=job["x"] + 100, y=job["y"] + 100)])
    (row,) = correlations(both, ["x", "y"]).to_dict("records")
    assert row == {"metric_a": "x", "metric_b": "y", "spearman": -1, "n": 12, "sets": 2}
    (row,) = correlations(both.head(3), ["x", "y"]).to_dict("records")
    assert np.isnan(row["spearman"]) and row["sets"] == 0


def test_every_job_gets_its_files_even_where_nothing_was_said(speeches, tmp_path):
    jobs = [("m", "baseline"), ("human", "human"), ("m", "fine-tuned")]
    run = SimpleNamespace(model_types=jobs, stage_folder=lambda: tmp_path)
    write_scores(run, speeches, ["x"], {"x": "x|v1"})
    assert [len(pd.read_parquet(tmp_path / model / f"{kind}.parquet")) for model, kind in jobs] == [3, 1, 0]
    assert json.loads((tmp_path / "m/fine-tuned.signatures.json").read_text()) == {"x": "x|v1"}
