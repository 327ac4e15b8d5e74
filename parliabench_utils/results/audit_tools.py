"""What the parts of the paper's audit share: a finding, and arithmetic on rounded numbers.

>>> agrees(rounds_to(58.849, 58.9, 1))
'no'
>>> interval_quotient((1.0, 2.0), (4.0, 5.0))
(0.2, 0.5)
"""

from dataclasses import asdict, dataclass

NOT_COMPUTABLE = "not computable"
_EPSILON = 1e-9  # binary fractions: 0.5 steps of a decimal are not exact

Interval = tuple[float, float]


@dataclass(frozen=True)
class Finding:
    """One claim of the paper (or of its project page) and what the published tables say about it."""

    item: str
    claim: str
    place: str
    published: str
    recomputed: str
    agrees: str
    note: str = ""

    def as_row(self) -> dict[str, str]:
        """The finding as one row of `paper_audit.csv`."""
        return asdict(self)


def agrees(holds: bool) -> str:
    """'yes' or 'no', as the audit's column has it."""
    return "yes" if holds else "no"


def rounds_to(value: float, stated: float, decimals: int) -> bool:
    """Is `stated` what `value` gives when rounded to `decimals`?"""
    return abs(value - stated) <= 0.5 * 10.0**-decimals + _EPSILON


def rounded(value: float, decimals: int) -> Interval:
    """All numbers that are printed as `value` at `decimals`."""
    half = 0.5 * 10.0**-decimals
    return value - half, value + half


def contains(interval: Interval, value: float, decimals: int) -> bool:
    """Does the interval meet the numbers that are printed as `value` at `decimals`?"""
    low, high = rounded(value, decimals)
    return interval[0] <= high + _EPSILON and low <= interval[1] + _EPSILON


def interval_quotient(top: Interval, bottom: Interval) -> Interval:
    """Smallest and largest quotient; the bottom interval must be positive."""
    if bottom[0] <= 0:
        raise ValueError(f"the denominator {bottom} reaches zero")
    corners = [a / b for a in top for b in bottom]
    return min(corners), max(corners)


def intersect(a: Interval, b: Interval) -> Interval | None:
    """Common part of two intervals, None when they do not meet."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high + _EPSILON else None


def show(interval: Interval, decimals: int = 3) -> str:
    """An interval as text."""
    return f"{interval[0]:.{decimals}f} to {interval[1]:.{decimals}f}"
