"""One sitting file to rows (used by `tei.read_corpus`).

>>> rows, dropped = read_sitting(Path("ParlaMint-GB_2017-09-07-commons.xml"), corpus)     # doctest: +SKIP
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from lxml import etree

from parliabench_utils.corpus import cleaning
from parliabench_utils.corpus.organisations import (
    UK_CORPUS,
    UK_HOUSE_ORGS,
    UK_HOUSE_WORDS,
    UK_HOUSES,
    UNKNOWN_ORIENTATION,
)
from parliabench_utils.corpus.people import explain_affiliation, is_government, read_date
from parliabench_utils.corpus.roots import Corpus
from parliabench_utils.corpus.safe_xml import TEI, XML_ID, CorpusError, id_of, one_line, read_xml

# fmt: off
COLUMNS = (
    "speech_id", "sitting_id", "date", "house", "section", "order", "speaker_id", "speaker_name", "sex", "role",
    "is_government", "party_code", "party", "orientation_code", "orientation", "n_candidate_parties", "affiliation_rule",
    "cap_topic", "kind", "answers", "prompts", "text", "n_words",
)
TEXT_COLUMNS = (
    "speech_id", "sitting_id", "house", "section", "speaker_id", "speaker_name", "sex", "role", "party_code", "party",
    "orientation_code", "orientation", "affiliation_rule", "cap_topic", "kind", "text",
)
# fmt: on
ROLES = ("chair", "regular", "guest")
OTHER_HOUSES = {"lower": "Lower house", "upper": "Upper house"}
# What is said about a speech and not in it: these elements' words are never speech.
_NOT_SPEECH = {TEI + name for name in ("gap", "vocal", "kinesic", "incident", "note", "desc", "head")}
_U, _SEG, _DIV, _HEAD, _NOTE, _BODY = (TEI + name for name in ("u", "seg", "div", "head", "note", "body"))
_CLOSERS = "”“\"'’)]»"
_ENDS = tuple(".!?:;,…—–-")


def read_sitting(path: Path, corpus: Corpus) -> tuple[list[tuple], list[dict]]:
    """Return a sitting's rows (columns as in COLUMNS) and the dropped utterances. Raises CorpusError with file and line."""
    tree = read_xml(path)
    if tree.tag != f"{TEI}TEI":
        raise CorpusError(path, tree.sourceline, f"expected a TEI element, found {etree.QName(tree).localname}")
    body = tree.find(f"{TEI}text/{_BODY}")
    if body is None:
        raise CorpusError(path, tree.sourceline, "has no text/body")
    sitting_id = tree.get(XML_ID) or path.stem
    day = _date_of(tree, path)
    house = _house_of(tree, path, corpus.corpus_id)
    return _read_body(body, path, corpus, _Sitting(sitting_id, day, house))


@dataclass
class _Sitting:
    """Where we are in a file: the questions that wait for their answer are those of the current div."""

    sitting_id: str
    day: date
    house: str | None
    rows: list[tuple] = field(default_factory=list)
    dropped: list[dict] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    speakers: dict[str | None, tuple] = field(default_factory=dict)
    section: str | None = None
    waiting: list[tuple[str | None, str, str | None]] = field(default_factory=list)  # (id, question, who asked)
    urgent_note: bool = False

    def enter(self, section: str | None) -> None:
        self.section, self.waiting, self.urgent_note = section, [], False


def _read_body(body: etree._Element, path: Path, corpus: Corpus, here: _Sitting) -> tuple[list[tuple], list[dict]]:
    for element, div in _walk(body):
        if element is div:
            here.enter(_section_of(div))
        elif element.tag == _NOTE:
            _read_note(element, here)
        else:
            _read_utterance(element, path, corpus, here)
    return here.rows, here.dropped


def _walk(body: etree._Element) -> Iterator[tuple[etree._Element, etree._Element | None]]:
    """Yield (element, its div) for each div, utterance, and note between utterances, in document order."""
    stack = [(iter(body), None)]
    while stack:
        children, div = stack[-1]
        child = next(children, None)
        if child is None:
            stack.pop()
        elif child.tag == _DIV:
            yield child, child
            stack.append((iter(child), child))
        elif child.tag in (_U, _NOTE):
            yield child, div


def _section_of(div: etree._Element | None) -> str | None:
    """Return the head of the nearest div that has one; None after a sampling cut, which leaves no head."""
    while div is not None and div.tag == _DIV:
        head = div.find(_HEAD)
        if head is not None:
            return _speech_text(head) or None
        div = div.getparent()
    return None


def _read_note(element: etree._Element, here: _Sitting) -> None:
    text = one_line("".join(element.itertext()))
    if cleaning.announces_urgent(text):
        here.urgent_note = True
    elif here.house in UK_HOUSES.values() and cleaning.note_is_question(text):
        here.waiting.append((None, cleaning.question_text(text), None))


def _read_utterance(element: etree._Element, path: Path, corpus: Corpus, here: _Sitting) -> None:
    identity = element.get(XML_ID)
    if identity is None:
        raise CorpusError(path, element.sourceline, "an utterance has no xml:id")
    if identity in here.ids:
        raise CorpusError(path, element.sourceline, f"utterance id {identity!r} occurs twice")
    here.ids.add(identity)
    text = utterance_text(element)
    if not text:
        here.dropped.append({"id": identity, "rule": "empty utterance", "text": ""})
        return
    who = id_of((element.get("who") or "").split(" ")[0])
    role, topic = _role_and_topic(element.get("ana", ""), corpus)
    if who not in here.speakers:
        here.speakers[who] = _speaker_columns(who, here.day, corpus)
    name, sex, government, *party = here.speakers[who]
    kind, answers, prompts = _place_in_debate(identity, text, role, who, here)
    place = (identity, here.sitting_id, here.day, here.house, here.section, len(here.ids) - 1)
    speaker = (who, name, sex, role, government, *party)
    here.rows.append((*place, *speaker, topic, kind, answers, prompts, text, text.count(" ") + 1))  # one blank a gap


