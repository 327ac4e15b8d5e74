"""The authors' JSONL format, with speeches of our own invention: read, refused with line and reason, and run through 08."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.cli import main
from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results import release as published_speeches
from parliabench_utils.results.release import import_published, load_published
from parliabench_utils.results.robustness import run_settings
from parliabench_utils.results.scores import join_scores, kept_prompts, present_sets
from parliabench_utils.run.runner import run_notebook

MODELS = {"unsloth/Meta-Llama-3.1-8B-bnb-4bit": "llama-3.1-8b", "YI 6B": "yi-6b"}
NAMES = {"unsloth/gemma-2-9b-bnb-4bit": "gemma-2-9b", "Qwen2-7B": "qwen2-7b", "Mistral 7B v0.3": "mistral-7b-v0.3"}
PARTIES = {"Labour": "Centre-left", "Conservative": "Centre-right", "Bishops": "Unknown"}


def record(i: int, model: str, kind: str, rng: np.random.Generator) -> dict:
    party = list(PARTIES)[i % 3]
    scores = {m.name: float(rng.uniform(0.2, 0.8) if m.kind == "computed" else rng.integers(1, 11)) for m in METRICS}
    scores["PPL"] += 20
    return {
        "Party": party, "Topic": ["Law", "Energy"][i % 2], "Political Orientation": PARTIES[party], "Section": f"Bridges {i}",
        "House": "House of Commons", "Prompts": [f"Will the Minister mend bridge {i}?"], "Model": model, "Type": kind,
        "Generated Speech": f"The bridge number {i} will be mended, and I thank the hon. Member for asking.",
        "Evaluation Scores": scores | {"PSA": None if party == "Bishops" else scores["PSA"]},
    }  # fmt: skip


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return [record(i, m, t, rng) for m in MODELS for t in ("Baseline", "Fine-tuned") for i in range(12)]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_prompts_models_and_scores(rows, tmp_path):
    rows[0]["Evaluation Scores"] = {"perplexity": 31.5, "Dist_2": 0.9, "J_Coh": -1, "bertscore_f1": "0.8", "Length": 7}
    frame = load_published(written(tmp_path / "speeches.jsonl", rows))
    assert len(frame) == 48 and frame["prompt_id"].nunique() == 12
    assert set(frame["model"]) == set(MODELS.values()) and set(frame["type"]) == {"baseline", "fine-tuned"}
    first = frame.iloc[0]
    assert (first["PPL"], first["Dist-2"], first["BERTScore F1"]) == (31.5, 0.9, 0.8) and np.isnan(first["J_Coh"])
    assert frame.attrs["ignored"] == {"Length": 1} and first["instruction"] == "Will the Minister mend bridge 0?"


@pytest.mark.parametrize(("name", "model"), (MODELS | NAMES).items())
def test_model_names(name, model, tmp_path):
    row = record(0, name, "baseline", np.random.default_rng(0))
    assert load_published(written(tmp_path / "one.jsonl", [row]))["model"].tolist() == [model]


def test_the_same_prompt_twice_is_matched_in_turn(rows, tmp_path):
    again = [row | {"Generated Speech": row["Generated Speech"] + " Again."} for row in rows]
    frame = load_published(written(tmp_path / "speeches.jsonl", [*rows, *again]))
    assert frame["prompt_id"].nunique() == 24
    assert not frame.duplicated(["prompt_id", "variant", "model", "type"]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Model": "Falcon"}, "line 2: model 'Falcon'"), ({"Type": "tuned"}, "line 2: type 'tuned'"),
        ({"Evaluation Scores": [1]}, "line 2: Evaluation Scores"), ({"House": ...}, "line 2: no House"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(rows, tmp_path, change, message):
    rows[1] = {k: v for k, v in (rows[1] | change).items() if v is not ...}
    with pytest.raises(ValueError, match=re.escape(message)):
        load_published(written(tmp_path / "speeches.jsonl", rows))
    with pytest.raises(ValueError, match="no speeches"):
        load_published(written(tmp_path / "empty.jsonl", []))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Model": "../models/smollm2-135m"}, "line 2: model '../models/smollm2-135m' is none"),
        ({"Model": 7}, "line 2: Model is no text: 7"),
        ({"prompt_id": "../../x"}, "line 2: prompt_id '../../x': a name has"),
        ({"prompt_id": "a" * 300}, "line 2: prompt_id"),
        ({"prompt_id": 7}, "line 2: prompt_id 7"),
        ({"Party": None}, "line 2: Party is no text: None"),
        ({"Topic": "a\rb"}, "line 2: Topic"),
        ({"House": "x" * 501}, "line 2: House"),
        ({"Generated Speech": ["a"]}, "line 2: Generated Speech is no text"),
        ({"Generated Speech": "a \ud800"}, "half of a surrogate pair"),
        ({"Prompts": [1]}, "line 2: Prompts is no text: 1"),
        ({"variant": "1"}, "line 2: variant '1'"),
        ({"variant": -1}, "line 2: variant -1"),
        ({"variant": True}, "line 2: variant True"),
        *(
            ({"Evaluation Scores": {name: value}}, f"line 2: {name}: {value!r} is {fault}")
            for name, value, fault in (
                ("J_Coh", 11, "not between 1 and 10"),
                ("J_Coh", 0, "not between"),
                ("J_Coh", -5, "not between"),
                ("GRUEN", 1.2, "not between 0 and 1"),
                ("PPL", 0.5, "not between 1 and infinity"),
                ("PPL", "1_000", "no number"),
                ("PPL", True, "no number"),
                ("PPL", [1], "no number"),
                ("PPL", "inf", "no number"),
                ("PPL", float("inf"), "not between"),
                ("PSA", "=1", "no number"),
            )
        ),
        ({"Evaluation Scores": {"PPL": 20, "perplexity": 21}}, "line 2: 'perplexity' and another score are both PPL"),
        ({"Model": "Llama, another one"}, "line 2: line 1 calls this model and type otherwise"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_line_and_leaves_nothing(rows, tmp_path, change, message):
    rows[1] |= change
    with pytest.raises(ValueError, match=rf"speeches\.jsonl, .*{re.escape(message)}"):
        import_published(written(tmp_path / "speeches.jsonl", rows), tmp_path / "outputs/run")
    assert not (tmp_path / "outputs").exists()


def test_speeches_that_stand_there_twice_are_refused_with_both_lines(rows, tmp_path):
    with pytest.raises(ValueError, match="line 49: line 1 has the same speech to the same prompt"):
        load_published(written(tmp_path / "a.jsonl", [*rows, rows[0]]))
    same = {"prompt_id": "p1", "variant": 0}
    with pytest.raises(ValueError, match="line 2: line 1 has this prompt, model, type and variant already"):
        load_published(written(tmp_path / "b.jsonl", [rows[0] | same, rows[0] | same | {"Generated Speech": "Other words."}]))
    with pytest.raises(ValueError, match="line 2: line 1 gives another context to this prompt_id"):
        load_published(written(tmp_path / "c.jsonl", [rows[0] | same, rows[1] | same | {"variant": 1}]))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_file_of_any_editor_is_read(rows, tmp_path, encoding):
    text = "".join(json.dumps(row | {"Section": "Café\u2028"[:4]}, ensure_ascii=False) + "\r\n\r\n" for row in rows)
    (tmp_path / "a.jsonl").write_bytes(("\ufeff" * encoding.endswith("be") + text).encode(encoding))
    assert load_published(tmp_path / "a.jsonl")["Section"].unique().tolist() == ["Café"]


def test_nobody_is_told_to_delete_a_file_of_his_own(rows, tmp_path):
    path = tmp_path / "a.jsonl"
    for text, message in (
        (json.dumps(rows[0]) + "\n{half", "line 2: not JSON"),
        ("[1]\n", "line 1: expected a JSON object"),
        ("[" * 99_999, "line 1: not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as error:
            load_published(path)
        assert "delete" not in str(error.value).removeprefix(str(path))
    path.write_bytes(
        json.dumps(rows[0]).encode() + b"\n" + json.dumps(rows[1] | {"Party": "é"}, ensure_ascii=False).encode("cp1252")
    )
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: byte 0xe9 is no UTF-8 \(Windows-1252 perhaps"):
        load_published(path)


def test_half_an_import_leaves_nothing_behind(rows, tmp_path, monkeypatch):
    path, folder = written(tmp_path / "a.jsonl", rows), tmp_path / "outputs/run"
    with monkeypatch.context() as patch:
        patch.setattr(published_speeches, "write_json", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            import_published(path, folder)
    assert not list(folder.parent.iterdir())
    import_published(path, folder)
    assert [file.name for file in folder.parent.iterdir()] == ["run"]


def test_our_own_release_is_read_back(tmp_path):
    row = record(0, "smollm2-135m", "baseline", np.random.default_rng(1)) | {"prompt_id": "p7", "variant": 2}
    frame = load_published(written(tmp_path / "generated.jsonl", [row]))
    assert frame[["prompt_id", "variant", "model"]].values.tolist() == [["p7", 2, "smollm2-135m"]]
    assert all(frame[m.column].iloc[0] == pytest.approx(row["Evaluation Scores"][m.name]) for m in METRICS)


def test_an_imported_run_has_the_scores_again(rows, tmp_path):
    rows[5]["Generated Speech"] = ""
    path, folder = written(tmp_path / "speeches.jsonl", rows), tmp_path / "run"
    frame = import_published(path, folder)
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == [
        "manifests/import-published.json", "published/scores.parquet", "published/settings.json"
    ]  # fmt: skip
    assert len(kept_prompts(folder)) == 11
    sets = present_sets(folder, MODELS.values(), ["baseline", "fine-tuned"])
    joined = join_scores(folder, sets, "flow-judge").set_index(["prompt_id", "model", "type"])
    given = frame.set_index(["prompt_id", "model", "type"]).loc[joined.index]
    spoken = given["generated_speech"].notna()
    assert spoken.sum() == 47
    for metric in METRICS:
        pd.testing.assert_series_equal(joined.loc[spoken, metric.column], given.loc[spoken, metric.column], rtol=1e-5)
    assert run_settings(folder, sets) == ("published", 4)
    with pytest.raises(ValueError, match="no speeches of gemma-2-9b/baseline were imported"):
        join_scores(folder, [("gemma-2-9b", "baseline")], "flow-judge")
    with pytest.raises(ValueError, match="there already"):
        import_published(path, folder)


def test_a_prompt_that_a_model_lacks_has_a_row_without_a_speech(rows, tmp_path):
    folder = tmp_path / "run"
    import_published(written(tmp_path / "speeches.jsonl", rows[:5] + rows[6:]), folder)
    sets = present_sets(folder, MODELS.values(), ["baseline", "fine-tuned"])
    joined = join_scores(folder, sets, "flow-judge")
    assert (len(joined), joined["generated_speech"].isna().sum(), len(kept_prompts(folder))) == (48, 1, 11)


@pytest.mark.parametrize("notebooks", [("08_statistics",), pytest.param(("08_statistics", "09_figures"), marks=pytest.mark.slow)])
def test_notebooks_run_on_them_alone(rows, tmp_path, monkeypatch, capsys, notebooks):
    monkeypatch.setenv("PARLIABENCH_OUTPUTS", str(tmp_path))
    path = written(tmp_path / "speeches.jsonl", rows)
    assert main(["import-published", str(path), "--run", "theirs"]) == 0 and "12 prompts" in capsys.readouterr().out
    settings = {"run": "theirs", "models": list(MODELS.values()), "n_threads": 1}
    draws = {"08_statistics": {"bootstrap_draws": 100, "chance_draws": 5}}
    for notebook in notebooks:
        run_notebook(notebook, "paper", settings | draws.get(notebook, {}))
    table = pd.read_csv(tmp_path / "theirs/tables/paper_differences.csv")
    assert {"table02", "table08", "table12", "table13"} <= set(table["table"])
    form = main(["annotate", "--run", "theirs", "--judge", "flow-judge", "--speeches", "8"])
    assert form == 0 and len(pd.read_csv(tmp_path / "theirs/annotation/key.csv")) == 8
    (tmp_path / "theirs/published/settings.json").write_text("{}")
    with pytest.raises(ValueError, match=r"published/settings\.json was changed after import-published wrote it"):
        run_notebook("08_statistics", "paper", settings)
    assert (table["run"] - table["published"]).to_numpy() == pytest.approx(table["difference"].to_numpy(), abs=1e-5)
