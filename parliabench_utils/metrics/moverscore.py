"""MoverScore: how far a speech's pieces must move to become a reference's (paper 4.1 (2); Zhao et al. 2019).

Used by notebook 05. Version 2 of the reference code: last layer of the encoder, idf weights, without punctuation and later pieces
of words, score 1 / (1 + earth mover's distance). The distance is exact (POT, float64) on the pieces that carry mass.

    moverscore(["My Lords, I beg to move."], [["My Lords, I rise to move."]], "all-MiniLM-L6-v2")
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from parliabench_utils.metrics.bertscore import BLOCK, piece_idf, usable_pairs
from parliabench_utils.models.embeddings import TokenEncoder, Tokens

OVER = {"mean": np.mean, "max": np.max}
COST = ("euclidean", "squared")  # version 2's, and version 1's: score 1 - EMD
Mass = tuple[np.ndarray, np.ndarray]  # weights (n,) that sum to 1, vectors (n, dimension)


def signature(encoder: TokenEncoder, idf: bool = True, over: str = "mean", cost: str = "euclidean", fixed_idf: bool = False) -> str:
    """What fixes a value."""
    source = ("fixed-texts" if fixed_idf else "candidates+references") if idf else "off"
    form = "1/(1+emd)" if cost == "euclidean" else "1-emd"
    pieces = "without-marks-and-subwords"
    return f"MoverScore|{encoder.signature}|{pieces}|idf:{source}|cost:{cost}|{form}|emd:exact-pot|over:{over}|v1"


def moverscore(
    candidates: Sequence[str | None],
    references: Sequence[Sequence[str]],
    encoder: TokenEncoder | str,
    layer: int = -1,
    idf: bool = True,
    over: str = "mean",
    cost: str = "euclidean",
    idf_texts: Sequence[str] | None = None,
    n_threads: int = 2,
) -> np.ndarray:
    """Score over the references by `over` (mean or max), shape (n_speeches,), in (0, 1], or up to 1 with squared costs;
    NaN without pieces or references.

    idf is counted in the candidates and in the references, each for its own side, as the reference code does: a score
    then depends on the other speeches of the call. `idf_texts` fixes one count for both sides instead. Where every
    weight is 0 (one text alone) pieces weigh the same.
    """
    if over not in OVER or cost not in COST:
        raise ValueError(f"over {over!r} is one of {', '.join(OVER)}; cost {cost!r} one of {', '.join(COST)}")
    encoder = TokenEncoder(encoder, layer) if isinstance(encoder, str) else encoder
    references, usable = usable_pairs(candidates, references)
    own = other = None
    if idf:
        own = piece_idf([candidates[i] for i in usable] if idf_texts is None else idf_texts, encoder)
        other = own if idf_texts is not None else piece_idf([text for texts in references for text in texts], encoder)
    scores = np.full(len(candidates), np.nan)
    with ThreadPoolExecutor(n_threads) as pool:
        for start in range(0, len(usable), BLOCK):
            block = usable[start : start + BLOCK]
            shared = sorted({text for i in block for text in references[i]})
            encoded = {t: mass(tokens, other) for t, tokens in zip(shared, encoder.encode(shared), strict=True)}
            masses = [mass(tokens, own) for tokens in encoder.encode([candidates[i] for i in block])]
            pairs = [(masses[n], encoded[text]) for n, i in enumerate(block) for text in references[i]]
            values = iter(list(pool.map(lambda pair: similarity(*pair, cost), pairs)))
            for i in block:
                known = [value for value in [next(values) for _ in references[i]] if not np.isnan(value)]
                scores[i] = OVER[over](known) if known else np.nan
    return scores


def mass(tokens: Tokens, idf: dict[int, float] | None) -> Mass:
    """Weights (n,) that sum to 1 in float64, and unit vectors (n, dimension), of the pieces that carry mass; n may be 0."""
    content = (tokens.kept & ~tokens.special).astype(np.float64)
    if idf is None:
        weights = tokens.kept * float(content.any())  # specials count, as in the reference code, but not alone
    else:
        weights = np.array([idf.get(int(piece), idf[-1]) for piece in tokens.ids]) * tokens.kept
        if weights.sum() <= 0:  # one text alone: every idf is 0, and the reference code calls any pair perfect
            weights = content
    carries = weights > 0
    return weights[carries] / max(weights.sum(), 1e-300), tokens.vectors[carries]


def similarity(candidate: Mass, reference: Mass, cost: str = "euclidean") -> float:
    """1 / (1 + EMD), or 1 - EMD with squared costs; NaN when either side carries no mass."""
    if not len(candidate[0]) or not len(reference[0]):
        return float("nan")
    distance = earth_movers_distance(*candidate, *reference, cost)
    return 1 / (1 + distance) if cost == "euclidean" else 1 - distance


def earth_movers_distance(weights_a, vectors_a, weights_b, vectors_b, cost: str = "euclidean") -> float:
    """Least total of mass times distance that turns one text into the other; RuntimeError where the solver gives up.

    POT would return 0, a perfect score, for masses that do not add up to the same; the weights are float64 and sum to 1.
    """
    import ot

    a, b = vectors_a.astype(np.float64), vectors_b.astype(np.float64)  # in float32 a square root would make 0.0003 of nothing
    squared = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * (a @ b.T), 0)
    costs = np.sqrt(squared) if cost == "euclidean" else squared
    value, log = ot.emd2(weights_a, weights_b, costs, numItermax=1_000_000, log=True)
    if log.get("warning"):
        raise RuntimeError(f"optimal transport of {costs.shape} pieces failed: {log['warning']}")
    return max(0.0, float(value))
