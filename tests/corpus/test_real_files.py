"""The real corpora: counts that were taken from the XML by other means, and a hand-checkable sample."""

from xml.etree import ElementTree

import pytest

from parliabench_utils.corpus import read_corpus
from parliabench_utils.corpus.cleaning import clean_speeches
from parliabench_utils.corpus.dataset import KeepRules, keep_speeches

pytestmark = pytest.mark.shared
TEI = "{http://www.tei-c.org/ns/1.0}"


@pytest.fixture(scope="module")
def days(shared_data):
    return read_corpus(shared_data / "parlamint-gb-2022")


def test_every_utterance_of_the_real_days_is_read(days, shared_data):
    files = sorted((shared_data / "parlamint-gb-2022").glob("ParlaMint-GB_*.xml"))
    ids = [u.get("{http://www.w3.org/XML/1998/namespace}id") for path in files for u in ElementTree.parse(path).iter(f"{TEI}u")]
    assert days["speech_id"].tolist() == ids and len(ids) == 12466
    assert days["sitting_id"].nunique() == 42


def test_nothing_is_lost_between_files_and_data_set(days):
    kept, dropped = keep_speeches(days, KeepRules(min_speeches=1))
    assert sorted([*kept["speech_id"], *dropped["id"]]) == sorted(days["speech_id"])
    clean, noise = clean_speeches(days)
    assert clean["speech_id"].tolist() == days["speech_id"].tolist()
    assert {row["id"] for row in noise} == set(days.loc[days["text"] != clean["text"], "speech_id"])


def test_affiliations_on_the_real_days(days):
    counts = days["n_candidate_parties"].value_counts(normalize=True)
    assert counts[1] == pytest.approx(14282 / 15237, abs=0.005)  # the specification's counts, for 53 days
    assert counts[2] == pytest.approx(855 / 15237, abs=0.005)
    assert (days.loc[days["role"] == "chair", "party_code"] == "S").all()
    top = ["CON", "LAB", "LD", "SNP", "CB", "S", "DUP", "I"]  # the order of the specification's counts
    assert days["party_code"].value_counts().index[:8].tolist() == top
    assert days.attrs["orientation_source"] == "table"


def test_questions_on_the_real_days(days):
    kinds = days["kind"].value_counts()
    assert kinds["question"] > 400 and kinds["urgent"] >= 20
    lords = days[days["house"] == "House of Lords"]
    assert lords.loc[lords["text"].str.startswith("To ask His Majesty"), "kind"].isin(["question", "urgent"]).all()
    answers = days[days["answers"].str.len() > 0]
    asked = days.set_index("speech_id")
    assert all(asked.loc[key, "section"] == row.section for row in answers.itertuples() for key in row.answers)


def test_text_of_forty_utterances_against_the_xml(days, shared_data):
    for row in days.sample(40, random_state=1).itertuples():
        tree = ElementTree.parse(shared_data / "parlamint-gb-2022" / f"{row.sitting_id}.xml")
        u = next(u for u in tree.iter(f"{TEI}u") if u.get("{http://www.w3.org/XML/1998/namespace}id") == row.speech_id)
        words = " ".join(" ".join(seg.text.split()) for seg in u.iter(f"{TEI}seg"))
        assert row.text.replace(".", "") == words.replace(".", "")
        assert (row.speaker_id if isinstance(row.speaker_id, str) else None) == (u.get("who") or "").lstrip("#") or not u.get("who")
        assert row.house.split()[-1].lower() == row.sitting_id.rsplit("-", 1)[1]


def test_release_5_structure(shared_data):
    frame = read_corpus(shared_data / "parlamint-gb-5.0-structure")
    assert frame["cap_topic"].tolist() == [
        "International Affairs",
        "International Affairs",
        "Government Operations",
        "Mix",
    ]
    assert frame["orientation"].tolist() == ["Centre-left", "Centre-right", "Centre-right", "Centre-right"]
    assert frame["is_government"].tolist() == [False, True, False, True]
    assert frame["section"].isna().tolist() == [False, False, True, True]
    assert frame.loc[1, "answers"] == [frame.loc[0, "speech_id"]] and frame.attrs["orientation_source"] == "corpus"


def test_release_2_root_with_the_sample_days(shared_data):
    root = shared_data / "parlamint-gb-2.1-root/ParlaMint-GB.xml"
    frame = read_corpus(shared_data / "parlamint-gb-2.1-samples", people=root)
    assert len(frame) == 32 and frame["sitting_id"].nunique() == 8
    assert (
        frame["house"] == frame["sitting_id"].str.endswith("lords").map({True: "House of Lords", False: "House of Commons"})
    ).all()
    assert not frame["text"].str.contains("SAMPLING").any()
    assert frame["party"].notna().mean() > 0.9


def test_iceland(shared_data):
    frame = read_corpus(shared_data / "parlamint-is-sample")
    assert len(frame) == 12 and frame["house"].isna().all() and frame["party"].notna().any()
    assert ((frame["kind"] == "procedural") == (frame["role"] == "chair")).all() and frame["cap_topic"].notna().any()
    assert not frame["text"].str.contains("Forseti hringir").any()


def test_hungary_counts_a_group_and_its_party_once_and_cuts_no_sentence(shared_data):
    frame = read_corpus(shared_data / "parlamint-hu")
    assert len(frame) == 650 and (frame["kind"] == "procedural").sum() == (frame["role"] == "chair").sum() == 325
    both = frame[frame["affiliation_rule"] == "group"]
    assert len(both) and both["party"].str.startswith("Parliamentary group").all()
    assert not frame["text"].str.contains(r"\. [,;]").any()


def test_portugal_states_orientations_on_the_parties_behind_its_groups(shared_data):
    frame = read_corpus(shared_data / "parlamint-pt")
    assert frame.attrs["orientation_source"] == "corpus"
    assert frame["orientation"].value_counts().to_dict() == {"Centre-right": 9, "Left": 3}


def test_greece_has_no_headings_and_is_usable(shared_data):
    frame = read_corpus(shared_data / "parlamint-gr")
    assert frame["section"].isna().all() and (frame["role"] == "chair").sum() == 17
    kept, dropped = keep_speeches(frame, KeepRules(1, 1, 10_000))
    assert len(kept) == 3 and kept["section"].str.startswith("Sitting of 20").all()
    assert dropped["rule"].eq("procedure: chair speaks").all()
