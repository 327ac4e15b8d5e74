"""The text metrics against the public code: values first, then times and memory. `python -m benchmarks.metrics [ROW ...]`

Each row runs both ways on the same model and texts in one process. Where the public code is a library (bert-score,
NLTK, fast-bleu, pyemd: `benchmarks/requirements.txt`) it is called; where it no longer installs, `public_metrics.py` beside this
file follows its procedure. `python -m benchmarks.metrics memory` shows that notebook 05's peak memory does not grow.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks import public_metrics
from benchmarks.measure import (
    alternate,
    in_own_process,
    machine,
    markdown_table,
    memory_added,
    peak_memory_mib,
    versions,
)

THREADS = 2
MINILM = "all-MiniLM-L6-v2"


@cache
def _words() -> list[str]:
    """All words of the embedded corpus, in its order."""
    from parliabench_utils.corpus import read_corpus
    from parliabench_utils.run.project import corpus_folder

    return " ".join(read_corpus(corpus_folder("mini", ""))["text"]).split()


def speeches(lengths: list[int], seed: int = 0) -> list[str]:
    """Running words of the embedded corpus, from places drawn by `seed`."""
    words, rng = _words(), np.random.default_rng(seed)
    return [" ".join(words[(start := int(rng.integers(len(words) - n))) : start + n]) for n in lengths]


def like_the_corpus(n: int, seed: int = 0) -> list[int]:
    """Lengths with the paper's corpus's median (99) and mean (223) of words, between 36 and 1,579."""
    return np.random.default_rng(seed).lognormal(np.log(99), 1.275, n).clip(36, 1579).astype(int).tolist()


def shared_references(n_contexts: int, lengths: list[int], n_models: int = 4, k: int = 5):
    """A speech a model for each context, and the same k references for all speeches of a context."""
    texts = speeches([lengths[i % len(lengths)] for i in range(n_contexts * (n_models + k))])
    candidates, rest = texts[: n_contexts * n_models], texts[n_contexts * n_models :]
    chosen = [rest[context * k :][:k] for context in range(n_contexts)]
    return candidates, [chosen[i // n_models] for i in range(len(candidates))]


@cache
def product_rate(n: int = 2048) -> float:
    """Multiplications and additions a second of this machine's best float32 matrix product."""
    import torch

    a, b = torch.randn(2, n, n)
    return 2 * n**3 / min(alternate({"product": lambda: a @ b}, 1)["product"] for _ in range(10))


class _InThisThread:
    """Stands in for a pool of threads: the counter of products sees its own thread only."""

    map = staticmethod(map)

    def __init__(self, *_, **__):
        pass

    def __enter__(self) -> "_InThisThread":
        return self

    def __exit__(self, *_) -> None:
        pass


def products_of(way: Callable) -> int:
    """Multiplications and additions of the matrix products in `way` (attention's own are not counted)."""
    from torch.utils.flop_counter import FlopCounterMode

    with (
        patch("parliabench_utils.models.embeddings.ThreadPoolExecutor", _InThisThread),
        FlopCounterMode(display=False) as counter,
    ):
        way()
    return counter.get_total_flops()


def row(name: str, against: str, target: float, ours: Callable, theirs: Callable, repeats: int = 1, bound: bool = False) -> dict:
    """One line: the largest difference of the two ways' values, the median seconds of each, the ratio.

    `bound` adds the ratio if ours did its matrix products at the machine's best rate, and nothing else.
    """
    values: dict[str, np.ndarray] = {}
    ways = {"ours": lambda: values.update(ours=ours()), "theirs": lambda: values.update(theirs=theirs())}
    seconds = alternate(ways, repeats, warm_up=False)
    return {
        "metric": name,
        "against": against,
        "largest difference": f"{np.nanmax(np.abs(values['ours'] - values['theirs'])):.0e}",
        "ours, s": seconds["ours"],
        "theirs, s": seconds["theirs"],
        "ratio": seconds["theirs"] / seconds["ours"],
        "wanted": target,
        "at most": seconds["theirs"] * product_rate() / products_of(ours) if bound else "",
    }


