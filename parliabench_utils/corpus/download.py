"""Fetch the real corpus, ParlaMint-GB, from CLARIN.SI (section 3.1): `python -m parliabench_utils fetch-corpus --release 5.0`.

The archive's link stands on the release's item page and is read from there, never guessed. A transfer that broke off goes on
where it stopped. A manifest with the archive's checksum is written last: where it is, the corpus is whole.

    >>> fetch_corpus(Path("data"), release="5.0")      # doctest: +SKIP
"""

import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from parliabench_utils.run.artefacts import write_json
from parliabench_utils.run.progress import progress
from parliabench_utils.run.project import project_root

ITEM_PAGES = {
    release: f"https://www.clarin.si/repository/xmlui/handle/11356/{handle}"
    for release, handle in {"2.1": 1432, "3.0": 1486, "4.0": 1859, "4.1": 1912, "5.0": 2004}.items()
}
# Known from users' records; CLARIN.SI itself publishes MD5 per file on the item page.
CHECKSUMS = {"3.0": "sha256:ec1f6d82976904866c710123b5d77d6aad20886c44240236e3d442c0708c018a"}
ARCHIVE = "ParlaMint-GB.tgz"
LICENCE = "CC BY 4.0 (ParlaMint, CLARIN); contains Parliamentary information under the Open Parliament Licence v3.0"
TRIES = 5  # in one call; the next call goes on from there
SECONDS_BETWEEN_TRIES = 2.0
CHUNK = 2**20  # bytes


class FetchError(ValueError):
    """The corpus could not be fetched; the message says what to do by hand."""


def fetch_corpus(
    data_root: Path,
    release: str = "5.0",
    url: str | None = None,
    checksum: str | None = None,
    pages: dict | None = None,
) -> Path:
    """Download, check and unpack ParlaMint-GB into `data_root/ParlaMint-GB` (from the project's root) and return that folder.

    `url` overrides the item page's link; `checksum` is `sha256:…` or `md5:…`, and without one the archive's own is noted in
    the manifest on first sight. A corpus with its manifest is returned as it is; an archive that lies in `data_root` is checked
    and unpacked without asking the network. Raises FetchError.
    """
    pages = pages or ITEM_PAGES
    if release not in pages:
        raise FetchError(f"release {release!r} is not known; there are {', '.join(pages)}")
    data_root = project_root() / data_root
    folder, archive = data_root / "ParlaMint-GB", data_root / ARCHIVE
    if (folder / "fetched.json").is_file():
        print(f"{folder} is there already (delete it to fetch it again)")
        return folder
    if folder.exists():
        raise FetchError(f"{folder} is there, but not from here (no fetched.json); move it away, or use it as it is")
    print(f"ParlaMint-GB {release}, {LICENCE}")
    by_hand = _by_hand(pages[release], archive)
    link = url or (archive.as_uri() if archive.is_file() else find_archive(pages[release], by_hand))
    _retrieve(link, archive, checksum or CHECKSUMS.get(release), by_hand)
    fresh = folder.with_name(f"{folder.name}.unpacking")
    shutil.rmtree(fresh, ignore_errors=True)  # of a call that was killed
    unpack(archive, fresh)
    facts = {"release": release, "url": link, "sha256": _sha256(archive), "bytes": archive.stat().st_size}
    write_json(fresh / "fetched.json", facts)
    return fresh.rename(folder)


def find_archive(page: str, by_hand: str) -> str:
    """Return the address of `ParlaMint-GB.tgz` that an item page links to (the annotated corpus is another item)."""
    try:
        with urlopen(page, timeout=60) as answer:
            html = answer.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise FetchError(f"{page} cannot be reached ({error}). {by_hand}") from error
    links = re.findall(r'href="([^"]*/bitstream/[^"]*ParlaMint-GB\.tgz[^"]*)"', html)
    if not links:
        raise FetchError(f"{page} links to no {ARCHIVE}. {by_hand}")
    return urljoin(page, links[0].replace("&amp;", "&"))


