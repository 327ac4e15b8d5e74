"""A random Llama of two layers with the packaged tokenizer: real code paths in milliseconds."""

from functools import lru_cache

from parliabench_utils.models.specs import LoadedModel, load_tokenizer, read_model_spec


def tiny_model(vocabulary: int = 49152, seed: int = 0):
    """float32, evaluation mode. Weights are large, so that its next-token distributions are far from uniform."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
        pad_token_id=2,
        eos_token_id=2,
        bos_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


@lru_cache
def tiny_loaded() -> LoadedModel:
    """The tiny model under the demo model's name."""
    spec = read_model_spec("smollm2-135m")
    return LoadedModel(tiny_model(), load_tokenizer(spec), spec, "tiny fp32", "fp32")
