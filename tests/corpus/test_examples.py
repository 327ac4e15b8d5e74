"""Examples for few-shot and retrieval: of the prompt's context, nearest first, never a reference, its debate or its speaker."""

import numpy as np

from parliabench_utils.corpus.prompts import nearest_examples

CONTEXT = {"Party": "Labour", "Topic": "Energy", "House": "House of Commons"}


class Encoder:
    """Speech number n is the nearer to every question, the smaller n is."""

    def encode(self, texts):
        angles = [0.1 * int(text.split()[-1]) if text.startswith("speech") else 0.0 for text in texts]
        return np.array([[np.cos(a), np.sin(a)] for a in angles])


TRAIN = [
    CONTEXT | {"speech_id": f"t{i}", "sitting_id": f"d{i}", "Section": "Prices", "speaker_id": f"s{i}", "Speech": f"speech {i}"}
    for i in range(8)
]  # fmt: skip
PROMPT = CONTEXT | {
    "prompt_id": "p", "sitting_id": "d0", "Section": "Prices", "speaker_id": "s1", "instruction": "Speak.",
}  # fmt: skip


def test_references_own_debate_and_own_speaker_are_left_out():
    references = [{"prompt_id": "p", "rank": 1, "speech_id": "t2", "similarity": 0.9}]
    found = nearest_examples([PROMPT], TRAIN, references, Encoder(), k=3)
    assert [row["speech_id"] for row in found["p"]] == ["t3", "t4", "t5"]


def test_a_party_with_too_few_speeches_gives_those_it_has():
    found = nearest_examples([PROMPT, PROMPT | {"prompt_id": "q", "Party": "Alba"}], TRAIN, [], Encoder(), k=9)
    assert [row["speech_id"] for row in found["p"]] == ["t2", "t3", "t4", "t5", "t6", "t7"]
    assert found["q"] == []
    assert nearest_examples([PROMPT], [], [], Encoder(), k=9) == {"p": []}
