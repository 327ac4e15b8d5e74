"""Who belonged to which party on which day, and where parties stand from left to right (sections 3 and 4.1.1; notebook 01).

>>> from datetime import date
>>> before = Affiliation("party.CON", "member", "2017-06-08", "2019-09-03")
>>> after = Affiliation("party.I", "member", "2019-09-03")
>>> affiliation_at([before, after], date(2019, 9, 3)).ref
'party.I'
>>> ORIENTATION_SCALE["Centre-left"], ORIENTATION_SCALE["Far-right"]
(-2, 6)
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from typing import Any

from lxml import etree

from parliabench_utils.corpus.xml import TEI, XML_ID, XML_LANG, CorpusError, id_of, marks, one_line

# Who heads a group belongs to it; some corpora list heads without a membership beside it.
MEMBERSHIP_ROLES = {"member", "head", "deputyHead", "candidateMP", "president", "vicePresident", "secretary", "representative"}
GOVERNMENT_ROLES = {"minister", "primeMinister", "deputyPrimeMinister"}
PARTY, GROUP = "politicalParty", "parliamentaryGroup"

# ParlaMint's taxonomy of orientations, in its own order from left to right.
ORIENTATION_NAMES = {
    "FL": "Far-left",
    "LLF": "Left to far-left",
    "L": "Left",
    "CLL": "Centre-left to left",
    "CL": "Centre-left",
    "CCL": "Centre to centre-left",
    "C": "Centre",
    "CCR": "Centre to centre-right",
    "CR": "Centre-right",
    "CRR": "Centre-right to right",
    "R": "Right",
    "RRF": "Right to far-right",
    "FR": "Far-right",
}
# Section 4.1.1: Far-left = -6, Centre = 0, Far-right = +6. Big tent, single issue and the like are on no point of it.
ORIENTATION_SCALE = {name: step - 6 for step, name in enumerate(ORIENTATION_NAMES.values())}
UNKNOWN_ORIENTATION = "Unknown"

# --- United Kingdom -------------------------------------------------------------------------------------------------
UK_CORPUS = "ParlaMint-GB"
UK_HOUSES = {"lower": "House of Commons", "upper": "House of Lords"}
PRESIDING = ("S", "LS")  # the Speaker and the Lord Speaker belong to no party while they preside
UK_PARTY_NAMES = {"LD": "Liberal Democrats", "NA": "Non-Affiliated"}  # Table 3's where they differ from the corpus's
# Releases before 4.0 state no orientation. These are the ones that 4.0 and 5.0 state (source: Wikipedia) by party code.
UK_ORIENTATIONS = {
    **dict.fromkeys(["CON", "UUP", "QMZZ"], "CR"),
    **dict.fromkeys(["LAB", "SNP", "SDLP", "PAUB", "UUSL", "FZPG", "ZKPW"], "CL"),
    **dict.fromkeys(["LD", "A", "L1QU"], "CCL"),
    **dict.fromkeys(["GP", "64RT", "LI", "IL"], "L"),
    **dict.fromkeys(["LJ95", "IGC", "LB"], "C"),
    "DUP": "R",
    "PC": "CLL",
    "UKIP": "RRF",
}


# --- a party at a date ------------------------------------------------------------------------------------------------
@cache
def read_date(text: str | None) -> date | None:
    """Return ParlaMint's date text as a date: `YYYY` and `YYYY-MM` are their first day, anything after `T` is cut."""
    if text is None:
        return None
    try:
        return date(*(int(part) for part in [*text.split("T")[0].split("-"), "1", "1"][:3]))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date of the form YYYY, YYYY-MM or YYYY-MM-DD") from error


@dataclass(frozen=True)
class Affiliation:
    """One spell of one person in one organisation; bounds are inclusive, None is open.

    `start` and `end` take a date or ParlaMint's text (`read_date`: a year means its first day, as an end too, as upstream).
    """

    ref: str | None
    role: str
    start: date | str | None = None
    end: date | str | None = None
    org_role: str = PARTY

    def __post_init__(self):
        for bound in ("start", "end"):
            if isinstance(value := getattr(self, bound), str):
                object.__setattr__(self, bound, read_date(value))

    def covers(self, day: date) -> bool:
        """Say whether `day` lies in the spell, both ends included; a spell that ends before it starts covers nothing."""
        return (self.start is None or self.start <= day) and (self.end is None or day <= self.end)

    @property
    def to_party(self) -> bool:
        """Say whether this is membership or headship of a party or parliamentary group (and not of a house or the government)."""
        return self.role in MEMBERSHIP_ROLES and self.org_role in (PARTY, GROUP) and self.ref is not None

    @property
    def to_government(self) -> bool:
        """Say whether this is office: membership of the government (3.0 on) or a minister's role (2.x), ref or not."""
        return self.role in GOVERNMENT_ROLES or self.org_role == "government"


