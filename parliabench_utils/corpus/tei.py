"""A ParlaMint corpus as a table, one row an utterance (section 3.1, steps 1 and 2; notebook 01).

Releases 2.1 to 5.0: lists embedded in the root or included by it, day files beside the root or in year folders. One file is one
tree, becomes one compact batch of rows and is forgotten, so memory grows with the text alone. `open_corpus` reads the root (people,
parties, topics, the list of files), `read_sitting` one day, `read_corpus` all of them.

    >>> speeches = read_corpus("ParlaMint-GB.TEI")                                      # doctest: +SKIP
    >>> speeches.loc[0, ["speech_id", "date", "house", "party", "text"]]                # doctest: +SKIP
"""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
from lxml import etree

from parliabench_utils.corpus import cleaning
from parliabench_utils.corpus.people import (
    ORIENTATION_NAMES,
    UK_CORPUS,
    UK_HOUSES,
    UNKNOWN_ORIENTATION,
    Organisation,
    Person,
    read_date,
    read_organisations,
    read_people,
)
from parliabench_utils.corpus.topics import CAP_TOPICS
from parliabench_utils.corpus.xml import (
    TEI,
    XINCLUDE,
    XML_ID,
    XML_LANG,
    CorpusError,
    MissingFile,
    id_of,
    line_of,
    marks,
    one_line,
    read_xml,
    resolve_href,
)

# fmt: off
COLUMNS = (
    "speech_id", "sitting_id", "date", "house", "section", "order", "speaker_id", "speaker_name", "sex", "role",
    "is_government", "party_code", "party", "orientation_code", "orientation", "n_candidate_parties", "affiliation_rule",
    "cap_topic", "kind", "answers", "prompts", "text", "n_words",
)
# fmt: on
LIST_COLUMNS = ("answers", "prompts")
_NO_TEXT = {"date": pa.date32(), "is_government": pa.bool_()} | dict.fromkeys(LIST_COLUMNS, pa.list_(pa.string()))
_NO_TEXT |= dict.fromkeys(("order", "n_candidate_parties", "n_words"), pa.int64())
SCHEMA = pa.schema({name: _NO_TEXT.get(name, pa.large_string()) for name in COLUMNS})
ROLES = ("chair", "guest", "regular")  # of several the first holds: who presides does so whatever else they are
# Of `affiliation_rule`: somebody whom no list knows; an utterance by several people at once.
UNKNOWN_SPEAKER, SEVERAL_SPEAKERS = "unknown speaker", "several speakers"
WORDS_THAT_OPEN_A_DEBATE = 100  # of a peer who has asked: at question time it is "I beg leave to ask the Question"
UK_HOUSE_ORGS = {"parliament.HC": "lower", "parliament.HL": "upper"}
UK_HOUSE_WORDS = {"commons": "lower", "lords": "upper"}  # in file names and in "Commons Chamber"
OTHER_HOUSES = {"lower": "Lower house", "upper": "Upper house"}
ON_ERROR = ("stop", "quarantine")
FILES_A_GROUP = 128  # whose rows become one piece of the table
ANNOTATED = ".ana.xml"
WANT_PLAIN = (
    "ParliaBench reads the plain TEI: fetch the archive without “.ana” in its name and give its folder "
    "(ParlaMint-XX-en is published annotated only and cannot be read)"
)
_ARCHIVES = (".tgz", ".gz", ".tar", ".zip", ".xz", ".txz", ".bz2", ".tbz2", ".7z")
_DAY_IN_NAME = re.compile(r"_(\d{4}-\d{2}-\d{2})")
logger = logging.getLogger(__name__)


# --- the root: people, parties, topics, files -------------------------------------------------------------------------
@dataclass(frozen=True)
class Corpus:
    """What every sitting file needs to know; picklable, so that worker processes can have it."""

    corpus_id: str
    files: list[Path]
    people: dict[str, Person]
    organisations: dict[str, Organisation]
    topics: dict[str, str]
    orientation_source: str
    title: str
    edition: str
    not_listed: list[str]  # day files that lie there, but that the root does not include
    moved: list[str]  # day files that the root includes from another place than the one in which they lie


