"""What notebooks 01 and 02 show: a piece of TEI, one person's parties, examples of each rule, Tables 3 and 4, Figure 2.

>>> draw_dataset(kept)          # doctest: +SKIP
"""

from pathlib import Path
from typing import TYPE_CHECKING

from parliabench_utils.corpus import cleaning
from parliabench_utils.corpus.organisations import ORIENTATION_SCALE
from parliabench_utils.corpus.people import Person
from parliabench_utils.corpus.safe_xml import TEI, read_xml
from parliabench_utils.corpus.topics import CAP_TO_EUROVOC, EUROVOC_DOMAINS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def debate_xml(path: Path, n_utterances: int = 2, max_chars: int = 220) -> str:
    """Return the first debate of a sitting file with at least `n_utterances`, as XML with long segments cut."""
    from lxml import etree

    body = read_xml(path).find(f"{TEI}text/{TEI}body")
    div = next(item for item in body.iter(f"{TEI}div") if len(item.findall(f"{TEI}u")) >= n_utterances)
    for element in div.findall(f"{TEI}u")[n_utterances:]:
        div.remove(element)
    for seg in div.iter(f"{TEI}seg"):
        if seg.text and len(seg.text) > max_chars:
            seg.text = f"{seg.text[:max_chars].rsplit(' ', 1)[0]} …"
    return etree.tostring(div, encoding="unicode").replace(' xmlns="http://www.tei-c.org/ns/1.0"', "").strip()


def most_travelled(people: dict[str, Person], speaker_ids: "pd.Series") -> Person:
    """Return the speaker with the most different parties, of several the one with the most spells (then by id)."""

    def key(identity: str) -> tuple[int, int, str]:
        spells = [item for item in people[identity].affiliations if item.to_party]
        return len({item.ref for item in spells}), len(spells), identity

    return people[max((name for name in speaker_ids.dropna().unique() if name in people), key=key)]


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


def examples_of_rules(rows: "pd.DataFrame", n: int = 3, max_chars: int = 90) -> "pd.DataFrame":
    """Return each rule of `rows` (columns `rule`, `text`) with how often it fired and up to `n` different texts."""
    import pandas as pd

    table = [
        (rule, len(group), " · ".join(text[:max_chars] for text in group["text"].unique()[:n]))
        for rule, group in rows.groupby("rule", sort=False)
    ]
    return pd.DataFrame(table, columns=["rule", "fired", "examples"]).sort_values("fired", ascending=False)


def procedure_rows(speeches: "pd.DataFrame") -> "pd.DataFrame":
    """Return the utterances that are procedure, with the name of the rule that says so."""
    rows = speeches[speeches["kind"] == "procedural"]
    rules = [cleaning.procedural_rule(text, role) for text, role in zip(rows["text"], rows["role"], strict=True)]
    return rows.assign(rule=rules)


def party_table(kept: "pd.DataFrame") -> "pd.DataFrame":
    """Return Table 3 as run: party, orientation, speeches, speakers, active period (years of its speeches)."""
    years = kept["date"].dt.year
    groups = kept.assign(year=years).groupby("party")
    table = groups.agg(
        orientation=("orientation", "first"),
        speeches=("speech_id", "size"),
        speakers=("speaker_id", "nunique"),
        first=("year", "min"),
        last=("year", "max"),
    )
    table["active_period"] = [
        f"{a}" if a == b else f"{a}–{b}" for a, b in zip(table["first"], table["last"], strict=True)
    ]
    return table.drop(columns=["first", "last"]).sort_values("speeches", ascending=False).reset_index()


def topic_table(kept: "pd.DataFrame") -> "pd.DataFrame":
    """Return Table 4 as run: each CAP category, its direct domain if it has one, speeches, and the commonest domain found."""
    import pandas as pd

    rows = []
    for name, domain in CAP_TO_EUROVOC.items():
        found = kept.loc[kept["cap_topic"] == name, "topic"]
        method = "direct" if domain else "automated"
        commonest = found.value_counts().index[0] if len(found) else None
        rows.append((name, domain, method, len(found), commonest))
    columns = ["cap_category", "eurovoc_domain", "method", "speeches", "commonest_domain"]
    return pd.DataFrame(rows, columns=columns)


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
