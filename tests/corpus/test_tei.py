"""What read_corpus makes of TEI: text, questions, topics, house, and its clear refusals."""

import pytest

from parliabench_utils.corpus import CorpusError, read_corpus
from parliabench_utils.corpus.sittings import COLUMNS
from tests.corpus.corpus_files import PEOPLE, TEI, XI, root_xml, sitting_xml

DAY = "ParlaMint-GB_2019-03-05-commons"
LORDS = "ParlaMint-GB_2019-03-05-lords"


def u(number, text, who="Ada", ana="#regular"):
    speaker = f' who="#{who}"' if who else ""
    return f'<u xml:id="u{number}" ana="{ana}"{speaker}><seg>{text}</seg></u>'


def debate(*parts, head="Rural Buses"):
    return f"<div type='debateSection'>{f'<head>{head}</head>' if head else ''}{''.join(parts)}</div>"


def read(corpus, *parts, name=DAY, **more):
    return read_corpus(corpus({name: debate(*parts)}), **more)


def test_a_row_has_the_columns_of_the_contract(corpus):
    row = read(corpus, u(1, "I disagree.", ana="#regular topic:trans")).iloc[0]
    assert list(row.index) == list(COLUMNS)
    expected = {"house": "House of Commons", "section": "Rural Buses", "party": "Conservative", "party_code": "CON"}
    expected |= {
        "orientation": "Centre-right",
        "cap_topic": "Transportation",
        "is_government": True,
        "role": "regular",
        "sex": "F",
    }
    expected |= {"speaker_name": "Ada Example", "kind": "speech", "n_words": 2, "order": 0, "affiliation_rule": "only"}
    assert {key: row[key] for key in expected} == expected
    assert str(row["date"].date()) == "2019-03-05"


def test_the_stripped_full_stop_comes_back_between_segments_only(corpus):
    segments = "".join(f"<seg>{text}</seg>" for text in ("One", "Two?", "He said “three.”", "Four (or so)", "Five"))
    frame = read(corpus, f'<u xml:id="a" ana="#regular">{segments}</u>')
    assert frame.loc[0, "text"] == "One. Two? He said “three.” Four (or so). Five"


def test_what_is_said_about_a_speech_is_not_speech(corpus):
    inner = "Before <note>[noise]</note><vocal><desc>shouting</desc></vocal>after<kinesic><desc>bell</desc></kinesic>"
    body = f'<u xml:id="a" ana="#regular"><note>time</note><seg>{inner}<incident/><gap/> all.</seg><gap><desc>CUT</desc></gap></u>'
    assert read(corpus, body).loc[0, "text"] == "Before after all."


def test_text_without_segments_nested_divs_and_comments_are_tolerated(corpus):
    inner = '<div><u xml:id="a" ana="#guest">Bare <!-- c --> text.</u></div>'
    row = read(corpus, inner).iloc[0]
    assert (row["text"], row["section"], row["role"]) == ("Bare text.", "Rural Buses", "guest")


def test_a_sampling_cut_leaves_no_section_and_no_speaker_leaves_no_party(corpus):
    frame = read_corpus(corpus({DAY: debate(u(1, "Hear hear.", who=None), u(2, "So be it.", who="Nobody"), head=None)}))
    assert frame["section"].isna().all() and frame["party"].isna().all()
    assert frame["affiliation_rule"].tolist() == ["no speaker", "unknown speaker"]
    assert frame["orientation"].tolist() == ["Unknown", "Unknown"]


def test_off_axis_orientation_is_unknown_and_a_year_is_a_date(corpus):
    row = read(corpus, u(1, "I disagree.", who="Ben")).iloc[0]
    assert (row["orientation_code"], row["orientation"], row["party"], row["is_government"]) == (
        "BT",
        "Unknown",
        "Tent",
        True,
    )


def test_an_empty_utterance_is_dropped_with_a_row(corpus):
    frame = read(corpus, u(1, " "), u(2, "Speech it is."))
    assert frame["speech_id"].tolist() == ["u2"]
    assert frame.attrs["dropped"] == [{"id": "u1", "rule": "empty utterance", "text": ""}]


def test_grouped_questions_go_to_their_one_answer(corpus):
    frame = read(
        corpus,
        u(1, "4. What steps he is taking.", who="Ada"),
        u(2, "T7. What steps he is taking. [901234]", who="Zed"),
        u(3, "(a) Whether buses run.", who="Zed"),
        u(4, "I call the Minister.", who="Chair", ana="#chair"),
        u(5, "Many steps are taken.", who="Ben"),
        u(6, "And then?", who="Ada"),
        u(7, "More steps.", who="Ben"),
    )
    assert frame["kind"].tolist() == ["question"] * 3 + ["procedural"] + ["speech"] * 3
    assert frame["answers"].tolist() == [[]] * 4 + [["u1", "u2", "u3"]] + [[]] * 2
    assert frame.loc[4, "prompts"] == ["What steps he is taking.", "Whether buses run."]


def test_a_question_does_not_wait_beyond_its_debate(corpus):
    body = debate(u(1, "4. What steps?")) + debate(u(2, "Something else.", who="Ben"), head="Trains")
    assert read_corpus(corpus({DAY: body}))["answers"].tolist() == [[], []]


def test_lords_questions_private_notice_and_notes(corpus):
    ask = "To ask Her Majesty’s Government what plans they have for buses."
    frame = read(corpus, u(1, ask), u(2, "My Lords, none.", who="Ben"), name=LORDS)
    assert frame["kind"].tolist() == ["question", "speech"] and frame["house"].unique().tolist() == ["House of Lords"]
    noted = read(corpus, "<note>Private Notice Question</note>", u(1, ask), u(2, "None.", who="Ben"), name=LORDS)
    assert noted.loc[0, "kind"] == "urgent"
    printed = read(corpus, f"<note>{ask}</note>", u(1, "My Lords, none at all."), name=LORDS)
    assert (printed.loc[0, "prompts"], printed.loc[0, "answers"]) == ([ask], [])


