"""The topic of a speech as one of EuroVoc's 21 domains (section 3.1 step 4, Table 4, appendix 9.2; notebook 02).

Table 4 maps 13 of the corpus's CAP topics directly; for the rest a classifier decides. `kevlar` asks the REST service of the paper's
classifier, `transformers` runs a sequence classifier whose labels are EuroVoc concepts, micro-thesauri or domains, `embedding`
compares the speech and its heading with written descriptions of the domains and needs no network and no training. On the embedded
corpus's directly mapped categories `embedding` finds the mapped domain in 67 % of the speeches: 69 % where weights and words were
chosen (half of the debates), 65 % in the other half; guessing finds 5 %. On real speeches under headings that we labelled by hand
it is right in 76 % (`python -m benchmarks.topics`).

>>> CAP_TO_EUROVOC["Transportation"], CAP_TO_EUROVOC["Health"]
('Transport', None)
>>> classifier = topic_classifier("kevlar", url="http://localhost:8000", model="english")        # doctest: +SKIP
>>> classifier.classify(["I thank the Minister for the new trains."], ["Rail Services"])         # doctest: +SKIP
"""

import csv
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from parliabench_utils.run.artefacts import ResumableJsonl, write_text
from parliabench_utils.run.notebook import progress
from parliabench_utils.run.project import cache_folder

DOMAIN_CODES = {  # in Table 11's words
    "04": "Politics",
    "08": "International Relations",
    "10": "European Union",
    "12": "Law",
    "16": "Economics",
    "20": "Trade",
    "24": "Finance",
    "28": "Social Questions",
    "32": "Education and Communications",
    "36": "Science",
    "40": "Business and Competition",
    "44": "Employment and Working Conditions",
    "48": "Transport",
    "52": "Environment",
    "56": "Agriculture, Forestry and Fisheries",
    "60": "Agri-Foodstuffs",
    "64": "Production, Technology and Research",
    "66": "Energy",
    "68": "Industry",
    "72": "Geography",
    "76": "International Organisations",
}
EUROVOC_DOMAINS = tuple(sorted(DOMAIN_CODES.values()))
# ParlaMint-taxonomy-topic (5.0): id -> CAP major topic, and its domain where Table 4 maps it. `argic` is upstream's spelling.
_CAP = {
    "argic": ("Agriculture", "Agriculture, Forestry and Fisheries"),
    "civil": ("Civil Rights", None),
    "cultu": ("Culture", None),
    "defen": ("Defense", None),
    "domes": ("Domestic Commerce", None),
    "educa": ("Education", "Education and Communications"),
    "energ": ("Energy", "Energy"),
    "envir": ("Environment", "Environment"),
    "trade": ("Foreign Trade", "Trade"),
    "gover": ("Government Operations", "Politics"),
    "healt": ("Health", None),
    "housi": ("Housing", None),
    "immig": ("Immigration", None),
    "inter": ("International Affairs", "International Relations"),
    "labor": ("Labor", "Employment and Working Conditions"),
    "lawcr": ("Law and Crime", "Law"),
    "macro": ("Macroeconomics", "Economics"),
    "mixed": ("Mix", None),
    "other": ("Other", None),
    "lands": ("Public Lands", None),
    "welfa": ("Social Welfare", "Social Questions"),
    "techn": ("Technology", "Production, Technology and Research"),
    "trans": ("Transportation", "Transport"),
}
CAP_TOPICS = {key: name for key, (name, _) in _CAP.items()}
CAP_TO_EUROVOC = dict(_CAP.values())  # Table 4: 13 direct mappings; None = the classifier decides
UNREACHABLE = tuple(name for name in EUROVOC_DOMAINS if name not in CAP_TO_EUROVOC.values())  # by a direct mapping: eight of 21


