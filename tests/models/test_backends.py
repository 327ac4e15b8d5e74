"""Sampling by row seeds, independent of batch, order and neighbours; OpenAI-compatible servers, without one; GGUF files."""

import base64
import json
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib.util import find_spec

import httpx
import numpy as np
import pytest
import torch
from tiny import tiny_model
from transformers import GenerationConfig

from parliabench_utils.metrics.judge import ServerEngine
from parliabench_utils.metrics.judge_prompts import read_judge_spec
from parliabench_utils.models import backends
from parliabench_utils.models.backends import (
    KEYS,
    GgufModel,
    Sampling,
    ServerModel,
    ServerStoppedError,
    _retry_after,
    decode_batch,
    draw,
    for_transformers,
    gguf_file,
    gumbel_noise,
    penalise_seen,
    sampling_fields,
    seen_tokens,
)
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.specs import load_tokenizer, read_model_spec
from parliabench_utils.run.artefacts import file_sha256

SAMPLING = Sampling(temperature=0.7, top_p=0.85, repetition_penalty=1.2)
PROMPTS = [[1, 5, 9], [1, 7], [1, 3, 4, 8, 11], [1], [1, 20, 21, 22], [1, 6, 6], [1, 2, 30]]
SEEDS = [11, 12, 13, 14, 15, 16, 17]


@pytest.fixture(scope="module")
def model():
    return tiny_model(vocabulary=60)


def decode(model, which, sampling=SAMPLING, new=40):
    prompts, seeds = [PROMPTS[i] for i in which], [SEEDS[i] for i in which]
    return decode_batch(model, prompts, seeds, sampling, new, stop_ids=[2], pad_id=2)


def test_batch_size_and_order_change_nothing(model):
    whole = decode(model, range(7))
    assert [decode(model, [i])[0] for i in range(7)] == whole
    assert decode(model, [6, 2, 4]) == [whole[6], whole[2], whole[4]]
    assert decode(model, range(7)) == whole


def test_rows_stop_on_their_own_and_without_the_stop_token(model):
    answers = decode(model, range(7), new=200)
    assert {reason for _, reason in answers} <= {"stop", "length"}
    assert any(reason == "stop" for _, reason in answers)
    for ids, reason in answers:
        assert 2 not in ids
        assert len(ids) == 200 if reason == "length" else len(ids) < 200


def test_another_seed_gives_another_text(model):
    one = decode_batch(model, [[1, 5]], [1], SAMPLING, 30, [2], 2)
    two = decode_batch(model, [[1, 5]], [2], SAMPLING, 30, [2], 2)
    assert one != two


def test_greedy_is_the_stock_greedy(model):
    greedy = Sampling(temperature=0, top_p=1.0, repetition_penalty=1.0)
    ours, _ = decode_batch(model, [[1, 5, 9]], [0], greedy, 20, [59], 2)[0]
    ids = torch.tensor([[1, 5, 9]])
    stock = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, eos_token_id=59)
    assert ours == [t for t in stock[0, 3:].tolist() if t != 59]


def test_draws_follow_the_distribution():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).repeat(20_000, 1)
    drawn = draw(logits, torch.arange(20_000), 0, Sampling(1.0, 1.0, 1.0))
    shares = torch.bincount(drawn, minlength=3) / 20_000
    assert torch.allclose(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.012)


def test_top_p_keeps_the_smallest_set_that_holds_enough():
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.1]])).repeat(2000, 1)
    assert set(draw(logits, torch.arange(2000), 3, Sampling(1.0, 0.5, 1.0)).tolist()) == {0}
    assert set(draw(logits, torch.arange(2000), 3, Sampling(1.0, 0.85, 1.0)).tolist()) == {0, 1}


def test_noise_is_standard_gumbel_and_the_same_on_every_call():
    noise = gumbel_noise(torch.arange(500), 7, torch.arange(200).repeat(500, 1))
    assert noise.shape == (500, 200)
    assert abs(noise.mean().item() - 0.5772) < 0.02
    assert abs(noise.var().item() - 1.645) < 0.05
    assert torch.equal(noise[3:4, 5:6], gumbel_noise(torch.tensor([3]), 7, torch.tensor([[5]])))


