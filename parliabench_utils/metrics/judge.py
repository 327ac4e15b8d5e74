"""Ask a judge about speeches and keep every answer: prompt, call, parse, retry, one row a dimension (paper section 10).

Used by notebook 07. Rows go to disk as they come, so that a killed run goes on where it stopped; a judgement that fails has the score
null and its reason, and is never averaged. Three engines: a constrained ending or free text in process, and free text from an
OpenAI-compatible server. Each has `ask(prompts, seeds) -> list[Reply]` in the prompts' order, `read(raw, finish) -> Judgement` for a
reply that is on disk already, a `signature` with everything that shapes its replies, `versions`, and `whole_speech`: true when the
prompts of one speech are to be asked together, and nothing else with them.

    spec = read_judge_spec("smollm2-constrained")
    rows = judge_speeches(speeches, spec, open_engine(spec), path, run_seed=42)
"""

import hashlib
import json
import os
import uuid
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parliabench_utils.metrics.judge_prompts import (
    DIMENSIONS,
    THINKS,
    Judgement,
    JudgePrompt,
    JudgeSpec,
    judge_prompts,
    parse_judgement,
)
from parliabench_utils.metrics.speeches import generated_rows
from parliabench_utils.models.backends import NoAnswerError, Sampling, Server, decode_batch, sampling_fields, text_of
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.specs import LoadedModel, read_model_spec
from parliabench_utils.run.artefacts import ResumableJsonl, Row, read_jsonl
from parliabench_utils.run.notebook import progress
from parliabench_utils.run.project import cache_folder, public_url
from parliabench_utils.run.record import row_seed

LAYOUT = 2  # raise it when a line is written otherwise, or an engine answers otherwise under the same signature


class JudgementCache:
    """All replies of one engine (its signature, which names weights and parameters, and its libraries' versions), in whatever run.

    Each process appends to a file of its own, so that there is nothing to lock, and reads everybody's. What is kept is the raw reply
    with a hash: it is read anew each time, a line that is not what its hash says is counted in `damaged` and asked again, and a line
    that a kill cut short is passed over.
    """

    def __init__(self, engine):
        name = hashlib.sha256(f"{LAYOUT}\n{engine.signature}\n{engine.versions}".encode()).hexdigest()[:16]
        self.folder = cache_folder("judgements") / name
        self._own = self.folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self._replies: dict[str, tuple[str, str]] = {}
        self.used = self.damaged = 0
        for file in sorted(self.folder.glob("*.jsonl")):
            self._read(file)
        if self.damaged:
            warnings.warn(f"{self.damaged} cached replies are damaged and are asked for again", stacklevel=2)

    def get(self, prompt: JudgePrompt, seed: int) -> tuple[str, str] | None:
        """The raw reply to this prompt with this seed and why it ended, or None where it has not been asked."""
        return self._replies.get(_key(prompt, seed))

    def put(self, prompt: JudgePrompt, seed: int, raw: str, finish: str = "") -> None:
        """Keep a reply; the folder is made again where somebody deleted it."""
        key = _key(prompt, seed)
        self._replies[key] = raw, finish
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._own.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, raw, finish, _digest(key, raw, finish)]) + "\n")

    def _read(self, file: Path) -> None:
        """The whole lines of a file, each held against its hash."""
        *lines, _ = file.read_text(encoding="utf-8", errors="replace").split("\n")  # the last is empty, or cut by a kill
        for line in lines:
            try:
                key, raw, finish, digest = json.loads(line)
                good = digest == _digest(key, raw, finish)
            except (ValueError, TypeError, RecursionError):
                good = False
            if good:
                self._replies[key] = raw, finish
            else:
                self.damaged += 1


def _key(prompt: JudgePrompt, seed: int) -> str:
    return f"{prompt.sha256}-{seed}"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


MIN_NEW_TOKENS = 100  # a verdict with a sentence of reason; with less room a prompt is too long to be asked
CUT = "\x1e"  # marks the end of the shared part inside a rendered chat; `as_data` removes it from speeches


