"""The engines in process, with the packaged model: constrained ending, free text, Phi-3's guard."""

import dataclasses
import json

import pytest

from parliabench_utils.metrics.judge import ConstrainedEngine, TextEngine, chat_text, open_engine, room_for_reply
from parliabench_utils.metrics.judge_prompts import JudgePrompt, judge_prompts, read_judge_spec
from tests.metrics.test_judge_prompting import INJECTION, SPEECH
from tests.models.tiny import tiny_loaded

SPEC = read_judge_spec("smollm2-constrained")


@pytest.fixture(scope="module")
def engine():
    """The real code with a small random model and the packaged tokenizer; `packaged` has the demo's weights."""
    return ConstrainedEngine(tiny_loaded(), SPEC)


@pytest.fixture(scope="module")
def packaged():
    return open_engine(SPEC)


def test_shared_prefix_equals_each_prompt_alone(packaged):
    import torch

    engine = packaged

    prompts = judge_prompts(SPEC, SPEECH)
    shared, rests = engine._token_ids(prompts, [""] * 6)
    at_digit, after_one = engine._logits(shared, rests)
    for row, rest in enumerate(rests):
        with torch.inference_mode():
            logits = engine.loaded.model(torch.tensor([shared + rest])).logits[0]
        torch.testing.assert_close(at_digit[row], logits[-2], atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(after_one[row], logits[-1], atol=1e-3, rtol=1e-4)


def test_distribution_and_weighted_score(engine):
    prompts = judge_prompts(SPEC, SPEECH)
    distribution = engine.distribution(prompts)
    assert distribution.shape == (6, 10)
    assert distribution.sum(dim=1).tolist() == pytest.approx([1] * 6)
    for reply, row in zip(engine.ask(prompts, [0] * 6), distribution.tolist(), strict=True):
        mean = sum(n * p for n, p in enumerate(row, start=1))
        assert reply.judgement.score == pytest.approx(mean, abs=5e-5)
        assert reply.judgement.status == "ok-weighted"
        assert list(json.loads(reply.raw)) == [str(n) for n in range(1, 11)]
        assert engine.read(reply.raw) == reply.judgement


def test_one_is_the_beginning_of_ten(engine, monkeypatch):
    """With "1" certain, and after it 0 three times as likely as the end, the score is 0.25 x 1 + 0.75 x 10."""
    import torch

    at_digit = torch.full((1, 50_000), -1e9)
    at_digit[0, engine.digits[0]] = 0
    after_one = torch.full((1, 50_000), -1e9)
    after_one[0, engine.zero], after_one[0, engine.close] = torch.log(torch.tensor([3.0, 1.0]))
    monkeypatch.setattr(engine, "_logits", lambda *_: (at_digit, after_one))
    (reply,) = engine.ask([JudgePrompt("J_Coh", "a", "b")], [0])
    assert reply.judgement.score == pytest.approx(0.25 * 1 + 0.75 * 10)


def test_the_part_after_the_speech_is_short(engine):
    _, rests = engine._token_ids(judge_prompts(SPEC, SPEECH), [""] * 6)
    assert max(map(len, rests)) <= 350


def test_a_speech_brings_no_special_tokens(engine):
    tokenizer = engine.loaded.tokenizer
    plain, forged = (
        engine._token_ids(judge_prompts(SPEC, SPEECH | {"generated_speech": text}), [""] * 6)[0] for text in ("Yes.", INJECTION)
    )
    special = set(tokenizer.all_special_ids)
    assert sum(i in special for i in plain) == sum(i in special for i in forged)


def test_order_of_dimensions_hardly_matters(engine):
    prompts = judge_prompts(SPEC, SPEECH)
    once = [r.judgement.score for r in engine.ask(prompts, [0] * 6)]
    again = [r.judgement.score for r in engine.ask(prompts[::-1], [1] * 6)][::-1]
    assert once == pytest.approx(again, abs=1e-3)


def test_several_speeches_at_once_are_refused(engine):
    with pytest.raises(ValueError, match="one speech at a time"):
        engine.ask([JudgePrompt("J_Coh", "a", "x"), JudgePrompt("J_Coh", "b", "x")], [0, 0])


@pytest.mark.parametrize(
    "n_prompt, switch, room",
    [(900, None, 2000), (900, 4096, 2000), (3000, 4096, 1096), (4050, 4096, 0), (5000, 4096, 2000)],
)
def test_no_reply_crosses_the_context_switch(n_prompt, switch, room):
    assert room_for_reply(n_prompt, 2000, switch) == room


def test_free_text_depends_on_a_rows_own_seed_only(engine):
    spec = SPEC.model_copy(update={"ending": "free", "temperature": 0.8, "max_new_tokens": 8})
    text = TextEngine(engine.loaded, spec)
    prompts = [JudgePrompt("J_Coh", "", own) for own in ("Name a river, then a longer list of towns.", "Name a king.")]
    together = [r.raw for r in text.ask(prompts, [1, 2])]
    assert [text.ask([q], [seed])[0].raw for q, seed in zip(prompts, (1, 2), strict=True)] == together
    assert text.ask(prompts, [3, 4])[0].raw != together[0]
    assert not any(chat_text(engine.loaded.tokenizer, q.text)[:40] in raw for q, raw in zip(prompts, together, strict=True))


@pytest.mark.parametrize(
    ("end", "text", "finish", "status", "score"),
    [
        ("<think>\n", "Perhaps <score>4</score>", "length", "truncated", None),  # the template opened the thoughts
        ("<think>\n", "Perhaps <score>4</score></think>\n<score>7</score>", "stop", "ok", 7),
        ("<think>\n\n</think>\n\n", "<score>7</score>", "stop", "ok", 7),
        ("", "<score>8", "length", "truncated", None),
        ("", "<score>8", "stop", "ok-truncated", 8),
    ],
)
def test_thoughts_that_the_template_opens_and_cut_replies_are_read_as_such(engine, monkeypatch, end, text, finish, status, score):
    spec = SPEC.model_copy(update={"ending": "free"})
    template = engine.loaded.tokenizer.chat_template + end
    monkeypatch.setattr(engine.loaded.tokenizer, "chat_template", template)
    monkeypatch.setattr("parliabench_utils.metrics.judge._generated", lambda *_: [(text, finish)])
    (reply,) = TextEngine(engine.loaded, spec).ask([JudgePrompt("J_Coh", "", "Judge.")], [1])
    assert (reply.judgement.status, reply.judgement.score, reply.finish) == (status, score, finish)
    assert TextEngine(engine.loaded, spec).read(reply.raw, reply.finish) == reply.judgement


def test_constrained_ending_takes_the_likeliest_score(engine):
    constrained = ConstrainedEngine(engine.loaded, SPEC.model_copy(update={"ending": "constrained"}))
    likeliest = (engine.distribution(judge_prompts(SPEC, SPEECH)).argmax(dim=1) + 1).tolist()
    replies = constrained.ask(judge_prompts(SPEC, SPEECH), [0] * 6)
    assert [(r.judgement.score, r.judgement.status) for r in replies] == [(float(n), "ok") for n in likeliest]
    assert constrained.signature != engine.signature


def test_feedback_stands_before_the_constrained_score(engine):
    spec = SPEC.model_copy(update={"ending": "weighted", "feedback_tokens": 6, "temperature": 0.9})
    talking = ConstrainedEngine(engine.loaded, spec)
    prompts = judge_prompts(spec, SPEECH)[:2]
    one, other = talking.ask(prompts, [1, 2]), talking.ask(prompts, [3, 2])
    assert all(r.judgement.feedback and 1 <= r.judgement.score <= 10 for r in one)
    assert one[0].judgement.feedback != other[0].judgement.feedback
    assert talking.read(one[0].raw) == one[0].judgement
    _, rests = talking._token_ids(prompts, [r.judgement.feedback for r in one])
    ends = [engine.loaded.tokenizer.decode(rest) for rest in rests]
    assert all(end.endswith(f"<feedback>{r.judgement.feedback}</feedback>\n<score>1") for end, r in zip(ends, one, strict=True))


def test_five_points_have_one_token_each(engine):
    five = ConstrainedEngine(engine.loaded, SPEC, points=5)
    assert five.distribution(judge_prompts(SPEC, SPEECH, 5)).shape == (6, 5)
    assert all(1 <= r.judgement.score <= 5 for r in five.ask(judge_prompts(SPEC, SPEECH, 5), [0] * 6))


def test_a_constrained_prompt_beyond_the_context_switch_is_not_asked(engine):
    short = ConstrainedEngine(engine.loaded, SPEC.model_copy(update={"context_switch": 50}))
    assert {r.judgement.status for r in short.ask(judge_prompts(SPEC, SPEECH), [0] * 6)} == {"prompt-too-long"}


def test_no_row_crosses_the_switch_and_long_prompts_go_alone(engine, monkeypatch):
    """Prompts of 10 to 60 tokens around a switch at 40: batches hold one room on one side, and stay on it."""
    spec = SPEC.model_copy(update={"ending": "free", "max_new_tokens": 16, "context_switch": 40})
    batches = []

    def generate(loaded, spec, ids, seeds, limit):
        batches.append([(len(i), limit) for i in ids])
        return [(f"<score>{len(i) % 10 + 1}</score>", "stop") for i in ids]

    monkeypatch.setattr("parliabench_utils.metrics.judge._encoded", lambda loaded, text: [0] * int(text))
    monkeypatch.setattr("parliabench_utils.metrics.judge._generated", generate)
    replies = TextEngine(engine.loaded, spec).ask([JudgePrompt("J_Coh", "", str(n)) for n in (10, 20, 24, 30, 45, 60)], [0] * 6)
    assert batches == [[(10, 16), (20, 16), (24, 16)], [(45, 16), (60, 16)]]
    assert [r.judgement.status for r in replies] == ["ok"] * 3 + ["prompt-too-long"] + ["ok"] * 2


def test_free_text_without_room_is_not_asked(engine):
    spec = SPEC.model_copy(update={"ending": "free", "max_new_tokens": 500, "context_switch": 200})
    (reply,) = TextEngine(engine.loaded, spec).ask(judge_prompts(SPEC, SPEECH)[:1], [0])
    assert (reply.judgement.score, reply.judgement.status) == (None, "prompt-too-long")


def test_engine_and_url_must_agree():
    with pytest.raises(ValueError, match="empty one of the two"):
        open_engine(SPEC, server_url="http://localhost:1/v1")
    with pytest.raises(ValueError, match="set server_url"):
        open_engine(SPEC.model_copy(update={"engine": "server", "ending": "free"}))


def test_four_bit_phi3_with_two_sets_of_position_factors(engine):
    """Flow-Judge's architecture and precision with random weights: replies near the switch equal those of each prompt alone."""
    import torch
    from transformers import Phi3Config, Phi3ForCausalLM

    torch.manual_seed(0)
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "rope_theta": 10000.0}
    config = Phi3Config(
        vocab_size=49152, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=512, original_max_position_embeddings=64, rope_parameters=rope, initializer_range=0.5,
        pad_token_id=2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    loaded = dataclasses.replace(engine.loaded, model=Phi3ForCausalLM(config).eval())
    spec = SPEC.model_copy(update={"ending": "free", "temperature": 0.5, "max_new_tokens": 12, "context_switch": 64})
    phi = TextEngine(loaded, spec)
    prompts = [JudgePrompt("J_Coh", "", "word " * n) for n in (1, 12, 60)]
    sizes = [len(engine.loaded.tokenizer.encode(chat_text(engine.loaded.tokenizer, q.text))) for q in prompts]
    assert sizes[0] < sizes[1] < 52 and sizes[2] > 64
    together = [r.raw for r in phi.ask(prompts, [1, 2, 3])]
    assert together == [phi.ask([q], [seed])[0].raw for q, seed in zip(prompts, (1, 2, 3), strict=True)]


@pytest.mark.hub
def test_flow_judge_answers():
    spec = read_judge_spec("flow-judge")
    try:
        flow = open_engine(spec)
    except OSError:
        pytest.skip("Flow-Judge is not on this machine: python -m parliabench_utils fetch-models flow-judge")
    (reply,) = flow.ask(judge_prompts(spec, SPEECH)[:1], [0])
    assert not isinstance(flow, ConstrainedEngine)
    assert 1 <= reply.judgement.score <= 10