def test_penalty_pushes_seen_tokens_down_on_both_sides_of_zero():
    logits = torch.tensor([[2.0, -2.0, 2.0], [2.0, -2.0, 2.0]])
    seen = torch.tensor([[0, 1, 0], [2, 2, 2]])
    assert penalise_seen(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0], [2.0, -2.0, 1.0]]


def test_padding_and_stop_tokens_do_not_count_as_seen():
    assert seen_tokens([[5, 2, 6], [7]], [2], "cpu").tolist() == [[5, 6], [7, 7]]
    with pytest.raises(ValueError, match="nothing but stop tokens"):
        seen_tokens([[2]], [2], "cpu")


def test_the_short_cuts_of_a_draw_change_no_probability():
    """Against the definition: softmax at a temperature, the smallest set that holds top-p, Gumbel noise."""
    torch.manual_seed(0)
    logits, seeds = torch.randn(64, 300) * 4, torch.arange(64)
    log_p = (logits.double() / 0.7).log_softmax(dim=-1)
    ranked, ids = log_p.sort(dim=-1, descending=True)
    ranked = ranked.masked_fill(ranked.exp().cumsum(dim=-1) - ranked.exp() >= 0.85, float("-inf"))
    expected = ids.gather(1, (ranked + gumbel_noise(seeds, 5, ids)).argmax(dim=-1, keepdim=True)).squeeze(1)
    assert torch.equal(draw(logits, seeds, 5, SAMPLING), expected)


def served(handler) -> ServerModel:
    return ServerModel("http://server/v1", "a/m", httpx.Client(transport=httpx.MockTransport(handler)), wait=0.001)


def answer(text="My Lords.", finish="stop", **more):
    return httpx.Response(200, json={"choices": [{"text": text, "finish_reason": finish}]}, **more)


def test_prompts_go_as_token_ids_with_their_seeds_and_come_back_in_order():
    sent = []

    def reply(request):
        body = json.loads(request.content)
        sent.append(body)
        return httpx.Response(200, json={"choices": [{"text": f"My Lords, {body['seed']}.", "finish_reason": "stop"}]})

    answers = served(reply).complete([[1, 5], [1, 6, 7]], [11, 12], SAMPLING, 200, ["</s>"])
    assert answers == [("My Lords, 11.", "stop"), ("My Lords, 12.", "stop")]
    body = next(b for b in sent if b["seed"] == 12)
    assert body["prompt"] == [1, 6, 7]
    assert (body["temperature"], body["top_p"], body["repetition_penalty"], body["max_tokens"]) == (0.7, 0.85, 1.2, 200)


def test_everything_that_shapes_a_draw_is_sent():
    fields = sampling_fields(SAMPLING, 7, 200, ["</s>"])
    off = {"top_k": -1, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "typical_p": 1, "xtc_probability": 0}
    assert {name: fields[name] for name in off} == off
    assert (fields["seed"], fields["max_tokens"], fields["stop"], fields["repeat_penalty"]) == (7, 200, ["</s>"], 1.2)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_transformers_reads_the_same_draw(temperature):
    body = {"model": "m"} | sampling_fields(Sampling(temperature, 0.85, 1.2), 7, 200, ["</s>"])
    config = GenerationConfig(**json.loads(for_transformers(body)["generation_config"]))
    assert (config.do_sample, config.top_k, config.repetition_penalty) == (temperature > 0, 0, 1.2)


@pytest.mark.parametrize("code", [400, 413, 422, 500, 503])
def test_a_refused_prompt_costs_one_attempt(code):
    def reply(request):
        return httpx.Response(code, text="too long") if json.loads(request.content)["seed"] == 1 else answer()

    first, second = served(reply).complete([[1], [2]], [1, 2], SAMPLING, 5, [])
    assert first[0] == "" and first[1].startswith("no-answer: ") and f"HTTP {code}" in first[1] and "too long" in first[1]
    assert second == ("My Lords.", "stop")


