"""The fourteen speech metrics of Table 1, in the true order of Table 2's values (the paper prints that header out of order).

Notebooks 05 to 09 read names, columns and directions from here.

>>> [m.name for m in METRICS if not m.higher_is_better]
['PPL', 'Self-BLEU']
"""

from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-10  # of a value's size: a smaller spread is a processor's rounding, for scores are kept at 6 decimals


def is_rounding(spread: float, size: float) -> bool:
    """Whether a spread (sd, range, difference) is nothing but the rounding of numbers of that `size`; NaN is no spread."""
    return not spread > ROUNDING * abs(size)


def settled(values: np.ndarray, size: float | None = None) -> np.ndarray:
    """`values` rounded to ROUNDING of `size` (None: the largest of them), so that what is equal but for rounding is equal."""
    values = np.asarray(values, dtype=float)
    known = np.abs(values[np.isfinite(values)])
    size = known.max(initial=0.0) if size is None else size
    return np.round(values, int(-np.log10(ROUNDING) - np.ceil(np.log10(size)))) if size > 0 else values


@dataclass(frozen=True)
class Metric:
    """One row of Table 1.

    `column` is the name in the stage files, `range` the closed interval of possible values (None = unbounded),
    `section` where the paper defines it.
    """

    name: str
    column: str
    category: str
    kind: str
    higher_is_better: bool
    range: tuple[float | None, float | None]
    section: str


LINGUISTIC, SEMANTIC, POLITICAL = "Linguistic Quality", "Semantic Coherence", "Political Authenticity"

METRICS = (
    Metric("PPL", "PPL", LINGUISTIC, "computed", False, (1.0, None), "4.1 (1)"),
    Metric("Dist-N", "Dist-2", LINGUISTIC, "computed", True, (0.0, 1.0), "4.1 (1)"),
    Metric("Self-BLEU", "Self-BLEU", LINGUISTIC, "computed", False, (0.0, 1.0), "4.1 (1)"),
    Metric("GRUEN", "GRUEN", SEMANTIC, "computed", True, (0.0, 1.0), "4.1 (2)"),
    Metric("BERTScore", "BERTScore F1", SEMANTIC, "computed", True, (-1.0, 1.0), "4.1 (2)"),
    Metric("MoverScore", "MoverScore", SEMANTIC, "computed", True, (0.0, 1.0), "4.1 (2)"),
    Metric("PSA", "PSA", POLITICAL, "computed", True, (-1.0, 1.0), "4.1.1, Eqs. 1-2"),
    Metric("Party Align", "Party Align", POLITICAL, "computed", True, (-1.0, 1.0), "4.1.1, Eq. 3"),
    Metric("J_Coh", "J_Coh", LINGUISTIC, "judge", True, (1.0, 10.0), "10.2"),
    Metric("J_Conc", "J_Conc", LINGUISTIC, "judge", True, (1.0, 10.0), "10.3"),
    Metric("J_Rel", "J_Rel", SEMANTIC, "judge", True, (1.0, 10.0), "10.4"),
    Metric("J_Auth", "J_Auth", POLITICAL, "judge", True, (1.0, 10.0), "10.5"),
    Metric("J_PolApp", "J_PolApp", POLITICAL, "judge", True, (1.0, 10.0), "10.6"),
    Metric("J_Qual", "J_Qual", POLITICAL, "judge", True, (1.0, 10.0), "10.7"),
)
METRIC_BY_NAME = {metric.name: metric for metric in METRICS}
