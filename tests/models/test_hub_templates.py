"""Each family's chat format against the tokenizer that its makers publish, where that is in the local hub cache.

Fetch them once with `huggingface-cli download NAME tokenizer_config.json tokenizer.json special_tokens_map.json`.
"""

import pytest
from families import ROW

from parliabench_utils.models.prompting import encode, encode_example, messages, render_prompt, stop_ids
from parliabench_utils.models.specs import read_model_spec

# The instruction-tuned model of each family publishes the template; its base, which the paper tunes, the vocabulary.
PUBLISHED = {
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "mistral-7b-v0.3": "mistralai/Mistral-7B-Instruct-v0.3",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "gemma-2-9b": "google/gemma-2-9b-it",
    "qwen2-7b": "Qwen/Qwen2-7B-Instruct",
    "yi-6b": "01-ai/Yi-1.5-6B-Chat",
}
pytestmark = pytest.mark.hub


@pytest.fixture(params=PUBLISHED)
def published(request):
    """(our specification, the published tokenizer with its own template)."""
    from transformers import AutoTokenizer

    name = PUBLISHED[request.param]
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except OSError:
        pytest.skip(f"the tokenizer of {name} is not in the hub cache")
    return read_model_spec(request.param), tokenizer


def test_our_template_renders_what_theirs_does(published):
    spec, tokenizer = published
    said = messages(spec, ROW, "train")
    theirs = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    if spec.family == "llama3":  # theirs adds a knowledge cut-off and today's date to the system text
        assert "Cutting Knowledge Date" in theirs
        theirs = theirs.replace(theirs[theirs.index("Cutting Knowledge") : theirs.index(said[0]["content"])], "")
    tokenizer.chat_template = spec.chat_template
    assert render_prompt(spec, tokenizer, ROW, "train") == theirs


def test_their_vocabulary_has_our_stops_one_bos_and_a_stable_prefix(published):
    spec, tokenizer = published
    tokenizer.chat_template = spec.chat_template
    ids = encode(tokenizer, render_prompt(spec, tokenizer, ROW, "train"))
    example = encode_example(spec, tokenizer, ROW, 4096)
    assert example.ids[: example.n_prompt] == ids
    assert example.ids[-1] in stop_ids(spec, tokenizer)
    if tokenizer.bos_token_id is not None and spec.family in ("mistral", "llama3", "gemma2"):
        assert ids.count(tokenizer.bos_token_id) == 1
