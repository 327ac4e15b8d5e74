"""Generation: attempts, resume, batches, what is written; and what tuning changed."""

import json
from dataclasses import replace

import httpx
import pandas as pd
import pytest
from families import ROW
from tiny import tiny_loaded

from parliabench_utils.metrics.speeches import failure_counts, split_prompts
from parliabench_utils.models import generation
from parliabench_utils.models.backends import Sampling, ServerModel
from parliabench_utils.models.generation import (
    GenerationSettings,
    determinism,
    draft_prompts,
    even_batches,
    generate_file,
    generate_pair,
    load_speaker,
    parliamentary_pairs,
    parliamentary_share,
    read_fingerprints,
    trim_to_sentence,
    what_changed,
)
from parliabench_utils.models.validation import ValidationSettings
from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.record import row_seed

SETTINGS = GenerationSettings(
    sampling=Sampling(0.7, 0.85, 1.2),
    min_words=1,
    max_words=200,
    max_new_tokens=8,
    batch_size=2,
    max_attempts=3,
    variants=1,
    trim_to_sentence=False,
)
CHECKS = ValidationSettings(min_words=1, max_words=200)
PROMPTS = [ROW | {"prompt_id": f"p{i}", "shard": 0, "instruction": "Speak. " * (1 + i)} for i in range(5)]


@pytest.fixture(autouse=True)
def random_verdicts(monkeypatch):
    """The tiny model speaks gibberish: let a text's own length decide whether it is valid, so that some are drawn again."""
    monkeypatch.setattr(generation, "validate_speech", lambda text, *_: ["repetition"] if len(text) % 3 else [])


def texts(path):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_jsonl(path)]


def test_rows_have_the_contracts_columns(tmp_path):
    generate_file(tiny_loaded(), "baseline", PROMPTS, SETTINGS, CHECKS, tmp_path / "shard-0.jsonl", seed=42)
    rows = read_jsonl(tmp_path / "shard-0.jsonl")
    assert [r["prompt_id"] for r in rows] == ["p0", "p1", "p2", "p3", "p4"]
    assert list(rows[0]) == [
        "prompt_id", "variant", "model", "type", "generated_speech", "n_words", "attempts", "rejections", "seed", "finish_reason",
        "trimmed", "seconds",
    ]  # fmt: skip
    for row in rows:
        failed = len(row["rejections"])
        assert row["attempts"] == failed + (row["generated_speech"] is not None)
        assert (row["generated_speech"] is None) == (failed == 3)
    rejected = read_jsonl(tmp_path / "rejected-0.jsonl")
    assert len(rejected) == sum(len(r["rejections"]) for r in rows) > 0


def test_an_odd_reply_of_a_server_costs_one_attempt_with_its_reason(tmp_path):
    """p1's first request gets a page that is no JSON, five times; its second attempt, and everybody else, a speech."""

    def reply(request):
        body = json.loads(request.content)
        if body["seed"] == row_seed(42, "p1", 0, 1):
            return httpx.Response(200, text="<html>busy</html>")
        return httpx.Response(200, json={"choices": [{"text": "My Lords.", "finish_reason": "stop"}]})

    client = httpx.Client(transport=httpx.MockTransport(reply))
    loaded = replace(tiny_loaded(), model=ServerModel("http://server/v1", "a/m", client, wait=0.001))
    rows = generate_file(loaded, "baseline", PROMPTS, SETTINGS, CHECKS, tmp_path / "shard-0.jsonl", seed=42)
    assert [(row["generated_speech"], row["attempts"], row["rejections"]) for row in rows] == [
        ("My Lords.", 2, [["no_answer"]]) if row["prompt_id"] == "p1" else ("My Lords.", 1, []) for row in rows
    ]
    (rejected,) = read_jsonl(tmp_path / "rejected-0.jsonl")
    assert rejected["finish_reason"].startswith("no-answer: ") and "busy" in rejected["finish_reason"]
    counts = failure_counts(pd.DataFrame(rows)).set_index(["attempt", "reason"])["count"]
    assert counts.to_dict() == {(1, "any"): 1, (1, "no_answer"): 1, (2, "any"): 0}