def open_corpus(root: Path, people: Path | None = None, stop: bool = True) -> tuple[Corpus, list[dict]]:
    """Return the corpus under `root` (file or folder) and the includes that were set aside (with stop=False)."""
    root_file = find_root(people or root)
    tree = read_xml(root_file)
    corpus_id = tree.get(XML_ID) or root_file.stem
    dropped: list[dict] = []
    includes = _Includes(root_file)
    lists = [(tree, root_file)]
    for include in tree.iterfind(f"{TEI}teiHeader//{XINCLUDE}"):
        path = includes.find(include)
        lists.append((read_xml(path), path))
    organisations, source = read_organisations(lists, corpus_id)
    persons = read_people(lists, {key: item.role for key, item in organisations.items()})
    files = _day_files(root) if people else _included_files(tree, includes, stop, dropped)
    not_listed = [] if people else _not_listed(root_file, files)
    if not files and not any(row["rule"] == "unreadable file" for row in dropped):
        raise CorpusError(root_file, None, _why_no_files(tree, root_file, dropped, not_listed))
    topics = CAP_TOPICS | _read_topics([element for element, _ in lists])
    header = f"{TEI}teiHeader/{TEI}fileDesc"
    title = one_line(tree.findtext(f"{header}/{TEI}titleStmt/{TEI}title") or corpus_id)
    edition = one_line(tree.findtext(f"{header}/{TEI}editionStmt/{TEI}edition") or "unknown")
    places = not_listed, includes.moved
    return Corpus(corpus_id, files, persons, organisations, topics, source, title, edition, *places), dropped


def _why_no_files(tree: etree._Element, root_file: Path, dropped: list[dict], days: list[str]) -> str:
    if tree.tag != f"{TEI}teiCorpus":
        return "lists no sitting files (of one day's file, give the root or the folder)"
    if dropped:
        plain = f"read the plain days that lie there too ({days[0]} …)" if days else WANT_PLAIN
        plain += f" by read_corpus(folder, people={root_file.name!r})" if days else ""
        return f"lists annotated files only ({dropped[0]['id']}); {plain}"
    if tree.find(f"{TEI}TEI") is not None:
        return "holds its sittings itself; ParliaBench reads a file a sitting, which the root includes"
    there = f", though {len(days)} lie there ({days[0]} and so on)" if days else ""
    return f"lists no sitting files{there}; name each of them in an xi:include, or in Python read_corpus(folder, people=ROOT)"


def find_root(root: Path) -> Path:
    """Return the root file for a root file or a folder that holds one. Raises CorpusError saying what to give instead."""
    if not root.exists():
        raise CorpusError(root, None, "does not exist")
    if root.is_file():
        if root.name.lower().endswith(_ARCHIVES):
            raise CorpusError(root, None, "is an archive; unpack it (fetch-corpus does) and give the folder")
        return root
    for pattern in ("*", "*/*", "*/*/*"):
        plain = [path for path in _xml_files(root, pattern) if not _is_annotated(path) and not _DAY_IN_NAME.search(path.name)]
        found = [path for path in plain if _starts_with(path, "teiCorpus")]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(path.relative_to(root).as_posix() for path in found)
            raise CorpusError(root, None, f"holds several corpus roots ({names}); give the root file itself")
    raise CorpusError(root, None, _why_no_root(root))


def _why_no_root(root: Path) -> str:
    files = _xml_files(root, "**/*")
    if not files:
        archives = sorted(path.name for path in root.iterdir() if path.name.lower().endswith(_ARCHIVES))
        return "holds no XML files" + (f", but the archive {archives[0]}: unpack it" if archives else "")
    annotated = [path for path in files if _is_annotated(path)]
    if len(annotated) == len(files) or any(_starts_with(path, "teiCorpus") for path in annotated):
        return f"holds the annotated corpus only ({annotated[0].relative_to(root).as_posix()}); {WANT_PLAIN}"
    if empty := next((path.name for path in files if not path.stat().st_size), None):
        return f"holds no corpus root, and {empty} is empty; unpack the archive again"
    hint = "put the corpus's root beside its days, or in Python read_corpus(folder, people=ROOT)"
    return f"holds no corpus root (a teiCorpus element, which lists the people); {hint}"


def _xml_files(folder: Path, pattern: str = "**/*") -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.suffix.lower() == ".xml" and path.is_file()]


