"""Generation by any OpenAI-compatible server (vLLM, llama.cpp, ...), for models too big for this process.

Prompts are sent as token ids, rendered here as everywhere else, so that a server can neither add a second BOS nor use another
template. Notebook 04 uses it for a model file with `source: server` and a `server_url`.

    from parliabench_utils.models.server import ServerModel
    ServerModel("http://localhost:8000/v1", "a/model").complete([[1, 5]], [11], sampling, 200, ["</s>"])   # [("My Lords, …", "stop")]
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parliabench_utils.models.sampling import Sampling


@dataclass
class ServerModel:
    """One model that a server offers under `name`. `client` is made on first use, or given by a test."""

    url: str
    name: str
    client: Any = field(default=None, repr=False)

    def http(self):
        """The client: ten minutes a request, three new tries where no connection came about."""
        if self.client is None:
            import httpx

            self.client = httpx.Client(timeout=600, transport=httpx.HTTPTransport(retries=3))
        return self.client

    def check(self) -> None:
        """ValueError that lists what the server offers where it does not offer this model: vLLM's LoRA has a name of its own."""
        reply = self._request("GET", "models")
        offered = [model["id"] for model in reply.json()["data"]]
        if self.name not in offered:
            raise ValueError(
                f"{self.url} does not serve {self.name!r}; it serves {offered} (vLLM: --lora-modules NAME=PATH)"
            )

    def complete(
        self, prompts: list[list[int]], seeds: list[int], sampling: "Sampling", max_new_tokens: int, stop: list[str]
    ) -> list[tuple[str, str]]:
        """Text and finish reason (`stop` or `length`) of each prompt, asked for at once. Errors as `_request`'s."""

        def one(job: tuple[list[int], int]) -> tuple[str, str]:
            reply = self._request("POST", "completions", json=self._body(*job, sampling, max_new_tokens, stop))
            choice = reply.json()["choices"][0]
            return choice["text"], choice["finish_reason"]

        self.http()  # made once, before the threads share it
        with ThreadPoolExecutor(max_workers=len(prompts)) as pool:
            return list(pool.map(one, zip(prompts, seeds, strict=True)))

    def _request(self, method: str, path: str, **options: Any) -> Any:
        """The reply. ConnectionError with model, URL and remedy where none came; httpx.HTTPStatusError on refusal."""
        import httpx

        try:
            return self.http().request(method, f"{self.url}/{path}", **options).raise_for_status()
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ConnectionError(
                f"model {self.name!r}: no server answers at {self.url} ({type(error).__name__}: {error}); "
                "start it, or correct `server_url` in the model's file in params/models/"
            ) from error

    def _body(
        self, prompt: list[int], seed: int, sampling: "Sampling", max_new_tokens: int, stop: list[str]
    ) -> dict[str, Any]:
        return {
            "model": self.name,
            "prompt": prompt,
            "seed": seed,
            "max_tokens": max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "repetition_penalty": sampling.repetition_penalty,  # vLLM's name, then llama.cpp's; OpenAI's own API has none
            "repeat_penalty": sampling.repetition_penalty,
            "repeat_last_n": -1,  # llama.cpp: over the whole text, as the others do
            "stop": stop,
            "skip_special_tokens": False,  # vLLM: or the stop texts, which are special tokens, are never seen
        }
