"""Generation from an OpenAI-compatible server, without one: what is sent, what is made of the replies."""

import json

import httpx
import pytest

from parliabench_utils.metrics.judge_server import ServerEngine
from parliabench_utils.models.judge_prompting import read_judge_spec
from parliabench_utils.models.loading import load_model, read_model_spec
from parliabench_utils.models.sampling import Sampling
from parliabench_utils.models.server import ServerModel

SAMPLING = Sampling(0.7, 0.85, 1.2)


def served(handler) -> ServerModel:
    return ServerModel("http://server/v1", "a/m", httpx.Client(transport=httpx.MockTransport(handler)))


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


def test_a_refusal_is_an_error():
    with pytest.raises(httpx.HTTPStatusError):
        served(lambda request: httpx.Response(500)).complete([[1]], [1], SAMPLING, 5, [])


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


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "localhost:8000/v1", "http://local host/v1"])
def test_an_address_that_is_wrong_is_named(url):
    with pytest.raises(ConnectionError, match=f"'a/m': no server answers at {url}"):
        ServerModel(url, "a/m").check()


def test_a_judge_whose_server_is_not_there_is_named_with_the_remedy():
    spec = read_judge_spec("flow-judge").model_copy(update={"engine": "server"})
    with pytest.raises(ConnectionError, match=r"'flow-judge'.*127\.0\.0\.1:1/v1.*start it, or correct server_url"):
        ServerEngine(spec, "http://127.0.0.1:1/v1")


def test_a_server_can_only_generate():
    spec = read_model_spec("smollm2-135m").model_copy(update={"source": "server", "server_url": "http://server/v1"})
    with pytest.raises(ValueError, match="neither be trained nor score"):
        load_model(spec, purpose="score")
