"""What GRUEN asks of models: how likely and how acceptable sentences are, and how close neighbours are in meaning.

Used by notebook 05. The paper's grammar is a masked language model and a CoLA classifier (`MaskedGrammar`); neither
comes in a package, so the demo reads a causal model and the classifier that notebook 02 trained (`CausalGrammar`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.metrics.acceptability import Acceptability
from parliabench_utils.metrics.perplexity import log_likelihoods, log_total
from parliabench_utils.models.embeddings import SentenceEncoder
from parliabench_utils.models.encoders import (
    from_hub,
    longer_than,
    padded_batches,
    piece_limit,
    read_batches,
    weights_fingerprint,
)


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

    from parliabench_utils.models.loading import default_device

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
