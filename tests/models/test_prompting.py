"""Prompts: each family's own format, one rendering for training and generation, where the loss begins."""

import pytest
from families import CONTROL, ROW, family

from parliabench_utils.models.prompting import (
    GENERATION_SYSTEM,
    GENERIC_INSTRUCTION,
    TRAINING_SYSTEM,
    encode,
    encode_example,
    messages,
    pad_left,
    render_example,
    render_prompt,
    stop_ids,
    system_text,
)
from parliabench_utils.models.specs import load_tokenizer, read_model_spec

USER = (
    "Context:\nPARTY: Labour\nTOPIC: Energy\nSECTION: Energy Prices\nPOLITICAL ORIENTATION: Centre-left\nHOUSE: House of Commons\n\n"
    f"Instruction: {GENERIC_INSTRUCTION}"
)
SPEECH = "I thank the Minister. Bills have doubled."
NEWLINES = "\n\n"
EXPECTED = {
    "mistral-7b-v0.3": (f"<s>[INST] {TRAINING_SYSTEM}\n\n{USER}[/INST]", f" {SPEECH}</s>"),
    "llama-3.1-8b": (
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{TRAINING_SYSTEM}<|eot_id|>"
        f"<|start_header_id|>user<|end_header_id|>\n\n{USER}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        f"{SPEECH}<|eot_id|>",
    ),
    "gemma-2-9b": (
        f"<bos><start_of_turn>user\n{TRAINING_SYSTEM}\n\n{USER}<end_of_turn>\n<start_of_turn>model\n",
        f"{SPEECH}<end_of_turn>",
    ),
    "qwen2-7b": (
        f"<|im_start|>system\n{TRAINING_SYSTEM}<|im_end|>\n<|im_start|>user\n{USER}<|im_end|>\n<|im_start|>assistant\n",
        f"{SPEECH}<|im_end|>",
    ),
    "yi-6b": (
        f"{TRAINING_SYSTEM}<|im_start|>user\n{USER}<|im_end|>\n<|im_start|>assistant\n",
        f"{SPEECH}<|im_end|>",
    ),
}
EXPECTED["smollm2-135m"] = EXPECTED["qwen2-7b"]


def spec_and_tokenizer(name):
    if name in CONTROL:
        return family(name)
    spec = read_model_spec(name)
    return spec, load_tokenizer(spec)


@pytest.fixture(params=sorted(EXPECTED))
def case(request):
    return (*spec_and_tokenizer(request.param), *EXPECTED[request.param])


def test_system_prompts_are_the_papers_words():
    assert TRAINING_SYSTEM.startswith("You are a seasoned UK parliamentary member. Use proper British parliamentary language")
    assert TRAINING_SYSTEM.endswith("the political orientation and typical positions of the specified party on the given topic.")
    assert (
        "Generate a coherent speech of 43 - 635 words in standard English (no Unicode artifacts, no special characters).\nUse proper"
        in system_text("generate", 43, 635)
    )
    assert GENERATION_SYSTEM.split("\n", 1)[1] == TRAINING_SYSTEM.removeprefix("You are a seasoned UK parliamentary member. ")


def few_shot(name: str) -> str:
    """Hand-written: one example as an earlier turn, then the prompt."""
    old = USER.replace("Energy Prices", "Old Debate")
    if name == "mistral-7b-v0.3":
        return f"<s>[INST] {old}[/INST] {SPEECH}</s>[INST] {TRAINING_SYSTEM}\n\n{USER}[/INST]"
    prompt, answer = EXPECTED[name]
    earlier = prompt.replace("Energy Prices", "Old Debate") + answer
    if name == "gemma-2-9b":
        return f"{earlier}\n{prompt.removeprefix('<bos>').replace(TRAINING_SYSTEM, '').replace(NEWLINES, '', 1)}"
    if name == "llama-3.1-8b":
        return earlier + prompt[prompt.index("<|start_header_id|>user") :]
    return f"{earlier}\n{prompt[prompt.index('<|im_start|>user') :]}"


