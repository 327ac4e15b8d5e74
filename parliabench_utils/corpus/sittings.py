"""One sitting file to rows (used by `tei.read_corpus`).

>>> read_sitting(Path("ParlaMint-GB_2017-09-07-commons.xml"), corpus).rows     # doctest: +SKIP
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
    orientation_name,
)
from parliabench_utils.corpus.people import Person, read_date
from parliabench_utils.corpus.roots import WANT_PLAIN, Corpus
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
LIST_COLUMNS = ("answers", "prompts")
ROLES = ("chair", "guest", "regular")  # of several the first holds: who presides does so whatever else they are
# Of `affiliation_rule`: somebody whom no list knows; an utterance by several people at once.
UNKNOWN_SPEAKER, SEVERAL_SPEAKERS = "unknown speaker", "several speakers"
WORDS_THAT_OPEN_A_DEBATE = 100  # of a peer who has asked: at question time it is "I beg leave to ask the Question"
OTHER_HOUSES = {"lower": "Lower house", "upper": "Upper house"}
# What is said about a speech and not in it: these elements' words are never speech.
_NOT_SPEECH = {TEI + name for name in ("gap", "vocal", "kinesic", "incident", "note", "desc", "head")}
_U, _SEG, _DIV, _HEAD, _NOTE, _BODY = (TEI + name for name in ("u", "seg", "div", "head", "note", "body"))
_BREAKS = {TEI + name for name in ("pb", "lb", "cb", "milestone")}  # of the printed page: they can stand within a word
_WORD = TEI + "w"  # of the linguistically annotated form
_CLOSERS = "”“\"'’)]»"
_OPENERS = "“„”«\"'‘‚"
_ENDS = tuple(".!?:;,…—–-")
_ATTACHED = tuple(".!?:;,)")  # what stands at the end of a word: a part that begins so goes on without a blank
_HYPHENS = ("-", "‐", "¬", "\u00ad")
_PARAGRAPH, _CUT, _PAGE = "paragraph", "cut", "page"  # what parts two pieces of an utterance


@dataclass
class Sitting:
    """What one file says: a row an utterance (columns as in COLUMNS), the utterances dropped, the speakers nobody is.

    While it is read it also knows where we are: the questions that wait for their answer are those of the current div.
    """

    path: Path
    sitting_id: str
    day: date
    house: str | None
    rows: list[tuple] = field(default_factory=list)
    dropped: list[dict] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    speakers: dict[str | None, tuple[tuple, tuple]] = field(
        default_factory=dict
    )  # by u/@who: who it is, where they stand
    marks: dict[str | None, tuple[str | None, str | None]] = field(default_factory=dict)  # by u/@ana: role, topic
    section: str | None = None
    waiting: list[tuple[str | None, str, str | None]] = field(default_factory=list)  # (id, question, who asked)
    urgent_note: bool = False
    is_debate: bool = False

    def __post_init__(self):
        self.is_uk = self.house in UK_HOUSES.values()  # the rules for questions and procedure apply

    def enter(self, section: str | None) -> None:
        """Begin a div."""
        self.section, self.waiting, self.urgent_note, self.is_debate = section, [], False, False


def read_sitting(path: Path, corpus: Corpus) -> Sitting:
    """Return what a sitting's file says. Raises CorpusError with file and line."""
    tree = read_xml(path)
    if tree.tag != f"{TEI}TEI":
        raise CorpusError(path, tree.sourceline, f"expected a TEI element, found {etree.QName(tree).localname}")
    body = tree.find(f"{TEI}text/{_BODY}")
    if body is None:
        raise CorpusError(path, tree.sourceline, "has no text/body")
    word = next(body.iter(_WORD), None)
    if word is not None:
        raise CorpusError(path, word.sourceline, f"is linguistically annotated (w elements); {WANT_PLAIN}")
    sitting_id = tree.get(XML_ID) or path.stem
    here = Sitting(path, sitting_id, _date_of(tree, path), _house_of(tree, path, corpus.corpus_id))
    _read_children(body, corpus, here)
    return here


def _read_children(parent: etree._Element, corpus: Corpus, here: Sitting) -> None:
    """Read the divs, utterances, and notes between utterances that stand in `parent`, in document order."""
    for element in parent.iterchildren(_U, _NOTE, _DIV):
        tag = element.tag
        if tag == _U:
            _read_utterance(element, corpus, here)
        elif tag == _NOTE:
            _read_note(element, here)
        else:
            outer = here.section
            here.enter(_section_of(element))
            _read_children(element, corpus, here)
            here.enter(outer)


