"""Fetch the real corpus, ParlaMint-GB, from CLARIN.SI (section 3.1): `python -m parliabench_utils fetch-corpus --release 5.0`.

The archive's link stands on the release's item page and is read from there, never guessed. A transfer that broke off goes on
where it stopped. A manifest with the archive's checksum is written last: where it is, the corpus is whole.

    >>> fetch_corpus(Path("data"), release="5.0")      # doctest: +SKIP
"""

import errno
import gzip
import hashlib
import json
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from io import BytesIO
from itertools import repeat
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, BinaryIO
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

from parliabench_utils.run.artefacts import file_sha256, write_json, write_text
from parliabench_utils.run.notebook import progress
from parliabench_utils.run.project import project_root

ITEM_PAGES = {
    release: f"https://www.clarin.si/repository/xmlui/handle/11356/{handle}"
    for release, handle in {"2.1": 1432, "3.0": 1486, "4.0": 1859, "4.1": 1912, "5.0": 2004}.items()
}
# Known from users' records. For the other releases, 5.0 among them, no checksum is known to us: the MD5 that the item page states
# is used, and where it states none, gzip's own checksum (read to its end) and the SHA-256 noted on first sight.
CHECKSUMS = {"3.0": "sha256:ec1f6d82976904866c710123b5d77d6aad20886c44240236e3d442c0708c018a"}
ARCHIVE = "ParlaMint-GB.tgz"
LICENCE = "CC BY 4.0 (ParlaMint, CLARIN); contains Parliamentary information under the Open Parliament Licence v3.0"
TRIES = 5  # in one call; the next call goes on from there
SECONDS_BETWEEN_TRIES = 2.0
TRY_AGAIN = (408, 425, 429)  # and 5xx
CHUNK = 2**20  # bytes
SECONDS_OF_SILENCE = 60.0  # until an answer begins, and between two pieces of it
SLOWEST = 20_000  # bytes a second, over each minute: a server that drips would never end
SECONDS_BETWEEN_LOOKS = 60.0
SECONDS_IN_ALL = 12 * 3600.0  # of one try
PAGE_BYTES = 10 * 10**6
ARCHIVE_BYTES = 10 * 10**9
UNPACKED_BYTES = 50 * 10**9
UNPACKED_FILES = 200_000
UNPACKED_TO_ONE = 200  # bytes for one of the archive (XML takes some 10) ...
UNPACKED_AT_EASE = 10**8  # ... beyond these
BROKEN_ARCHIVE = (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile)
OF_THIS_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


class FetchError(ValueError):
    """The corpus could not be fetched; the message says what to do by hand."""


class TooMuch(OSError):
    """A server sends more than a corpus or a page can be: another try changes nothing."""


def fetch_corpus(
    data_root: Path, release: str = "5.0", url: str | None = None, checksum: str | None = None, pages: dict | None = None
) -> Path:
    """Download, check and unpack ParlaMint-GB into `data_root/ParlaMint-GB` (from the project's root) and return that folder.

    `url` overrides the item page's link; `checksum` is `sha256:…` or `md5:…`, and without one the item page's is asked of the
    archive, if there is one. The archive's SHA-256 is noted beside it on first sight and checked whenever it is used again. A
    corpus with its manifest is returned as it is; an archive that lies in `data_root` is checked and unpacked without asking the
    network. Two calls at once wait for each other. Raises FetchError.
    """
    from filelock import FileLock

    pages = pages or ITEM_PAGES
    if release not in pages:
        raise FetchError(f"release {release!r} is not known; there are {', '.join(pages)}")
    if url and "@" in urlsplit(url).netloc:
        raise FetchError("the address given with --url holds a login; the archive needs none")
    data_root = project_root() / data_root
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        with FileLock(data_root / ".ParlaMint-GB.lock"):
            return _fetch(data_root, release, url, checksum, pages[release])
    except OSError as error:
        problem = f"{error.filename or data_root} cannot be used ({error.strerror or error})"
        raise FetchError(f"{problem}; see to that, or choose another --data-root") from error


