"""Judging speeches into a file: rows, resuming, failures, the cache."""

import json
import shutil

import pytest

from parliabench_utils.metrics.judge import JudgementCache, Reply, judge_speeches, speeches_of
from parliabench_utils.metrics.judge_prompts import DIMENSIONS, Judgement, judge_prompts, parse_judgement, read_judge_spec
from parliabench_utils.metrics.judge_trust import failure_table, judgements_frame
from parliabench_utils.run.artefacts import read_jsonl, write_jsonl
from tests.metrics.test_judge_prompting import SPEECH

SPEC = read_judge_spec("smollm2-constrained")
SPEECHES = [
    SPEECH
    | {
        "prompt_id": f"p{n}",
        "model": "human",
        "type": "human",
        "generated_speech": f"My Lords. I have {n} points. " + "They matter. " * n,
        "n_words": 6 + 2 * n,
    }
    for n in range(5)
]


class Recorder:
    """Scores by length of the prompt, refuses `refused` dimensions, stops after `stop_after` calls."""

    signature, versions = "recorder", "none 1.0"

    def __init__(self, whole_speech=True, refused=(), stop_after=None):
        self.whole_speech, self.refused, self.stop_after, self.asked = whole_speech, refused, stop_after, []

    def ask(self, prompts, seeds):
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            raise KeyboardInterrupt
        self.asked.append([(q.dimension, seed) for q, seed in zip(prompts, seeds, strict=True)])
        return [self._reply(q) for q in prompts]

    def _reply(self, prompt):
        if prompt.dimension in self.refused:
            return Reply("No.", Judgement(None, "refusal"))
        raw = f"<score>{1 + len(prompt.text) % 90 / 10}</score>"
        return Reply(raw, self.read(raw))

    def read(self, raw, finish=""):
        return parse_judgement(raw, cut=finish == "length")


def test_rows_and_their_order(tmp_path):
    rows = judge_speeches(SPEECHES, SPEC, Recorder(), tmp_path / "a.jsonl", run_seed=1)
    assert rows == read_jsonl(tmp_path / "a.jsonl")
    assert [row["dimension"] for row in rows] == list(DIMENSIONS) * 5
    assert list(rows[0]) == [
        "prompt_id",
        "variant",
        "dimension",
        "score",
        "parse_status",
        "feedback",
        "raw",
        "finish_reason",
        "prompt_sha256",
        "attempts",
        "seed",
        "earlier",
        "engine",
        "versions",
    ]
    assert rows[2]["prompt_sha256"] == judge_prompts(SPEC, SPEECHES[0])[2].sha256


@pytest.mark.parametrize("whole_speech", [True, False])
@pytest.mark.parametrize("cut", [0, 1, 7, 12])
def test_a_killed_run_goes_on_where_it_stopped(tmp_path, whole_speech, cut):
    whole = judge_speeches(SPEECHES, SPEC, Recorder(whole_speech), tmp_path / "whole.jsonl", run_seed=1)
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl.partial").write_text("".join(lines[:cut]) + lines[cut][:25])
    engine = Recorder(whole_speech)
    assert judge_speeches(SPEECHES, SPEC, engine, tmp_path / "cut.jsonl", run_seed=1) == whole
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sum(map(len, engine.asked)) == (30 - cut // 6 * 6 if whole_speech else 30 - cut)


def test_an_interrupted_run_keeps_what_it_has(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        judge_speeches(SPEECHES, SPEC, Recorder(stop_after=2), tmp_path / "a.jsonl", run_seed=1)
    assert len(read_jsonl(tmp_path / "a.jsonl.partial")) == 12
    assert not (tmp_path / "a.jsonl").exists()


def test_failures_are_asked_again_with_new_seeds_and_stay_null(tmp_path):
    engine = Recorder(refused=("J_Rel",))
    rows = judge_speeches(SPEECHES[:1], SPEC, engine, tmp_path / "a.jsonl", run_seed=1, max_attempts=3)
    assert [len(call) for call in engine.asked] == [6, 1, 1]
    assert len({seed for call in engine.asked for _, seed in call}) == 8
    failed = rows[2]
    assert (failed["score"], failed["parse_status"], failed["attempts"]) == (None, "refusal", 3)
    assert [(e["parse_status"], e["raw"]) for e in failed["earlier"]] == [("refusal", "No.")] * 2
    assert failed["seed"] not in {e["seed"] for e in failed["earlier"]}
    table = failure_table(judgements_frame({("m", "baseline"): rows})).set_index("dimension")
    assert table.loc["J_Rel", ["n_failed", "failure_rate", "reasons"]].tolist() == [1, 1.0, "refusal 1"]
    assert table.loc["J_Coh", ["n_failed", "failure_rate", "reasons"]].tolist() == [0, 0.0, ""]


def test_rows_of_other_speeches_are_not_mixed_in(tmp_path):
    judge_speeches(SPEECHES, SPEC, Recorder(), tmp_path / "a.jsonl", run_seed=1)
    with pytest.raises(ValueError, match="other judgements"):
        judge_speeches(SPEECHES[1:], SPEC, Recorder(), tmp_path / "a.jsonl", run_seed=1)


@pytest.mark.parametrize("whole_speech", [True, False])
def test_nothing_is_asked_twice_in_another_run(tmp_path, monkeypatch, whole_speech):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path / "cache"))

    def judged(name, **changes):
        engine = Recorder(whole_speech)
        for key, value in changes.get("engine", {}).items():
            setattr(engine, key, value)
        cache = JudgementCache(engine)
        rows = judge_speeches(SPEECHES, SPEC, engine, tmp_path / name, run_seed=changes.get("seed", 1), cache=cache)
        return rows, sum(map(len, engine.asked)), cache

    rows, asked, _ = judged("a.jsonl")
    again, asked_again, cache = judged("b.jsonl")
    assert (rows, asked, asked_again, cache.used) == (again, 30, 0, 30)
    (file,) = cache.folder.glob("*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:8]) + lines[8][:30])  # as a kill leaves it
    assert judged("c.jsonl")[1] == (24 if whole_speech else 22)
    for changes in ({"seed": 2}, {"engine": {"signature": "other"}}, {"engine": {"versions": "none 2.0"}}):
        assert judged(f"{changes}.jsonl", **changes)[1] == 30


def test_the_cache_keeps_replies_not_failures_to_reply(tmp_path, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path / "cache"))

    class Silent(Recorder):
        def _reply(self, prompt):
            return Reply("ConnectError", Judgement(None, "no-answer"))

    judge_speeches(SPEECHES[:1], SPEC, Silent(), tmp_path / "a.jsonl", run_seed=1, cache=JudgementCache(Silent()))
    assert not list(JudgementCache(Silent()).folder.glob("*.jsonl"))
    refused = Recorder(refused=DIMENSIONS)
    judge_speeches(SPEECHES[:1], SPEC, refused, tmp_path / "b.jsonl", run_seed=1, cache=JudgementCache(refused))
    assert len(json.loads((next(JudgementCache(refused).folder.glob("*.jsonl"))).read_text().splitlines()[0])) == 4


