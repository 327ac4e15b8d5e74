"""How all figures look and how they are written: PDF, PNG, their values as CSV, and a JSON with title, alt text and inputs.

Colours are Okabe and Ito's, told apart by colour-blind readers, and each model has its own marker too, so that a grey print
can be read. Same data give the same bytes: no dates and no version in the files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import pandas as pd

from parliabench_utils.results.cells import HUMAN
from parliabench_utils.results.tabular import name_inputs
from parliabench_utils.run.artefacts import whole_file, write_csv, write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODEL_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7A5195")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HUMAN_COLOUR = "#444444"
INK, GREY, PALE, BAR, PALE_BAR = "#222222", "#6B6B6B", "#E4E4E4", "#4C78A8", "#D3DEEA"
HEAT = "cividis"
DIVERGING = (
    "RdBu_r"  # red above 0, blue below; both ends dark in a grey print, where the cell's number tells them apart
)
WIDTH, COLUMN = (
    6.9,
    3.35,
)  # inches: the text and one column of a two-column paper; a figure is drawn for the one or the other
SMALL = 6  # points; no text is smaller
# The parties' own colours, used where a bar is a party and nowhere else; the four groups that are no parties are grey.
PARTY_COLOURS = {
    "Conservative": "#0087DC",
    "Labour": "#E4003B",
    "Liberal Democrats": "#FAA61A",
    "Scottish National Party": "#FDF38E",
    "Democratic Unionist Party": "#D46A4C",
    "Plaid Cymru": "#005B54",
    "Green Party": "#6AB023",
    "Crossbench": "#9A9A9A",
    "Independent": "#C4C4C4",
    "Non-Affiliated": "#DDDDDD",
    "Bishops": "#6E6E6E",
}
DPI = 200
RC = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a name with two dollar signs is a name, not a formula
    "svg.hashsalt": "parliabench",
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its plotted values and what goes into its JSON."""

    name: str  # fig4
    title: str
    alt: str
    figure: "Figure"
    data: pd.DataFrame
    inputs: tuple[Path, ...] = ()
    caption: str = ""


def new_figure(height: float, width: float = WIDTH) -> "Figure":
    """An empty figure in our style, sizes in inches; without pyplot, so nothing global is changed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(drawing: Drawing, folder: Path) -> Path:
    """Write `figures/NAME.pdf`, `.png`, `.csv` and `.json` under the run's `folder`; returns the PNG's path."""
    import matplotlib as mpl

    target = folder / "figures" / drawing.name
    quiet = {"pdf": {"CreationDate": None, "Creator": None, "Producer": None}, "png": {"Software": None}}
    with mpl.rc_context(RC):
        for kind, metadata in quiet.items():
            with whole_file(target.with_suffix(f".{kind}")) as temporary:
                drawing.figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata, facecolor="white")
    write_csv(target.with_suffix(".csv"), drawing.data)
    record = {
        "figure": drawing.name,
        "title": drawing.title,
        "caption": drawing.caption,
        "alt": drawing.alt,
        "inputs": name_inputs(drawing.inputs, folder),
    }
    write_json(target.with_suffix(".json"), record)
    return target.with_suffix(".png")


def model_style(models: Sequence[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each model, in the run's order; human speeches dark grey."""
    own = {
        model: {"color": MODEL_COLOURS[i % len(MODEL_COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        for i, model in enumerate(m for m in models if m != HUMAN)
    }
    return own | {HUMAN: {"color": HUMAN_COLOUR, "marker": "*"}}


def footnote(figure: "Figure", text: str) -> None:
    """A small grey line under the panels; long text is wrapped to the figure's width."""
    figure.supxlabel(
        fill(text, int(19 * figure.get_figure(root=True).get_figwidth())),
        fontsize=SMALL + 0.2,
        color=GREY,
        x=0.01,
        ha="left",
    )


def heatmap(
    axes: "Axes",
    values: pd.DataFrame,
    decimals: int = 3,
    limits: tuple[float, float] | None = None,
    upright: int = 4,
    palette: str = HEAT,
) -> None:
    """Cells with their numbers, dark text on light cells; an undefined cell stays white with a dash.

    HEAT grows lighter from end to end, so that a grey print can be read. With DIVERGING give `limits` as far below 0 as above, and
    nothing is white. Where there are `upright` columns or more, their
    names stand upright.
    """
    import matplotlib as mpl
    import numpy as np

    data = values.to_numpy(dtype=float)
    known = data[~np.isnan(data)]
    low, high = limits or ((known.min(), known.max()) if known.size else (0.0, 1.0))
    scale, colours = mpl.colors.Normalize(low, high if high > low else low + 1e-9), mpl.colormaps[palette]
    axes.imshow(np.ma.masked_invalid(data), cmap=colours, norm=scale, aspect="auto")
    for (row, column), value in np.ndenumerate(data):
        text = "—" if np.isnan(value) else f"{value:z.{decimals}f}"
        light = np.isnan(value) or _luminance(colours(scale(value))) > 0.3
        axes.text(column, row, text, ha="center", va="center", fontsize=SMALL + 0.3, color=INK if light else "white")
    stands = len(values.columns) >= upright
    names = [fill(str(c), 13 if stands else 9, break_long_words=False) for c in values.columns]
    axes.set_xticks(range(len(names)), names, rotation=90 if stands else 0)
    axes.set_yticks(range(len(values.index)), values.index)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(len(values.columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(values.index) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)


def _luminance(colour: Sequence[float]) -> float:
    """Relative luminance (WCAG) of an RGB colour, 0 black to 1 white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def with_n(labels: Sequence[str], counts: Mapping[str, int], width: int = 26) -> list[str]:
    """Group names with their number of speeches in brackets, on two lines where they are long."""
    return [fill(f"{label}\N{NO-BREAK SPACE}({counts[label]:,})", width) for label in labels]
