"""What notebooks 01 and 02 show, and Tables 3 and 4 and Figure 2 as counted and drawn for them and for the report.

>>> party_table(dataset)          # doctest: +SKIP
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parliabench_utils.corpus import cleaning
from parliabench_utils.corpus.people import ORIENTATION_SCALE, UNKNOWN_ORIENTATION, Person
from parliabench_utils.corpus.topics import UNREACHABLE
from parliabench_utils.corpus.xml import TEI, CorpusError, read_xml

if TYPE_CHECKING:
    import pandas as pd
    from lxml import etree
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK, GREY, PALE, BAR, PALE_BAR = "#222222", "#6B6B6B", "#E4E4E4", "#4C78A8", "#D3DEEA"
SMALL = 6  # points; no text of a figure is smaller
ORIENTATIONS = (*ORIENTATION_SCALE, UNKNOWN_ORIENTATION)  # left to right


def debate_xml(files: Iterable[Path], n_utterances: int = 2, max_chars: int = 220) -> str:
    """Return the first debate of the files with at least `n_utterances`, as XML with long segments cut."""
    from lxml import etree

    div = next((item for item in _debates(files) if len(item.findall(f"{TEI}u")) >= n_utterances), None)
    if div is None:
        return f"(no debate here has {n_utterances} utterances)"
    for element in div.findall(f"{TEI}u")[n_utterances:]:
        div.remove(element)
    for seg in div.iter(f"{TEI}seg"):
        if seg.text and len(seg.text) > max_chars:
            seg.text = f"{seg.text[:max_chars].rsplit(' ', 1)[0]} …"
    return etree.tostring(div, encoding="unicode").replace(' xmlns="http://www.tei-c.org/ns/1.0"', "").strip()


def _debates(files: Iterable[Path]) -> "Iterator[etree._Element]":
    for path in files:
        try:
            tree = read_xml(path)
        except CorpusError:  # to be told, or set aside, by read_corpus
            continue
        yield from tree.iter(f"{TEI}div")


def count_utterances(files: Iterable[Path]) -> int:
    """Return how many `<u>` tags begin in the files' bytes, whatever their encoding, prefix and line breaks: no parser is asked."""
    tag = re.compile(rb"<(?:[\w.-]+:)?u[\s/>]")
    return sum(len(tag.findall(path.read_bytes().replace(b"\0", b""))) for path in files)


def most_travelled(people: dict[str, Person], speaker_ids: "pd.Series") -> Person:
    """Return the speaker with the most different parties, of several the one with the most spells (then by id).

    ValueError where the corpus lists none of the speakers.
    """

    def key(identity: str) -> tuple[int, int, str]:
        spells = [item for item in people[identity].affiliations if item.to_party]
        return len({item.ref for item in spells}), len(spells), identity

    known = [name for name in speaker_ids.dropna().unique() if name in people]
    if not known:
        raise ValueError(
            f"{len(speaker_ids):,} utterances, none by a person whom the corpus lists: is the list of persons the corpus's own?"
        )
    return people[max(known, key=key)]


def spells(person: Person) -> "pd.DataFrame":
    """Return a person's spells in parties, in the document's order: party, start, end (None is open)."""
    import pandas as pd

    rows = [(item.ref, item.start, item.end) for item in person.affiliations if item.to_party]
    return pd.DataFrame(rows, columns=["party", "from", "to"])


def questions_and_answers(speeches: "pd.DataFrame", n: int, seed: int) -> "pd.DataFrame":
    """Return `n` sampled answers: what was asked (numbering removed), how the answer begins."""
    answers = speeches[speeches["prompts"].str.len() > 0]
    sample = answers.sample(min(n, len(answers)), random_state=seed).sort_index()
    shown = sample[["house", "section", "prompts"]].assign(answer=sample["text"].str.slice(0, 80))
    return shown.reset_index(drop=True)


def questions_by_rule(speeches: "pd.DataFrame") -> "pd.DataFrame":
    """Return each rule that finds questions: how often it fired, how many found their answer, how many went on as speeches."""
    texts = zip(speeches["text"], speeches["house"], speeches["role"], strict=True)
    rules = [cleaning.question_rule(text, house) if role != "chair" else None for text, house, role in texts]
    asked = speeches.assign(rule=rules).dropna(subset=["rule"])
    answered = asked["speech_id"].isin(set(speeches["answers"].explode().dropna()))
    groups = asked.assign(answered=answered, speech=asked["kind"] == "speech").groupby("rule")
    return groups.agg(fired=("rule", "size"), answered=("answered", "sum"), goes_on_as_a_speech=("speech", "sum"))


