"""Tables as written: numbers in CSV, escaped LaTeX, inputs named; the same bytes twice; runs in which nothing survives."""

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.models.specs import read_model_spec
from parliabench_utils.results import robustness, tables
from parliabench_utils.results import scores as cells
from parliabench_utils.results import statistics as s
from parliabench_utils.results.report import model_names
from parliabench_utils.results.scores import join_scores, kept_prompts
from parliabench_utils.results.statistics import category_changes
from parliabench_utils.results.tables import escape_latex
from tests.results.synthetic import MODELS, SETS, write_run

JUDGE = "smollm2-constrained"
NAMES = model_names(MODELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


def compared(folder, kept=None) -> pd.DataFrame:
    scores = join_scores(folder, SETS, JUDGE)
    scores["compared"] = cells.is_compared(scores, kept_prompts(folder) if kept is None else kept, "complete")
    return cells.compared_rows(scores)


def score_tables(rows: pd.DataFrame) -> list[tables.Table]:
    comparison = s.compare(rows, draws=100)
    marks = {"test": "paired", "correction": "bonferroni", "rule": "Rule.", "inputs": ()}
    return [
        tables.table02(cells.cell_means(rows), comparison, NAMES, **marks),
        tables.alignment_by(rows, "Party", NAMES, ()),
        tables.difficulty_table(s.difficulty(rows, "Party"), "Party", ()),
        tables.difficulty_table(s.difficulty(rows, "Political Orientation"), "Political Orientation", ()),
        tables.alignment_by(rows, "Topic", NAMES, ()),
        tables.table12(s.stability_table(s.stability_by_metric(rows, draws=5)), NAMES, "run", ()),
        tables.table13(comparison, NAMES, ()),
        tables.anova_display(s.anova_table(rows), NAMES, ()),
        tables.mixed_display(robustness.mixed_models(rows), NAMES, ()),
        tables.selection_display(robustness.composition(rows, draws=20), NAMES, ()),
        tables.memorisation_display(robustness.memorisation_summary(robustness.memorisation(rows, ["the hon. Member"])), NAMES, ()),
    ]


def setup_tables(folder) -> list[tables.Table]:
    dataset, files = tables.read_dataset(folder), tables.dataset_files(folder)
    specs = [read_model_spec(model) for model in MODELS]
    one = [tables.table01(), tables.table03(dataset, files), tables.table04(dataset, files), tables.table05(specs, ())]
    return [*one, *tables.training_tables(folder)]


def test_all_thirteen_are_written_and_read_back(folder):
    made = [*setup_tables(folder), *score_tables(compared(folder))]
    for table in made:
        tables.write_table(table, folder)
        again = tables.read_table(folder, table.name)
        assert again.display.to_numpy().tolist() == table.display.astype(str).to_numpy().tolist()
        assert len(again.data) == len(table.data)
    assert {f"table{n:02d}" for n in range(1, 14)} <= {table.name for table in made}


def test_inputs_are_named_with_their_hash(folder):
    tables.write_table(setup_tables(folder)[1], folder)
    record = json.loads((folder / "tables/table03.json").read_text())
    assert [row["path"] for row in record["inputs"]] == ["02_dataset/train.jsonl", "02_dataset/test.jsonl"]
    assert all(re.fullmatch(r"[0-9a-f]{64}", row["sha256"]) for row in record["inputs"])


def test_the_same_scores_give_the_same_bytes(folder, tmp_path):
    for place in (tmp_path / "a", tmp_path / "b"):
        for table in score_tables(compared(folder)):
            tables.write_table(table, place)
    for path in sorted((tmp_path / "a/tables").iterdir()):
        assert path.read_bytes() == (tmp_path / "b/tables" / path.name).read_bytes()


def test_table_2_holds_the_means_and_the_human_row(folder):
    rows = compared(folder)
    data = score_tables(rows)[0].data.set_index(["model", "type", "metric"])
    mine = rows[(rows["model"] == MODELS[0]) & (rows["type"] == "baseline")]["GRUEN"]
    assert data.loc[(MODELS[0], "baseline", "GRUEN"), "mean"] == pytest.approx(mine.mean())
    assert ("human", "human", "PPL") in data.index and len(data) == len(SETS) * len(METRICS)


def test_published_values_stand_beside_the_papers_models(folder):
    rows = compared(folder)
    names = NAMES | {MODELS[0]: "Llama 3.1 8B"}
    comparison = s.compare(rows, draws=50)
    table = tables.table02(cells.cell_means(rows), comparison, names, test="pooled", correction="holm", rule="", inputs=())
    row = table.data[(table.data["display"] == "Llama 3.1 8B") & (table.data["type"] == "fine-tuned")].iloc[0]
    assert row["published_mean"] == 31.623 and row["difference"] == pytest.approx(row["mean"] - 31.623)
    assert tables.table13(comparison, names, ()).data["published_t"].notna().sum() == 14


def test_nothing_survives_and_tables_say_so(folder):
    made = score_tables(compared(folder, kept=[]))
    assert (made[0].data["n"] == 0).all() and len(made[0].data) == len(SETS) * len(METRICS)
    table13 = made[6].data
    assert (table13["n_pairs"] == 0).all() and (table13["verdict_paired"] == "").all()
    assert category_changes(compared(folder, kept=[]), "run")["n"].eq(0).all()


def test_latex_is_escaped():
    assert escape_latex("50 % & _a_ #1 $x {y} ~ ^ \\") == (
        r"50 \% \& \_a\_ \#1 \$x \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    hostile = pd.DataFrame({"Model": [r"\input{x} & 50%"]})
    latex = tables.to_latex(tables.Table("t", "T & T", hostile, hostile))
    assert r"\textbackslash input\{x\} \& 50\%" in latex.replace(" input", " input").replace("{}", "") or "\\input{x}" not in latex
    assert r"T \& T" in latex


odd_text = st.text(st.sampled_from('\\{}[]*&%$#_~^<>|"`\r\n\t\0\u202eé−±e\u0301')) | st.text()


@settings(deadline=None)
@given(st.lists(odd_text, min_size=1, max_size=3), odd_text)
def test_no_text_becomes_a_command_of_latex_or_markup_of_html(cells, title):
    """Every row has its one line and cells; outside our own commands no special character is left; HTML has our tags alone."""
    frame = pd.DataFrame({title: cells, "n": ["1"] * len(cells)})
    table = tables.Table("t", title, frame, frame, (title,))
    latex, page = tables.to_latex(table), tables.to_html(table)
    body = latex.split("\\midrule\n")[1].split("\n\\bottomrule")[0].split("\n")
    assert len(body) == len(cells) and all(line.endswith(r" & 1 \\") and not line.startswith(("[", "*")) for line in body)
    for text in (escape_latex(title), *map(escape_latex, cells)):
        bare = re.sub(r"\\(?:[a-z]+\b|[&%$#_{}])|\$\\[a-z^2]+\$|\$[-^]\\?[a-z0-9]*\$|\{\}|\{[*[]\}", "", text)
        assert not re.search(r"[\\{}&%#~^<>|\"\r\n\0\u202e]", bare), (text, bare)
    assert set(re.findall(r"</?([a-z!]+)", page)) <= {
        *(
            "!doctype",
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "table",
            "caption",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "p",
        )
    }
    assert not {"\0", "\r"} & set(latex + page)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("< 0.0001", r"\textless{} 0.0001"), ("[a]", "{[}a]"), ("* b", "{*} b"), ("a\r\nb", "a b"), ("x\0y", "x?y"),
        ("a|b", r"a\textbar{}b"), ('"q"', "''q''"), ("cafe\u0301", "café"), ("\u202egnp", "gnp"), ("\ud800", "?"),
        ("1 ± 2", r"1 $\pm$ 2"),
    ],
)  # fmt: skip
def test_latex_of_odd_texts(text, latex):
    assert escape_latex(text) == latex


