"""Affiliation at a date: the edge cases of the specification by their numbers, and properties."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.corpus import read_corpus
from parliabench_utils.corpus.people import Affiliation, Person, affiliation_at, explain_affiliation, is_government, read_date
from tests.corpus.corpus_files import debate, u


def member(ref, start=None, end=None, **more):
    return Affiliation(ref, "member", start, end, **more)


def at(affiliations, day):
    found, n, rule = explain_affiliation(affiliations, date.fromisoformat(day))
    return (found.ref if found else None), n, rule


def test_case_1_two_open_spells_the_latest_from_wins():
    old, new = member("CON", "2005-05-05"), member("NA", "2019-09-05")
    assert at([new, old], "2020-01-01") == ("NA", 2, "latest-from")


def test_case_1_opened_the_same_day_the_later_in_the_document_wins():
    assert at([member("CON", "2019-01-01"), member("NA", "2019-01-01")], "2019-01-01") == ("NA", 2, "later-in-document")


def test_case_2_handover_on_one_day_belongs_to_the_new_party():
    spells = [member("CON", "2017-06-08", "2019-09-03"), member("I", "2019-09-03")]
    assert at(spells, "2019-09-02") == ("CON", 1, "only")
    assert at(spells, "2019-09-03") == ("I", 2, "latest-from")
    assert at(spells, "2019-09-04") == ("I", 1, "only")


def test_case_3_a_gap_has_no_party():
    spells = [member("LAB", "2010-05-06", "2015-03-30"), member("LAB", "2015-05-07", "2017-05-03")]
    assert at(spells, "2015-04-10") == (None, 0, "none")


def test_case_4_overlaps_of_one_party_are_one_candidate_and_a_day_can_be_a_spell():
    assert at([member("LAB", "2010-01-01"), member("LAB", "2012-01-01", "2014-01-01")], "2013-01-01") == (
        "LAB",
        1,
        "only",
    )
    assert at([member("LAB", "2013-01-01", "2013-01-01")], "2013-01-01") == ("LAB", 1, "only")


def test_case_4_a_spell_that_ends_before_it_starts_never_holds():
    assert at([member("LAB", "2014-01-01", "2013-01-01")], "2013-06-01") == (None, 0, "none")


def test_case_5_nobody_belongs_nowhere():
    assert affiliation_at([], date(2020, 1, 1)) is None


def test_case_6_and_10_houses_categories_and_government_are_no_parties():
    spells = [
        member("parla.lower", org_role=""),
        member("parliament.HC", org_role="parliament"),
        member("GoGB", org_role="government"),
    ]
    assert at(spells, "2020-01-01") == (None, 0, "none")


def test_case_7_a_closed_party_is_closed_though_the_house_is_left_open():
    spells = [member("BI", "2009-01-01", "2019-08-31"), member("parliament.HL", "2009-01-01", org_role="parliament")]
    assert at(spells, "2019-09-01") == (None, 0, "none")


def test_case_8_a_minister_without_a_reference_is_in_government_and_in_no_party():
    office = Affiliation(None, "minister", "2019-01-01", "2019-12-31", "")
    assert is_government([office], date(2019, 12, 31))
    assert not is_government([office], date(2020, 1, 1))
    assert affiliation_at([office], date(2019, 6, 1)) is None


@pytest.mark.parametrize("role", ["head", "deputyHead", "president"])
def test_who_heads_a_group_belongs_to_it(role):
    head = Affiliation("PG.A", role, "2019-01-01", None, "parliamentaryGroup")
    assert at([head], "2020-01-01") == ("PG.A", 1, "only")
    assert at([member("PG.A", "2015-01-01", org_role="parliamentaryGroup"), head], "2020-01-01") == ("PG.A", 1, "only")
    assert at([member("PG.B", "2015-01-01", "2018-12-31", org_role="parliamentaryGroup"), head], "2020-01-01")[0] == "PG.A"
    assert at([Affiliation("Committee", role, None, None, "committee")], "2020-01-01") == (None, 0, "none")
    assert at([Affiliation("Parliament", role, None, None, "parliament")], "2020-01-01") == (None, 0, "none")


def test_beside_a_group_a_party_outside_it_does_not_count_whichever_started_later():
    group = member("PG.A", "2018-05-08", org_role="parliamentaryGroup")
    for party in (member("A", "2010-01-01"), member("A", "2018-05-08"), Affiliation("A", "head", "2020-01-01")):
        for spells in ([group, party], [party, group]):
            found, n, _ = at(spells, "2021-01-01")
            assert (found, n) == ("PG.A", 2)
    assert at([group, member("A", "2020-01-01")], "2021-01-01")[2] == "group"
    assert at([group, member("A", "2020-01-01")], "2017-01-01") == (None, 0, "none")


def test_a_speakers_spell_left_open_does_not_outlast_the_party_taken_up_later(corpus):
    again = HARD_PEOPLE.replace(
        '<affiliation role="member" ref="#party.S" from="2009-06-22"/>',
        '<affiliation role="member" ref="#party.S" from="2009-06-22"/><affiliation role="head" ref="#party.CON" from="2018"/>',
    )
    frame = read_corpus(corpus({LORDS: debate(u(1, "I disagree.", who="Twin2"))}, people=again))
    assert frame.loc[0, ["party_code", "affiliation_rule"]].tolist() == ["CON", "latest-from"]


def test_case_9_the_speaker_is_an_affiliation_of_its_own():
    spells = [member("LAB", "1997-05-01"), member("S", "2019-11-04", org_role="parliamentaryGroup")]
    assert at(spells, "2022-10-12")[0] == "S"


LORDS = "ParlaMint-GB_2019-03-05-lords"
HARD_PEOPLE = """
<listOrg>
  <org xml:id="PoGB" role="parliament"><orgName full="yes">Parliament</orgName></org>
  <org xml:id="#party.CON" role="politicalParty"><orgName full="yes">Conservative</orgName><orgName full="init">CON</orgName></org>
  <org xml:id="party.S" role="parliamentaryGroup"><orgName full="yes">Speaker</orgName><orgName full="abb">S</orgName></org>
