"""The embedded parliament: large enough, sound as TEI, varied, its parties told apart but no caricatures."""

import re
from collections import Counter
from statistics import median

import pytest
from lxml import etree

from parliabench_utils.corpus import read_corpus
from parliabench_utils.run.project import corpus_folder

MINI = corpus_folder("mini", "data")
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
TEI = "{http://www.tei-c.org/ns/1.0}"
FORMULAS = ("to ask her majestys government", "my right hon friend the secretary of state for")
AFFILIATIONS = {"CON", "LAB", "SNP", "LD", "CB", "DUP", "I", "PC", "GP", "NA", "BI"}
TERMS = [
    ("2010-05-18", "2015-03-30"),
    ("2015-05-18", "2017-05-03"),
    ("2017-06-13", "2019-11-06"),
    ("2019-12-17", "2022-12-31"),
]


def words(text):
    return re.findall(r"[a-z0-9£%]+", text.lower().replace("’", ""))


@pytest.fixture(scope="module")
def corpus():
    return read_corpus(MINI)


@pytest.fixture(scope="module")
def speeches(corpus):
    """Speeches of 35 words and more, chairs left out."""
    return corpus[(corpus["n_words"] >= 35) & (corpus["role"] != "chair")].reset_index(drop=True)


def parse(path):
    return etree.parse(path, etree.XMLParser(resolve_entities=False, no_network=True))


def test_size(corpus, speeches):
    assert corpus["sitting_id"].nunique() >= 24
    assert len(corpus.groupby(["sitting_id", "section"])) >= 90
    assert len(list(parse(MINI / "ParlaMint-GB-listPerson.xml").iter(f"{TEI}person"))) >= 90
    assert len(speeches) >= 500
    assert set(speeches["party_code"].dropna()) >= AFFILIATIONS | {"SDLP", "UUP"}


def test_topics_are_concentrated_and_complete(speeches):
    per_context = speeches.groupby(["party_code", "cap_topic"]).size()
    assert (per_context >= 6).sum() >= 20
    assert len(set(speeches["cap_topic"].dropna()) - {"Mix"}) == 22


def test_ids_are_unique_and_references_resolve():
    ids, references = Counter(), set()
    for path in sorted(MINI.rglob("*.xml")):
        for element in parse(path).iter(etree.Element):
            ids.update([element.get(XML_ID)] if element.get(XML_ID) else [])
            for name in ("who", "ref", "corresp", "ana"):
                references |= {t for t in (element.get(name) or "").split() if t.startswith("#")}
    assert [name for name, count in ids.items() if count > 1] == []
    assert {reference for reference in references if reference[1:] not in ids} == set()


def test_the_root_lists_exactly_the_sittings():
    listed = {e.get("href") for e in parse(MINI / "ParlaMint-GB.xml").getroot().findall("{http://www.w3.org/2001/XInclude}include")}
    assert listed == {path.relative_to(MINI).as_posix() for path in MINI.glob("*/*.xml")}


def test_sittings_lie_within_a_parliament_and_on_a_sitting_day(corpus):
    from datetime import date

    for day in {str(day)[:10] for day in corpus["date"]}:
        assert any(first <= day <= last for first, last in TERMS), day
        assert date.fromisoformat(day).weekday() < 5


def test_every_file_says_that_it_is_invented_and_free():
    for path in sorted(MINI.rglob("*.xml")):
        text = path.read_text(encoding="utf-8")
        assert "nvented" in text or "taxonomy" in path.name or "listOrg" in path.name, path.name
    assert "creativecommons.org/licenses/by/4.0" in (MINI / "ParlaMint-GB.xml").read_text()


def test_no_two_speeches_share_eight_words_in_a_row(speeches):
    first, shared = {}, []
    for index, text in enumerate(speeches["text"]):
        tokens = words(text)
        for start in range(len(tokens) - 7):
            run = " ".join(tokens[start : start + 8])
            if any(formula in run or run in formula for formula in FORMULAS):
                continue
            if first.setdefault(run, index) != index:
                shared.append(run)
    assert shared == []


def test_language_is_varied(speeches):
    trigrams = [t for text in speeches["text"] for w in [words(text)] for t in zip(w, w[1:], w[2:], strict=False)]
    assert len(set(trigrams)) / len(trigrams) >= 0.85
    assert 60 <= median(speeches["n_words"]) <= 150
    assert (speeches["n_words"] > 300).sum() >= 10


def test_parties_are_told_apart_but_are_no_caricatures(speeches):
    """Nearest-party-centroid accuracy of MiniLM with debates kept apart: between 0.30 and 0.80."""
    import numpy as np
    from sklearn.model_selection import GroupKFold

    from parliabench_utils.metrics.alignment import centroids, cosines, nearest
    from parliabench_utils.models.embeddings import SentenceEncoder

    known = speeches[speeches["party_code"].isin(AFFILIATIONS)].reset_index(drop=True)
    vectors = SentenceEncoder("all-MiniLM-L6-v2").encode(known["text"].tolist())
    debates = known["sitting_id"] + "/" + known["section"].fillna("")
    labels = known["party_code"].to_numpy()
    right = np.zeros(len(known), dtype=bool)
    for train, test in GroupKFold(5, shuffle=True, random_state=42).split(vectors, groups=debates):
        right[test] = nearest(cosines(vectors[test], centroids(vectors[train], labels[train]))) == labels[test]
    assert 0.30 <= right.mean() <= 0.80, right.mean()