def affiliation_at(affiliations: Sequence[Affiliation], day: date) -> Affiliation | None:
    """Return the party affiliation that holds on `day`, None where there is none (never one of another time)."""
    return explain_affiliation(affiliations, day)[0]


def explain_affiliation(affiliations: Sequence[Affiliation], day: date) -> tuple[Affiliation | None, int, str]:
    """Return the affiliation on `day`, how many parties were candidates, and the rule that decided.

    Rules: `none`, `only` (one party), `latest-from` (of several the one that started last), `later-in-document`
    (of those that started the same day the one listed last), and `group`: beside a parliamentary group a party outside it
    does not count, even if it started later (so ParlaMint's own scripts: the group if there is one, else the party).
    """
    holding = [item for item in affiliations if item.covers(day) and item.to_party]
    if not holding:
        return None, 0, "none"
    newest = _newest(holding)
    groups = [item for item in holding if item.org_role == GROUP]
    n_candidates = len({item.ref for item in holding})
    if groups and newest[-1].org_role != GROUP:
        return _newest(groups)[-1], n_candidates, "group"
    several = len({item.ref for item in newest}) > 1
    return newest[-1], n_candidates, "only" if n_candidates == 1 else "later-in-document" if several else "latest-from"


def _newest(spells: list[Affiliation]) -> list[Affiliation]:
    latest = max(item.start or date.min for item in spells)
    return [item for item in spells if (item.start or date.min) == latest]


def is_government(affiliations: Iterable[Affiliation], day: date) -> bool:
    """Say whether the person held government office on `day`."""
    return any(item.covers(day) and item.to_government for item in affiliations)


@dataclass(frozen=True)
class Person:
    """A speaker as the corpus lists them."""

    id: str
    name: str
    sex: str | None
    affiliations: tuple[Affiliation, ...]

    @cached_property
    def parties(self) -> list[Affiliation]:
        """The spells in parties and parliamentary groups, in the document's order."""
        return [item for item in self.affiliations if item.to_party]

    def on(self, day: date) -> tuple[Affiliation | None, int, str, bool]:
        """Return what `explain_affiliation` and `is_government` say of `day`."""
        return (*explain_affiliation(self.parties, day), is_government(self.affiliations, day))

    def party_on(self, day: date) -> Affiliation | None:
        """Return the political party of the day, whatever the group: groups often state no orientation, their parties do."""
        return affiliation_at([item for item in self.parties if item.org_role == PARTY], day)


# --- the corpus's lists -----------------------------------------------------------------------------------------------
Lists = Iterable[tuple[etree._Element, object]]  # an element that holds lists, and its file
_spell = cache(Affiliation)  # hundreds of members share a term's dates


def _each(lists: Lists, tag: str, read: Callable[[etree._Element], Any]) -> Iterator[tuple[Any, object, int]]:
    for root, path in lists:
        for element in root.iter(TEI + tag):
            try:
                yield read(element), path, element.sourceline
            except ValueError as error:
                raise CorpusError(path, element.sourceline, str(error)) from error


