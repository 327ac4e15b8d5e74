"""Folded attention is the stock one, to rounding, and keeps a row independent of its batch."""

import copy

import pytest
import torch
from tiny import tiny_model

from parliabench_utils.models.backends import Sampling, decode_batch
from parliabench_utils.models.loading import use_folded_attention

PROMPTS = [[1, 5, 9], [1, 7], [1, 3, 4, 8, 11], [1], [1, 20, 21, 22]]


@pytest.fixture(scope="module")
def models():
    stock = tiny_model(vocabulary=60)
    folded = copy.deepcopy(stock)
    use_folded_attention(folded)
    return stock, folded


@pytest.mark.parametrize("padding", [0, 2])
def test_a_new_token_gets_the_stock_logits(models, padding):
    ids = torch.tensor([[2] * padding + [1, 5, 9, 4], [1, 7, 8, 3] + [11] * padding])
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    after = []
    for model in models:
        with torch.no_grad():
            cache = model(ids, attention_mask=mask, use_cache=True).past_key_values
            grown = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
            new = torch.tensor([[6], [30]])
            after.append(model(new, attention_mask=grown, past_key_values=cache).logits)
    assert torch.allclose(*after, atol=1e-5)
    assert models[1].config._attn_implementation == "folded"


def test_rows_do_not_depend_on_their_batch(models):
    _, folded = models
    settings = {"sampling": Sampling(0.7, 0.85, 1.2), "max_new_tokens": 40, "stop_ids": [2], "pad_id": 2}
    whole = decode_batch(folded, PROMPTS, list(range(5)), **settings)
    assert [decode_batch(folded, [p], [i], **settings)[0] for i, p in enumerate(PROMPTS)] == whole
    assert decode_batch(folded, PROMPTS[3:1:-1], [3, 2], **settings) == [whole[3], whole[2]]