def test_who_asks_and_speaks_in_one_breath_gives_a_speech(corpus):
    ask = "To ask Her Majesty’s Government what plans they have."
    frame = read(
        corpus, u(1, f"{ask} My Lords, buses matter. {'They do. ' * 20}"), u(2, "None.", who="Ben"), name=LORDS
    )
    assert frame["kind"].tolist() == ["speech", "speech"]
    assert (frame.loc[1, "prompts"], frame.loc[1, "answers"]) == ([ask], ["u1"])


def test_an_urgent_question(corpus):
    frame = read(corpus, u(1, "(Urgent Question): To ask him to resign."), u(2, "No, I shall stay on.", who="Ben"))
    assert (frame.loc[0, "kind"], frame.loc[1, "prompts"]) == ("urgent", ["To ask him to resign."])


def test_the_house_is_the_sittings(corpus):
    meeting = '<meeting corresp="#parliament.HC" ana="#parla.upper #parla.sitting"/>'
    frame = read_corpus(corpus({DAY: sitting_xml(debate(u(1, "My Lords, yes it is.")), DAY, meeting=meeting)}))
    assert frame.loc[0, "house"] == "House of Lords"


def test_lists_in_files_of_their_own_and_year_folders(tmp_path):
    (tmp_path / "lists.xml").write_text(f"<listPerson {TEI}>{PEOPLE}</listPerson>")
    (tmp_path / "2019").mkdir()
    (tmp_path / "2019" / f"{DAY}.xml").write_text(sitting_xml(debate(u(1, "I disagree."))))
    include = f'<xi:include {XI} href="lists.xml"/>'
    (tmp_path / "ParlaMint-GB.xml").write_text(
        root_xml([f"2019/{DAY}.xml", "ParlaMint-GB.xml", "x.ana.xml"], people=include)
    )
    (tmp_path / "x.ana.xml").write_text("<TEI/>")
    assert read_corpus(tmp_path)["party"].tolist() == ["Conservative"]
    assert read_corpus(tmp_path / "ParlaMint-GB.xml")["party"].tolist() == ["Conservative"]


BOMB = '<!DOCTYPE TEI [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
EXTERNAL = '<!DOCTYPE TEI [<!ENTITY x SYSTEM "file:///etc/hostname">]>'


@pytest.mark.parametrize(("doctype", "entity"), [(BOMB, "&c;"), (EXTERNAL, "&x;")])
def test_entities_are_refused(corpus, doctype, entity):
    text = sitting_xml(debate(u(1, entity))).replace("?>", f"?>{doctype}", 1)
    with pytest.raises(CorpusError, match=rf"{DAY}.xml:1: has a document type"):
        read_corpus(corpus({DAY: text}))


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
    (folder / "ParlaMint-GB.xml").write_text(root_xml([href]))
    with pytest.raises(CorpusError, match=rf"ParlaMint-GB.xml:23: include .* {message}"):
        read_corpus(folder)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "outside.xml").write_text(sitting_xml(""))
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "day.xml").symlink_to(tmp_path / "outside.xml")
    (folder / "ParlaMint-GB.xml").write_text(root_xml(["day.xml"]))
    with pytest.raises(CorpusError, match="leads outside"):
        read_corpus(folder)


def test_a_broken_file_is_named_with_its_line_or_set_aside(corpus):
    folder = corpus({DAY: debate(u(1, "Well."), "\n<u>"), LORDS: debate(u(2, "My Lords, I agree."))})
    with pytest.raises(CorpusError, match=rf"{DAY}.xml:3: not well-formed"):
        read_corpus(folder)
    frame = read_corpus(folder, on_error="quarantine")
    assert frame["speech_id"].tolist() == ["u2"]
    assert [(row["id"], row["rule"]) for row in frame.attrs["dropped"]] == [(f"{DAY}.xml", "unreadable file")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (debate(u(1, "One."), u(1, "Two.")), "ID u1 already defined"),
        (debate("<u><seg>One.</seg></u>"), "no xml:id"),
    ],
)
def test_ids_must_be_there_and_once(corpus, body, message):
    with pytest.raises(CorpusError, match=message):
        read_corpus(corpus({DAY: body}))


def test_ids_must_be_unique_across_files(corpus):
    folder = corpus({DAY: debate(u(1, "One.")), LORDS: debate(u(1, "Two."))})
    with pytest.raises(CorpusError, match=f"{LORDS}.xml: utterance id 'u1'"):
        read_corpus(folder)


def test_two_files_of_one_house_and_day(corpus):
    folder = corpus({DAY: debate(u(1, "One.")), "ParlaMint-GB_2019-03-05-x-commons": debate(u(2, "Two."))})
    with pytest.raises(CorpusError, match="same house and day"):
        read_corpus(folder)


def test_wrong_encoding_names_the_file(corpus, tmp_path):
    folder = corpus({DAY: debate(u(1, "One."))})
    (tmp_path / f"{DAY}.xml").write_bytes(sitting_xml(debate(u(1, "é"))).encode("latin-1"))
    with pytest.raises(CorpusError, match=f"{DAY}.xml:2: not well-formed"):
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


def test_processes_do_not_change_rows_or_their_order(corpus):
    days = {f"ParlaMint-GB_2019-03-{day:02d}-commons": debate(u(day, f"Day {day} it is.")) for day in range(1, 9)}
    folder = corpus(days)
    one, two = read_corpus(folder), read_corpus(folder, workers=2)
    assert one.equals(two) and one["order"].tolist() == [0] * 8
