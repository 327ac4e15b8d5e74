"""GRUEN without a reference: grammar, non-redundancy and focus of a text (paper 4.1 (2); Zhu and Bhat 2020).

Used by notebook 05. The published code has no fourth part (sentence-order prediction), so this is GRUEN-GRF. Two forms:
`parity=True` is the published one, whose focus part never fires and whose redundancy grows with the number of
sentence pairs; the default repairs both: redundancy and focus are a pair's average.

The paper's grammar is a masked language model and a CoLA classifier (`MaskedGrammar`); neither comes in a package, so the demo
reads a causal model and a small classifier of acceptable sentences (`CausalGrammar`): real ones from training speeches against the
same ones, damaged. Notebook 02 trains it once; its features come from the lower layers of MiniLM, where word order still shows.

    report = fit_acceptability(folder, train_texts, seed=42)     # report["auc"]: on speeches it has not seen
    grammar = CausalGrammar(model, tokenizer, "smollm2-135m", read_acceptability(folder))
    gruen(texts, grammar, SentenceSimilarity(SentenceEncoder()))
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
    cut_layers,
    from_hub,
    load_encoder,
    longer_than,
    padded_batches,
    piece_limit,
    read_batches,
    weights_fingerprint,
)
from parliabench_utils.models.specs import default_device
from parliabench_utils.run.artefacts import file_sha256, whole_file, write_json

Grammar = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]  # sentences -> model's loss, acceptability logit
Similarity = Callable[[Sequence[tuple[str, str]]], np.ndarray]  # sentence pairs -> cosine in [-1, 1]
FLAG = 0.1  # what one flag of redundancy or one unfocused pair costs
UNRELATED = 0.05  # neighbours with a cosine below this do not belong together
TEXTS_AT_ONCE = 256  # whose sentences are in memory at a time
COLUMNS = ["GRUEN", "GRUEN_grammar", "GRUEN_redundancy", "GRUEN_focus", "n_sentences"]

FILE = "acceptability.npz"
LAYERS = 3  # of MiniLM's six; higher ones know what a sentence is about, not whether it is well formed
LIMIT = 128  # pieces of a sentence that a classifier reads, as in the published code
WORDS_AN_EDIT = 8
AGREEMENT = {"is": "are", "has": "have", "was": "were", "does": "do", "this": "these", "that": "those"}
AGREEMENT |= {plural: singular for singular, plural in AGREEMENT.items()}
DROPPED = {
    "the", "a", "an", "to", "of", "in", "on", "at", "for", "with", "and", "is", "are", "was", "be", "will", "has", "not"
}  # fmt: skip


def signature(grammar: str, similarity: str, parity: bool = False) -> str:
    """What fixes a value."""
    form = "parity:redundancy-sum,focus-inert" if parity else f"repaired:redundancy-per-pair,focus<{UNRELATED}-per-pair"
    return f"GRUEN-GRF|{form}|grammar:{grammar}|focus:{'none' if parity else similarity}|{SENTENCES_SIGNATURE}|v1"


def gruen(texts: Sequence[str | None], grammar: Grammar, similarity: Similarity, parity: bool = False) -> pd.DataFrame:
    """A row a text: GRUEN in [0, 1], its parts grammar (from 0), redundancy and focus (up to 0), and the sentences read.

    NaN for a text without a sentence of two words; the published code gives it 0.625. The list `texts` is left alone.
    """
    rows: list[list[float]] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        sentences = [sentences_of(text, parity) for text in texts[start : start + TEXTS_AT_ONCE]]
        distinct = sorted({sentence for group in sentences for sentence in group})
        values = dict(zip(distinct, zip(*grammar(distinct), strict=True), strict=True)) if distinct else {}
        focus = np.zeros(len(sentences)) if parity else _focus(sentences, similarity)
        for group, unrelated in zip(sentences, focus, strict=True):
            if not group:
                rows.append([np.nan] * 4 + [0])
                continue
            loss, logit = np.mean([values[sentence] for sentence in group], axis=0)
            parts = [grammar_score(loss, logit), redundancy(group, per_pair=not parity, autojunk=parity), unrelated]
            rows.append([float(np.clip(sum(parts), 0, 1)), *parts, len(group)])
    return pd.DataFrame(rows, columns=COLUMNS)


def truncated(texts: Sequence[str | None], grammar: Any, parity: bool = False) -> np.ndarray:
    """Bool array (n_speeches,): has the text a sentence of which `grammar` reads the beginning only."""
    sentences = [sentences_of(text, parity) for text in texts]
    distinct = sorted({sentence for group in sentences for sentence in group})
    cut = set(compress(distinct, grammar.truncated(distinct)))
    return np.array([not cut.isdisjoint(group) for group in sentences], dtype=bool)


def sentences_of(text: str | None, parity: bool = False) -> list[str]:
    """The sentences that are scored: those of two words or more."""
    split = split_sentences(published_cleaning(text or "") if parity else text)
    return [sentence for sentence in split if len(re.sub(r"[^\w\s]", " ", sentence).split()) > 1]


def published_cleaning(text: str) -> str:
    """The published code's: a space after every full stop, and UNK for what that makes of decimals; idempotent."""
    text = text.strip().replace("\n", ". ")
    text = re.sub(r"\.(?:\s*\.)+", ".", text).replace(".", ". ")
    return re.sub(r"\d+\. \d+", "UNK", re.sub(r"\s+", " ", text)).strip()