def _is_annotated(path: Path) -> bool:
    return path.name.lower().endswith(ANNOTATED)


def _starts_with(path: Path, name: str) -> bool:
    """Say whether the document element of `path` is called `name` (only its first bytes are read, in any encoding)."""
    with path.open("rb") as file:
        head = file.read(4096).replace(b"\0", b"")  # UTF-16
    found = re.search(rb"<(?:[\w.-]+:)?(teiCorpus|TEI)[\s>]", re.sub(rb"<!--.*?-->", b"", head, flags=re.DOTALL))
    return found is not None and found.group(1) == name.encode()


class _Includes:
    """The files that a root includes; one that lies elsewhere in the root's folder than the root says is found by its name."""

    def __init__(self, root_file: Path):
        self.root_file, self.itself, self.folder = root_file, root_file.resolve(), root_file.parent.resolve()
        self.moved: list[str] = []

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        names = defaultdict(list)
        for path in _xml_files(self.folder):
            names[path.name.lower()].append(path.resolve())
        return names

    def find(self, include: etree._Element) -> Path:
        """Return the file that an xi:include names. Raises CorpusError."""
        href = include.get("href", "")
        try:
            return resolve_href(href, self.root_file, self.folder, include.sourceline)
        except MissingFile:
            name = re.split(r"[/\\]", unquote(href))[-1]
            named = self._by_name.get(name.lower(), [])
            found = [path for path in named if path.is_relative_to(self.folder) and path != self.itself]
            found = [path for path in found if path.name == name] or found
            places = [path.relative_to(self.folder).as_posix() for path in found]
            annotated = self._by_name.get(re.sub(r"(?i)\.xml$", ANNOTATED, name).lower())
            if len(found) == 1:
                self.moved.append(f"{href} lies at {places[0]}")
                return found[0]
            if found:
                what = f"but {', '.join(places)} do: keep the right one, or name it with its folder"
            elif annotated:
                what = f"only its annotated form {annotated[0].name}; {WANT_PLAIN}"
            else:
                raise
            raise CorpusError(self.root_file, include.sourceline, f"include {href!r} does not exist, {what}") from None


def _included_files(tree: etree._Element, includes: _Includes, stop: bool, dropped: list[dict]) -> list[Path]:
    files: dict[Path, None] = {}
    for include in tree.iterfind(XINCLUDE):
        try:
            files[includes.find(include)] = None
        except CorpusError as error:
            if stop:
                raise
            dropped.append({"id": include.get("href", ""), "rule": "unreadable file", "text": str(error)})
    files.pop(includes.itself, None)  # drafts include their own root
    plain = {path.name.lower() for path in files}
    for path in filter(_is_annotated, list(files)):
        del files[path]
        if path.name.lower().replace(ANNOTATED, ".xml") not in plain:
            text = f"{includes.root_file.name} includes the annotated {path.name} without its plain form; {WANT_PLAIN}"
            dropped.append({"id": path.name, "rule": "annotated file", "text": text})
    return list(files)


def _not_listed(root_file: Path, files: list[Path]) -> list[str]:
    """Places of the root's own day files, beside it or in folders under it, that are not among `files`."""
    folder, listed = root_file.parent, set(files)
    stem = re.sub(r"(?i)\.ana$", "", root_file.stem).lower()
    found = [path for path in _xml_files(folder) if path.name.lower().startswith(f"{stem}_")]
    days = [path for path in found if not _is_annotated(path) and path.resolve() not in listed]
    return [path.relative_to(folder).as_posix() for path in days if _starts_with(path, "TEI")]


def _day_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = _xml_files(root)
    plain = [path for path in files if not _is_annotated(path)]
    if not plain:
        raise CorpusError(root, None, f"holds annotated files only; {WANT_PLAIN}" if files else "holds no XML files")
    return [path.resolve() for path in plain if _DAY_IN_NAME.search(path.name) or _starts_with(path, "TEI")]


