"""Fetching the corpus, against a local server that can break off."""

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import socket
import tarfile
import time
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
        self.heads: list[dict[str, str]] = []  # of the answers to come: their own heads instead of ours
        self.codes: list[int] = []  # of the answers to come
        self.drip = 0.0  # seconds between two bytes
        self.if_range: list[str | None] = []
        self.etag: str | None = None


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
        self.site.if_range.append(self.headers.get("If-Range"))
        if self.site.codes:
            self.send_error(self.site.codes.pop(0))
            return
        if wanted and self.site.etag and self.headers.get("If-Range") not in (None, self.site.etag):
            wanted = None
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.site.ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        heads = {"Content-Length": str(len(data) - start)}
        heads |= {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        heads |= {"ETag": self.site.etag} if self.site.etag else {}
        if start and self.site.heads:
            heads |= self.site.heads.pop(0)
        for name, value in heads.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        part = data[start:]
        if "tgz" in self.path and self.site.breaks:
            self.site.breaks -= 1
            part = part[: len(part) // 2]
        for piece in [part[i : i + 1] for i in range(len(part))] if self.site.drip else [part]:
            time.sleep(self.site.drip)
            try:
                self.wfile.write(piece)
            except OSError:  # nobody listens any more
                return

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


def digest(path, name="sha256"):
    return hashlib.new(name, path.read_bytes()).hexdigest()


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
        archive({"a.xml": b"x"}, link=(tarfile.CHRTYPE, "")),
        archive({"a.xml": b"x"}, link=(tarfile.FIFOTYPE, "")),
        archive({"a.xml": b"x"}, link=(tarfile.GNUTYPE_SPARSE, "")),
        b"",
        b"no archive",
        b"<!DOCTYPE html>",
        archive({"a.xml": b"x" * 9999})[:-40],
        archive({"a.xml": b"x" * 9999})[:-4],
        archive({"a.xml": b"x" * 9999}) + b"garbage",
        archive({"a.xml": b"x"}) + archive({"b.xml": b"y"}),
        gzip.compress(gzip.decompress(archive({"a.xml": b"x"}))[:1024]),
        gzip.compress(gzip.decompress(archive({"a.xml": b"x"})) + b"behind its end"),
        gzip.compress(gzip.decompress(archive({"a.xml": b"x", "b.xml": b"y"})).replace(b"b.xml", b"b\xff\xff\xff\xff")),
        gzip.compress(gzip.decompress(archive({"a.xml": b"x", "b.xml": b"y"})).replace(b"b.xml", b"a.xml")),
    ],
    ids=itertools.count(),
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


def test_a_flipped_bit_is_noticed_wherever_it_stands(tmp_path):
    members = {f"{n}.xml": f"<TEI>{hashlib.sha512(bytes([n])).hexdigest()}</TEI>".encode() for n in range(40)}
    data = archive(members)
    for n in range(40):
        at = 10 + (len(data) - 11) * n // 39  # the ten bytes before hold gzip's own head
        (tmp_path / "a.tgz").write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(FetchError, match="cannot be unpacked"):
            unpack(tmp_path / "a.tgz", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_an_archive_in_several_gzip_members_is_whole(tmp_path):
    tar = gzip.decompress(archive({"a.xml": b"x"}))
    (tmp_path / "a.tgz").write_bytes(gzip.compress(tar[:700]) + gzip.compress(tar[700:]) + b"\0" * 512)
    unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert (tmp_path / "out/a.xml").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("UNPACKED_AT_EASE", 10_000, "grows to more than"),
        ("UNPACKED_BYTES", 50_000, "grows to"),
        ("UNPACKED_FILES", 2, "than 2 files"),
    ],
)
def test_an_archive_beyond_measure_is_refused(tmp_path, monkeypatch, limit, value, message):
    monkeypatch.setattr(download, limit, value)
    (tmp_path / "a.tgz").write_bytes(archive({"a.xml": b"\1" * 900_000, "b.xml": b"", "c.xml": b""}))
    with pytest.raises(FetchError, match=message):
        unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_not_the_archives_fault(tmp_path, monkeypatch):
    (tmp_path / "a.tgz").write_bytes(archive({"a.xml": b"x"}))

    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile, "copyfileobj", full)
    with pytest.raises(FetchError, match=r"No space left on device.*try again") as caught:
        unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert "fetch it again" not in str(caught.value) and not (tmp_path / "out").exists()