def test_examples_stand_as_earlier_turns(case):
    spec, tokenizer, *_ = case
    made = render_prompt(spec, tokenizer, ROW, "train", examples=[ROW | {"Section": "Old Debate"}])
    assert made == few_shot(spec.name)
    assert made.count(TRAINING_SYSTEM) == 1


def test_generation_needs_both_word_limits():
    with pytest.raises(ValueError, match="word limits"):
        system_text("generate", 43)


def test_each_family_renders_in_its_own_format(case):
    spec, tokenizer, prompt, answer = case
    assert render_prompt(spec, tokenizer, ROW, "train") == prompt
    assert render_example(spec, tokenizer, ROW).rstrip("\n") == prompt + answer


def test_generation_prompt_differs_from_training_in_the_system_text_only(case):
    spec, tokenizer, prompt, _ = case
    made = render_prompt(spec, tokenizer, ROW, "generate", min_words=30, max_words=200)
    assert made.replace(system_text("generate", 30, 200), TRAINING_SYSTEM) == prompt


def test_training_ids_begin_with_the_prompts_ids_and_the_loss_begins_at_the_speech(case):
    spec, tokenizer, prompt, answer = case
    example = encode_example(spec, tokenizer, ROW, 4096)
    assert example.ids[: example.n_prompt] == encode(tokenizer, prompt)
    assert tokenizer.decode(example.ids[example.n_prompt :]).strip() == answer.strip()
    assert example.ids[-1] in stop_ids(spec, tokenizer)


def test_one_bos_where_the_family_has_one(case):
    spec, tokenizer, prompt, _ = case
    ids = encode(tokenizer, prompt)
    if spec.family in ("mistral", "llama3", "gemma2"):
        assert ids.count(tokenizer.bos_token_id) == 1
        assert ids[0] == tokenizer.bos_token_id
        with pytest.raises(ValueError, match="two"):
            encode(tokenizer, tokenizer.bos_token + prompt)


def test_stop_tokens_are_single_tokens_of_the_vocabulary(case):
    spec, tokenizer, *_ = case
    assert [tokenizer.convert_ids_to_tokens(i) for i in stop_ids(spec, tokenizer)] == spec.stop
    with pytest.raises(ValueError, match="not single tokens"):
        stop_ids(spec.model_copy(update={"stop": ["<no such token>"]}), tokenizer)


def test_text_cannot_open_another_turn(case):
    spec, tokenizer, *_ = case
    stop = spec.stop[0]
    ids = encode(tokenizer, render_prompt(spec, tokenizer, ROW | {"Section": f"Bill{stop}"}, "train"))
    plain = encode(tokenizer, render_prompt(spec, tokenizer, ROW, "train"))
    assert ids.count(stop_ids(spec, tokenizer)[0]) == plain.count(stop_ids(spec, tokenizer)[0])


def test_long_speech_is_cut_and_a_prompt_alone_leaves_nothing_to_learn():
    spec, tokenizer = family("qwen2-7b")
    assert len(encode_example(spec, tokenizer, ROW, 700).ids) <= 700
    short = encode_example(spec, tokenizer, ROW, 50)
    assert short.n_prompt == len(short.ids) == 50


def test_questions_become_the_instruction():
    asked = ROW | {"Prompts": ["What steps is he taking?", "If he will make a statement."]}
    spec = read_model_spec("qwen2-7b")
    assert messages(spec, asked, "train")[1]["content"].endswith("What steps is he taking?\nIf he will make a statement.")
    assert messages(spec, asked | {"instruction": "Why?"}, "train")[1]["content"].endswith("Instruction: Why?")


def test_gemma_has_no_system_message():
    assert [m["role"] for m in messages(read_model_spec("gemma-2-9b"), ROW, "train")] == ["user"]


def test_padding_is_on_the_left():
    ids, mask = pad_left([[5, 6, 7], [8]], pad_id=0)
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert load_tokenizer("smollm2-135m").padding_side == "left"
