"""From utterances to the benchmark's data set: what is kept, the split and its leaks, the paper's format, the card (section 3, 5.2).

Used by notebook 02, which shows all four splits: the paper splits single speeches at random and does not look for leaks.

>>> kept, dropped = keep_speeches(speeches, KeepRules(min_words=8))               # doctest: +SKIP
>>> train, test = split(kept, share=0.8, by="by-debate", seed=42)                 # doctest: +SKIP
>>> told = "I beg to ask the Minister how many buses run to the village on a Sunday"
>>> copies(shingles([told + " in winter."]), shingles(["Order.", told + "?"]))[1].tolist()
[1]
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from parliabench_utils.corpus.cleaning import plain_quotes, procedural_rule
from parliabench_utils.corpus.overview import by_paper_keys, party_table
from parliabench_utils.corpus.people import PRESIDING, UK_HOUSES
from parliabench_utils.corpus.tei import SEVERAL_SPEAKERS
from parliabench_utils.run.artefacts import file_sha256, markdown_table, markdown_text, write_text
from parliabench_utils.run.record import row_count

_UNUSUAL = re.compile("[^\x00-\x7f—–…£€½éèêáíóöüçñ]")
SPLITS = ("random", "by-debate", "by-speaker", "by-date")
RUN = 8  # words: shorter runs are the House's formulas ("I am grateful to my hon. Friend for")
COLUMNS = 2**22  # runs are hashed to so many numbers: two runs of a pair of speeches hardly ever meet by chance


# --- what is kept -----------------------------------------------------------------------------------------------------
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


def keep_speeches(speeches: pd.DataFrame, rules: KeepRules) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (kept, dropped): every row is in exactly one; `dropped` has `id`, `rule` and `text`.

    The first rule that fits gives the reason; the threshold on parties is applied last, to what the others leave. A sitting
    none of whose debates has a heading (Greece, Latvia, Turkey) is one debate: its section is `Sitting of <date>`.
    """
    if rules.min_words >= rules.max_words:
        raise ValueError(f"min_words {rules.min_words} must be below max_words {rules.max_words}")
    days = "Sitting of " + speeches["date"].astype("string").str.slice(0, 10)
    section = speeches["section"].astype(object).mask(without_headings(speeches), days.astype(object))
    frame = speeches.assign(
        text=speeches["text"].map(repair),
        section=section.map(repair, na_action="ignore"),
        prompts=[[repair(prompt) for prompt in prompts] for prompts in speeches["prompts"]],
    )
    frame["n_words"] = frame["text"].str.split().str.len()
    reason = _reasons(frame, rules)
    left = frame.loc[reason == "", "party_code"].value_counts()
    small = frame["party_code"].map(left).fillna(0) < rules.min_speeches
    reason = reason.mask((reason == "") & small, "party below min_speeches")
    if (reason != "").all():
        counts = reason.value_counts()
        shown = ", ".join(f"{rule} {n}" for rule, n in counts.items())
        remedy = _remedy(counts.index[0], rules, left, frame.loc[reason == counts.index[0], "n_words"])
        raise ValueError(f"no speech is left of {len(frame)} utterances ({shown}): most fell to {counts.index[0]!r}: {remedy}")
    return _parted(frame, reason)


def _parted(frame: pd.DataFrame, reason: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame]:
    gone = reason != ""
    dropped = pd.DataFrame({"id": frame["speech_id"], "rule": reason, "text": frame["text"]})[gone]
    return frame[~gone].reset_index(drop=True), dropped.reset_index(drop=True)