# --- checksums --------------------------------------------------------------------------------------------------------
def test_the_md5_of_the_item_page_is_asked_of_the_archive(site, tmp_path, capsys):
    data = archive(ROOT)
    pages = serve_item(site, data)
    stated = '<dt>Name</dt><dd>ParlaMint-{}.tgz</dd><dt>MD5</dt>\n<dd class="x">{}</dd>'
    blocks = [("ES", "0" * 32), ("GB.ana", "1" * 32), ("GB", hashlib.md5(data).hexdigest()), ("HR", "2" * 32)]
    site.files["/item"] += "".join(stated.format(*block) for block in blocks).encode()
    folder = fetch_corpus(tmp_path / "good", pages=pages)
    assert (folder / "fetched.json").is_file() and "checked against md5:" in capsys.readouterr().out
    site.files[LINK] = archive({**ROOT, "other.md": b"x"})
    with pytest.raises(FetchError, match=r"MD5.* By hand"):
        fetch_corpus(tmp_path / "bad", pages=pages)
    assert not (tmp_path / "bad/ParlaMint-GB").exists() and not (tmp_path / "bad/ParlaMint-GB.tgz").exists()


@pytest.mark.parametrize(
    "html",
    [
        "",
        "ParlaMint-GB.tgz",
        f"MD5 {'0' * 32} ParlaMint-GB.tgz",
        f"MD5 {'0' * 32} ParlaMint-GB.tgz MD5 {'1' * 32} ParlaMint-HR.tgz",
        f"ParlaMint-GB.tgz MD5 {'0' * 32} MD5 {'1' * 32}",
    ],
)
def test_what_is_not_surely_the_archives_md5_is_not_taken_for_it(html):
    assert download.stated_md5(html) is None


def test_a_page_made_to_keep_us_busy_does_not(site, tmp_path):
    for text in ("MD5 <" * 300_000, 'href="' + "/bitstream/" * 200_000, "ParlaMint-" * 200_000):
        site.files["/item"] = text.encode()
        began = time.monotonic()
        with pytest.raises(FetchError, match="links to no"):
            fetch_corpus(tmp_path, pages={"5.0": f"{site.address}/item"})
        download.stated_md5(text)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("link", ["file:///etc/bitstream/ParlaMint-GB.tgz", "ftp://x/bitstream/ParlaMint-GB.tgz"])
def test_a_page_that_links_elsewhere_than_to_the_web_is_not_followed(site, tmp_path, link):
    site.files["/item"] = f'<a href="{link}">x</a>'.encode()
    with pytest.raises(FetchError, match="no safe address"):
        fetch_corpus(tmp_path, pages={"5.0": f"{site.address}/item"})


def test_the_sha256_of_first_sight_lies_beside_the_archive_and_is_checked_at_reuse(site, tmp_path, capsys):
    pages = serve_item(site, archive(ROOT))
    folder = fetch_corpus(tmp_path, pages=pages)
    assert "no checksum is known" in capsys.readouterr().out
    kept, note = tmp_path / "ParlaMint-GB.tgz", tmp_path / "ParlaMint-GB.tgz.sha256"
    assert note.read_text() == f"{digest(kept)}  ParlaMint-GB.tgz\n"
    assert json.loads((folder / "fetched.json").read_text())["sha256"] == digest(kept)
    folder.rename(tmp_path / "moved")
    kept.write_bytes(archive({**ROOT, "other.md": b"x"}))
    with pytest.raises(FetchError, match=r"is not the file whose SHA-256 was noted in ParlaMint-GB.tgz.sha256"):
        fetch_corpus(tmp_path, pages=pages)
    note.unlink()
    assert (fetch_corpus(tmp_path, pages=pages) / "other.md").is_file()


def test_a_corpus_of_which_files_went_missing_is_not_whole(site, tmp_path):
    pages = serve_item(site, archive(ROOT))
    folder = fetch_corpus(tmp_path, pages=pages)
    day = next(folder.rglob(f"{DAY}.xml"))
    text = day.read_text()
    day.write_text(text[:-1])
    with pytest.raises(FetchError, match=r"2 files of .* were unpacked; move it away"):
        fetch_corpus(tmp_path, pages=pages)
    day.write_text(text)
    (folder / "mine.xml").write_text("<TEI/>")
    assert fetch_corpus(tmp_path, pages=pages) == folder


def test_an_unpacking_that_was_killed_never_looks_whole(site, tmp_path, monkeypatch):
    pages = serve_item(site, archive(ROOT))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download, "_size", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch_corpus(tmp_path, pages=pages)
    assert not (tmp_path / "ParlaMint-GB").exists()
    (tmp_path / "ParlaMint-GB.unpacking/half.xml").write_text("<TEI>")
    folder = fetch_corpus(tmp_path, pages=pages)
    assert not (folder / "half.xml").exists() and not (tmp_path / "ParlaMint-GB.unpacking").exists()