@dataclass(frozen=True)
class Reply:
    """A judge's reply: raw text as kept on disk, how it reads, and why it ended (`stop`, `length`; empty where nobody says)."""

    raw: str
    judgement: Judgement
    finish: str = ""


TOO_LONG = Reply("", Judgement(None, "prompt-too-long"))


def open_engine(spec: JudgeSpec, points: int = 10, server_url: str = ""):
    """The engine that a judge's file asks for, loaded and ready. ValueError where `server_url` and the file disagree."""
    if spec.engine == "server":
        if not server_url:
            raise ValueError(f"judge {spec.name!r} runs on a server: set server_url, e.g. http://localhost:8000/v1")
        return ServerEngine(spec, server_url, points)
    if server_url:
        raise ValueError(f"judge {spec.name!r} runs in process, but server_url is {public_url(server_url)!r}: empty one of the two")
    loaded = load_model(spec.model, precision=spec.precision)
    return (TextEngine if spec.ending == "free" else ConstrainedEngine)(loaded, spec, points)


def room_for_reply(n_prompt: int, max_new_tokens: int, context_switch: int | None) -> int:
    """New tokens that may follow a prompt so that prompt and reply stay on one side of `context_switch`; 0 = don't ask.

    Phi-3 changes its position factors at 4,096 tokens in all; engines that do not rebuild their cache there write gibberish.
    """
    if context_switch is None or n_prompt > context_switch:
        return max_new_tokens
    room = min(max_new_tokens, context_switch - n_prompt)
    return room if room >= min(MIN_NEW_TOKENS, max_new_tokens) else 0


def _signature(spec: JudgeSpec, who: str, n_tokens: int, points: int) -> str:
    """Everything that shapes a reply."""
    drawn = f"T={spec.temperature}|top_p={spec.top_p}|new={n_tokens}|switch={spec.context_switch}|points={points}"
    return f"{spec.name}|{who}|{spec.ending}|{drawn}"


def library_versions() -> str:
    """What computes in process, with versions, for every row."""
    return ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "bitsandbytes"))


