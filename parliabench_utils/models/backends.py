"""How the next token is chosen and by whom the model is run: PyTorch here, an OpenAI-compatible server, llama.cpp.

Stock sampling draws one random stream for a whole batch, so that batch size, order and a restart change every text. Here each token
is the argmax of log-probability plus Gumbel noise (which is a draw from the distribution), and the noise is a function of (row seed,
how many tokens the row has, token id). In fp32 a row's text is then the same in any batch; llama.cpp draws by the same rule.

A server (vLLM, llama.cpp, `transformers serve`) is for models too big for this process. `Server` is the one client: notebook 04 uses
it through `ServerModel`, notebook 07 through its judge. Speeches' prompts are sent as token ids, rendered here as everywhere else, so
that a server can neither add a second BOS nor use another template.

    sampling = Sampling(temperature=0.7, top_p=0.85, repetition_penalty=1.2)
    decode_batch(model, prompts, seeds=[11, 12], sampling=sampling, max_new_tokens=200, stop_ids=[2], pad_id=2)
    ServerModel("http://localhost:8000/v1", "a/model").complete([[1, 5]], [11], sampling, 200, ["</s>"])   # [("My Lords, …", "stop")]
"""

import base64
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from parliabench_utils.models.prompting import pad_left
from parliabench_utils.models.specs import ModelSpec, current_sha256, packaged_gguf
from parliabench_utils.run.project import project_root, public_url

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class Sampling:
    """Section 5.3: nucleus sampling. Temperature 0 is greedy decoding, without noise."""

    temperature: float
    top_p: float
    repetition_penalty: float


def _wrapped(constant: int) -> int:
    """A 64-bit constant as PyTorch's signed integer."""
    return constant - 2**64 if constant >= 2**63 else constant


MIX_1, MIX_2, STEP = _wrapped(0xBF58476D1CE4E5B9), _wrapped(0x94D049BB133111EB), _wrapped(0x9E3779B97F4A7C15)


