"""BERTScore: each piece of a speech matched with the most similar piece of a reference (paper 4.1 (2); Zhang et al. 2020).

Used by notebook 05. The values are those of the `bert-score` library on the same encoder and layer, but references
that many speeches share are encoded once, and one matrix product compares a speech with all its references.

    P, R, F1 = bertscore(["My Lords, I beg to move."], [["My Lords, I rise to move."]], "all-MiniLM-L6-v2", layer=6)
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from parliabench_utils.models.embeddings import TokenEncoder, Tokens

BLOCK = 128  # candidates compared at a time: bounds the memory
# Mean P, R, F1 of unrelated sentences, as bert-score ships them; no other encoder may be rescaled.
BASELINES = {("roberta-large", 17): (0.83150584, 0.8314941, 0.83122575)}


def signature(encoder: TokenEncoder, idf: bool = False, rescale: bool = False) -> str:
    """What fixes a value; several references: the highest P, R and F1, each for itself, as the library has it."""
    weights = "idf:references" if idf else "idf:off"
    return f"BERTScore|{encoder.signature}|{weights}|rescale:{rescale}|specials:matchable|over:max|v1"


def bertscore(
    candidates: Sequence[str | None],
    references: Sequence[Sequence[str]],
    encoder: TokenEncoder | str,
    layer: int | None = None,
    idf: bool = False,
    rescale: bool = False,
    idf_texts: Sequence[str] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1, three arrays (n_speeches,), in [-1, 1]; NaN for a speech without pieces or references.

    `references[i]` are the texts of speech i, equal weights; `idf` weighs pieces by their rarity in the references,
    or in `idf_texts`, which are the same whoever is scored.
    With `rescale` unrelated text is near 0; ValueError where no baseline of the encoder and layer is known. The opening
    and closing pieces weigh nothing, but a word may match them, as in the library.
    """
    encoder = TokenEncoder(encoder, -1 if layer is None else layer) if isinstance(encoder, str) else encoder
    key = (encoder.name.rsplit("/", 1)[-1], encoder.layer)
    if rescale and key not in BASELINES:
        known = ", ".join(f"{name} layer {layer}" for name, layer in BASELINES)
        raise ValueError(f"no baseline for {key[0]} layer {key[1]}, so nothing to rescale by; known: {known}")
    references, usable = usable_pairs(candidates, references)
    counted = [text for texts in references for text in texts] if idf_texts is None else idf_texts
    weights = piece_idf(counted, encoder) if idf else None
    scores = np.full((3, len(candidates)), np.nan)
    for start in range(0, len(usable), BLOCK):
        block = usable[start : start + BLOCK]
        texts = sorted({text for i in block for text in (candidates[i], *references[i])})
        encoded = zip(texts, encoder.encode(texts), strict=True)
        spoken = {text: tokens for text, tokens in encoded if not tokens.special.all()}
        for shared, group in groupby(block, key=lambda i: references[i]):
            if known := [spoken[text] for text in shared if text in spoken]:
                with_all = _against(known, weights)
                for i in group:
                    if candidates[i] in spoken:
                        scores[:, i] = with_all(spoken[candidates[i]])
    if rescale:
        baseline = np.array(BASELINES[key])[:, None]
        scores = (scores - baseline) / (1 - baseline)
    return scores[0], scores[1], scores[2]


def usable_pairs(candidates: Sequence[str | None], references: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[int]]:
    """References without empty ones, and the numbers of the speeches that can be scored, those with the same references together.

    ValueError where there is not one list of texts for each candidate; a bare string would be read letter by letter.
    """
    if len(candidates) != len(references):
        raise ValueError(f"{len(candidates)} speeches and {len(references)} lists of references")
    if bare := [i for i, texts in enumerate(references) if isinstance(texts, str)]:
        raise ValueError(f"the references of speech {bare[0]} are one string; a list of texts is wanted: [text]")
    references = [[text for text in texts if text and text.strip()] for texts in references]
    usable = [i for i, text in enumerate(candidates) if text and text.strip() and references[i]]
    return references, sorted(usable, key=lambda i: references[i])


def _against(references: Sequence[Tokens], idf: dict[int, float] | None) -> Callable[[Tokens], np.ndarray]:
    """A function of a candidate: its highest P, R and F1 over the references, shape (3,)."""
    starts = np.cumsum([0, *(len(reference.ids) for reference in references)])[:-1]
    vectors = np.concatenate([reference.vectors for reference in references])
    weights = np.concatenate([_piece_weights(reference, idf) for reference in references])

    def best_match(candidate: Tokens) -> np.ndarray:
        similarity = candidate.vectors @ vectors.T  # (pieces, all reference pieces)
        to_reference = np.maximum.reduceat(similarity, starts, axis=1)  # (pieces, references): each piece's best match
        precision = _piece_weights(candidate, idf) @ to_reference
        recall = np.add.reduceat(weights * similarity.max(axis=0), starts)
        both = precision + recall
        f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both != 0)
        return np.clip([precision.max(), recall.max(), f1.max()], -1, 1)

    return best_match


def _piece_weights(tokens: Tokens, idf: dict[int, float] | None) -> np.ndarray:
    """Weights of a text's pieces that sum to 1: equal without the special ones, or by idf; equal where every idf is 0."""
    plain = (~tokens.special).astype(np.float64)
    weights = plain if idf is None else np.array([idf.get(int(piece), idf[-1]) for piece in tokens.ids])
    if weights.sum() <= 0:
        weights = plain
    return weights / weights.sum()


def piece_idf(texts: Sequence[str], encoder: TokenEncoder) -> dict[int, float]:
    """Piece id -> ln((N + 1) / (df + 1)) over N texts; key -1 holds the value of a piece in none; specials get 0."""
    frequency = Counter(piece for text in texts for piece in set(encoder.pieces(text)))
    idf = {piece: float(np.log((len(texts) + 1) / (df + 1))) for piece, df in frequency.items()}
    return idf | dict.fromkeys(encoder.special_ids, 0.0) | {-1: float(np.log(len(texts) + 1))}
