"""Figures 1 to 8 and s1 to s4 in one import (notebook 09): corpus, scores and checks lie in the `figures_*` files beside this one.

from parliabench_utils.results.figures import fig4, write_figure
"""

from parliabench_utils.results.figure_style import Drawing, write_figure
from parliabench_utils.results.figures_checks import s1, s2, s3, s4
from parliabench_utils.results.figures_corpus import fig1, fig2, pipeline_edges
from parliabench_utils.results.figures_scores import alignment_heatmap, category_changes, difficulty_bars, fig3, fig8

__all__ = [
    "Drawing",
    "alignment_heatmap",
    "category_changes",
    "difficulty_bars",
    "fig1",
    "fig2",
    "fig3",
    "fig8",
    "pipeline_edges",
    "s1",
    "s2",
    "s3",
    "s4",
    "write_figure",
]
