"""The only place where a speech prompt is rendered, for training and for generation (paper, section 11.3).

Notebooks 03 and 04 call the same functions, so that a tuned model meets in generation the tokens that it saw in training:
system text, context block and instruction, in the chat format that the model's parameter file holds.

    from parliabench_utils.models.specs import load_tokenizer, read_model_spec
    spec = read_model_spec("smollm2-135m")
    print(render_prompt(spec, load_tokenizer(spec), row, purpose="generate", min_words=43, max_words=635))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from parliabench_utils.models.specs import ModelSpec

Purpose = Literal["train", "generate"]
Row = Mapping[str, Any]

HOUSE_AND_PARTY = (
    "Use proper British parliamentary language appropriate for the specified House.\n"
    "The speech should reflect the political orientation and typical positions of the specified party on the given topic."
)
# Section 11.3.1, word for word.
TRAINING_SYSTEM = f"You are a seasoned UK parliamentary member. {HOUSE_AND_PARTY}"
# Section 11.3.2, word for word; the paper writes "min_words - max_words" for the two numbers.
GENERATION_SYSTEM = (
    "You are a seasoned UK parliamentary member. Generate a coherent speech of {min_words} - {max_words} words in standard "
    f"English (no Unicode artifacts, no special characters).\n{HOUSE_AND_PARTY}"
)
# Not stated in the paper, which only says that a generic instruction stands where a speech answers no question.
GENERIC_INSTRUCTION = "Generate a parliamentary speech."
# Section 11.3.2: the labels of the context block, in its order, and the keys of a row that they show.
CONTEXT_FIELDS = {
    "PARTY": "Party",
    "TOPIC": "Topic",
    "SECTION": "Section",
    "POLITICAL ORIENTATION": "Political Orientation",
    "HOUSE": "House",
}


@dataclass(frozen=True)
class Example:
    """A training speech as token ids: the loss is taken on `ids[n_prompt:]` (or on all of `ids`, by parameter)."""

    ids: Sequence[int]
    n_prompt: int


def instruction(row: Row) -> str:
    """A prompt row's own instruction; of a speech, the questions that it answers, or the generic instruction."""
    if row.get("instruction"):
        return str(row["instruction"])
    return "\n".join(row.get("Prompts") or []) or GENERIC_INSTRUCTION


def question(row: Row) -> str:
    """The user's text: five context lines and the instruction. KeyError names a field that a row lacks; a null is "Unknown"."""
    context = "\n".join(f"{label}: {row[key] or 'Unknown'}" for label, key in CONTEXT_FIELDS.items())
    return f"Context:\n{context}\n\nInstruction: {instruction(row)}"


def system_text(purpose: Purpose, min_words: int | None = None, max_words: int | None = None) -> str:
    """The system prompt of training or of generation; generation needs both word limits (ValueError)."""
    if purpose == "train":
        return TRAINING_SYSTEM
    if min_words is None or max_words is None:
        raise ValueError("generation's system prompt names both word limits: pass min_words and max_words")
    return GENERATION_SYSTEM.format(min_words=min_words, max_words=max_words)


def messages(spec: ModelSpec, row: Row, purpose: Purpose, examples: Sequence[Row] = (), **limits: int) -> list[dict[str, str]]:
    """System and user message of a row; one user message where the family has no system role (Gemma 2).

    `examples` are training rows that stand as earlier turns, question and speech, farthest first.
    """
    turns = []
    for example in reversed(examples):
        turns.append({"role": "user", "content": question(example)})
        turns.append({"role": "assistant", "content": example["Speech"].strip()})
    turns.append({"role": "user", "content": question(row)})
    system = system_text(purpose, **limits)
    if spec.system_role:
        return [{"role": "system", "content": system}, *turns]
    return [turns[0] | {"content": f"{system}\n\n{turns[0]['content']}"}, *turns[1:]]


@lru_cache(maxsize=8)
def special_tokens(tokenizer) -> tuple[str, ...]:
    """The texts that the tokenizer turns into control tokens."""
    return tuple(token.content for token in tokenizer.added_tokens_decoder.values() if token.special)


def _rendered(tokenizer, turns: list[dict[str, str]], open_answer: bool) -> str:
    """The turns in the chat format; a space after the first character of every control token that a text spells: it stays text."""
    harmless = []
    for turn in turns:
        text = turn["content"]
        for token in special_tokens(tokenizer):
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        harmless.append(turn | {"content": text})
    return tokenizer.apply_chat_template(harmless, tokenize=False, add_generation_prompt=open_answer)


def render_prompt(
    spec: ModelSpec, tokenizer, row: Row, purpose: Purpose = "generate", examples: Sequence[Row] = (), **limits: int
) -> str:
    """The text up to where the model begins to speak. `limits`: min_words and max_words, for generation.

    Text from the corpus that spells a special token is broken up first, so that it cannot open another turn.
    """
    return _rendered(tokenizer, messages(spec, row, purpose, examples, **limits), open_answer=True)


def render_example(spec: ModelSpec, tokenizer, row: Row) -> str:
    """A whole training text: the prompt, the speech and the family's end of turn."""
    turns = [*messages(spec, row, "train"), {"role": "assistant", "content": row["Speech"].strip()}]
    return _rendered(tokenizer, turns, open_answer=False)


def encode(tokenizer, text: str) -> list[int]:
    """Token ids of a rendered text. The template writes BOS itself, the tokenizer must not add a second one."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if tokenizer.bos_token_id is not None and ids[:2] == [tokenizer.bos_token_id] * 2:
        raise ValueError(f"two {tokenizer.bos_token} in front: the text was rendered with BOS and one was added")
    return ids


def encode_example(spec: ModelSpec, tokenizer, row: Row, max_length: int) -> Example:
    """A training speech as ids, cut at `max_length`. ValueError where prompt and speech do not join at a token.

    The ids before `n_prompt` are exactly those that generation would feed for the training system prompt.
    """
    prompt = encode(tokenizer, render_prompt(spec, tokenizer, row, "train"))
    ids = encode(tokenizer, render_example(spec, tokenizer, row).rstrip("\n"))  # nothing is learnt after the turn's end
    if ids[: len(prompt)] != prompt:
        raise ValueError(f"{spec.family}: the prompt of {row.get('speech_id')} is not a prefix of its training text")
    return Example(ids[:max_length], min(len(prompt), max_length))


def stop_ids(spec: ModelSpec, tokenizer) -> list[int]:
    """Ids of the specification's stop tokens. ValueError for one that is not a single token of this vocabulary."""
    found = {token: tokenizer(token, add_special_tokens=False)["input_ids"] for token in spec.stop}
    unknown = [token for token, ids in found.items() if len(ids) != 1]
    if unknown:
        raise ValueError(f"params/models/{spec.name}.yaml: {unknown} are not single tokens of {spec.id}'s vocabulary")
    return [ids[0] for ids in found.values()]


def pad_left(prompts: list[list[int]], pad_id: int):
    """Tensors `(input_ids, attention_mask)`, both (n_prompts, longest): every prompt ends where generation begins."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[pad_id] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask
