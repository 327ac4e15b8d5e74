"""Figures: written whole, the same bytes twice, no cut labels, and drawn even where a run has nothing to show."""

import json
from itertools import combinations

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from seaborn.utils import relative_luminance

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results import figures as f
from parliabench_utils.results import figures as figure_style
from parliabench_utils.results import robustness, tables
from parliabench_utils.results import scores as cells
from parliabench_utils.results import statistics as s
from parliabench_utils.results.paper import published
from parliabench_utils.results.report import DEMO_NOTE, model_names
from parliabench_utils.results.scores import join_scores, kept_prompts
from tests.results.synthetic import MODELS, SETS, write_run

NAMES = model_names(MODELS)
PAPER_RUN = ["llama-3.1-8b", "gemma-2-9b", "mistral-7b-v0.3", "qwen2-7b", "yi-6b"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Few pixels: what is tested here does not need them."""
    monkeypatch.setattr(figure_style, "DPI", 50)


def drawings(folder, kept=None) -> list[f.Drawing]:
    scores = join_scores(folder, SETS, "smollm2-constrained")
    scores["compared"] = cells.is_compared(scores, kept_prompts(folder) if kept is None else kept, "complete")
    corpus = f.fig2(tables.read_dataset(folder), tables.dataset_files(folder))
    return [corpus, *score_drawings(cells.compared_rows(scores), NAMES, "note")]


def score_drawings(rows: pd.DataFrame, names: dict[str, str], note: str) -> list[f.Drawing]:
    """Figures 3 to 8 and s1 to s4 of the compared rows."""
    parties, topics = (tables.alignment_by(rows, column, names, ()).data for column in ("Party", "Topic"))
    stable = s.stability_table(s.stability_by_metric(rows, draws=5))
    return [
        f.fig3(s.category_changes(rows, "run"), names, note, ()),
        f.fig4(parties, note, ()),
        f.fig5(s.difficulty(rows, "Party"), note, ()),
        f.fig6(topics, note, ()),
        f.fig7(s.difficulty(rows, "Topic"), note, ()),
        f.fig8(rows, names, note, ()),
        f.s1(stable, names, note, ()),
        f.s2(s.compare(rows, draws=50), names, note, ()),
        f.s3(robustness.correlations(rows), note, ()),
        f.s4(robustness.human_preference(rows), note, ()),
    ]


def test_files_are_the_same_twice_and_undated(folder, small, tmp_path):
    for place, drawn in ((tmp_path / "a", small), (tmp_path / "b", drawings(folder))):
        for drawing in drawn[::3]:  # a bar chart, a heat map and points; all are written in test_report
            f.write_figure(drawing, place)
    files = sorted((tmp_path / "a/figures").iterdir())
    assert len(files) == 4 * 4
    for path in files:
        assert path.read_bytes() == (tmp_path / "b/figures" / path.name).read_bytes(), path.name
        assert b"CreationDate" not in path.read_bytes()
    record = json.loads((tmp_path / "a/figures/fig2.json").read_text())
    assert record["alt"] and record["title"]


def test_an_empty_run_is_drawn(folder):
    for drawing in drawings(folder, kept=[]):
        FigureCanvasAgg(drawing.figure).draw()
        assert drawing.alt and drawing.title


def paper_scale() -> pd.DataFrame:
    """Scores of five models and human speeches for the paper's 11 parties and 21 topics: random, but for their shape."""
    rng = np.random.default_rng(3)
    parties, topics = published(3).set_index("party")["orientation"], published(11)["topic"]
    prompts = pd.DataFrame([(p, t) for p in parties.index for t in topics], columns=["Party", "Topic"])
    prompts["prompt_id"] = [f"p{i:03d}" for i in range(len(prompts))]
    prompts["Political Orientation"] = prompts["Party"].map(parties)
    sets = [(model, kind) for model in PAPER_RUN for kind in ("baseline", "fine-tuned")] + [("human", "human")]
    rows = pd.concat([prompts.assign(model=m, type=t, variant=0) for m, t in sets], ignore_index=True)
    for metric in METRICS:
        rows[metric.column] = rng.normal(0.5, 0.1, len(rows)) + 0.03 * (rows["type"] == "fine-tuned")
    rows["Party Align deranged"] = rows["Party Align"]
    rows.loc[rows["Political Orientation"] == "Unknown", "PSA"] = np.nan
    return rows.assign(compared=True, date=[f"{2015 + i % 8}-05-01" for i in range(len(rows))])


@pytest.fixture(scope="module")
def large() -> list[f.Drawing]:
    rows, names = paper_scale(), model_names(PAPER_RUN)
    dataset = rows[rows["type"] == "human"].reset_index(drop=True)
    dataset = dataset.assign(n_words=dataset.index + 40, House=np.where(dataset.index % 5, "House of Commons", "House of Lords"))
    return [f.fig1(()), f.fig2(dataset, ()), *score_drawings(rows, names, DEMO_NOTE)]


@pytest.fixture(scope="module")
def small(folder) -> list[f.Drawing]:
    return drawings(folder)


def texts(drawing: f.Drawing) -> list[tuple[str, Bbox, float, float]]:
    """Words of a drawn figure that can be seen: text, place in pixels, size in points, turn in degrees."""
    FigureCanvasAgg(drawing.figure).draw()
    found = [text for text in drawing.figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    panels = drawing.figure.findobj(Axes)
    ticks = {id(label): axes for axes in panels for label in (*axes.get_xticklabels(), *axes.get_yticklabels())}
    seen = []
    for text in found:
        axes = ticks.get(id(text))
        box = text.get_window_extent()
        if axes is None or _in_view(axes, box):
            seen.append((text.get_text(), box, text.get_fontsize(), text.get_rotation() % 90))
    return seen


def _in_view(axes: Axes, box: Bbox) -> bool:
    """Whether a tick's label belongs to a tick within the axis' limits, not to one that matplotlib keeps in reserve."""
    area, x, y = axes.get_window_extent(), (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    return area.x0 - 1 <= x <= area.x1 + 1 or area.y0 - 1 <= y <= area.y1 + 1


def test_nothing_is_cut_small_or_written_over(large, small):
    for drawing in [*large, *small]:
        seen = texts(drawing)
        width, height = drawing.figure.bbox.size
        for text, box, size, _ in seen:
            inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
            assert inside, f"{drawing.name}: {text!r} is cut"
            assert size >= figure_style.SMALL, f"{drawing.name}: {text!r} is too small"
        straight = [(text, box) for text, box, _, turned in seen if not turned]
        for (one, a), (other, b) in combinations(straight, 2):
            overlap = Bbox.intersection(a, b)
            assert overlap is None or min(overlap.width, overlap.height) < 1, f"{drawing.name}: {one!r} over {other!r}"
        assert drawing.figure.get_figwidth() in (figure_style.COLUMN, figure_style.WIDTH)


def test_a_grey_print_can_be_read():
    heat = [relative_luminance(matplotlib.colormaps[figure_style.HEAT](step / 20)) for step in range(21)]
    assert heat == sorted(heat)  # a darker cell is a lower value in grey too
    styles = figure_style.model_style(PAPER_RUN).values()
    assert len({style["marker"] for style in styles}) == len(PAPER_RUN) + 1  # models differ by more than colour


def test_correlations_part_at_0(small):
    drawing = next(d for d in small if d.name == "s3")
    (picture,) = drawing.figure.findobj(QuadMesh)
    assert picture.norm.vmin == -picture.norm.vmax == -1
    low, middle, high = (picture.cmap(picture.norm(v))[:3] for v in (-0.8, 0, 0.8))
    assert min(middle) > 0.95  # next to white
    assert low[2] > low[0] + 0.2 and high[0] > high[2] + 0.2  # blue and red
    assert "-0.00" not in [text for text, *_ in texts(drawing)]


def test_only_parties_have_party_colours(large):
    for drawing in large:
        bars = [matplotlib.colors.to_hex(p.get_facecolor()).upper() for p in drawing.figure.findobj(Rectangle)]
        coloured = set(bars) & set(figure_style.PARTY_COLOURS.values())
        assert coloured == (set(figure_style.PARTY_COLOURS.values()) if drawing.name == "fig5" else set())


def test_models_stand_in_the_runs_order_everywhere(large):
    wanted = [model_names(PAPER_RUN)[model] for model in PAPER_RUN]
    for drawing in large:
        words = [text.replace("\n", " ") for text, *_ in texts(drawing)]
        for order in _runs_of(words, wanted):
            assert order == wanted, drawing.name


def _runs_of(words: list[str], wanted: list[str]) -> list[list[str]]:
    """Model names among a figure's words, each whole list of them as it stands."""
    named = [word for word in words if word in wanted]
    return [named[i : i + len(wanted)] for i in range(0, len(named), len(wanted))]


def test_a_name_is_drawn_as_it_is(tmp_path):
    hostile = "Party of $x^ {\\frac & $ <b>"
    data = pd.DataFrame({"Party": [hostile], "display": "A", "type": "fine-tuned", "mean": 0.5, "n": 3})
    drawing = f.fig4(data, "", ())
    f.write_figure(drawing, tmp_path)
    assert hostile in " ".join(text.replace("\n", " ") for text, *_ in texts(drawing))


def test_the_pipeline_is_the_workflows():
    edges = f.pipeline_edges()
    pairs = set(edges[["source", "target"]].itertuples(index=False, name=None))
    assert ("04_generate", "07_judge") in pairs and ("08_statistics", "09_figures") in pairs
    assert not any(target < source for source, target in pairs)
    assert len(f.fig1(()).data) == len(edges)


def test_values_are_beside_the_picture(small, tmp_path):
    drawing = small[2]
    f.write_figure(drawing, tmp_path)
    written = pd.read_csv(tmp_path / "figures/fig4.csv")
    assert written["mean"].tolist() == pytest.approx(drawing.data["mean"].tolist(), abs=1e-6)
