"""Perplexity of a text under a fixed causal language model (paper 4.1 (1): GPT-2).

Used by notebook 05; GRUEN's grammar reads the same token log-probabilities.

    model, tokenizer, fingerprint = load_language_model("smollm2-135m")
    perplexity(["My Lords, I beg to move."], model, tokenizer)     # array of shape (1,)
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parliabench_utils.metrics.distinct import first_words
from parliabench_utils.models.embeddings import batches_by_length, clean, from_hub, read_batches, weights_fingerprint
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.specs import default_device
from parliabench_utils.run.project import project_root

WINDOW, STRIDE = 1024, 512  # GPT-2's context; half of it is the least that a token in a later window sees
POSITIONS_AT_ONCE = 128  # rows of logits that exist at a time: 128 x 50,257 float32 are 26 MB
TEXTS_AT_ONCE = 512  # whose tokens exist at a time, so that memory does not grow with the number of speeches


def signature(model: str, tokenizer: Any, max_words: int | None = 512) -> str:
    """What fixes a value; `bos` names the token that every text starts with, "none" leaves the first token unscored."""
    bos = start_token(tokenizer)
    named = tokenizer.convert_ids_to_tokens(bos) if bos is not None else "none"
    return f"PPL|model:{model}|words:{max_words or 'all'}|bos:{named}|window:{WINDOW}|stride:{STRIDE}|exp-mean-nll|v1"


def load_language_model(name: str, precision: str = "fp32") -> tuple[Any, Any, str]:
    """Model, tokeniser and fingerprint of a file of `params/models/`, of a folder, or of a name on the hub as `gpt2`.

    ValueError for a precision other than fp32 and bf16. OSError says how to get a model that is not there.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtypes = {"fp32": "float32", "bf16": "bfloat16"}
    if precision not in dtypes:
        raise ValueError(f"precision {precision!r} of {name!r}: expected {' or '.join(dtypes)}")
    if (project_root() / "params/models" / f"{name}.yaml").is_file():
        loaded = load_model(name, purpose="score", precision=precision)
        return loaded.model, loaded.tokenizer, loaded.fingerprint
    tokenizer = from_hub(AutoTokenizer, name)
    model = from_hub(AutoModelForCausalLM, name, dtype=dtypes[precision], use_safetensors=True).eval()
    return model.to(default_device()), tokenizer, f"{Path(name).name}@{weights_fingerprint(name, model)} {precision}"


def start_token(tokenizer: Any) -> int | None:
    """The token that separates documents in pre-training: `<|endoftext|>` where there is one, else the tokeniser's BOS.

    SmolLM2's own BOS opens a chat turn; after it the model expects a role, not a speech, so it would be the wrong start.
    """
    separator = "<|endoftext|>"
    return tokenizer.convert_tokens_to_ids(separator) if separator in tokenizer.get_vocab() else tokenizer.bos_token_id


def perplexity(
    texts: Sequence[str | None], model: Any, tokenizer: Any, max_words: int | None = 512, batch_size: int | None = None
) -> np.ndarray:
    """exp of the mean negative log-likelihood a token, shape (n_speeches,), from 1 up; NaN where no token is predicted.

    Only the first `max_words` words are read (None: all). Low values also reward repetition: read beside Distinct-n.
    """
    return per_text(*log_likelihoods(texts, model, tokenizer, max_words, batch_size))


def log_likelihoods(
    texts: Sequence[str | None], model: Any, tokenizer: Any, max_words: int | None = 512, batch_size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Of each text: the natural log-likelihood of its tokens, float64 (n_speeches,), and how many they are, (n_speeches,).

    Texts of like length are read together; the work goes block by block.
    """
    sums, counts = np.zeros(len(texts)), np.zeros(len(texts), dtype=np.int64)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i] or ""))
    for start in range(0, len(order), TEXTS_AT_ONCE):
        rows = order[start : start + TEXTS_AT_ONCE]
        read = token_log_probs([first_words(texts[i], max_words) for i in rows], model, tokenizer, batch_size)
        sums[rows], counts[rows] = [row.sum() for row in read], [len(row) for row in read]
    return sums, counts


def per_text(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Perplexity of each text from `log_likelihoods`; NaN where no token is predicted."""
    return np.exp(-np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0))


