"""A corpus's root file: its people, parties, topics, and the list of its sitting files (used by `tei.read_corpus`).

>>> corpus, dropped = open_corpus(Path("ParlaMint-GB.TEI"))      # doctest: +SKIP
>>> len(corpus.files), len(corpus.people)                        # doctest: +SKIP
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from lxml import etree

from parliabench_utils.corpus.organisations import Organisation, read_organisations
from parliabench_utils.corpus.people import Person, read_people
from parliabench_utils.corpus.safe_xml import (
    TEI,
    XINCLUDE,
    XML_ID,
    XML_LANG,
    CorpusError,
    MissingFile,
    one_line,
    read_xml,
    resolve_href,
)
from parliabench_utils.corpus.topics import CAP_TOPICS

ARCHIVE_ENDINGS = (".tgz", ".gz", ".tar", ".zip", ".xz", ".txz", ".bz2", ".tbz2", ".7z")
ANNOTATED = ".ana.xml"
WANT_PLAIN = (
    "ParliaBench reads the plain TEI: fetch the archive without “.ana” in its name and give its folder "
    "(ParlaMint-XX-en is published annotated only and cannot be read)"
)


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


def _why_no_files(tree: etree._Element, root_file: Path, dropped: list[dict], not_listed: list[str]) -> str:
    if tree.tag != f"{TEI}teiCorpus":
        return "lists no sitting files (of one day's file, give the root or the folder)"
    if dropped:
        return f"lists annotated files only ({dropped[0]['id']}); {_plain_days(root_file, not_listed)}"
    if tree.find(f"{TEI}TEI") is not None:
        return "holds its sittings itself; ParliaBench reads a file a sitting, which the root includes"
    there = f", though {len(not_listed)} lie there ({not_listed[0]} and so on)" if not_listed else ""
    return f"lists no sitting files{there}; name each of them in an xi:include, or in Python read_corpus(folder, people=ROOT)"


def _plain_days(root_file: Path, plain: list[str]) -> str:
    if not plain:
        return WANT_PLAIN
    return f"read the plain days that lie there too ({plain[0]} …) by read_corpus(folder, people={root_file.name!r})"


def find_root(root: Path) -> Path:
    """Return the root file for a root file or a folder that holds one. Raises CorpusError saying what to give instead."""
    if not root.exists():
        raise CorpusError(root, None, "does not exist")
    if root.is_file():
        if root.name.lower().endswith(ARCHIVE_ENDINGS):
            raise CorpusError(root, None, "is an archive; unpack it (fetch-corpus does) and give the folder")
        return root
    found = []
    for pattern in ("*", "*/*", "*/*/*"):
        found = [path for path in _xml_files(root, pattern) if _is_root(path)]
        if found:
            break
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.relative_to(root).as_posix() for path in found)
        raise CorpusError(root, None, f"holds several corpus roots ({names}); give the root file itself")
    raise CorpusError(root, None, _why_no_root(root))


def _why_no_root(root: Path) -> str:
    files = _xml_files(root, "**/*")
    archives = sorted(path.name for path in root.iterdir() if path.name.lower().endswith(ARCHIVE_ENDINGS))
    if not files:
        return "holds no XML files" + (f", but the archive {archives[0]}: unpack it" if archives else "")
    annotated = [path for path in files if _is_annotated(path)]
    if len(annotated) == len(files) or any(_starts_with(path, "teiCorpus") for path in annotated):
        return f"holds the annotated corpus only ({annotated[0].relative_to(root).as_posix()}); {WANT_PLAIN}"
    empty = next((path.name for path in files if not path.stat().st_size), None)
    if empty:
        return f"holds no corpus root, and {empty} is empty; unpack the archive again"
    hint = "put the corpus's root beside its days, or in Python read_corpus(folder, people=ROOT)"
    return f"holds no corpus root (a teiCorpus element, which lists the people); {hint}"


def _xml_files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.suffix.lower() == ".xml" and path.is_file()]


def _is_annotated(path: Path) -> bool:
    return path.name.lower().endswith(ANNOTATED)


def _is_root(path: Path) -> bool:
    return not _is_annotated(path) and not _has_date(path.name) and _starts_with(path, "teiCorpus")


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
        self._by_name: dict[str, list[Path]] | None = None

    def find(self, include: etree._Element) -> Path:
        """Return the file that an xi:include names. Raises CorpusError."""
        href = include.get("href", "")
        try:
            return resolve_href(href, self.root_file, self.folder, include.sourceline)
        except MissingFile as error:
            path = self._elsewhere(href, error)
        self.moved.append(f"{href} lies at {path.relative_to(self.folder).as_posix()}")
        return path

    def _elsewhere(self, href: str, error: MissingFile) -> Path:
        name = re.split(r"[/\\]", unquote(href))[-1]
        found = [path for path in self._named(name) if path.is_relative_to(self.folder) and path != self.itself]
        exact = [path for path in found if path.name == name] or found
        if len(exact) == 1:
            return exact[0]
        if exact:
            places = ", ".join(path.relative_to(self.folder).as_posix() for path in exact)
            raise self._wrong(error, f"does not exist, but {places} do: keep the right one, or name it with its folder")
        if annotated := self._named(re.sub(r"(?i)\.xml$", ANNOTATED, name)):
            raise self._wrong(error, f"does not exist, only its annotated form {annotated[0].name}; {WANT_PLAIN}")
        raise error

    def _named(self, name: str) -> list[Path]:
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for path in _xml_files(self.folder, "**/*"):
                self._by_name[path.name.lower()].append(path.resolve())
        return self._by_name.get(name.lower(), [])

    @staticmethod
    def _wrong(error: CorpusError, what: str) -> CorpusError:
        return CorpusError(
            error.path, error.line, error.reason.replace("does not exist; unpack the whole archive", what)
        )


def _included_files(tree: etree._Element, includes: _Includes, stop: bool, dropped: list[dict]) -> list[Path]:
    files: dict[Path, None] = {}
    for include in tree.iterfind(XINCLUDE):
        href = include.get("href", "")
        try:
            path = includes.find(include)
        except CorpusError as error:
            if stop:
                raise
            dropped.append({"id": href, "rule": "unreadable file", "text": str(error)})
            continue
        if path != includes.itself:  # drafts include their own root
            files[path] = None
    plain = {path.name.lower() for path in files}
    for path in [path for path in files if _is_annotated(path)]:
        del files[path]
        if path.name.lower().replace(ANNOTATED, ".xml") not in plain:
            text = f"{includes.root_file.name} includes the annotated {path.name} without its plain form; {WANT_PLAIN}"
            dropped.append({"id": path.name, "rule": "annotated file", "text": text})
    return list(files)


def _not_listed(root_file: Path, files: list[Path]) -> list[str]:
    """Places of the root's own day files, beside it or in folders under it, that are not among `files`."""
    folder, listed = root_file.parent, set(files)
    stem = re.sub(r"(?i)\.ana$", "", root_file.stem).lower()
    found = [path for path in _xml_files(folder, "**/*") if path.name.lower().startswith(f"{stem}_")]
    days = [path for path in found if not _is_annotated(path) and path.resolve() not in listed]
    return [path.relative_to(folder).as_posix() for path in days if _starts_with(path, "TEI")]


def _day_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = _xml_files(root, "**/*")
    names = [path for path in files if not _is_annotated(path)]
    if not names:
        raise CorpusError(root, None, f"holds annotated files only; {WANT_PLAIN}" if files else "holds no XML files")
    return [path.resolve() for path in names if _has_date(path.name) or _starts_with(path, "TEI")]


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
