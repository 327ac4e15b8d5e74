"""What is kept, the split and its leaks, the format and the card, on made-up rows."""

import re

import pandas as pd
import pytest

from parliabench_utils.corpus.dataset import (
    DATA_FILES,
    SPLITS,
    KeepRules,
    closest_copies,
    companions,
    copies,
    debate_of,
    drop_without_topic,
    every_split,
    human_rows,
    keep_speeches,
    leak_table,
    repair,
    repeated_texts,
    shingles,
    split,
    without_headings,
    write_card,
)
from parliabench_utils.corpus.overview import dataset_numbers
from parliabench_utils.corpus.prompts import Contexts, choose_references
from parliabench_utils.results.release import PAPER_KEYS
from parliabench_utils.run.artefacts import write_csv, write_jsonl
from tests.corpus.corpus_files import LetterEncoder, drawn, speeches, with_topics

RULES = KeepRules(min_speeches=5, min_words=35, max_words=400, excluded_sections=["Points of Order"])


def test_each_row_is_kept_or_dropped_with_its_first_reason():
    frame = speeches(60)
    frame.loc[0, "kind"], frame.loc[1, "kind"] = "question", "procedural"
    frame.loc[1, "text"] = "rose—"
    frame.loc[2, ["party_code", "party"]] = None
    frame.loc[3, "party_code"] = "S"
    frame.loc[4, "section"] = None
    frame.loc[5, "section"] = "points of order"
    frame.loc[6, "text"], frame.loc[7, "text"] = "word " * 35, "word " * 36
    frame.loc[8, "text"], frame.loc[9, "text"] = "word " * 400, "word " * 399
    frame.loc[10, ["party_code", "party"]] = "Tiny"
    kept, dropped = keep_speeches(frame, RULES)
    reasons = dict(zip(dropped["id"], dropped["rule"], strict=True))
    assert reasons["u001"] == "procedure: rose" and reasons["u002"] == "affiliation unknown"
    assert reasons["u003"] == "presiding officer" and reasons["u004"] == "no section"
    assert reasons["u005"] == "section excluded" and reasons["u006"] == "too short" and reasons["u008"] == "too long"
    assert reasons["u010"] == "party below min_speeches" and reasons["u000"].startswith("question")
    assert {"u007", "u009"} <= set(kept["speech_id"])
    assert sorted([*kept["speech_id"], *dropped["id"]]) == frame["speech_id"].tolist()


def test_texts_are_mended():
    assert repair("“It’s”  worth â€œ5p\u00a0now") == '"It\'s" worth "5p now'


@pytest.mark.parametrize("by", SPLITS)
def test_a_split_keeps_its_groups_whole(by):
    frame = speeches()
    train, test = split(frame, 0.8, by, 42)
    assert sorted([*train["speech_id"], *test["speech_id"]]) == frame["speech_id"].tolist()
    assert abs(len(train) / len(frame) - 0.8) < 0.08
    found = companions(train, test)
    own = {"by-debate": "same_debate", "by-speaker": "same_speaker", "by-date": "same_day"}
    assert found.any().all() if by == "random" else not found[own[by]].any()
    assert not set(train["speech_id"]) & set(test["speech_id"])
    assert by != "by-date" or train["date"].max() < test["date"].min()
    assert split(frame, 0.8, by, 42)[0].equals(train)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="split"):
        split(speeches(20), 0.8, "by-party", 1)
    with pytest.raises(ValueError, match="1 groups in 20 speeches cannot be parted"):
        split(speeches(20).assign(date="2019-01-01"), 0.8, "by-date", 1)
    with pytest.raises(ValueError, match="train_share"):
        split(speeches(20), 1.5, "random", 1)
    with pytest.raises(ValueError, match="min_words"):
        keep_speeches(speeches(20), KeepRules(min_words=50, max_words=40))


def test_human_rows_are_the_speeches_themselves():
    _, test, prompts, _ = drawn()
    rows = human_rows(prompts, dict(zip(test["speech_id"], test["Speech"], strict=True)), 42)
    assert [row["prompt_id"] for row in rows] == [prompt["prompt_id"] for prompt in prompts]
    spoken = test.set_index("speech_id")["Speech"]
    assert all(row["generated_speech"] == spoken[prompt["speech_id"]] for row, prompt in zip(rows, prompts, strict=True))
    assert {row["finish_reason"] for row in rows} == {"human"}


CORPUS = {"corpus_id": "ParlaMint-GB", "title": "GB corpus", "edition": "5.0", "n_files": 3}


