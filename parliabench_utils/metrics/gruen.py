"""A small classifier of acceptable sentences: real ones from training speeches against the same ones, damaged.

It stands where GRUEN has a model tuned on CoLA, which comes in no package. Notebook 02 trains it once from training
speeches, notebook 05 uses it. Features come from the lower layers of MiniLM, where word order still shows.

    report = fit_acceptability(folder, train_texts, seed=42)     # report["auc"]: on speeches it has not seen
    read_acceptability(folder).logits(["My Lords, I beg to move."])

What GRUEN asks of models: how likely and how acceptable sentences are, and how close neighbours are in meaning.

Used by notebook 05. The paper's grammar is a masked language model and a CoLA classifier (`MaskedGrammar`); neither
comes in a package, so the demo reads a causal model and the classifier that notebook 02 trained (`CausalGrammar`).

GRUEN without a reference: grammar, non-redundancy and focus of a text (paper 4.1 (2); Zhu and Bhat 2020).

Used by notebook 05. The published code has no fourth part (sentence-order prediction), so this is GRUEN-GRF. Two forms:
`parity=True` is the published one, whose focus part never fires and whose redundancy grows with the number of
sentence pairs; the default repairs both: redundancy and focus are a pair's average.

    gruen(texts, grammar, similarity)    # grammar and similarity: functions of sentences, see `grammar.py`
"""

import difflib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, compress, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.metrics.distinct import SENTENCES_SIGNATURE, split_sentences
from parliabench_utils.metrics.perplexity import log_likelihoods, log_total
from parliabench_utils.models.embeddings import (
    SentenceEncoder,
    from_hub,
    longer_than,
    padded_batches,
    piece_limit,
    read_batches,
    weights_fingerprint,
)
from parliabench_utils.models.specs import file_sha256
from parliabench_utils.run.artefacts import whole_file, write_json

FILE = "acceptability.npz"
LAYERS = 3  # of MiniLM's six; higher ones know what a sentence is about, not whether it is well formed
LIMIT = 128  # pieces of a sentence that are read
WORDS_AN_EDIT = 8
AGREEMENT = {"is": "are", "has": "have", "was": "were", "does": "do", "this": "these", "that": "those"}
AGREEMENT |= {plural: singular for singular, plural in AGREEMENT.items()}
DROPPED = {
    "the",
    "a",
    "an",
    "to",
    "of",
    "in",
    "on",
    "at",
    "for",
    "with",
    "and",
    "is",
    "are",
    "was",
    "be",
    "will",
    "has",
    "not",
}


def corrupt(sentence: str, rng: random.Random) -> str:
    """The sentence with one edit per eight words (at least one), each of a kind drawn by `rng`.

    Kinds: two neighbours exchanged, a small word dropped, a word doubled, agreement broken, four words shuffled.
    """
    tokens = sentence.split()
    for _ in range(max(1, round(len(tokens) / WORDS_AN_EDIT))):
        tokens = rng.choice((_exchange, _drop, _double, _disagree, _shuffle))(tokens, rng)
    return " ".join(tokens)


def _exchange(tokens: list[str], rng: random.Random) -> list[str]:
    i = rng.randrange(max(1, len(tokens) - 1))
    return tokens[:i] + tokens[i : i + 2][::-1] + tokens[i + 2 :]


def _drop(tokens: list[str], rng: random.Random) -> list[str]:
    places = [i for i, token in enumerate(tokens) if token.lower() in DROPPED]
    if not places:
        return _exchange(tokens, rng)
    i = rng.choice(places)
    return tokens[:i] + tokens[i + 1 :]


def _double(tokens: list[str], rng: random.Random) -> list[str]:
    i = rng.randrange(len(tokens))
    return [*tokens[: i + 1], *tokens[i:]]


def _disagree(tokens: list[str], rng: random.Random) -> list[str]:
    places = [i for i, token in enumerate(tokens) if token in AGREEMENT]
    if not places:
        return _exchange(tokens, rng)
    i = rng.choice(places)
    return [*tokens[:i], AGREEMENT[tokens[i]], *tokens[i + 1 :]]


def _shuffle(tokens: list[str], rng: random.Random) -> list[str]:
    i = rng.randrange(max(1, len(tokens) - 3))
    part = tokens[i : i + 4]
    rng.shuffle(part)
    return tokens[:i] + part + tokens[i + 4 :]