def _read_topics(roots: list[etree._Element]) -> dict[str, str]:
    """Return the label of every category that a topic token may point to, English where there is English."""
    topics = {}
    for category in (category for root in roots for category in root.iter(f"{TEI}category")):
        terms = sorted(category.iterfind(f"{TEI}catDesc"), key=lambda item: item.get(XML_LANG, "en") != "en")
        label = one_line(terms[0].findtext(f"{TEI}term")) if terms else ""
        if label and (identity := category.get(XML_ID)):
            topics[identity] = label
    return topics


# --- one sitting ------------------------------------------------------------------------------------------------------
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
    speakers: dict[str | None, tuple[tuple, tuple]] = field(default_factory=dict)  # by u/@who: who it is, where they stand
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
    body = tree.find(f"{TEI}text/{TEI}body")
    if body is None:
        raise CorpusError(path, tree.sourceline, "has no text/body")
    if (word := next(body.iter(f"{TEI}w"), None)) is not None:
        raise CorpusError(path, word.sourceline, f"is linguistically annotated (w elements); {WANT_PLAIN}")
    here = Sitting(path, tree.get(XML_ID) or path.stem, _date_of(tree, path), _house_of(tree, path, corpus.corpus_id))
    _read_children(body, corpus, here)
    return here


def _date_of(tree: etree._Element, path: Path) -> date:
    """Return the setting's date, else the source's, else the file name's."""
    places = (f"{TEI}profileDesc/{TEI}settingDesc", f"{TEI}fileDesc/{TEI}sourceDesc")
    dates = [element for place in places for element in tree.iterfind(f"{TEI}teiHeader/{place}//{TEI}date") if element.get("when")]
    in_name = _DAY_IN_NAME.search(path.name)
    if not dates and not in_name:
        raise CorpusError(path, tree.sourceline, "has no date in settingDesc, sourceDesc or file name")
    try:
        return read_date(dates[0].get("when") if dates else in_name.group(1))
    except ValueError as error:
        raise CorpusError(path, dates[0].sourceline if dates else None, str(error)) from error


def _house_of(tree: etree._Element, path: Path, corpus_id: str) -> str | None:
    """Return the sitting's house, from the sitting and never from who speaks; None in a parliament of one chamber."""
    names = UK_HOUSES if corpus_id == UK_CORPUS else OTHER_HOUSES
    meetings = tree.findall(f"{TEI}teiHeader/{TEI}fileDesc/{TEI}titleStmt/{TEI}meeting")
    declared = {side for meeting in meetings for side in names if f"parla.{side}" in marks(meeting)}
    organisations = {UK_HOUSE_ORGS.get(meeting.get("corresp", "").lstrip("#")) for meeting in meetings}
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


_U, _SEG, _DIV, _HEAD, _NOTE = (TEI + name for name in ("u", "seg", "div", "head", "note"))


def _read_children(parent: etree._Element, corpus: Corpus, here: Sitting) -> None:
    """Read the divs, utterances, and notes between utterances that stand in `parent`, in document order."""
    for element in parent.iterchildren(_U, _NOTE, _DIV):
        if element.tag == _U:
            _read_utterance(element, corpus, here)
        elif element.tag == _NOTE:
            text = one_line(element.text if len(element) == 0 else "".join(element.itertext()))
            if cleaning.announces_urgent(text):
                here.urgent_note = True
            elif here.is_uk and cleaning.note_is_question(text):
                here.waiting.append((None, cleaning.question_text(text), None))
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
    ana = element.get("ana")
    if ana not in here.marks:
        tokens = marks(element)
        named = [token.removeprefix("topic:") for token in tokens if token.startswith(("topic:", "topic."))]
        topic = corpus.topics.get(named[-1], named[-1]) if named else None
        here.marks[ana] = next((role for role in ROLES if role in tokens), None), topic
    role, topic = here.marks[ana]
    kind, answers, prompts = _place_in_debate(identity, text, role, speaker[0], standing[0], here)
    place = (identity, here.sitting_id, here.day, here.house, here.section, len(here.ids) - 1)
    n_words = text.count(" ") + 1  # `one_line` leaves one blank a gap
    here.rows.append((*place, *speaker, role, *standing, topic, kind, answers, prompts, text, n_words))


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
    party = (None, None, None, UNKNOWN_ORIENTATION)
    people = [corpus.people[identity] for identity in who if identity in corpus.people]
    if len(people) < len(who) or not who:
        return (" ".join(who) or None, None, None), (False, *party, 0, UNKNOWN_SPEAKER if who else "no speaker")
    if len(people) > 1:  # words that nobody alone has said are no member's and no party's
        return (" ".join(who), "; ".join(person.name for person in people), None), (False, *party, 0, SEVERAL_SPEAKERS)
    person = people[0]
    affiliation, n_candidates, rule, in_government = person.on(day)
    if affiliation is not None:
        organisation = corpus.organisations[affiliation.ref]
        code = organisation.orientation_on(day)
        if code is None and (behind := person.party_on(day)):  # of a group that states none it is that of the person's party
            code = corpus.organisations[behind.ref].orientation_on(day)
        party = organisation.code, organisation.name, code, ORIENTATION_NAMES.get(code, UNKNOWN_ORIENTATION)
    return (who[0], person.name, person.sex), (in_government, *party, n_candidates, rule)


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