def test_letters_that_latex_lacks_are_said():
    frame = pd.DataFrame({"Party": ["Слуга народу"]})
    assert "XeLaTeX" in tables.to_latex(tables.Table("t", "T", frame, frame))
    western = pd.DataFrame({"Party": ["Grüne"]})
    assert "XeLaTeX" not in tables.to_latex(tables.Table("t", "T", western, western))


def test_latex_compiles(folder, tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("no TeX on this machine")
    made = [*setup_tables(folder), *score_tables(compared(folder))]
    body = "\n".join(tables.to_latex(table) for table in made)
    preamble = r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{booktabs,graphicx,longtable}"
    (tmp_path / "all.tex").write_text(f"{preamble}\\begin{{document}}{body}\\end{{document}}", encoding="utf-8")
    subprocess.run(["pdflatex", "-halt-on-error", "all.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_html_is_a_page_with_escaped_text():
    hostile = pd.DataFrame({"Model": ["<script>alert(1)</script>"], "n": ["1"]})
    page = tables.to_html(tables.Table("t", "A & B", hostile, hostile, ("x < y",)))
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "<caption>A &amp; B</caption>" in page and "<p>x &lt; y</p>" in page


def test_each_cell_with_fewer_values_says_so(folder):
    rows = compared(folder)
    display = score_tables(rows)[0].display.set_index("Model")
    known = int((rows["PSA"].notna() & (rows["model"] == MODELS[0]) & (rows["type"] == "baseline")).sum())
    assert 0 < known < int(display["n"].iloc[0])
    assert display["PSA ↑"].iloc[0].endswith(f"({known})") and "(" not in display["PPL ↓"].iloc[0]
    assert display.index.str.endswith("°").all()


def test_unknown_orientation_has_no_rank_and_people_stand_beside(folder):
    table = score_tables(compared(folder))[3]
    last = table.display.iloc[-1]
    assert last["Political Orientation"].startswith("Unknown") and last["Rank"] == "—"
    assert table.data["rank"].tolist()[:-1] == list(range(1, len(table.data)))
    assert table.data["human"].between(0, 1).all() and (table.data["n_human"] > 0).all()
    assert table.data.set_index("group").loc["Right", "published_difficulty"] == 0.456355


def test_speed_and_memory_are_those_measured(folder):
    found = tables.measured(folder, [*MODELS, "never-run"]).set_index("model")
    assert found.loc[MODELS[0], "words_a_second"] == found.loc[MODELS[0], "words"] / 36  # 18 prompts x 2 types, 1 s each
    assert found["peak_memory_mib"].isna().all() and np.isnan(found.loc["never-run", "words_a_second"])


def test_another_type_is_spelled_out():
    assert tables.set_label("m", "few-shot", {"m": "M"}) == "M (few-shot)"


def test_small_groups_are_marked(folder):
    party = score_tables(compared(folder))[1]
    assert party.display["Party"].str.endswith("°").all() and any("fewer than 30" in note for note in party.notes)
    assert np.isfinite(party.data["mean"]).all()