@dataclass(frozen=True)
class Acceptability:
    """A logistic regression over standardised features: `coefficients` float64 (n_features,), `intercept` a number."""

    coefficients: np.ndarray
    intercept: float
    encoder: str
    fingerprint: str
    auc: float

    @property
    def signature(self) -> str:
        """What fixes a value."""
        return f"acceptability:logit-real-v-corrupted-{self.fingerprint[:8]}-auc{self.auc:.2f}"

    def logits(self, sentences: Sequence[str]) -> np.ndarray:
        """Log-odds that a sentence is undamaged, shape (n_sentences,), cut at -4 and 4, as far as CoLA models go."""
        return np.clip(features(sentences, self.encoder) @ self.coefficients + self.intercept, -4, 4)

    def truncated(self, sentences: Sequence[str]) -> np.ndarray:
        """Bool array (n_sentences,): is the sentence longer than what is read of it."""
        from parliabench_utils.models.embeddings import longer_than

        return longer_than(sentences, _lower_layers(self.encoder)[0], LIMIT)


def features(sentences: Sequence[str], encoder: str = "all-MiniLM-L6-v2") -> np.ndarray:
    """float64 (n_sentences, 1920 for MiniLM): mean hidden state of layers 1-3, mean |difference of neighbours| of 1-2."""
    import torch

    from parliabench_utils.models.embeddings import padded_batches, read_batches

    tokenizer, model = _lower_layers(encoder)

    def read(part: tuple[list[int], Any]) -> tuple[list[int], np.ndarray]:
        batch, inputs = part
        with torch.inference_mode():
            hidden = model(**inputs, output_hidden_states=True).hidden_states[1:]
        return batch, _pooled(hidden, inputs["attention_mask"])

    parts = read_batches(read, padded_batches(sentences, tokenizer, LIMIT))
    rows = {i: row for batch, found in parts for i, row in zip(batch, found, strict=True)}
    return np.stack([rows[i] for i in range(len(sentences))]).astype(np.float64)


@lru_cache(maxsize=1)
def _lower_layers(encoder: str) -> tuple[Any, Any]:
    from parliabench_utils.models.embeddings import cut_layers, load_encoder

    tokenizer, model, _ = load_encoder(encoder)
    return tokenizer, cut_layers(model, LAYERS)


def _pooled(hidden: Sequence[Any], attention: Any) -> np.ndarray:
    import torch

    mask = attention.unsqueeze(-1)  # (batch, pieces, 1)
    pairs = mask[:, 1:] * mask[:, :-1]
    means = [(layer * mask).sum(1) / mask.sum(1) for layer in hidden]
    steps = [((layer[:, 1:] - layer[:, :-1]).abs() * pairs).sum(1) / pairs.sum(1) for layer in hidden[:2]]
    return torch.cat([*means, *steps], dim=1).numpy()


def fit_acceptability(
    folder: Path,
    train_texts: Sequence[str],
    seed: int,
    max_sentences: int = 400,
    encoder: str = "all-MiniLM-L6-v2",
) -> dict[str, Any]:
    """Train on sentences of three quarters of the speeches, test on the others'; write `acceptability.npz` and `.json`.

    Each of at most `max_sentences` real sentences (5 to 60 words) has two damaged copies. Returns the report: `auc`
    (held-out, 0.5 is guessing), counts, kinds of damage. ValueError when there are fewer than 40 sentences.
    """
    real = _real_sentences(train_texts, seed, max_sentences)
    rng = random.Random(seed)
    rows = [(speech, sentence, 1) for speech, sentence in real]
    rows += [(speech, bad, 0) for speech, good in real for bad in (corrupt(good, rng), corrupt(good, rng)) if bad != good]
    table = features([sentence for _, sentence, _ in rows], encoder)
    labels, held_out = np.array([label for *_, label in rows]), np.array([speech % 4 == 0 for speech, *_ in rows])
    coefficients, intercept = _fit(table[~held_out], labels[~held_out])
    report = _report(table, labels, held_out, coefficients, intercept) | {"encoder": encoder, "seed": seed}
    _write(Path(folder), coefficients, intercept, report)
    return report


def _real_sentences(texts: Sequence[str], seed: int, at_most: int) -> list[tuple[int, str]]:
    found = [(i, s) for i, text in enumerate(texts) for s in split_sentences(text) if 5 <= len(s.split()) <= 60]
    if len(found) < 40:
        raise ValueError(f"{len(found)} sentences of 5 to 60 words in {len(texts)} speeches: too few to train on")
    return sorted(random.Random(seed).sample(found, min(at_most, len(found))))


