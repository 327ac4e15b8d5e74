"""Self-BLEU of the compared speeches, and whether fine-tuning changes it: a permutation test (notebook 08).

A job's own Self-BLEU grows with the number of its valid speeches, so `compared_self_bleu` computes it again: as many speeches
to the same prompts in every set. A t-test counts each of them as independent, which they are not, as they are each other's
references; here the two types change places instead, and the difference is taken anew. Where there are many pools (prompts with
variants, contexts) a whole pool changes places, which leaves its values as they are. Where there are few (all speeches of a
model), the two speeches of a prompt change places and Self-BLEU is computed again.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.metrics.self_bleu import EPSILON, GROUP_COLUMNS, comparable, pools
from parliabench_utils.results.compare import BASELINE, TUNED
from parliabench_utils.results.ngrams import encode, longer

COLUMN = "Self-BLEU"
JOB_COLUMN = "Self-BLEU of the job"  # notebook 05's
PUBLISHED = "published"  # scores that somebody else computed: they stay as they are
MANY_GROUPS = 20  # 2^20 ways to change places
COLUMNS = ["model", "difference", "ci_low", "ci_high", "p", "unit", "n_prompts", "n_groups", "draws"]


def settings_of(signature: str) -> tuple[str, int]:
    """(group, max_n) of a Self-BLEU signature of notebook 05; group is PUBLISHED where the values were read from elsewhere.

    ValueError where it names none.
    """
    match = re.match(r"Self-BLEU-(\d+)\|group:(\w+)", signature)
    if not match or match[2] not in GROUP_COLUMNS:
        raise ValueError(f"no order and group in Self-BLEU's signature {signature!r}: run 05_text_metrics again")
    return PUBLISHED if signature.endswith(f"|{PUBLISHED}") else match[2], int(match[1])


def run_settings(folder: Path, sets: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """`settings_of` of a run's sets (model, type). ValueError where 05 scored them by different ones."""
    found: dict[tuple[str, int], str] = {}
    for model, kind in sets:
        path = folder / "05_text_metrics" / model / f"{kind}.signatures.json"
        found.setdefault(settings_of(json.loads(path.read_text(encoding="utf-8"))[COLUMN]), f"{model}/{kind}")
    if len(found) > 1:
        raise ValueError(f"05_text_metrics took Self-BLEU by different settings: {found}; run it again with one")
    return next(iter(found))


def compared_self_bleu(scores: pd.DataFrame, group: str, max_n: int = 4) -> pd.DataFrame:
    """`scores` with Self-BLEU computed again among the rows that are compared (`compared`), so that sets can be.

    NaN outside the pools (`metrics.self_bleu.pools`); what notebook 05 wrote stands in JOB_COLUMN.
    """
    if group == PUBLISHED:
        return scores.assign(**{JOB_COLUMN: scores[COLUMN]})
    values = comparable(scores[scores["compared"]], group, max_n).reindex(scores.index)
    return scores.assign(**{JOB_COLUMN: scores[COLUMN], COLUMN: values})


def self_bleu_test(
    rows: pd.DataFrame, group: str = "model", max_n: int = 4, draws: int = 2000, seed: int = 42
) -> pd.DataFrame:
    """One row a model, COLUMNS: difference (fine-tuned minus baseline), two-sided p, unit (what changes places) and counts.

    Only speeches of `pools` count, so both types have the same prompts. The 95 % interval reaches as far to both sides as 95 % of
    the permuted differences do. NaN where nothing can change places.
    """
    published = group == PUBLISHED
    pool = rows["prompt_id"] if published else pools(rows, group)
    values = rows[COLUMN] if published else comparable(rows, group, max_n)
    pooled = rows.assign(_pool=pool, **{COLUMN: values})[pool.notna() & rows["generated_speech"].notna()]
    found = []
    for model in dict.fromkeys(rows.loc[rows["type"].isin([BASELINE, TUNED]), "model"]):
        speeches = pooled[(pooled["model"] == model) & pooled["type"].isin([BASELINE, TUNED])].reset_index(drop=True)
        rng = np.random.default_rng(seed)
        labels = speeches["_pool"]
        both = speeches.groupby(labels)["type"].nunique() == 2
        unit = "group" if published or both.sum() >= MANY_GROUPS else "prompt"
        way = _swap_groups if unit == "group" else _swap_prompts
        difference, null = way(speeches, labels, max_n, draws, rng)
        shared = int((speeches.groupby("prompt_id")["type"].nunique() == 2).sum())
        reach = np.percentile(np.abs(null), 95) if not np.isnan(null).any() else np.nan
        found.append(
            {"model": model, "difference": difference, "ci_low": difference - reach, "ci_high": difference + reach}
            | {"p": _p_value(difference, null), "unit": unit, "n_prompts": shared}
            | {"n_groups": int(both.sum()), "draws": draws}
        )
    return pd.DataFrame(found, columns=COLUMNS)