def test_a_cached_reply_keeps_why_it_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path / "cache"))

    class Cut(Recorder):
        def _reply(self, prompt):
            raw = "<feedback>Fine.</feedback><score>8"
            return Reply(raw, self.read(raw, "length"), "length")

    for name in ("a.jsonl", "b.jsonl"):
        cache = JudgementCache(Cut())
        rows = judge_speeches(SPEECHES[:1], SPEC, Cut(), tmp_path / name, run_seed=1, max_attempts=1, cache=cache)
        assert {(r["score"], r["parse_status"], r["finish_reason"]) for r in rows} == {(None, "truncated", "length")}
    assert cache.used == 6


def test_a_reply_with_two_readings_is_asked_again(tmp_path):
    class Torn(Recorder):
        def _reply(self, prompt):
            raw = "Score: 7\nOr rather:\nScore: 8" if len(self.asked) == 1 else "Score: 7"
            return Reply(raw, self.read(raw))

    rows = judge_speeches(SPEECHES[:1], SPEC, Torn(), tmp_path / "a.jsonl", run_seed=1, max_attempts=2)
    assert {(row["score"], row["attempts"], row["earlier"][0]["parse_status"]) for row in rows} == {(7, 2, "ambiguous")}


def test_a_damaged_reply_is_asked_again_and_a_deleted_cache_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path / "cache"))
    (prompt,) = judge_prompts(SPEC, SPEECHES[0])[:1]
    cache = JudgementCache(Recorder())
    for seed in range(3):
        cache.put(prompt, seed, f"<score>{seed + 3}</score>", "stop")
    (file,) = cache.folder.glob("*.jsonl")
    file.write_text(file.read_text().replace("<score>4<", "<score>9<") + "[]\n")
    with pytest.warns(UserWarning, match="2 cached replies are damaged"):
        again = JudgementCache(Recorder())
    assert again.damaged == 2
    assert [again.get(prompt, seed) for seed in range(3)] == [
        ("<score>3</score>", "stop"),
        None,
        ("<score>5</score>", "stop"),
    ]
    shutil.rmtree(tmp_path / "cache")
    again.put(prompt, 1, "<score>4</score>")
    assert JudgementCache(Recorder()).get(prompt, 1) == ("<score>4</score>", "")


def test_speeches_are_joined_to_their_prompts_by_id(tmp_path):
    context = {k: v for k, v in SPEECH.items() if k not in ("variant", "generated_speech")}
    write_jsonl(tmp_path / "02_dataset/prompts.jsonl", [context | {"prompt_id": p} for p in ("b", "a")])
    spoken = [{"prompt_id": p, "variant": 0, "generated_speech": t} for p, t in (("a", "One."), ("b", None))]
    write_jsonl(tmp_path / "04_generate/m/baseline/shard-0.jsonl", spoken)
    (row,) = speeches_of(tmp_path, "m", "baseline")
    assert (row["prompt_id"], row["generated_speech"], row["House"]) == ("a", "One.", "House of Lords")