@pytest.mark.parametrize(
    "odd",
    [b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"text": null}]}', b'{"choices": [{"text": 8}]}', b""],
)
def test_an_odd_reply_costs_one_attempt(odd):
    ((text, reason),) = served(lambda request: httpx.Response(200, content=odd)).complete([[1]], [1], SAMPLING, 5, [])
    assert text == "" and "unreadable answer" in reason and "http://server/v1/completions" in reason


@pytest.mark.parametrize("fault", [408, 425, 429, 500, 502, 503, httpx.ReadError("dropped"), httpx.ReadTimeout("slow")], ids=repr)
def test_a_passing_fault_is_tried_again(fault):
    faults = [fault, fault]

    def reply(request):
        if not faults:
            return answer()
        fault = faults.pop()
        if isinstance(fault, Exception):
            raise fault
        return httpx.Response(fault)

    assert served(reply).complete([[1]], [1], SAMPLING, 5, []) == [("My Lords.", "stop")]
    assert not faults


@pytest.mark.parametrize("code", [301, 401, 403, 404, 405])
def test_a_refusal_that_no_prompt_mends_ends_the_run(code):
    calls = []
    with pytest.raises(ServerStoppedError, match=f"'a/m': http://server/v1/completions answers HTTP {code}"):
        served(lambda request: calls.append(1) or httpx.Response(code)).complete([[1]], [1], SAMPLING, 5, [])
    assert len(calls) == 1


def test_a_server_that_answers_nothing_ends_the_run():
    model = served(lambda request: httpx.Response(500, text="down"))
    with pytest.raises(ServerStoppedError, match=r"20 requests in a row got no answer; the last: .*HTTP 500: down"):
        model.complete([[1]] * 25, list(range(25)), SAMPLING, 5, [])


@pytest.mark.parametrize(
    ("said", "least", "most"), [("2", 2, 2), ("7200", 60, 60), ("", 0.5, 1.5), ("soon", 0.5, 1.5), ("-5", 0.5, 1.5)]
)
def test_a_server_says_how_long_to_wait_and_is_heard_within_reason(monkeypatch, said, least, most):
    waits, faults = [], [1]
    monkeypatch.setattr("time.sleep", waits.append)

    def reply(request):
        return httpx.Response(429, headers={"retry-after": said}) if faults and faults.pop() else answer()

    model = served(reply)
    model.server.wait = 1.0
    model.complete([[1]], [1], SAMPLING, 5, [])
    assert least <= waits[0] <= most


def test_waits_double_and_differ(monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    model = served(lambda request: httpx.Response(503))
    model.server.wait = 1.0
    model.complete([[1]], [1], SAMPLING, 5, [])
    assert len(waits) == 4
    assert all(2**n / 2 <= wait <= 2**n * 1.5 for n, wait in enumerate(waits))
    when = datetime.now(UTC) + timedelta(seconds=30)
    assert 25 < _retry_after({"retry-after": format_datetime(when, usegmt=True)}) <= 30


SECRET = "sk-SECRET"


@pytest.fixture
def sent(monkeypatch):
    """Headers that reach a server which says them all back and refuses."""
    seen = []

    def echo(request):
        seen.append(request.headers.get("authorization", ""))
        return httpx.Response(401, text=f"no: {dict(request.headers)} {request.url}")

    opened = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **options: opened(transport=httpx.MockTransport(echo), **options))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return seen


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({}, ""),
        ({"VLLM_API_KEY": "v"}, "Bearer v"),
        ({"VLLM_API_KEY": "v", "OPENAI_API_KEY": "o"}, "Bearer o"),
        ({"VLLM_API_KEY": "v", "OPENAI_API_KEY": "o", "PARLIABENCH_API_KEY": "p"}, "Bearer p"),
        ({"PARLIABENCH_API_KEY": " ", "OPENAI_API_KEY": f"{SECRET}\n"}, f"Bearer {SECRET}"),
    ],
)
def test_the_key_comes_from_the_environment_and_is_never_said(monkeypatch, sent, environment, key):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ServerStoppedError, match="set PARLIABENCH_API_KEY or OPENAI_API_KEY or VLLM_API_KEY") as error:
        ServerModel("http://server/v1", "a/m").check()
    assert sent == [key]
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_credentials_of_an_address_are_sent_and_never_said(monkeypatch, sent):
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    model = ServerModel("http://me:pass%20word@server/v1?token=hidden", "a/m")
    with pytest.raises(ServerStoppedError, match="http://server/v1/models answers HTTP 401") as error:
        model.check()
    assert sent == [f"Basic {base64.b64encode(b'me:pass word').decode()}"]
    said = "".join(traceback.format_exception(error.value)) + repr(model) + repr(vars(model))
    assert not [secret for secret in ("pass word", "pass%20word", "hidden", sent[0]) if secret in said]


