"""What the public metric code does, step by step, for `benchmarks.metrics`: the library where it installs, else its procedure.

Models and texts are those of the benchmark's other side; tokens and sentences are split by the same rules, so that only
the way of computing differs.
"""

import difflib
import string
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np


def bert_score_once(candidates: Sequence[str], references: Sequence[list[str]], encoder: str, layer: int) -> np.ndarray:
    """P, R and F1 by one call of the library, (3, n)."""
    import bert_score

    from parliabench_utils.models.embeddings import encoder_folder
    from parliabench_utils.models.specs import quiet_loading

    folder = str(encoder_folder(encoder))
    with quiet_loading():
        return np.stack(bert_score.score(list(candidates), list(references), model_type=folder, num_layers=layer))


def bert_score_calls(candidates: Sequence[str], references: Sequence[list[str]], encoder: str, layer: int) -> np.ndarray:
    """P, R and F1 by one call a speech, (3, n)."""
    pairs = zip(candidates, references, strict=True)
    return np.concatenate([bert_score_once([one], [texts], encoder, layer) for one, texts in pairs], axis=1)


Side = tuple[np.ndarray, np.ndarray]  # weights (pairs, longest) and unit vectors (pairs, longest, dimension), padded


def moverscore_padded(candidates: Sequence[str], references: Sequence[list[str]], encoder: str) -> np.ndarray:
    """Version 2's loop: every pair encoded anew, then transported over all pieces of both texts.

    Two things are as in ours: marks beyond ASCII are left out too, and the score is 1 / (1 + distance), mean over references.
    """
    return transport_padded(*encode_pairs(candidates, references, encoder), [len(others) for others in references])


def encode_pairs(candidates: Sequence[str], references: Sequence[list[str]], encoder: str) -> tuple[Side, Side]:
    """Candidates and references of all pairs, each a padded batch (version 2 takes 256 pairs at a time)."""
    from parliabench_utils.models.embeddings import load_encoder

    tokenizer, model, _ = load_encoder(encoder)
    pairs = [(text, other) for text, others in zip(candidates, references, strict=True) for other in others]
    own, other = zip(*pairs, strict=True)
    first = _padded(own, tokenizer, model, _idf(candidates, tokenizer))
    return first, _padded(other, tokenizer, model, _idf(other, tokenizer))


def transport_padded(first: Side, second: Side, n_references: list[int]) -> np.ndarray:
    """Scores of the pairs by pyemd over the square of all pieces, the mean of each candidate's."""
    from pyemd import emd_with_flow

    scores = []
    for a, x, b, y in zip(*first, *second, strict=True):
        costs = _euclidean(np.concatenate([x, y]))
        flow = emd_with_flow(np.r_[a / a.sum(), np.zeros(len(b))], np.r_[np.zeros(len(a)), b / b.sum()], costs)[1]
        scores.append(1 / (1 + (np.array(flow) * costs).sum()))
    return np.array([part.mean() for part in np.split(np.array(scores), np.cumsum(n_references)[:-1])])


def _idf(texts: Sequence[str], tokenizer: Any) -> dict[str, float]:
    counts = Counter(piece for text in texts for piece in set(_pieces(text, tokenizer)))
    return {piece: log((len(texts) + 1) / (count + 1)) for piece, count in counts.items()}


def _pieces(text: str, tokenizer: Any) -> list[str]:
    return ["[CLS]", *tokenizer.tokenize(text)[:510], "[SEP]"]


def _padded(texts: Sequence[str], tokenizer: Any, model: Any, idf: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n, longest) and unit vectors (n, longest, dimension) of a padded batch; padding weighs 0."""
    import torch

    pieces = [_pieces(text, tokenizer) for text in texts]
    inputs = tokenizer.pad({"input_ids": [tokenizer.convert_tokens_to_ids(row) for row in pieces]}, return_tensors="pt")
    with torch.no_grad():
        vectors = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)[-1].numpy()
    weights = np.zeros(vectors.shape[:2])
    for i, row in enumerate(pieces):
        weights[i, : len(row)] = [idf[piece] * (not _left_out(piece)) for piece in row]
    return weights, vectors / (np.linalg.norm(vectors, axis=-1, keepdims=True) + 1e-30)


def _left_out(piece: str) -> bool:
    return "##" in piece or piece in string.punctuation or not any(map(str.isalnum, piece))


def _euclidean(x: np.ndarray) -> np.ndarray:
    squares = (x * x).sum(1)
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * x @ x.T, 1e-30)).astype(np.float64)


def self_bleu_nltk(texts: Sequence[str], n: int = 4) -> np.ndarray:
    """Each text against all others by NLTK, method-1 smoothing."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    from parliabench_utils.metrics.distinct import words

    tokens, smooth = [words(text) for text in texts], SmoothingFunction().method1
    scores = [sentence_bleu(tokens[:i] + tokens[i + 1 :], row, [1 / n] * n, smooth) for i, row in enumerate(tokens)]
    return np.array(scores)


def self_bleu_fast(texts: Sequence[str], n: int = 4) -> np.ndarray:
    """The same by fast-bleu."""
    from fast_bleu import SelfBLEU

    from parliabench_utils.metrics.distinct import words

    return np.array(SelfBLEU([words(text) for text in texts], {"n": (1 / n,) * n}).get_score()["n"])


