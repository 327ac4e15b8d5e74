"""Generation from an OpenAI-compatible server, without one: what is sent, what is made of the replies."""

import base64
import json
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from transformers import GenerationConfig

from parliabench_utils.metrics.judge import ServerEngine
from parliabench_utils.metrics.judge_prompts import read_judge_spec
from parliabench_utils.models.backends import (
    KEYS,
    Sampling,
    ServerModel,
    ServerStoppedError,
    _retry_after,
    for_transformers,
    sampling_fields,
)
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.specs import read_model_spec

SAMPLING = Sampling(0.7, 0.85, 1.2)


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
