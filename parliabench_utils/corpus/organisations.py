"""Parties, houses and the left-right scale (sections 3 and 4.1.1; notebook 01). The tables of the UK sit here.

>>> ORIENTATION_SCALE["Centre-left"], ORIENTATION_SCALE["Far-right"]
(-2, 6)
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from lxml import etree

from parliabench_utils.corpus.people import PARTY, PARTY_ORG_ROLES, read_date
from parliabench_utils.corpus.safe_xml import TEI, XML_ID, XML_LANG, CorpusError, id_of, one_line

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


def read_organisations(
    lists: Iterable[tuple[etree._Element, object]], corpus_id: str
) -> tuple[dict[str, Organisation], str]:
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
                raise CorpusError(
                    path, element.sourceline, f"organisation {organisation.id!r} is listed twice, differently"
                )
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
