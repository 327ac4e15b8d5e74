"""How far a judge can be believed, as far as it can be measured cheaply: failures, spread, length, controls.

Second half of notebook 07, `07_judge/summary/`. The paper measures none of this.

    frame = judgements_frame({("smollm2-135m", "baseline"): rows})
    failure_table(frame); trust_table(frame, words, judge_controls(human_speeches, spec, engine, seed=42))
"""

import random
import re

import numpy as np
import pandas as pd

from parliabench_utils.models.judge_prompting import DIMENSIONS, JudgeSpec, judge_prompts
from parliabench_utils.run.artefacts import Row
from parliabench_utils.run.seeds import row_seed

AGAIN = "asked again"
FILLER = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua"


def judgements_frame(rows_by_model: dict[tuple[str, str], list[Row]]) -> pd.DataFrame:
    """All judgements with columns `model` and `type` in front; scores are float64, NaN where there is none."""
    frames = [pd.DataFrame(rows).assign(model=m, type=t) for (m, t), rows in rows_by_model.items() if rows]
    if not frames:
        return pd.DataFrame(columns=["model", "type", "prompt_id", "variant", "dimension", "score", "parse_status"])
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(score=frame["score"].astype("float64"))


def failure_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a model, type and dimension: `n_judged, n_failed, failure_rate, reasons, mean_attempts`."""
    groups = frame.assign(failed=frame["score"].isna()).groupby(["model", "type", "dimension"], sort=False)
    table = groups.agg(n_judged=("failed", "size"), n_failed=("failed", "sum"), mean_attempts=("attempts", "mean"))
    table["failure_rate"] = table["n_failed"] / table["n_judged"]
    failed = frame[frame["score"].isna()].groupby(["model", "type", "dimension"])["parse_status"]
    reasons = {
        key: "; ".join(f"{s} {n}" for s, n in group.value_counts().sort_index().items()) for key, group in failed
    }
    table["reasons"] = [reasons.get(key, "") for key in table.index]
    columns = ["n_judged", "n_failed", "failure_rate", "reasons", "mean_attempts"]
    return table[columns].reset_index()


def controls_of(speech: Row, seed: int) -> dict[str, str]:
    """Spoilt versions of a speech that a sound judge must rank below it: name -> text of the same length."""
    text = speech["generated_speech"]
    source = random.Random(row_seed(seed, "control", speech["prompt_id"]))
    sentences = re.split(r"(?<=[.?!])\s+", text)
    words = text.split()
    filler = FILLER.split()
    return {
        "sentences shuffled": " ".join(source.sample(sentences, len(sentences))),
        "words shuffled": " ".join(source.sample(words, len(words))),
        "lorem ipsum": " ".join(filler[i % len(filler)] for i in range(len(words))),
    }


def judge_controls(speeches: list[Row], spec: JudgeSpec, engine, seed: int, points: int = 10) -> pd.DataFrame:
    """Scores of the spoilt versions and of the speech itself, asked again with another seed and the dimensions in reverse
    order: `prompt_id, control, dimension, score`. Nothing of it enters the results.
    """
    rows = []
    for speech in speeches:
        versions = {AGAIN: speech["generated_speech"]} | controls_of(speech, seed)
        for control, text in versions.items():
            prompts = judge_prompts(spec, speech | {"generated_speech": text}, points)[::-1]
            replies = engine.ask(prompts, [row_seed(seed, control, speech["prompt_id"])] * len(prompts))
            rows += [
                {
                    "prompt_id": speech["prompt_id"],
                    "control": control,
                    "dimension": p.dimension,
                    "score": r.judgement.score,
                }
                for p, r in zip(prompts, replies, strict=True)
            ]
    return pd.DataFrame(rows, columns=["prompt_id", "control", "dimension", "score"]).astype({"score": "float64"})


def trust_table(frame: pd.DataFrame, words: pd.Series, controls: pd.DataFrame) -> pd.DataFrame:
    """One row a dimension. Scores' mean, SD and range; Spearman's rank correlation with length; human minus model mean;
    share of (human speech, its control) pairs ranked right, ties counted half; change on asking again.

    `words`: number of words, indexed by (model, type, prompt_id, variant).
    """
    keys = list(zip(frame["model"], frame["type"], frame["prompt_id"], frame["variant"], strict=True))
    frame = frame.assign(n_words=words.reindex(pd.MultiIndex.from_tuples(keys)).to_numpy() if keys else [])
    table = [_trust_row(name, frame[frame["dimension"] == name], controls) for name in DIMENSIONS]
    return pd.DataFrame(table)


def _trust_row(name: str, scores: pd.DataFrame, controls: pd.DataFrame) -> Row:
    human = scores[scores["type"] == "human"]
    row = {
        "dimension": name,
        "n": int(scores["score"].notna().sum()),
        "mean": scores["score"].mean(),
        "sd": scores["score"].std(),
        "min": scores["score"].min(),
        "max": scores["score"].max(),
        "distinct": int(scores["score"].nunique()),
        "length_rho": _rank_correlation(scores["score"], scores["n_words"]),
        "human_minus_models": human["score"].mean() - scores.loc[scores["type"] != "human", "score"].mean(),
    }
    for control, group in controls[controls["dimension"] == name].groupby("control", sort=False):
        pairs = human.merge(group, on="prompt_id", suffixes=("", "_control")).dropna(subset=["score", "score_control"])
        difference = pairs["score"] - pairs["score_control"]
        if control == AGAIN:
            row["change_when_repeated"] = difference.abs().max()
        else:
            row[f"beats {control}"] = ((difference > 0) + 0.5 * (difference == 0)).mean()
    return row


def _rank_correlation(scores: pd.Series, lengths: pd.Series) -> float:
    """Spearman's rho in [-1, 1]; NaN for fewer than three pairs or a constant."""
    both = pd.DataFrame({"score": scores, "length": lengths}).dropna()
    if len(both) < 3 or both["score"].nunique() < 2 or both["length"].nunique() < 2:
        return np.nan
    return float(both.rank().corr().iloc[0, 1])