def bertscore_rows() -> Iterator[dict]:
    from parliabench_utils.metrics.bertscore import bertscore
    from parliabench_utils.models.embeddings import TokenEncoder

    candidates, chosen = shared_references(30, like_the_corpus(270))

    def ours() -> np.ndarray:
        return np.stack(bertscore(candidates, chosen, TokenEncoder(MINILM, 5)))

    calls = partial(public_metrics.bert_score_calls, candidates, chosen, MINILM, 5)
    what = f"one call a speech, {len(candidates)} speeches as long as the corpus's, 5 references shared by 4 models"
    yield row("BERTScore", f"bert_score, {what}", 8, ours, calls, 3, bound=True)
    once = partial(public_metrics.bert_score_once, candidates, chosen, MINILM, 5)
    yield row("BERTScore", "bert_score, one call for all of these", 1.5, ours, once, 3, bound=True)


def moverscore_rows() -> Iterator[dict]:
    from parliabench_utils.metrics.moverscore import moverscore
    from parliabench_utils.models.embeddings import TokenEncoder

    candidates, chosen = shared_references(2, [250])
    what = f"{len(candidates)} speeches of 250 words, 5 references shared by 4 models"
    encoder, sides = TokenEncoder(MINILM), public_metrics.encode_pairs(candidates, chosen, MINILM)
    encoder.encode([*candidates, *(text for texts in chosen for text in texts)])  # stay in its memory
    score = partial(moverscore, candidates, chosen, n_threads=THREADS)
    padded = partial(public_metrics.transport_padded, *sides, [len(texts) for texts in chosen])
    what = f"version 2's padded pyemd loop, {what}"
    yield row("MoverScore", f"{what}, vectors known", 10, lambda: score(encoder=encoder), padded)
    whole = partial(public_metrics.moverscore_padded, candidates, chosen, MINILM)
    yield row("MoverScore", f"{what}, with encoding", 10, lambda: score(encoder=TokenEncoder(MINILM)), whole)


def self_bleu_rows() -> Iterator[dict]:
    from parliabench_utils.metrics.self_bleu import self_bleu

    texts = speeches([223] * 200)
    ours, nltk = partial(self_bleu, texts), partial(public_metrics.self_bleu_nltk, texts)
    yield row("Self-BLEU", "NLTK, 200 speeches of 223 words", 100, ours, nltk)
    if find_spec("fast_bleu"):
        yield row("Self-BLEU", "fast-bleu, the same", 1, ours, partial(public_metrics.self_bleu_fast, texts), 3)


def gruen_rows() -> Iterator[dict]:
    from parliabench_utils.metrics.gruen import MaskedGrammar, gruen

    texts = speeches([223] * 24)
    with tempfile.TemporaryDirectory() as folder:
        models = public_metrics.bert_for_grammar(Path(folder), MINILM)

        def ours() -> np.ndarray:
            return gruen(texts, MaskedGrammar(*models), None, parity=True)["GRUEN"].to_numpy()

        what = f"{len(texts)} speeches of 223 words, sentence by sentence"
        once = partial(public_metrics.gruen_loop, texts, *models)
        yield row("GRUEN", f"published code, one call, {what}", 10, ours, once, bound=True)
        calls = partial(public_metrics.gruen_calls, texts, *models)
        yield row("GRUEN", f"published code, one call a speech, {what}", 10, ours, calls, bound=True)


def perplexity_row() -> Iterator[dict]:
    from parliabench_utils.metrics.perplexity import load_language_model, perplexity

    texts = speeches(like_the_corpus(16))
    model, tokenizer, _ = load_language_model("smollm2-135m")

    def nats(way: Callable) -> Callable:
        """A perplexity runs into the thousands: its logarithm shows how far two are apart."""
        return lambda: np.log(way(texts, model, tokenizer))

    what = f"all padded to the longest, logits kept; {len(texts)} speeches as long as the corpus's; difference in nats a token"
    yield row("Perplexity", what, 2, nats(perplexity), nats(public_metrics.perplexity_padded))
    ours, theirs = (float(in_own_process("benchmarks.metrics", "perplexity-memory", who)) for who in ("ours", "theirs"))
    yield {
        "metric": "Perplexity",
        "against": "the same, peak memory beyond the loaded model, MiB",
        "largest difference": "",
        "ours, s": f"{ours:.0f} MiB",
        "theirs, s": f"{theirs:.0f} MiB",
        "ratio": theirs / ours,
        "wanted": 10,
        "at most": "",
    }


