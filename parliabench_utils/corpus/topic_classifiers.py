"""Three ways to find the EuroVoc domain of a speech that no direct mapping reaches (section 3.1 step 4; notebook 02).

`kevlar` asks the REST service of the paper's classifier, `transformers` runs a sequence classifier whose labels are EuroVoc
concepts, micro-thesauri or domains, `embedding` compares the speech with written descriptions of the domains and needs no network
and no training. All three are called in the same way.

>>> classifier = topic_classifier("kevlar", url="http://localhost:8000", model="english")        # doctest: +SKIP
>>> classifier.classify(["I thank the Minister for the new trains."], ["Rail Services"])         # doctest: +SKIP
"""

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from parliabench_utils.corpus.eurovoc import DOMAIN_CODES, concepts, domains_of
from parliabench_utils.run.artefacts import ResumableJsonl, write_text
from parliabench_utils.run.progress import progress
from parliabench_utils.run.project import cache_folder

if TYPE_CHECKING:
    import pandas as pd

CLASSIFIERS = ("embedding", "kevlar", "transformers")
RULES = ("best", "sum")  # the domain of the best concept (the paper's), or the one whose concepts' scores sum highest
KEVLAR_TOKEN = "KEVLAR_TOKEN"  # environment variable: a secret belongs in no parameter file and no manifest
TIMEOUT = 120  # seconds an answer may take
Found = tuple[str | None, float]  # domain and score


class TopicClassifier(Protocol):
    """What `topics.assign_topics` needs: a name for `topic_method`, what fixes an answer, and the answers."""

    name: str
    signature: str

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> "pd.DataFrame":
        """Columns `topic` (domain, None where there is none) and `score`, a row a text; `titles` are the debates' headings."""


def topic_classifier(name: str, encoder: Any = None, url: str = "", model: str = "", rule: str = "best"):
    """The classifier `name`. `encoder` is for embedding, `url` and `model` for kevlar, `model` (path or id) for transformers.

    Raises ValueError where what the classifier needs is not given.
    """
    if name not in CLASSIFIERS or rule not in RULES:
        raise ValueError(f"topic classifier {name!r}, rule {rule!r}: one of {CLASSIFIERS}, one of {RULES}")
    if name == "embedding":
        from parliabench_utils.corpus.topic_embedding import EmbeddingTopics

        return EmbeddingTopics(encoder)
    if not model or (name == "kevlar" and not url):
        raise ValueError(f"topic classifier {name} needs topic_model{' and topic_url' if name == 'kevlar' else ''}")
    return KevlarTopics(url.rstrip("/"), model, rule) if name == "kevlar" else TransformersTopics(model, rule)


@dataclass(frozen=True)
class KevlarTopics:
    """A REST service that answers `POST /api/predict` with concepts and scores, as the paper's classifier KEVLAR does."""

    url: str
    model: str
    rule: str = "best"
    top_k: int = 50
    threads: int = 4
    name: str = field(default="kevlar", init=False)

    @property
    def signature(self) -> str:
        """What fixes an answer, as far as a service can be known."""
        return f"kevlar:{self.url}|model:{self.model}|top_k:{self.top_k}|rule:{self.rule}"

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> "pd.DataFrame":
        """Answers are kept on disk, so a broken run goes on where it stopped. ValueError says what the service refused."""
        return _remembered(self.signature, texts, titles, self._ask_all)

    def _ask_all(self, items: list[tuple[str, str]]) -> Iterator[Found]:
        import httpx

        token = os.environ.get(KEVLAR_TOKEN)
        transport = httpx.HTTPTransport(retries=3)  # new tries where no connection came about
        with (
            httpx.Client(timeout=TIMEOUT, transport=transport, headers={"Token": token} if token else {}) as client,
            ThreadPoolExecutor(self.threads) as pool,
        ):
            try:
                yield from pool.map(lambda item: self._ask(client, *item), items)
            finally:
                pool.shutdown(cancel_futures=True)  # after a refusal, the rest need not be asked

    def _ask(self, client: Any, text: str, title: str) -> Found:
        import httpx

        body = {
            "text": text,
            "title": title,
            "model": self.model,
            "top_k": self.top_k,
            "threshold": 0.0,
            "greedy": False,
        }
        try:
            reply = client.post(f"{self.url}/api/predict", json=body)
        except httpx.TransportError as error:
            raise ConnectionError(
                f"{self.url}: {type(error).__name__} {error}; is the KEVLAR service running?"
            ) from error
        if reply.status_code != 200:
            hint = (
                f"a wrong {KEVLAR_TOKEN}?"
                if reply.status_code == 500
                else f"GET {self.url}/api/models lists its models"
            )
            raise ValueError(f"{self.url}: {reply.status_code} {reply.text[:200]!r} for {text[:40]!r} ({hint})")
        return _choose(_kevlar_scores(reply), self.rule)


def _kevlar_scores(reply: Any) -> list[Found]:
    """(domain, score) of each concept in an answer; the domain from the answer itself, else from our table."""
    try:
        rows = [(str(row["label"]), float(row["score"]), _code(row, "do"), _code(row, "mt")) for row in reply.json()]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{reply.url}: expected a list of label and score, got {reply.text[:200]!r}") from error
    codes = [(do or mt or concepts().get(label, ""))[:2] for label, _, do, mt in rows]
    return [(DOMAIN_CODES.get(code), score) for code, (_, score, _, _) in zip(codes, rows, strict=True)]


