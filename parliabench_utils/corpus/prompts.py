"""What is asked, and what an answer is compared with: prompts, references, examples (sections 4.1 and 5.3; notebooks 02 and 04).

A prompt is a test speech's context (party, topic, section, orientation, house) with an instruction: the generic one, or the
question that the speech answered. Only prompts with enough training speeches of their context, other debates and other
speakers, can be scored against references, so only those are drawn. References are chosen once per prompt, the same for every model
and for the members: the k training speeches of the context nearest to the prompt's instruction and section. Examples for a base
model (rows `few-shot` and `retrieval`) are found in the same way and are never among the references.

    >>> prompts, report = draw_prompts(train, test, PromptRules(n_prompts=18), seed=42)     # doctest: +SKIP
    >>> references = choose_references(prompts, Contexts(train), SentenceEncoder(), k=3, min_speeches=3)     # doctest: +SKIP
    >>> examples = nearest_examples(prompts, train, references, encoder, k=3)       # doctest: +SKIP
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.corpus.dataset import debate_id, debate_of
from parliabench_utils.models.prompting import instruction

# From the narrowest context to the widest: the first one with enough training speeches is the prompt's.
CONTEXT_LEVELS = (("Party", "Topic", "House"), ("Party", "Topic"), ("Party",))
Row = dict[str, Any]


@dataclass(frozen=True)
class PromptRules:
    """How many prompts, of which kind, from which contexts; `min_context_speeches` is k, the references a prompt needs."""

    n_prompts: int = 3000
    question_share: float = 0.1
    min_context_speeches: int = 5
    min_per_party: int = 0
    n_shards: int = 1


class Contexts:
    """Training speeches by context. `train` has the paper's keys and speech, sitting and speaker ids."""

    def __init__(self, train: pd.DataFrame):
        self.train = train.reset_index(drop=True)
        self._debates = debate_of(train).to_numpy()
        self._speakers = train["speaker_id"].to_numpy()
        self._rows: dict[tuple, list[int]] = defaultdict(list)
        for level in CONTEXT_LEVELS:
            for i, key in enumerate(zip(*(train[name] for name in level), strict=True)):
                self._rows[level, key].append(i)

    def level(self, row: Row, at_least: int) -> tuple[str, np.ndarray] | None:
        """Return (context id, training row numbers without the row's own debate and speaker), None where too few are left.

        The id names its level: `Labour | Health | House of Lords`, or less where it backs off.
        """
        found = (self._of(row, level) for level in CONTEXT_LEVELS)
        return next(((name, rows) for name, rows in found if len(rows) >= at_least), None)

    def widest(self, row: Row) -> np.ndarray:
        """Row numbers of the widest level, however few."""
        return self._of(row, CONTEXT_LEVELS[-1])[1]

    def _of(self, row: Row, level: tuple[str, ...]) -> tuple[str, np.ndarray]:
        debate, key = debate_id(row["sitting_id"], row["Section"]), tuple(row[name] for name in level)
        rows = self._rows.get((level, key), ())
        kept = [i for i in rows if self._debates[i] != debate and self._speakers[i] != row["speaker_id"]]
        return " | ".join(key), np.array(kept, dtype=int)