def examples_of_rules(rows: "pd.DataFrame", names: Iterable[str] = (), n: int = 3, max_chars: int = 90) -> "pd.DataFrame":
    """Return how often each rule of `rows` (columns `rule`, `text`) fired, with up to `n` different texts.

    `names` are the rules that there are; those that never fired are shown with a count of 0.
    """
    import pandas as pd

    table = dict.fromkeys(names, (0, "")) | {
        rule: (len(texts), " · ".join(text[:max_chars] for text in texts.unique()[:n]))
        for rule, texts in rows.groupby("rule", sort=False)["text"]
    }
    frame = pd.DataFrame.from_dict(table, orient="index", columns=["fired", "examples"]).rename_axis("rule")
    return frame.reset_index().sort_values("fired", ascending=False, kind="stable", ignore_index=True)


def procedure_rows(speeches: "pd.DataFrame") -> "pd.DataFrame":
    """Return the utterances that are procedure, with the name of the rule that says so."""
    rows = speeches[speeches["kind"] == "procedural"]
    rules = [cleaning.procedural_rule(text, role) for text, role in zip(rows["text"], rows["role"], strict=True)]
    return rows.assign(rule=rules)


def is_paper_corpus(corpus: Mapping[str, Any]) -> bool:
    """Whether `corpus` (`read_corpus`'s attrs) is the paper's: the whole of ParlaMint-GB 5.0."""
    return (corpus["corpus_id"], corpus["edition"], corpus["n_files"]) == ("ParlaMint-GB", "5.0", 2209)


# Sections 3.1 and 3.2; the lengths and the houses (of the models' inputs) are the project page's.
_PAPER = (447_778, 1_901, "2015-01-05", "2022-07-21", 223.2, 99.0, 278.7, 0.78, 0.22)


def dataset_numbers(kept: "pd.DataFrame", corpus: Mapping[str, Any]) -> "pd.DataFrame":
    """Return size, period, lengths and houses of the data set; beside them the paper's where the corpus is the paper's."""
    import pandas as pd

    days, words, houses = kept["date"].dt.date, kept["n_words"], kept["house"].value_counts(normalize=True)
    lengths = [round(float(value), 1) for value in (words.mean(), words.median(), words.std())]
    shares = [round(float(houses.get(name, 0)), 2) for name in ("House of Commons", "House of Lords")]
    ours = [len(kept), kept["speaker_id"].nunique(), str(days.min()), str(days.max()), *lengths, *shares]
    names = ["speeches", "speakers", "first day", "last day", "mean words", "median words", "sd of words", "Commons", "Lords"]
    table = pd.DataFrame({"this run": pd.Series(ours, index=names, dtype=object)})
    return table.assign(paper=list(_PAPER)) if is_paper_corpus(corpus) else table


def by_paper_keys(kept: "pd.DataFrame") -> "pd.DataFrame":
    """The kept speeches under the paper's keys, as the data set has them."""
    return kept.rename(columns={"party": "Party", "topic": "Topic", "orientation": "Political Orientation", "house": "House"})


def party_table(dataset: "pd.DataFrame") -> "pd.DataFrame":
    """Table 3 of a run: party, orientation, speeches, speakers, first_year, last_year, the largest party first.

    `dataset` has the paper's keys (`Party`, `Political Orientation`), `speech_id`, `speaker_id` and `date`.
    """
    import pandas as pd

    years = pd.to_datetime(dataset["date"]).dt.year.astype("Int64")
    table = (
        dataset.assign(year=years)
        .groupby("Party")
        .agg(
            orientation=("Political Orientation", lambda s: " / ".join(sorted(set(s)))),
            speeches=("speech_id", "count"),
            speakers=("speaker_id", "nunique"),
            first_year=("year", "min"),
            last_year=("year", "max"),
        )
    )
    table = table.reset_index(names="party")
    return table.sort_values(["speeches", "party"], ascending=[False, True], ignore_index=True)


def topic_table(dataset: "pd.DataFrame") -> "pd.DataFrame":
    """Table 4 of a run: cap_topic (`(none)` where the corpus has none), Topic, topic_method, and how many speeches went that way."""
    counted = dataset.assign(cap_topic=dataset["cap_topic"].fillna("(none)"))
    return counted.groupby(["cap_topic", "Topic", "topic_method"]).size().rename("speeches").reset_index()