class ConstrainedEngine:
    """After `<score>` only 1 to `points` may follow: the likeliest, or the mean weighted by the model's probabilities.

    Before it stands free feedback of up to `feedback_tokens` tokens, or none. The shared prefix of the six prompts is computed once.
    Prefix and rest are joined as token ids: joined as text, the tokeniser would merge across the seam. One speech is one batch,
    whatever else is judged, so that a resumed run computes exactly what an undisturbed one would. Seeds matter to feedback only.
    """

    whole_speech = True

    def __init__(self, loaded: LoadedModel, spec: JudgeSpec, points: int = 10):
        self.loaded, self.spec, self.points = loaded, spec, points
        self.signature = _signature(spec, loaded.fingerprint, spec.feedback_tokens, points)
        self.versions = library_versions()
        self.digits, self.zero, self.close = self._score_tokens()

    def _score_tokens(self) -> tuple[list[int], int | None, int]:
        """Token ids of 1 to 9 (or fewer), of the 0 in 10, and of what follows a finished number."""
        encode = self.loaded.tokenizer.encode
        ids = [encode(str(n), add_special_tokens=False) for n in range(1, self.points + 1)]
        close = encode("</score>", add_special_tokens=False)[0]
        singles = [i[0] for i in ids if len(i) == 1]
        if len(singles) == self.points:
            return singles, None, close
        if self.points != 10 or len(singles) != 9 or len(ids[9]) != 2 or ids[9][0] != ids[0][0]:
            raise ValueError(f"{self.loaded.spec.name}: its tokens for 1 to {self.points} are {ids}; use ending: free")
        return singles, ids[9][1], close

    def ask(self, prompts: list[JudgePrompt], seeds: list[int]) -> list[Reply]:
        """Replies to the prompts of one speech; `raw` is the distribution as JSON. ValueError for several speeches."""
        if len({prompt.shared for prompt in prompts}) != 1:
            raise ValueError("the constrained ending is asked one speech at a time")
        feedback = self._feedback(prompts, seeds) if self.spec.feedback_tokens else [""] * len(prompts)
        shared, rests = self._token_ids(prompts, feedback)
        if self.spec.context_switch and len(shared) + max(map(len, rests)) > self.spec.context_switch:
            return [TOO_LONG] * len(prompts)
        return [self._reply(row, text) for row, text in zip(self._distribution(shared, rests), feedback, strict=True)]

    def _reply(self, probabilities, feedback: str) -> Reply:
        record = {str(n): round(float(p), 6) for n, p in enumerate(probabilities, start=1)}
        raw = json.dumps(record | ({"feedback": feedback} if feedback else {}), ensure_ascii=False)
        return Reply(raw, self.read(raw))

    def read(self, raw: str, finish: str = "") -> Judgement:
        """The score that follows from a reply's distribution, at 6 decimals."""
        record = json.loads(raw)
        feedback = record.pop("feedback", "")
        if self.spec.ending == "weighted":
            mean = sum(int(n) * p for n, p in record.items()) / sum(record.values())
            return Judgement(round(mean, 6), "ok-weighted", feedback)
        return Judgement(float(max(record, key=record.get)), "ok", feedback)

    def _feedback(self, prompts: list[JudgePrompt], seeds: list[int]) -> list[str]:
        """Free feedback of each prompt, cut where the judge closes it or begins a verdict."""
        ids = [_encoded(self.loaded, q.text, "<feedback>") for q in prompts]
        texts = _generated(self.loaded, self.spec, ids, seeds, self.spec.feedback_tokens, plain=True)
        return [text.split("</feedback>")[0].split("<score>")[0].strip() for text, _ in texts]

    def distribution(self, prompts: list[JudgePrompt]):
        """Probabilities of 1 to `points` without feedback, shape (n_prompts, points), rows sum to 1."""
        return self._distribution(*self._token_ids(prompts, [""] * len(prompts)))

    def _distribution(self, shared: list[int], rests: list[list[int]]):
        """As a decoder restricted to this grammar would choose: first among the digits, then, after "1", between "0" and the
        end of the number. So P(1) = P("1") P(end | "1") and P(10) = P("1") P("0" | "1").
        """
        import torch

        at_digit, after_one = self._logits(shared, rests)
        digit = torch.softmax(at_digit[:, self.digits].double(), dim=-1)
        if self.zero is None:
            return digit
        ten = torch.softmax(after_one[:, [self.close, self.zero]].double(), dim=-1)[:, 1:]
        return torch.cat([digit[:, :1] * (1 - ten), digit[:, 1:], digit[:, :1] * ten], dim=1)

    def _logits(self, shared: list[int], rests: list[list[int]]):
        """Next-token logits after `<score>` and after `<score>1`, each (n_prompts, n_vocabulary), from one pass."""
        import torch

        model, device = self.loaded.model, self.loaded.device
        longest = max(map(len, rests))
        rest = torch.full((len(rests), longest), self.loaded.tokenizer.pad_token_id)
        mask = torch.zeros((len(rests), len(shared) + longest), dtype=torch.long)
        for row, ids in enumerate(rests):
            rest[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(shared) + len(ids)] = 1
        with torch.inference_mode():
            past = model.base_model(torch.tensor([shared], device=device), use_cache=True).past_key_values
            past.batch_repeat_interleave(len(rests))
            states = model.base_model(
                rest.to(device), attention_mask=mask.to(device), past_key_values=past
            ).last_hidden_state  # (n_prompts, longest, n_hidden)
            last = torch.tensor([len(ids) for ids in rests], device=device) - 1
            rows = torch.arange(len(rests), device=device)
            head = model.get_output_embeddings()
            return head(states[rows, last - 1]).float(), head(states[rows, last]).float()

    def _token_ids(self, prompts: list[JudgePrompt], feedback: list[str]) -> tuple[list[int], list[list[int]]]:
        """Ids of the shared part and of each rest; a rest ends in `<score>` and the digit 1, whose place is read twice."""
        tokenizer = self.loaded.tokenizer
        parts = [chat_text(tokenizer, prompt.shared + CUT + prompt.own).split(CUT) for prompt in prompts]
        shared = tokenizer.encode(parts[0][0], add_special_tokens=False)
        given = [f"<feedback>{text}</feedback>\n" if text else "" for text in feedback]
        endings = [own + text + "<score>" for (_, own), text in zip(parts, given, strict=True)]
        return shared, [[*tokenizer.encode(text, add_special_tokens=False), self.digits[0]] for text in endings]