def with_permuted(comparison: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """A `compare` table with Self-BLEU's interval from `self_bleu_test`, and without its Wilcoxon p.

    Both take the speeches for independent: with equal types such intervals miss 0 in a sixth of runs.
    """
    found = comparison.copy()
    mine = found["metric"] == COLUMN
    for column in ("ci_low", "ci_high"):
        found.loc[mine, column] = found.loc[mine, "model"].map(test.set_index("model")[column])
    found.loc[mine, "wilcoxon_p"] = np.nan
    return found


def _p_value(difference: float, null: np.ndarray) -> float:
    """Share of permutations with a difference at least as large, the observed one counted."""
    if np.isnan(difference) or np.isnan(null).all() or np.ptp(null) == 0:
        return float("nan")
    return float((1 + (np.abs(null) >= abs(difference) - 1e-12).sum()) / (1 + null.size))


def _swap_groups(
    speeches: pd.DataFrame, labels: pd.Series, max_n: int, draws: int, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """The values as they are; each group's two types change places with probability 1/2."""
    del max_n  # nothing is computed again
    stats = speeches.groupby([labels, "type"])[COLUMN].agg(["sum", "count"]).unstack("type", fill_value=0)
    sums, counts = (
        stats[name].reindex(columns=[BASELINE, TUNED], fill_value=0).to_numpy(float) for name in stats.columns.levels[0]
    )
    swap = rng.random((draws, len(stats))) < 0.5
    swap[:, (counts == 0).any(axis=1)] = False
    moved_sums, moved_counts = (swap @ (table[:, 0] - table[:, 1]) for table in (sums, counts))

    def difference(sum_moved, count_moved):
        tuned = (sums[:, 1].sum() + sum_moved) / (counts[:, 1].sum() + count_moved)
        return tuned - (sums[:, 0].sum() - sum_moved) / (counts[:, 0].sum() - count_moved)

    if not counts.sum(axis=0).all():
        return float("nan"), np.full(draws, np.nan)
    return float(difference(0.0, 0.0)), difference(moved_sums, moved_counts)


@dataclass(frozen=True)
class Pool:
    """Speeches of one model in numbers: one entry for each n-gram of a speech that another speech of its group has too.

    Entries are sorted by `key` (the n-gram in its group) and falling `count`; `order` is n - 1.
    """

    lengths: np.ndarray  # (n_speeches,) words
    group: np.ndarray  # (n_speeches,)
    key: np.ndarray
    speech: np.ndarray
    count: np.ndarray
    order: np.ndarray
    max_n: int


def pool(texts: list[str], groups: np.ndarray, max_n: int) -> Pool:
    """The shared n-grams of `texts`, n = 1 to `max_n`, within `groups` (whole numbers, one a text)."""
    corpus = encode(texts)
    owner = np.repeat(np.arange(len(texts)), corpus.lengths)
    hashes, positions, parts, n_keys = corpus.codes, np.arange(corpus.codes.size), [], 0
    for n in range(1, max_n + 1):
        part = _entries(hashes, owner[positions], groups)
        parts.append((part[0] + n_keys, *part[1:], np.full(part[0].size, n - 1)))
        n_keys += int(part[0].max(initial=-1)) + 1
        hashes, positions = longer(hashes, positions, n, corpus)
    key, speech, count, order = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    place = np.lexsort((-count, key))
    return Pool(corpus.lengths, groups, key[place], speech[place], count[place], order[place], max_n)


def _entries(hashes: np.ndarray, owner: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(key, speech, count) of the n-grams of one order that at least two speeches of a group have."""
    grams = np.unique(hashes, return_inverse=True)[1].astype(np.int64)
    pairs, count = np.unique(grams * len(groups) + owner, return_counts=True)
    gram, speech = np.divmod(pairs, len(groups))
    _, key, spread = np.unique(
        gram * (groups.max(initial=0) + 1) + groups[speech], return_inverse=True, return_counts=True
    )
    shared = spread[key] > 1
    return key[shared], speech[shared], count[shared]


def self_bleu_of(found: Pool, side: np.ndarray) -> np.ndarray:
    """Self-BLEU of each speech among those of its group and `side` (True or False), shape (n_speeches,), NaN for a lone one.

    The values of `metrics.self_bleu.self_bleu`, from arrays.
    """
    owner_side = side[found.speech]
    place = np.concatenate([np.flatnonzero(~owner_side), np.flatnonzero(owner_side)])  # one side, then the other
    speech, count, order = found.speech[place], found.count[place], found.order[place]
    key = found.key[place] + owner_side[place] * (found.key.max(initial=0) + 1)
    first = np.diff(key, prepend=-1) != 0
    top = np.maximum.accumulate(np.where(first, np.arange(key.size), 0))
    second = np.where(np.append(first[1:], True), 0, np.append(count[1:], 0))  # what others have of an owner's n-gram
    matched = np.minimum(count, np.where(first, second, count[top]))
    size = found.lengths.size
    matches = np.bincount(speech * found.max_n + order, matched, size * found.max_n).reshape(size, found.max_n)
    totals = np.maximum(found.lengths[:, None] - np.arange(found.max_n), 1)
    scores = np.exp(np.log(np.where(matches > 0, matches, EPSILON) / totals).mean(axis=1))
    scores *= _brevity(found.lengths, 2 * found.group + side)
    return np.where((matches[:, 0] > 0) | np.isnan(scores), scores, 0.0)


def _brevity(lengths: np.ndarray, group: np.ndarray) -> np.ndarray:
    """BLEU's penalty against the nearest length of another speech of the group (ties: the shorter); NaN for a lone one."""
    members = np.lexsort((lengths, group))
    own = lengths[members].astype(float)
    same = np.diff(group[members]) == 0
    below = np.where(np.append(False, same), np.append(np.nan, own[:-1]), -np.inf)
    above = np.where(np.append(same, False), np.append(own[1:], np.nan), np.inf)
    closest = np.where(own - below <= above - own, below, above)
    penalty = np.full(lengths.size, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        penalty[members] = np.where(np.isinf(closest), np.nan, np.exp(np.minimum(0.0, 1 - closest / own)))
    return penalty


def _swap_prompts(
    speeches: pd.DataFrame, labels: pd.Series, max_n: int, draws: int, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """Values computed anew among the speeches at hand; the two types of a prompt change places with probability 1/2."""
    found = pool(speeches["generated_speech"].tolist(), pd.factorize(labels)[0], max_n)
    tuned = (speeches["type"] == TUNED).to_numpy()
    prompt = pd.factorize(speeches["prompt_id"])[0]
    shared = (speeches.groupby(prompt)["type"].nunique() == 2).to_numpy()

    def difference(side: np.ndarray) -> float:
        values = self_bleu_of(found, side)
        known = ~np.isnan(values)
        sides = [values[known & mask] for mask in (side, ~side)]
        return float(sides[0].mean() - sides[1].mean()) if all(s.size for s in sides) else float("nan")

    null = np.empty(draws)
    for draw in range(draws):
        swap = (rng.random(shared.size) < 0.5) & shared
        null[draw] = difference(tuned ^ swap[prompt])
    return difference(tuned), null
