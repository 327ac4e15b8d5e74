"""Attention of one new token without copying keys and values, for generation with models that share them among heads.

Where a batch is padded, transformers repeats the keys and values of a group for each of its heads at every token: with SmolLM2 at
batch 32 that copying takes most of a step. Here the heads of a group stand as queries of one attention, which is the same sum.

    use_folded_attention(model)         # load_model does it for purpose="generate"
"""

NAME = "folded"


def folded_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """transformers' attention interface: `query` (B, H, T, D), `key` and `value` (B, G, N, D) → (B, T, H, D), no weights.

    Only single tokens (T = 1) are folded; the prompt is read by the stock function.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, length, size = query.shape
    groups = key.shape[1]
    if length > 1 or heads == groups:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    folded = query.reshape(batch, groups, heads // groups, size)
    out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(batch, 1, heads, size), None


def use_folded_attention(model) -> None:
    """Make a loaded model use it, with the masks of `sdpa`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, folded_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
