"""What tuning changed, before any metric: failures, length, and the words of the place. The end of notebook 04.

from parliabench_utils.models.tuning import parliamentary_pairs, what_changed
what_changed(speeches, human, kept)         # a row a model and measure, a column a type, the members' own beside them
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Said in the Chamber and hardly elsewhere: who is addressed, and how one speaks of the place.
PARLIAMENTARY = re.compile(
    r"\b(?:hon\.|(?:right )?honourable|[Nn]oble (?:Lords?|Baroness|Friend|and learned|Earl)|[Mm]y Lords|[Yy]our Lordships|"
    r"Mr\.? (?:Deputy )?Speaker|Madam (?:Deputy )?Speaker|[Tt]he Minister|Secretary of State|[Tt]he (?:Prime Minister|Chancellor)|"
    r"[Tt]h(?:e|is) House|[Tt]he Member for|[Mm]y constituen(?:cy|ts)|Opposition (?:Front )?Bench(?:es)?|Members opposite|"
    r"I beg to move|give way)"
)


def parliamentary_share(text: str) -> float:
    """Phrases of the Chamber per 100 words; 0 for an empty text."""
    words = len(text.split())
    return 100 * len(PARLIAMENTARY.findall(text)) / words if words else 0.0


def what_changed(speeches: "pd.DataFrame", human: "pd.DataFrame", kept: list[str]) -> "pd.DataFrame":
    """One row a model and measure, a column a type, and `human` where it can be said of members.

    Failures are shares of all prompts; words and phrases are taken on the prompts of `kept`, the same for all.
    """
    import pandas as pd

    own = pd.Series(_manner(human, kept), name="human")
    frames = []
    for model, group in speeches.groupby("model", sort=False):
        columns = {kind: _failures(rows) | _manner(rows, kept) for kind, rows in group.groupby("type", sort=False)}
        frames.append(pd.concat({model: pd.DataFrame(columns).join(own)}, names=["model", "measure"]))
    return pd.concat(frames)


def _failures(rows: "pd.DataFrame") -> dict[str, float]:
    return {
        "first attempt rejected, share": float((rows["rejections"].str.len() > 0).mean()),
        "never valid, share": float(rows["generated_speech"].isna().mean()),
        "stopped by itself, share": float((rows["finish_reason"] == "stop").mean()),
    }


def _manner(rows: "pd.DataFrame", kept: list[str]) -> dict[str, float]:
    rows = rows[rows["prompt_id"].isin(kept)]
    lower, median, upper = rows["n_words"].quantile([0.25, 0.5, 0.75])
    phrases = rows["generated_speech"].map(parliamentary_share).astype(float)
    return {
        "words, lower quartile": lower,
        "words, median": median,
        "words, upper quartile": upper,
        "phrases of the Chamber per 100 words": phrases.mean(),
        "speeches with one or more, share": (phrases > 0).mean(),
    }


def parliamentary_pairs(speeches: "pd.DataFrame", kept: list[str]) -> "pd.DataFrame":
    """Tuned against base on the prompts of `kept`: phrases of the Chamber per 100 words, and on how many prompts which has more.

    Empty where a type is missing.
    """
    import pandas as pd

    columns = ["model", "prompts", "baseline", "fine-tuned", "more often", "less often", "equal"]
    rows = []
    spoken = speeches[speeches["prompt_id"].isin(kept)]
    spoken = spoken.assign(share=spoken["generated_speech"].map(parliamentary_share).astype(float))
    for model, group in spoken.groupby("model", sort=False):
        wide = group.pivot_table(index="prompt_id", columns="type", values="share")
        if {"baseline", "fine-tuned"} <= set(wide):
            change = wide["fine-tuned"] - wide["baseline"]
            counts = [int((change > 0).sum()), int((change < 0).sum()), int((change == 0).sum())]
            rows.append([model, len(wide), wide["baseline"].mean(), wide["fine-tuned"].mean(), *counts])
    return pd.DataFrame(rows, columns=columns)