# --- prompts ----------------------------------------------------------------------------------------------------------
def draw_prompts(train: pd.DataFrame, test: pd.DataFrame, rules: PromptRules, seed: int) -> tuple[list[Row], dict[str, int]]:
    """Return the prompts (keys as in the contract, sorted by id) and counts of what was wanted, drawn and passed over.

    `train` and `test` have the keys of train.jsonl. Places are shared out by party x house in proportion to the test set,
    questions and generic prompts apart; `min_per_party` lifts small parties, and `weight` (share of the test set over share of
    the sample, by party, House and kind) undoes it. A place that a stratum cannot fill goes to the rest. ValueError where no
    prompt can be drawn.
    """
    rng = np.random.default_rng(seed)
    contexts = Contexts(train)
    report = {"wanted": rules.n_prompts, "context too small": 0}
    answers = test[test["Prompts"].str.len() > 0]
    prompts = _draw(answers, round(rules.n_prompts * rules.question_share), "question", rules, contexts, rng, report)
    rest = test[~test["speech_id"].isin({prompt["speech_id"] for prompt in prompts})]
    prompts += _draw(rest, rules.n_prompts - len(prompts), "generic", rules, contexts, rng, report)
    if not prompts:
        least = rules.min_context_speeches
        raise ValueError(f"no prompt can be drawn: none of {len(test)} test speeches has {least} training speeches of its context")
    if rules.n_shards > len(prompts):
        raise ValueError(f"n_shards is {rules.n_shards}, but {len(prompts)} prompts were drawn: a shard would be empty")
    report |= {"drawn": len(prompts), "questions": sum(prompt["kind"] == "question" for prompt in prompts)}
    prompts.sort(key=lambda prompt: prompt["prompt_id"])
    _add_weights(prompts, test)
    for place, index in enumerate(rng.permutation(len(prompts))):  # every shard has every party's share of the work
        prompts[index]["shard"] = place % rules.n_shards
    return prompts, report


def _draw(pool, n: int, kind: str, rules: PromptRules, contexts: Contexts, rng, report: dict) -> list[Row]:
    """Return up to `n` prompts: first each stratum's places, then whatever is left, in a shuffled order."""

    def fitting(rows: Iterable[Row]) -> Iterable[Row]:
        for row in rows:
            if found := contexts.level(row, rules.min_context_speeches):
                yield _prompt(row, kind, found[0])
            else:
                report["context too small"] += 1

    strata = pool.groupby(["Party", "House"])
    queues = {name: iter(rows.iloc[rng.permutation(len(rows))].to_dict("records")) for name, rows in strata}
    drawn: list[Row] = []
    for name, places in share_out(pool, n, rules.min_per_party if kind == "generic" else 0).items():
        drawn += islice(fitting(queues[name]), places)
    waiting = [row for name in sorted(queues) for row in queues[name]]
    rng.shuffle(waiting)
    return drawn + list(islice(fitting(waiting), n - len(drawn)))


def share_out(pool: pd.DataFrame, n: int, min_per_party: int) -> dict[tuple[str, str], int]:
    """Return places by (party, house), by largest remainder; no party gets fewer than `min_per_party` while n lasts."""
    sizes = pool.groupby(["Party", "House"]).size().sort_values(ascending=False, kind="stable")
    if sizes.empty or n <= 0:
        return {}
    exact = sizes * n / sizes.sum()
    places = exact.astype(int)
    order = (exact - places).sort_values(ascending=False, kind="stable").index
    for name in order[: n - int(places.sum())]:
        places[name] += 1
    for party in sorted(sizes.index.get_level_values("Party").unique()):
        lacking = min_per_party - int(places.xs(party, level="Party").sum())
        for _ in range(max(0, lacking)):
            places[places.idxmax()] -= 1
            places[(party, sizes.xs(party, level="Party").idxmax())] += 1
    return places.to_dict()


def _prompt(row: Row, kind: str, context_id: str) -> Row:
    asked = {"Prompts": row["Prompts"]} if kind == "question" else {}
    return {
        "prompt_id": f"{row['speech_id']}.{kind}",
        "speech_id": row["speech_id"],
        "context_id": context_id,
        "kind": kind,
        "instruction": instruction(asked),
        **{name: row[name] for name in ("Party", "Topic", "Political Orientation", "Section", "House")},
        "weight": 1.0,
        "shard": 0,
        **{name: row[name] for name in ("sitting_id", "speaker_id", "date", "cap_topic")},
    }