def mix64(x):
    """SplitMix64's finaliser on an int64 tensor: neighbouring counters give unrelated bits (wrapping arithmetic)."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * MIX_1
    x = (x ^ ((x >> 27) & (2**37 - 1))) * MIX_2
    return x ^ ((x >> 31) & (2**33 - 1))


def gumbel_noise(seeds, step: int, token_ids):
    """Standard Gumbel noise, float64 of shape (B, K), for row seeds (B,) and token ids (B, K); stateless."""
    import torch

    row = mix64(mix64(seeds * STEP) + _wrapped(step * STEP % 2**64))  # (B,)
    bits = mix64(row.unsqueeze(1) + token_ids * STEP)  # (B, K)
    uniform = (((bits >> 11) & (2**53 - 1)).double() + 0.5) / 2**53  # in (0, 1), both ends left out
    return -torch.log(-torch.log(uniform))


def penalise_seen(logits, seen, penalty: float):
    """Repetition penalty (Keskar et al., 2019): logits (B, V) at the token ids `seen` (B, K), divided if positive, else multiplied.

    An id may stand in its row more than once.
    """
    import torch

    own = logits.gather(1, seen)  # (B, K): a row's few hundred tokens, not the whole vocabulary
    return logits.scatter(1, seen, torch.where(own > 0, own / penalty, own * penalty))


def draw(logits, seeds, step: int, sampling: Sampling, candidates: int = 1024):
    """One token a row, (B,), from logits (B, V) after temperature and top-p.

    Top-p keeps the smallest set of likeliest tokens that holds at least `top_p`. Only the `candidates` likeliest are looked at.
    """
    import torch

    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    best, ids = logits.topk(min(candidates, logits.shape[-1]), dim=-1)
    top = best[:, :1]  # summed in float64, or the sum of a row would depend on how many rows there are
    total = ((logits - top) / sampling.temperature).exp().sum(dim=-1, keepdim=True, dtype=torch.float64)
    log_p = (best - top).double() / sampling.temperature - total.log()  # (B, candidates), falling
    before = log_p.exp().cumsum(dim=-1) - log_p.exp()  # probability of all likelier tokens
    log_p = log_p.masked_fill(before >= sampling.top_p, float("-inf"))
    drawn = (log_p + gumbel_noise(seeds, step, ids)).argmax(dim=-1, keepdim=True)
    return ids.gather(1, drawn).squeeze(1)


def seen_tokens(prompts: list[list[int]], free: list[int], device):
    """Token ids (B, K) of each prompt but those in `free`, filled up with ids of its own: a row must not depend on its batch.

    ValueError for a prompt of nothing else.
    """
    import torch

    kept = [[token for token in prompt if token not in free] for prompt in prompts]
    if not all(kept):
        raise ValueError("a prompt holds nothing but stop tokens")
    longest = max(map(len, kept))
    return torch.tensor([ids + ids[:1] * (longest - len(ids)) for ids in kept], device=device)


def decode_batch(
    model, prompts: list[list[int]], seeds: list[int], sampling: Sampling, max_new_tokens: int, stop_ids: list[int], pad_id: int
) -> list[tuple[list[int], str]]:
    """New token ids of each prompt and its finish reason, `stop` or `length`; the stop token itself is left out.

    A row that has stopped leaves the batch at once, with its part of the KV cache. Stop tokens are free of the repetition
    penalty: they stand in every prompt as the ends of turns, and a penalty on them only keeps a speech from ending.
    """
    import torch
    from transformers import DynamicCache

    device = next(model.parameters()).device
    ids, mask = (t.to(device) for t in pad_left(prompts, pad_id))  # (B, T)
    positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    stops = torch.tensor(stop_ids, device=device)
    rows, keys = torch.arange(len(prompts), device=device), torch.tensor(seeds, device=device)
    answers, reasons = [[] for _ in prompts], ["length"] * len(prompts)
    cache, seen = DynamicCache(config=model.config), seen_tokens(prompts, stop_ids, device)
    with torch.inference_mode():
        for step in range(max_new_tokens):
            out = model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1)
            logits = penalise_seen(out.logits[:, -1, :].float(), seen, sampling.repetition_penalty)
            token = draw(logits, keys, step, sampling)  # (B,)
            stopped = torch.isin(token, stops)
            for row, new, end in zip(rows.tolist(), token.tolist(), stopped.tolist(), strict=True):
                if end:
                    reasons[row] = "stop"
                else:
                    answers[row].append(new)
            if stopped.all():
                break
            seen = torch.cat([seen, token.unsqueeze(1)], dim=1)
            ids, positions = token.unsqueeze(1), positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(token), 1)], dim=1)
            if stopped.any():
                alive = (~stopped).nonzero().squeeze(1)
                cache.batch_select_indices(alive)
                ids, positions, mask, seen = ids[alive], positions[alive], mask[alive], seen[alive]
                rows, keys = rows[alive], keys[alive]
    return list(zip(answers, reasons, strict=True))


KEYS = ("PARLIABENCH_API_KEY", "OPENAI_API_KEY", "VLLM_API_KEY")  # environment variables; the first that is set is sent
TRIES = 5  # of one request; the waits between them double and are drawn from half to one and a half of that
LONGEST_WAIT = 60.0  # seconds, whatever a server's Retry-After says
UNANSWERED_IN_A_ROW = 20  # then the server is taken for dead: better a stopped run that resumes than thousands of nulls
AGAIN = (408, 425, 429)  # and 5xx: passing faults
UNFIT = (400, 413, 422)  # this prompt is refused, others may pass; any other refusal (key, model, address) stops the run
UNKNOWN_FIELD = re.compile(
    r"unrecogni[sz]ed|unexpected|unknown|unsupported|not (?:permitted|supported|allowed)|extra_forbidden", re.I
)
REMEDY = "start it, or correct `server_url` (the address of the API, such as http://localhost:8000/v1)"
Read = TypeVar("Read")


class ServerStoppedError(RuntimeError):
    """The server cannot be used, or stopped answering; what was made until then is kept, the same command goes on from there."""


class NoAnswerError(RuntimeError):
    """One request got no usable answer, for the reason that the message gives; others may."""


class _PassingFaultError(RuntimeError):
    """(fault, seconds): worth another try, after so many seconds at least."""


def sampling_fields(sampling: Sampling, seed: int, max_new_tokens: int, stop: list[str]) -> dict[str, Any]:
    """Everything that shapes a draw, with what we do not use switched off, so that nothing is left to a server's defaults.

    vLLM fills in what is missing from the model's `generation_config.json`, llama.cpp from its command line (top_k 40, min_p 0.05).
    """
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": -1,  # all, for vLLM and llama.cpp
        "min_p": 0.0,
        "repetition_penalty": sampling.repetition_penalty,  # vLLM's name, then llama.cpp's
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": -1,  # llama.cpp: over the whole text, as the others do
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "typical_p": 1.0,  # llama.cpp's further samplers
        "mirostat": 0,
        "dynatemp_range": 0.0,
        "dry_multiplier": 0.0,
        "xtc_probability": 0.0,
        "seed": seed,
        "max_tokens": max_new_tokens,
        "stop": stop,
        "n": 1,
        "stream": False,
        "skip_special_tokens": False,  # vLLM: or the stop texts and marks of thoughts, which are special tokens, are never seen
    }


def for_transformers(body: dict[str, Any]) -> dict[str, Any]:
    """A request as `transformers serve` takes it: its own names in one JSON text, and no others than it knows.

    It makes a repetition penalty of `frequency_penalty`, so that one is left out.
    """
    own = {"do_sample": body["temperature"] > 0, "top_k": 0, "repetition_penalty": body["repetition_penalty"]}
    if own["do_sample"]:
        own |= {"min_p": body["min_p"], "typical_p": body["typical_p"]}
    kept = ("model", "messages", "prompt", "temperature", "top_p", "seed", "max_tokens", "stop", "stream")
    return {name: body[name] for name in kept if name in body} | {"generation_config": json.dumps(own)}


class Server:
    """One address: its key, its faults, and tries with backoff. `about` names in errors who asks. Used by many threads at once.

    User name and password in the address, and keys, are sent and never shown. `client` is given by tests.
    """

    def __init__(self, url: str, about: str, timeout: float = 600.0, wait: float = 1.0, client: "httpx.Client | None" = None):
        self.url, self.about, self.wait = public_url(url).rstrip("/"), about, wait
        self._secrets: list[str] = []
        self._client = client or self._open(url, timeout)
        self._plain = False  # whether it is `transformers serve`, which refuses fields that it does not know
        self._unanswered, self._lock = 0, threading.Lock()

    def _open(self, url: str, timeout: float) -> "httpx.Client":
        import httpx

        try:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise ValueError("no address of a server")
            user, password, query = unquote(parts.username or ""), unquote(parts.password or ""), dict(parse_qsl(parts.query))
            name = next((name for name in KEYS if os.environ.get(name, "").strip()), None)
            key = os.environ[name].strip() if name and not (user or password) else ""
            if not key.isascii() or not key.isprintable():
                raise ServerStoppedError(f"the environment variable {name} holds characters that no key has: set it again")
            basic = base64.b64encode(f"{user}:{password}".encode()).decode()
            known = (key, password, parts.password or "", basic, *query.values())
            self._secrets = [secret for secret in known if len(secret) > 3]  # shorter ones stand in any text
            return httpx.Client(
                base_url=self.url + "/",
                params=query,
                auth=(user, password) if user or password else None,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx.Timeout(timeout, connect=min(timeout, 30.0)),
                limits=httpx.Limits(max_connections=None),
            )
        except (ValueError, httpx.InvalidURL):
            raise ConnectionError(f"{self.about}: no server answers at {self.url}; {REMEDY}") from None

    def models(self) -> tuple[list[str], str]:
        """Names of the models that it offers, and what the server calls itself. ConnectionError where no such API answers."""
        try:
            offered, headers = self._tried("GET", "models", None, lambda reply: [model["id"] for model in reply["data"]])
        except NoAnswerError as error:
            raise ConnectionError(f"{error}: no OpenAI-compatible API there; {REMEDY}") from error
        return offered, headers.get("server", "unnamed")

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], Read]) -> Read:
        """`read` of the JSON that `path` answers; what `read` cannot read (KeyError, TypeError, …) is an odd reply.

        NoAnswerError where this request has no usable answer after five tries. ServerStoppedError where no other would have one, or
        after 20 without an answer in a row; ConnectionError where nobody answers at all.
        """
        try:
            answer, _ = self._tried("POST", path, body, read)
        except NoAnswerError as error:
            with self._lock:
                self._unanswered += 1
                dead = self._unanswered >= UNANSWERED_IN_A_ROW
            if dead:
                raise ServerStoppedError(f"{UNANSWERED_IN_A_ROW} requests in a row got no answer; the last: {error}") from error
            raise
        with self._lock:
            self._unanswered = 0
        return answer

    def _tried(self, method: str, path: str, body: dict | None, read: Callable[[Any], Read]) -> tuple[Read, Any]:
        """What was read and the reply's headers, after as many tries as it takes, at most `TRIES`."""
        import httpx

        for attempt in range(TRIES):
            after, gone = 0.0, False
            try:
                return self._once(method, path, body, read)
            except httpx.RequestError as error:
                gone = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                fault = f"{type(error).__name__}: {self._shown(str(error))}"
            except _PassingFaultError as error:
                fault, after = error.args
            if attempt < TRIES - 1:
                time.sleep(min(LONGEST_WAIT, max(after, self.wait * 2**attempt * random.uniform(0.5, 1.5))))
        if gone:
            raise ConnectionError(f"{self.about}: no server answers at {self.url} ({fault}); {REMEDY}")
        raise NoAnswerError(f"{self.about}: {self.url}/{path}: {fault} ({TRIES} tries)")

    def _once(self, method: str, path: str, body: dict | None, read: Callable[[Any], Read]) -> tuple[Read, Any]:
        sent = for_transformers(body) if body and self._plain else body
        reply = self._client.request(method, f"{self.url}/{path}", json=sent)
        said = self._shown(reply.text[:2000])
        if reply.status_code in UNFIT and not self._plain and body and "Unexpected fields in the request" in said:
            self._plain = True
            return self._once(method, path, body, read)
        if reply.status_code in AGAIN or reply.status_code >= 500:
            raise _PassingFaultError(f"HTTP {reply.status_code}: {said[:200]}", _retry_after(reply.headers))
        if reply.status_code != 200:
            raise self._refusal(reply.status_code, path, sent or {}, said)
        try:
            return read(reply.json()), reply.headers
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _PassingFaultError(f"unreadable answer ({type(error).__name__}): {said[:200]!r}", 0.0) from error

    def _refusal(self, status: int, path: str, body: dict, said: str) -> RuntimeError:
        """What a refusal means, and what to do."""
        where, says = f"{self.about}: {self.url}/{path} answers HTTP {status}", f"It says: {said[:300]}"
        if status in (401, 403):
            return ServerStoppedError(f"{where}: it wants another key: set {' or '.join(KEYS)} in the environment. {says}")
        if status not in UNFIT:
            return ServerStoppedError(f"{where}: {REMEDY}, or the model's name (`id` in params/models/). {says}")
        named = [name for name in body if re.search(rf"\b{name}\b", said)] if UNKNOWN_FIELD.search(said) else []
        if not named:
            return NoAnswerError(f"{where}, refused: {said[:300]}")
        return ServerStoppedError(
            f"{where}: it refuses {', '.join(named)}, so that its draws would not be the parameters' own; take vLLM, "
            f"llama.cpp or `transformers serve`. {says}"
        )

    def _shown(self, text: str) -> str:
        """`text` without what we keep secret, should a server send it back."""
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return text


