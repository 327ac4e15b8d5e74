"""A judge behind an OpenAI-compatible HTTP interface: vLLM, llama.cpp's server, `transformers serve`.

Used by notebook 07 when a judge's file says `engine: server`. Prompts of one speech stand side by side in a batch, so that a
server with a prefix cache reads what they share once.

    ServerEngine(spec, "http://localhost:8000/v1").ask(prompts, seeds)
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from parliabench_utils.metrics.judge_engine import TOO_LONG, Reply, room_for_reply, sampling_text
from parliabench_utils.metrics.judge_parsing import Judgement, parse_judgement
from parliabench_utils.models.judge_prompting import JudgePrompt, JudgeSpec
from parliabench_utils.models.loading import read_model_spec

REQUESTS = 3  # for one answer; waits double in between
UNANSWERED_IN_A_ROW = 20  # then the server is taken for dead: better a stopped run that resumes than thousands of nulls
BYTES_PER_TOKEN = (3, 6)  # English has four to five: bounds for a prompt's length without its tokenizer
UNFIT = (
    400,
    413,
    422,
)  # this prompt is refused, others may pass; any other refusal (key, model, address) stops the run


class ServerStoppedError(RuntimeError):
    """The server stopped answering; what was judged until then is kept, the same command goes on from there."""


class ServerEngine:
    """Asks `batch_size` prompts at once. An item that gets no answer is `no-answer`; a wrong model name or URL raises."""

    whole_speech = False

    def __init__(self, spec: JudgeSpec, url: str, points: int = 10, timeout: float = 600.0, wait: float = 1.0):
        self.spec, self.points, self.wait = spec, points, wait
        model = read_model_spec(spec.model) if isinstance(spec.model, str) else spec.model
        self.model_id, self.stop = model.id, model.stop
        self.signature = f"{spec.name}|server {model.id}|free|{sampling_text(spec, spec.max_new_tokens, points)}"
        self.client = httpx.Client(base_url=url.rstrip("/") + "/", timeout=timeout)
        self.unanswered = 0
        self.versions = f"server {self._check()}"

    def _check(self) -> str:
        """What the server calls itself. ConnectionError where none answers."""
        try:
            return self.client.get("models").raise_for_status().headers.get("server", "unnamed")
        except httpx.HTTPError as error:
            raise ConnectionError(
                f"judge {self.spec.name!r}: no OpenAI-compatible server answers at {self.client.base_url}models: {error}; "
                "start it, or correct server_url"
            ) from error

    def ask(self, prompts: list[JudgePrompt], seeds: list[int]) -> list[Reply]:
        """One reply a prompt, in their order. ServerStoppedError, with the last fault, after 20 unanswered prompts in a row."""
        with ThreadPoolExecutor(self.spec.batch_size) as pool:
            replies = list(pool.map(self._ask_one, prompts, seeds))
        for reply in replies:
            self.unanswered = self.unanswered + 1 if reply.judgement.status == "no-answer" else 0
            if self.unanswered >= UNANSWERED_IN_A_ROW:
                raise ServerStoppedError(
                    f"{self.client.base_url}: {self.unanswered} judgements in a row got no answer; the last: {reply.raw}"
                )
        return replies

    def read(self, raw: str) -> Judgement:
        """`parse_judgement` on this scale."""
        return parse_judgement(raw, (1, self.points))

    def _room(self, prompt: JudgePrompt) -> int:
        """New tokens to ask for, sure not to cross the context switch; 0 where the prompt may end near it."""
        most, least = (len(prompt.text.encode("utf-8", "replace")) // size for size in BYTES_PER_TOKEN)
        switch = self.spec.context_switch
        near = switch is not None and least <= switch < most
        return 0 if near else room_for_reply(most, self.spec.max_new_tokens, switch)

    def _ask_one(self, prompt: JudgePrompt, seed: int) -> Reply:
        room = self._room(prompt)
        if not room:
            return TOO_LONG
        fault = ""
        for attempt in range(REQUESTS):
            text, fault = self._request(prompt.text, seed, room)
            if text is not None:
                return Reply(text, self.read(text))
            if fault.startswith("refused"):
                break
            if attempt < REQUESTS - 1:
                time.sleep(self.wait * 2**attempt)
        return Reply(fault, Judgement(None, "no-answer"))

    def _request(self, user: str, seed: int, room: int) -> tuple[str | None, str]:
        """(text, "") or (None, what went wrong); httpx.HTTPStatusError where asking again cannot help."""
        body = {
            "model": self.model_id,
            "messages": [{"role": "user", "content": user}],
            "temperature": self.spec.temperature,
            "top_p": self.spec.top_p,
            "max_tokens": room,
            "seed": seed,
            "stop": self.stop,
        }
        try:
            response = self.client.post("chat/completions", json=body)
        except httpx.TransportError as error:
            return None, type(error).__name__
        if response.status_code == 429 or response.status_code >= 500:
            return None, f"HTTP {response.status_code}"
        if response.status_code in UNFIT:
            return None, f"refused, HTTP {response.status_code}: {response.text[:300]}"
        response.raise_for_status()
        try:
            return response.json()["choices"][0]["message"]["content"] or "", ""
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, IndexError, TypeError) as error:
            return None, f"unreadable answer ({type(error).__name__})"
