"""Self-BLEU: how much of a text the other texts of its group have said too (paper 4.1 (1); Zhu et al. 2018).

Used by notebooks 05 and 08. Each text is scored against all the *others*, as NLTK's `sentence_bleu` with method-1
smoothing does, but for the whole group at once: an n-gram's highest count, its owner and the runner-up are all that a
text must know. The value grows with the number of references, and it depends on what they answer: sets of speeches are
compared by `comparable`, which gives every set as many speeches to the same prompts; groups of texts by `k`.

>>> self_bleu(["a b c d e", "a b c d e", "v w x y z"]).round(6)
array([1., 1., 0.])
"""

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

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
    texts: Sequence[str | None], groups: Sequence[Hashable] | None = None, max_n: int = 4, k: int | None = None, seed: int = 42
) -> np.ndarray:
    """BLEU of each text against the other texts of its group, in [0, 1], shape (n_speeches,); 1 says: nothing new.

    NaN for a missing text (None) and in a group of one (or with fewer than `k` others); an empty text scores 0.
    `k` draws that many references for each text, by `seed` and the text, so that groups of unequal size can be
    compared; the order of the texts does not matter.
    """
    known = [i for i, text in enumerate(texts) if text is not None]
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(groups[i] if groups is not None else 0, len(numbers)) for i in known], dtype=np.int64)
    scores, spoken = np.full(len(texts), np.nan), [texts[i] for i in known]
    if k is None:
        scores[known] = leave_one_out(shared_ngrams(spoken, codes, max_n))
    for code in range(len(numbers) if k is not None else 0):
        rows = np.flatnonzero(codes == code)
        scores[np.array(known)[rows]] = _drawn([spoken[i] for i in rows], max_n, k, seed)
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
            scores[i] = leave_one_out(shared_ngrams([texts[i], *(texts[j] for j in chosen)], max_n=max_n))[0]
    return scores


BASE = np.uint64(0x9E3779B97F4A7C15 | 1)  # odd, so that no bit of a word's number is lost


@dataclass(frozen=True)
class Encoded:
    """Texts end to end: `codes` (n_words,) uint64, `ends` (n_words,) where the text of each word ends, `lengths` (n_texts,)."""

    words: list[list[str]]
    codes: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray


@lru_cache(maxsize=1_000_000)
def _code(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def encode(texts: Sequence[str | None]) -> Encoded:
    """The words of `texts` (None has none) as 64-bit numbers, from a hash of their letters: the same in every run.

    An n-gram's number grows word by word (`longer`); two have the same one by chance once in about 10^19 pairs.
    """
    split = [words(text) for text in texts]
    lengths = np.array([len(text) for text in split], dtype=np.int64)
    codes = np.fromiter((_code(word) for text in split for word in text), dtype=np.uint64, count=int(lengths.sum()))
    return Encoded(split, codes, np.repeat(np.cumsum(lengths), lengths), lengths)


def longer(hashes: np.ndarray, positions: np.ndarray, n: int, corpus: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams at `positions` with one more word: numbers and positions, those that would leave their text dropped."""
    fits = positions + n < corpus.ends[positions]
    kept = positions[fits]
    return hashes[fits] * BASE + corpus.codes[kept + n], kept


@dataclass(frozen=True)
class SharedNgrams:
    """All that BLEU among texts must know: an entry for each n-gram of a text that another text of its group has too.

    Entries are sorted by `key` (the n-gram in its group) and falling `count`; `order` is n - 1.
    """

    lengths: np.ndarray  # (n_texts,) words
    groups: np.ndarray  # (n_texts,)
    key: np.ndarray
    text: np.ndarray
    count: np.ndarray
    order: np.ndarray
    max_n: int


def shared_ngrams(texts: Sequence[str], groups: np.ndarray | None = None, max_n: int = 4) -> SharedNgrams:
    """The n-grams, n = 1 to `max_n`, that `texts` share within `groups` (whole numbers, one a text; None: one group)."""
    corpus, size = encode(texts), len(texts)
    groups = np.zeros(size, dtype=np.int64) if groups is None else np.asarray(groups)
    owner = np.repeat(np.arange(size), corpus.lengths)
    hashes, positions, parts, n_keys = corpus.codes, np.arange(corpus.codes.size), [], 0
    for order in range(max_n):
        grams = hashes + groups[owner[positions]].astype(np.uint64)
        place = np.argsort(grams, kind="stable")  # texts of an n-gram stay in their order
        grams, text = grams[place], owner[positions[place]]
        new = np.append(True, grams[1:] != grams[:-1])[: grams.size]
        start = np.flatnonzero(new | np.append(True, text[1:] != text[:-1])[: grams.size])
        key, text, count = np.cumsum(new)[start] - 1, text[start], np.diff(start, append=grams.size)
        shared = np.bincount(key)[key] > 1
        parts.append((key[shared] + n_keys, text[shared], count[shared], np.full(shared.sum(), order)))
        n_keys += new.sum()
        hashes, positions = longer(hashes, positions, order + 1, corpus)
    key, text, count, order = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    place = np.lexsort((-count, key))
    return SharedNgrams(corpus.lengths, groups, key[place], text[place], count[place], order[place], max_n)


def leave_one_out(found: SharedNgrams, side: np.ndarray | None = None) -> np.ndarray:
    """BLEU of each text against the others of its group and `side` (True or False; None: one side), (n_texts,), NaN for a lone one.

    The n-gram's highest count, its owner and the runner-up are all that a text must know.
    """
    size = found.lengths.size
    side = np.zeros(size, dtype=bool) if side is None else side
    owner_side = side[found.text]
    place = np.concatenate([np.flatnonzero(~owner_side), np.flatnonzero(owner_side)])  # one side, then the other
    text, count, order = found.text[place], found.count[place], found.order[place]
    key = found.key[place] + owner_side[place] * (found.key.max(initial=0) + 1)
    first = np.diff(key, prepend=-1) != 0
    top = np.maximum.accumulate(np.where(first, np.arange(key.size), 0))
    second = np.where(np.append(first[1:], True), 0, np.append(count[1:], 0))  # what others have of an owner's n-gram
    matched = np.minimum(count, np.where(first, second, count[top]))
    matches = np.bincount(text * found.max_n + order, matched, size * found.max_n).reshape(size, found.max_n)
    totals = np.maximum(found.lengths[:, None] - np.arange(found.max_n), 1)
    scores = np.exp(np.log(np.where(matches > 0, matches, EPSILON) / totals).mean(axis=1))
    scores *= _brevity(found.lengths, 2 * found.groups + side)
    return np.where((matches[:, 0] > 0) | np.isnan(scores), scores, 0.0)  # NLTK gives 0 before it smooths


def _brevity(lengths: np.ndarray, group: np.ndarray) -> np.ndarray:
    """BLEU's penalty against the nearest length of another text of the group (ties: the shorter); NaN for a lone one."""
    members = np.lexsort((lengths, group))
    own = lengths[members].astype(float)
    same = np.diff(group[members]) == 0
    below = np.where(np.append(False, same), np.append(np.nan, own[:-1]), -np.inf)
    above = np.where(np.append(same, False), np.append(own[1:], np.nan), np.inf)
    closest = np.where(own - below <= above - own, below, above)
    penalty = np.full(lengths.size, np.nan)
    penalty[members] = np.where(np.isinf(closest), np.nan, np.exp(np.minimum(0.0, 1 - closest / np.maximum(own, 1.0))))
    return penalty