def draw_confusion(counts: "pd.DataFrame") -> "Figure":
    """`topics.confusion` as a heat map: counts as numbers, shares of the row as shades, a line before the unreachable."""
    import matplotlib.pyplot as plt
    import seaborn

    figure, ax = plt.subplots(figsize=(11, 1.8 + 0.36 * len(counts)), layout="constrained")
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0)
    shown = counts.astype(str).where(counts > 0, "")
    seaborn.heatmap(
        shares, ax=ax, cmap="Blues", vmin=0, vmax=1, annot=shown, fmt="", cbar=False, xticklabels=True, yticklabels=True
    )
    ax.tick_params(axis="y", rotation=0)
    ax.set_xticks(ax.get_xticks(), counts.columns, rotation=40, ha="right")
    ax.axvline(counts.shape[1] - len(UNREACHABLE), color="#c44e52")
    ax.set(xlabel="classifier", ylabel="Table 4")
    return figure


def topic_counts(dataset: "pd.DataFrame") -> "pd.Series":
    """Speeches by topic, the commonest last."""
    return dataset["Topic"].value_counts().sort_index().sort_values(kind="stable")


def dataset_height(dataset: "pd.DataFrame") -> float:
    """Inches that Figure 2 needs for its topics."""
    return 2.2 + max(1.4, 0.17 * dataset["Topic"].nunique() + 0.7)


def draw_dataset(dataset: "pd.DataFrame", figure: "Figure") -> "pd.DataFrame":
    """Figure 2: words a speech, speeches a year and House, topics, orientations from left to right; returns what is drawn.

    `dataset` has the paper's keys, `n_words` and `date`.
    """
    import pandas as pd

    upper, lower = figure.subfigures(2, 1, height_ratios=[2.1, dataset_height(dataset) - 2.2])
    (length, year), (topic, orientation) = upper.subplots(1, 2), lower.subplots(1, 2)
    placed = dataset["Political Orientation"].value_counts()
    placed = placed.reindex([o for o in ORIENTATIONS if o in placed.index][::-1])
    panels = [_lengths(length, dataset["n_words"]), _years(year, dataset), _bars(topic, topic_counts(dataset), "c", "Topics")]
    return pd.concat([*panels, _bars(orientation, placed, "d", "Orientation")], ignore_index=True)


def _lengths(axes: "Axes", words: "pd.Series") -> "pd.DataFrame":
    import pandas as pd

    counts, edges = np.histogram(words, bins=min(40, max(8, int(len(words) ** 0.5))))
    axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=BAR, edgecolor="white", linewidth=0.4)
    axes.axvline(words.median(), color=INK, lw=1, ls="--")
    axes.text(words.median(), counts.max() * 1.02, f" median {words.median():.0f}", va="bottom", fontsize=7)
    axes.set(title="(a) Speech length", xlabel="words", ylabel="speeches", ylim=(0, counts.max() * 1.15))
    axes.grid(axis="y")
    return pd.DataFrame({"panel": "a", "group": edges[:-1].round(1).astype(str), "house": "", "speeches": counts})


def _bars(axes: "Axes", counts: "pd.Series", letter: str, title: str) -> "pd.DataFrame":
    import pandas as pd

    axes.barh(range(len(counts)), counts.to_numpy(), color=BAR, height=0.72)
    axes.set_yticks(range(len(counts)), counts.index)
    for position, value in enumerate(counts):
        axes.text(value, position, f" {value:,}", va="center", fontsize=SMALL + 0.3, color=GREY)
    axes.set(title=f"({letter}) {title}", xlabel="speeches", xlim=(0, counts.max() * 1.15), ylim=(-0.6, len(counts) - 0.4))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    return pd.DataFrame({"panel": letter, "group": counts.index, "house": "", "speeches": counts.to_numpy()})


def _years(axes: "Axes", dataset: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    dated = dataset[dataset["date"].notna()]  # an imported run knows no dates
    counts = pd.crosstab(dated["date"].astype(str).str[:4], dated["House"])
    width = 0.8 / max(len(counts.columns), 1)
    for position, (house, colour, hatch) in enumerate(zip(counts.columns, (BAR, PALE_BAR), ("", "////"), strict=False)):
        places = np.arange(len(counts)) + (position - (len(counts.columns) - 1) / 2) * width
        axes.bar(places, counts[house], width=width, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.4, label=house)
    axes.set_xticks(range(len(counts)), counts.index, rotation=45 if len(counts) > 5 else 0)
    axes.set(title="(b) Speeches a year", ylabel="speeches", ylim=(0, counts.to_numpy().max(initial=1) * 1.3))
    if len(counts):
        axes.legend(loc="upper left", ncols=2, fontsize=6.5, borderpad=0, handlelength=1.2, columnspacing=1)
    axes.grid(axis="y", color=PALE)
    long = counts.rename_axis("group").reset_index().melt(id_vars="group", var_name="house", value_name="speeches")
    return long.assign(panel="b")[["panel", "group", "house", "speeches"]]
