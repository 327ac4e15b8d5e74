"""Parties, houses and the left-right scale (sections 3 and 4.1.1; notebook 01). The tables of the UK sit here.

>>> ORIENTATION_SCALE["Centre-left"], ORIENTATION_SCALE["Far-right"]
(-2, 6)
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lxml import etree

from parliabench_utils.corpus.people import PARTY_ORG_ROLES
from parliabench_utils.corpus.safe_xml import TEI, XML_ID, XML_LANG, id_of, one_line

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
class Organisation:
    """A party, group, house or government of the corpus; `orientation_code` is None where none is stated."""

    id: str
    role: str
    code: str
    name: str
    orientation_code: str | None = None

    @property
    def orientation(self) -> str:
        """The taxonomy's label of a point on the scale, else `Unknown`."""
        return ORIENTATION_NAMES.get(self.orientation_code, UNKNOWN_ORIENTATION)


def read_organisations(roots: Iterable[etree._Element], corpus_id: str) -> tuple[dict[str, Organisation], str]:
    """Return the organisations by id, and where orientations come from: `corpus`, `table` (UK before 4.0) or `none`."""
    organisations = {}
    for root in roots:
        for element in root.iter(f"{TEI}org"):
            organisation = _read_organisation(element, corpus_id)
            organisations[organisation.id] = organisation
    if any(organisation.orientation_code for organisation in organisations.values()):
        return organisations, "corpus"
    if corpus_id != UK_CORPUS:
        return organisations, "none"
    return {key: _with_table_orientation(value) for key, value in organisations.items()}, "table"


def _read_organisation(element: etree._Element, corpus_id: str) -> Organisation:
    identity = id_of(element.get(XML_ID)) or ""
    short = _org_name(element, "abb") or _org_name(element, "init")
    code = short or identity.removeprefix("party.")
    name = _org_name(element, "yes") or code
    if corpus_id == UK_CORPUS:
        name = UK_PARTY_NAMES.get(code, name)
    return Organisation(identity, element.get("role", ""), code, name, _orientation_code(element))


def _org_name(element: etree._Element, full: str) -> str:
    names = [name for name in element.iterfind(f"{TEI}orgName") if name.get("full") == full]
    names.sort(key=lambda name: name.get(XML_LANG, "en") != "en")  # English first, else the corpus's own order
    return one_line(names[0].text) if names else ""


def _orientation_code(element: etree._Element) -> str | None:
    # CHES scores nest `state` three deep: go down by type, never by any descendant.
    for source in ("Wikipedia", "encoder"):
        for state in element.iterfind(f"{TEI}state[@type='politicalOrientation']/{TEI}state[@type='{source}']"):
            for token in state.get("ana", "").split():
                if token.startswith("#orientation."):
                    return token.removeprefix("#orientation.")
    return None


def _with_table_orientation(organisation: Organisation) -> Organisation:
    if organisation.role not in PARTY_ORG_ROLES:
        return organisation
    code = UK_ORIENTATIONS.get(organisation.code)
    return Organisation(organisation.id, organisation.role, organisation.code, organisation.name, code)
