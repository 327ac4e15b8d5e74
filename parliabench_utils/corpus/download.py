"""Fetch the real corpus, ParlaMint-GB, from CLARIN.SI (section 3.1): `python -m parliabench_utils fetch-corpus --release 5.0`.

The archive's link stands on the release's item page and is read from there, never guessed. A manifest with the archive's
checksum is written last: where it is, the corpus is whole.

    >>> fetch_corpus(Path("data"), release="5.0")      # doctest: +SKIP
"""

import re
import tarfile
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from parliabench_utils.run.artefacts import write_json
from parliabench_utils.run.project import project_root

ITEM_PAGES = {
    release: f"https://www.clarin.si/repository/xmlui/handle/11356/{handle}"
    for release, handle in {"2.1": 1432, "3.0": 1486, "4.0": 1859, "4.1": 1912, "5.0": 2004}.items()
}
# Known from users' records; CLARIN.SI itself publishes MD5 per file on the item page.
CHECKSUMS = {"3.0": "sha256:ec1f6d82976904866c710123b5d77d6aad20886c44240236e3d442c0708c018a"}
ARCHIVE = "ParlaMint-GB.tgz"
LICENCE = "CC BY 4.0 (ParlaMint, CLARIN); contains Parliamentary information under the Open Parliament Licence v3.0"


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
    the manifest on first sight. An unpacked corpus with its manifest is returned as it is. Raises FetchError.
    """
    pages = pages or ITEM_PAGES
    if release not in pages:
        raise FetchError(f"release {release!r} is not known; there are {', '.join(pages)}")
    data_root = project_root() / data_root
    folder = data_root / "ParlaMint-GB"
    manifest = folder / "fetched.json"
    if manifest.is_file():
        print(f"{folder} is there already (delete it to fetch it again)")
        return folder
    link = url or find_archive(pages[release])
    print(f"ParlaMint-GB {release}, {LICENCE}\n{link}")
    archive = _retrieve(link, data_root, checksum or CHECKSUMS.get(release), pages[release])
    unpack(archive, folder)
    write_json(manifest, {"release": release, "url": link, "sha256": _sha256(archive), "bytes": archive.stat().st_size})
    return folder


def find_archive(page: str) -> str:
    """Return the address of `ParlaMint-GB.tgz` that an item page links to (the annotated corpus is another item)."""
    try:
        with urlopen(page, timeout=60) as answer:
            html = answer.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise FetchError(f"{page} cannot be reached ({error}). {_by_hand(page)}") from error
    links = re.findall(r'href="([^"]*/bitstream/[^"]*ParlaMint-GB\.tgz[^"]*)"', html)
    if not links:
        raise FetchError(f"{page} links to no {ARCHIVE}. {_by_hand(page)}")
    return urljoin(page, links[0].replace("&amp;", "&"))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into `folder`, refusing paths and links that lead out of it. Raises FetchError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            members = (
                member for member in tar if member.isdir() or member.name.endswith((".xml", ".md", ".txt", "LICENSE"))
            )
            tar.extractall(folder, members=members, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FetchError(f"{archive} cannot be unpacked ({error}); delete it and fetch again") from error


def _retrieve(link: str, data_root: Path, checksum: str | None, page: str) -> Path:
    import pooch

    try:
        with urlopen(Request(link, method="HEAD"), timeout=60) as answer:
            size = int(answer.headers.get("Content-Length", 0))
        print(f"{size / 1e6:,.0f} MB" if size else "size not announced")
        return Path(pooch.retrieve(link, known_hash=checksum, fname=ARCHIVE, path=data_root))
    except (OSError, ValueError) as error:
        # URLError and requests' errors are OSErrors; ValueError is pooch's word for a file whose checksum is another one.
        raise FetchError(f"{link} was not fetched ({error}). {_by_hand(page)}") from error


def _by_hand(page: str) -> str:
    return (
        f"By hand: open {page} in a browser, download {ARCHIVE}, unpack it, and name its folder with "
        "--set corpus=FOLDER; or give its address with --url."
    )


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