def perplexity_memory(who: str) -> float:
    """MiB that reading 16 speeches adds to a process which has the model."""
    from parliabench_utils.metrics.perplexity import load_language_model, perplexity

    texts = speeches(like_the_corpus(16))
    model, tokenizer, _ = load_language_model("smollm2-135m")
    way = {"ours": perplexity, "theirs": public_metrics.perplexity_padded}[who]
    way(texts[:1], model, tokenizer)
    return memory_added(lambda: way(texts, model, tokenizer))


def alignment_row() -> Iterator[dict]:
    from parliabench_utils.models.embeddings import SentenceEncoder

    texts = speeches(like_the_corpus(40))
    encoder = SentenceEncoder(MINILM, cache=False)
    encoder.encode(texts[:1])  # its weights are read

    def ours() -> np.ndarray:
        vectors = encoder.encode(texts)
        return np.stack([vectors, vectors])

    def theirs() -> np.ndarray:
        return np.stack([encoder.encode(texts), encoder.encode(texts)])

    yield row("PSA + Party Align", "encoding for each metric again", 1.9, ours, theirs, 3)


def memory(n_speeches: int, n_words: int = 60) -> float:
    """Peak MiB of notebook 05's metrics on so many speeches, in sets of 500, by one-layer models of real width.

    Speeches are short and the two caches of token vectors hold 64 MB instead of 512, so that they are full long before the
    end; GRUEN's grammar, whose models see a handful of sentences at a time, is a constant.
    """
    from parliabench_utils.metrics import bertscore, distinct, gruen, moverscore, perplexity, self_bleu
    from parliabench_utils.metrics.gruen import SentenceSimilarity
    from parliabench_utils.models.embeddings import SentenceEncoder, TokenEncoder

    model, tokenizer = public_metrics.one_layer_language_model()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PARLIABENCH_CACHE"] = folder  # the disk cache starts empty
        one_layer = str(public_metrics.one_layer_encoder(Path(folder), MINILM))
        similarity = SentenceSimilarity(SentenceEncoder(one_layer))
        matcher, mover = TokenEncoder(one_layer, 1, keep_mb=64), TokenEncoder(one_layer, keep_mb=64)
        for start in range(0, n_speeches, 500):
            texts = speeches([n_words] * 500, seed=start)
            chosen = [speeches([n_words] * 2, seed=start + i // 4) for i in range(len(texts))]
            perplexity.perplexity(texts, model, tokenizer)
            distinct.distinct_n(texts)
            self_bleu.self_bleu(texts)
            gruen.gruen(texts, lambda found: (np.ones(len(found)), np.zeros(len(found))), similarity)
            bertscore.bertscore(texts, chosen, matcher)
            moverscore.moverscore(texts, chosen, mover, idf_texts=texts[:100])
    return peak_memory_mib()


def memory_table() -> None:
    """2,000 speeches against 4,000, each in a process of its own."""
    peaks = {n: float(in_own_process("benchmarks.metrics", "memory-of", str(n))) for n in (2000, 4000)}
    print(markdown_table([{"speeches": n, "peak memory, MiB": f"{peak:.0f}"} for n, peak in peaks.items()]))


def _warm_up() -> None:
    """Libraries are read before the first way is timed."""
    import bert_score  # noqa: F401
    import nltk  # noqa: F401
    import ot  # noqa: F401

    from parliabench_utils.models.embeddings import load_encoder

    load_encoder(MINILM)


ROWS = {
    "bertscore": bertscore_rows,
    "moverscore": moverscore_rows,
    "self-bleu": self_bleu_rows,
    "gruen": gruen_rows,
    "perplexity": perplexity_row,
    "alignment": alignment_row,
}


def main(arguments: list[str]) -> None:
    """Print the table of all ROWS, or of those named; `memory` prints the other one."""
    import torch

    torch.set_num_threads(THREADS)
    _warm_up()
    if arguments[:1] == ["perplexity-memory"]:
        return print(perplexity_memory(arguments[1]))
    if arguments[:1] == ["memory-of"]:
        return print(memory(int(arguments[1])))
    print(f"{machine()}; {versions('torch', 'transformers', 'bert-score', 'nltk', 'POT')}\n")
    if arguments == ["memory"]:
        return memory_table()
    lines = []
    for line in chain.from_iterable(ROWS[name]() for name in arguments or ROWS):
        print(line, file=sys.stderr, flush=True)  # a run that is stopped has not lost what it measured
        lines.append(line)
    print(markdown_table(lines))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
