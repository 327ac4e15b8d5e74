"""How hard a group (party, orientation, topic) is to speak for, by a definition of our own; Tables 9 and 10, Figures 5 and 7.

The paper prints a difficulty and a consistency column and defines neither, so these do not reproduce its numbers:

* difficulty = 1 - the mean over models of the group's composite score (the mean of all normalised metrics, 1 = good).
  0 is easy, 1 hard. A metric that is undefined for a speech (PSA without an orientation) is left out of its mean.
* consistency = Eq. 4 over the models' composites of the group: 100 when all models do equally well.
"""

import numpy as np
import pandas as pd

from parliabench_utils.corpus.organisations import UNKNOWN_ORIENTATION
from parliabench_utils.results.cells import HUMAN, composite, estimand_weights, normalise
from parliabench_utils.results.stability import stability

DEFINITION = (
    "Our own definition (the paper gives none): difficulty = 1 - mean over models of the group's composite of all normalised "
    "metrics that the group has; consistency = Eq. 4 over the models' composites."
)


def speech_difficulty(scores: pd.DataFrame, how: str = "run") -> pd.Series:
    """1 - composite of each speech, in [0, 1]; rows as in `scores`."""
    return 1.0 - composite(normalise(scores, how))


def difficulty(
    scores: pd.DataFrame, by: str, kind: str = "fine-tuned", how: str = "run", estimand: str = "prompts"
) -> pd.DataFrame:
    """Groups of column `by`, hardest first: rank, group, difficulty, consistency, n (speeches), n_models, human, n_human.

    Speeches of type `kind` count; `human` is the difficulty of the members' own speeches. The normalisation is over all
    rows of `scores`; means are of the `estimand` within a group. The orientation Unknown is no position and comes last,
    without a rank.
    """
    scored = scores.assign(_difficulty=speech_difficulty(scores, how))
    rows, human = (scored[scored["type"] == which] for which in (kind, HUMAN))
    per_model = _means(rows, [by, "model"], estimand).unstack("model")
    table = pd.DataFrame(
        {
            "group": per_model.index,
            "difficulty": per_model.mean(axis=1).to_numpy(),
            "consistency": [stability(1.0 - row) for row in per_model.to_numpy()],
            "n": rows.groupby(by)["_difficulty"].count().reindex(per_model.index).to_numpy(),
            "n_models": per_model.notna().sum(axis=1).to_numpy(),
            "human": _means(human, [by], estimand).reindex(per_model.index).to_numpy(),
            "n_human": human.groupby(by)["_difficulty"].count().reindex(per_model.index, fill_value=0).to_numpy(),
        }
    )
    table["estimand"] = estimand
    unranked = table["group"] == UNKNOWN_ORIENTATION
    table = table.assign(_last=unranked).sort_values(
        ["_last", "difficulty", "group"], ascending=[True, False, True], ignore_index=True
    )
    rank = pd.Series(np.arange(1, len(table) + 1), dtype="Int64").mask(table.pop("_last"))
    table.insert(0, "rank", rank)
    return table


def _means(rows: pd.DataFrame, by: list[str], estimand: str) -> pd.Series:
    """The mean difficulty of each group of `by`."""
    weights = pd.Series(np.nan, index=rows.index)
    for _, part in rows[rows["_difficulty"].notna()].groupby(by):
        weights.loc[part.index] = estimand_weights(part, estimand)
    sums = pd.DataFrame({"sum": rows["_difficulty"] * weights, "weight": weights})
    sums = sums.groupby([rows[name] for name in by]).sum(min_count=1)
    return sums["sum"] / sums["weight"]