def _add_weights(prompts: list[Row], test: pd.DataFrame) -> None:
    """Set `weight`, of mean 1: a party's prompts weigh what it has of the test set, shared out by House and kind (a speech that
    answers something is a question) among those that were drawn; a cell stands at least for its own prompts.
    """
    cells = [(prompt["Party"], prompt["House"], prompt["kind"]) for prompt in prompts]
    kinds = test["Prompts"].str.len().gt(0).map({True: "question", False: "generic"})
    speeches = Counter(zip(test["Party"], test["House"], kinds, strict=True))
    drawn = Counter(cells)
    size = {cell: max(speeches[cell], n) for cell, n in drawn.items()}
    shown = Counter()
    for (party, *_), n in size.items():
        shown[party] += n
    shares = test["Party"].value_counts(normalize=True)
    total = sum(shares[party] for party in shown)
    for prompt, cell in zip(prompts, cells, strict=True):
        share = float(shares[cell[0]]) / total * size[cell] / shown[cell[0]]
        prompt["weight"] = round(share * len(prompts) / drawn[cell], 6)


# --- references and examples ------------------------------------------------------------------------------------------
def choose_references(prompts: list[Row], contexts: Contexts, encoder, k: int, min_speeches: int) -> list[Row]:
    """Return rows `prompt_id, rank, speech_id, similarity` (rank from 1; cosine in [-1, 1], equal ones by id).

    `min_speeches` is what made a context wide enough when prompts were drawn (at least `k`). Raises ValueError where it is not.
    """
    if min_speeches < k:
        raise ValueError(f"min_context_speeches {min_speeches} is below n_references {k}")
    found = [contexts.level(prompt, min_speeches) for prompt in prompts]
    if None in found:
        lacking = prompts[found.index(None)]["prompt_id"]
        raise ValueError(f"prompt {lacking}: its context has fewer than {min_speeches} training speeches")
    return _nearest(prompts, [rows for _, rows in found], contexts, encoder, k)


def _nearest(prompts: list[Row], rows_of: Sequence[np.ndarray], contexts: Contexts, encoder, k: int) -> list[Row]:
    """As `choose_references`, from the training rows `rows_of[i]` for prompt i; fewer than `k` where there are fewer."""
    asked = []
    for prompt in prompts:
        section = prompt["Section"]  # None, or a table's NaN, in a debate without a heading
        asked.append(f"{prompt['instruction']} {section}" if isinstance(section, str) else prompt["instruction"])
    queries = encoder.encode(asked)
    candidates = np.unique(np.concatenate(rows_of)) if len(rows_of) else np.array([], dtype=int)
    vectors = dict(zip(candidates, encoder.encode(contexts.train["Speech"].iloc[candidates].tolist()), strict=True))
    ids = contexts.train["speech_id"]
    chosen = []
    for prompt, query, rows in zip(prompts, queries, rows_of, strict=True):
        nearest = sorted((-round(float(vectors[i] @ query), 6), ids.iat[i]) for i in rows)[:k]
        for rank, (distance, speech_id) in enumerate(nearest, start=1):
            chosen.append({"prompt_id": prompt["prompt_id"], "rank": rank, "speech_id": speech_id, "similarity": -distance})
    return chosen


def nearest_examples(prompts: list[Row], train: list[Row], references: list[Row], encoder, k: int) -> dict[str, list[Row]]:
    """`prompt_id` → the rows of `train` for its k examples, nearest first; never of the prompt's own debate or speaker.

    None is a reference: copying an example must not be scored against that example. Fewer than k where the party has no more.
    """
    found: dict[str, list[Row]] = {prompt["prompt_id"]: [] for prompt in prompts}
    if not train:
        return found
    contexts = Contexts(pd.DataFrame(train))
    taken: dict[str, set[str]] = defaultdict(set)
    for row in references:
        taken[row["prompt_id"]].add(row["speech_id"])
    wanted = k + max(map(len, taken.values()), default=0)
    levels = [contexts.level(prompt, wanted) for prompt in prompts]
    rows_of = [level[1] if level else contexts.widest(prompt) for level, prompt in zip(levels, prompts, strict=True)]
    by_id = {row["speech_id"]: row for row in train}
    for row in _nearest(prompts, rows_of, contexts, encoder, wanted):
        examples = found[row["prompt_id"]]
        if row["speech_id"] not in taken[row["prompt_id"]] and len(examples) < k:
            examples.append(by_id[row["speech_id"]])
    return found