# --- EuroVoc's three levels: concept -> micro-thesaurus -> domain -------------------------------------------------------
def _table(name: str) -> list[list[str]]:
    """The rows of a file in `eurovoc/`: the levels as the Publications Office of the European Union publishes them."""
    with (Path(__file__).parent / "eurovoc" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


@lru_cache
def microthesauri() -> dict[str, str]:
    """Code of each of the 127 micro-thesauri -> its name: `0421` -> `parliament`; the first two digits are its domain."""
    return {row[0]: row[1] for row in _table("microthesauri.csv")}


@lru_cache
def concepts() -> dict[str, str]:
    """Id of each concept, and its English name in lower case, -> code of its micro-thesaurus, one where it has several."""
    rows = _table("concepts.csv")
    return {name.casefold(): code for _, code, name in rows} | {concept: code for concept, code, _ in rows}


@lru_cache
def domain_descriptions() -> dict[str, str]:
    """Our own sentence on each domain, in Westminster's words."""
    return dict(_table("descriptions.csv"))


def domains_of(labels: Collection[str]) -> dict[str, str | None]:
    """Domain of each of one classifier's labels, None where EuroVoc knows none.

    All labels are of one level, the one that knows most of them: `1011` is a concept beside `1031` and a micro-thesaurus beside
    `1016`. Domains and micro-thesauri may be codes, names or both (`10 EUROPEAN UNION`), concepts ids, URIs or names.

    >>> domains_of(["0421", "2841"])
    {'0421': 'Politics', '2841': 'Social Questions'}
    """
    keys = {label: label.strip().rsplit("/", 1)[-1].casefold() for label in labels}
    levels = [
        {way.casefold(): code for code, name in level.items() for way in (code, name, f"{code} {name}")}
        for level in (DOMAIN_CODES, microthesauri())
    ]
    known = max([*levels, concepts()], key=lambda level: sum(key in level for key in keys.values()))
    return {label: DOMAIN_CODES.get(known[key][:2]) if key in known else None for label, key in keys.items()}


# --- which speeches are mapped, which classified ----------------------------------------------------------------------
class TopicClassifier(Protocol):
    """What `assign_topics` needs: a name for `topic_method`, what fixes an answer, and the answers."""

    name: str
    signature: str

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> pd.DataFrame:
        """Columns `topic` (domain, None where there is none) and `score`, a row a text; `titles` are the debates' headings."""


def assign_topics(speeches: pd.DataFrame, classifier: TopicClassifier, classify_all: bool = False) -> pd.DataFrame:
    """Return `speeches` (columns `cap_topic`, `text`, `section`) with `topic`, `topic_method` and `topic_score`.

    Method `direct` is a mapping of Table 4 (score 1), else it is the classifier's name and the score is its own. `classify_all`
    sends every speech through the classifier, direct mapping or not. `topic` is None where the classifier finds none.
    """
    direct = [None if classify_all else CAP_TO_EUROVOC.get(name) for name in speeches["cap_topic"]]
    topics = speeches.assign(topic=direct, topic_method="direct", topic_score=1.0).astype({"topic": object})
    is_open = topics["topic"].isna()
    if is_open.any():
        found = _classify(topics[is_open], classifier)
        topics.loc[is_open, ["topic", "topic_score"]] = found[["topic", "score"]].to_numpy(object)
        topics.loc[is_open, "topic_method"] = classifier.name
    return topics.astype({"topic_score": float})


def _classify(speeches: pd.DataFrame, classifier: TopicClassifier) -> pd.DataFrame:
    return classifier.classify(speeches["text"].tolist(), speeches["section"].fillna("").tolist())


def second_opinion(speeches: pd.DataFrame, classifier: TopicClassifier, at_most: int, seed: int) -> pd.DataFrame:
    """Return what the classifier says of speeches that Table 4 maps directly: columns `cap_topic`, `direct`, `classified`.

    At most `at_most` of them, drawn by `seed`, in the corpus's order. An empty frame for a corpus without topics.
    """
    mapped = speeches.assign(direct=speeches["cap_topic"].map(CAP_TO_EUROVOC)).dropna(subset="direct")
    sample = mapped.sample(min(at_most, len(mapped)), random_state=seed).sort_index()
    classified = _classify(sample, classifier)["topic"].to_numpy() if len(sample) else []
    return sample[["cap_topic", "direct"]].assign(classified=classified).reset_index(drop=True)


def direct_cost(opinions: pd.DataFrame) -> pd.DataFrame:
    """Return a row a directly mapped CAP category: its domain, speeches, and shares of them where the classifier agrees,
    chooses one of the eight unreachable domains, and which domain it prefers to the mapping.
    """
    rows = []
    for (cap, domain), group in opinions.groupby(["cap_topic", "direct"], sort=False):
        others = group.loc[group["classified"] != domain, "classified"].value_counts()
        unreachable = group["classified"].isin(UNREACHABLE).mean()
        agreed = (group["classified"] == domain).mean()
        rows.append((cap, domain, len(group), agreed, unreachable, others.index[0] if len(others) else None))
    columns = ["cap_category", "eurovoc_domain", "speeches", "agreement", "unreachable", "commonest_other"]
    return pd.DataFrame(rows, columns=columns).sort_values("speeches", ascending=False, ignore_index=True)


def confusion(opinions: pd.DataFrame) -> pd.DataFrame:
    """Return counts: the directly mapped domains as rows, the classifier's as columns, the eight unreachable ones last."""
    reached = [name for name in EUROVOC_DOMAINS if name not in UNREACHABLE]
    table = pd.crosstab(opinions["direct"], opinions["classified"])
    return table.reindex(index=[name for name in reached if name in table.index], columns=[*reached, *UNREACHABLE], fill_value=0)


def agreement(opinions: pd.DataFrame) -> dict[str, float]:
    """Return how many speeches were compared, the share on which both agree, its mean over the mapped domains, and what always
    naming the commonest domain would reach. An empty dict where there is nothing to compare.
    """
    if opinions.empty:
        return {}
    agreed = opinions["classified"] == opinions["direct"]
    return {
        "speeches": len(opinions),
        "agreement": round(float(agreed.mean()), 4),
        "mean over domains": round(float(agreed.groupby(opinions["direct"]).mean().mean()), 4),
        "commonest domain": round(float(opinions["direct"].value_counts(normalize=True).iloc[0]), 4),
    }


# --- the classifiers --------------------------------------------------------------------------------------------------
CLASSIFIERS = ("embedding", "kevlar", "transformers")
RULES = ("best", "sum")  # the domain of the best concept (the paper's), or the one whose concepts' scores sum highest
KEVLAR_TOKEN = "KEVLAR_TOKEN"  # environment variable: a secret belongs in no parameter file and no manifest
TIMEOUT = 120  # seconds an answer may take
HEADING = 0.6  # weight of the heading beside the speech's 1 - 0.6: a speech takes its heading for granted
MICROTHESAURI = 0.5  # weight of the names of a domain's micro-thesauri beside our own sentence's 1
Found = tuple[str | None, float]  # domain and score


def topic_classifier(name: str, encoder: Any = None, url: str = "", model: str = "", rule: str = "best") -> TopicClassifier:
    """The classifier `name`. `encoder` is for embedding, `url` and `model` for kevlar, `model` (path or id) for transformers.

    Raises ValueError where what the classifier needs is not given.
    """
    if name not in CLASSIFIERS or rule not in RULES:
        raise ValueError(f"topic classifier {name!r}, rule {rule!r}: one of {CLASSIFIERS}, one of {RULES}")
    if name == "embedding":
        return EmbeddingTopics(encoder)
    if not model or (name == "kevlar" and not url):
        raise ValueError(f"topic classifier {name} needs topic_model{' and topic_url' if name == 'kevlar' else ''}")
    return KevlarTopics(url.rstrip("/"), model, rule) if name == "kevlar" else TransformersTopics(model, rule)


@dataclass(frozen=True)
class EmbeddingTopics:
    """`encoder` gives unit rows for texts (a `SentenceEncoder`). A speech's topic depends on nothing but itself and its heading."""

    encoder: Any
    name: str = field(default="embedding", init=False)

    @property
    def signature(self) -> str:
        """The encoder and the weights."""
        return f"embedding:{self.encoder.signature}|heading:{HEADING}|microthesauri:{MICROTHESAURI}"

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> pd.DataFrame:
        """Columns `topic`, `score`: the domain nearest to text and heading. There is no threshold: the best one wins.

        The score is a weighted mean of two cosines with the centred domain, in [-1, 1]. A text without an embedding gets None, NaN.
        """
        if not len(texts):
            return pd.DataFrame({"topic": pd.Series(dtype=object), "score": pd.Series(dtype=float)})
        domains = self._domains().T
        spoken, headed = (np.asarray(self.encoder.encode(list(part))) @ domains for part in (texts, titles))
        scores = (1 - HEADING) * spoken + HEADING * np.nan_to_num(headed)  # (n_texts, 21)
        best = np.nan_to_num(scores, nan=-1.0).argmax(axis=1)
        topics = np.array(EUROVOC_DOMAINS, dtype=object)[best]
        topics[np.isnan(scores).any(axis=1)] = None
        return pd.DataFrame({"topic": pd.Series(topics, dtype=object), "score": scores[np.arange(len(scores)), best].round(6)})

    def _domains(self) -> np.ndarray:
        """A unit vector for each domain, shape (21, dimension): our sentence and EuroVoc's names, less what all domains share.

        Without that last step a sentence of a general kind (European Union) attracts whatever is said in Parliament.
        """

        def unit(rows: np.ndarray) -> np.ndarray:
            return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

        codes = {name: code for code, name in DOMAIN_CODES.items()}
        names = [[label for key, label in microthesauri().items() if key[:2] == codes[domain]] for domain in EUROVOC_DOMAINS]
        known = [unit(np.asarray(self.encoder.encode(labels)).mean(axis=0)) for labels in names]
        ours = np.asarray(self.encoder.encode([domain_descriptions()[domain] for domain in EUROVOC_DOMAINS]))
        both = unit(ours + MICROTHESAURI * np.stack(known))
        return unit(both - both.mean(axis=0))


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

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> pd.DataFrame:
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

        body = {"text": text, "title": title, "model": self.model, "top_k": self.top_k, "threshold": 0.0, "greedy": False}
        try:
            reply = client.post(f"{self.url}/api/predict", json=body)
        except httpx.TransportError as error:
            raise ConnectionError(f"{self.url}: {type(error).__name__} {error}; is the KEVLAR service running?") from error
        if reply.status_code != 200:
            hint = f"a wrong {KEVLAR_TOKEN}?" if reply.status_code == 500 else f"GET {self.url}/api/models lists its models"
            raise ValueError(f"{self.url}: {reply.status_code} {reply.text[:200]!r} for {text[:40]!r} ({hint})")
        found = []
        try:
            for row in reply.json():  # the domain from the answer itself, else from our table
                levels = [(row.get(level) or {}).get("label") for level in ("do", "mt")]
                code = next(filter(None, levels), None) or concepts().get(str(row["label"]), "")
                found.append((DOMAIN_CODES.get(str(code)[:2]), float(row["score"])))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{reply.url}: expected a list of label and score, got {reply.text[:200]!r}") from error
        return _choose(found, self.rule)


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

        from parliabench_utils.models.specs import default_device

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
        from parliabench_utils.run.artefacts import file_sha256

        config = self._loaded[1].config
        weights = Path(self.model) / "model.safetensors"
        mark = file_sha256(weights)[:16] if weights.is_file() else config._commit_hash
        unknown = self._domains.count(None)
        return f"transformers:{self.model}@{mark}|labels:{len(self._domains)},{unknown} unknown|rule:{self.rule}"

    def classify(self, texts: Sequence[str], titles: Sequence[str]) -> pd.DataFrame:
        """Answers are kept on disk. Scores are probabilities: sigmoid for a multi-label model, softmax else."""
        return _remembered(self.signature, texts, titles, self._predict_all)

    def _predict_all(self, items: list[tuple[str, str]]) -> Iterator[Found]:
        for start in range(0, len(items), self.batch_size):
            for row in self._probabilities(items[start : start + self.batch_size]):
                yield _choose(list(zip(self._domains, row, strict=True)), self.rule)

    def _probabilities(self, items: list[tuple[str, str]]) -> list[list[float]]:
        import torch

        from parliabench_utils.models.embeddings import piece_limit

        tokenizer, model = self._loaded
        texts = [f"{title}\n{text}" for text, title in items]
        inputs = tokenizer(texts, truncation=True, max_length=piece_limit(tokenizer, model), padding=True, return_tensors="pt")
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


def _remembered(signature: str, texts: Sequence[str], titles: Sequence[str], answer: Callable) -> pd.DataFrame:
    """`answer` for what the cache lacks. A text is not asked twice, whatever happens to the run in between.

    The file keeps its `.partial` ending: it is never complete. A second process waits until the first one has its answers.
    """
    from filelock import FileLock

    keys = [_digest(f"{title}\n{text}") for text, title in zip(texts, titles, strict=True)]
    items = {key: (text, title) for key, text, title in zip(keys, texts, titles, strict=True) if text.strip()}
    path = cache_folder("topics") / f"{_digest(signature)[:16]}-v2.jsonl"
    with FileLock(f"{path}.lock"):
        _drop_damaged(path.with_name(f"{path.name}.partial"))
        with ResumableJsonl(path, key=("sha256",)) as log:
            missing = {key: item for key, item in items.items() if (key,) not in log.done}
            answers = zip(missing, answer(list(missing.values())), strict=True)
            for key, (topic, score) in progress(answers, "Topics", total=len(missing)):
                found = {"sha256": key, "topic": topic, "score": None if score != score else float(score)}  # NaN: as JSON has it
                log.append(found | {"check": _check(found)})
            known = {row["sha256"]: (row["topic"], row["score"]) for row in log.rows}
    frame = pd.DataFrame([known.get(key, (None, None)) for key in keys], columns=["topic", "score"], dtype=object)
    return frame.assign(score=frame["score"].astype(float).round(6))


def _drop_damaged(file: Path) -> None:
    """Take lines out of a cache file that are not what their hash says: they are asked for again."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    sound: dict[str, None] = {}
    for line in lines:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            row = json.loads(line)
            sound |= {line: None} if row["check"] == _check(row) else {}
    if len(sound) < len(lines):
        warnings.warn(f"{len(lines) - len(sound)} cached topics are damaged and are asked for again", stacklevel=2)
        write_text(file, "".join(line + "\n" for line in sound))


def _check(row: dict[str, Any]) -> str:
    """Of a key and its answer, so that a changed line is found."""
    return _digest(json.dumps([row["sha256"], row["topic"], row["score"]]))[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
