"""Stand-ins for the five families' tokenizers: byte-level, with each family's own control tokens and BOS habits."""

from functools import lru_cache

from parliabench_utils.models.specs import read_model_spec

CONTROL = {
    "mistral-7b-v0.3": ("<s>", "</s>", ["[INST]", "[/INST]"]),
    "llama-3.1-8b": (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    ),
    "gemma-2-9b": ("<bos>", "<eos>", ["<start_of_turn>", "<end_of_turn>"]),
    "qwen2-7b": (None, "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]),
    "yi-6b": (None, "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]),
}
ROW = {
    "speech_id": "u1",
    "Party": "Labour",
    "Topic": "Energy",
    "Section": "Energy Prices",
    "Political Orientation": "Centre-left",
    "House": "House of Commons",
    "Speech": " I thank the Minister. Bills have doubled. ",
    "Prompts": [],
}


@lru_cache
def family(name: str):
    """(spec, tokenizer) of a paper model, the tokenizer made here with bytes as its only other tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bos, eos, others = CONTROL[name]
    alphabet = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(t, special=True) for t in [bos, eos, *others] if t])
    spec = read_model_spec(name)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=bos, eos_token=eos, pad_token=eos)
    tokenizer.chat_template = spec.chat_template
    return spec, tokenizer
