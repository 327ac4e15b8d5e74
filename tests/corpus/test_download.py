"""Fetching the corpus, against a local server that can break off."""

import io
import json
import tarfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from parliabench_utils.cli import main
from parliabench_utils.corpus import download, read_corpus
from parliabench_utils.corpus.download import FetchError, fetch_corpus, unpack
from tests.corpus.corpus_files import debate, root_xml, sitting_xml, u

ITEM = "/xmlui/bitstream/handle/11356/2004"
LINK = f"{ITEM}/ParlaMint-GB.tgz?sequence=9&isAllowed=y"
DAY = "ParlaMint-GB_2019-03-05-commons"
ROOT = {
    "ParlaMint-GB.TEI/ParlaMint-GB.xml": root_xml([f"2019/{DAY}.xml"]).encode(),
    f"ParlaMint-GB.TEI/2019/{DAY}.xml": sitting_xml(debate(u(1, "I disagree."))).encode(),
    "ParlaMint-GB.txt/2019/x.txt": b"not unpacked",
}


class Site:
    """What a server has (path to bytes), how often it breaks off half way, and the ranges it was asked for."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.breaks = 0
        self.asked: list[str | None] = []
        self.ranges = True


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site, *arguments):
        self.site = site
        super().__init__(*arguments)

    def do_GET(self):
        data = self.site.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        self.site.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.site.ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        part = data[start:]
        if "tgz" in self.path and self.site.breaks:
            self.site.breaks -= 1
            part = part[: len(part) // 2]
        self.wfile.write(part)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def site(monkeypatch):
    """A running server's `Site`, with its address."""
    monkeypatch.setattr(download, "SECONDS_BETWEEN_TRIES", 0)
    here = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, here))
    Thread(target=server.serve_forever, daemon=True).start()
    here.address = f"http://127.0.0.1:{server.server_port}"
    yield here
    server.shutdown()