def test_the_card_is_made_of_the_runs_facts(tmp_path):
    for name in DATA_FILES:
        (tmp_path / name).write_text("{}\n")
    parameters = {
        "split": "a|b",
        "seed": 42,
        "n_threads": 2,
        "topic_url": "http://here",
        "excluded_sections": ["A", "B"],
    }
    write_card(tmp_path, with_topics(speeches()), {"prompts": 2000}, parameters, CORPUS)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0") and "240 speeches" in card and "| prompts | 2,000 |" in card
    assert "| split | a\\|b |" in card and "| seed | 42 |" in card and "| excluded_sections | A, B |" in card
    assert "n_threads" not in card and "http" not in card and "Source: GB corpus, edition 5.0" in card
    assert card.count("ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356") == len(DATA_FILES)
    assert "Open Parliament Licence" in card and "Table 4 (score 1)" in card and "KEVLAR" not in card
    invented = CORPUS | {"title": "GB corpus [invented for ParliaBench]"}
    write_card(tmp_path, with_topics(speeches()), {}, {}, invented)
    card = (tmp_path / "README.md").read_text()
    assert "made up" in card and "Parliament Licence" not in card and "CLARIN" not in card


def test_the_papers_numbers_stand_beside_its_own_corpus_only():
    kept = with_topics(speeches())
    assert list(dataset_numbers(kept, CORPUS)) == ["this run"]
    whole = CORPUS | {"n_files": 2209}
    assert dataset_numbers(kept, whole).loc["speeches"].tolist() == [240, 447_778]


# --- leaks ------------------------------------------------------------------------------------------------------------
LONG = "I am grateful to the Minister for her answer about the buses that run to the village on a Sunday in winter"


def brute_force_share(test, train, n=8):
    def runs(text):
        tokens = re.findall(r"\w+", text.lower())
        return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}

    return [max(len(runs(a) & runs(b)) / max(len(runs(a)), 1) for b in train) for a in test]


def test_copies_are_shares_of_runs_of_eight_words():
    train = ["Order.", LONG, LONG.replace("buses", "trains")]
    test = [LONG.upper() + "!", LONG + " " + "and so on and on " * 4, "My Lords, no.", LONG.replace("village", "town")]
    share, rows = copies(shingles(test), shingles(train))
    assert share == pytest.approx(brute_force_share(test, train)) and share[0] == 1 and share[2] == 0
    assert rows[[0, 1, 3]].tolist() == [1, 1, 1]
    assert copies(shingles(test), shingles(train), block=1)[0].tolist() == share.tolist()


def test_a_leak_table_has_a_row_a_split():
    frame = speeches(120).assign(cap_topic="Energy")
    frame.loc[:9, "text"] = LONG
    divided = {by: split(frame, 0.8, by, 1) for by in SPLITS}
    table = leak_table(frame, divided, 0.5)
    assert table.index.tolist() == list(SPLITS) and (table["train"] + table["test"] == 120).all()
    assert table.loc["by-debate", "same_debate"] == table.loc["by-speaker", "same_speaker"] == table.loc["by-date", "same_day"] == 0
    assert table.loc["random", "near_copy"] > 0 and (table["copy_or_debate"] >= table["near_copy"]).all()
    shown = closest_copies(*divided["random"], k=1)
    assert shown["share"].tolist() == [1] and (shown["test_text"] == shown["training_text"]).all()


def test_repeated_texts_are_counted():
    frame = speeches(30)
    assert repeated_texts(frame).empty
    frame.loc[[1, 4, 7], "text"] = "I thank the Minister."
    assert repeated_texts(frame)[["text", "times"]].to_numpy().tolist() == [["I thank the Minister.", 3]]


def test_a_speech_without_a_topic_is_dropped_with_its_reason():
    frame = with_topics(speeches(5)).astype({"topic": object})
    frame.loc[2, "topic"] = None
    kept, dropped = drop_without_topic(frame, pd.DataFrame(columns=["id", "rule", "text"]))
    assert len(kept) == 4 and dropped[["id", "rule"]].to_numpy().tolist() == [["u002", "no topic found"]]


def test_thresholds_that_leave_nothing_are_told():
    with pytest.raises(ValueError, match=r"no speech is left of 60 utterances \(party below min_speeches 60\)"):
        keep_speeches(speeches(60), KeepRules(min_speeches=1000))


