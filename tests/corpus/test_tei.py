"""What read_corpus makes of TEI: text, questions, topics, house, the layouts of the releases."""

import pytest

from parliabench_utils.corpus import CorpusError, read_corpus
from parliabench_utils.corpus.tei import COLUMNS
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
    frame = read(corpus, u(1, f"{ask} My Lords, buses matter. {'They do. ' * 20}"), u(2, "None.", who="Ben"), name=LORDS)
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
    (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([f"2019/{DAY}.xml", "ParlaMint-GB.xml", "x.ana.xml"], people=include))
    (tmp_path / "x.ana.xml").write_text("<TEI/>")
    assert read_corpus(tmp_path)["party"].tolist() == ["Conservative"]
    assert read_corpus(tmp_path / "ParlaMint-GB.xml")["party"].tolist() == ["Conservative"]


def test_processes_do_not_change_rows_or_their_order(corpus):
    days = {f"ParlaMint-GB_2019-03-{day:02d}-commons": debate(u(day, f"Day {day} it is.")) for day in range(1, 9)}
    folder = corpus(days)
    one, two = read_corpus(folder), read_corpus(folder, workers=2)
    assert one.equals(two) and one["order"].tolist() == [0] * 8


def said(corpus, inner):
    return read(corpus, f'<u xml:id="a" who="#Ada" ana="#regular">{inner}</u>').loc[0, "text"]


STANDS_BETWEEN = (
    "<kinesic/>",
    "<vocal><desc>No!</desc></vocal>",
    "<incident/>",
    "<note>time</note>",
    "<gap/>",
    "<time>10:10</time>",
    "<pb/>",
)


@pytest.mark.parametrize("cut", STANDS_BETWEEN)
def test_no_full_stop_goes_into_a_sentence_that_something_cuts(corpus, cut):
    assert said(corpus, f"<seg>I thank</seg>{cut}<seg>Ben Sample</seg>") == "I thank Ben Sample"
    assert said(corpus, f"<seg>All is well.</seg>{cut}<seg>Good.</seg>") == "All is well. Good."
    assert said(corpus, f"<seg>These are</seg>{cut}<seg>, I say,</seg>{cut}<seg>cuts</seg>") == "These are, I say, cuts"


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        ("Two", "One. Two"),
        ("“Two”", "One. “Two”"),
        ("2 is next", "One. 2 is next"),
        ("two", "One two"),
        ("“two”", "One “two”"),
        ("– two", "One – two"),
        ("; two", "One; two"),
        ("… and two", "One … and two"),
        ("...and two", "One ...and two"),
    ],
)
def test_between_paragraphs_a_stop_is_put_back_unless_the_sentence_goes_on(corpus, second, joined):
    assert said(corpus, f"<seg>One</seg><seg>{second}</seg>") == joined


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("<seg>unaccep<pb n='2'/>table</seg>", "unacceptable"),
        ("<seg>unaccept-\n<pb n='2'/>\nable</seg>", "unacceptable"),
        ("<seg>unaccept-</seg><pb/><seg>able</seg>", "unacceptable"),
        ("<seg>unaccep <pb break='no'/> table</seg>", "unacceptable"),
        ("<seg>one <pb/> page</seg>", "one page"),
        ("<seg>A <note>see <pb/> there<note>x</note></note>word</seg>", "A word"),
        ("Loose <seg>and held</seg> and loose.", "Loose and held and loose."),
    ],
)
def test_words_that_a_page_cuts_are_whole_and_none_is_lost(corpus, inner, text):
    assert said(corpus, inner) == text


def test_a_chair_is_procedure_in_every_parliament_whatever_else_they_are(corpus):
    marks = ("#chair", "#chair #regular", "#regular #chair", "#guest #chair topic:healt", "#guest", "#regular")
    body = debate(*(u(n, "I call the next speaker, who has five minutes.", ana=mark) for n, mark in enumerate(marks)))
    frame = read_corpus(corpus({"ParlaMint-XX_2019-03-05": body}, identity="ParlaMint-XX"))
    assert frame["role"].tolist() == ["chair"] * 4 + ["guest", "regular"]
    assert frame["kind"].tolist() == ["procedural"] * 4 + ["speech"] * 2


