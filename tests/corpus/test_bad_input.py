"""Files that cannot be read as they stand: one clear message each, with file and line, or the file is set aside."""

import logging
import time

import pytest

from parliabench_utils.corpus import CorpusError, read_corpus
from parliabench_utils.run.record import read_manifest
from parliabench_utils.run.runner import StageFailed, run_notebook
from tests.corpus.corpus_files import PEOPLE, debate, root_xml, sitting_xml, u

DAY = "ParlaMint-GB_2019-03-05-commons"
LORDS = "ParlaMint-GB_2019-03-05-lords"
BOMB = "".join(f'\n<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
BOMB = f'<!DOCTYPE TEI [<!ENTITY e0 "ha">{BOMB}]>'
EXTERNAL = '\n<!DOCTYPE TEI [<!ENTITY x SYSTEM "file:///etc/hostname">]>'


def with_doctype(doctype, text):
    return sitting_xml(debate(u(1, text))).replace("?>\n", f"?>{doctype}\n", 1)


def latin_1(text):
    return sitting_xml(debate(u(1, text))).encode("latin-1")


GOOD = debate(u(9, "My Lords, I agree."))
BAD_FILES = {
    "broken XML": (debate(u(1, "Well."), "\n<u>"), r":3: not well-formed XML \(Opening and ending tag mismatch: u"),
    "cut off": (sitting_xml(debate(u(1, "Well.")))[:-30], r":2: not well-formed XML"),
    "half a tag": (b"<TEI", r":1: not well-formed XML"),
    "empty file": (b"\n", r": is empty; unpack the archive again"),
    "annotated": (debate(u(1, "\n<s><w>Well</w><pc>.</pc></s>")), r":3: is linguistically annotated .* without “.ana”"),
    "no speech": ("<TEI/>", r":1: expected a TEI element"),
    "wrong encoding": (latin_1("é"), r":2: wrong encoding; save the file as UTF-8"),
    "unknown encoding": (latin_1("e").replace(b"UTF-8", b"martian"), r":1: wrong encoding"),
    "entity bomb": (with_doctype(BOMB, "&e11;"), r":\d+: (has a document type declaration|entities are refused)"),
    "entity bomb in an attribute": (
        with_doctype(BOMB, "x").replace('ana="#regular"', 'ana="&e11;"'),
        r":\d+: (has a document type declaration|entities are refused)",
    ),
    "external entity": (with_doctype(EXTERNAL, "&x;"), r":2: has a document type declaration"),
    "xml:id twice": (debate(u(1, "One."), "\n", u(1, "Two.")), r":3: an xml:id occurs twice \(ID u1 already defined\)"),
    "xml:id in two files": (debate("\n", u(9, "One.")), r":3: xml:id 'u9' occurs in an earlier file too"),
    "no xml:id": (debate("\n<u><seg>One.</seg></u>"), r":3: an utterance has no xml:id"),
    "no body": (sitting_xml("").replace("body", "front"), r":2: has no text/body"),
    "no date": (sitting_xml(GOOD, day="2019-02-30"), r":2: '2019-02-30' is not a date"),
}


@pytest.fixture
def corpus_with(tmp_path):
    """A function that writes a good sitting of the Lords and a bad one of the Commons, and returns their folder."""

    def write(bad) -> object:
        text = bad if isinstance(bad, bytes) or "<TEI" in bad else sitting_xml(bad)
        (tmp_path / f"{DAY}.xml").write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / f"{LORDS}.xml").write_text(sitting_xml(GOOD, LORDS))
        (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([f"{LORDS}.xml", f"{DAY}.xml"]))
        return tmp_path

    return write


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_named_with_its_line_or_set_aside(corpus_with, case):
    content, message = BAD_FILES[case]
    folder = corpus_with(content)
    began = time.monotonic()
    with pytest.raises(CorpusError, match=f"{DAY}.xml{message}") as caught:
        read_corpus(folder)
    assert "\n" not in str(caught.value)
    frame = read_corpus(folder, on_error="quarantine")
    assert time.monotonic() - began < 5  # an entity bomb would not end
    assert frame["speech_id"].tolist() == ["u9"]
    (row,) = frame.attrs["dropped"]
    assert (row["id"], row["rule"], row["text"]) == (f"{DAY}.xml", "unreadable file", str(caught.value))


def test_a_worker_process_hands_the_message_on(corpus_with):
    folder = corpus_with(BAD_FILES["broken XML"][0])
    with pytest.raises(CorpusError, match=f"{DAY}.xml:3: not well-formed"):
        read_corpus(folder, workers=2)


def test_two_files_of_one_house_and_day(corpus):
    folder = corpus({DAY: debate(u(1, "One.")), "ParlaMint-GB_2019-03-05-x-commons": debate(u(2, "Two."))})
    with pytest.raises(CorpusError, match=rf"x-commons.xml:2: same house and day as {DAY}.xml; remove one"):
        read_corpus(folder)
    assert read_corpus(folder, on_error="quarantine")["speech_id"].tolist() == ["u1"]


