"""A small classifier of acceptable sentences: real ones from training speeches against the same ones, damaged.

It stands where GRUEN has a model tuned on CoLA, which comes in no package. Notebook 02 trains it once from training
speeches, notebook 05 uses it. Features come from the lower layers of MiniLM, where word order still shows.

    report = fit_acceptability(folder, train_texts, seed=42)     # report["auc"]: on speeches it has not seen
    read_acceptability(folder).logits(["My Lords, I beg to move."])
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.metrics.tokens import split_sentences
from parliabench_utils.models.packaged import file_sha256
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
        from parliabench_utils.models.encoders import longer_than

        return longer_than(sentences, _lower_layers(self.encoder)[0], LIMIT)


def features(sentences: Sequence[str], encoder: str = "all-MiniLM-L6-v2") -> np.ndarray:
    """float64 (n_sentences, 1920 for MiniLM): mean hidden state of layers 1-3, mean |difference of neighbours| of 1-2."""
    import torch

    from parliabench_utils.models.encoders import padded_batches, read_batches

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
    from parliabench_utils.models.encoders import cut_layers, load_encoder

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
    rows += [
        (speech, bad, 0) for speech, good in real for bad in (corrupt(good, rng), corrupt(good, rng)) if bad != good
    ]
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
