"""The human speeches that a generated one is compared with (section 4.1, note on BERTScore and MoverScore; notebook 02).

Chosen once per prompt, the same for every model: of the training speeches in the prompt's context, not from its own debate and
not by its own speaker, the k nearest to the prompt's instruction and section.

    >>> references = choose_references(prompts, Contexts(train), SentenceEncoder(), k=3, min_speeches=3)     # doctest: +SKIP
"""

from typing import Any

from parliabench_utils.corpus.prompts import Contexts


def choose_references(
    prompts: list[dict[str, Any]], contexts: Contexts, encoder, k: int, min_speeches: int
) -> list[dict[str, Any]]:
    """Return rows `prompt_id, rank, speech_id, similarity` (rank from 1; cosine in [-1, 1], equal ones by id).

    `min_speeches` is what made a context wide enough when prompts were drawn (at least `k`). Raises ValueError where it is not.
    """
    import numpy as np

    if min_speeches < k:
        raise ValueError(f"min_context_speeches {min_speeches} is below n_references {k}")

    rows: list[dict[str, Any]] = []
    queries = encoder.encode([f"{prompt['instruction']} {prompt['Section']}" for prompt in prompts])
    for prompt, query in zip(prompts, queries, strict=True):
        found = contexts.level(prompt, min_speeches)
        if found is None:
            raise ValueError(
                f"prompt {prompt['prompt_id']}: its context has fewer than {min_speeches} training speeches"
            )
        candidates = contexts.train.loc[found[1]]
        similarity = np.round(encoder.encode(candidates["Speech"].tolist()) @ query, 6)
        order = sorted(range(len(candidates)), key=lambda i: (-similarity[i], candidates["speech_id"].iat[i]))[:k]
        rows += [
            {
                "prompt_id": prompt["prompt_id"],
                "rank": rank,
                "speech_id": candidates["speech_id"].iat[i],
                "similarity": float(similarity[i]),
            }
            for rank, i in enumerate(order, start=1)
        ]
    return rows
