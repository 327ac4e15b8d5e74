"""Training speeches to show a base model, or to stand in its place: the rows `few-shot` and `retrieval` of notebook 04.

A prompt's examples are the training speeches of its context nearest to it, as its references are (`references.py`), but none of
the references themselves: copying an example must not be scored against that example.

    >>> examples = nearest_examples(prompts, train, references, encoder, k=3)       # doctest: +SKIP
    >>> [row["Party"] for row in examples["u1.generic"]]                            # doctest: +SKIP
"""

from typing import Any

from parliabench_utils.corpus.prompts import Contexts
from parliabench_utils.corpus.references import nearest


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
