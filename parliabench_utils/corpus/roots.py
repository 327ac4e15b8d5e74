"""A corpus's root file: its people, parties, topics, and the list of its sitting files (used by `tei.read_corpus`).

>>> corpus, dropped = open_corpus(Path("ParlaMint-GB.TEI"))      # doctest: +SKIP
>>> len(corpus.files), len(corpus.people)                        # doctest: +SKIP
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from parliabench_utils.corpus.organisations import Organisation, read_organisations
from parliabench_utils.corpus.people import Person, read_people
from parliabench_utils.corpus.safe_xml import (
    TEI,
    XINCLUDE,
    XML_ID,
    XML_LANG,
    CorpusError,
    one_line,
    read_xml,
    resolve_href,
)
from parliabench_utils.corpus.topics import CAP_TOPICS

ARCHIVE_ENDINGS = (".tgz", ".tar.gz", ".tar", ".zip")


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


def open_corpus(root: Path, people: Path | None = None, stop: bool = True) -> tuple[Corpus, list[dict]]:
    """Return the corpus under `root` (file or folder) and the includes that were set aside (with stop=False)."""
    root_file = find_root(people or root)
    tree = read_xml(root_file)
    corpus_id = tree.get(XML_ID) or root_file.stem
    dropped: list[dict] = []
    lists = [(tree, root_file)]
    for include in tree.iterfind(f"{TEI}teiHeader//{XINCLUDE}"):
        path = resolve_href(include.get("href", ""), root_file, root_file.parent, include.sourceline)
        lists.append((read_xml(path), path))
    organisations, source = read_organisations([element for element, _ in lists], corpus_id)
    persons = read_people(lists, {key: item.role for key, item in organisations.items()})
    files = _day_files(root) if people else _included_files(tree, root_file, stop, dropped)
    if not files and not dropped:
        raise CorpusError(root_file, None, "lists no sitting files (of one day's file, give the root or the folder)")
    topics = CAP_TOPICS | _read_topics([element for element, _ in lists])
    header = f"{TEI}teiHeader/{TEI}fileDesc"
    title = one_line(tree.findtext(f"{header}/{TEI}titleStmt/{TEI}title") or corpus_id)
    edition = one_line(tree.findtext(f"{header}/{TEI}editionStmt/{TEI}edition") or "unknown")
    not_listed = [] if people else _not_listed(root_file, files)
    return Corpus(corpus_id, files, persons, organisations, topics, source, title, edition, not_listed), dropped


def find_root(root: Path) -> Path:
    """Return the root file for a root file or a folder that holds one. Raises CorpusError saying what to give instead."""
    if not root.exists():
        raise CorpusError(root, None, "does not exist")
    if root.is_file():
        if root.name.endswith(ARCHIVE_ENDINGS):
            raise CorpusError(root, None, "is an archive; unpack it (fetch-corpus does) and give the folder")
        return root
    found = []
    for pattern in ("*.xml", "*/*.xml"):
        found = [path for path in sorted(root.glob(pattern)) if _is_root(path)]
        if found:
            break
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise CorpusError(root, None, f"holds several corpus roots ({names}); give the root file itself")
    if next(root.glob("**/*.xml"), None) is None:
        raise CorpusError(root, None, "holds no XML files")
    hint = "put the corpus's root beside its days, or in Python read_corpus(folder, people=ROOT)"
    raise CorpusError(root, None, f"holds no corpus root (a teiCorpus element, which lists the people); {hint}")


def _is_root(path: Path) -> bool:
    """Say whether `path` starts with a teiCorpus element (only its first bytes are read)."""
    if path.name.endswith(".ana.xml") or _has_date(path.name):
        return False
    with path.open("rb") as file:
        return b"<teiCorpus" in file.read(4096)


def _included_files(tree: etree._Element, root_file: Path, stop: bool, dropped: list[dict]) -> list[Path]:
    files: dict[Path, None] = {}
    itself, folder = root_file.resolve(), root_file.parent.resolve()
    for include in tree.iterfind(XINCLUDE):
        href = include.get("href", "")
        try:
            path = resolve_href(href, root_file, folder, include.sourceline)
        except CorpusError as error:
            if stop:
                raise
            dropped.append({"id": href, "rule": "unreadable file", "text": str(error)})
            continue
        # Drafts include their own root; the annotated corpus is another archive.
        if path != itself and not path.name.endswith(".ana.xml"):
            files[path] = None
    return list(files)


def _not_listed(root_file: Path, files: list[Path]) -> list[str]:
    """Names of the root's own day files, beside it or in year folders, that are not among `files`."""
    folder, listed = root_file.parent, set(files)
    found = [*folder.glob(f"{root_file.stem}_*.xml"), *folder.glob(f"[0-9][0-9][0-9][0-9]/{root_file.stem}_*.xml")]
    days = [path for path in found if _has_date(path.name) and not path.name.endswith(".ana.xml")]
    return sorted(path.name for path in days if path.resolve() not in listed)


def _day_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    names = [path for path in sorted(root.glob("**/*.xml")) if not path.name.endswith(".ana.xml")]
    if not names:
        raise CorpusError(root, None, "holds no XML files")
    return [path.resolve() for path in names if not _is_root(path) and _has_date(path.name)]


def _has_date(name: str) -> bool:
    return re.search(r"_\d{4}-\d{2}-\d{2}", name) is not None


def _read_topics(roots: list[etree._Element]) -> dict[str, str]:
    """Return the label of every category that a topic token may point to, English where there is English."""
    topics = {}
    for root in roots:
        for category in root.iter(f"{TEI}category"):
            identity = category.get(XML_ID)
            terms = category.findall(f"{TEI}catDesc")
            terms.sort(key=lambda item: item.get(XML_LANG, "en") != "en")
            label = next((one_line(item.findtext(f"{TEI}term")) for item in terms), "")
            if identity and label:
                topics[identity] = label
    return topics
