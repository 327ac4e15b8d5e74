"""Fetching the corpus, against a local server."""

import io
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from parliabench_utils.corpus.download import FetchError, fetch_corpus, unpack

ITEM = "/xmlui/bitstream/handle/11356/2004"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def site(tmp_path):
    """A folder that is served, and its address."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def archive(members: dict[str, bytes], link: str | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo("evil.xml")
            info.type, info.linkname = tarfile.SYMTYPE, link
            tar.addfile(info)
    return buffer.getvalue()


def serve_item(site, data: bytes) -> dict[str, str]:
    folder, address = site
    (folder / "ParlaMint-GB.tgz").write_bytes(data)
    bitstream = folder / ITEM[1:]
    bitstream.mkdir(parents=True)
    (bitstream / "ParlaMint-GB.tgz").write_bytes(data)
    links = [f"{ITEM}/ParlaMint-ES.tgz?sequence=8", f"{ITEM}/ParlaMint-GB.tgz?sequence=9&amp;isAllowed=y"]
    (folder / "item.html").write_text("".join(f'<a href="{link}">x</a>' for link in links))
    return {"5.0": f"{address}/item.html"}


def test_the_link_is_read_from_the_item_page_and_the_manifest_comes_last(site, tmp_path):
    pages = serve_item(site, archive({"ParlaMint-GB.TEI/ParlaMint-GB.xml": b"<teiCorpus/>"}))
    folder = fetch_corpus(tmp_path / "data", pages=pages)
    assert (folder / "ParlaMint-GB.TEI/ParlaMint-GB.xml").read_bytes() == b"<teiCorpus/>"
    assert '"sha256"' in (folder / "fetched.json").read_text()
    (site[0] / "item.html").unlink()
    assert fetch_corpus(tmp_path / "data", pages=pages) == folder


def test_a_wrong_checksum_is_refused(site, tmp_path):
    pages = serve_item(site, archive({"a.xml": b"<TEI/>"}))
    with pytest.raises(FetchError, match="By hand"):
        fetch_corpus(tmp_path / "data", pages=pages, checksum="sha256:" + "0" * 64)
    assert not (tmp_path / "data/ParlaMint-GB/fetched.json").exists()


def test_an_unreachable_host_and_a_page_without_the_link_say_what_to_do(site, tmp_path):
    with pytest.raises(FetchError, match="cannot be reached"):
        fetch_corpus(tmp_path, pages={"5.0": "http://127.0.0.1:9/item"})
    (site[0] / "item.html").write_text("nothing here")
    with pytest.raises(FetchError, match="links to no ParlaMint-GB"):
        fetch_corpus(tmp_path, pages={"5.0": f"{site[1]}/item.html"})
    with pytest.raises(FetchError, match="not known"):
        fetch_corpus(tmp_path, release="6.0")


@pytest.mark.parametrize(
    "data",
    [
        archive({"../evil.xml": b"x"}),
        archive({}, link="../../outside.xml"),
        b"no archive",
        archive({"a.xml": b"x" * 9999})[:-40],
    ],
)
def test_an_archive_that_leads_out_or_is_broken_is_refused(tmp_path, data):
    (tmp_path / "a.tgz").write_bytes(data)
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert not (tmp_path / "evil.xml").exists()