def test_a_speaker_whom_no_list_knows_is_reported_with_the_line(corpus, caplog):
    folder = corpus({DAY: debate("\n", u(1, "One.", who="Nobody"), u(2, "Two.", who=None))})
    with caplog.at_level(logging.WARNING):
        frame = read_corpus(folder)
    assert frame.attrs["unlisted"] == [f"{DAY}.xml:3: who='#Nobody' is nobody in the corpus's lists"]
    assert frame["affiliation_rule"].tolist() == ["unknown speaker", "no speaker"]
    assert len(caplog.messages) == 1 and f"{DAY}.xml:3" in caplog.text


def test_a_day_file_that_the_root_does_not_list_is_named(corpus, caplog):
    folder = corpus({DAY: debate(u(1, "One."))})
    stray = DAY.replace("05", "06") + ".xml"
    (folder / stray).write_text((folder / f"{DAY}.xml").read_text())
    with caplog.at_level(logging.WARNING):
        frame = read_corpus(folder)
    assert frame["speech_id"].tolist() == ["u1"]
    assert frame.attrs["not_listed"] == [stray]
    assert f"not read; the first: {stray}" in caplog.text


@pytest.mark.parametrize(
    ("href", "message"),
    [
        ("../outside.xml", "leads outside"),
        ("%2e%2e/outside.xml", "leads outside"),
        ("/etc/passwd", "leads outside"),
        ("file:///etc/passwd", "not a file of the corpus"),
        ("http://localhost/day.xml", "not a file of the corpus"),
        ("missing.xml", "does not exist"),
    ],
)
def test_includes_stay_in_the_folder(tmp_path, href, message):
    (tmp_path / "outside.xml").write_text("<TEI/>")
    folder = tmp_path / "corpus"
    folder.mkdir()
    line = PEOPLE.count("\n") + 1
    (folder / "ParlaMint-GB.xml").write_text(root_xml([href]))
    with pytest.raises(CorpusError, match=rf"ParlaMint-GB.xml:{line}: include .* {message}"):
        read_corpus(folder)
    frame = read_corpus(folder, on_error="quarantine")
    assert (len(frame), [row["id"] for row in frame.attrs["dropped"]]) == (0, [href])


def test_a_missing_list_stops_whatever_is_asked(tmp_path):
    (tmp_path / f"{DAY}.xml").write_text(sitting_xml(GOOD))
    include = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="persons.xml"/>'
    (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([f"{DAY}.xml"], people=include))
    with pytest.raises(CorpusError, match=r"ParlaMint-GB\.xml:1: include 'persons.xml' does not exist"):
        read_corpus(tmp_path, on_error="quarantine")


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "outside.xml").write_text(sitting_xml(""))
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "day.xml").symlink_to(tmp_path / "outside.xml")
    (folder / "ParlaMint-GB.xml").write_text(root_xml(["day.xml"]))
    with pytest.raises(CorpusError, match="leads outside"):
        read_corpus(folder)


def test_what_is_no_corpus_says_what_to_do(tmp_path):
    with pytest.raises(CorpusError, match="does not exist"):
        read_corpus(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match="holds no XML"):
        read_corpus(tmp_path)
    (tmp_path / "c.tgz").write_bytes(b"")
    with pytest.raises(CorpusError, match="unpack it"):
        read_corpus(tmp_path / "c.tgz")
    (tmp_path / "a.xml").write_text("<TEI/>")
    with pytest.raises(CorpusError, match="no corpus root"):
        read_corpus(tmp_path)
    with pytest.raises(ValueError, match="on_error"):
        read_corpus(tmp_path, on_error="ignore")


def test_the_runner_refuses_what_is_no_corpus_before_a_kernel_starts(outputs, tmp_path):
    archive = tmp_path / "ParlaMint-GB.tgz"
    archive.write_bytes(b"")
    for corpus in (archive, tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match="give an unpacked corpus"):
            run_notebook("01_ingest", "demo", {"corpus": str(corpus)})


def test_the_runner_names_the_file_and_line_or_sets_the_file_aside(outputs, corpus_with):
    folder = corpus_with(BAD_FILES["broken XML"][0])
    with pytest.raises(StageFailed, match=rf"CorpusError: .*{DAY}.xml:3: not well-formed XML"):
        run_notebook("01_ingest", "demo", {"corpus": str(folder)})
    lords = sitting_xml(debate(u(9, "My Lords, the caf\ufffd is shut.")), LORDS)
    (folder / f"{LORDS}.xml").write_text(lords, encoding="utf-8")
    run_notebook("01_ingest", "demo", {"corpus": str(folder), "on_error": "quarantine"})
    notes = read_manifest(outputs / "demo", "01_ingest")["notes"]
    assert notes["dropped"] == {"unreadable file": 1}
    assert len(notes["files_set_aside"]) == 1 and f"{DAY}.xml:3:" in notes["files_set_aside"][0]
    assert f"{DAY}.xml,unreadable file" in (outputs / "demo/01_ingest/dropped.csv").read_text()
    assert notes["utterances_with_lost_characters"] == ["u9"]
    assert "WARNING: 1 utterances with a lost character (U+FFFD) u9" in (outputs / "demo/notebooks/01_ingest.log").read_text(
        encoding="utf-8"
    )
    assert "1 file set aside" in (outputs / "demo/notebooks/01_ingest.log").read_text()