@pytest.mark.parametrize(
    ("change", "rules", "hint"),
    [
        (
            {},
            KeepRules(1000, 35, 400),
            "'party below min_speeches': lower min_speeches (1000; the largest party has 37)",
        ),
        ({}, KeepRules(1, 500, 900), "'too short': lower min_words (500; the longest of them has 92)"),
        ({}, KeepRules(1, 1, 5), "'too long': raise max_words (5; the shortest of them has 44)"),
        (
            {"section": "Business"},
            KeepRules(1, 1, 900, ["business"]),
            "'section excluded': shorten excluded_sections (business)",
        ),
        ({"party_code": None}, KeepRules(1, 1, 900), "'affiliation unknown': no party is listed for these speakers"),
        (
            {"affiliation_rule": "several speakers"},
            KeepRules(1, 1, 900),
            "'several speakers': u/@who names more than one",
        ),
        ({"party_code": "S"}, KeepRules(1, 1, 900), "'presiding officer': "),
        (
            {"role": "chair", "kind": "procedural"},
            KeepRules(1, 1, 900),
            "'procedure: chair speaks': the corpus holds little but",
        ),
        (
            {"kind": "question"},
            KeepRules(1, 1, 900),
            "'question (kept as a prompt of its answer)': the corpus holds questions",
        ),
    ],
)
def test_when_nothing_is_left_the_rule_that_dropped_most_is_named_with_its_remedy(change, rules, hint):
    with pytest.raises(ValueError, match=re.escape(f"most fell to {hint}")):
        keep_speeches(speeches(60).assign(**change), rules)


def test_the_hint_is_of_the_rule_that_dropped_most_not_of_the_last():
    frame = speeches(60).assign(section=["Business"] * 40 + ["Roads"] * 20)
    with pytest.raises(ValueError, match=r"section excluded 40, party below min_speeches 20\): most fell to 'section excl"):
        keep_speeches(frame, KeepRules(1000, 35, 400, ["Business"]))


def test_a_party_called_s_presides_in_the_uk_alone():
    frame = speeches(60).assign(party_code="S")
    assert len(keep_speeches(frame.assign(house=None), KeepRules(1, 1, 900))[0]) == 60


def test_what_several_people_said_is_dropped_by_name():
    rules = ["several speakers", *["only"] * 59]
    kept, dropped = keep_speeches(speeches(60).assign(affiliation_rule=rules), KeepRules(1, 1, 900))
    assert (len(kept), dropped["rule"].tolist()) == (59, ["several speakers"])


# --- files ------------------------------------------------------------------------------------------------------------
def test_the_files_load_as_the_card_says(tmp_path, monkeypatch):
    """`load_dataset("json")` of each file, and of the folder by the card's configs."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from datasets import load_dataset

    train, test, prompts, _ = drawn()
    references = choose_references(prompts, Contexts(train), LetterEncoder(), 2, 3)
    folder = tmp_path / "data"
    rows = {
        "train": train.to_dict("records"),
        "test": test.to_dict("records"),
        "prompts": prompts,
        "references": references,
    }
    for name, content in rows.items():
        write_jsonl(folder / f"{name}.jsonl", content)
    write_csv(folder / "dropped.csv", pd.DataFrame(columns=["id", "rule", "text"]))
    write_card(folder, with_topics(speeches()), {}, {}, CORPUS)
    files = {"train": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl")}
    loaded = load_dataset("json", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].num_rows == len(train) and set(PAPER_KEYS) <= set(loaded["test"].column_names)
    assert loaded["test"][0]["Prompts"] == test["Prompts"].iat[0]
    for config, splits in {"speeches": {"train", "test"}, "prompts": {"train"}, "references": {"train"}}.items():
        assert set(load_dataset(str(folder), config, cache_dir=str(tmp_path / "cache"))) == splits
    assert load_dataset(str(folder), "prompts", cache_dir=str(tmp_path / "cache"))["train"].num_rows == len(prompts)


def test_a_split_that_cannot_be_made_is_named_and_the_others_are_there():
    rows = speeches(60).assign(date="2020-01-01")
    divided, impossible = every_split(rows, 0.8, 1)
    assert set(divided) == {"random", "by-debate", "by-speaker"}
    assert len(impossible) == 1 and "split by-date" in impossible[0]


def test_a_sitting_without_any_heading_is_one_debate():
    frame = speeches(60)
    frame.loc[frame["sitting_id"] == "day3", "section"] = None
    cut = frame.index[frame["sitting_id"] == "day4"][0]
    frame.loc[cut, "section"] = float("nan")  # others of that sitting have a heading
    kept, dropped = keep_speeches(frame, KeepRules(1, 1, 900))
    assert set(kept.loc[kept["sitting_id"] == "day3", "section"]) == {"Sitting of 2019-01-04"}
    assert dropped[["id", "rule"]].to_numpy().tolist() == [[frame.loc[cut, "speech_id"], "no section"]]
    assert set(frame.loc[without_headings(frame), "sitting_id"]) == {"day3"}
    none = keep_speeches(frame.assign(section=float("nan")), KeepRules(1, 1, 900))[0]
    assert len(none) == 60 and debate_of(none).nunique() == frame["sitting_id"].nunique()