def _place_in_debate(identity: str, text: str, role: str, who: str | None, here: _Sitting) -> tuple[str, list, list]:
    """Return (kind, ids of the questions answered, their words, the same words once).

    Questions wait until someone who asked none of them speaks: that is the answer, and it takes them all. The chair and procedure
    in between change nothing; the exchange that follows an answer answers no listed question. Who asks and speaks in one breath
    gives a speech, and the question waits all the same.
    """
    uk = here.house in UK_HOUSES.values()
    kind = cleaning.question_kind(text, here.house, here.urgent_note) if uk and role != "chair" else None
    if kind:
        here.waiting.append((identity, cleaning.question_text(text), who))
        return "speech" if cleaning.opens_a_speech(text) else kind, [], []
    if uk and cleaning.procedural_rule(text, role):
        return "procedural", [], []
    if not here.waiting or (who is not None and who in {asked for _, _, asked in here.waiting}):
        return "speech", [], []
    answered, here.waiting = here.waiting, []
    return "speech", [key for key, _, _ in answered if key], list(dict.fromkeys(words for _, words, _ in answered))


def utterance_text(element: etree._Element) -> str:
    """Return what was said: segments joined with the full stop that ParlaMint strips from all but the last one."""
    parts = [_speech_text(seg) for seg in element.iterfind(_SEG)]
    parts = [part for part in parts if part] or [_speech_text(element)]
    return " ".join([part if _is_closed(part) else f"{part}." for part in parts[:-1]] + parts[-1:])


def _is_closed(text: str) -> bool:
    return text.rstrip(_CLOSERS).endswith(_ENDS)


def _speech_text(element: etree._Element) -> str:
    if len(element) == 0:
        return one_line(element.text)
    pieces = [element.text or ""]
    for child in element:
        if isinstance(child.tag, str) and child.tag not in _NOT_SPEECH:
            pieces.append(_speech_text(child))
        pieces.append(" " if child.tag in _NOT_SPEECH else "")
        pieces.append(child.tail or "")
    return one_line("".join(pieces))


def _role_and_topic(ana: str, corpus: Corpus) -> tuple[str | None, str | None]:
    role = topic = None
    for token in ana.split():
        bare = token.lstrip("#")
        if bare in ROLES:
            role = bare
        elif bare.startswith(("topic:", "topic.")):
            key = bare.removeprefix("topic:")
            topic = corpus.topics.get(key, key)
    return role, topic


def _speaker_columns(who: str | None, day: date, corpus: Corpus) -> tuple:
    """Return name, sex, is_government, then party code to affiliation rule, of one speaker on one day."""
    nobody = (None, None, UNKNOWN_ORIENTATION)
    person = corpus.people.get(who) if who else None
    if person is None:
        rule = "unknown speaker" if who else "no speaker"
        return None, None, False, None, *nobody, 0, rule
    affiliation, n_candidates, rule = explain_affiliation(person.affiliations, day)
    party = (None, *nobody)
    if affiliation is not None:
        org = corpus.organisations[affiliation.ref]
        party = (org.code, org.name, org.orientation_code, org.orientation)
    return person.name, person.sex, is_government(person.affiliations, day), *party, n_candidates, rule


def _date_of(tree: etree._Element, path: Path) -> date:
    header = tree.find(f"{TEI}teiHeader")
    places = ("profileDesc/settingDesc", "fileDesc/sourceDesc") if header is not None else ()
    for place in places:
        steps = "/".join(TEI + step for step in place.split("/"))
        for element in header.iterfind(f"{steps}//{TEI}date"):
            if element.get("when"):
                return _checked_date(element.get("when"), path, element.sourceline)
    match = re.search(r"_(\d{4}-\d{2}-\d{2})", path.name)
    if match is None:
        raise CorpusError(path, tree.sourceline, "has no date in settingDesc, sourceDesc or file name")
    return _checked_date(match.group(1), path, None)


def _checked_date(text: str, path: Path, line: int | None) -> date:
    try:
        return read_date(text)
    except ValueError as error:
        raise CorpusError(path, line, str(error)) from error


def _house_of(tree: etree._Element, path: Path, corpus_id: str) -> str | None:
    """Return the sitting's house, from the sitting and never from who speaks; None in a parliament of one chamber."""
    names = UK_HOUSES if corpus_id == UK_CORPUS else OTHER_HOUSES
    declared, organisations = set(), set()
    for meeting in tree.iterfind(f"{TEI}teiHeader/{TEI}fileDesc/{TEI}titleStmt/{TEI}meeting"):
        tokens = {token.lstrip("#") for token in meeting.get("ana", "").split()}
        declared |= {side for side in names if f"parla.{side}" in tokens}
        organisations.add(UK_HOUSE_ORGS.get(meeting.get("corresp", "").lstrip("#")))
    evidence = [declared, organisations - {None}]
    if corpus_id == UK_CORPUS:
        chambers = [one_line(name.text) for name in tree.iterfind(f"{TEI}teiHeader//{TEI}setting/{TEI}name")]
        evidence.append({side for word, side in UK_HOUSE_WORDS.items() if path.stem.endswith(f"-{word}")})
        evidence.append({side for word, side in UK_HOUSE_WORDS.items() if f"{word.title()} Chamber" in chambers})
    for sides in evidence:
        if len(sides) == 1:
            return names[sides.pop()]
    if corpus_id == UK_CORPUS:
        raise CorpusError(path, tree.sourceline, "names no house in meeting, file name or setting")
    return None
