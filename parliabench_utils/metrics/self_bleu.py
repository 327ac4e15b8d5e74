"""Self-BLEU: how much of a text the other texts of its group have said too (paper 4.1 (1); Zhu et al. 2018).

Used by notebooks 05 and 08. Each text is scored against all the *others*, as NLTK's `sentence_bleu` with method-1
smoothing does, but for the whole group at once: an n-gram's highest count, its owner and the runner-up are all that a
text must know. The value grows with the number of references, and it depends on what they answer: sets of speeches are
compared by `comparable`, which gives every set as many speeches to the same prompts; groups of texts by `k`.

>>> self_bleu(["a b c d e", "a b c d e", "v w x y z"]).round(6)
array([1., 1., 0.])
"""

import random
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import pandas as pd

from parliabench_utils.metrics.distinct import SIGNATURE, words

EPSILON = 0.1  # NLTK's method 1: this replaces a count of no matches
GROUP_COLUMNS = {"prompt": "prompt_id", "context": "context_id", "model": "model"}
SET = ["model", "type"]


def signature(group: str, max_n: int = 4, k: int | None = None, seed: int = 42) -> str:
    """What fixes a value; `group` says whom a text is compared with: prompt, context or model."""
    references = f"{k}-drawn-seed{seed}" if k else "all-others"
    return f"Self-BLEU-{max_n}|group:{group}|refs:{references}|smooth:nltk-method1|{SIGNATURE}|v1"


def self_bleu(
    texts: Sequence[str | None],
    groups: Sequence[Hashable] | None = None,
    max_n: int = 4,
    k: int | None = None,
    seed: int = 42,
) -> np.ndarray:
    """BLEU of each text against the other texts of its group, in [0, 1], shape (n_speeches,); 1 says: nothing new.

    NaN for a missing text (None) and in a group of one (or with fewer than `k` others); an empty text scores 0.
    `k` draws that many references for each text, by `seed` and the text, so that groups of unequal size can be
    compared; the order of the texts does not matter.
    """
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups if groups is not None else [0] * len(texts)):
        if texts[i] is not None:
            members.setdefault(group, []).append(i)
    scores = np.full(len(texts), np.nan)
    for rows in members.values():
        group = [texts[i] for i in rows]
        scores[rows] = _leave_one_out(group, max_n) if k is None else _drawn(group, max_n, k, seed)
    return scores


def require_variants(group: str, variants: int) -> None:
    """ValueError where a prompt's variants are to be compared and models gave one speech a prompt: there would be no value.

    `variants` is 0 where no model speaks.
    """
    if group == "prompt" and variants == 1:
        raise ValueError(
            "self_bleu_group: prompt compares a prompt's variants, and 04_generate gave one speech a prompt: set "
            "self_bleu_group to model or context, or variants_per_prompt of 04 to 2 or more and run 04 again"
        )


def pools(speeches: pd.DataFrame, group: str) -> pd.Series:
    """The pool in which each speech can be compared with other sets', rows as in `speeches`, NA for one that cannot.

    Every set (model, type) has the same prompts in a pool, each as often: a speech counts where all sets have one in its
    place. Of `group` prompt a pool is a prompt's variants; of context and model it has one speech a prompt: the first of
    each in one pool, where the members' own stand beside them, the second ones in another. A set that never has two
    speeches in a pool has no value, and bars nobody else's.
    """
    spoken = speeches[speeches["generated_speech"].notna()].sort_values("variant", kind="stable")
    owner, human = spoken.groupby(SET).ngroup(), spoken["type"] == "human"
    place = spoken.groupby([*SET, "prompt_id"]).cumcount()
    layer = place * (group != "prompt")
    label = spoken.assign(layer=layer).groupby([GROUP_COLUMNS[group], "layer"] if group != "model" else "layer").ngroup()
    able = label.groupby([owner, label]).transform("size").gt(1).groupby(owner).transform("any")
    wanted = owner[able].nunique() - (layer > 0) * owner[able & human].nunique()  # sets that must have a speech in a place
    present = owner[able].groupby([spoken["prompt_id"][able], place[able]]).transform("nunique")
    return label[able][present == wanted[able]].reindex(speeches.index).astype("Int64")