def _section_of(div: etree._Element | None) -> str | None:
    """Return the head of the nearest div that has one; None after a sampling cut, which leaves no head."""
    while div is not None and div.tag == _DIV:
        head = div.find(_HEAD)
        if head is not None:
            return _speech_text(head) or None
        div = div.getparent()
    return None


def _read_note(element: etree._Element, here: Sitting) -> None:
    text = one_line(element.text if len(element) == 0 else "".join(element.itertext()))
    if cleaning.announces_urgent(text):
        here.urgent_note = True
    elif here.is_uk and cleaning.note_is_question(text):
        here.waiting.append((None, cleaning.question_text(text), None))


def _read_utterance(element: etree._Element, corpus: Corpus, here: Sitting) -> None:
    identity = element.get(XML_ID)
    if identity is None:
        raise CorpusError(here.path, element.sourceline, "an utterance has no xml:id")
    if identity in here.ids:
        raise CorpusError(here.path, element.sourceline, f"xml:id {identity!r} occurs twice")
    here.ids.add(identity)
    text = utterance_text(element)
    if not text:
        here.dropped.append({"id": identity, "rule": "empty utterance", "text": ""})
        return
    speaker, standing = _speaker(element, corpus, here)
    role, topic = _role_and_topic(element.get("ana"), corpus, here)
    kind, answers, prompts = _place_in_debate(identity, text, role, speaker[0], standing[0], here)
    place = (identity, here.sitting_id, here.day, here.house, here.section, len(here.ids) - 1)
    n_words = text.count(" ") + 1  # `one_line` leaves one blank a gap
    here.rows.append((*place, *speaker, role, *standing, topic, kind, answers, prompts, text, n_words))


def _place_in_debate(
    identity: str, text: str, role: str, who: str | None, in_government: bool, here: Sitting
) -> tuple[str, list, list]:
    """Return (kind, ids of the questions answered, their words, the same words once).

    A chair's words are conduct of business in every parliament; the other rules are the UK's. Questions wait until someone who
    asked none of them speaks: that is the answer, and it takes them all. The chair and procedure in between change nothing, but
    a minister's "No." is the answer, though no speech; the exchange that follows an answer answers no listed question. A peer
    who asks and speaks, in one breath or at length thereafter, opens a debate: among those who take part it is the government
    that answers.
    """
    kind = cleaning.question_kind(text, here.house, here.urgent_note) if here.is_uk and role != "chair" else None
    if kind:
        here.waiting.append((identity, cleaning.question_text(text), who))
        here.is_debate = cleaning.opens_a_speech(text)
        return "speech" if here.is_debate else kind, [], []
    chair_rule = cleaning.CHAIR_RULE if role == "chair" else None
    rule = cleaning.procedural_rule(text, role) if here.is_uk else chair_rule
    if rule:
        here.waiting = [] if rule == "interjection" and in_government else here.waiting
        return "procedural", [], []
    if not here.waiting:
        return "speech", [], []
    if who is not None and who in {asked for _, _, asked in here.waiting}:
        here.is_debate |= here.house == UK_HOUSES["upper"] and text.count(" ") > WORDS_THAT_OPEN_A_DEBATE
        return "speech", [], []
    if here.is_debate and not in_government:
        return "speech", [], []
    answered, here.waiting = here.waiting, []
    return "speech", [key for key, _, _ in answered if key], list(dict.fromkeys(words for _, words, _ in answered))


def utterance_text(element: etree._Element) -> str:
    """Return what was said: its segments, joined with the full stop that ParlaMint-GB strips from all but the last one.

    No stop goes into a sentence: none before a small letter or a comma, and none where something other than the end of a
    paragraph (applause, a note, a page) parts two segments.
    """
    if len(element) == 1 and element[0].tag == _SEG and not _loose(element.text) and not _loose(element[0].tail):
        return _speech_text(element[0]) or _speech_text(element)
    said, gap = "", _PARAGRAPH
    for part, parted_by in _parts(element):
        gap = parted_by if parted_by == _CUT or gap == _PARAGRAPH else gap
        if part:
            said, gap = _joined(said, gap, part) if said else part, _PARAGRAPH
    return said or _speech_text(element)


def _loose(text: str | None) -> bool:
    return text is not None and not text.isspace()


def _parts(element: etree._Element) -> Iterator[tuple[str, str]]:
    """Yield the pieces of an utterance and what parts each from the piece before; what is said about it is an empty piece."""
    if _loose(element.text):
        yield one_line(element.text), _CUT
    for child in element:
        if child.tag == _SEG:
            yield _speech_text(child), _PARAGRAPH
        elif isinstance(child.tag, str):
            yield "", _PAGE if child.tag in _BREAKS else _CUT
        if _loose(child.tail):
            yield one_line(child.tail), _CUT


