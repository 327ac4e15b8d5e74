"""A judge behind an OpenAI-compatible HTTP interface: vLLM, llama.cpp's server, `transformers serve`.

Used by notebook 07 when a judge's file says `engine: server`. Prompts of one speech stand side by side in a batch, so that a
server with a prefix cache reads what they share once.

    ServerEngine(spec, "http://localhost:8000/v1").ask(prompts, seeds)
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from parliabench_utils.metrics.judge_engine import TOO_LONG, Reply, room_for_reply, sampling_text
from parliabench_utils.metrics.judge_parsing import Judgement, parse_judgement
from parliabench_utils.models.judge_prompting import JudgePrompt, JudgeSpec
from parliabench_utils.models.loading import read_model_spec
from parliabench_utils.models.sampling import Sampling
from parliabench_utils.models.server import NoAnswerError, Server, ServerStoppedError, sampling_fields, text_of

__all__ = ["ServerEngine", "ServerStoppedError"]
BYTES_PER_TOKEN = (3, 6)  # English has four to five: bounds for a prompt's length without its tokenizer


class ServerEngine:
    """Asks `batch_size` prompts at once. An item that gets no answer is `no-answer`; errors that end the run as `Server.post`'s."""

    whole_speech = False

    def __init__(self, spec: JudgeSpec, url: str, points: int = 10, timeout: float = 600.0, wait: float = 1.0):
        self.spec, self.points = spec, points
        model = read_model_spec(spec.model) if isinstance(spec.model, str) else spec.model
        self.model_id, self.stop = model.id, model.stop
        drawn = sampling_text(spec, spec.max_new_tokens, points)
        self.signature = f"{spec.name}|server {model.id}|free|{drawn}|no top_k, min_p or penalties"
        self.server = Server(url, f"judge {spec.name!r}", timeout, wait)
        self.versions = f"server {self.server.models()[1]}"

    def ask(self, prompts: list[JudgePrompt], seeds: list[int]) -> list[Reply]:
        """One reply a prompt, in their order."""
        with ThreadPoolExecutor(self.spec.batch_size) as pool:
            return list(pool.map(self._ask_one, prompts, seeds))

    def read(self, raw: str, finish: str = "") -> Judgement:
        """`parse_judgement` on this scale."""
        return parse_judgement(raw, (1, self.points), cut=finish == "length")

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
        body = {"model": self.model_id, "messages": [{"role": "user", "content": prompt.text}]}
        body |= sampling_fields(Sampling(self.spec.temperature, self.spec.top_p, 1.0), seed, room, self.stop)
        try:
            text, finish = self.server.post("chat/completions", body, _message)
        except NoAnswerError as error:
            return Reply(str(error), Judgement(None, "no-answer"))
        return Reply(text, self.read(text, finish), finish)


def _message(reply: Any) -> tuple[str, str]:
    """Text and finish reason of a chat completion."""
    choice = reply["choices"][0]
    return text_of(choice["message"]["content"]), str(choice.get("finish_reason") or "")
