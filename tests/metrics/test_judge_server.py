"""A judge over HTTP: a real server on the loopback that answers, breaks and hangs."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from parliabench_utils.metrics.judge import ServerEngine, judge_speeches
from parliabench_utils.metrics.judge_prompts import judge_prompts, read_judge_spec
from parliabench_utils.models.backends import ServerStoppedError
from parliabench_utils.run.artefacts import read_jsonl
from tests.metrics.test_judge_prompting import SPEECH

SPEC = read_judge_spec("flow-judge").model_copy(update={"engine": "server"})
GOOD = "<feedback>Fair.</feedback><score>7</score>"
ANSWER = {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}]}


class Handler(BaseHTTPRequestHandler):
    """Takes the next fault from `server.faults`; without one it answers."""

    def do_GET(self):
        self._send(200, {"data": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            fault = self.server.faults.pop(0) if self.server.faults else self.server.always
        if fault == "hang":
            time.sleep(1.0)
        elif fault == "drop":
            self.connection.shutdown(2)
        elif fault == "fields":
            refusal = 422, {"detail": "Unexpected fields in the request: {'top_k'}"}
            self._send(*(refusal if "top_k" in body else (200, ANSWER)))
        elif isinstance(fault, dict | list):
            self._send(200, fault)
        elif isinstance(fault, int):
            self._send(fault, {"error": "as asked"})
        elif fault == "garbage":
            self._send(200, b"\xff<html>")
        elif fault == "other":
            self._send(200, {"choices": []})
        else:
            self._send(200, {"choices": [{"message": {"content": fault or GOOD}}]})

    def _send(self, code, content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Quiet."""


class BusyServer(ThreadingHTTPServer):
    """As many callers may wait as a judge's batch has: else a busy machine loses some before they are heard."""

    request_queue_size = 128


@pytest.fixture
def server():
    server = BusyServer(("127.0.0.1", 0), Handler)
    server.faults, server.always, server.bodies, server.lock = [], None, [], threading.Lock()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def engine_for(server, **options):
    return ServerEngine(SPEC, f"http://127.0.0.1:{server.server_port}/v1", timeout=0.3, wait=0.01, **options)


def test_answers_in_order_with_the_papers_settings(server):
    replies = engine_for(server).ask(judge_prompts(SPEC, SPEECH), [1, 2, 3, 4, 5, 6])
    assert [(r.judgement.score, r.judgement.feedback) for r in replies] == [(7, "Fair.")] * 6
    body = server.bodies[0]
    assert (body["temperature"], body["max_tokens"], body["model"]) == (0.3, 2000, "flowaicom/Flow-Judge-v0.1")
    assert {b["seed"] for b in server.bodies} == {1, 2, 3, 4, 5, 6}
    assert [m["role"] for m in body["messages"]] == ["user"]


def replying(**choice):
    return {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"} | choice]}


ODD = [
    "garbage",
    "other",
    [],
    {},
    {"choices": None},
    {"choices": [None]},
    {"error": {"message": "overloaded"}},
    replying(message=None),
    replying(message={}),
    replying(message={"content": 8}),
    replying(message={"content": {"score": 8}}),
    replying(message={"content": ["8"]}),
]


def test_everything_that_shapes_a_draw_is_sent(server):
    engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])
    (body,) = server.bodies
    off = {
        "top_k": -1,
        "min_p": 0,
        "repetition_penalty": 1,
        "repeat_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
    }
    assert {name: body[name] for name in off} == off
    assert (body["top_p"], body["seed"], body["stop"]) == (SPEC.top_p, 1, ["<|end|>", "<|assistant|>", "<|endoftext|>"])


def test_a_server_that_knows_few_fields_gets_the_rest_in_its_own_form(server):
    from transformers import GenerationConfig

    server.always = "fields"
    engine = engine_for(server)
    for seed in (1, 2):
        assert engine.ask(judge_prompts(SPEC, SPEECH)[:1], [seed])[0].judgement.score == 7
    assert len(server.bodies) == 3  # asked once too often, then known
    config = GenerationConfig(**json.loads(server.bodies[-1]["generation_config"]))
    assert (config.do_sample, config.top_k, config.min_p, config.repetition_penalty) == (True, 0, 0, 1)
    assert server.bodies[-1]["temperature"] == SPEC.temperature and "frequency_penalty" not in server.bodies[-1]


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_refuses_a_field_is_named_with_it(server, code, monkeypatch):
    monkeypatch.setattr(Handler, "_send", refusing(code, "Unrecognized request arguments supplied: min_p, top_k"))
    with pytest.raises(ServerStoppedError, match=r"127\.0\.0\.1.*HTTP 4.*refuses top_k, min_p.*vLLM"):
        engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])


def refusing(code, text, send=Handler._send):
    return lambda self, _, content: send(self, *((code, {"error": text}) if self.command == "POST" else (200, content)))


