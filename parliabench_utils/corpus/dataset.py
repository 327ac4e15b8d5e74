"""From utterances to the benchmark's data set: what is kept, the split, the paper's format (section 3; notebook 02).

>>> kept, dropped = keep_speeches(speeches, KeepRules(min_words=8))               # doctest: +SKIP
>>> train, test = split(kept, share=0.8, by="by-debate", seed=42)                 # doctest: +SKIP
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parliabench_utils.corpus.cleaning import plain_quotes, procedural_rule
from parliabench_utils.corpus.organisations import PRESIDING, UK_HOUSES
from parliabench_utils.corpus.sittings import SEVERAL_SPEAKERS

if TYPE_CHECKING:
    import pandas as pd

_UNUSUAL = re.compile("[^\x00-\x7f—–…£€½éèêáíóöüçñ]")
SPLITS = ("random", "by-debate", "by-speaker", "by-date")
PAPER_KEYS = ("Party", "Topic", "Political Orientation", "Section", "House", "Speech", "Prompts")


@dataclass(frozen=True)
class KeepRules:
    """Thresholds of section 3.1 step 3: word counts are kept strictly between the two, parties from `min_speeches` on."""

    min_speeches: int = 1000
    min_words: int = 35
    max_words: int = 1580
    excluded_sections: Sequence[str] = ()


def repair(text: str) -> str:
    """Return a text with broken Unicode mended, odd white space made blanks, and all quotation marks plain."""
    text = plain_quotes(text)
    if _UNUSUAL.search(text):  # mending is slow, and none of its work is left in a text of ordinary characters
        import ftfy

        text = plain_quotes(ftfy.fix_text(text, ftfy.TextFixerConfig(uncurl_quotes=False, unescape_html=False)))
    return " ".join(text.split())


def keep_speeches(speeches: "pd.DataFrame", rules: KeepRules) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Return (kept, dropped): every row is in exactly one; `dropped` has `id`, `rule` and `text`.

    The first rule that fits gives the reason; the threshold on parties is applied last, to what the others leave. A sitting
    none of whose debates has a heading (Greece, Latvia, Turkey) is one debate: its section is `Sitting of <date>`.
    """
    import pandas as pd

    if rules.min_words >= rules.max_words:
        raise ValueError(f"min_words {rules.min_words} must be below max_words {rules.max_words}")
    frame = speeches.assign(
        text=speeches["text"].map(repair),
        section=_sections(speeches).map(repair, na_action="ignore"),
        prompts=[[repair(prompt) for prompt in prompts] for prompts in speeches["prompts"]],
    )
    frame["n_words"] = frame["text"].str.split().str.len()
    reason = _reasons(frame, rules)
    left = frame.loc[reason == "", "party_code"].value_counts()
    small = frame["party_code"].map(left).fillna(0) < rules.min_speeches
    reason = reason.mask((reason == "") & small, "party below min_speeches")
    gone = reason != ""
    dropped = pd.DataFrame({"id": frame["speech_id"], "rule": reason, "text": frame["text"]})[gone]
    if gone.all():
        counts = dropped["rule"].value_counts()
        shown = ", ".join(f"{rule} {n}" for rule, n in counts.items())
        remedy = _remedy(counts.index[0], rules, left, frame.loc[reason == counts.index[0], "n_words"])
        raise ValueError(
            f"no speech is left of {len(frame)} utterances ({shown}): most fell to {counts.index[0]!r}: {remedy}"
        )
    return frame[~gone].reset_index(drop=True), dropped.reset_index(drop=True)


def without_headings(speeches: "pd.DataFrame") -> "pd.Series":
    """Return for each row whether no debate of its sitting has a heading."""
    return speeches["section"].isna().groupby(speeches["sitting_id"]).transform("all")


def _sections(speeches: "pd.DataFrame") -> "pd.Series":
    days = "Sitting of " + speeches["date"].astype("string").str.slice(0, 10)
    return speeches["section"].astype(object).mask(without_headings(speeches), days.astype(object))


