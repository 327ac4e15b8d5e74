"""Who belonged to which party on which day (section 3, step 2; notebook 01).

>>> from datetime import date
>>> left = Affiliation("party.CON", "member", "2017-06-08", "2019-09-03")
>>> after = Affiliation("party.I", "member", "2019-09-03")
>>> affiliation_at([left, after], date(2019, 9, 3)).ref
'party.I'

Parties, houses and the left-right scale (sections 3 and 4.1.1; notebook 01). The tables of the UK sit here.

>>> ORIENTATION_SCALE["Centre-left"], ORIENTATION_SCALE["Far-right"]
(-2, 6)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property

from lxml import etree

from parliabench_utils.corpus.xml import TEI, XML_ID, XML_LANG, CorpusError, id_of, one_line

# Who heads a group belongs to it; some corpora list heads without a membership beside it.
MEMBERSHIP_ROLES = frozenset(
    {"member", "head", "deputyHead", "candidateMP", "president", "vicePresident", "secretary", "representative"}
)
PARTY, GROUP = "politicalParty", "parliamentaryGroup"
PARTY_ORG_ROLES = frozenset({PARTY, GROUP})
GOVERNMENT_ROLES = frozenset({"minister", "primeMinister", "deputyPrimeMinister"})


@dataclass(frozen=True)
class Affiliation:
    """One spell of one person in one organisation; bounds are inclusive, None is open.

    `start` and `end` take a date or ParlaMint's text: `2019-09-03`, `2019-09` and `2019` (both read as the first day,
    as ParlaMint's own scripts do, for `end` too), anything after `T` cut.
    """

    ref: str | None
    role: str
    start: date | str | None = None
    end: date | str | None = None
    org_role: str = "politicalParty"

    def __post_init__(self):
        if isinstance(self.start, str):
            object.__setattr__(self, "start", read_date(self.start))
        if isinstance(self.end, str):
            object.__setattr__(self, "end", read_date(self.end))

    def covers(self, day: date) -> bool:
        """Say whether `day` lies in the spell, both ends included; a spell that ends before it starts covers nothing."""
        return (self.start is None or self.start <= day) and (self.end is None or day <= self.end)

    @property
    def to_party(self) -> bool:
        """Say whether this is membership or headship of a party or parliamentary group (and not of a house or the government)."""
        return self.role in MEMBERSHIP_ROLES and self.org_role in PARTY_ORG_ROLES and self.ref is not None

    @property
    def to_government(self) -> bool:
        """Say whether this is office: membership of the government (3.0 on) or a minister's role (2.x), ref or not."""
        return self.role in GOVERNMENT_ROLES or self.org_role == "government"


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

    @cached_property
    def offices(self) -> list[Affiliation]:
        """The spells in government."""
        return [item for item in self.affiliations if item.to_government]

    def on(self, day: date) -> tuple[Affiliation | None, int, str, bool]:
        """Return what `explain_affiliation` and `is_government` say of `day`."""
        open_on_day = [item for item in self.parties if item.covers(day)]
        return (*_decide(open_on_day), any(item.covers(day) for item in self.offices))

    def party_on(self, day: date) -> Affiliation | None:
        """Return the political party of the day, whatever the group: groups often state no orientation, their parties do."""
        return _decide([item for item in self.parties if item.org_role == PARTY and item.covers(day)])[0]


def read_date(value: date | str | None) -> date | None:
    """Return ParlaMint's date text as a date: `YYYY` and `YYYY-MM` are their first day."""
    return _date_of(value) if isinstance(value, str) else value


@cache
def _date_of(value: str) -> date:
    parts = value.split("T")[0].split("-")
    try:
        return date(*(int(part) for part in [*parts, "1", "1"][:3]))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a date of the form YYYY, YYYY-MM or YYYY-MM-DD") from error


def affiliation_at(affiliations: Sequence[Affiliation], day: date) -> Affiliation | None:
    """Return the party affiliation that holds on `day`, None where there is none (never one of another time)."""
    return explain_affiliation(affiliations, day)[0]


def explain_affiliation(affiliations: Sequence[Affiliation], day: date) -> tuple[Affiliation | None, int, str]:
    """Return the affiliation on `day`, how many parties were candidates, and the rule that decided.

    Rules: `none`, `only` (one party), `latest-from` (of several the one that started last), `later-in-document`
    (of those that started the same day the one listed last), and `group`: beside a parliamentary group a party outside it
    does not count, even if it started later (so ParlaMint's own scripts: the group if there is one, else the party).
    """
    return _decide([item for item in affiliations if item.to_party and item.covers(day)])


def _decide(open_on_day: Sequence[Affiliation]) -> tuple[Affiliation | None, int, str]:
    if not open_on_day:
        return None, 0, "none"
    if len(open_on_day) == 1:
        return open_on_day[0], 1, "only"
    winner, n_candidates, rule = _newest(open_on_day)
    groups = [item for item in open_on_day if item.org_role == GROUP]
    if groups and winner.org_role != GROUP:
        return _newest(groups)[0], n_candidates, "group"
    return winner, n_candidates, rule


def _newest(open_on_day: Sequence[Affiliation]) -> tuple[Affiliation, int, str]:
    latest = max(item.start or date.min for item in open_on_day)
    newest = [item for item in open_on_day if (item.start or date.min) == latest]
    n_candidates = len({item.ref for item in open_on_day})
    if n_candidates == 1:
        return newest[-1], 1, "only"
    return newest[-1], n_candidates, "latest-from" if len({item.ref for item in newest}) == 1 else "later-in-document"


def is_government(affiliations: Iterable[Affiliation], day: date) -> bool:
    """Say whether the person held government office on `day`."""
    return any(item.to_government and item.covers(day) for item in affiliations)