class _FreeText:
    """What engines share whose replies are free text, each row by itself."""

    whole_speech = False
    points: int

    def read(self, raw: str, finish: str = "") -> Judgement:
        """`parse_judgement` on this scale."""
        return parse_judgement(raw, (1, self.points), cut=finish == "length")


class TextEngine(_FreeText):
    """Free feedback and a verdict, sampled in process: each row from its own seed, so that its noise is its own.

    In fp32 a row's text does not depend on its batch; in bf16 and 4-bit it may, which the manifest says.
    """

    def __init__(self, loaded: LoadedModel, spec: JudgeSpec, points: int = 10):
        self.loaded, self.spec, self.points = loaded, spec, points
        self.signature = _signature(spec, loaded.fingerprint, spec.max_new_tokens, points)
        self.versions = library_versions()

    def ask(self, prompts: list[JudgePrompt], seeds: list[int]) -> list[Reply]:
        """One reply a prompt; a prompt without room for a reply is `prompt-too-long`.

        Prompts with the same room on the same side of the context switch are one batch: Phi-3 takes its factors from a batch's
        longest row, so that a longer neighbour would change a reply.
        """
        ids = [_encoded(self.loaded, q.text) for q in prompts]
        thinking = opened_thoughts(self.loaded.tokenizer)
        switch, most = self.spec.context_switch, self.spec.max_new_tokens
        batches: dict[tuple[int, bool], list[int]] = {}
        for n, prompt in enumerate(ids):
            batches.setdefault((room_for_reply(len(prompt), most, switch), len(prompt) > (switch or 0)), []).append(n)
        replies = [TOO_LONG] * len(prompts)
        for (room, _), rows in batches.items():
            if room:
                raws = _generated(self.loaded, self.spec, [ids[n] for n in rows], [seeds[n] for n in rows], room)
                for n, (text, finish) in zip(rows, raws, strict=True):
                    raw = thinking + text
                    replies[n] = Reply(raw, self.read(raw, finish), finish)
        return replies


def _encoded(loaded: LoadedModel, user: str, answer: str = "") -> list[int]:
    """Token ids of one user turn and the beginning of the answer."""
    return loaded.tokenizer.encode(chat_text(loaded.tokenizer, user) + answer, add_special_tokens=False)


def _generated(
    loaded: LoadedModel, spec: JudgeSpec, ids: list[list[int]], seeds: list[int], limit: int, plain: bool = False
) -> list[tuple[str, str]]:
    """Newly generated text without the prompt, and why it ended. Some families mark their thoughts by special tokens: they stay,
    but for `plain` text, which is put into a prompt again.
    """
    tokenizer, sampling = loaded.tokenizer, Sampling(spec.temperature, spec.top_p, 1.0)
    stops = tokenizer.convert_tokens_to_ids(loaded.spec.stop)
    new = decode_batch(loaded.model, ids, seeds, sampling, limit, stops, tokenizer.pad_token_id)
    return [(tokenizer.decode(answer, skip_special_tokens=plain), finish) for answer, finish in new]


def chat_text(tokenizer, user: str) -> str:
    """One user turn in the model's chat template, open for the assistant's answer."""
    turn = [{"role": "user", "content": user}]
    return tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)


def opened_thoughts(tokenizer) -> str:
    """The mark that begins thoughts, where the chat template itself ends in it; else nothing."""
    prompt = chat_text(tokenizer, "").rstrip()
    return next((mark.group() for mark in THINKS.finditer(prompt) if mark.end() == len(prompt)), "")