def _retry_after(headers: Any) -> float:
    """Seconds that a server asks to wait, in seconds or as a date; 0 where it does not say."""
    said = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", said):
        return float(said)
    try:
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def text_of(content: Any) -> str:
    """A reply's text: a string, none at all, or the text parts of a list. TypeError for anything else."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if part.get("type", "text") in ("text", "output_text"))
    if not isinstance(content, str):
        raise TypeError(f"a reply's content is no text but {type(content).__name__}")
    return content


class ServerModel:
    """One model that a server offers under `name`; `client` is given by a test."""

    def __init__(self, url: str, name: str, client: "httpx.Client | None" = None, wait: float = 1.0):
        self.name = name
        self.server = Server(url, f"model {name!r}", wait=wait, client=client)

    def check(self) -> None:
        """ValueError that lists what the server offers where it does not offer this model: vLLM's LoRA has a name of its own."""
        offered, _ = self.server.models()
        if self.name not in offered:
            raise ValueError(
                f"{self.server.url} does not serve {self.name!r}; it serves {offered} (vLLM: --lora-modules NAME=PATH)"
            )

    def complete(
        self, prompts: list[list[int]], seeds: list[int], sampling: Sampling, max_new_tokens: int, stop: list[str]
    ) -> list[tuple[str, str]]:
        """Text and finish reason (`stop` or `length`) of each prompt, asked for at once; `no-answer: why` where it has none.

        Errors as `Server.post`'s.
        """

        def read(reply: Any) -> tuple[str, str]:
            choice = reply["choices"][0]
            if not isinstance(choice["text"], str):
                raise TypeError("a completion's text is no text")
            return choice["text"], str(choice.get("finish_reason") or "")

        def one(prompt: list[int], seed: int) -> tuple[str, str]:
            body = {"model": self.name, "prompt": prompt} | sampling_fields(sampling, seed, max_new_tokens, stop)
            try:
                return self.server.post("completions", body, read)
            except NoAnswerError as error:
                return "", f"no-answer: {error}"

        with ThreadPoolExecutor(max_workers=len(prompts)) as pool:
            return list(pool.map(one, prompts, seeds))


