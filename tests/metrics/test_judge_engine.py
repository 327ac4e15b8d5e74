"""The engines in process, with the packaged model: constrained ending, free text, Phi-3's guard."""

import json

import pytest

from parliabench_utils.metrics.judge_engine import TextEngine, WeightedEngine, chat_text, open_engine, room_for_reply
from parliabench_utils.models.judge_prompting import JudgePrompt, judge_prompts, read_judge_spec
from tests.metrics.test_judge_prompting import INJECTION, SPEECH

SPEC = read_judge_spec("smollm2-constrained")


@pytest.fixture(scope="module")
def engine():
    return open_engine(SPEC)


def test_shared_prefix_equals_each_prompt_alone(engine):
    import torch

    prompts = judge_prompts(SPEC, SPEECH)
    at_digit, after_one = engine._logits(prompts)
    shared, rests = engine._token_ids(prompts)
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
        assert reply.judgement.score == pytest.approx(mean, abs=1e-6)
        assert reply.judgement.status == "ok-weighted"
        assert list(json.loads(reply.raw)) == [str(n) for n in range(1, 11)]


def test_one_is_the_beginning_of_ten(engine, monkeypatch):
    """With "1" certain, and after it 0 three times as likely as the end, the score is 0.25 x 1 + 0.75 x 10."""
    import torch

    at_digit = torch.full((1, 50_000), -1e9)
    at_digit[0, engine.digits[0]] = 0
    after_one = torch.full((1, 50_000), -1e9)
    after_one[0, engine.zero], after_one[0, engine.close] = torch.log(torch.tensor([3.0, 1.0]))
    monkeypatch.setattr(engine, "_logits", lambda prompts: (at_digit, after_one))
    (reply,) = engine.ask([JudgePrompt("J_Coh", "a", "b")], [0])
    assert reply.judgement.score == pytest.approx(0.25 * 1 + 0.75 * 10)


def test_the_part_after_the_speech_is_short(engine):
    _, rests = engine._token_ids(judge_prompts(SPEC, SPEECH))
    assert max(map(len, rests)) <= 350


def test_a_speech_brings_no_special_tokens(engine):
    tokenizer = engine.loaded.tokenizer
    plain, forged = (
        engine._token_ids(judge_prompts(SPEC, SPEECH | {"generated_speech": text}))[0] for text in ("Yes.", INJECTION)
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
    assert not any(
        chat_text(engine.loaded.tokenizer, q.text)[:40] in raw for q, raw in zip(prompts, together, strict=True)
    )


def test_free_text_without_room_is_not_asked(engine):
    spec = SPEC.model_copy(update={"ending": "free", "max_new_tokens": 500, "context_switch": 200})
    (reply,) = TextEngine(engine.loaded, spec).ask(judge_prompts(SPEC, SPEECH)[:1], [0])
    assert (reply.judgement.score, reply.judgement.status) == (None, "prompt-too-long")


def test_engine_and_url_must_agree():
    with pytest.raises(ValueError, match="empty one of the two"):
        open_engine(SPEC, server_url="http://localhost:1/v1")
    with pytest.raises(ValueError, match="set server_url"):
        open_engine(SPEC.model_copy(update={"engine": "server", "ending": "free"}))


@pytest.mark.hub
def test_flow_judge_answers():
    spec = read_judge_spec("flow-judge")
    try:
        flow = open_engine(spec)
    except OSError:
        pytest.skip("Flow-Judge is not on this machine: python -m parliabench_utils fetch-models flow-judge")
    (reply,) = flow.ask(judge_prompts(spec, SPEECH)[:1], [0])
    assert not isinstance(flow, WeightedEngine)
    assert 1 <= reply.judgement.score <= 10
