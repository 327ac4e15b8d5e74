"""Two ways to put a question to a judge in process: a constrained ending, or free text. `judge_server` is the third.

Used by notebook 07 through `metrics.judge`. Every engine has `ask(prompts, seeds) -> list[Reply]` in the prompts' order,
`read(raw, finish) -> Judgement` for a reply that is on disk already, a `signature` with everything that shapes its replies,
`versions`, and `whole_speech`: true when the prompts of one speech are to be asked together, and nothing else with them.

    engine = open_engine(read_judge_spec("smollm2-constrained"))
    engine.ask(judge_prompts(spec, speech), seeds=[0] * 6)[0].judgement.score      # between 1 and 10
"""

import json
from dataclasses import dataclass
from importlib.metadata import version

from parliabench_utils.metrics.judge_parsing import THINKS, Judgement, parse_judgement
from parliabench_utils.models.judge_prompting import JudgePrompt, JudgeSpec
from parliabench_utils.models.loading import LoadedModel, load_model
from parliabench_utils.models.sampling import Sampling, decode_batch
from parliabench_utils.run.project import public_url

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
        from parliabench_utils.metrics.judge_server import ServerEngine

        return ServerEngine(spec, server_url, points)
    if server_url:
        raise ValueError(
            f"judge {spec.name!r} runs in process, but server_url is {public_url(server_url)!r}: empty one of the two"
        )
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


def sampling_text(spec: JudgeSpec, n_tokens: int, points: int) -> str:
    """The part of a signature that says how text is drawn."""
    return f"T={spec.temperature}|top_p={spec.top_p}|new={n_tokens}|switch={spec.context_switch}|points={points}"


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
        drawn = sampling_text(spec, spec.feedback_tokens, points)
        self.signature = f"{spec.name}|{loaded.fingerprint}|{spec.ending}|{drawn}"
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


class TextEngine:
    """Free feedback and a verdict, sampled in process: each row from its own seed, so that its noise is its own.

    In fp32 a row's text does not depend on its batch; in bf16 and 4-bit it may, which the manifest says.
    """

    whole_speech = False

    def __init__(self, loaded: LoadedModel, spec: JudgeSpec, points: int = 10):
        self.loaded, self.spec, self.points = loaded, spec, points
        drawn = sampling_text(spec, spec.max_new_tokens, points)
        self.signature = f"{spec.name}|{loaded.fingerprint}|free|{drawn}"
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

    def read(self, raw: str, finish: str = "") -> Judgement:
        """`parse_judgement` on this scale."""
        return parse_judgement(raw, (1, self.points), cut=finish == "length")


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