def test_batch_size_changes_nothing(tmp_path):
    for size in (1, 2, 5):
        generate_file(
            tiny_loaded(),
            "x",
            PROMPTS,
            replace(SETTINGS, batch_size=size),
            CHECKS,
            tmp_path / f"shard-{size}.jsonl",
            42,
        )
    assert texts(tmp_path / "shard-1.jsonl") == texts(tmp_path / "shard-2.jsonl") == texts(tmp_path / "shard-5.jsonl")


def test_a_killed_run_ends_with_the_same_files(tmp_path, monkeypatch):
    whole, broken = tmp_path / "a" / "shard-0.jsonl", tmp_path / "b" / "shard-0.jsonl"
    generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, whole, 42)
    appended, real = [], generation._append

    def dies_after_three_rows(*arguments):
        if len(appended) == 3:
            raise KeyboardInterrupt
        appended.append(1)
        real(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(generation, "_append", dies_after_three_rows)
        generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, broken, 42)
    assert not broken.exists()
    with broken.with_name("shard-0.jsonl.partial").open("a") as file:
        file.write('{"prompt_id": "p4", "var')  # a line that the kill cut short
    generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, broken, 42)
    assert texts(broken) == texts(whole)
    assert texts(broken.with_name("rejected-0.jsonl")) == texts(whole.with_name("rejected-0.jsonl"))


def test_rejections_of_other_parameters_do_not_stay(tmp_path):
    old = {"prompt_id": "p0", "variant": 0, "attempt": 1, "reasons": ["refusal"], "speech": "old"}
    (tmp_path / "rejected-0.jsonl.partial").write_text(json.dumps(old) + "\n")
    generate_file(tiny_loaded(), "x", PROMPTS[:2], SETTINGS, CHECKS, tmp_path / "shard-0.jsonl", 42)
    assert old not in read_jsonl(tmp_path / "rejected-0.jsonl")


def test_another_seed_gives_other_speeches(tmp_path):
    for seed in (1, 2):
        generate_file(tiny_loaded(), "x", PROMPTS[:2], SETTINGS, CHECKS, tmp_path / f"shard-{seed}.jsonl", seed)
    assert texts(tmp_path / "shard-1.jsonl") != texts(tmp_path / "shard-2.jsonl")


@pytest.mark.parametrize("kill_at", [1, 4, 6, 9])
def test_rejections_are_kept_over_a_kill_in_any_round(tmp_path, monkeypatch, kill_at):
    whole, broken = tmp_path / "a" / "shard-0.jsonl", tmp_path / "b" / "shard-0.jsonl"
    generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, whole, 42)
    drawn, real = [], generation.draw_batch

    def dies(loaded, kind, drafts, attempt, *more):
        if len(drawn) == kill_at:
            raise KeyboardInterrupt
        drawn.append((attempt, len(drafts)))
        real(loaded, kind, drafts, attempt, *more)

    monkeypatch.setattr(generation, "draw_batch", dies)
    try:
        generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, broken, 42)
    except KeyboardInterrupt:
        assert not broken.exists()
    first = list(drawn)
    monkeypatch.setattr(generation, "draw_batch", real)
    generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, broken, 42)
    assert [attempt for attempt, _ in first] == sorted(attempt for attempt, _ in first), "all first attempts come first"
    assert texts(broken) == texts(whole)
    assert texts(broken.with_name("rejected-0.jsonl")) == texts(whole.with_name("rejected-0.jsonl"))


