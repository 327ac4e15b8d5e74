"""What GRUEN asks of models: how likely and how acceptable sentences are, and how close neighbours are in meaning.

Used by notebook 05. The paper's grammar is a masked language model and a CoLA classifier (`MaskedGrammar`); neither
comes in a package, so the demo reads a causal model and the classifier that notebook 02 trained (`CausalGrammar`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parliabench_utils.metrics.acceptability import Acceptability
from parliabench_utils.models.embeddings import SentenceEncoder


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
    batch_size: int = 32

    @property
    def signature(self) -> str:
        """What fixes a value."""
        return f"causal-nll:{self.name}+{self.acceptability.signature}"

    def __call__(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and logit, two arrays (n_sentences,)."""
        from parliabench_utils.metrics.perplexity import token_log_probs

        log_probs = token_log_probs(sentences, self.model, self.tokenizer, self.batch_size)
        return np.array([-row.mean() for row in log_probs]), self.acceptability.logits(sentences)


@dataclass(frozen=True)
class MaskedGrammar:
    """The published form: exp of a masked model's loss on the unmasked sentence, and a CoLA classifier's logit of `label`."""

    masked: str = "bert-base-cased"
    classifier: str = "textattack/bert-base-uncased-CoLA"
    label: int = 1  # "acceptable" in that classifier
    batch_size: int = 32

    @property
    def signature(self) -> str:
        """What fixes a value."""
        return f"exp-mlm:{self.masked}+cola:{self.classifier}[{self.label}]"

    def __call__(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and logit, two arrays (n_sentences,)."""
        return self._losses(sentences), self._logits(sentences)

    def _losses(self, sentences: Sequence[str]) -> np.ndarray:
        from transformers import AutoModelForMaskedLM

        def loss(output: Any, inputs: Any) -> np.ndarray:
            chosen = output.logits.log_softmax(-1).gather(-1, inputs["input_ids"].unsqueeze(-1)).squeeze(-1)
            mask = inputs["attention_mask"]
            return (-(chosen * mask).sum(1) / mask.sum(1)).exp().double().cpu().numpy()

        return _batched(sentences, AutoModelForMaskedLM, self.masked, 510, self.batch_size, loss)

    def _logits(self, sentences: Sequence[str]) -> np.ndarray:
        from transformers import AutoModelForSequenceClassification

        def logit(output: Any, _: Any) -> np.ndarray:
            return output.logits[:, self.label].double().cpu().numpy()

        return _batched(sentences, AutoModelForSequenceClassification, self.classifier, 128, self.batch_size, logit)


def _batched(sentences: Sequence[str], kind: Any, name: str, limit: int, batch_size: int, value: Any) -> np.ndarray:
    import torch
    from transformers import AutoTokenizer

    from parliabench_utils.models.loading import default_device

    tokenizer, model = (
        AutoTokenizer.from_pretrained(name),
        kind.from_pretrained(name, use_safetensors=True).eval().to(default_device()),
    )
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    values = np.empty(len(sentences))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        texts = [sentences[i] for i in batch]
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt").to(model.device)
        with torch.inference_mode():
            values[batch] = value(model(**inputs), inputs)
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