def grammar_score(loss: float, logit: float) -> float:
    """max(0, (e^(-loss / 2) + logit) / 8 + 0.5), from the published code."""
    return float(max(0.0, (np.exp(-loss / 2) + logit) / 8 + 0.5))


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
    from rapidfuzz.distance import LCSseq, Levenshtein

    if a in b or b in a:
        return 4
    words_a, words_b = a.split(), b.split()
    (fewest, most), (shortest, longest) = sorted((len(words_a), len(words_b))), sorted((len(a), len(b)))
    if most < 5:
        return 0
    there = set(words_b)
    common = sum(word in there for word in words_a)
    near = Levenshtein.distance(a, b, score_cutoff=int(0.6 * longest)) < 0.6 * longest
    # A common string is no longer than a common subsequence, and its whole words are common words: most pairs end here.
    if LCSseq.similarity(a, b) <= 0.8 * shortest and common + 2 <= 0.8 * fewest:
        return near + (common > 0.8 * fewest)
    match = difflib.SequenceMatcher(None, a, b, autojunk=autojunk).find_longest_match()
    n_words = len(a[match.a : match.a + match.size].split())
    return (match.size > 0.8 * shortest) + (n_words > 0.8 * fewest) + near + (common > 0.8 * fewest)


def _focus(sentences: Sequence[Sequence[str]], similarity: Similarity) -> np.ndarray:
    """-0.1 times the share of neighbours that have nothing to do with each other; 0 for one sentence."""
    pairs = [pair for group in sentences for pair in pairwise(group)]
    unrelated = iter((np.asarray(similarity(pairs)) < UNRELATED).tolist() if pairs else [])
    return np.array([0.0 - FLAG * sum(next(unrelated) for _ in pairwise(group)) / max(len(group) - 1, 1) for group in sentences])


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