</listOrg>
<listPerson>
  <person xml:id="Peer"><persName><forename>P</forename><surname>Eer</surname></persName><sex value="M">Male</sex>
    <affiliation role="MP" ref="#parla.lower" from="2001-01-01"/>
    <affiliation role="member" ref="#party.CON" from="2001-01-01"/></person>
  <person xml:id="Office"><persName><surname>Office</surname></persName>
    <affiliation role="minister" from="2018-07-09" to="2019-07-24"><orgName>Minister of Buses</orgName></affiliation></person>
  <person xml:id="Old"><persName><surname>Old</surname></persName>
    <affiliation role="minister" ref="#PoGB" from="2019-01-01" to="2019-12-31"/></person>
  <person xml:id="Twin"><persName><surname>Twin</surname></persName></person>
  <person xml:id="Twin2"><persName><surname>Twin</surname></persName>
    <affiliation role="member" ref="#party.CON" from="2001-01-01"/>
    <affiliation role="member" ref="#party.S" from="2009-06-22"/></person>
</listPerson>
"""


@pytest.fixture
def hard(corpus):
    """One utterance each of people who are hard to place, in a sitting of the Lords; by speaker."""
    names = ["Peer", "Office", "Old", "Twin", "Twin2", "Nobody", None]
    body = debate(*(u(n, f"I disagree, {n}.", who=name) for n, name in enumerate(names)))
    frame = read_corpus(corpus({LORDS: body}, people=HARD_PEOPLE))
    return {name: row for name, (_, row) in zip(names, frame.iterrows(), strict=True)}


def test_case_5_an_empty_twin_has_no_party_and_the_real_one_has(hard):
    assert hard["Twin"]["affiliation_rule"] == "none" and hard["Twin2"]["affiliation_rule"] == "latest-from"
    assert hard["Twin2"]["party_code"] == "S" and hard["Twin2"]["n_candidate_parties"] == 2


def test_case_6_a_peer_listed_in_the_lower_house_speaks_in_the_upper(hard):
    assert hard["Peer"]["house"] == "House of Lords"


def test_case_8_ministers_of_2x_with_and_without_a_reference(hard):
    assert hard["Office"]["is_government"] and hard["Old"]["is_government"] and not hard["Peer"]["is_government"]


def test_case_9_the_speaker_is_a_parliamentary_group(hard):
    assert (hard["Twin2"]["party"], hard["Twin2"]["orientation"]) == ("Speaker", "Unknown")


def test_case_10_ids_with_a_hash_and_references_to_categories(hard):
    assert (hard["Peer"]["party_code"], hard["Peer"]["n_candidate_parties"]) == ("CON", 1)


def test_case_11_a_speaker_whom_nobody_is_and_no_speaker(hard):
    assert [hard[name]["affiliation_rule"] for name in ("Nobody", None)] == ["unknown speaker", "no speaker"]
    assert hard["Nobody"]["speaker_id"] == "Nobody" and isinstance(hard["Nobody"]["party"], float)


def test_open_bounds_always_hold():
    assert at([member("LAB")], "1900-01-01") == ("LAB", 1, "only")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2019", date(2019, 1, 1)),
        ("2019-03", date(2019, 3, 1)),
        ("2019-03-05T10:00:00", date(2019, 3, 5)),
        (None, None),
    ],
)
def test_dates_are_read_as_upstream_reads_them(text, expected):
    assert read_date(text) == expected


def test_a_year_as_an_end_ends_on_its_first_day():
    assert at([member("LAB", "2010", "2012")], "2012-01-02") == (None, 0, "none")


def test_a_wrong_date_is_named():
    with pytest.raises(ValueError, match="2019-13-01"):
        member("LAB", "2019-13-01")


dates = st.dates(date(2010, 1, 1), date(2012, 12, 31))
affiliations = st.lists(st.builds(member, st.sampled_from(["A", "B", "C"]), st.none() | dates, st.none() | dates), max_size=6)


@settings(deadline=None)
@given(affiliations, dates)
def test_the_winner_holds_on_the_day_and_none_started_later(items, day):
    found, n, rule = explain_affiliation(items, day)
    holding = [item for item in items if item.covers(day)]
    assert (found is None) == (not holding) == (n == 0) == (rule == "none")
    if found:
        assert found in holding
        assert all((item.start or date.min) <= (found.start or date.min) for item in holding)
        assert n == len({item.ref for item in holding})


@settings(deadline=None)
@given(affiliations, dates)
def test_order_matters_only_where_the_rule_says_so(items, day):
    forward, backward = explain_affiliation(items, day), explain_affiliation(items[::-1], day)
    if forward[2] != "later-in-document":
        assert (forward[0] and forward[0].ref) == (backward[0] and backward[0].ref)


@settings(deadline=None)
@given(affiliations, dates)
def test_the_answer_changes_only_where_a_spell_begins_or_ends(items, day):
    edges = {item.start for item in items} | {item.end for item in items if item.end}
    after = day + timedelta(days=1)
    if after not in edges and day not in {item.end for item in items}:
        assert affiliation_at(items, day) == affiliation_at(items, after)


@settings(deadline=None)
@given(affiliations, dates)
def test_a_person_answers_as_the_rule_does(items, day):
    office = member("GoGB", "2011-01-01", "2011-12-31", org_role="government")
    person = Person("A", "A", None, (*items, office))
    assert person.on(day) == (*explain_affiliation(items, day), is_government([office], day))
    assert (person.on(day)[0] is None) == (affiliation_at(items, day) is None)