def archive(members: dict[str, bytes], link: tuple[bytes, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo("link.xml")
            info.type, info.linkname = link
            tar.addfile(info)
    return buffer.getvalue()


def serve_item(site, data: bytes) -> dict[str, str]:
    site.files[LINK] = data
    links = [f"{ITEM}/ParlaMint-ES.tgz?sequence=8", LINK.replace("&", "&amp;")]
    site.files["/item"] = "".join(f'<a href="{link}">x</a>' for link in links).encode()
    return {"5.0": f"{site.address}/item"}


def test_the_link_is_read_from_the_item_page_and_the_manifest_comes_last(site, tmp_path, capsys):
    pages = serve_item(site, archive(ROOT))
    folder = fetch_corpus(tmp_path / "data", pages=pages)
    assert read_corpus(folder)["party"].tolist() == ["Conservative"] and not list(folder.rglob("*.txt"))
    facts = json.loads((folder / "fetched.json").read_text())
    assert (facts["url"], facts["bytes"]) == (site.address + LINK, len(site.files[LINK])) and len(facts["sha256"]) == 64
    printed = capsys.readouterr().out
    assert printed.index("CC BY 4.0") < printed.index(" MB")
    site.files.clear()
    assert fetch_corpus(tmp_path / "data", pages=pages) == folder


def test_a_transfer_that_breaks_off_goes_on_where_it_stopped(site, tmp_path):
    data = archive({**ROOT, "noise.md": bytes(range(256)) * 40})
    pages = serve_item(site, data)
    site.breaks = 2
    folder = fetch_corpus(tmp_path, pages=pages)
    half = len(data) // 2
    assert site.asked[1:] == [None, f"bytes={half}-", f"bytes={half + (len(data) - half) // 2}-"]
    assert (folder / "noise.md").read_bytes() == bytes(range(256)) * 40
    assert not list(tmp_path.glob("*.partial"))


def test_a_transfer_that_stays_broken_goes_on_in_the_next_call(site, tmp_path):
    data = archive(ROOT)
    pages = serve_item(site, data)
    site.breaks = download.TRIES
    with pytest.raises(FetchError, match=r"connection broke at .* 5 times; run the command again"):
        fetch_corpus(tmp_path, pages=pages)
    have = next(tmp_path.glob("*.partial")).stat().st_size
    assert have > len(data) // 2
    fetch_corpus(tmp_path, pages=pages)
    assert site.asked[-1] == f"bytes={have}-"


@pytest.mark.parametrize("leftover", [b"half of something else", b"x" * 99999])
def test_a_leftover_that_does_not_fit_is_noticed(site, tmp_path, leftover):
    pages = serve_item(site, archive(ROOT))
    site.breaks = download.TRIES
    with pytest.raises(FetchError):
        fetch_corpus(tmp_path, pages=pages)
    next(tmp_path.glob("*.partial")).write_bytes(leftover)
    if len(leftover) < len(site.files[LINK]):
        site.ranges = False  # a server that sends the whole file again
    assert (fetch_corpus(tmp_path, pages=pages) / "fetched.json").is_file()


def test_a_wrong_checksum_is_refused(site, tmp_path):
    pages = serve_item(site, archive({"a.xml": b"<TEI/>"}))
    with pytest.raises(FetchError, match="By hand"):
        fetch_corpus(tmp_path / "data", pages=pages, checksum="sha256:" + "0" * 64)
    assert not (tmp_path / "data/ParlaMint-GB").exists()


def test_an_archive_fetched_by_hand_is_checked_and_unpacked_without_the_network(tmp_path):
    (tmp_path / "ParlaMint-GB.tgz").write_bytes(archive(ROOT))
    with pytest.raises(FetchError, match="does not have the checksum"):
        fetch_corpus(tmp_path, checksum="md5:" + "0" * 32)
    assert (fetch_corpus(tmp_path, pages={"5.0": "http://127.0.0.1:9/"}) / "fetched.json").is_file()


def test_a_folder_from_elsewhere_is_left_alone(tmp_path):
    (tmp_path / "ParlaMint-GB").mkdir()
    with pytest.raises(FetchError, match="not from here"):
        fetch_corpus(tmp_path)


def test_what_cannot_be_fetched_says_what_to_do(site, tmp_path, monkeypatch, capsys):
    with pytest.raises(FetchError, match=r"cannot be reached .* By hand: open"):
        fetch_corpus(tmp_path, pages={"5.0": "http://127.0.0.1:9/item"})
    site.files["/item"] = b"nothing here"
    with pytest.raises(FetchError, match="links to no ParlaMint-GB"):
        fetch_corpus(tmp_path, pages={"5.0": f"{site.address}/item"})
    with pytest.raises(FetchError, match=r"404.* By hand"):
        fetch_corpus(tmp_path, url=f"{site.address}/gone.tgz")
    monkeypatch.setitem(download.ITEM_PAGES, "5.0", "http://127.0.0.1:9/item")
    assert main(["fetch-corpus", "--data-root", str(tmp_path)]) == 2
    assert "By hand" in capsys.readouterr().err
    assert main(["fetch-corpus", "--data-root", str(tmp_path), "--release", "6.0"]) == 2
    assert "'6.0' is not known" in capsys.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        archive({"../evil.xml": b"x"}),
        archive({"a/../../evil.xml": b"x"}),
        archive({}, link=(tarfile.SYMTYPE, "../../outside.xml")),
        archive({"a.xml": b"x"}, link=(tarfile.SYMTYPE, "a.xml")),
        archive({"a.xml": b"x"}, link=(tarfile.LNKTYPE, "a.xml")),
        b"no archive",
        archive({"a.xml": b"x" * 9999})[:-40],
    ],
)
def test_an_archive_that_leads_out_or_is_broken_is_refused(tmp_path, data):
    (tmp_path / "a.tgz").write_bytes(data)
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(tmp_path / "a.tgz", tmp_path / "in" / "out")
    assert not list(tmp_path.rglob("*evil.xml")) and not (tmp_path / "in/out").exists()


def test_an_absolute_path_stays_inside(tmp_path):
    (tmp_path / "a.tgz").write_bytes(archive({f"{tmp_path}/evil.xml": b"x"}))
    unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert not (tmp_path / "evil.xml").exists()