@pytest.mark.parametrize("finish, score", [("stop", 8), ("length", None)])
def test_why_a_reply_ended_is_read(server, finish, score):
    server.always = replying(message={"content": "<feedback>Fine.</feedback><score>8"}, finish_reason=finish)
    (reply,) = engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])
    assert (reply.judgement.score, reply.finish) == (score, finish)


@pytest.mark.parametrize(
    "content, status",
    [
        (None, "empty"),
        ([{"type": "text", "text": GOOD}], "ok"),
        ([{"type": "thinking", "thinking": []}, {"type": "text", "text": GOOD}], "ok"),
    ],
)
def test_no_content_and_lists_of_parts_are_read(server, content, status):
    server.always = replying(message={"content": content})
    (reply,) = engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])
    assert reply.judgement.status == status


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_reply_costs_one_judgement(server, odd):
    server.always = ANSWER
    server.faults = [odd] * 5
    first, second = (engine_for(server).ask([q], [1])[0] for q in judge_prompts(SPEC, SPEECH)[:2])
    assert (first.judgement.status, second.judgement.score) == ("no-answer", 7)
    assert f"127.0.0.1:{server.server_port}/v1/chat/completions" in first.raw and "unreadable" in first.raw


@pytest.mark.parametrize("fault", [408, 425, 500, 503, 429, "hang", "drop", "garbage", "other"])
def test_a_passing_fault_is_asked_again(server, fault):
    server.faults = [fault]
    (reply,) = engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])
    assert reply.judgement.score == 7
    assert len(server.bodies) == 2


@pytest.mark.parametrize("fault", [500, "hang", "garbage"])
def test_a_lasting_fault_is_a_failure_with_its_reason(server, fault):
    server.always = fault
    (reply,) = engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])
    assert (reply.judgement.score, reply.judgement.status) == (None, "no-answer")
    assert reply.raw


def test_a_wrong_request_stops_at_once(server):
    server.always = 404
    with pytest.raises(ServerStoppedError, match=r"'flow-judge'.*HTTP 404.*correct `server_url`.*as asked"):
        engine_for(server).ask(judge_prompts(SPEC, SPEECH)[:1], [1])
    assert len(server.bodies) == 1


def test_a_prompt_that_the_server_refuses_is_a_failure_with_its_reason(server):
    server.faults = [400]
    engine = engine_for(server)
    first, second = (engine.ask([q], [1])[0] for q in judge_prompts(SPEC, SPEECH)[:2])
    assert (first.judgement.status, second.judgement.score) == ("no-answer", 7)
    assert "HTTP 400" in first.raw and "as asked" in first.raw
    assert len(server.bodies) == 2  # refused once, not asked again


@pytest.mark.parametrize("n_words, asked", [(100, 2000), (2300, None), (9000, 2000)])
def test_a_reply_surely_stays_on_one_side_of_the_switch(server, n_words, asked):
    speech = SPEECH | {"generated_speech": "words " * n_words}
    (reply,) = engine_for(server).ask(judge_prompts(SPEC, speech)[:1], [1])
    assert [b["max_tokens"] for b in server.bodies] == ([asked] if asked else [])
    assert (reply.judgement.status == "prompt-too-long") == (asked is None)


def test_no_server_is_said_before_judging():
    with pytest.raises(ConnectionError, match=r"'flow-judge': no server answers at http://127.0.0.1:9/v1"):
        ServerEngine(SPEC, "http://127.0.0.1:9/v1", timeout=0.3, wait=0.01)


def test_a_dead_server_stops_the_run_and_resuming_asks_only_the_rest(server, tmp_path):
    path = tmp_path / "rows.jsonl"
    speeches = [SPEECH | {"prompt_id": f"p{n:02d}"} for n in range(14)]
    server.faults = [GOOD] * 30  # the first batch: five speeches of six
    server.always = 500
    with pytest.raises(ServerStoppedError):
        judge_speeches(speeches, SPEC, engine_for(server), path, run_seed=1, max_attempts=1)
    kept = read_jsonl(path.with_name(path.name + ".partial"))
    assert len(kept) == 30
    server.always, server.bodies = None, []
    rows = judge_speeches(speeches, SPEC, engine_for(server), path, run_seed=1, max_attempts=1)
    assert len(server.bodies) == 14 * 6 - 30
    assert [row["score"] for row in rows] == [7] * 84
    assert not path.with_name(path.name + ".partial").exists()


def test_an_unreadable_reply_is_asked_again_with_a_new_seed(server, tmp_path):
    server.always = "I'd rather not say."
    server.faults = ["nonsense"] * 6 + [GOOD] * 5
    rows = judge_speeches([SPEECH], SPEC, engine_for(server), tmp_path / "rows.jsonl", run_seed=1, max_attempts=3)
    assert sorted(row["attempts"] for row in rows) == [2, 2, 2, 2, 2, 3]
    (failed,) = [row for row in rows if row["attempts"] == 3]
    assert (failed["score"], failed["parse_status"], failed["raw"]) == (None, "no-score", "I'd rather not say.")
    assert len({b["seed"] for b in server.bodies}) == len(server.bodies) == 13