def _fit(table: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    from sklearn.linear_model import LogisticRegression

    centre, scale = table.mean(axis=0), table.std(axis=0) + 1e-9
    model = LogisticRegression(C=0.003, class_weight="balanced", max_iter=500).fit((table - centre) / scale, labels)
    coefficients = model.coef_[0] / scale  # the standardisation moves into the weights
    return coefficients, float(model.intercept_[0] - coefficients @ centre)


def _report(table: np.ndarray, labels: np.ndarray, held_out: np.ndarray, coefficients, intercept) -> dict[str, Any]:
    from sklearn.metrics import roc_auc_score

    scores = table @ coefficients + intercept
    return {
        "auc": round(float(roc_auc_score(labels[held_out], scores[held_out])), 4),
        "auc_training": round(float(roc_auc_score(labels[~held_out], scores[~held_out])), 4),
        "n_real": int(labels.sum()),
        "n_corrupted": int((1 - labels).sum()),
        "n_held_out": int(held_out.sum()),
        "damage": "one edit per 8 words: exchange, drop, double, disagree, shuffle",
    }


def _write(folder: Path, coefficients: np.ndarray, intercept: float, report: dict[str, Any]) -> None:
    with whole_file(folder / FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, coefficients=coefficients.round(9), intercept=round(intercept, 9), encoder=report["encoder"])
    write_json(folder / "acceptability.json", report | {"sha256": file_sha256(folder / FILE)})


def read_acceptability(folder: Path) -> Acceptability:
    """What `fit_acceptability` left in `folder`; FileNotFoundError names the stage to run, ValueError a file that changed since."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run 02_dataset first")
    report = json.loads((Path(folder) / "acceptability.json").read_text(encoding="utf-8"))
    if (found := file_sha256(path)) != report.get("sha256"):
        raise ValueError(f"{path} is not as 02_dataset wrote it (sha256 {found[:8]}…): run 02_dataset again")
    with np.load(path, allow_pickle=False) as data:
        values = data["coefficients"], float(data["intercept"]), str(data["encoder"])
    return Acceptability(*values, fingerprint=found, auc=report["auc"])


@dataclass(frozen=True)
class CausalGrammar:
    """Mean negative log-likelihood a token under a causal model, and the trained classifier's logit, of each sentence.

    The loss is not raised to the exponential as the published code does with its masked model's: a causal model's, 20
    to 200 for a spoken sentence, would leave nothing of e^(-loss / 2).
    """

    model: Any
    tokenizer: Any
    name: str
    acceptability: Acceptability
    batch_size: int | None = None  # at most so many sentences; None: what suits the machine

    @property
    def signature(self) -> str:
        """What fixes a value."""
        return f"causal-nll:{self.name}+{self.acceptability.signature}"

    def __call__(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and logit, two arrays (n_sentences,)."""
        sums, counts = log_likelihoods(sentences, self.model, self.tokenizer, None, self.batch_size)
        return -sums / counts, self.acceptability.logits(sentences)

    def truncated(self, sentences: Sequence[str]) -> np.ndarray:
        """Bool array (n_sentences,): does the classifier read its beginning only."""
        return self.acceptability.truncated(sentences)


@dataclass(frozen=True)
class MaskedGrammar:
    """The published form: exp of a masked model's loss on the unmasked sentence, and a CoLA classifier's logit of `label`.

    Models of the hub by name, or folders; they are read at the first sentence and kept. The classifier may come as a
    pickle only, as the paper's kind does: torch then reads nothing but tensors from it (`weights_only`).
    """

    masked: str = "bert-base-cased"
    classifier: str = "textattack/bert-base-uncased-CoLA"
    label: int = 1  # "acceptable" in that classifier; others count the other way round
    batch_size: int | None = None  # at most so many sentences; None: what suits the machine
    classifier_limit: int = 128  # pieces that the classifier reads, as in the published code

    @property
    def signature(self) -> str:
        """What fixes a value."""
        masked, classifier = (f"{Path(name).name}@{weights_fingerprint(name, model)}" for name, model in self._models)
        return f"exp-mlm:{masked}+cola:{classifier}[{self.label}]<={self.classifier_limit}"

    @property
    def _models(self) -> list[tuple[str, Any]]:
        return [(self.masked, self._masked[1]), (self.classifier, self._classifier[1])]

    @cached_property
    def _masked(self) -> tuple[Any, Any]:
        from transformers import AutoModelForMaskedLM

        return _load(AutoModelForMaskedLM, self.masked, use_safetensors=True)

    @cached_property
    def _classifier(self) -> tuple[Any, Any]:
        from transformers import AutoModelForSequenceClassification

        return _load(AutoModelForSequenceClassification, self.classifier, weights_only=True)

    def __call__(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and logit, two arrays (n_sentences,)."""

        def loss(logits: Any, inputs: Any) -> Any:
            total = log_total(logits.flatten(0, 1)).view(logits.shape[:2])
            chosen = logits.gather(-1, inputs["input_ids"].unsqueeze(-1)).squeeze(-1) - total
            mask = inputs["attention_mask"]
            return (-(chosen * mask).sum(1) / mask.sum(1)).exp()

        losses = _batched(sentences, *self._masked, piece_limit(*self._masked), self.batch_size, loss)
        limit = min(self.classifier_limit, piece_limit(*self._classifier))
        logits = _batched(sentences, *self._classifier, limit, self.batch_size, lambda logits, _: logits[:, self.label])
        return losses, logits

    def truncated(self, sentences: Sequence[str]) -> np.ndarray:
        """Bool array (n_sentences,): does the classifier read its beginning only."""
        return longer_than(sentences, self._classifier[0], self.classifier_limit)


def _load(kind: Any, name: str, **settings: Any) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    from parliabench_utils.models.specs import default_device

    model = from_hub(kind, name, dtype="float32", **settings).eval().to(default_device())
    return from_hub(AutoTokenizer, name), model


def _batched(sentences: Sequence[str], tokenizer: Any, model: Any, limit: int, at_most: int | None, value: Any):
    """`value(logits, inputs)` of all sentences, float64 (n_sentences,)."""
    import torch

    def read(part: tuple[list[int], Any]) -> np.ndarray:
        inputs = part[1].to(model.device)
        with torch.inference_mode():
            return value(model(**inputs).logits, inputs).double().cpu().numpy()

    values, parts = np.empty(len(sentences)), list(padded_batches(sentences, tokenizer, limit, at_most))
    for (batch, _), found in zip(parts, read_batches(read, parts), strict=True):
        values[batch] = found
    return values


@dataclass(frozen=True)
class SentenceSimilarity:
    """Cosine of two sentences' embeddings; each sentence is embedded once, however many neighbours it has."""

    encoder: SentenceEncoder

    @property
    def signature(self) -> str:
        """What fixes a value."""
        return f"cosine:{self.encoder.signature}"

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Cosines in [-1, 1], shape (n_pairs,)."""
        texts = sorted({text for pair in pairs for text in pair})
        row = {text: i for i, text in enumerate(texts)}
        vectors = self.encoder.encode(texts).astype(np.float64)
        first, second = ([row[pair[side]] for pair in pairs] for side in (0, 1))
        return (vectors[first] * vectors[second]).sum(axis=1)


Grammar = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]  # sentences -> model's loss, acceptability logit
Similarity = Callable[[Sequence[tuple[str, str]]], np.ndarray]  # sentence pairs -> cosine in [-1, 1]
FLAG = 0.1  # what one flag of redundancy or one unfocused pair costs
UNRELATED = 0.05  # neighbours with a cosine below this do not belong together
TEXTS_AT_ONCE = 256  # whose sentences are in memory at a time
COLUMNS = ["GRUEN", "GRUEN_grammar", "GRUEN_redundancy", "GRUEN_focus", "n_sentences"]


def signature(grammar: str, similarity: str, parity: bool = False) -> str:
    """What fixes a value."""
    form = "parity:redundancy-sum,focus-inert" if parity else f"repaired:redundancy-per-pair,focus<{UNRELATED}-per-pair"
    return f"GRUEN-GRF|{form}|grammar:{grammar}|focus:{'none' if parity else similarity}|{SENTENCES_SIGNATURE}|v1"


def gruen(texts: Sequence[str | None], grammar: Grammar, similarity: Similarity, parity: bool = False) -> pd.DataFrame:
    """A row a text: GRUEN in [0, 1], its parts grammar (from 0), redundancy and focus (up to 0), and the sentences
    read.

    NaN for a text without a sentence of two words; the published code gives it 0.625. The list `texts` is left alone.
    """
    rows: list[list[float]] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        sentences = [sentences_of(text, parity) for text in texts[start : start + TEXTS_AT_ONCE]]
        distinct = sorted({sentence for group in sentences for sentence in group})
        values = dict(zip(distinct, zip(*grammar(distinct), strict=True), strict=True)) if distinct else {}
        focus = np.zeros(len(sentences)) if parity else _focus(sentences, similarity)
        rows += [_row(group, values, parity, focus[i]) for i, group in enumerate(sentences)]
    return pd.DataFrame(rows, columns=COLUMNS)


def truncated(texts: Sequence[str | None], grammar: Any, parity: bool = False) -> np.ndarray:
    """Bool array (n_speeches,): has the text a sentence of which `grammar` (one of `grammar.py`'s) reads the beginning
    only.
    """
    sentences = [sentences_of(text, parity) for text in texts]
    distinct = sorted({sentence for group in sentences for sentence in group})
    cut = set(compress(distinct, grammar.truncated(distinct)))
    return np.array([not cut.isdisjoint(group) for group in sentences], dtype=bool)


def _row(sentences: list[str], values: dict[str, tuple[float, float]], parity: bool, focus: float) -> list[float]:
    if not sentences:
        return [np.nan] * 4 + [0]
    loss, logit = np.mean([values[sentence] for sentence in sentences], axis=0)
    parts = [grammar_score(loss, logit), redundancy(sentences, per_pair=not parity, autojunk=parity), focus]
    return [float(np.clip(sum(parts), 0, 1)), *parts, len(sentences)]


def grammar_score(loss: float, logit: float) -> float:
    """max(0, (e^(-loss / 2) + logit) / 8 + 0.5), from the published code."""
    return float(max(0.0, (np.exp(-loss / 2) + logit) / 8 + 0.5))


def sentences_of(text: str | None, parity: bool = False) -> list[str]:
    """The sentences that are scored: those of two words or more."""
    split = split_sentences(published_cleaning(text or "") if parity else text)
    return [sentence for sentence in split if len(re.sub(r"[^\w\s]", " ", sentence).split()) > 1]


def published_cleaning(text: str) -> str:
    """The published code's: a space after every full stop, and UNK for what that makes of decimals; idempotent."""
    text = text.strip().replace("\n", ". ")
    text = re.sub(r"\.(?:\s*\.)+", ".", text).replace(".", ". ")
    return re.sub(r"\d+\. \d+", "UNK", re.sub(r"\s+", " ", text)).strip()


def redundancy(sentences: Sequence[str], per_pair: bool = True, autojunk: bool = False) -> float:
    """-0.1 a flag over all sentence pairs, or over their number; 0 for one sentence.

    `autojunk` is difflib's shortcut for long strings, which the published code has on and which misses matches.
    """
    flags = [redundancy_flags(a, b, autojunk) for a, b in combinations(sentences, 2)]
    return 0.0 - FLAG * sum(flags) / (len(flags) if per_pair else 1) if flags else 0.0


def redundancy_flags(a: str, b: str, autojunk: bool = False) -> int:
    """0 to 4 signs that two sentences say the same: 4 when one holds the other, else one each for a long common
    string (by characters, by words), a small edit distance, many common words; short sentences are let off.
    """
    if a in b or b in a:
        return 4
    words_a, words_b = a.split(), b.split()
    fewest, most = sorted((len(words_a), len(words_b)))
    if most < 5:
        return 0
    there = set(words_b)
    common = sum(word in there for word in words_a)
    return _common_string_flags(a, b, common, fewest, autojunk) + _near(a, b) + (common > 0.8 * fewest)


def _common_string_flags(a: str, b: str, common_words: int, fewest: int, autojunk: bool) -> int:
    from rapidfuzz.distance import LCSseq

    shortest = min(len(a), len(b))
    # A common string is no longer than a common subsequence, and its whole words are common words: most pairs end here.
    if LCSseq.similarity(a, b) <= 0.8 * shortest and common_words + 2 <= 0.8 * fewest:
        return 0
    match = difflib.SequenceMatcher(None, a, b, autojunk=autojunk).find_longest_match()
    n_words = len(a[match.a : match.a + match.size].split())
    return (match.size > 0.8 * shortest) + (n_words > 0.8 * fewest)


def _near(a: str, b: str) -> bool:
    from rapidfuzz.distance import Levenshtein

    limit = 0.6 * max(len(a), len(b))
    return Levenshtein.distance(a, b, score_cutoff=int(limit)) < limit


def _focus(sentences: Sequence[Sequence[str]], similarity: Similarity) -> np.ndarray:
    """-0.1 times the share of neighbours that have nothing to do with each other; 0 for one sentence."""
    pairs = [pair for group in sentences for pair in pairwise(group)]
    unrelated = iter((np.asarray(similarity(pairs)) < UNRELATED).tolist() if pairs else [])
    return np.array([0.0 - FLAG * _mean([next(unrelated) for _ in pairwise(group)]) for group in sentences])


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