# --- what was said ----------------------------------------------------------------------------------------------------
# What is said about a speech and not in it: these elements' words are never speech.
_NOT_SPEECH = {TEI + name for name in ("gap", "vocal", "kinesic", "incident", "note", "desc", "head")}
_BREAKS = {TEI + name for name in ("pb", "lb", "cb", "milestone")}  # of the printed page: they can stand within a word
_CLOSERS = "”“\"'’)]»"
_OPENERS = "“„”«\"'‘‚"
_ENDS = tuple(".!?:;,…—–-")
_ATTACHED = tuple(".!?:;,)")  # what stands at the end of a word: a part that begins so goes on without a blank
_PARAGRAPH, _CUT, _PAGE = "paragraph", "cut", "page"  # what parts two pieces of an utterance


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
    is_closed = before.rstrip(_CLOSERS).endswith(_ENDS)
    return f"{before} {after}" if gap != _PARAGRAPH or goes_on or is_closed else f"{before}. {after}"


def _is_hyphenated(before: str, after: str) -> bool:
    return before.endswith(("-", "‐", "¬", "\u00ad")) and before[-2:-1].isalpha() and after[:1].islower()


def _speech_text(element: etree._Element) -> str:
    if len(element) == 0:
        return one_line(element.text)
    said = element.text or ""
    for child in element:
        tail = child.tail or ""
        if child.tag in _BREAKS:
            left, right = said.rstrip(), tail.lstrip()
            if hyphenated := _is_hyphenated(left, right):
                left = left[:-1]
            said = left + right if hyphenated or child.get("break") == "no" else said + tail
        elif child.tag in _NOT_SPEECH:
            said += tail if tail.startswith(_ENDS) else f" {tail}"
        else:
            said += (_speech_text(child) if isinstance(child.tag, str) else "") + tail
    return one_line(said)