def corpus_perplexity(sums: np.ndarray, counts: np.ndarray) -> float:
    """One value for all texts, every token weighing the same; not ruled by a few strange short texts as the mean is."""
    return float(per_text(np.array([np.sum(sums)]), np.array([np.sum(counts)]))[0])


def windows(n_predicted: int, size: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Cut a sequence of `n_predicted + 1` ids: input ids [begin, end), and how many of their last predictions count.

    Every id after the first is predicted once; from the second window on it sees at least `size - stride + 1` ids.
    """
    end = 0
    while end < n_predicted:
        scored = min(stride if end else size, n_predicted - end)
        end += scored
        yield max(0, end - size), end, scored


def token_log_probs(
    texts: Sequence[str], model: Any, tokenizer: Any, batch_size: int | None = None, window: int = WINDOW, stride: int = STRIDE
) -> list[np.ndarray]:
    """Natural log-probability of every token of every text, float64 arrays; empty where there is nothing to predict.

    Texts of like length share a batch (at most `batch_size`; None: what suits the machine), padded on the right with a
    mask; only the predicted tokens' values are kept.
    """
    bos = start_token(tokenizer)
    plain = [tokenizer(clean(text), add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
    ids = [[bos, *row] if bos is not None and row else row for row in plain]
    size = min(window, getattr(model.config, "max_position_embeddings", window))
    parts = [(row, *part) for row, seq in enumerate(ids) for part in windows(len(seq) - 1, size, min(stride, size))]
    found: dict[int, np.ndarray] = {}
    batches = batches_by_length([end - begin for _, begin, end, _ in parts], batch_size)
    cut = ([ids[parts[i][0]][parts[i][1] : parts[i][2] + 1] for i in batch] for batch in batches)
    read = read_batches(lambda sequences: _forward(sequences, model, tokenizer), cut)
    for batch, scored in zip(batches, read, strict=True):
        found |= {i: values[len(values) - parts[i][3] :] for i, values in zip(batch, scored, strict=True)}
    pieces: list[list[np.ndarray]] = [[] for _ in texts]
    for i, (row, *_) in enumerate(parts):
        pieces[row].append(found[i])
    return [np.concatenate(row) if row else np.empty(0) for row in pieces]


def _forward(sequences: list[list[int]], model: Any, tokenizer: Any) -> list[np.ndarray]:
    import torch

    longest = max(map(len, sequences)) - 1
    inputs = torch.full((len(sequences), longest), tokenizer.pad_token_id or 0)
    mask = torch.zeros_like(inputs)
    for row, ids in enumerate(sequences):  # right padding: positions and masks of real tokens stay as they are alone
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        mask[row, : len(ids) - 1] = 1
    targets = torch.tensor([token for ids in sequences for token in ids[1:]], device=model.device)
    with torch.inference_mode():
        hidden = model.base_model(inputs.to(model.device), attention_mask=mask.to(model.device)).last_hidden_state
        values = _log_probs(hidden[mask.bool().to(model.device)], targets, model)
    return np.split(values, np.cumsum([len(ids) - 1 for ids in sequences])[:-1])


def _log_probs(hidden: Any, targets: Any, model: Any) -> np.ndarray:
    """Log-probabilities of `targets` (n,) from hidden states (n, dimension), a slice of logits at a time."""
    import torch

    head, cap = model.get_output_embeddings(), getattr(model.config, "final_logit_softcapping", None)
    values = []
    for start in range(0, len(hidden), POSITIONS_AT_ONCE):
        logits = head(hidden[start : start + POSITIONS_AT_ONCE]).float()  # (positions, vocabulary)
        if cap:
            logits = torch.tanh(logits / cap) * cap
        chosen = targets[start : start + POSITIONS_AT_ONCE].unsqueeze(-1)
        values.append((logits.gather(-1, chosen).squeeze(-1) - log_total(logits)).double().cpu())
    return torch.cat(values).numpy()


def log_total(logits: Any) -> Any:
    """log of the sum of exp over the vocabulary, (n,) from logits (n, vocabulary), of as many rows as a processor's cache holds."""
    import torch

    return torch.cat([rows.logsumexp(-1) for rows in logits.split(32)])