def gguf_file(spec: ModelSpec) -> Path:
    """The specification's file, the packaged one where `path` is null, with the sha256 that it declares.

    FileNotFoundError names a path that is no file; ValueError one with another hash.
    """
    if spec.path is None:
        return packaged_gguf(spec.sha256)
    file = project_root() / spec.path
    if not file.is_file():
        raise FileNotFoundError(f"params/models/{spec.name}.yaml: path {spec.path!r} is not a GGUF file")
    if spec.sha256 and (found := current_sha256(file)) != spec.sha256:
        raise ValueError(f"params/models/{spec.name}.yaml: sha256 is {spec.sha256}, but {spec.path} has {found}")
    return file


@dataclass
class GgufModel:
    """One GGUF file, for a CPU with llama-cpp-python; `llama` is loaded on first use, or given by a test."""

    file: Path
    context: int = 4096  # tokens of prompt and speech together
    llama: Any = field(default=None, repr=False)

    def complete(
        self, prompts: list[list[int]], seeds: list[int], sampling: Sampling, max_new_tokens: int, stop: list[str]
    ) -> list[tuple[str, str]]:
        """Text and finish reason (`stop` or `length`) of each prompt, one after the other. ImportError says what to install."""
        if self.llama is None:
            if find_spec("llama_cpp") is None:
                remedy = "pip install llama-cpp-python (compiles for some minutes)"
                raise ImportError(f"model file {self.file.name} needs llama-cpp-python: {remedy}")
            from llama_cpp import Llama

            self.llama = Llama(str(self.file), n_ctx=self.context, verbose=False)
        ids = [self.llama.tokenize(text.encode(), add_bos=False, special=True) for text in stop]
        stops = [tokens[0] for tokens in ids if len(tokens) == 1]
        return [self._one(p, s, sampling, max_new_tokens, stops) for p, s in zip(prompts, seeds, strict=True)]

    def _one(self, prompt: list[int], seed: int, sampling: Sampling, most: int, stops: list[int]) -> tuple[str, str]:
        import numpy as np
        import torch

        if len(prompt) + most > self.context:
            raise ValueError(f"a prompt of {len(prompt)} tokens and {most} new ones exceed {self.context}")
        answer, reason, seen = [], "length", seen_tokens([prompt], stops, "cpu")  # (1, K)

        def only_drawn(_, logits: Any) -> Any:
            """`logits` (V,) with all but the token that `draw` takes for this row at minus infinity."""
            row = torch.from_numpy(np.array(logits, dtype=np.float32)).unsqueeze(0)  # (1, V)
            said = torch.cat([seen, torch.tensor([answer], dtype=seen.dtype)], dim=1)
            row = penalise_seen(row, said, sampling.repetition_penalty)
            left = np.full_like(logits, -np.inf)
            left[int(draw(row, torch.tensor([seed]), len(answer), sampling))] = 0.0
            return left

        for token in self.llama.generate(prompt, temp=0.0, repeat_penalty=1.0, logits_processor=[only_drawn]):
            if token in stops:
                reason = "stop"
                break
            answer.append(token)
            if len(answer) == most:
                break
        return self.llama.detokenize(answer, special=True).decode("utf-8", "replace"), reason