def test_a_key_that_is_none_is_refused_without_saying_it(monkeypatch, sent):
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    with pytest.raises(ServerStoppedError, match="OPENAI_API_KEY holds characters") as error:
        ServerModel("http://server/v1", "a/m")
    assert "schl" not in str(error.value)


def test_a_model_that_is_not_served_is_named():
    model = served(lambda request: httpx.Response(200, json={"data": [{"id": "a/other"}]}))
    with pytest.raises(ValueError, match="a/other"):
        model.check()


@pytest.mark.parametrize("call", ["check", "complete"])
def test_a_server_that_is_not_there_is_named_with_its_model_and_the_remedy(call):
    def refuse(request):
        raise httpx.ConnectError("[Errno 111] Connection refused", request=request)

    calls = {"check": (), "complete": ([[1], [2]], [1, 2], SAMPLING, 5, [])}
    with pytest.raises(ConnectionError, match=r"'a/m'.*http://server/v1 .*refused.*start it, or correct `server_url`"):
        getattr(served(refuse), call)(*calls[call])


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "localhost:8000/v1", "http://local host/v1", "ftp://h/v1"])
def test_an_address_that_is_wrong_is_named(url):
    with pytest.raises(ConnectionError, match=f"'a/m': no server answers at {url}"):
        ServerModel(url, "a/m", wait=0.001).check()


@pytest.mark.parametrize(
    "url", ["http://me:SECRET@:x/v1", "http://me:SEC/RET@h/v1", "me:SECRET@h/v1", "http://me:SECRET@127.0.0.1:1/v1"]
)
def test_a_wrong_address_keeps_its_password(url):
    with pytest.raises(ConnectionError) as error:
        ServerModel(url, "a/m", wait=0.001).check()
    assert "SEC" not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("page", [b"<html>It works!</html>", b'{"models": []}', b"[]"])
def test_a_page_that_is_no_api_is_named_with_the_remedy(page):
    with pytest.raises(ConnectionError, match=r"http://server/v1/models.*no OpenAI-compatible API there.*server_url"):
        served(lambda request: httpx.Response(200, content=page)).check()


def test_a_judge_whose_server_is_not_there_is_named_with_the_remedy():
    spec = read_judge_spec("flow-judge").model_copy(update={"engine": "server"})
    with pytest.raises(ConnectionError, match=r"'flow-judge'.*127\.0\.0\.1:1/v1.*start it, or correct `server_url`"):
        ServerEngine(spec, "http://127.0.0.1:1/v1", wait=0.001)


def test_a_server_can_only_generate():
    spec = read_model_spec("smollm2-135m").model_copy(update={"source": "server", "server_url": "http://me:SECRET@server/v1"})
    with pytest.raises(ValueError, match="sha256 cannot be checked for source: server"):
        load_model(spec, purpose="score")
    spec = spec.model_copy(update={"sha256": None})
    with pytest.raises(ValueError, match=r"server \(http://server/v1\); it can neither be trained nor score"):
        load_model(spec, purpose="score")