BYTES_PER_TOKEN = (3, 6)  # English has four to five: bounds for a prompt's length without its tokenizer


class ServerEngine(_FreeText):
    """A judge behind an OpenAI-compatible HTTP interface: vLLM, llama.cpp's server, `transformers serve`.

    Asks `batch_size` prompts at once; those of one speech stand side by side, so that a server with a prefix cache reads what they
    share once. An item that gets no answer is `no-answer`; errors that end the run are `Server.post`'s.
    """

    def __init__(self, spec: JudgeSpec, url: str, points: int = 10, timeout: float = 600.0, wait: float = 1.0):
        self.spec, self.points = spec, points
        model = read_model_spec(spec.model) if isinstance(spec.model, str) else spec.model
        self.model_id, self.stop = model.id, model.stop
        drawn = _signature(spec, f"server {model.id}", spec.max_new_tokens, points)
        self.signature = f"{drawn}|no top_k, min_p or penalties"
        self.server = Server(url, f"judge {spec.name!r}", timeout, wait)
        self.versions = f"server {self.server.models()[1]}"

    def ask(self, prompts: list[JudgePrompt], seeds: list[int]) -> list[Reply]:
        """One reply a prompt, in their order."""
        with ThreadPoolExecutor(self.spec.batch_size) as pool:
            return list(pool.map(self._ask_one, prompts, seeds))

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


NOT_THE_JUDGES = ("no-answer", "prompt-too-long")  # statuses without a reply of the judge


@dataclass(frozen=True)
class Question:
    """A prompt, the columns that name its row, and what its seed is drawn from besides the run's seed and the attempt."""

    ids: Row
    prompt: JudgePrompt
    seed_ids: tuple
    use_cache: bool = True  # false where the question is whether the judge says the same again


def speeches_of(folder: Path, model: str, kind: str) -> list[Row]:
    """What (model, type) said, with the context fields of its prompt: rows of stage 04 joined to `prompts.jsonl` by id.

    `folder` is the run's; prompts that got no valid speech are left out. Errors as in `selection.generated_rows`.
    """
    prompts = {row["prompt_id"]: row for row in read_jsonl(folder / "02_dataset/prompts.jsonl")}
    spoken = [row for row in generated_rows(folder, model, kind) if row["generated_speech"]]
    return [prompts[row["prompt_id"]] | row for row in spoken]


def judge_speeches(
    speeches: list[Row], spec: JudgeSpec, engine, path: Path, run_seed: int, points: int = 10, max_attempts: int = 3,
    label: str = "Judging", cache: JudgementCache | None = None,
) -> list[Row]:  # fmt: skip
    """Judge all six dimensions of each speech into the JSONL file `path`; what is there already is not asked again.

    A reply without a score is asked again with a new seed, at most `max_attempts` times in all. Returns the rows by prompt, variant
    and section 10's order of dimensions: `prompt_id, variant, dimension` and the columns of `ask_all`.
    """
    ordered = sorted(speeches, key=lambda s: (s["prompt_id"], s["variant"]))
    groups = [[speech_question(s, prompt) for prompt in judge_prompts(spec, s, points)] for s in ordered]
    return ask_all(groups, engine, path, run_seed, max_attempts, spec.batch_size, label, cache)


def speech_question(speech: Row, prompt: JudgePrompt, **more) -> Question:
    """The question about one dimension of a speech; `more` are columns in front of its ids."""
    ids = {"prompt_id": speech["prompt_id"], "variant": speech["variant"], "dimension": prompt.dimension}
    return Question(more | ids, prompt, tuple(ids.values()))


