"""How hard a group (party, orientation, topic) is to speak for, by a definition of our own; Tables 9 and 10, Figures 5 and 7.

The paper prints a difficulty and a consistency column and defines neither, so these do not reproduce its numbers:

* difficulty = 1 - the mean over models of the group's composite: the plain mean of its normalised metrics (1 = good), each the
  mean over its speeches. 0 is easy, 1 hard. Only metrics that every group has count (parties without an orientation have no
  PSA: with it, they would rank apart for that alone).
* consistency = Eq. 4 over the models' composites of the group: 100 when all models do equally well.
"""

import numpy as np
import pandas as pd

from parliabench_utils.corpus.organisations import UNKNOWN_ORIENTATION
from parliabench_utils.results.cells import HUMAN, composite, normalise
from parliabench_utils.results.stability import known_groups, stability

DEFINITION = (
    "Our own definition (the paper gives none): difficulty = 1 - mean over models of the group's composite, the plain mean of the "
    "normalised metrics that all groups have; consistency = Eq. 4 over the models' composites."
)


def speech_difficulty(scores: pd.DataFrame, how: str = "run", by: str = "Party") -> pd.Series:
    """1 - composite of each speech, in [0, 1], of the metrics that every group of `by` has; rows as in `scores`."""
    values = normalise(scores, how)
    return 1.0 - composite(values[_shared(values, [scores[by]])])


def _shared(values: pd.DataFrame, keys: list[pd.Series]) -> list[str]:
    """The metrics that each group of `keys` has values of; a group without any value at all does not decide."""
    known = values.notna().groupby([k.to_numpy() for k in keys]).any()
    known = known[known.any(axis=1)]
    return list(known.columns[known.all()]) if len(known) else list(values)


def left_out(frame: pd.DataFrame) -> str:
    """Names of the metrics that a table of `difficulty` did not use, "" where it used all."""
    names = frame["left_out"].dropna() if "left_out" in frame else pd.Series(dtype=str)
    return str(names.iloc[0]) if len(names) else ""


def difficulty(scores: pd.DataFrame, by: str, kind: str = "fine-tuned", how: str = "run") -> pd.DataFrame:
    """Groups of column `by`, hardest first: rank, group, difficulty, consistency, n (speeches), n_models, human, n_human, left_out.

    Speeches of type `kind` count; `human` is the difficulty of the members' own speeches. The normalisation is over all
    rows of `scores`; all groups, models and people are compared on the same metrics, `left_out` names the others. Unknown
    (orientation, or no party or topic stated) is no position and comes last, without a rank.
    """
    rows = scores.assign(_group=known_groups(scores[by]).fillna(UNKNOWN_ORIENTATION).astype(str))
    values = normalise(rows, how)
    counted = rows["type"].isin([kind, HUMAN])
    rows, values = rows[counted], values[counted]
    used = _shared(values, [rows["_group"], rows["model"]])
    means = values[used].groupby([rows["_group"], rows["model"]]).mean()
    hard = (
        1.0 - means.mean(axis=1, skipna=False).unstack("model")
        if used
        else pd.DataFrame(index=sorted(set(rows["_group"])))
    )
    known = values.notna().any(axis=1)
    n, n_human = (
        known[kinds].groupby(rows["_group"][kinds]).sum() for kinds in (rows["type"] == kind, rows["type"] == HUMAN)
    )
    per_model = hard.drop(columns=HUMAN, errors="ignore").reindex(n.index)
    human = hard[HUMAN] if HUMAN in hard else pd.Series(dtype=float)
    table = pd.DataFrame(
        {
            "group": per_model.index,
            "difficulty": per_model.mean(axis=1).to_numpy(),
            "consistency": [stability(1.0 - row) for row in per_model.to_numpy()],
            "n": n.to_numpy(),
            "n_models": per_model.notna().sum(axis=1).to_numpy(),
            "human": human.reindex(per_model.index).to_numpy(float),
            "n_human": n_human.reindex(per_model.index, fill_value=0).to_numpy(),
            "left_out": ", ".join(name for name in values if name not in used),
        }
    )
    unranked = table["group"] == UNKNOWN_ORIENTATION
    table = table.assign(_last=unranked).sort_values(
        ["_last", "difficulty", "group"], ascending=[True, False, True], ignore_index=True
    )
    rank = pd.Series(np.arange(1, len(table) + 1), dtype="Int64").mask(table.pop("_last"))
    table.insert(0, "rank", rank)
    return table