def read_people(lists: Iterable[tuple[etree._Element, object]], org_roles: dict[str, str]) -> dict[str, Person]:
    """Return every person in the (element, path) pairs, by id; `org_roles` maps an organisation's id to its role."""
    people: dict[str, Person] = {}
    for root, path in lists:
        for element in root.iter(f"{TEI}person"):
            try:
                person = _read_person(element, org_roles)
            except ValueError as error:
                raise CorpusError(path, element.sourceline, str(error)) from error
            if person.id in people:
                raise CorpusError(path, element.sourceline, f"person {person.id!r} is listed twice")
            people[person.id] = person
    return people


def _read_person(element: etree._Element, org_roles: dict[str, str]) -> Person:
    # Draft roots of November 2022 write some ids with a leading #.
    identity = id_of(element.get(XML_ID))
    if identity is None:
        raise ValueError("a person has no xml:id")
    sex = element.find(f"{TEI}sex")
    affiliations = tuple(
        _spell(
            ref := id_of(item.get("ref")),
            item.get("role", ""),
            item.get("from"),
            item.get("to"),
            org_roles.get(ref, ""),
        )
        for item in element.iterchildren(f"{TEI}affiliation")
    )
    return Person(identity, _name_of(element), sex.get("value") if sex is not None else None, affiliations)


_spell = cache(Affiliation)  # hundreds of members share a term's dates


def _name_of(element: etree._Element) -> str:
    names = element.findall(f"{TEI}persName")
    if not names:
        return ""
    # A person who changed name has one persName for each time; the one without an end is today's.
    current = next((name for name in names if name.get("to") is None), names[-1])
    return " ".join(" ".join(current.itertext()).split())


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
UK_HOUSE_ORGS = {"parliament.HC": "lower", "parliament.HL": "upper"}
UK_HOUSE_WORDS = {"commons": "lower", "lords": "upper"}  # in file names and in "Commons Chamber"
PRESIDING = ("S", "LS")  # the Speaker and the Lord Speaker belong to no party while they preside
# Table 3's names where they differ from the corpus's.
UK_PARTY_NAMES = {"LD": "Liberal Democrats", "NA": "Non-Affiliated"}
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


def orientation_name(code: str | None) -> str:
    """Return the taxonomy's label of a point on the scale, else `Unknown`."""
    return ORIENTATION_NAMES.get(code, UNKNOWN_ORIENTATION)


def read_organisations(lists: Iterable[tuple[etree._Element, object]], corpus_id: str) -> tuple[dict[str, Organisation], str]:
    """Return the organisations in the (element, path) pairs by id, and where orientations come from.

    That is the `corpus`, our `table` (the UK before 4.0) or `none`. Raises CorpusError.
    """
    organisations: dict[str, Organisation] = {}
    for root, path in lists:
        for element in root.iter(f"{TEI}org"):
            try:
                organisation = _read_organisation(element, corpus_id)
            except ValueError as error:
                raise CorpusError(path, element.sourceline, str(error)) from error
            if organisations.get(organisation.id, organisation) != organisation:
                raise CorpusError(path, element.sourceline, f"organisation {organisation.id!r} is listed twice, differently")
            organisations[organisation.id] = organisation
    if any(organisation.orientations for organisation in organisations.values()):
        return organisations, "corpus"
    if corpus_id != UK_CORPUS:
        return organisations, "none"
    return {key: _with_table_orientation(value) for key, value in organisations.items()}, "table"


def _read_organisation(element: etree._Element, corpus_id: str) -> Organisation:
    identity = id_of(element.get(XML_ID)) or ""
    short = _org_name(element, "abb") or _org_name(element, "init")
    code = short or identity.removeprefix("party.")
    name, role = _org_name(element, "yes") or code, element.get("role", "")
    if corpus_id == UK_CORPUS:
        name = UK_PARTY_NAMES.get(code, name)
        # Groups from 3.0 on, parties before: as parties they are ranked by date, and one left open does not win for ever.
        role = PARTY if code in PRESIDING else role
    return Organisation(identity, role, code, name, _orientations(element))


def _org_name(element: etree._Element, full: str) -> str:
    names = [name for name in element.iterfind(f"{TEI}orgName") if name.get("full") == full]
    names.sort(key=lambda name: name.get(XML_LANG, "en") != "en")  # English first, else the corpus's own order
    return one_line(names[0].text) if names else ""


def _orientations(element: etree._Element) -> tuple[tuple[Orientation, ...], ...]:
    """Return what an organisation's sources state: Wikipedia, the encoders, then (3.0's form) the state itself."""
    # CHES scores nest `state` three deep: go down by type, never by any descendant.
    outer = element.findall(f"{TEI}state[@type='politicalOrientation']")
    sources = [
        [(state, inner) for state in outer for inner in state.iterfind(f"{TEI}state[@type='{source}']")]
        for source in ("Wikipedia", "encoder")
    ]
    sources.append([(state, state) for state in outer])
    stated = [tuple(found for pair in source if (found := _orientation(*pair))) for source in sources]
    return tuple(source for source in stated if source)


def _orientation(outer: etree._Element, state: etree._Element) -> Orientation | None:
    tokens = [token.lstrip("#") for token in state.get("ana", "").split()]
    code = next((token.removeprefix("orientation.") for token in tokens if token.startswith("orientation.")), None)
    start, end = (read_date(state.get(bound) or outer.get(bound) or None) for bound in ("from", "to"))
    return Orientation(code, start, end) if code else None


def _with_table_orientation(organisation: Organisation) -> Organisation:
    code = UK_ORIENTATIONS.get(organisation.code) if organisation.role in PARTY_ORG_ROLES else None
    return replace(organisation, orientations=((Orientation(code),),)) if code else organisation