def _fetch(data_root: Path, release: str, url: str | None, checksum: str | None, page: str) -> Path:
    folder, archive = data_root / "ParlaMint-GB", data_root / ARCHIVE
    if (folder / "fetched.json").is_file():
        _check_whole(folder)
        print(f"{folder} is there already (delete it to fetch it again)")
        return folder
    if folder.exists():
        raise FetchError(f"{folder} is there, but not from here (no fetched.json); move it away, or use it as it is")
    print(f"ParlaMint-GB {release}, {LICENCE}")
    by_hand = (
        f"By hand: open {page} in a browser, download {ARCHIVE} to {archive}, and run this command again, which checks and "
        "unpacks it; or give its address with --url."
    )
    link, stated = url or archive.as_uri(), None
    if not url and not archive.is_file():
        link, stated = find_archive(page, by_hand)
    _retrieve(link, archive, checksum or CHECKSUMS.get(release) or stated, by_hand)
    digest = file_sha256(archive)
    write_text(archive.with_name(f"{ARCHIVE}.sha256"), f"{digest}  {ARCHIVE}\n")  # as `sha256sum --check` reads it
    fresh = folder.with_name(f"{folder.name}.unpacking")
    shutil.rmtree(fresh, ignore_errors=True)  # of a call that was killed
    unpack(archive, fresh)
    n_files, n_bytes = _size(fresh)
    facts = {"release": release, "url": link, "sha256": digest, "bytes": archive.stat().st_size}
    write_json(fresh / "fetched.json", facts | {"files": n_files, "unpacked_bytes": n_bytes})
    return fresh.rename(folder)


def _check_whole(folder: Path) -> None:
    """Raise FetchError where files of a fetched corpus are missing or cut short since they were unpacked."""
    facts = json.loads((folder / "fetched.json").read_text(encoding="utf-8"))
    n_files, n_bytes = _size(folder)
    if n_files < facts.get("files", 0) or n_bytes < facts.get("unpacked_bytes", 0):
        there = f"{folder} has {n_files:,} files of {n_bytes:,} bytes"
        were = f"{facts['files']:,} of {facts['unpacked_bytes']:,} were unpacked"
        raise FetchError(f"{there}, {were}; move it away and run this command again")


def _size(folder: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "fetched.json"]
    return len(sizes), sum(sizes)


def _retrieve(link: str, archive: Path, checksum: str | None, by_hand: str) -> None:
    """Bring `link` to `archive` and check it; an archive that is there already is only checked."""
    import pooch

    if not archive.is_file():
        try:
            pooch.retrieve(link, known_hash=checksum, fname=archive.name, path=archive.parent, downloader=download)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: pooch's word for another checksum
            raise FetchError(f"{link} was not fetched ({error}). {by_hand}") from error
        print(f"checked against {checksum}" if checksum else "no checksum is known of it: gzip's own is read, its SHA-256 noted")
        return
    print(f"{archive} is there already: it is checked and unpacked")
    if checksum and not pooch.hashes.hash_matches(str(archive), checksum):
        raise FetchError(f"{archive} does not have the checksum {checksum}; move it away and fetch it again")
    note = archive.with_name(f"{ARCHIVE}.sha256")
    if note.is_file() and note.read_text(encoding="utf-8").split()[:1] != [file_sha256(archive)]:
        raise FetchError(
            f"{archive} is not the file whose SHA-256 was noted in {note.name} when it came; move both away and fetch it again "
            "(only the note, if you have put another archive there yourself)"
        )


# --- the item page ----------------------------------------------------------------------------------------------------
def find_archive(page: str, by_hand: str) -> tuple[str, str | None]:
    """Return the address of `ParlaMint-GB.tgz` that an item page links to, and the checksum (`md5:…`) that it states, if any.

    The annotated corpus is another item.
    """
    text = BytesIO()
    try:
        with _answer(Request(page)) as answer:
            list(_copy(answer, text, PAGE_BYTES))
    except (OSError, HTTPException) as error:
        raise FetchError(f"{page} cannot be reached ({error}). {by_hand}") from error
    html = text.getvalue().decode("utf-8", errors="replace")
    links = re.findall(r'href=["\']([^"\'<>\s]{1,2000})["\']', html)
    links = [link for link in links if "/bitstream/" in link and f"/{ARCHIVE}" in link]
    if not links:
        raise FetchError(f"{page} links to no {ARCHIVE}. {by_hand}")
    link = urljoin(page, links[0].replace("&amp;", "&"))
    if urlsplit(link).scheme not in ("https", urlsplit(page).scheme):
        raise FetchError(f"{page} links to {link}, which is no safe address. {by_hand}")
    return link, stated_md5(html)


def stated_md5(html: str) -> str | None:
    """Return `md5:…` for `ParlaMint-GB.tgz` where an item page states it: after its name and before any other archive's."""
    found, name = set(), None
    for match in re.finditer(
        r"(?P<name>ParlaMint[\w.-]{0,40}?\.tgz)|MD5\W(?:[^<]|<[^>]{0,300}>){0,60}?\b(?P<md5>[0-9a-fA-F]{32})\b", html
    ):
        name = match["name"] or name
        if name is None:  # a page that puts the MD5 before its archive's name
            return None
        if match["md5"] and name == ARCHIVE:
            found.add(match["md5"].lower())
    return f"md5:{found.pop()}" if len(found) == 1 else None