def read_people(lists: Lists, org_roles: dict[str, str]) -> dict[str, Person]:
    """Return every person by id; `org_roles` maps an organisation's id to its role. Raises CorpusError."""

    def read(element: etree._Element) -> Person:
        identity = id_of(element.get(XML_ID))  # draft roots of November 2022 write some with a leading #
        if identity is None:
            raise ValueError("a person has no xml:id")
        # A person who changed name has one persName for each time; the one without an end is today's.
        names = element.findall(f"{TEI}persName")
        current = next((name for name in names if name.get("to") is None), names[-1] if names else None)
        name = "" if current is None else " ".join(" ".join(current.itertext()).split())
        sex = element.find(f"{TEI}sex")
        spells = []
        for item in element.iterchildren(f"{TEI}affiliation"):
            ref = id_of(item.get("ref"))
            spells.append(_spell(ref, item.get("role", ""), item.get("from"), item.get("to"), org_roles.get(ref, "")))
        return Person(identity, name, None if sex is None else sex.get("value"), tuple(spells))

    people: dict[str, Person] = {}
    for person, path, line in _each(lists, "person", read):
        if person.id in people:
            raise CorpusError(path, line, f"person {person.id!r} is listed twice")
        people[person.id] = person
    return people


@dataclass(frozen=True)
class Orientation:
    """A code of the taxonomy (`CR`) and the days on which it is stated to hold; bounds are inclusive, None is open."""

    code: str
    start: date | None = None
    end: date | None = None


@dataclass(frozen=True)
class Organisation:
    """A party, group, house or government of the corpus; `orientations` has what each source states, the best source first."""

    id: str
    role: str
    code: str
    name: str
    orientations: tuple[tuple[Orientation, ...], ...] = ()

    def orientation_on(self, day: date) -> str | None:
        """Return the code that holds on `day`: of the first source that states one for it, the one that started last."""
        for stated in self.orientations:
            holding = [x for x in stated if (x.start or day) <= day <= (x.end or day)]
            if holding:
                return max(reversed(holding), key=lambda item: item.start or date.min).code
        return None


def read_organisations(lists: Lists, corpus_id: str) -> tuple[dict[str, Organisation], str]:
    """Return the organisations by id, and where orientations come from: the `corpus`, our `table` (the UK before 4.0) or `none`.

    Raises CorpusError.
    """
    is_uk = corpus_id == UK_CORPUS

    def named(element: etree._Element, full: str) -> str:
        names = [name for name in element.iterfind(f"{TEI}orgName") if name.get("full") == full]
        names.sort(key=lambda name: name.get(XML_LANG, "en") != "en")  # English first, else the corpus's own order
        return one_line(names[0].text) if names else ""

    def read(element: etree._Element) -> Organisation:
        identity = id_of(element.get(XML_ID)) or ""
        code = named(element, "abb") or named(element, "init") or identity.removeprefix("party.")
        name, role = named(element, "yes") or code, element.get("role", "")
        if is_uk:
            name = UK_PARTY_NAMES.get(code, name)
            # Groups from 3.0 on, parties before: as parties they are ranked by date, and one left open does not win for ever.
            role = PARTY if code in PRESIDING else role
        return Organisation(identity, role, code, name, _orientations(element))

    found: dict[str, Organisation] = {}
    for organisation, path, line in _each(lists, "org", read):
        if found.setdefault(organisation.id, organisation) != organisation:
            raise CorpusError(path, line, f"organisation {organisation.id!r} is listed twice, differently")
    if any(organisation.orientations for organisation in found.values()):
        return found, "corpus"
    if not is_uk:
        return found, "none"
    for key, organisation in found.items():
        code = UK_ORIENTATIONS.get(organisation.code)
        if code and organisation.role in (PARTY, GROUP):
            found[key] = replace(organisation, orientations=((Orientation(code),),))
    return found, "table"


def _orientations(element: etree._Element) -> tuple[tuple[Orientation, ...], ...]:
    """Return what an organisation's sources state: Wikipedia, the encoders, then (3.0's form) the state itself."""
    # CHES scores nest `state` three deep: go down by type, never by any descendant.
    outer = element.findall(f"{TEI}state[@type='politicalOrientation']")
    sources = [
        [(state, inner) for state in outer for inner in state.iterfind(f"{TEI}state[@type='{source}']")]
        for source in ("Wikipedia", "encoder")
    ]
    stated: list[list[Orientation]] = []
    for source in [*sources, [(state, state) for state in outer]]:
        stated.append([])
        for state, inner in source:
            code = next((mark for mark in marks(inner) if mark.startswith("orientation.")), "").removeprefix("orientation.")
            start, end = (read_date(inner.get(bound) or state.get(bound) or None) for bound in ("from", "to"))
            stated[-1] += [Orientation(code, start, end)] if code else []
    return tuple(tuple(source) for source in stated if source)