# --- going on ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ({"Content-Range": "bytes 0-9/{total}"}, "it begins at byte 0"),
        ({"Content-Range": "bytes {have}-{last}/{more}"}, "it was"),
        ({"Content-Range": "bytes {have}-{have}/{total}"}, "bytes for bytes"),
        ({"Content-Range": "pages 1-2/3"}, "Content-Range"),
        ({"Content-Range": "", "Content-Length": "7"}, "it was"),
        ({"ETag": '"another"'}, '"another", it was "one"'),
    ],
)
def test_a_206_that_does_not_go_on_where_we_stopped_begins_anew(site, tmp_path, capsys, heads, said):
    data = archive({**ROOT, "noise.md": bytes(range(256)) * 40})
    pages = serve_item(site, data)
    site.etag, site.breaks, have = '"one"', 1, len(data) // 2
    numbers = {"have": have, "total": len(data), "last": len(data) - 1, "more": len(data) + 1}
    site.heads = [{name: value.format(**numbers) for name, value in heads.items()}]
    folder = fetch_corpus(tmp_path, pages=pages)
    assert (folder / "noise.md").read_bytes() == bytes(range(256)) * 40
    assert site.asked[1:] == [None, f"bytes={have}-", None]
    printed = capsys.readouterr().out
    assert "went on with something else" in printed and said in printed


def test_a_206_without_its_place_goes_on_if_its_length_is_the_rests(site, tmp_path):
    pages = serve_item(site, archive(ROOT))
    site.breaks, site.heads = 1, [{"Content-Range": ""}]
    fetch_corpus(tmp_path, pages=pages)
    assert len(site.asked) == 3


def test_a_file_that_changed_meanwhile_is_fetched_anew(site, tmp_path):
    pages = serve_item(site, archive({**ROOT, "old.md": bytes(range(256))}))
    site.etag, site.breaks = '"one"', download.TRIES
    with pytest.raises(FetchError):
        fetch_corpus(tmp_path, pages=pages)
    site.files[LINK], site.etag = archive({**ROOT, "new.md": bytes(range(255))}), '"two"'
    folder = fetch_corpus(tmp_path, pages=pages)
    assert (folder / "new.md").is_file() and site.if_range[-1] == '"one"' and not list(tmp_path.glob("*.partial*"))


def test_a_piece_of_which_nothing_is_known_is_no_beginning(site, tmp_path):
    pages = serve_item(site, archive(ROOT))
    site.breaks = download.TRIES
    with pytest.raises(FetchError):
        fetch_corpus(tmp_path, pages=pages)
    next(tmp_path.glob("*.partial.json")).unlink()
    fetch_corpus(tmp_path, pages=pages)
    assert site.asked[-1] is None


def test_a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not(site, tmp_path):
    pages = serve_item(site, archive(ROOT))
    url = site.address + LINK
    site.codes = [503, 429, 408]
    fetch_corpus(tmp_path / "a", url=url, pages=pages)
    assert len(site.asked) == 4
    site.codes = [403]
    with pytest.raises(FetchError, match="403"):
        fetch_corpus(tmp_path / "b", url=url, pages=pages)
    assert len(site.asked) == 5


# --- limits -----------------------------------------------------------------------------------------------------------
def test_a_server_that_drips_is_left(site, tmp_path, monkeypatch):
    pages = serve_item(site, archive(ROOT))
    monkeypatch.setattr(download, "SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(download, "TRIES", 2)
    site.drip = 0.01
    began = time.monotonic()
    with pytest.raises(FetchError, match=r"cannot be reached .only .* bytes a second arrive"):
        fetch_corpus(tmp_path, pages=pages)
    with pytest.raises(FetchError, match=r"only .* bytes a second arrive, 2 times; run the command again"):
        fetch_corpus(tmp_path, url=site.address + LINK, pages=pages)
    monkeypatch.setattr(download, "SECONDS_BETWEEN_LOOKS", 60)
    monkeypatch.setattr(download, "SECONDS_IN_ALL", 0.3)
    with pytest.raises(FetchError, match="not whole after"):
        fetch_corpus(tmp_path, url=site.address + LINK, pages=pages)
    assert time.monotonic() - began < 10


def test_a_server_whose_answer_never_begins_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "SECONDS_OF_SILENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                for letter in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200:
                    connection.send(bytes([letter]))
                    time.sleep(0.05)

        Thread(target=drip, daemon=True).start()
        page = f"http://127.0.0.1:{server.getsockname()[1]}/item"
        with pytest.raises(FetchError, match="no answer within"):
            fetch_corpus(tmp_path, pages={"5.0": page})


def test_more_than_a_page_or_a_corpus_can_be_is_not_taken(site, tmp_path, monkeypatch):
    pages = serve_item(site, archive(ROOT))
    monkeypatch.setattr(download, "ARCHIVE_BYTES", 100)
    with pytest.raises(FetchError, match="are announced; a release has far less"):
        fetch_corpus(tmp_path, pages=pages)
    assert len(site.asked) == 2 and not list(tmp_path.glob("*.partial*"))
    monkeypatch.setattr(download, "PAGE_BYTES", 10)
    with pytest.raises(FetchError, match="more than 0 MB arrive"):
        fetch_corpus(tmp_path, pages=pages)


def test_a_login_in_the_address_and_a_place_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(FetchError, match="holds a login") as caught:
        fetch_corpus(tmp_path, url="https://me:secret@localhost/x.tgz")
    assert "secret" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match=r"cannot be used .*--data-root"):
        fetch_corpus(tmp_path / "file")