def bert_for_grammar(folder: Path, encoder: str) -> tuple[str, str]:
    """Folders with a masked model and a classifier on the encoder's layers; their heads are random, by seed."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer, logging

    from parliabench_utils.models.embeddings import encoder_folder
    from parliabench_utils.models.specs import quiet_loading

    logging.set_verbosity_error()  # it warns that the heads are new
    kinds = {"masked": AutoModelForMaskedLM, "classifier": AutoModelForSequenceClassification}
    for name, kind in kinds.items():
        torch.manual_seed(0)
        with quiet_loading():
            kind.from_pretrained(encoder_folder(encoder)).save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(encoder_folder(encoder)).save_pretrained(folder / name)
    return str(folder / "masked"), str(folder / "classifier")


def gruen_loop(texts: Sequence[str], masked: str, classifier: str) -> np.ndarray:
    """The published code: models read anew, one sentence at a time, the classifier's input padded to 128.

    Its focus part (which never fires) would read each sentence twice with spaCy; that is left out here, in its favour.
    """
    import torch
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

    from parliabench_utils.metrics.gruen import sentences_of
    from parliabench_utils.models.specs import quiet_loading

    sentences = [sentences_of(text, parity=True) for text in texts]
    with quiet_loading():
        reader = AutoModelForMaskedLM.from_pretrained(masked).eval()
        judge = AutoModelForSequenceClassification.from_pretrained(classifier).eval()
        tokenizer = AutoTokenizer.from_pretrained(masked)
    scores = []
    for group in sentences:
        losses, logits = [], []
        for sentence in group:
            ids = tokenizer(sentence, truncation=True, max_length=512, return_tensors="pt")["input_ids"]
            fixed = tokenizer(sentence, truncation=True, max_length=128, padding="max_length", return_tensors="pt")
            with torch.no_grad():
                losses.append(exp(reader(ids, labels=ids).loss.item()))
                logits.append(judge(**fixed).logits[0, 1].item())
        grammar = max(0.0, (exp(-np.mean(losses) / 2) + np.mean(logits)) / 8 + 0.5)
        scores.append(min(1.0, max(0.0, grammar - 0.1 * sum(_flags(a, b) for a, b in combinations(group, 2)))))
    return np.array(scores)


def gruen_calls(texts: Sequence[str], masked: str, classifier: str) -> np.ndarray:
    """One call of the published code a speech."""
    return np.concatenate([gruen_loop([text], masked, classifier) for text in texts])


def _flags(a: str, b: str) -> int:
    """The published rules of redundancy, each computed in full."""
    from rapidfuzz.distance import Levenshtein

    if a in b or b in a:
        return 4
    words_a, words_b = a.split(), b.split()
    fewest = min(len(words_a), len(words_b))
    if max(len(words_a), len(words_b)) < 5:
        return 0
    match = difflib.SequenceMatcher(None, a, b).find_longest_match()
    return (
        (match.size > 0.8 * min(len(a), len(b)))
        + (len(a[match.a : match.a + match.size].split()) > 0.8 * fewest)
        + (Levenshtein.distance(a, b) < 0.6 * max(len(a), len(b)))
        + (len([word for word in words_a if word in words_b]) > 0.8 * fewest)
    )


def perplexity_padded(texts: Sequence[str], model: Any, tokenizer: Any, batch_size: int = 8) -> np.ndarray:
    """As evaluate does: all texts padded to the longest of all, and the logits of a whole batch kept."""
    import torch

    from parliabench_utils.metrics.distinct import first_words
    from parliabench_utils.metrics.perplexity import start_token

    ids = [[start_token(tokenizer), *tokenizer(first_words(t, 512), add_special_tokens=False)["input_ids"]] for t in texts]
    longest, scores = max(map(len, ids)), []
    for start in range(0, len(ids), batch_size):
        rows = ids[start : start + batch_size]
        inputs = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        with torch.no_grad():
            logits = model(inputs, attention_mask=mask).logits
        shifted, labels, weight = logits[:, :-1].contiguous(), inputs[:, 1:], mask[:, 1:]
        loss = torch.nn.functional.cross_entropy(shifted.transpose(1, 2), labels, reduction="none")
        scores += torch.exp((loss * weight).sum(1) / weight.sum(1)).tolist()
    return np.array(scores)


def one_layer_encoder(folder: Path, encoder: str) -> Path:
    """A folder with the encoder's first layer: its width, its words, a sixth of its work."""
    from parliabench_utils.models.embeddings import cut_layers, load_encoder

    tokenizer, model, _ = load_encoder(encoder)
    model = cut_layers(model, 1)
    model.config.num_hidden_layers = 1
    model.save_pretrained(folder / "one-layer")
    tokenizer.save_pretrained(folder / "one-layer")
    return folder / "one-layer"


def one_layer_language_model() -> tuple[Any, Any]:
    """A random GPT-2 of one narrow layer over SmolLM2's vocabulary, and SmolLM2's tokeniser."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from parliabench_utils.models.specs import load_tokenizer

    torch.manual_seed(0)
    tokenizer = load_tokenizer("smollm2-135m")
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=1)).eval(), tokenizer