def _reasons(frame: pd.DataFrame, rules: KeepRules) -> pd.Series:
    """Return for each row the name of the first rule that drops it, `""` for none."""
    excluded = {name.casefold() for name in rules.excluded_sections}
    kind = frame["kind"].replace({"urgent": "question"})
    procedure = [
        f"procedure: {procedural_rule(text, role) or 'empty'}" if kind == "procedural" else ""
        for text, role, kind in zip(frame["text"], frame["role"], frame["kind"], strict=True)
    ]
    rows = [
        (kind == "question", "question (kept as a prompt of its answer)"),
        (kind == "procedural", pd.Series(procedure, index=frame.index)),
        (frame.get("affiliation_rule", kind) == SEVERAL_SPEAKERS, SEVERAL_SPEAKERS),
        (frame["party_code"].isna(), "affiliation unknown"),
        (frame["party_code"].isin(PRESIDING) & frame["house"].isin(UK_HOUSES.values()), "presiding officer"),
        (frame["section"].isna(), "no section"),
        (frame["section"].astype("string").str.casefold().isin(excluded), "section excluded"),
        (frame["n_words"] <= rules.min_words, "too short"),
        (frame["n_words"] >= rules.max_words, "too long"),
    ]
    reason = np.select([mask.fillna(False).to_numpy(bool) for mask, _ in rows], [name for _, name in rows], default="")
    return pd.Series(reason, index=frame.index)


def _remedy(rule: str, rules: KeepRules, left: pd.Series, n_words: pd.Series) -> str:
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


def without_headings(speeches: pd.DataFrame) -> pd.Series:
    """Return for each row whether no debate of its sitting has a heading."""
    return speeches["section"].isna().groupby(speeches["sitting_id"]).transform("all")