# --- all sittings -----------------------------------------------------------------------------------------------------
def read_corpus(root: Path | str, workers: int = 1, on_error: str = "stop", people: Path | str | None = None) -> pd.DataFrame:
    """Return the utterances of a corpus in the order of its files, columns as in `COLUMNS`.

    `root` is the corpus's root file or its folder; `people` names another root for day files that came without their own.
    `workers` processes share the files; rows and their order do not depend on it. A file that cannot be read raises CorpusError
    with its name and line, or with `on_error="quarantine"` is set aside. `DataFrame.attrs` holds `dropped` (a list of
    `{"id", "rule", "text"}`, files set aside have the rule `unreadable file`), `unlisted` (a line for each utterance of a
    speaker whom no list knows; its row is there, without a party), `not_listed` (day files that the root does not include, which
    are not read), `moved` (files that were read from another place than the one that the root names), `corpus_id`, `title`,
    `edition`, `orientation_source` and `n_files`.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error={on_error!r}: expected one of {', '.join(ON_ERROR)}")
    corpus, dropped = open_corpus(Path(root), Path(people) if people else None, stop=on_error == "stop")
    pieces: list[pa.Table] = []
    unlisted: list[str] = []
    ids: set[str] = set()
    days: dict[tuple, Path] = {}
    for paths, (outcomes, rows) in _read_groups(corpus, workers):
        start, kept = 0, []
        for path, outcome in zip(paths, outcomes, strict=True):
            broken = isinstance(outcome, CorpusError)
            error = outcome if broken else _clash(path, outcome, corpus.corpus_id == UK_CORPUS, ids, days)
            if error and on_error == "stop":
                raise error
            if error:
                dropped.append({"id": path.name, "rule": "unreadable file", "text": str(error)})
            else:
                kept.append(rows.slice(start, len(outcome.ids)))
                dropped += outcome.dropped
                unlisted += outcome.unlisted
            start += 0 if broken else len(outcome.ids)
        pieces += [rows] if len(kept) == len(paths) else kept
    for told, what in (
        (unlisted, "utterances are by nobody whom the corpus lists"),
        (corpus.moved, "files lie elsewhere than the root says"),
        (corpus.not_listed, "day files are not in the root's list and not read"),
    ):
        if told:
            logger.warning("%d %s; the first: %s", len(told), what, told[0])
    table = pa.concat_tables([SCHEMA.empty_table(), *pieces])
    lists = {name: table[name].to_pylist() for name in LIST_COLUMNS}
    frame = table.drop_columns(list(LIST_COLUMNS)).to_pandas(date_as_object=False).assign(**lists)[list(COLUMNS)]
    names = ("not_listed", "moved", "corpus_id", "title", "edition", "orientation_source")
    frame.attrs = {"dropped": dropped, "unlisted": unlisted} | {name: getattr(corpus, name) for name in names}
    frame.attrs["n_files"] = len(corpus.files)
    return frame


class _Outcome(NamedTuple):
    """What came of one file beside its rows; compact enough to be handed from process to process."""

    ids: list[str]
    day: date
    house: str | None
    dropped: list[dict]
    unlisted: list[str]


def _clash(path: Path, outcome: _Outcome, is_uk: bool, ids: set[str], days: dict[tuple, Path]) -> CorpusError | None:
    """Return the error that a file makes beside those whose ids and (house, day) pairs are here, None where it is now one of them."""
    sitting = outcome.house, outcome.day
    if is_uk and (other := days.get(sitting)):  # other parliaments sit twice on a day
        line = line_of(path, "when", outcome.day.isoformat())
        return CorpusError(path, line, f"same house and day as {other.name}; remove one of the two files")
    again = next((identity for identity in outcome.ids if identity in ids), None)
    if again is not None:
        return CorpusError(path, line_of(path, XML_ID, again), f"xml:id {again!r} occurs in an earlier file too")
    ids.update(outcome.ids)
    days[sitting] = path
    return None


_Group = tuple[list[_Outcome | CorpusError], pa.Table]  # one outcome a file, and the rows of those that could be read


def _read_groups(corpus: Corpus, workers: int) -> Iterator[tuple[list[Path], _Group]]:
    """Yield (paths, what came of them) for groups of files in order, whatever the number of processes."""
    files = corpus.files
    workers = min(workers, len(files), os.cpu_count() or 1)  # more only fill the memory
    size = FILES_A_GROUP if workers <= 1 else max(1, min(16, len(files) // (4 * workers)))
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    if workers <= 1:
        yield from zip(groups, map(partial(_read_group, corpus=corpus), groups), strict=True)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # spawn: a notebook's process has threads (torch, pyarrow), and a forked copy of their locks can hang.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start_worker, initargs=(corpus,))
    try:
        yield from zip(groups, pool.map(_read_group, groups), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


_worker_corpus: Corpus | None = None


def _start_worker(corpus: Corpus) -> None:
    global _worker_corpus
    _worker_corpus = corpus


def _read_group(paths: list[Path], corpus: Corpus | None = None) -> _Group:
    corpus = corpus or _worker_corpus
    outcomes: list[_Outcome | CorpusError] = []
    batches = []
    for path in paths:
        try:
            here = read_sitting(path, corpus)
        except CorpusError as error:
            outcomes.append(error)
            continue
        columns = zip(*here.rows, strict=True) if here.rows else [()] * len(SCHEMA)
        arrays = [pa.array(column, type=kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        outcomes.append(_Outcome([row[0] for row in here.rows], here.day, here.house, here.dropped, here.unlisted))
    # One piece: a frame in thousands of pieces is slow, and the small ones leave holes in the memory.
    return outcomes, pa.Table.from_batches(batches, schema=SCHEMA).combine_chunks()
