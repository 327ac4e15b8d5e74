"""Which speeches of the test set become prompts (section 5.3; notebook 02).

A prompt is a test speech's context (party, topic, section, orientation, house) with an instruction: the generic one, or the
question that the speech answered. Only prompts with enough training speeches of their context, other debates and other
speakers, can be scored against references, so only those are drawn.

    >>> prompts, report = draw_prompts(train, test, PromptRules(n_prompts=18), seed=42)     # doctest: +SKIP

The human speeches that a generated one is compared with (section 4.1, note on BERTScore and MoverScore; notebook 02).

Chosen once per prompt, the same for every model and for the members: of the training speeches in the prompt's context, not from
its own debate and not by its own speaker, the k nearest to the prompt's instruction and section.

    >>> references = choose_references(prompts, Contexts(train), SentenceEncoder(), k=3, min_speeches=3)     # doctest: +SKIP

Training speeches to show a base model, or to stand in its place: the rows `few-shot` and `retrieval` of notebook 04.

A prompt's examples are the training speeches of its context nearest to it, as its references are (`references.py`), but none of
the references themselves: copying an example must not be scored against that example.

    >>> examples = nearest_examples(prompts, train, references, encoder, k=3)       # doctest: +SKIP
    >>> [row["Party"] for row in examples["u1.generic"]]                            # doctest: +SKIP
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parliabench_utils.corpus.dataset import debate_id, debate_of
from parliabench_utils.models.prompting import instruction

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


# From the narrowest context to the widest: the first one with enough training speeches is the prompt's.
CONTEXT_LEVELS = (("Party", "Topic", "House"), ("Party", "Topic"), ("Party",))


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

    def __init__(self, train: "pd.DataFrame"):
        self.train = train.reset_index(drop=True)
        self._debates = debate_of(train).to_numpy()
        self._speakers = train["speaker_id"].to_numpy()
        self._rows = {level: _by_key(self.train, level) for level in CONTEXT_LEVELS}

    def level(self, row: dict[str, Any], at_least: int) -> tuple[str, "np.ndarray"] | None:
        """Return (context id, training row numbers without the row's own debate and speaker), None where too few are left.

        The id names its level: `Labour | Health | House of Lords`, or less where it backs off.
        """
        found = (self._of(row, level) for level in CONTEXT_LEVELS)
        return next(((name, rows) for name, rows in found if len(rows) >= at_least), None)

    def widest(self, row: dict[str, Any]) -> "np.ndarray":
        """Row numbers of the widest level, however few."""
        return self._of(row, CONTEXT_LEVELS[-1])[1]

    def _of(self, row: dict[str, Any], level: tuple[str, ...]) -> tuple[str, "np.ndarray"]:
        import numpy as np

        debate, key = debate_id(row["sitting_id"], row["Section"]), tuple(row[name] for name in level)
        rows = self._rows[level].get(key, ())
        kept = [i for i in rows if self._debates[i] != debate and self._speakers[i] != row["speaker_id"]]
        return " | ".join(key), np.array(kept, dtype=int)


def _by_key(train: "pd.DataFrame", level: tuple[str, ...]) -> dict[tuple, list[int]]:
    rows: dict[tuple, list[int]] = {}
    for i, key in enumerate(zip(*(train[name] for name in level), strict=True)):
        rows.setdefault(key, []).append(i)
    return rows


def draw_prompts(
    train: "pd.DataFrame", test: "pd.DataFrame", rules: PromptRules, seed: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the prompts (keys as in the contract, sorted by id) and counts of what was wanted, drawn and passed over.

    `train` and `test` have the keys of train.jsonl. Places are shared out by party x house in proportion to the test set,
    questions and generic prompts apart; `min_per_party` lifts small parties, and `weight` (share of the test set over share of
    the sample, by party, House and kind) undoes it. A place that a stratum cannot fill goes to the rest. ValueError where no
    prompt can be drawn.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    contexts = Contexts(train)
    n_questions = round(rules.n_prompts * rules.question_share)
    report = {"wanted": rules.n_prompts, "context too small": 0}
    answers = test[test["Prompts"].str.len() > 0]
    prompts = _draw(answers, n_questions, "question", rules, contexts, rng, report)
    taken = {prompt["speech_id"] for prompt in prompts}
    rest = test[~test["speech_id"].isin(taken)]
    prompts += _draw(rest, rules.n_prompts - len(prompts), "generic", rules, contexts, rng, report)
    if not prompts:
        least = rules.min_context_speeches
        raise ValueError(f"no prompt can be drawn: none of {len(test)} test speeches has {least} training speeches of its context")
    report |= {"drawn": len(prompts), "questions": sum(prompt["kind"] == "question" for prompt in prompts)}
    prompts.sort(key=lambda prompt: prompt["prompt_id"])
    _add_weights(prompts, test)
    _add_shards(prompts, rules.n_shards, rng)
    return prompts, report


def _draw(pool, n: int, kind: str, rules: PromptRules, contexts: Contexts, rng, report: dict) -> list[dict[str, Any]]:
    """Return up to `n` prompts: first each stratum's places, then whatever is left, in a shuffled order."""
    queues = {
        name: iter(rows.iloc[rng.permutation(len(rows))].to_dict("records")) for name, rows in pool.groupby(["Party", "House"])
    }
    drawn = []
    for name, places in _share_out(pool, n, rules.min_per_party if kind == "generic" else 0).items():
        drawn += _take(queues[name], places, kind, rules, contexts, report)
    waiting = [row for name in sorted(queues) for row in queues[name]]
    rng.shuffle(waiting)
    return drawn + _take(iter(waiting), n - len(drawn), kind, rules, contexts, report)


def _share_out(pool: "pd.DataFrame", n: int, min_per_party: int) -> dict[tuple[str, str], int]:
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


def _take(rows: Iterator[dict], n: int, kind: str, rules: PromptRules, contexts: Contexts, report: dict) -> list[dict]:
    taken: list[dict] = []
    while len(taken) < n and (row := next(rows, None)) is not None:
        found = contexts.level(row, rules.min_context_speeches)
        if found is None:
            report["context too small"] += 1
        else:
            taken.append(_prompt(row, kind, found[0]))
    return taken


def _prompt(row: dict[str, Any], kind: str, context_id: str) -> dict[str, Any]:
    asked = {"Prompts": row["Prompts"]} if kind == "question" else {}
    shown = ("Party", "Topic", "Political Orientation", "Section", "House")
    return {
        "prompt_id": f"{row['speech_id']}.{kind}",
        "speech_id": row["speech_id"],
        "context_id": context_id,
        "kind": kind,
        "instruction": instruction(asked),
        **{name: row[name] for name in shown},
        "weight": 1.0,
        "shard": 0,
        **{name: row[name] for name in ("sitting_id", "speaker_id", "date", "cap_topic")},
    }


def _add_weights(prompts: list[dict], test: "pd.DataFrame") -> None:
    """Set `weight`, of mean 1: a party's prompts weigh what it has of the test set, shared out by House and kind (a speech that
    answers something is a question) among those that were drawn; a cell stands at least for its own prompts.
    """
    from collections import Counter

    def cell(row: dict) -> tuple[str, str, str]:
        return row["Party"], row["House"], row["kind"]

    drawn = Counter(map(cell, prompts))
    kinds = test["Prompts"].str.len().gt(0).map({True: "question", False: "generic"})
    speeches = Counter(zip(test["Party"], test["House"], kinds, strict=True))
    size = {key: max(speeches[key], n) for key, n in drawn.items()}
    shown = Counter()
    for key, n in size.items():
        shown[key[0]] += n
    shares = test["Party"].value_counts(normalize=True)
    total = sum(shares[party] for party in shown)
    for prompt in prompts:
        party, key = prompt["Party"], cell(prompt)
        share = float(shares[party]) / total * size[key] / shown[party]
        prompt["weight"] = round(share * len(prompts) / drawn[key], 6)


def _add_shards(prompts: list[dict], n_shards: int, rng) -> None:
    """Deal the prompts to `n_shards` shards after shuffling, so that every shard has every party's share of the work."""
    if n_shards > len(prompts):
        raise ValueError(f"n_shards is {n_shards}, but {len(prompts)} prompts were drawn: a shard would be empty")
    for place, index in enumerate(rng.permutation(len(prompts))):
        prompts[index]["shard"] = place % n_shards


def choose_references(
    prompts: list[dict[str, Any]], contexts: Contexts, encoder, k: int, min_speeches: int
) -> list[dict[str, Any]]:
    """Return rows `prompt_id, rank, speech_id, similarity` (rank from 1; cosine in [-1, 1], equal ones by id).

    `min_speeches` is what made a context wide enough when prompts were drawn (at least `k`). Raises ValueError where it is not.
    """
    if min_speeches < k:
        raise ValueError(f"min_context_speeches {min_speeches} is below n_references {k}")

    found = [contexts.level(prompt, min_speeches) for prompt in prompts]
    if None in found:
        lacking = prompts[found.index(None)]["prompt_id"]
        raise ValueError(f"prompt {lacking}: its context has fewer than {min_speeches} training speeches")
    return nearest(prompts, [rows for _, rows in found], contexts, encoder, k)


def nearest(
    prompts: list[dict[str, Any]], rows_of: Sequence["np.ndarray"], contexts: Contexts, encoder, k: int
) -> list[dict[str, Any]]:
    """As `choose_references`, from the training rows `rows_of[i]` for prompt i; fewer than `k` where there are fewer."""
    import numpy as np

    queries = encoder.encode([_query(prompt) for prompt in prompts])
    candidates = np.unique(np.concatenate(rows_of)) if len(rows_of) else np.array([], dtype=int)
    vectors = dict(zip(candidates, encoder.encode(contexts.train["Speech"].iloc[candidates].tolist()), strict=True))
    ids = contexts.train["speech_id"]
    chosen = []
    for prompt, query, rows in zip(prompts, queries, rows_of, strict=True):
        similarity = {i: round(float(vectors[i] @ query), 6) for i in rows}
        first = sorted(rows, key=lambda i: (-similarity[i], ids.iat[i]))[:k]
        for rank, i in enumerate(first, start=1):
            row = {"prompt_id": prompt["prompt_id"], "rank": rank, "speech_id": ids.iat[i], "similarity": similarity[i]}
            chosen.append(row)
    return chosen


def _query(prompt: dict[str, Any]) -> str:
    section = prompt["Section"]  # None, or a table's NaN, in a debate without a heading
    return f"{prompt['instruction']} {section}" if isinstance(section, str) else prompt["instruction"]


def nearest_examples(
    prompts: list[dict[str, Any]], train: list[dict[str, Any]], references: list[dict[str, Any]], encoder, k: int
) -> dict[str, list[dict[str, Any]]]:
    """`prompt_id` → the rows of `train` for its k examples, nearest first; never of the prompt's own debate or speaker.

    Fewer than k where the prompt's party has no more.
    """
    import pandas as pd

    if not train:
        return {prompt["prompt_id"]: [] for prompt in prompts}
    contexts = Contexts(pd.DataFrame(train))
    taken: dict[str, set[str]] = {}
    for row in references:
        taken.setdefault(row["prompt_id"], set()).add(row["speech_id"])
    wanted = k + max(map(len, taken.values()), default=0)
    levels = [contexts.level(prompt, wanted) for prompt in prompts]
    rows_of = [level[1] if level else contexts.widest(prompt) for level, prompt in zip(levels, prompts, strict=True)]
    near = nearest(prompts, rows_of, contexts, encoder, wanted)
    by_id = {row["speech_id"]: row for row in train}
    found: dict[str, list[dict[str, Any]]] = {prompt["prompt_id"]: [] for prompt in prompts}
    for row in near:
        if row["speech_id"] not in taken.get(row["prompt_id"], ()) and len(found[row["prompt_id"]]) < k:
            found[row["prompt_id"]].append(by_id[row["speech_id"]])
    return found