def ask_all(
    groups: Sequence[list[Question]], engine, path: Path, run_seed: int, max_attempts: int = 1, batch_size: int = 32,
    label: str = "Judging", cache: JudgementCache | None = None,
) -> list[Row]:  # fmt: skip
    """Ask groups of questions (each about one speech) into the JSONL file `path`, in their order, resuming what is there.

    Columns after the ids: `score, parse_status, feedback, raw, finish_reason, prompt_sha256, attempts, seed, earlier` (status, raw
    text and seed of failed attempts), `engine, versions`.
    """
    key = tuple(groups[0][0].ids) if groups else ("prompt_id",)
    place = {tuple(q.ids.values()): n for n, q in enumerate(q for group in groups for q in group)}
    with ResumableJsonl(path, key=key) as log:
        if stray := log.done - place.keys():
            raise ValueError(f"{path} holds other judgements than were asked for, such as {min(stray)}: delete it")
        missing = [group for group in groups if any(tuple(q.ids.values()) not in log.done for q in group)]
        size = 1 if engine.whole_speech else max(1, batch_size // len(DIMENSIONS))
        for batch in progress([missing[i : i + size] for i in range(0, len(missing), size)], label):
            questions = [q for group in batch for q in group]
            # a speech cut in half by a kill is computed whole again: its rows depend, in their last digits, on its batch
            if not engine.whole_speech:
                questions = [q for q in questions if tuple(q.ids.values()) not in log.done]
            for row in _answers(questions, engine, run_seed, max_attempts, cache):
                if tuple(row[k] for k in key) not in log.done:
                    log.append(row)
        log.finish(lambda row: place[tuple(row[k] for k in key)])
        return log.rows


def _answers(questions: list[Question], engine, run_seed: int, max_attempts: int, cache: JudgementCache | None) -> Iterator[Row]:
    """One row a question, in their order, after as many attempts as each needs."""
    rows: dict[int, Row] = {}
    waiting = list(range(len(questions)))
    for attempt in range(1, max_attempts + 1):
        seeds = [row_seed(run_seed, *questions[i].seed_ids, attempt) for i in waiting]
        replies = _replies([questions[i] for i in waiting], seeds, engine, cache)
        for i, seed, reply in zip(waiting, seeds, replies, strict=True):
            rows[i] = _row(questions[i], reply, attempt, seed, engine, rows.get(i))
        waiting = [i for i in waiting if rows[i]["score"] is None and rows[i]["parse_status"] != "prompt-too-long"]
        if not waiting:
            break
    return (rows[i] for i in range(len(questions)))


def _replies(questions: list[Question], seeds: list[int], engine, cache: JudgementCache | None) -> list[Reply]:
    """Replies from the cache, and from the engine for the rest; a speech that is one batch comes from one of them as a whole."""
    pairs = list(zip(questions, seeds, strict=True))
    known = [cache.get(q.prompt, seed) if cache and q.use_cache else None for q, seed in pairs]
    if engine.whole_speech and None in known:
        known = [None] * len(pairs)
    asked = [pair for pair, kept in zip(pairs, known, strict=True) if kept is None]
    fresh = iter(engine.ask([q.prompt for q, _ in asked], [seed for _, seed in asked]) if asked else [])
    replies = [next(fresh) if kept is None else Reply(kept[0], engine.read(*kept), kept[1]) for kept in known]
    for (question, seed), kept, reply in zip(pairs, known, replies, strict=True):
        if cache and kept is not None:
            cache.used += 1
        elif cache and question.use_cache and reply.judgement.status not in NOT_THE_JUDGES:
            cache.put(question.prompt, seed, reply.raw, reply.finish)
    return replies


def _row(question: Question, reply: Reply, attempt: int, seed: int, engine, before: Row | None) -> Row:
    failed = [{key: before[key] for key in ("parse_status", "raw", "seed")}] if before else []
    judged = {"score": reply.judgement.score, "parse_status": reply.judgement.status, "feedback": reply.judgement.feedback}
    asked = {"raw": reply.raw, "finish_reason": reply.finish, "prompt_sha256": question.prompt.sha256, "attempts": attempt}
    kept = {"seed": seed, "earlier": (before["earlier"] if before else []) + failed}
    return question.ids | judged | asked | kept | {"engine": engine.signature, "versions": engine.versions}