def _code(row: dict[str, Any], level: str) -> str:
    return str((row.get(level) or {}).get("label") or "")


@dataclass(frozen=True)
class TransformersTopics:
    """A sequence classifier from a folder or the model hub, read as safetensors; texts are cut where it stops reading."""

    model: str
    rule: str = "best"
    batch_size: int = 16
    name: str = field(default="transformers", init=False)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        from parliabench_utils.models.loading import default_device

        model = AutoModelForSequenceClassification.from_pretrained(self.model, use_safetensors=True)
        return AutoTokenizer.from_pretrained(self.model), model.float().eval().to(default_device())

    @cached_property
    def _domains(self) -> list[str | None]:
        labels = [str(label) for label in self._loaded[1].config.id2label.values()]
        domains = domains_of(labels)
        if not any(domains.values()):
            raise ValueError(f"{self.model}: no label is a EuroVoc concept, micro-thesaurus or domain: {labels[:5]} …")
        return [domains[label] for label in labels]

    @cached_property
    def signature(self) -> str:
        """The model, its weights and labels, and the rule."""
        from parliabench_utils.models.packaged import file_sha256

        config = self._loaded[1].config
        weights = Path(self.model) / "model.safetensors"
        mark = file_sha256(weights)[:16] if weights.is_file() else config._commit_hash
        unknown = self._domains.count(None)
        return f"transformers:{self.model}@{mark}|labels:{len(self._domains)},{unknown} unknown|rule:{self.rule}"

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> "pd.DataFrame":
        """Answers are kept on disk. Scores are probabilities: sigmoid for a multi-label model, softmax else."""
        return _remembered(self.signature, texts, titles, self._predict_all)

    def _predict_all(self, items: list[tuple[str, str]]) -> Iterator[Found]:
        for start in range(0, len(items), self.batch_size):
            for row in self._probabilities(items[start : start + self.batch_size]):
                yield _choose(list(zip(self._domains, row, strict=True)), self.rule)

    def _probabilities(self, items: list[tuple[str, str]]) -> list[list[float]]:
        import torch

        from parliabench_utils.models.encoders import piece_limit

        tokenizer, model = self._loaded
        texts = [f"{title}\n{text}" for text, title in items]
        inputs = tokenizer(
            texts, truncation=True, max_length=piece_limit(tokenizer, model), padding=True, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = model(**inputs.to(model.device)).logits.float()
        several = model.config.problem_type == "multi_label_classification"
        return (logits.sigmoid() if several else logits.softmax(-1)).cpu().tolist()


def _choose(scores: list[Found], rule: str) -> Found:
    """The domain of the best concept, or the one with the highest sum; concepts of unknown domain do not count."""
    totals: dict[str, float] = {}
    for domain, score in scores:
        if domain is not None:
            before = totals.get(domain, 0.0)
            totals[domain] = before + score if rule == "sum" else max(before, score)
    return max(totals.items(), key=lambda item: item[1]) if totals else (None, float("nan"))


def _remembered(signature: str, texts: Sequence[str], titles: Sequence[str], answer: Any) -> "pd.DataFrame":
    """`answer` for what the cache lacks. A text is not asked twice, whatever happens to the run in between.

    The file keeps its `.partial` ending: it is never complete. A second process waits until the first one has its answers.
    """
    import pandas as pd
    from filelock import FileLock

    keys = [_digest(f"{title}\n{text}") for text, title in zip(texts, titles, strict=True)]
    items = {key: item for key, *item in zip(keys, texts, titles, strict=True) if item[0].strip()}
    path = cache_folder("topics") / f"{_digest(signature)[:16]}-v2.jsonl"
    with FileLock(f"{path}.lock"):
        _drop_damaged(path.with_name(f"{path.name}.partial"))
        known = _answered(path, items, answer)
    frame = pd.DataFrame([known.get(key, (None, None)) for key in keys], columns=["topic", "score"], dtype=object)
    return frame.assign(score=frame["score"].astype(float).round(6))


def _answered(path: Path, items: dict[str, list[str]], answer: Any) -> dict[str, Found]:
    """Answers by key, those that the file lacks asked for and added to it."""
    with ResumableJsonl(path, key=("sha256",)) as log:
        missing = {key: tuple(item) for key, item in items.items() if (key,) not in log.done}
        answers = zip(missing, answer(list(missing.values())), strict=True)
        for key, (topic, score) in progress(answers, "Topics", total=len(missing)):
            kept = None if score != score else float(score)  # as JSON has it
            log.append({"sha256": key, "topic": topic, "score": kept, "check": _check(key, topic, kept)})
        return {row["sha256"]: (row["topic"], row["score"]) for row in log.rows}


def _check(*answer: Any) -> str:
    """Of a key and its answer, so that a changed line is found."""
    return _digest(json.dumps(answer))[:16]


def _drop_damaged(file: Path) -> None:
    """Take lines out of a cache file that are not what their hash says: they are asked for again."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    sound = list(dict.fromkeys(line for line in lines if _is_sound(line)))
    if len(sound) < len(lines):
        warnings.warn(f"{len(lines) - len(sound)} cached topics are damaged and are asked for again", stacklevel=2)
        write_text(file, "".join(line + "\n" for line in sound))


def _is_sound(line: str) -> bool:
    try:
        row = json.loads(line)
        return row["check"] == _check(row["sha256"], row["topic"], row["score"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
