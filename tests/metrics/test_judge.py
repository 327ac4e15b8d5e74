"""Judging speeches into a file: rows, resuming, failures, and the tables of trust."""

import json

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.judge import DIMENSIONS, judge_prompts, judge_speeches, read_judge_spec, speeches_of
from parliabench_utils.metrics.judge_engine import Reply
from parliabench_utils.metrics.judge_parsing import Judgement
from parliabench_utils.metrics.judge_trust import (
    controls_of,
    failure_table,
    judge_controls,
    judgements_frame,
    trust_table,
)
from parliabench_utils.run.artefacts import read_jsonl, write_jsonl
from tests.metrics.test_judge_prompting import SPEECH

SPEC = read_judge_spec("smollm2-constrained")
SPEECHES = [
    SPEECH
    | {
        "prompt_id": f"p{n}",
        "generated_speech": f"My Lords. I have {n} points. " + "They matter. " * n,
        "n_words": 6 + 2 * n,
    }
    for n in range(5)
]


class Recorder:
    """Scores by length of the prompt, refuses `refused` dimensions, stops after `stop_after` calls."""

    signature = "recorder"

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
        return Reply("raw", Judgement(1 + len(prompt.text) % 90 / 10, "ok-decimal"))


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
        "prompt_sha256",
        "attempts",
        "seed",
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
    table = failure_table(judgements_frame({("m", "baseline"): rows})).set_index("dimension")
    assert table.loc["J_Rel", ["n_failed", "failure_rate", "reasons"]].tolist() == [1, 1.0, "refusal 1"]
    assert table.loc["J_Coh", ["n_failed", "failure_rate", "reasons"]].tolist() == [0, 0.0, ""]


def test_speeches_are_joined_to_their_prompts_by_id(tmp_path):
    context = {k: v for k, v in SPEECH.items() if k not in ("variant", "generated_speech")}
    write_jsonl(tmp_path / "02_dataset/prompts.jsonl", [context | {"prompt_id": p} for p in ("b", "a")])
    spoken = [{"prompt_id": p, "variant": 0, "generated_speech": t} for p, t in (("a", "One."), ("b", None))]
    write_jsonl(tmp_path / "04_generate/m/baseline/shard-0.jsonl", spoken)
    (row,) = speeches_of(tmp_path, "m", "baseline")
    assert (row["prompt_id"], row["generated_speech"], row["House"]) == ("a", "One.", "House of Lords")


def test_controls_keep_the_words_and_the_seed():
    controls = controls_of(SPEECHES[4], seed=7)
    text = SPEECHES[4]["generated_speech"]
    assert controls == controls_of(SPEECHES[4], seed=7)
    assert (
        sorted(controls["sentences shuffled"].split())
        == sorted(controls["words shuffled"].split())
        == sorted(text.split())
    )
    assert len(controls["lorem ipsum"].split()) == len(text.split())


class LikesParliament(Recorder):
    """Ten where Lords are addressed at the beginning, else one."""

    def _reply(self, prompt):
        return Reply("", Judgement(10.0 if "<speech>\nMy Lords." in prompt.text else 1.0, "ok"))


def test_trust(tmp_path):
    engine = LikesParliament()
    human = judge_speeches(SPEECHES, SPEC, engine, tmp_path / "h.jsonl", run_seed=1)
    silent = [s | {"generated_speech": "Lorem."} for s in SPEECHES]
    machine = judge_speeches(silent, SPEC, engine, tmp_path / "m.jsonl", run_seed=1)
    frame = judgements_frame({("m", "baseline"): machine, ("human", "human"): human})
    words = pd.Series(
        {(*pair, s["prompt_id"], 0): s["n_words"] for pair in [("m", "baseline"), ("human", "human")] for s in SPEECHES}
    )
    trust = trust_table(frame, words, judge_controls(SPEECHES[:3], SPEC, engine, seed=1)).set_index("dimension")
    assert trust["human_minus_models"].tolist() == [9.0] * 6
    assert trust["beats lorem ipsum"].tolist() == [1.0] * 6
    assert trust["change_when_repeated"].tolist() == [0.0] * 6
    assert trust["length_rho"].abs().max() < 1e-9
    assert trust["distinct"].tolist() == [2] * 6


def test_trust_of_a_constant_judge_and_of_none():
    rows = [
        {"prompt_id": f"p{i}", "variant": 0, "dimension": d, "score": 5, "parse_status": "ok"}
        for i in range(4)
        for d in DIMENSIONS
    ]
    frame = judgements_frame({("m", "baseline"): rows})
    words = pd.Series({("m", "baseline", f"p{i}", 0): i for i in range(4)})
    none = pd.DataFrame(columns=["prompt_id", "control", "dimension", "score"])
    trust = trust_table(frame, words, none)
    assert trust["distinct"].tolist() == [1] * 6
    assert np.isnan(trust["length_rho"]).all()
    assert trust_table(judgements_frame({}), pd.Series(dtype=float), none)["n"].tolist() == [0] * 6
    assert json.loads(trust.to_json())