def test_failed_rows_of_several_batches_share_the_next_rounds(tmp_path, monkeypatch):
    sizes, real = {}, generation.draw_batch

    def counted(loaded, kind, drafts, attempt, *more):
        sizes.setdefault(attempt, []).append(len(drafts))
        real(loaded, kind, drafts, attempt, *more)

    monkeypatch.setattr(generation, "draw_batch", counted)
    rows = generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, tmp_path / "shard-0.jsonl", 42)
    assert sum(sizes[1]) == len(PROMPTS)
    for attempt in (2, 3):
        failed = sum(len(row["rejections"]) >= attempt - 1 for row in rows)
        assert sum(sizes.get(attempt, [])) == failed
        assert len(sizes.get(attempt, [])) == -(-failed // SETTINGS.batch_size)


EXAMPLES = {
    p["prompt_id"]: [
        ROW | {"speech_id": f"t{i}", "Speech": f"I thank the Minister for point {i} of {p['prompt_id']}."} for i in range(4)
    ]
    for p in PROMPTS
}


def test_few_shot_prompts_show_the_nearest_examples_as_earlier_turns():
    from dataclasses import replace

    shown = replace(SETTINGS, few_shot_examples=2)
    loaded = tiny_loaded()
    plain = draft_prompts(loaded, "baseline", PROMPTS, shown, EXAMPLES)
    few = draft_prompts(loaded, "few-shot", PROMPTS, shown, EXAMPLES)
    text = {d.prompt["prompt_id"]: loaded.tokenizer.decode(d.ids) for d in few}["p0"]
    assert "point 1 of p0" in text and "point 2 of p0" not in text
    assert text.index("point 1 of p0") < text.index("point 0 of p0"), "the nearest stands last"
    assert text.count("<|im_start|>assistant") == 3
    base = {d.prompt["prompt_id"]: loaded.tokenizer.decode(d.ids) for d in plain}["p0"]
    assert text.endswith(base[base.index("<|im_start|>user") :])


def test_retrieval_answers_with_the_nearest_speech_that_passes(tmp_path):
    loaded = load_speaker("smollm2-135m", "retrieval", tmp_path)
    generate_file(loaded, "retrieval", PROMPTS, SETTINGS, CHECKS, tmp_path / "shard-0.jsonl", 42, EXAMPLES)
    for row in read_jsonl(tmp_path / "shard-0.jsonl"):
        assert row["finish_reason"] == "retrieved"
        if row["generated_speech"]:
            assert row["generated_speech"] == EXAMPLES[row["prompt_id"]][row["attempts"] - 1]["Speech"]
    none_left = generate_file(loaded, "retrieval", PROMPTS, SETTINGS, CHECKS, tmp_path / "shard-1.jsonl", 42, {})
    assert all(row["n_words"] == 0 for row in none_left)


def test_what_made_the_speeches_is_known_after_a_restart(tmp_path):
    generate_pair(tiny_loaded(), "baseline", PROMPTS, [0], SETTINGS, CHECKS, tmp_path, 42)
    fingerprints = read_fingerprints(tmp_path, [("smollm2-135m", "baseline")], [0])
    assert fingerprints == {"smollm2-135m/baseline": "tiny fp32"}
    assert determinism(fingerprints).startswith("fp32")
    assert determinism(fingerprints | {"m/x": "m@1 bf16"}).startswith("bf16")


def test_out_of_memory_says_what_to_change(tmp_path, monkeypatch):
    import torch

    def full(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(generation, "decode_batch", full)
    with pytest.raises(MemoryError, match="halve batch_size"):
        generate_file(tiny_loaded(), "x", PROMPTS, SETTINGS, CHECKS, tmp_path / "shard-0.jsonl", 42)


def test_batches_are_even_and_keep_the_order():
    assert [len(batch) for batch in even_batches(list(range(18)), 16)] == [9, 9]
    assert [i for batch in even_batches(list(range(37)), 8) for i in batch] == list(range(37))
    assert even_batches([], 8) == []


@pytest.mark.parametrize(
    ("text", "kept", "cut"),
    [
        ("I thank the Minister. Will he now", "I thank the Minister.", True),
        (
            "I thank my hon. Friend the Member for St. Ives. He has the",
            "I thank my hon. Friend the Member for St. Ives.",
            True,
        ),
        ("I thank the Minister.", "I thank the Minister.", False),
        ("I thank my hon", "I thank my hon", False),
    ],
)
def test_a_text_is_cut_to_whole_sentences(text, kept, cut):
    assert trim_to_sentence(text) == (kept, cut)


def test_selection_keeps_what_all_answered_and_counts_every_failure():
    import pandas as pd

    frame = pd.DataFrame(
        json.loads("""[
        {"prompt_id": "a", "model": "m", "type": "baseline", "generated_speech": "x", "attempts": 1, "rejections": []},
        {"prompt_id": "b", "model": "m", "type": "baseline", "generated_speech": null, "attempts": 2,
         "rejections": [["repetition", "refusal"], ["refusal"]]},
        {"prompt_id": "a", "model": "m", "type": "fine-tuned", "generated_speech": "x", "attempts": 2,
         "rejections": [["wrong_length"]]},
        {"prompt_id": "b", "model": "m", "type": "fine-tuned", "generated_speech": "x", "attempts": 1, "rejections": []}]""")
    )
    assert split_prompts(frame) == (["a"], {"b": ["m/baseline"]})
    counts = failure_counts(frame).set_index(["type", "attempt", "reason"])["count"].to_dict()
    assert counts[("baseline", 1, "any")] == 1
    assert counts[("baseline", 2, "refusal")] == 1
    assert counts[("fine-tuned", 2, "any")] == 0


HOUSE, PLAIN = (
    "My Lords, I thank the Minister and the noble Lord.",
    "People want lower bills and better buses in towns.",
)


def frame():
    rows = [
        ("a", "baseline", PLAIN, [], "length"), ("a", "fine-tuned", HOUSE, [], "stop"),
        ("b", "baseline", HOUSE, [["refusal"]], "stop"), ("b", "fine-tuned", HOUSE, [], "stop"),
        ("c", "baseline", None, [["repetition"]] * 3, "length"), ("c", "fine-tuned", HOUSE, [["refusal"]], "stop"),
    ]  # fmt: skip
    columns = ["prompt_id", "type", "generated_speech", "rejections", "finish_reason"]
    made = pd.DataFrame(rows, columns=columns).assign(model="m")
    return made.assign(n_words=made["generated_speech"].fillna("").str.split().str.len())


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        (HOUSE, 3),
        (PLAIN, 0),
        ("", 0),
        ("I thank my right hon. Friend, Mr Speaker.", 2),
        ("The house is hon and dry.", 0),
    ],
)
def test_phrases_of_the_chamber(text, phrases):
    assert parliamentary_share(text) == pytest.approx(100 * phrases / max(len(text.split()), 1))


def test_pairs_are_within_prompts():
    (row,) = parliamentary_pairs(frame(), ["a", "b"]).to_dict("records")
    assert (row["prompts"], row["more often"], row["less often"], row["equal"]) == (2, 1, 0, 1)
    assert row["fine-tuned"] > row["baseline"]
    assert parliamentary_pairs(frame().query("type == 'baseline'"), ["a"]).empty


def test_failures_are_of_all_prompts_and_manner_of_the_kept():
    human = frame().query("type == 'fine-tuned'")
    table = what_changed(frame(), human, ["a", "b"]).loc["m"]
    assert table.loc["first attempt rejected, share", "baseline"] == pytest.approx(2 / 3)
    assert table.loc["never valid, share", "baseline"] == pytest.approx(1 / 3)
    assert table.loc["speeches with one or more, share", "baseline"] == 0.5
    assert table.loc["words, median", "human"] == 10
    assert pd.isna(table.loc["never valid, share", "human"])


def test_nothing_kept_gives_no_numbers_and_no_error():
    assert what_changed(frame(), frame(), []).loc[("m", "words, median")].isna().all()
    assert parliamentary_pairs(frame(), []).empty
