"""Read XML that we did not write: no entities, no network, no path outside the corpus folder (used by notebook 01).

>>> tree = read_xml(Path("ParlaMint-GB.xml"))             # doctest: +SKIP
>>> path = resolve_href("2017/day.xml", tree_file=Path("ParlaMint-GB.xml"), folder=Path("."))   # doctest: +SKIP
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml import etree

TEI = "{http://www.tei-c.org/ns/1.0}"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
XINCLUDE = "{http://www.w3.org/2001/XInclude}include"


class CorpusError(ValueError):
    """A corpus file that cannot be read as it stands; the message names file, line and remedy."""

    def __init__(self, path: Path | str, line: int | None, reason: str):
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.path, self.line, self.reason = Path(path), line, reason

    def __reduce__(self):
        # Worker processes hand exceptions back by pickling their constructor's arguments.
        return type(self), (self.path, self.line, self.reason)


class MissingFile(CorpusError):
    """An include names a file that does not exist."""


def read_xml(path: Path) -> etree._Element:
    """Return the root element of `path`; raises CorpusError for broken XML and for any document type declaration."""
    options = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False, "remove_pis": True}
    try:
        data = path.read_bytes()
        if not data.strip():
            raise CorpusError(path, None, "is empty; unpack the archive again, or fetch the file anew")
        try:
            root = etree.fromstring(data, etree.XMLParser(**options))
        except etree.XMLSyntaxError as error:
            if "is not an NCName" not in error.msg:
                raise
            # Draft roots write `xml:id="#party.CON"`: read them without the parser's check of ids.
            root = etree.fromstring(data, etree.XMLParser(collect_ids=False, **options))
    except etree.XMLSyntaxError as error:
        raise CorpusError(path, error.lineno, f"{_problem(error.msg)} ({error.msg.split(', line ')[0]})") from error
    except OSError as error:
        raise CorpusError(path, None, f"cannot be read ({error.strerror})") from error
    if root.getroottree().docinfo.internalDTD is not None:
        line = data[: max(data.find(b"<!DOCTYPE"), 0)].count(b"\n") + 1
        raise CorpusError(path, line, "has a document type declaration; ParlaMint has none, and entities are refused")
    return root


def _problem(message: str) -> str:
    if "encoding" in message.lower() or "not proper UTF-8" in message:
        return "wrong encoding; save the file as UTF-8"
    if message.startswith("ID ") and "already defined" in message:
        return "an xml:id occurs twice"
    return "entities are refused" if "ntity" in message else "not well-formed XML"


def line_of(path: Path, attribute: str, value: str) -> int | None:
    """Return the line of the first element of a file whose `attribute` is `value`."""
    return next((item.sourceline for item in read_xml(path).iter() if item.get(attribute) == value), None)


def resolve_href(href: str, tree_file: Path, folder: Path, line: int | None = None) -> Path:
    """Return the file that an xi:include in `tree_file` names; it must exist and lie inside `folder`."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        raise CorpusError(tree_file, line, f"include {href!r} is not a file of the corpus")
    path = (tree_file.parent / unquote(parts.path)).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise CorpusError(tree_file, line, f"include {href!r} leads outside the corpus folder")
    if not path.is_file():
        raise MissingFile(tree_file, line, f"include {href!r} does not exist; unpack the whole archive")
    return path


def id_of(reference: str | None) -> str | None:
    """Return the id that a reference (`#id`, `persons.xml#id`) points to, None for none."""
    return reference.strip().rpartition("#")[2] or None if reference else None


def marks(element: etree._Element) -> list[str]:
    """Return what an element's `ana` points to."""
    return [token.lstrip("#") for token in element.get("ana", "").split()]


def one_line(text: str | None) -> str:
    """Return `text` with runs of white space made one blank."""
    if not text:
        return ""
    # Splitting every text is half of the time that a corpus takes, and few need it: in ASCII white space beside the blank is one of
    # three characters, elsewhere no white space beside the blank is printable.
    plain = "\n" not in text and "\t" not in text and "\r" not in text if text.isascii() else text.isprintable()
    return text.strip() if plain and "  " not in text else " ".join(text.split())