STOP = 9


class FakeLlama:
    """Ten tokens; the logits depend on the last token only. It takes the likeliest token after the logits processors."""

    def tokenize(self, text, add_bos, special):
        return [STOP] if text == b"<|im_end|>" else [1, 2]

    def generate(self, tokens, temp, repeat_penalty, logits_processor):
        assert (temp, repeat_penalty) == (0.0, 1.0), "the draws are ours"
        ids = list(tokens)
        while True:
            logits = np.random.default_rng(ids[-1]).normal(size=10).astype(np.float32)
            for process in logits_processor:
                logits = process(np.array(ids), logits)
            ids.append(int(logits.argmax()))
            yield ids[-1]

    def detokenize(self, tokens, special):
        return " ".join(map(str, tokens)).encode()


def speak(prompts, seeds, most=30):
    return GgufModel(None, llama=FakeLlama()).complete(prompts, seeds, SAMPLING, most, ["<|im_end|>", "<|endoftext|>"])


def test_rows_depend_on_their_own_seed_alone():
    both = speak([[1, 2], [3]], [11, 12])
    assert both == speak([[1, 2]], [11]) + speak([[3]], [12])
    assert both[0] != speak([[1, 2]], [13])[0]
    for text, reason in both:
        assert str(STOP) not in text.split()
        assert reason in ("stop", "length")


def test_it_ends_at_the_limit():
    text, reason = speak([[1]], [2], most=1)[0]
    assert len(text.split()) <= 1 and reason in ("stop", "length")
    with pytest.raises(ValueError, match="exceed"):
        GgufModel(None, context=8, llama=FakeLlama()).complete([[1] * 6], [1], SAMPLING, 5, [])


def test_without_llama_cpp_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    loaded = load_model("smollm2-135m-gguf", purpose="generate")
    assert "gguf" in loaded.fingerprint
    with pytest.raises(ImportError, match="pip install llama-cpp-python"):
        loaded.model.complete([[1]], [1], SAMPLING, 5, ["<|im_end|>"])


def test_a_gguf_file_neither_trains_nor_takes_an_adapter(tmp_path):
    with pytest.raises(ValueError, match=r"llama\.cpp; it can neither"):
        load_model("smollm2-135m-gguf", purpose="score")
    with pytest.raises(ValueError, match="leave fine-tuned out"):
        load_model("smollm2-135m-gguf", adapter=tmp_path, purpose="generate")
    with pytest.raises(FileNotFoundError, match="not a GGUF file"):
        gguf_file(read_model_spec("smollm2-135m-gguf").model_copy(update={"path": "no/such.gguf"}))


def test_a_declared_sha256_of_a_file_is_checked(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    spec = read_model_spec("smollm2-135m-gguf").model_copy(update={"path": str(tmp_path / "x.gguf")})
    with pytest.raises(ValueError, match="sha256 is b179c9523d0e"):
        gguf_file(spec)
    digest = file_sha256(tmp_path / "x.gguf")
    assert gguf_file(spec.model_copy(update={"sha256": digest})) == tmp_path / "x.gguf"
    with pytest.raises(ValueError, match="sha256"):
        gguf_file(spec.model_copy(update={"path": None, "sha256": "0" * 64}))


def test_its_tokenizer_is_the_packaged_one():
    ours, packaged = load_tokenizer("smollm2-135m-gguf"), load_tokenizer("smollm2-135m")
    assert ours("My Lords, in 2022")["input_ids"] == packaged("My Lords, in 2022")["input_ids"]


def test_the_real_file_speaks():
    if find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed")
    loaded = load_model("smollm2-135m-gguf", purpose="generate")
    ids = loaded.tokenizer("My Lords, I")["input_ids"]
    first = loaded.model.complete([ids, ids], [1, 2], SAMPLING, 12, loaded.spec.stop)
    assert first[0] != first[1]
    assert loaded.model.complete([ids], [2], SAMPLING, 12, loaded.spec.stop) == first[1:]
