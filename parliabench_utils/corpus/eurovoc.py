"""EuroVoc's three levels, for classifiers that speak in its terms: concept -> micro-thesaurus -> domain (notebook 02).

`eurovoc/concepts.csv` and `eurovoc/microthesauri.csv` hold which is where, as the Publications Office of the European Union
publishes it. A micro-thesaurus has four digits, of which the first two are its domain.

>>> domains_of(["0421", "2841"])
{'0421': 'Politics', '2841': 'Social Questions'}
"""

import csv
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "eurovoc"
DOMAIN_CODES = {  # in Table 11's words
    "04": "Politics",
    "08": "International Relations",
    "10": "European Union",
    "12": "Law",
    "16": "Economics",
    "20": "Trade",
    "24": "Finance",
    "28": "Social Questions",
    "32": "Education and Communications",
    "36": "Science",
    "40": "Business and Competition",
    "44": "Employment and Working Conditions",
    "48": "Transport",
    "52": "Environment",
    "56": "Agriculture, Forestry and Fisheries",
    "60": "Agri-Foodstuffs",
    "64": "Production, Technology and Research",
    "66": "Energy",
    "68": "Industry",
    "72": "Geography",
    "76": "International Organisations",
}


@lru_cache
def microthesauri() -> dict[str, str]:
    """Code of each of the 127 micro-thesauri -> its name: `0421` -> `parliament`."""
    return {row[0]: row[1] for row in _read("microthesauri.csv")}


@lru_cache
def concepts() -> dict[str, str]:
    """Id of each concept, and its English name in lower case, -> code of its micro-thesaurus, one where it has several."""
    rows = _read("concepts.csv")
    return {name.casefold(): code for _, code, name in rows} | {concept: code for concept, code, _ in rows}


def _read(name: str) -> list[list[str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def domains_of(labels: Collection[str]) -> dict[str, str | None]:
    """Domain of each of one classifier's labels, None where EuroVoc knows none.

    All labels are of one level, the one that knows most of them: `1011` is a concept beside `1031` and a micro-thesaurus beside
    `1016`. Domains and micro-thesauri may be codes, names or both (`10 EUROPEAN UNION`), concepts ids, URIs or names.
    """
    keys = {label: label.strip().rsplit("/", 1)[-1].casefold() for label in labels}
    levels = (_names(DOMAIN_CODES), _names(microthesauri()), concepts())
    known = max(levels, key=lambda level: sum(key in level for key in keys.values()))
    return {label: DOMAIN_CODES.get(known[key][:2]) if key in known else None for label, key in keys.items()}


def _names(level: dict[str, str]) -> dict[str, str]:
    """Each way to write a code or its name -> the code."""
    ways = [(way.casefold(), code) for code, name in level.items() for way in (code, name, f"{code} {name}")]
    return dict(ways)
