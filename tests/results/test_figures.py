"""Figures: written whole, the same bytes twice, no cut labels, and drawn even where a run has nothing to show."""

import json
from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from parliabench_utils.results import figure_style, tables
from parliabench_utils.results import figures as f
from parliabench_utils.results import statistics as s
from parliabench_utils.results.paper import published
from parliabench_utils.results.report import model_names
from parliabench_utils.results.scores import join_scores, kept_prompts
from tests.results.synthetic import MODELS, SETS, write_run

NAMES = model_names(MODELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Few pixels: what is tested here does not need them."""
    monkeypatch.setattr(figure_style, "DPI", 50)


def drawings(folder, kept=None) -> list[f.Drawing]:
    scores = join_scores(folder, SETS, "smollm2-constrained")
    scores["compared"] = s.is_compared(scores, kept_prompts(folder) if kept is None else kept, "complete")
    rows = s.compared_rows(scores)
    parties, topics = (tables.alignment_by(rows, column, NAMES, ()).data for column in ("Party", "Topic"))
    stable = s.stability_table(s.stability_by_metric(rows, draws=5))
    return [
        f.fig2(tables.read_dataset(folder), tables.dataset_files(folder)),
        f.fig3(f.category_changes(rows, "run", 50, 1), NAMES, "note", ()),
        f.alignment_heatmap("fig4", "Parties", parties, "Party", "note", ()),
        f.difficulty_bars("fig5", "Parties", s.difficulty(rows, "Party"), "note", ()),
        f.alignment_heatmap("fig6", "Topics", topics, "Topic", "note", ()),
        f.difficulty_bars("fig7", "Topics", s.difficulty(rows, "Topic"), "note", ()),
        f.fig8(rows, NAMES, "note", ()),
        f.s1(stable, NAMES, "note", ()),
        f.s2(s.compare(rows, draws=50), NAMES, "note", ()),
        f.s3(s.correlations(rows), "note", ()),
        f.s4(s.human_preference(rows), "note", ()),
    ]


def test_files_are_the_same_twice_and_undated(folder, tmp_path):
    for place in (tmp_path / "a", tmp_path / "b"):
        for drawing in drawings(folder)[::3]:  # a bar chart, a heat map and points; all are written in test_report
            f.write_figure(drawing, place)
    files = sorted((tmp_path / "a/figures").iterdir())
    assert len(files) == 4 * 4
    for path in files:
        assert path.read_bytes() == (tmp_path / "b/figures" / path.name).read_bytes(), path.name
        assert b"CreationDate" not in path.read_bytes()
    record = json.loads((tmp_path / "a/figures/fig2.json").read_text())
    assert record["alt"] and record["title"]


def test_an_empty_run_is_drawn(folder, tmp_path):
    for drawing in drawings(folder, kept=[]):
        assert f.write_figure(drawing, tmp_path).stat().st_size > 1000


def test_no_label_is_cut_with_all_parties_topics_and_models():
    long = published(11).melt(
        id_vars="topic", value_vars=list(published(12)["model"]), var_name="display", value_name="mean"
    )
    human = long.drop_duplicates("topic").assign(display="Human speeches", type="human")
    data = pd.concat([long.assign(type="fine-tuned"), human]).rename(columns={"topic": "Topic"}).assign(n=131)
    drawing = f.alignment_heatmap("fig6", "Topics", data, "Topic", "", ())
    FigureCanvasAgg(drawing.figure).draw()
    width, height = drawing.figure.bbox.size
    for axes in drawing.figure.axes:
        for label in [*axes.get_yticklabels(), *axes.get_xticklabels()]:
            box = label.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, label.get_text()
        boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
        columns = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert not any(a.overlaps(b) for a, b in pairwise(columns))


def test_the_pipeline_is_the_workflows():
    edges = f.pipeline_edges("demo")
    pairs = set(edges[["source", "target"]].itertuples(index=False, name=None))
    assert ("04_generate", "07_judge") in pairs and ("08_statistics", "09_figures") in pairs
    assert not any(target < source for source, target in pairs)
    assert len(f.fig1("demo", ()).data) == len(edges)


def test_values_are_beside_the_picture(folder, tmp_path):
    drawing = drawings(folder)[2]
    f.write_figure(drawing, tmp_path)
    written = pd.read_csv(tmp_path / "figures/fig4.csv")
    assert written["mean"].tolist() == pytest.approx(drawing.data["mean"].tolist(), abs=1e-6)