# --- the transfer -----------------------------------------------------------------------------------------------------
def download(url: str, output_file: str, _pooch: object = None) -> None:
    """Bring `url` to `output_file` (a downloader for pooch, whose own begins anew), going on with what an earlier call left behind.

    What came so far is beside it in `ParlaMint-GB.tgz.<hash of the address>.partial`, what it is part of in the `.json` beside
    that. Raises OSError after five tries.
    """
    name = f"{ARCHIVE}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.partial"
    partial = Path(output_file).with_name(name)
    problem: object = None
    for number in range(TRIES):
        time.sleep(SECONDS_BETWEEN_TRIES if number else 0)
        try:
            problem = _go_on(url, partial)
        except TooMuch:
            _forget(partial)
            raise
        except HTTPError as error:
            if error.code == 416:  # there is nothing after what we have, so it is not a piece of what is there now
                _forget(partial)
            elif error.code not in TRY_AGAIN and error.code < 500:  # the server has no such address, or wants no more of us
                raise
            problem = error
        except (OSError, HTTPException) as error:
            if getattr(error, "errno", None) in OF_THIS_MACHINE:
                raise
            problem = error
        if problem is None:
            partial.replace(output_file)
            _forget(partial)
            return
        print(f"try {number + 1} of {TRIES}: {problem}", flush=True)
    raise OSError(f"{problem}, {TRIES} times; run the command again and it goes on where it stopped")