def _remedy(rule: str, rules: KeepRules, left: "pd.Series", n_words: "pd.Series") -> str:
    """Return what to do when `rule` has dropped the most speeches and none is left; `n_words` are those speeches' lengths."""
    remedies = {
        "question": "the corpus holds questions and few answers; add the sittings in which they are answered",
        "procedure": "the corpus holds little but conduct of business (a u/@ana of #chair is the chair's, whoever speaks)",
        SEVERAL_SPEAKERS: "u/@who names more than one person; speeches need one speaker",
        "affiliation unknown": "no party is listed for these speakers on these days; is the list of persons the corpus's own?",
        "presiding officer": "the corpus holds little but what the Speaker and the Lord Speaker said",
        "no section": "their debates have no heading (head), while others of the same sitting have one",
        "section excluded": f"shorten excluded_sections ({', '.join(rules.excluded_sections)})",
        "too short": f"lower min_words ({rules.min_words}; the longest of them has {n_words.max()})",
        "too long": f"raise max_words ({rules.max_words}; the shortest of them has {n_words.min()})",
        "party below min_speeches": f"lower min_speeches ({rules.min_speeches}; the largest party has {left.max()})",
    }
    return next(text for name, text in remedies.items() if rule.startswith(name))


def drop_without_topic(kept: "pd.DataFrame", dropped: "pd.DataFrame") -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Move speeches for which no topic was found from `kept` to `dropped`, so that counts still add up."""
    import pandas as pd

    gone = kept["topic"].isna()
    rows = pd.DataFrame({"id": kept["speech_id"], "rule": "no topic found", "text": kept["text"]})[gone]
    return kept[~gone].reset_index(drop=True), pd.concat([dropped, rows], ignore_index=True)


def repeated_texts(kept: "pd.DataFrame") -> "pd.DataFrame":
    """Return the texts that occur more than once: how often, by how many speakers, in how many sections; commonest first."""
    groups = kept.groupby("text", sort=False)
    table = groups.agg(times=("speech_id", "size"), speakers=("speaker_id", "nunique"), sections=("section", "nunique"))
    return table[table["times"] > 1].sort_values("times", ascending=False, kind="stable").reset_index()


def _reasons(frame: "pd.DataFrame", rules: KeepRules) -> "pd.Series":
    """Return for each row the name of the first rule that drops it, `""` for none."""
    import numpy as np
    import pandas as pd

    excluded = {name.casefold() for name in rules.excluded_sections}
    kind = frame["kind"].replace({"urgent": "question"})
    procedure = [
        f"procedure: {procedural_rule(text, role) or 'empty'}" if kind == "procedural" else ""
        for text, role, kind in zip(frame["text"], frame["role"], frame["kind"], strict=True)
    ]
    several = frame.get("affiliation_rule", kind) == SEVERAL_SPEAKERS
    rows = [
        (kind == "question", "question (kept as a prompt of its answer)"),
        (kind == "procedural", pd.Series(procedure, index=frame.index)),
        (several, SEVERAL_SPEAKERS),
        (frame["party_code"].isna(), "affiliation unknown"),
        (frame["party_code"].isin(PRESIDING) & frame["house"].isin(UK_HOUSES.values()), "presiding officer"),
        (frame["section"].isna(), "no section"),
        (frame["section"].astype("string").str.casefold().isin(excluded), "section excluded"),
        (frame["n_words"] <= rules.min_words, "too short"),
        (frame["n_words"] >= rules.max_words, "too long"),
    ]
    reason = np.select([mask.fillna(False).to_numpy(bool) for mask, _ in rows], [name for _, name in rows], default="")
    return pd.Series(reason, index=frame.index)


def debate_id(sitting_id: str, section: str | None) -> str:
    """One debate: a section of a sitting. What has no heading (None, or a table's NaN) is one debate of its sitting."""
    return f"{sitting_id}/{section if isinstance(section, str) else ''}"


def debate_of(frame: "pd.DataFrame") -> "pd.Series":
    """Return each row's debate by `debate_id` (columns `sitting_id` and `section` or `Section`)."""
    section = frame["section"] if "section" in frame else frame["Section"]
    return frame["sitting_id"] + "/" + section.fillna("")


def split(kept: "pd.DataFrame", share: float, by: str, seed: int) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Return (train, test) with `share` of the speeches in train, both in the corpus's order.

    `random` is the paper's split of single speeches. The others keep a debate, a speaker or a day whole on one side; there the
    share is met as nearly as whole groups allow. `by-date` puts the latest days in test. ValueError where one side would be empty.
    """
    if by not in SPLITS:
        raise ValueError(f"split {by!r}: expected one of {', '.join(SPLITS)}")
    if not 0 < share < 1:
        raise ValueError(f"train_share {share}: expected a number between 0 and 1")
    groups = _groups(kept, by)
    order = _group_order(groups, by, seed)
    sizes = groups.value_counts().reindex(order).cumsum()
    in_train = groups.isin(sizes.index[sizes <= round(share * len(kept))])
    if in_train.all() or not in_train.any():
        raise ValueError(
            f"split {by} into {share:.0%} and the rest: {len(order)} groups in {len(kept)} speeches cannot be parted so"
        )
    return kept[in_train].reset_index(drop=True), kept[~in_train].reset_index(drop=True)


def every_split(
    kept: "pd.DataFrame", share: float, seed: int
) -> tuple[dict[str, tuple["pd.DataFrame", "pd.DataFrame"]], list[str]]:
    """Return (train, test) of each of `SPLITS` that can be made, and why the others cannot (a corpus of one day, say)."""
    divided, impossible = {}, []
    for by in SPLITS:
        try:
            divided[by] = split(kept, share, by, seed)
        except ValueError as error:
            impossible.append(str(error))
    return divided, impossible


def _groups(kept: "pd.DataFrame", by: str) -> "pd.Series":
    if by == "by-debate":
        return debate_of(kept)
    return kept[{"random": "speech_id", "by-speaker": "speaker_id", "by-date": "date"}[by]]


def _group_order(groups: "pd.Series", by: str, seed: int) -> list[Any]:
    import numpy as np

    names = sorted(groups.unique())
    return names if by == "by-date" else [names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def to_records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return rows in the paper's format: its seven keys, then ours (ids, date, how the topic was found, length).

    The House of a parliament that has but one is `Parliament`.
    """
    return [
        {
            "Party": row.party,
            "Topic": row.topic,
            "Political Orientation": row.orientation,
            "Section": row.section,
            "House": row.house if isinstance(row.house, str) else "Parliament",
            "Speech": row.text,
            "Prompts": list(row.prompts),
            "speech_id": row.speech_id,
            "speaker_id": row.speaker_id,
            "sitting_id": row.sitting_id,
            "date": row.date.date().isoformat(),
            "cap_topic": row.cap_topic if isinstance(row.cap_topic, str) else None,
            "topic_method": row.topic_method,
            "topic_score": round(float(row.topic_score), 6),
            "n_words": int(row.n_words),
        }
        for row in frame.itertuples(index=False)
    ]


def human_rows(prompts: list[dict], speeches: dict[str, str], seed: int) -> list[dict[str, Any]]:
    """Return the human row of each prompt in notebook 04's format: the speech that was really given."""
    return [
        {
            "prompt_id": prompt["prompt_id"],
            "variant": 0,
            "model": "human",
            "type": "human",
            "generated_speech": speeches[prompt["speech_id"]],
            "n_words": len(speeches[prompt["speech_id"]].split()),
            "attempts": 0,
            "rejections": [],
            "seed": seed,
            "finish_reason": "human",
            "trimmed": False,
            "seconds": 0,
        }
        for prompt in prompts
    ]
