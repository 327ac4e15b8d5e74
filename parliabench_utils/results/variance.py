"""Do the scores tell groups apart? One-way analysis of variance beside a control that knows no party; `tables/anova.csv`.

Section 13.2 announces this analysis and prints no F, df or p. Each analysis has notebook 06's control beside it: the same speech
scored as if it were another party's (Party Align: the next party's centroid) or of another orientation (PSA: the next one's place
on the scale), next in the alphabet and the last one's next the first. When the control separates groups as well as the metric
does, it is not the party that the metric sees.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from parliabench_utils.corpus.organisations import ORIENTATION_SCALE
from parliabench_utils.metrics.table import is_rounding, settled
from parliabench_utils.results.difficulty import speech_difficulty

# (quantity, column, grouping column, is it the control?)
ANALYSES = (
    ("Party Align", "Party Align", "Party", False),
    ("Party Align, deranged centroids", "Party Align deranged", "Party", True),
    ("PSA", "PSA", "Political Orientation", False),
    ("PSA, deranged orientations", "PSA deranged", "Political Orientation", True),
    ("Difficulty", "_difficulty", "Party", False),
    ("Difficulty, deranged", "_difficulty deranged", "Party", True),
)


@dataclass(frozen=True)
class Anova:
    """F test and Kruskal-Wallis over groups of at least two values; NaN where fewer than two groups have them.

    Without any spread all are NaN; without spread within the groups F and p are.
    """

    n: int
    groups: int
    F: float
    df_between: int
    df_within: int
    p: float
    eta2: float
    H: float
    kruskal_p: float


def anova(values: pd.Series, groups: pd.Series) -> Anova:
    """One-way ANOVA with eta squared (share of the sum of squares between groups, in [0, 1]) and Kruskal-Wallis."""
    from scipy import stats

    kept = values.notna() & groups.notna()
    values = pd.Series(settled(values.to_numpy(float)), index=values.index)
    samples = [part.to_numpy(float) for _, part in values[kept].groupby(groups[kept]) if len(part) > 1]
    n = sum(map(len, samples))
    between, within = max(len(samples) - 1, 0), n - len(samples)
    if len(samples) < 2 or len(np.unique(np.concatenate(samples))) < 2:
        nan = float("nan")
        return Anova(n, len(samples), nan, between, within, nan, nan, nan, nan)
    everything = np.concatenate(samples)
    ss_between = sum(len(s) * (s.mean() - everything.mean()) ** 2 for s in samples)
    rank = stats.kruskal(*samples)
    f = p = float("nan")
    if not all(is_rounding(np.ptp(sample), np.abs(everything).max()) for sample in samples):
        f, p = map(float, stats.f_oneway(*samples))
    eta2 = ss_between / ((everything - everything.mean()) ** 2).sum()
    return Anova(
        n,
        len(samples),
        f,
        between,
        within,
        p,
        float(eta2),
        float(rank.statistic),
        float(rank.pvalue),
    )


def anova_table(scores: pd.DataFrame, how: str = "run") -> pd.DataFrame:
    """Every analysis for all fine-tuned speeches together, for each model and type, and for the human ones.

    Columns: quantity, by, control, model, type and those of `Anova`. Speeches of all models to one prompt share it, so
    the p of "all" is too small; the rows of single models are the ones to read.
    """
    rows = scores.assign(**{"_difficulty": speech_difficulty(scores, how), "PSA deranged": deranged_psa(scores)})
    controls = {"PSA": rows["PSA deranged"], "Party Align": rows["Party Align deranged"]}
    rows["_difficulty deranged"] = speech_difficulty(rows.assign(**controls), how)
    parts = [("all", "fine-tuned", rows[rows["type"] == "fine-tuned"])]
    parts += [(*key, part) for key, part in rows.groupby(["model", "type"], sort=False)]
    return pd.DataFrame(
        [
            {"quantity": quantity, "by": by, "control": control, "model": model, "type": kind}
            | vars(anova(part[column], part[by]))
            for quantity, column, by, control in ANALYSES
            for model, kind, part in parts
        ]
    )


def deranged_psa(scores: pd.DataFrame) -> pd.Series:
    """Eq. 2 as if each speech's orientation were the next in the alphabet; NaN where PSA is, and without 06's parts of it."""
    if not {"similarity", "nearest_orientation"} <= set(scores):
        return pd.Series(np.nan, index=scores.index)
    known = sorted(set(scores["Political Orientation"]) & set(ORIENTATION_SCALE))
    following = dict(zip(known, known[1:] + known[:1], strict=True))
    expected = scores["Political Orientation"].map(following).map(ORIENTATION_SCALE)
    apart = (scores["nearest_orientation"].map(ORIENTATION_SCALE) - expected).abs().astype(float)
    return (scores["similarity"] * (1 - apart / 12).clip(lower=0)).where(scores["PSA"].notna())
