"""What is kept, the split, topics, prompts and references, on made-up rows."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.corpus.dataset import (
    DATA_FILES,
    PAPER_KEYS,
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
    to_records,
    without_headings,
    write_card,
)
from parliabench_utils.corpus.overview import dataset_numbers
from parliabench_utils.corpus.prompts import Contexts, PromptRules, choose_references, draw_prompts
from parliabench_utils.run.artefacts import write_csv, write_jsonl
from tests.corpus.corpus_files import LetterEncoder

PARTIES = ("Conservative", "Labour", "Green Party")


def speeches(n=240, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        party = rng.choice(PARTIES, p=[0.6, 0.3, 0.1])
        day = int(rng.integers(12))
        rows.append(
            {
                "speech_id": f"u{i:03d}",
                "sitting_id": f"day{day}",
                "date": pd.Timestamp("2019-01-01") + pd.Timedelta(days=day),
                "house": ["House of Commons", "House of Lords"][day % 2],
                "section": f"Debate {rng.integers(3)}",
                "speaker_id": f"{party[:3]}{rng.integers(8)}",
                "party_code": party[:3],
                "party": party,
                "orientation": "Centre-left",
                "role": "regular",
                "kind": "speech",
                "prompts": ["Whether it is so."] if i % 5 == 0 else [],
                "text": f"Speech number {i} " + "word " * int(rng.integers(40, 90)),
                "cap_topic": rng.choice(["Energy", "Health"]),
            }
        )
    return pd.DataFrame(rows)


def with_topics(frame):
    return frame.assign(topic=frame["cap_topic"], topic_method="direct", topic_score=1.0, n_words=50)


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


def drawn(seed=42, **rules):
    train, test = (pd.DataFrame(to_records(with_topics(part))) for part in split(speeches(), 0.7, "random", 1))
    prompts, report = draw_prompts(train, test, PromptRules(**({"n_prompts": 20, "min_context_speeches": 3} | rules)), seed)
    return train, test, prompts, report


def test_prompts_follow_the_rules():
    _, test, prompts, report = drawn(question_share=0.25, min_per_party=3)
    frame = pd.DataFrame(prompts)
    assert report["drawn"] == 20 and (frame["kind"] == "question").sum() == report["questions"] == 5
    assert frame["prompt_id"].is_unique and frame["speech_id"].is_unique and set(frame["speech_id"]) <= set(test["speech_id"])
    assert frame["Party"].value_counts().min() >= 3
    assert (frame.loc[frame["kind"] == "question", "instruction"] == "Whether it is so.").all()
    shares = test["Party"].value_counts(normalize=True)
    weighted = frame.groupby("Party")["weight"].sum() / 20
    assert np.allclose(weighted.sort_index(), shares.sort_index(), atol=1e-4)
    of_test = test.assign(kind=np.where(test["Prompts"].str.len() > 0, "question", "generic"))
    cells = [part.groupby(["Party", "House", "kind"])["Party"].size() for part in (frame, of_test)]
    size = cells[1].reindex(cells[0].index, fill_value=0).clip(lower=cells[0])  # a cell stands at least for its own prompts
    wanted = size / size.groupby("Party").transform("sum") * shares.reindex(size.index, level="Party") * 20
    assert np.allclose(frame.groupby(["Party", "House", "kind"])["weight"].sum(), wanted, atol=1e-4)
    assert drawn(question_share=0.25, min_per_party=3)[2] == prompts
    assert drawn(seed=7)[2] != drawn(seed=42)[2]


def test_shards_part_the_prompts():
    frame = pd.DataFrame(drawn(n_shards=3)[2])
    assert frame["shard"].value_counts().to_dict() == {0: 7, 1: 7, 2: 6}


def test_contexts_back_off_and_leave_out_debate_and_speaker():
    train, _, prompts, _ = drawn()
    contexts = Contexts(train)
    for prompt in prompts:
        name, rows = contexts.level(prompt, 3)
        found = train.loc[rows]
        assert name == prompt["context_id"] and len(found) >= 3
        assert (found["Party"] == prompt["Party"]).all() and not (found["speaker_id"] == prompt["speaker_id"]).any()
        assert not (debate_of(found) == f"{prompt['sitting_id']}/{prompt['Section']}").any()
    assert len(contexts.level(prompts[0], 1)[0].split(" | ")) == 3
    assert contexts.level(prompts[0], 10_000) is None


def test_the_untitled_part_of_a_sitting_is_a_debate_to_leave_out():
    """None in one table is NaN in the next: neither may let the prompt's own debate in."""
    train, _, prompts, _ = drawn()
    train = train.assign(Section=[None if day == prompts[0]["sitting_id"] else "x" for day in train["sitting_id"]])
    for empty in (None, float("nan"), ""):
        _, rows = Contexts(train).level({**prompts[0], "Section": empty}, 1)
        assert len(rows) and (train["sitting_id"].iloc[rows] != prompts[0]["sitting_id"]).all()
    asked = {**prompts[0], "Section": float("nan")}
    first, other = (choose_references([p], Contexts(train), LetterEncoder(), 2, 2) for p in (asked, asked | {"Section": None}))
    assert first == other


def test_references_are_the_nearest_of_the_context():
    train, _, prompts, _ = drawn()
    rows = pd.DataFrame(choose_references(prompts, Contexts(train), LetterEncoder(), 2, 3))
    assert (rows.groupby("prompt_id").size() == 2).all()
    assert rows.groupby("prompt_id")["similarity"].apply(lambda s: s.is_monotonic_decreasing).all()
    assert set(rows["speech_id"]) <= set(train["speech_id"])
    with pytest.raises(ValueError, match="n_references"):
        choose_references(prompts, Contexts(train), LetterEncoder(), 4, 3)


def test_too_few_contexts_give_fewer_prompts_and_say_so():
    _, _, prompts, report = drawn(min_context_speeches=16, n_prompts=70)
    assert 0 < report["drawn"] == len(prompts) < 70 and report["context too small"] > 0
    with pytest.raises(ValueError, match="no prompt can be drawn: none of 72 test speeches has 500 training speeches"):
        drawn(min_context_speeches=500)


def test_a_parliament_of_one_house_has_prompts_too():
    train, test = (pd.DataFrame(to_records(with_topics(part.assign(house=None)))) for part in split(speeches(), 0.7, "random", 1))
    prompts, _ = draw_prompts(train, test, PromptRules(n_prompts=6, min_context_speeches=3), 1)
    assert len(prompts) == 6 and {prompt["House"] for prompt in prompts} == {"Parliament"}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(0, 4), st.integers(0, 50))
def test_places_always_add_up(n, least, seed):
    from parliabench_utils.corpus.prompts import _share_out

    pool = pd.DataFrame(to_records(with_topics(speeches(60, seed))))
    places = _share_out(pool, n, least if n >= 12 else 0)
    assert sum(places.values()) == n and min(places.values()) >= 0


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