def drop_without_topic(kept: pd.DataFrame, dropped: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Move speeches for which no topic was found from `kept` to `dropped`, so that counts still add up."""
    kept, rows = _parted(kept, kept["topic"].isna().map({True: "no topic found", False: ""}))
    return kept, pd.concat([dropped, rows], ignore_index=True)


def repeated_texts(kept: pd.DataFrame) -> pd.DataFrame:
    """Return the texts that occur more than once: how often, by how many speakers, in how many sections; commonest first."""
    groups = kept.groupby("text", sort=False)
    table = groups.agg(times=("speech_id", "size"), speakers=("speaker_id", "nunique"), sections=("section", "nunique"))
    return table[table["times"] > 1].sort_values("times", ascending=False, kind="stable").reset_index()


# --- the split and what it lets through -------------------------------------------------------------------------------
def debate_id(sitting_id: str, section: str | None) -> str:
    """One debate: a section of a sitting. What has no heading (None, or a table's NaN) is one debate of its sitting."""
    return f"{sitting_id}/{section if isinstance(section, str) else ''}"


def debate_of(frame: pd.DataFrame) -> pd.Series:
    """Return each row's `debate_id` (columns `sitting_id` and `section` or `Section`)."""
    section = frame["section" if "section" in frame else "Section"]
    return pd.Series(list(map(debate_id, frame["sitting_id"], section)), index=frame.index, dtype=object)


def split(kept: pd.DataFrame, share: float, by: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (train, test) with `share` of the speeches in train, both in the corpus's order.

    `random` is the paper's split of single speeches. The others keep a debate, a speaker or a day whole on one side; there the
    share is met as nearly as whole groups allow. `by-date` puts the latest days in test. ValueError where one side would be empty.
    """
    if by not in SPLITS:
        raise ValueError(f"split {by!r}: expected one of {', '.join(SPLITS)}")
    if not 0 < share < 1:
        raise ValueError(f"train_share {share}: expected a number between 0 and 1")
    column = {"random": "speech_id", "by-speaker": "speaker_id", "by-date": "date"}
    groups = debate_of(kept) if by == "by-debate" else kept[column[by]]
    names = sorted(groups.unique())
    order = names if by == "by-date" else [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    sizes = groups.value_counts().reindex(order).cumsum()
    in_train = groups.isin(sizes.index[sizes <= round(share * len(kept))])
    if in_train.all() or not in_train.any():
        made_of = f"{len(order)} groups in {len(kept)} speeches"
        raise ValueError(f"split {by} into {share:.0%} and the rest: {made_of} cannot be parted so")
    return kept[in_train].reset_index(drop=True), kept[~in_train].reset_index(drop=True)


def every_split(kept: pd.DataFrame, share: float, seed: int) -> tuple[dict[str, tuple], list[str]]:
    """Return (train, test) of each of `SPLITS` that can be made, and why the others cannot (a corpus of one day, say)."""
    divided, impossible = {}, []
    for by in SPLITS:
        try:
            divided[by] = split(kept, share, by, seed)
        except ValueError as error:
            impossible.append(str(error))
    return divided, impossible


def shingles(texts: Sequence[str], n: int = RUN) -> csr_matrix:
    """Return which runs of `n` words each text has, hashed: a sparse 0/1 matrix (n_texts, 2**22), case and marks ignored."""
    from sklearn.feature_extraction.text import HashingVectorizer

    plain = {"norm": None, "alternate_sign": False, "dtype": np.float32}
    return HashingVectorizer(ngram_range=(n, n), n_features=COLUMNS, token_pattern=r"\w+", binary=True, **plain).transform(texts)


def copies(test: csr_matrix, train: csr_matrix, block: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Return for each test text the largest share of its runs that one training text has too, in [0, 1], and that text's row.

    Both arrays have shape (n_test,). A text too short for a run has share 0, and the row means nothing where the share is 0.
    """
    columns, sizes = train.T.tocsr(), np.maximum(test.getnnz(axis=1), 1)
    shared = [test[start : start + block] @ columns for start in range(0, test.shape[0], block)]
    most = [part.max(axis=1).toarray().ravel() for part in shared]
    rows = [np.asarray(part.argmax(axis=1)).ravel() for part in shared]
    return np.concatenate([*most, []]) / sizes, np.concatenate([*rows, []]).astype(int)


def companions(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Return for each test speech whether its debate, its speaker and its day are in training too."""
    found = test[[]].assign(same_debate=debate_of(test).isin(debate_of(train)))
    return found.assign(same_speaker=test["speaker_id"].isin(train["speaker_id"]), same_day=test["date"].isin(train["date"]))


def leak_table(kept: pd.DataFrame, divided: Mapping[str, tuple], near: float) -> pd.DataFrame:
    """Return a row a split of `kept`: sizes, and shares of the test speeches that have something of theirs in training.

    `near_copy`: at least the share `near` of the speech's runs of eight words is in one training speech; `same_debate`,
    `same_speaker`, `same_day` say it themselves; `copy_or_debate` is either of the first two.
    """
    runs = shingles(kept["text"].tolist())
    place = pd.Series(range(len(kept)), index=kept["speech_id"])
    table = {}
    for by, (train, test) in divided.items():
        share, _ = copies(runs[place[test["speech_id"]]], runs[place[train["speech_id"]]])
        found = companions(train, test).assign(near_copy=share >= near)
        found["copy_or_debate"] = found["near_copy"] | found["same_debate"]
        order = ["near_copy", "same_debate", "copy_or_debate", "same_speaker", "same_day"]
        table[by] = {"train": len(train), "test": len(test)} | found[order].mean().round(6).to_dict()
    return pd.DataFrame(table).T.astype({"train": int, "test": int})


def closest_copies(train: pd.DataFrame, test: pd.DataFrame, k: int = 3) -> pd.DataFrame:
    """Return the `k` test speeches most like a training speech word for word: share of their runs, both texts, both debates."""
    share, rows = copies(shingles(test["text"].tolist()), shingles(train["text"].tolist()))
    top = (-share).argsort(kind="stable")[:k]
    found = test.iloc[top][["section", "text"]].add_prefix("test_").reset_index(drop=True).assign(share=share[top])
    twins = train.iloc[rows[top]].reset_index(drop=True)
    found = found.assign(training_section=twins["section"], training_text=twins["text"])
    return found[found["share"] > 0]


# --- the paper's format and the card ----------------------------------------------------------------------------------
def to_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
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
    rows = []
    for prompt in prompts:
        speech = speeches[prompt["speech_id"]]
        row = {"prompt_id": prompt["prompt_id"], "variant": 0, "model": "human", "type": "human", "generated_speech": speech}
        row |= {"n_words": len(speech.split()), "attempts": 0, "rejections": [], "seed": seed}
        rows.append(row | {"finish_reason": "human", "trimmed": False, "seconds": 0})
    return rows


DATA_FILES = ("train.jsonl", "test.jsonl", "prompts.jsonl", "references.jsonl", "dropped.csv")
NOT_OF_THE_DATA = ("run", "profile", "data_root", "models", "types", "n_threads", "offline", "topic_url")  # parameters
_HEADER = """---
license: cc-by-4.0
language: en
task_categories: [text-generation]
configs:
- config_name: speeches
  default: true
  data_files:
  - {split: train, path: train.jsonl}
  - {split: test, path: test.jsonl}
- config_name: prompts
  data_files: prompts.jsonl
- config_name: references
  data_files: references.jsonl
---
"""
_METHODS = {
    "direct": "mapped from the corpus's CAP topic by the paper's Table 4 (score 1)",
    "embedding": "the domain whose descriptions are nearest to speech and heading by sentence embedding (score: centred cosine)",
    "kevlar": "the EuroVoc classifier KEVLAR (score: the concept's, or the sum where `topic_rule` is sum)",
    "transformers": "a sequence classifier with EuroVoc labels (score: probability, or the sum where `topic_rule` is sum)",
}


def write_card(folder: Path, kept: pd.DataFrame, facts: Mapping[str, Any], parameters: Mapping[str, Any], corpus: Mapping) -> None:
    """Write `folder/README.md`. The data files must be there.

    `facts` are counts by name, `parameters` those of notebook 02, `corpus` what `read_corpus` says of its root (title, edition).
    """

    def shown(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}" if type(value) is int else str(value)

    def table(header: Sequence[str], rows) -> str:
        return markdown_table(header, [map(shown, row) for row in rows])

    made_with = [(key, value) for key, value in parameters.items() if key not in NOT_OF_THE_DATA]
    files = [(name, row_count(folder / name), file_sha256(folder / name)) for name in DATA_FILES]
    parties = party_table(by_paper_keys(kept))
    years = zip(parties.pop("first_year"), parties.pop("last_year"), strict=True)
    parties["active_period"] = [f"{a}" if a == b else f"{a}–{b}" for a, b in years]
    parts = [
        _HEADER,
        "# Parliamentary speeches in ParliaBench's format\n",
        _summary(kept, corpus),
        "## Numbers\n" + table(("what", "value"), facts.items()),
        "## Affiliations\n" + table(parties.columns, parties.itertuples(index=False)),
        "Party is the speaker's on the day of the speech, orientation the party's in the corpus.\n",
        "## Topics\n`Topic` is one of EuroVoc's 21 domains. `topic_method` says how it was found, `topic_score` how surely:\n",
        "\n".join(f"- `{name}`: {_METHODS[name]}" for name in sorted(kept["topic_method"].unique())) + "\n",
        "## Prompts and references\n"
        "`Prompts` are the questions that a speech answers. In `prompts.jsonl` the generic instruction is ParliaBench's own wording; "
        "`weight` undoes the oversampling of small parties, by party, House and kind. References are training speeches of the "
        "prompt's context, never from its own debate or by its own speaker.\n",
        "## Made with\n" + table(("parameter", "value"), made_with),
        "## Files\n" + table(("file", "rows", "SHA-256 of the file"), files),
        "The run's manifest hashes JSONL by its rows, so its values differ from these.\n",
    ]
    write_text(folder / "README.md", "\n".join(parts))


def _summary(kept: pd.DataFrame, corpus: Mapping[str, Any]) -> str:
    days = kept["date"].dt.date
    title = markdown_text(f"{corpus['title']}, edition {corpus['edition']}")
    source = f"Source: {title}, of the ParlaMint corpora (CC BY 4.0, CLARIN)."
    if "invented" in title:
        source = f"Source: {title}: every member, place, case and word is made up (CC BY 4.0)."
    elif corpus["corpus_id"] == "ParlaMint-GB":
        source += " Contains Parliamentary information licensed under the Open Parliament Licence v3.0."
    return (
        f"{len(kept):,} speeches by {kept['speaker_id'].nunique():,} speakers of {kept['party'].nunique()} affiliations, "
        f"{days.min()} to {days.max()}. {source}\n"
    )