def _about(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _about(partial).unlink(missing_ok=True)


def _go_on(url: str, partial: Path) -> str | None:
    """Fetch what `partial` lacks; return None when it is whole, else what went wrong. Says the size first."""
    have, whole, asked = 0, {}, {}
    with suppress(OSError, ValueError, TypeError):  # of nothing known what is here is no beginning
        whole = dict(json.loads(_about(partial).read_text(encoding="utf-8")))
        have = partial.stat().st_size
    if have:
        etag = whole.get("etag")  # a weak one says nothing of bytes
        same = whole.get("modified") if not etag or etag.startswith("W/") else etag
        asked = {"Range": f"bytes={have}-"} | ({"If-Range": same} if same else {})
    with _answer(Request(url, headers=asked)) as answer:
        if answer.status == 206 and (problem := _does_not_go_on(answer.headers, have, whole)):
            _forget(partial)
            return f"the server went on with something else ({problem}); begun anew"
        have = have if answer.status == 206 else 0  # a server without ranges, or with another file by now, sends everything
        size = have + int(answer.headers.get("Content-Length") or 0)
        if size > ARCHIVE_BYTES:
            raise TooMuch(f"{size / 1e9:,.1f} GB are announced; a release has far less")
        if not have:
            partial.unlink(missing_ok=True)
            facts = {"size": size, "etag": answer.headers.get("ETag"), "modified": answer.headers.get("Last-Modified")}
            write_json(_about(partial), facts)
        announced = f"{size / 1e6:,.1f} MB" if size else "size not announced"
        print(f"{url}\n{announced}{f', {have / 1e6:,.1f} MB of them are here' if have else ''}", flush=True)
        with partial.open("r+b" if have else "wb") as file:
            file.seek(have)
            for _ in progress(_copy(answer, file, ARCHIVE_BYTES), "Megabytes", total=(size - have) // CHUNK):
                pass
            got = file.tell()
    return None if got >= size else f"the connection broke at {got / 1e6:,.1f} of {size / 1e6:,.1f} MB"


def _does_not_go_on(headers: Any, have: int, whole: dict[str, Any]) -> str | None:
    """Return what shows that a 206 is not the rest of what we have, None where nothing does."""
    length, told = int(headers.get("Content-Length") or 0), headers.get("Content-Range")
    place = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", told.strip()) if told else None
    if told and not place:
        return f"Content-Range {told!r}"
    start, end = (int(place[1]), int(place[2]) + 1) if place else (have, have + length)
    total = int(place[3]) if place and place[3] != "*" else None
    size, etag = whole.get("size"), headers.get("ETag")
    checks = {
        f"it begins at byte {start:,}, we have {have:,}": not have or start != have,
        f"of {total or end:,} bytes, it was {size or 0:,}": size and (total or end) != size,
        f"{length:,} bytes for {told}": place and length and length != end - start,
        f"{etag}, it was {whole.get('etag')}": etag and whole.get("etag") and etag != whole["etag"],
    }
    return next((text for text, wrong in checks.items() if wrong), None)


def _answer(request: Request) -> Any:
    """Open an address; TimeoutError where the answer's head is late (a socket's own limit begins anew with each byte)."""
    came: SimpleQueue = SimpleQueue()

    def ask() -> None:
        try:
            came.put(urlopen(request, timeout=SECONDS_OF_SILENCE))
        except (OSError, HTTPException, ValueError) as error:  # to be raised in the thread that waits
            came.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = came.get(timeout=SECONDS_OF_SILENCE)
    except Empty:
        raise TimeoutError(f"no answer within {SECONDS_OF_SILENCE:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _copy(answer: Any, file: BinaryIO, most: int) -> Iterator[None]:
    """Write what arrives at once, so that nothing is lost when the rest does not come; yield for each megabyte.

    Raises TooMuch beyond `most` bytes, TimeoutError for a server that drips.
    """
    began = looked = time.monotonic()
    got = seen = 0
    while piece := answer.read1(CHUNK):
        before, got = got, got + len(piece)
        if got > most:
            raise TooMuch(f"more than {most / 1e6:,.0f} MB arrive")
        file.write(piece)
        yield from repeat(None, got // CHUNK - before // CHUNK)
        now = time.monotonic()
        if now - began > SECONDS_IN_ALL:
            raise TimeoutError(f"not whole after {SECONDS_IN_ALL / 3600:.1f} hours")
        if now - looked >= SECONDS_BETWEEN_LOOKS:
            if got - seen < SLOWEST * (now - looked):
                raise TimeoutError(f"only {(got - seen) / (now - looked):,.0f} bytes a second arrive")
            looked, seen = now, got


# --- unpacking --------------------------------------------------------------------------------------------------------
def unpack(archive: Path, folder: Path) -> None:
    """Unpack the TEI files of an archive into a new `folder`; nothing is left of it where that fails. Raises FetchError.

    gzip's checksum is read to its end, and what stands behind the tar's own end is refused, as a tar without an end is. Paths and
    links out of the folder, links of any kind, devices, names that occur twice, and archives that grow beyond all measure too.
    """
    folder.mkdir(parents=True)
    again = "move it away and fetch it again"
    try:
        with gzip.open(archive) as plain:
            stream = _Unpacked(plain, archive.stat().st_size)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                tar.extractall(folder, members=_wanted(tar), filter="data")
                stream.check_end(tar.offset)
        if next(folder.glob("**/*.xml"), None) is None:
            raise FetchError(f"{archive} holds no TEI file; {again}")
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, BROKEN_ARCHIVE):
            raise FetchError(f"{archive} cannot be unpacked ({error}); {again}") from error
        if isinstance(error, OSError):
            problem = f"{archive} cannot be unpacked into {folder} ({error.strerror or error})"
            raise FetchError(f"{problem}; see to that and try again") from error
        raise


class _Unpacked:
    """The tar in a gzip file, as far as it has been read: how long it is, and where its last byte that is not zero stands."""

    def __init__(self, plain: gzip.GzipFile, archive_bytes: int):
        self._plain = plain
        self._most = min(UNPACKED_BYTES, max(UNPACKED_AT_EASE, UNPACKED_TO_ONE * archive_bytes))
        self._length = self._end_of_data = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes. Raises TarError beyond what an archive of this size can hold."""
        data = self._plain.read(size)
        if filled := len(data.rstrip(b"\0")):
            self._end_of_data = self._length + filled
        self._length += len(data)
        if self._length > self._most:
            raise tarfile.ReadError(f"it grows to more than {self._most / 1e6:,.0f} MB")
        return data

    def check_end(self, end: int) -> None:
        """Read to gzip's end, and so its checksum. Raises TarError unless the tar ended at `end` and zeros alone follow."""
        while self.read(CHUNK):
            pass
        if self._end_of_data > end:
            raise tarfile.ReadError(f"there is more behind the tar's end at byte {end:,}, or a broken head stands there")
        if self._length < end + tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it is cut off: the tar has no end")


def _wanted(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the folders, TEI files and readme of an archive (the plain texts repeat them). Raises TarError for what is unsafe."""
    names: set[str] = set()
    for number, member in enumerate(tar):
        if number == UNPACKED_FILES:
            raise tarfile.TarError(f"it holds more than {UNPACKED_FILES:,} files")
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise tarfile.TarError(f"{member.name!r} is a link, a device or another thing that no corpus has")
        if member.isdir():
            yield member
        elif member.name.endswith((".xml", ".md")):
            if member.name in names:
                raise tarfile.TarError(f"{member.name!r} is in it twice")
            names.add(member.name)
            yield member