def _joined(before: str, gap: str, after: str) -> str:
    if gap == _PAGE and _is_hyphenated(before, after):
        return before[:-1] + after
    if after.startswith(_ATTACHED) and not after.startswith(".."):
        return before + after
    goes_on = after.lstrip(_OPENERS)[:1].islower() or after.startswith(_ENDS)
    return f"{before} {after}" if gap != _PARAGRAPH or goes_on or _is_closed(before) else f"{before}. {after}"


def _is_closed(text: str) -> bool:
    return text.rstrip(_CLOSERS).endswith(_ENDS)


def _is_hyphenated(before: str, after: str) -> bool:
    return before.endswith(_HYPHENS) and before[-2:-1].isalpha() and after[:1].islower()


def _speech_text(element: etree._Element) -> str:
    if len(element) == 0:
        return one_line(element.text)
    said = element.text or ""
    for child in element:
        tail = child.tail or ""
        if child.tag in _BREAKS:
            said = _over_break(said, tail, child.get("break") == "no")
        elif child.tag in _NOT_SPEECH:
            said += tail if tail.startswith(_ENDS) else f" {tail}"
        else:
            said += (_speech_text(child) if isinstance(child.tag, str) else "") + tail
    return one_line(said)


def _over_break(before: str, after: str, in_word: bool) -> str:
    left, right = before.rstrip(), after.lstrip()
    if _is_hyphenated(left, right):
        return left[:-1] + right
    return left + right if in_word else before + after


def _role_and_topic(ana: str | None, corpus: Corpus, here: Sitting) -> tuple[str | None, str | None]:
    if ana not in here.marks:
        tokens = [token.lstrip("#") for token in (ana or "").split()]
        topics = [token.removeprefix("topic:") for token in tokens if token.startswith(("topic:", "topic."))]
        role = next((role for role in ROLES if role in tokens), None)
        here.marks[ana] = role, corpus.topics.get(topics[-1], topics[-1]) if topics else None
    return here.marks[ana]


def _speaker(element: etree._Element, corpus: Corpus, here: Sitting) -> tuple[tuple, tuple]:
    """Return (id, name, sex) and (is_government, party code … affiliation rule) of who speaks on this day."""
    named = element.get("who")
    if named not in here.speakers:
        who = dict.fromkeys(filter(None, map(id_of, (named or "").split())))
        here.speakers[named] = _look_up(list(who), here.day, corpus)
    speaker, standing = here.speakers[named]
    if standing[-1] == UNKNOWN_SPEAKER:
        here.unlisted.append(f"{here.path.name}:{element.sourceline}: who={named!r} is nobody in the corpus's lists")
    return speaker, standing


def _look_up(who: list[str], day: date, corpus: Corpus) -> tuple[tuple, tuple]:
    nobody = (None, None, None, UNKNOWN_ORIENTATION)
    people = [corpus.people[identity] for identity in who if identity in corpus.people]
    if len(people) < len(who) or not who:
        return (" ".join(who) or None, None, None), (False, *nobody, 0, UNKNOWN_SPEAKER if who else "no speaker")
    if len(people) > 1:  # words that nobody alone has said are no member's and no party's
        return (" ".join(who), "; ".join(person.name for person in people), None), (False, *nobody, 0, SEVERAL_SPEAKERS)
    person = people[0]
    affiliation, n_candidates, rule, in_government = person.on(day)
    party = nobody if affiliation is None else _party(person, affiliation.ref, day, corpus)
    return (who[0], person.name, person.sex), (in_government, *party, n_candidates, rule)


def _party(person: Person, ref: str, day: date, corpus: Corpus) -> tuple[str, str, str | None, str]:
    """Return code, name, and orientation's code and name; of a group that states none they are those of the person's party."""
    organisation = corpus.organisations[ref]
    code = organisation.orientation_on(day)
    behind = person.party_on(day) if code is None else None
    code = corpus.organisations[behind.ref].orientation_on(day) if behind else code
    return organisation.code, organisation.name, code, orientation_name(code)


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
        evidence.append({side for word, side in UK_HOUSE_WORDS.items() if path.stem.lower().endswith(f"-{word}")})
        evidence.append({side for word, side in UK_HOUSE_WORDS.items() if f"{word.title()} Chamber" in chambers})
    for sides in evidence:
        if len(sides) == 1:
            return names[sides.pop()]
    if corpus_id == UK_CORPUS:
        raise CorpusError(path, tree.sourceline, "names no house in meeting, file name or setting")
    return None
