"""What notebooks 01 and 02 show: a piece of TEI, one person's parties, examples of each rule, Tables 3 and 4, Figure 2.

>>> draw_dataset(kept)          # doctest: +SKIP
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parliabench_utils.corpus import cleaning
from parliabench_utils.corpus.people import ORIENTATION_SCALE, Person
from parliabench_utils.corpus.topics import CAP_TO_EUROVOC, EUROVOC_DOMAINS, UNREACHABLE
from parliabench_utils.corpus.xml import TEI, CorpusError, read_xml

if TYPE_CHECKING:
    import pandas as pd
    from lxml import etree
    from matplotlib.figure import Figure


PAPER_TABLE_3 = Path(__file__).parents[1] / "results/paper_tables/table03_parties.csv"


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
    names = (
        "speeches",
        "speakers",
        "first day",
        "last day",
        "mean words",
        "median words",
        "sd of words",
        "Commons",
        "Lords",
    )
    table = pd.DataFrame({"this run": pd.Series(ours, index=names, dtype=object)})
    return table.assign(paper=list(_PAPER)) if is_paper_corpus(corpus) else table


def party_table(kept: "pd.DataFrame", corpus: Mapping[str, Any] | None = None) -> "pd.DataFrame":
    """Return Table 3 as run: party, orientation, speeches, speakers, active period (years of its speeches).

    With the paper's own corpus, the paper's speeches and speakers stand beside them.
    """
    import pandas as pd

    groups = kept.assign(year=kept["date"].dt.year).groupby("party")
    table = groups.agg(
        orientation=("orientation", "first"),
        speeches=("speech_id", "size"),
        speakers=("speaker_id", "nunique"),
        first=("year", "min"),
        last=("year", "max"),
    )
    years = zip(table.pop("first"), table.pop("last"), strict=True)
    table["active_period"] = [f"{a}" if a == b else f"{a}–{b}" for a, b in years]
    if corpus and is_paper_corpus(corpus):
        published = pd.read_csv(PAPER_TABLE_3, index_col="party")[["speeches", "speakers"]]
        table = table.join(published.add_suffix("_paper"))
    return table.sort_values("speeches", ascending=False, kind="stable").reset_index()


def topic_table(kept: "pd.DataFrame") -> "pd.DataFrame":
    """Return Table 4 as run: each CAP category, its direct domain if it has one, speeches, and the two commonest domains.

    Speeches to which the corpus gives no topic are a row of their own, the last.
    """
    import pandas as pd

    topics, rows = kept["cap_topic"].fillna("(none)"), []
    for name, domain in {**CAP_TO_EUROVOC, "(none)": None}.items():
        found = kept.loc[topics == name, "topic"].value_counts()
        shown = ", ".join(f"{topic} {n}" for topic, n in found.head(2).items())
        rows.append((name, domain or "—", "direct" if domain else "automated", found.sum(), shown))
    return pd.DataFrame(rows, columns=["cap_category", "eurovoc_domain", "method", "speeches", "domains_found"])


def draw_confusion(counts: "pd.DataFrame") -> "Figure":
    """Return `topics.confusion` as a heat map: counts as numbers, shares of the row as shades, a line before the unreachable."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(11, 1.8 + 0.36 * len(counts)), layout="constrained")
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), n in np.ndenumerate(counts.to_numpy()):
        if n:
            ax.text(
                column,
                row,
                f"{n}",
                ha="center",
                va="center",
                color="white" if shares.iat[row, column] > 0.5 else "black",
            )
    ax.set_xticks(range(counts.shape[1]), counts.columns, rotation=40, ha="right")
    ax.set_yticks(range(len(counts)), counts.index)
    ax.axvline(counts.shape[1] - len(UNREACHABLE) - 0.5, color="#c44e52")
    ax.set(xlabel="classifier", ylabel="Table 4")
    return figure


def draw_dataset(kept: "pd.DataFrame") -> "Figure":
    """Return Figure 2: speech length, topics, orientations, and speeches over time, of the kept speeches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    _draw_lengths(axes[0, 0], kept["n_words"])
    _draw_bars(axes[0, 1], kept["topic"].value_counts().reindex(EUROVOC_DOMAINS).dropna().sort_values(), "(b) Topics")
    order = [name for name in (*ORIENTATION_SCALE, "Unknown") if (kept["orientation"] == name).any()]
    _draw_bars(axes[1, 0], kept["orientation"].value_counts().reindex(order)[::-1], "(c) Political orientation")
    _draw_time(axes[1, 1], kept["date"])
    return figure


def _draw_lengths(ax, n_words: "pd.Series") -> None:
    ax.hist(n_words, bins=40, color="#4c72b0")
    ax.axvline(n_words.median(), color="#c44e52", label=f"median {n_words.median():.0f}")
    ax.axvline(n_words.mean(), color="#c44e52", linestyle="--", label=f"mean {n_words.mean():.0f}")
    ax.set(title="(a) Speech length", xlabel="words", ylabel="speeches")
    ax.legend(frameon=False)


def _draw_bars(ax, counts: "pd.Series", title: str) -> None:
    ax.barh(counts.index, counts.to_numpy(), color="#4c72b0")
    ax.set(title=title, xlabel="speeches")
    ax.tick_params(axis="y", labelsize=8)


def _draw_time(ax, dates: "pd.Series") -> None:
    """By month when the corpus covers more than a year, by day when it covers less."""
    by_month = (dates.max() - dates.min()).days > 366
    counts = dates.dt.to_period("M" if by_month else "D").value_counts().sort_index()
    ax.bar(counts.index.to_timestamp(), counts.to_numpy(), width=25 if by_month else 0.8, color="#4c72b0")
    ax.set(title="(d) Over time", ylabel=f"speeches a {'month' if by_month else 'sitting day'}")
    ax.tick_params(axis="x", rotation=30)