@dataclass(frozen=True)
class CausalGrammar:
    """Mean negative log-likelihood a token under a causal model, and the trained classifier's logit, of each sentence.

    The loss is not raised to the exponential as the published code does with its masked model's: a causal model's, 20
    to 200 for a spoken sentence, would leave nothing of e^(-loss / 2).
    """

    model: Any
    tokenizer: Any
    name: str
    acceptability: "Acceptability"

    @property
    def signature(self) -> str:
        """What fixes a value."""
        return f"causal-nll:{self.name}+{self.acceptability.signature}"

    def __call__(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and logit, two arrays (n_sentences,)."""
        sums, counts = log_likelihoods(sentences, self.model, self.tokenizer, None)
        return -sums / counts, self.acceptability.logits(sentences)

    def truncated(self, sentences: Sequence[str]) -> np.ndarray:
        """Bool array (n_sentences,): does the classifier read its beginning only."""
        return longer_than(sentences, _lower_layers(self.acceptability.encoder)[0], LIMIT)


@dataclass(frozen=True)
class MaskedGrammar:
    """The published form: exp of a masked model's loss on the unmasked sentence, and a CoLA classifier's logit of `label`.

    Models of the hub by name, or folders; they are read at the first sentence and kept. The classifier may come as a
    pickle only, as the paper's kind does: torch then reads nothing but tensors from it (`weights_only`).
    """

    masked: str = "bert-base-cased"
    classifier: str = "textattack/bert-base-uncased-CoLA"
    label: int = 1  # "acceptable" in that classifier; others count the other way round

    @property
    def signature(self) -> str:
        """What fixes a value."""
        parts = ((self.masked, self._masked[1]), (self.classifier, self._classifier[1]))
        masked, classifier = (f"{Path(name).name}@{weights_fingerprint(name, model)}" for name, model in parts)
        return f"exp-mlm:{masked}+cola:{classifier}[{self.label}]<={LIMIT}"

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

        losses = _read(sentences, *self._masked, piece_limit(*self._masked), loss)
        limit = min(LIMIT, piece_limit(*self._classifier))
        return losses, _read(sentences, *self._classifier, limit, lambda logits, _: logits[:, self.label])

    def truncated(self, sentences: Sequence[str]) -> np.ndarray:
        """Bool array (n_sentences,): does the classifier read its beginning only."""
        return longer_than(sentences, self._classifier[0], LIMIT)


def _load(kind: Any, name: str, **settings: Any) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    model = from_hub(kind, name, dtype="float32", **settings).eval().to(default_device())
    return from_hub(AutoTokenizer, name), model


def _read(sentences: Sequence[str], tokenizer: Any, model: Any, limit: int, value: Callable, **settings: Any) -> np.ndarray:
    """`value(what the model puts out, inputs)` of all sentences, float64 (n_sentences, ...)."""
    import torch

    def read(part: tuple[list[int], Any]) -> np.ndarray:
        inputs = part[1].to(model.device)
        with torch.inference_mode():
            out = model(**inputs, **settings)
            return value(out.hidden_states if settings else out.logits, inputs).double().cpu().numpy()

    parts = list(padded_batches(sentences, tokenizer, limit))
    order = np.argsort([i for batch, _ in parts for i in batch])
    return np.concatenate(read_batches(read, parts))[order]


def corrupt(sentence: str, rng: random.Random) -> str:
    """The sentence with one edit per eight words (at least one), each of a kind drawn by `rng`.

    Kinds: two neighbours exchanged, a small word dropped, a word doubled, agreement broken, four words shuffled. Where there is no
    small word, or none that agrees, two neighbours are exchanged.
    """
    tokens = sentence.split()
    for _ in range(max(1, round(len(tokens) / WORDS_AN_EDIT))):
        kind = rng.choice(("exchange", "drop", "double", "disagree", "shuffle"))
        small = [i for i, token in enumerate(tokens) if token.lower() in DROPPED]
        agreeing = [i for i, token in enumerate(tokens) if token in AGREEMENT]
        if kind == "double":
            i = rng.randrange(len(tokens))
            tokens.insert(i, tokens[i])
        elif kind == "shuffle":
            i = rng.randrange(max(1, len(tokens) - 3))
            part = tokens[i : i + 4]
            rng.shuffle(part)
            tokens[i : i + 4] = part
        elif kind == "drop" and small:
            tokens.pop(rng.choice(small))
        elif kind == "disagree" and agreeing:
            i = rng.choice(agreeing)
            tokens[i] = AGREEMENT[tokens[i]]
        else:
            i = rng.randrange(max(1, len(tokens) - 1))
            tokens[i : i + 2] = tokens[i : i + 2][::-1]
    return " ".join(tokens)


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


def features(sentences: Sequence[str], encoder: str = "all-MiniLM-L6-v2") -> np.ndarray:
    """float64 (n_sentences, 1920 for MiniLM): mean hidden state of layers 1-3, mean |difference of neighbours| of 1-2."""
    import torch

    def pooled(hidden: Sequence[Any], inputs: Any) -> Any:
        layers, mask = hidden[1:], inputs["attention_mask"].unsqueeze(-1)  # (batch, pieces, 1)
        pairs = mask[:, 1:] * mask[:, :-1]
        means = [(layer * mask).sum(1) / mask.sum(1) for layer in layers]
        steps = [((layer[:, 1:] - layer[:, :-1]).abs() * pairs).sum(1) / pairs.sum(1) for layer in layers[:2]]
        return torch.cat([*means, *steps], dim=1)

    return _read(sentences, *_lower_layers(encoder), LIMIT, pooled, output_hidden_states=True)


@lru_cache(maxsize=1)
def _lower_layers(encoder: str) -> tuple[Any, Any]:
    tokenizer, model, _ = load_encoder(encoder)
    return tokenizer, cut_layers(model, LAYERS)


def fit_acceptability(
    folder: Path, train_texts: Sequence[str], seed: int, max_sentences: int = 400, encoder: str = "all-MiniLM-L6-v2"
) -> dict[str, Any]:
    """Train on sentences of three quarters of the speeches, test on the others'; write `acceptability.npz` and `.json`.

    Each of at most `max_sentences` real sentences (5 to 60 words) has two damaged copies. Returns the report: `auc`
    (held-out, 0.5 is guessing), counts, kinds of damage. ValueError when there are fewer than 40 sentences.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    found = [(i, s) for i, text in enumerate(train_texts) for s in split_sentences(text) if 5 <= len(s.split()) <= 60]
    if len(found) < 40:
        raise ValueError(f"{len(found)} sentences of 5 to 60 words in {len(train_texts)} speeches: too few to train on")
    real = sorted(random.Random(seed).sample(found, min(max_sentences, len(found))))
    rng = random.Random(seed)
    rows = [(speech, sentence, 1) for speech, sentence in real]
    rows += [(speech, bad, 0) for speech, good in real for bad in (corrupt(good, rng), corrupt(good, rng)) if bad != good]
    table = features([sentence for _, sentence, _ in rows], encoder)
    labels, held_out = np.array([label for *_, label in rows]), np.array([speech % 4 == 0 for speech, *_ in rows])
    seen = table[~held_out]
    centre, scale = seen.mean(axis=0), seen.std(axis=0) + 1e-9
    model = LogisticRegression(C=0.003, class_weight="balanced", max_iter=500).fit((seen - centre) / scale, labels[~held_out])
    coefficients = model.coef_[0] / scale  # the standardisation moves into the weights
    intercept = float(model.intercept_[0] - coefficients @ centre)
    scores = table @ coefficients + intercept
    report = {
        "auc": round(float(roc_auc_score(labels[held_out], scores[held_out])), 4),
        "auc_training": round(float(roc_auc_score(labels[~held_out], scores[~held_out])), 4),
        "n_real": int(labels.sum()),
        "n_corrupted": int((1 - labels).sum()),
        "n_held_out": int(held_out.sum()),
        "damage": "one edit per 8 words: exchange, drop, double, disagree, shuffle",
        "encoder": encoder,
        "seed": seed,
    }
    with whole_file(Path(folder) / FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, coefficients=coefficients.round(9), intercept=round(intercept, 9), encoder=encoder)
    write_json(Path(folder) / "acceptability.json", report | {"sha256": file_sha256(Path(folder) / FILE)})
    return report


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
