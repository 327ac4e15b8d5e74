"""Release files: the paper's keys, the mark, the stated rule for representative speeches, the card."""

import json

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results import release
from parliabench_utils.results.report import browser, browser_prompts, model_names
from parliabench_utils.results.scores import is_compared, join_scores, kept_prompts
from parliabench_utils.results.statistics import speech_difficulty
from parliabench_utils.run.artefacts import read_jsonl
from tests.results.synthetic import MODELS, SETS, write_run

NAMES = model_names(MODELS)
MODEL_ROWS = pd.DataFrame({"model": MODELS, "licence": "made up | for the test"})
# Section 3.2's example entry and what section 3.2 adds for the generated data, as printed there.
TRAINING_KEYS = ["Party", "Topic", "Political Orientation", "Section", "House", "Speech", "Prompts"]
GENERATED_KEYS = [*TRAINING_KEYS, "Model", "Type", "Generated Speech", "Evaluation Scores"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def scores(folder) -> pd.DataFrame:
    frame = join_scores(folder, SETS, "smollm2-constrained")
    frame["compared"] = is_compared(frame, kept_prompts(folder), "complete")
    return release.with_composite(frame, "run")


@pytest.fixture(scope="module")
def written(folder, scores):
    return release.write_release(folder, scores, NAMES, MODEL_ROWS, ["Take care."])


def test_one_row_a_generated_speech_in_the_papers_keys(written, scores):
    rows = read_jsonl(written / "generated.jsonl")
    assert [key for key in rows[0] if key in GENERATED_KEYS] == GENERATED_KEYS
    spoken = scores[(scores["type"] != "human") & scores["generated_speech"].notna()]
    assert [row["Generated Speech"] for row in rows] == spoken["generated_speech"].tolist()
    assert {row["Type"] for row in rows} == {"baseline", "fine-tuned"}
    assert {row["Model"] for row in rows} == {NAMES[model] for model in MODELS}
    assert all(row["ai_generated"] is True and isinstance(row["Prompts"], list) for row in rows)


def test_scores_are_table_2s_and_a_missing_one_is_null(written):
    rows = read_jsonl(written / "generated.jsonl")
    assert all(list(row["Evaluation Scores"]) == [metric.name for metric in METRICS] for row in rows)
    unknown = [row["Evaluation Scores"]["PSA"] for row in rows if row["Political Orientation"] == "Unknown"]
    assert unknown and set(unknown) == {None}


def test_the_members_own_speech_stands_beside(written, folder):
    tests = {row["speech_id"]: row["Speech"] for row in read_jsonl(folder / "02_dataset/test.jsonl")}
    for row in read_jsonl(written / "generated.jsonl"):
        assert row["Speech"] == tests[row["speech_id"]]


def test_the_composite_is_that_of_the_difficulty_tables(scores):
    rows = scores[scores["compared"]]
    assert np.allclose(1 - rows["composite"], speech_difficulty(rows), atol=1e-6)
    assert scores.loc[~scores["compared"], "composite"].isna().all()


def test_representative_speeches_follow_the_rule(written, scores):
    rows = read_jsonl(written / "representative.jsonl")
    assert [row["role"] for row in rows] == ["best", "median", "worst"] * 4
    for (model, kind), part in scores[scores["type"] != "human"].groupby(["model", "type"]):
        ranks = sorted(part["composite"].dropna())
        mine = {row["role"]: row["composite"] for row in rows if (row["Model"], row["Type"]) == (NAMES[model], kind)}
        assert mine == {"best": ranks[-1], "median": ranks[(len(ranks) - 1) // 2], "worst": ranks[0]}


def test_equal_composites_are_taken_in_order():
    frame = pd.DataFrame({"model": "m", "type": "baseline", "prompt_id": list("cab"), "variant": 0, "composite": 0.5})
    assert release.representative(frame)["prompt_id"].tolist() == ["c", "b", "a"]


def test_nothing_to_choose_from(scores):
    assert release.representative(scores.assign(composite=np.nan)).empty


def test_the_same_scores_give_the_same_files(written, folder, scores):
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    release.write_release(folder, scores, NAMES, MODEL_ROWS, ["Take care."])
    assert before == {path.name: path.read_bytes() for path in written.iterdir()}


def test_the_card_marks_counts_and_escapes(written, scores):
    card = (written / "README.md").read_text(encoding="utf-8")
    assert "tags: [ai-generated" in card and release.AI_GENERATED in card and release.RULE in card
    assert "- Take care." in card and "made up \\| for the test" in card
    assert f"| {NAMES[MODELS[0]]} | baseline | 17 | 17 |" in card
    for metric in METRICS:
        assert f"| {metric.name} |" in card


def test_a_prompt_without_its_speech_is_refused(folder, scores, tmp_path):
    (tmp_path / "02_dataset").mkdir()
    (tmp_path / "02_dataset/test.jsonl").write_text("")
    (tmp_path / "02_dataset/prompts.jsonl").write_text((folder / "02_dataset/prompts.jsonl").read_text())
    with pytest.raises(ValueError, match=r"test\.jsonl lacks.*run 02 again"):
        release.write_release(tmp_path, scores, NAMES, MODEL_ROWS, [])


def test_normalisation_is_08s(tmp_path):
    with pytest.raises(FileNotFoundError, match="run 08_statistics first"):
        release.parameter_of_08(tmp_path, "normalisation")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/08_statistics.json").write_text(json.dumps({"parameters": {"normalisation": "fixed"}}))
    assert release.parameter_of_08(tmp_path, "normalisation") == "fixed"


def test_the_browser_holds_all_where_there_is_room(folder, scores):
    content = browser(folder, scores, NAMES, judge="smollm2-constrained", limit=100, seed=1)
    assert content["n_speeches"] + content["n_silent"] == len(scores) and content["n_silent"] == 2
    assert "All 18 prompts" in content["rule"]
    assert all(prompt["speeches"][-1]["human"] for prompt in content["prompts"])


def test_a_small_browser_keeps_the_ends_of_every_party(scores):
    limit = len(browser_prompts(scores, 1, 5)[0]) + 2
    chosen, rule = browser_prompts(scores, limit, 5)
    assert chosen == browser_prompts(scores, limit, 5)[0] and len(chosen) == limit < 18
    assert f"{limit} of the run's 18 prompts" in rule and "seed 5" in rule
    generated = scores[scores["type"] != "human"]
    ends = generated.groupby("Party")["composite"].agg(["min", "max"])
    kept = generated[generated["prompt_id"].isin(chosen)].groupby("Party")["composite"].agg(["min", "max"])
    pd.testing.assert_frame_equal(ends, kept)
    assert set(release.representative(scores)["prompt_id"]) <= set(chosen)
