"""What read_corpus makes of TEI: text, questions, topics, house, the layouts of the releases."""

from parliabench_utils.corpus import read_corpus
from parliabench_utils.corpus.sittings import COLUMNS
from tests.corpus.corpus_files import PEOPLE, TEI, XI, debate, root_xml, sitting_xml, u

DAY = "ParlaMint-GB_2019-03-05-commons"
LORDS = "ParlaMint-GB_2019-03-05-lords"


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
    assert read(corpus, u(1, "Resign<vocal><desc>No!</desc></vocal>, I say.")).loc[0, "text"] == "Resign, I say."


def test_text_without_segments_nested_divs_and_comments_are_tolerated(corpus):
    inner = '<div><u xml:id="a" ana="#guest">Bare <!-- c --> text.</u></div>'
    row = read(corpus, inner).iloc[0]
    assert (row["text"], row["section"], row["role"]) == ("Bare text.", "Rural Buses", "guest")
    nested = read(corpus, "<div><head>Lanes</head>", u(1, "One."), "</div>", u(2, "Two."))
    assert nested["section"].tolist() == ["Lanes", "Rural Buses"]


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


def test_in_a_debate_of_the_lords_the_government_answers_and_not_the_next_speaker(corpus):
    ask = "To ask Her Majesty’s Government what plans they have."
    opening = u(2, "My Lords, buses matter. " + "They do. " * 60)
    taking_part = u(3, "My Lords, I congratulate my noble friend.", who="Zed")
    frame = read(corpus, u(1, ask), opening, taking_part, u(4, "We have plans.", who="Ben"), name=LORDS)
    assert frame["answers"].tolist() == [[], [], [], ["u1"]]
    asked_shortly = u(2, "My Lords, I beg leave to ask it, and declare an interest.")
    frame = read(corpus, u(1, ask), asked_shortly, u(3, "We have plans.", who="Zed"), name=LORDS)
    assert frame["answers"].tolist() == [[], [], ["u1"]]


def test_a_ministers_no_is_the_answer_though_no_speech(corpus):
    frame = read(corpus, u(1, "T2. Will he resign?"), u(2, "No.", who="Ben"), u(3, "May I ask again?", who="Zed"))
    assert frame["kind"].tolist() == ["question", "procedural", "speech"] and not frame["answers"].str.len().any()


def test_an_urgent_question(corpus):
    frame = read(corpus, u(1, "(Urgent Question): To ask him to resign."), u(2, "No, I shall stay on.", who="Ben"))
    assert (frame.loc[0, "kind"], frame.loc[1, "prompts"]) == ("urgent", ["To ask him to resign."])


def test_the_house_is_the_sittings(corpus):
    meeting = '<meeting corresp="#parliament.HC" ana="#parla.upper #parla.sitting"/>'
    frame = read_corpus(corpus({DAY: sitting_xml(debate(u(1, "My Lords, yes it is.")), DAY, meeting=meeting)}))
    assert frame.loc[0, "house"] == "House of Lords"


def test_the_date_is_the_settings_then_the_sources_then_the_file_names(corpus):
    def with_dates(source, setting):
        source = f'<sourceDesc><bibl>{source and f"""<date when="{source}"/>"""}</bibl></sourceDesc>'
        text = sitting_xml(debate(u(1, "I disagree.")), DAY, day=setting or "2001-01-01", meeting="")
        text = text.replace("<titleStmt>", '<publicationStmt><date when="2023-01-01"/></publicationStmt><titleStmt>')
        text = text.replace("</fileDesc>", f"{source}</fileDesc>")
        return text if setting else text.replace('<date when="2001-01-01"/>', "")

    for source, setting, expected in [
        ("2019-03-04", "2019-03-06", "2019-03-06"),
        ("2019-03-04", "", "2019-03-04"),
        ("", "", "2019-03-05"),
    ]:
        assert str(read_corpus(corpus({DAY: with_dates(source, setting)})).loc[0, "date"].date()) == expected


def test_another_parliament_has_its_own_houses_parties_and_days(corpus):
    def sitting(number, side):
        meeting = f'<meeting ana="#parla.{side} #parla.sitting"/>' if side else ""
        body = debate(u(number, "4. What steps? Order. I beg to move."))
        return sitting_xml(body, f"ParlaMint-XX_2019-03-05-{number}", meeting=meeting)

    days = {f"ParlaMint-XX_2019-03-05-{n}": sitting(n, side) for n, side in enumerate(["upper", "lower", "lower", ""])}
    frame = read_corpus(corpus(days, identity="ParlaMint-XX"))
    assert frame["house"].fillna("none").tolist() == ["Upper house", "Lower house", "Lower house", "none"]
    assert (frame["kind"] == "speech").all() and (frame["party"] == "Conservative").all()


def test_topics_of_either_spelling(corpus):
    frame = read(corpus, u(1, "One.", ana="#regular topic:healt"), u(2, "Two.", ana="#topic.odd #guest"))
    assert frame["cap_topic"].tolist() == ["Health", "topic.odd"] and frame["role"].tolist() == ["regular", "guest"]


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


def test_processes_do_not_change_rows_or_their_order(corpus):
    days = {f"ParlaMint-GB_2019-03-{day:02d}-commons": debate(u(day, f"Day {day} it is.")) for day in range(1, 9)}
    folder = corpus(days)
    one, two = read_corpus(folder), read_corpus(folder, workers=2)
    assert one.equals(two) and one["order"].tolist() == [0] * 8
