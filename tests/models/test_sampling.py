"""Sampling by row seeds: the right distribution, and independent of batch, order and neighbours."""

import pytest
import torch
from tiny import tiny_model

from parliabench_utils.models.backends import Sampling, decode_batch, draw, gumbel_noise, penalise_seen, seen_tokens

PAPER = Sampling(temperature=0.7, top_p=0.85, repetition_penalty=1.2)
PROMPTS = [[1, 5, 9], [1, 7], [1, 3, 4, 8, 11], [1], [1, 20, 21, 22], [1, 6, 6], [1, 2, 30]]
SEEDS = [11, 12, 13, 14, 15, 16, 17]


@pytest.fixture(scope="module")
def model():
    return tiny_model(vocabulary=60)


def decode(model, which, sampling=PAPER, new=40):
    prompts, seeds = [PROMPTS[i] for i in which], [SEEDS[i] for i in which]
    return decode_batch(model, prompts, seeds, sampling, new, stop_ids=[2], pad_id=2)


def test_batch_size_and_order_change_nothing(model):
    whole = decode(model, range(7))
    assert [decode(model, [i])[0] for i in range(7)] == whole
    assert decode(model, [6, 2, 4]) == [whole[6], whole[2], whole[4]]
    assert decode(model, range(7)) == whole


def test_rows_stop_on_their_own_and_without_the_stop_token(model):
    answers = decode(model, range(7), new=200)
    assert {reason for _, reason in answers} <= {"stop", "length"}
    assert any(reason == "stop" for _, reason in answers)
    for ids, reason in answers:
        assert 2 not in ids
        assert len(ids) == 200 if reason == "length" else len(ids) < 200


def test_another_seed_gives_another_text(model):
    one = decode_batch(model, [[1, 5]], [1], PAPER, 30, [2], 2)
    two = decode_batch(model, [[1, 5]], [2], PAPER, 30, [2], 2)
    assert one != two


def test_greedy_is_the_stock_greedy(model):
    greedy = Sampling(temperature=0, top_p=1.0, repetition_penalty=1.0)
    ours, _ = decode_batch(model, [[1, 5, 9]], [0], greedy, 20, [59], 2)[0]
    ids = torch.tensor([[1, 5, 9]])
    stock = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, eos_token_id=59)
    assert ours == [t for t in stock[0, 3:].tolist() if t != 59]


def test_draws_follow_the_distribution():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).repeat(20_000, 1)
    drawn = draw(logits, torch.arange(20_000), 0, Sampling(1.0, 1.0, 1.0))
    shares = torch.bincount(drawn, minlength=3) / 20_000
    assert torch.allclose(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.012)


def test_top_p_keeps_the_smallest_set_that_holds_enough():
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.1]])).repeat(2000, 1)
    assert set(draw(logits, torch.arange(2000), 3, Sampling(1.0, 0.5, 1.0)).tolist()) == {0}
    assert set(draw(logits, torch.arange(2000), 3, Sampling(1.0, 0.85, 1.0)).tolist()) == {0, 1}


def test_noise_is_standard_gumbel_and_the_same_on_every_call():
    noise = gumbel_noise(torch.arange(500), 7, torch.arange(200).repeat(500, 1))
    assert noise.shape == (500, 200)
    assert abs(noise.mean().item() - 0.5772) < 0.02
    assert abs(noise.var().item() - 1.645) < 0.05
    assert torch.equal(noise[3:4, 5:6], gumbel_noise(torch.tensor([3]), 7, torch.tensor([[5]])))


def test_penalty_pushes_seen_tokens_down_on_both_sides_of_zero():
    logits = torch.tensor([[2.0, -2.0, 2.0], [2.0, -2.0, 2.0]])
    seen = torch.tensor([[0, 1, 0], [2, 2, 2]])
    assert penalise_seen(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0], [2.0, -2.0, 1.0]]


def test_padding_and_stop_tokens_do_not_count_as_seen():
    assert seen_tokens([[5, 2, 6], [7]], [2], "cpu").tolist() == [[5, 6], [7, 7]]
    with pytest.raises(ValueError, match="nothing but stop tokens"):
        seen_tokens([[2]], [2], "cpu")


def test_the_short_cuts_of_a_draw_change_no_probability():
    """Against the definition: softmax at a temperature, the smallest set that holds top-p, Gumbel noise."""
    torch.manual_seed(0)
    logits, seeds = torch.randn(64, 300) * 4, torch.arange(64)
    log_p = (logits.double() / 0.7).log_softmax(dim=-1)
    ranked, ids = log_p.sort(dim=-1, descending=True)
    ranked = ranked.masked_fill(ranked.exp().cumsum(dim=-1) - ranked.exp() >= 0.85, float("-inf"))
    expected = ids.gather(1, (ranked + gumbel_noise(seeds, 5, ids)).argmax(dim=-1, keepdim=True)).squeeze(1)
    assert torch.equal(draw(logits, seeds, 5, PAPER), expected)