def test_a_day_in_another_folder_than_the_root_says_is_found_and_told(corpus, caplog):
    folder = corpus({DAY: debate(u(1, "One.")), LORDS: debate(u(2, "Two."))})
    for year in ("2019", "2020"):
        (folder / year).mkdir()
    (folder / f"{DAY}.xml").rename(folder / f"2019/{DAY}.xml")
    (folder / f"{LORDS}.xml").rename(folder / f"2020/{LORDS.upper()}.XML")
    (folder / f"2020/{DAY.replace('05', '06')}.xml").write_text(sitting_xml(debate(u(3, "Three."))))
    with caplog.at_level(logging.WARNING):
        frame = read_corpus(folder)
    assert frame["speech_id"].tolist() == ["u1", "u2"]
    assert frame.attrs["moved"] == [
        f"{DAY}.xml lies at 2019/{DAY}.xml",
        f"{LORDS}.xml lies at 2020/{LORDS.upper()}.XML",
    ]
    assert frame.attrs["not_listed"] == [f"2020/{DAY.replace('05', '06')}.xml"]
    assert "2 files lie elsewhere" in caplog.text and "not read; the first: 2020/" in caplog.text
    (folder / f"2020/{DAY}.xml").write_text("<TEI/>")
    with pytest.raises(CorpusError, match=rf"does not exist, but 2019/{DAY}.xml, 2020/{DAY}.xml do: keep the right one"):
        read_corpus(folder)


@pytest.mark.parametrize("href", [f"2019%2F{DAY}.xml", f"2019\\{DAY}.xml", f"./2019/{DAY}.xml#x"])
def test_folders_are_read_however_they_are_written(tmp_path, href):
    (tmp_path / "2019").mkdir()
    (tmp_path / f"2019/{DAY}.xml").write_text(sitting_xml(GOOD))
    (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([href]))
    assert len(read_corpus(tmp_path)) == 1


def test_days_that_lie_there_though_the_root_lists_none_are_named(tmp_path):
    (tmp_path / "2019").mkdir()
    (tmp_path / f"2019/{DAY}.xml").write_text(sitting_xml(GOOD))
    (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([]))
    with pytest.raises(CorpusError, match=rf"lists no sitting files, though 1 lie there \(2019/{DAY}.xml .* xi:include"):
        read_corpus(tmp_path)


def annotated(folder, root="ParlaMint-GB.ana.xml"):
    (folder / f"{DAY}.ana.xml").write_text(sitting_xml(debate(u(1, "<s><w>Yes</w><pc>.</pc></s>"))))
    (folder / root).write_text(root_xml([f"{DAY}.ana.xml"]))
    return folder


def test_annotated_corpora_are_named_for_what_they_are(tmp_path):
    for target in (annotated(tmp_path), tmp_path / "ParlaMint-GB.ana.xml"):
        with pytest.raises(CorpusError, match=r"annotated .*without “.ana”"):
            read_corpus(target)
    (tmp_path / f"{DAY}.xml").write_text(sitting_xml(GOOD))
    with pytest.raises(CorpusError, match=r"read the plain days that lie there too \(.*people='ParlaMint-GB.ana.xml'\)"):
        read_corpus(tmp_path / "ParlaMint-GB.ana.xml")
    assert len(read_corpus(tmp_path, people=tmp_path / "ParlaMint-GB.ana.xml")) == 1
    (tmp_path / "ParlaMint-GB.ana.xml").write_text(root_xml([f"{DAY}.xml"]))
    assert len(read_corpus(tmp_path / "ParlaMint-GB.ana.xml")) == 1


def test_annotated_days_of_a_plain_root_are_told_and_not_read(tmp_path):
    annotated(tmp_path, "ParlaMint-GB.xml")
    (tmp_path / f"{LORDS}.xml").write_text(sitting_xml(GOOD, LORDS))
    (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([f"{LORDS}.xml", f"{DAY}.ana.xml"]))
    frame = read_corpus(tmp_path)
    assert frame["speech_id"].tolist() == ["u9"]
    assert [(row["id"], row["rule"]) for row in frame.attrs["dropped"]] == [(f"{DAY}.ana.xml", "annotated file")]
    (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([f"{DAY}.xml"]))
    with pytest.raises(CorpusError, match=rf"'{DAY}.xml' does not exist, only its annotated form {DAY}.ana.xml"):
        read_corpus(tmp_path)


def test_a_folder_with_an_archive_or_an_empty_root_says_so(tmp_path):
    (tmp_path / "ParlaMint-GB.TGZ").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"holds no XML files, but the archive ParlaMint-GB.TGZ: unpack it"):
        read_corpus(tmp_path)
    (tmp_path / "ParlaMint-GB.xml").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"ParlaMint-GB.xml is empty; unpack the archive again"):
        read_corpus(tmp_path)
