"""The human speeches that a generated one is compared with (section 4.1, note on BERTScore and MoverScore; notebook 02).

Chosen once per prompt, the same for every model and for the members: of the training speeches in the prompt's context, not from
its own debate and not by its own speaker, the k nearest to the prompt's instruction and section.

    >>> references = choose_references(prompts, Contexts(train), SentenceEncoder(), k=3, min_speeches=3)     # doctest: +SKIP
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parliabench_utils.corpus.prompts import Contexts

if TYPE_CHECKING:
    import numpy as np


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