def test_what_several_people_said_at_once_is_nobodys(corpus):
    body = debate(
        '<u xml:id="a" who="#Ada #Ben"><seg>We both say so.</seg></u>',
        '<u xml:id="b" who="#Ada #Ada"><seg>I say so.</seg></u>',
        '<u xml:id="c" who="persons.xml#Ada"><seg>I say so.</seg></u>',
        '<u xml:id="d" who=""><seg>Who says so?</seg></u>',
        '<u xml:id="e" who="#Ada #Nobody"><seg>Who says so?</seg></u>',
    )
    frame = read_corpus(corpus({DAY: body}))
    assert frame["affiliation_rule"].tolist() == ["several speakers", "only", "only", "no speaker", "unknown speaker"]
    assert frame["party_code"].fillna("").tolist() == ["", "CON", "CON", "", ""]
    assert (frame.loc[0, "speaker_id"], frame.loc[0, "speaker_name"]) == ("Ada Ben", "Ada Example; Ben Sample")
    assert len(frame.attrs["unlisted"]) == 1 and "#Nobody" in frame.attrs["unlisted"][0]


def orientation_of(corpus, states, day="2019-03-05", spells='<affiliation role="member" ref="#P"/>'):
    people = f"""<listOrg><org xml:id="P" role="politicalParty"><orgName full="abb">P</orgName>{states}</org>
      <org xml:id="G" role="parliamentaryGroup"><orgName full="abb">G</orgName></org></listOrg>
      <listPerson><person xml:id="Ada"><persName><surname>A</surname></persName>{spells}</person></listPerson>"""
    name = f"ParlaMint-XX_{day}"
    return read_corpus(corpus({name: debate(u(1, "Yes."))}, people=people, identity="ParlaMint-XX")).loc[0, "orientation"]


def state(ana, of="", inner="", dates=""):
    return f'<state type="{of or "politicalOrientation"}" ana="#orientation.{ana}" {dates}>{inner}</state>'


def test_where_an_orientation_stands_and_which_of_several_holds(corpus):
    nested = f'<state type="politicalOrientation">{state("L", "encoder")}{state("R", "Wikipedia")}</state>'
    assert orientation_of(corpus, state("CR")) == "Centre-right"
    assert orientation_of(corpus, nested) == "Right"
    assert orientation_of(corpus, state("CL") + nested) == "Right"
    dated = state("L", dates='to="2018-12-31"') + state("C", dates='from="2019-01-01" to="2019-12-31"')
    dated += state("R", dates='from="2020"')
    assert [orientation_of(corpus, dated, day) for day in ("2018-03-05", "2019-03-05", "2021-03-05")] == [
        "Left",
        "Centre",
        "Right",
    ]
    assert orientation_of(corpus, state("R", dates='from="2020"')) == "Unknown"  # another time's is never borrowed
    old = f'<state type="politicalOrientation" to="2018">{state("R", "Wikipedia")}</state>'
    assert orientation_of(corpus, old + state("CL")) == "Centre-left"


def test_a_group_without_an_orientation_has_that_of_its_members_party(corpus):
    both = '<affiliation role="member" ref="#P"/><affiliation role="member" ref="#G" from="2015"/>'
    assert orientation_of(corpus, state("CR"), spells=both) == "Centre-right"


def test_a_wrong_date_of_an_orientation_and_an_organisation_listed_twice_are_named(corpus, tmp_path):
    with pytest.raises(CorpusError, match=r"ParlaMint-GB.xml:1: '2019-13' is not a date"):
        orientation_of(corpus, state("L", dates='from="2019-13"'))
    twice = '<org xml:id="Q" role="politicalParty"><orgName full="abb">{}</orgName></org>'
    lists = f"<listOrg {TEI}>{twice.format('B')}</listOrg>"
    (tmp_path / "orgs.xml").write_text(lists)
    people = PEOPLE.replace("</listOrg>", twice.format("A") + f'</listOrg><xi:include {XI} href="orgs.xml"/>')
    with pytest.raises(CorpusError, match=r"orgs.xml:1: organisation 'Q' is listed twice, differently"):
        read_corpus(corpus({DAY: debate(u(1, "Yes."))}, people=people))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_declared_encodings_and_windows_line_ends_are_read(tmp_path, encoding):
    from parliabench_utils.corpus.overview import count_utterances

    declared = {"utf-8-sig": "UTF-8"}.get(encoding, encoding.upper())
    day = sitting_xml(debate("<u\r\n xml:id='a' who='#Ada'><seg>Café\r\nau lait</seg></u>")).replace('"UTF-8"', f'"{declared}"')
    root = f'<?xml version="1.0" encoding="{declared}"?>\r\n{root_xml([f"{DAY}.xml"])}'
    (tmp_path / f"{DAY}.xml").write_bytes(day.encode(encoding))
    (tmp_path / "ParlaMint-GB.xml").write_bytes(root.encode(encoding))
    assert read_corpus(tmp_path)["text"].tolist() == ["Café au lait"]
    assert count_utterances([tmp_path / f"{DAY}.xml"]) == 1