def _retrieve(link: str, archive: Path, checksum: str | None, by_hand: str) -> None:
    """Bring `link` to `archive` and check it; an archive that is there already is only checked."""
    import pooch

    if archive.is_file():
        print(f"{archive} is there already: it is checked and unpacked")
        if checksum and not pooch.hashes.hash_matches(str(archive), checksum):
            raise FetchError(f"{archive} does not have the checksum {checksum}; delete it and fetch it again")
        return
    try:
        pooch.retrieve(link, known_hash=checksum, fname=archive.name, path=archive.parent, downloader=download)
    except (OSError, ValueError) as error:
        # ValueError is pooch's word for a file whose checksum is another one.
        raise FetchError(f"{link} was not fetched ({error}). {by_hand}") from error


def download(url: str, output_file: str, _pooch: object = None) -> None:
    """Bring `url` to `output_file` (this is a downloader for pooch), going on with what an earlier call left behind.

    What came so far is beside it in `ParlaMint-GB.tgz.<hash of the address>.partial`. Raises OSError after five tries.
    """
    import hashlib

    name = f"{ARCHIVE}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.partial"
    partial = Path(output_file).with_name(name)
    problem: object = None
    for number in range(TRIES):
        time.sleep(SECONDS_BETWEEN_TRIES if number else 0)
        try:
            problem = _go_on(url, partial)
        except HTTPError as error:
            if error.code != 416:  # the server has no such address, or wants no more of us: another try changes nothing
                raise
            partial.unlink()  # 416: there is nothing after what we have, so it is not a piece of what is there now
            problem = error
        except (OSError, HTTPException) as error:
            problem = error
        if problem is None:
            partial.replace(output_file)
            return
        print(f"try {number + 1} of {TRIES}: {problem}", flush=True)
    raise OSError(f"{problem}, {TRIES} times; run the command again and it goes on where it stopped")


def _go_on(url: str, partial: Path) -> str | None:
    """Fetch what `partial` lacks; return None when it is whole, else what went wrong. Says the size first."""
    have = partial.stat().st_size if partial.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urlopen(request, timeout=60) as answer:
        have = have if answer.status == 206 else 0  # a server without ranges sends everything again
        size = have + int(answer.headers.get("Content-Length") or 0)
        announced = f"{size / 1e6:,.1f} MB" if size else "size not announced"
        print(f"{url}\n{announced}{f', {have / 1e6:,.1f} MB of them are here' if have else ''}", flush=True)
        with partial.open("r+b" if have else "wb") as file:
            file.seek(have)
            chunks = iter(lambda: answer.read(CHUNK), b"")
            for chunk in progress(chunks, "Megabytes", total=(size - have) // CHUNK):
                file.write(chunk)
            got = file.tell()
    return None if got >= size else f"the connection broke at {got / 1e6:,.1f} of {size / 1e6:,.1f} MB"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the TEI files of an archive into a new `folder`; nothing is left of it where that fails. Raises FetchError.

    Absolute paths, paths and links out of the folder, links of any kind and devices are refused.
    """
    folder.mkdir(parents=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, members=_wanted(tar), filter="data")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        shutil.rmtree(folder)
        raise FetchError(f"{archive} cannot be unpacked ({error}); delete it and fetch it again") from error
    if next(folder.glob("**/*.xml"), None) is None:
        shutil.rmtree(folder)
        raise FetchError(f"{archive} holds no TEI file; delete it and fetch it again")


def _wanted(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the folders, TEI files and readme of an archive (the plain texts repeat them). Raises TarError for a link."""
    for member in tar:
        if member.issym() or member.islnk():
            raise tarfile.TarError(f"{member.name!r} is a link")
        if member.isdir() or member.name.endswith((".xml", ".md")):
            yield member


def _by_hand(page: str, archive: Path) -> str:
    return (
        f"By hand: open {page} in a browser, download {ARCHIVE} to {archive}, and run this command again, which checks and "
        "unpacks it; or give its address with --url."
    )


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