def comparable(speeches: pd.DataFrame, group: str, max_n: int = 4) -> pd.Series:
    """Self-BLEU of each speech among those of its set in its pool (`pools`): means of sets can be compared.

    `speeches` has `prompt_id, variant, model, type, generated_speech` and, for `group` context, `context_id`; rows of the
    result as there, in [0, 1], NaN outside the pools.
    """
    pool = pools(speeches, group).dropna()
    inside = speeches.loc[pool.index]
    keys = list(zip(inside["model"], inside["type"], pool, strict=True))
    values = pd.Series(self_bleu(inside["generated_speech"].tolist(), keys, max_n), pool.index)
    return values.reindex(speeches.index)


def _drawn(texts: list[str], max_n: int, k: int, seed: int) -> np.ndarray:
    """Each text against `k` of the others."""
    scores = np.full(len(texts), np.nan)
    in_order = sorted(range(len(texts)), key=texts.__getitem__)
    for place, i in enumerate(in_order):
        others = in_order[:place] + in_order[place + 1 :]
        if len(others) >= k:
            chosen = random.Random(f"{seed} {texts[i]!r}").sample(others, k)
            scores[i] = _leave_one_out([texts[i], *(texts[j] for j in chosen)], max_n)[0]
    return scores


def _leave_one_out(texts: list[str], max_n: int) -> np.ndarray:
    if len(texts) < 2:
        return np.full(len(texts), np.nan)
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(word, len(numbers)) for word in words(text)] for text in texts]
    lengths = np.array([len(row) for row in ids])
    owner = np.repeat(np.arange(len(texts)), lengths)
    tokens = np.array([token for row in ids for token in row], dtype=np.int64)
    logs = np.zeros(len(texts))
    unigrams = np.zeros(len(texts))
    for n, (who, ngrams) in enumerate(_ngrams(tokens, owner, max_n), start=1):
        matches = _matches(who, ngrams, len(texts))
        unigrams = matches if n == 1 else unigrams
        logs += np.log(np.where(matches > 0, matches, EPSILON) / np.maximum(1, lengths - n + 1))
    scores = np.exp(logs / max_n + np.minimum(0, 1 - _closest(lengths) / np.maximum(1, lengths)))
    return np.where(unigrams > 0, scores, 0.0)  # NLTK gives 0 before it smooths


def _ngrams(tokens: np.ndarray, owner: np.ndarray, max_n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For n = 1, 2, ...: the text and the number of every n-gram, equal numbers for equal n-grams, two (n_ngrams,)."""
    grams, n_words = tokens, int(tokens.max(initial=0)) + 1
    yield owner, grams
    for n in range(2, max_n + 1):
        inside = owner[: max(0, len(owner) - n + 1)] == owner[n - 1 :]  # no n-gram crosses from one text into the next
        longer = grams[: len(inside)] * n_words + tokens[n - 1 :]
        grams = np.unique(longer, return_inverse=True)[1]
        yield owner[: len(inside)][inside], grams[inside]


def _matches(owner: np.ndarray, ngrams: np.ndarray, n_texts: int) -> np.ndarray:
    """How many n-grams of each text occur in another one, each at most as often as in the one with most, (n_texts,)."""
    pairs, count = np.unique(ngrams * n_texts + owner, return_counts=True)
    gram, owner = np.divmod(pairs, n_texts)
    order = np.lexsort((-count, gram))  # of each n-gram the text with the highest count comes first, then the runner-up
    gram, owner, count = gram[order], owner[order], count[order]
    first = np.flatnonzero(np.r_[True, gram[1:] != gram[:-1]]) if len(gram) else np.empty(0, dtype=int)
    size = np.diff(np.r_[first, len(gram)])
    limit = np.repeat(count[first], size)
    second = np.where(size > 1, count[np.minimum(first + 1, len(gram) - 1)], 0) if len(gram) else limit
    limit[first] = second
    return np.bincount(owner, np.minimum(count, limit), n_texts)


def _closest(lengths: np.ndarray) -> np.ndarray:
    """The length nearest to each among the other texts, the shorter of two equally near, (n_texts,)."""
    kinds, row, count = np.unique(lengths, return_inverse=True, return_counts=True)
    far = np.iinfo(np.int32).max
    below, above = np.r_[-far, kinds[:-1]], np.r_[kinds[1:], far]
    nearest = np.where(kinds - below <= above - kinds, below, above)
    return np.where(count > 1, kinds, nearest)[row]
