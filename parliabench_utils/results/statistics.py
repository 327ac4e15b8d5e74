"""The statistics of the results, in one import: comparisons, stability, difficulty, variance, selection (section 6).

from parliabench_utils.results.statistics import compare, stability
"""

from parliabench_utils.results.agreement import correlations, human_preference
from parliabench_utils.results.cells import cell_means, cluster_t_test, compared_rows, composite, is_compared, normalise
from parliabench_utils.results.compare import cliffs_delta, compare, t_test_from_summary, verdict
from parliabench_utils.results.difficulty import difficulty, speech_difficulty
from parliabench_utils.results.memorisation import memorisation, memorisation_summary
from parliabench_utils.results.mixed import mixed_models
from parliabench_utils.results.permutation import self_bleu_test
from parliabench_utils.results.selection import composition, worst_case
from parliabench_utils.results.stability import stability, stability_by_metric, stability_table
from parliabench_utils.results.variance import anova, anova_table

__all__ = [
    "anova",
    "anova_table",
    "cell_means",
    "cliffs_delta",
    "cluster_t_test",
    "compare",
    "compared_rows",
    "composite",
    "composition",
    "correlations",
    "difficulty",
    "human_preference",
    "is_compared",
    "memorisation",
    "memorisation_summary",
    "mixed_models",
    "normalise",
    "self_bleu_test",
    "speech_difficulty",
    "stability",
    "stability_by_metric",
    "stability_table",
    "t_test_from_summary",
    "verdict",
    "worst_case",
]
