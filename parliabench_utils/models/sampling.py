"""Sampling that depends on a row's own seed and nothing else, and the decoding loop that uses it.

Stock sampling draws one random stream for a whole batch, so that batch size, order and a restart change every text. Here each token
is the argmax of log-probability plus Gumbel noise (which is a draw from the distribution), and the noise is a function of
(row seed, how many tokens the row has, token id). In fp32 a row's text is then the same in any batch.

    sampling = Sampling(temperature=0.7, top_p=0.85, repetition_penalty=1.2)
    decode_batch(model, prompts, seeds=[11, 12], sampling=sampling, max_new_tokens=200, stop_ids=[2], pad_id=2)
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """Section 5.3: nucleus sampling. Temperature 0 is greedy decoding, without noise."""

    temperature: float
    top_p: float
    repetition_penalty: float


def _wrapped(constant: int) -> int:
    """A 64-bit constant as PyTorch's signed integer."""
    return constant - 2**64 if constant >= 2**63 else constant


MIX_1, MIX_2, STEP = _wrapped(0xBF58476D1CE4E5B9), _wrapped(0x94D049BB133111EB), _wrapped(0x9E3779B97F4A7C15)


def mix64(x):
    """SplitMix64's finaliser on an int64 tensor: neighbouring counters give unrelated bits (wrapping arithmetic)."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * MIX_1
    x = (x ^ ((x >> 27) & (2**37 - 1))) * MIX_2
    return x ^ ((x >> 31) & (2**33 - 1))


def gumbel_noise(seeds, step: int, token_ids):
    """Standard Gumbel noise, float64 of shape (B, K), for row seeds (B,) and token ids (B, K); stateless."""
    import torch

    row = mix64(mix64(seeds * STEP) + _wrapped(step * STEP % 2**64))  # (B,)
    bits = mix64(row.unsqueeze(1) + token_ids * STEP)  # (B, K)
    uniform = (((bits >> 11) & (2**53 - 1)).double() + 0.5) / 2**53  # in (0, 1), both ends left out
    return -torch.log(-torch.log(uniform))


def penalise_seen(logits, seen, penalty: float):
    """Repetition penalty (Keskar et al., 2019): logits (B, V) at the token ids `seen` (B, K), divided if positive, else multiplied.

    An id may stand in its row more than once.
    """
    import torch

    own = logits.gather(1, seen)  # (B, K): a row's few hundred tokens, not the whole vocabulary
    return logits.scatter(1, seen, torch.where(own > 0, own / penalty, own * penalty))


def draw(logits, seeds, step: int, sampling: Sampling, candidates: int = 1024):
    """One token a row, (B,), from logits (B, V) after temperature and top-p.

    Top-p keeps the smallest set of likeliest tokens that holds at least `top_p`. Only the `candidates` likeliest are looked at.
    """
    import torch

    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    best, ids = logits.topk(min(candidates, logits.shape[-1]), dim=-1)
    top = best[:, :1]  # summed in float64, or the sum of a row would depend on how many rows there are
    total = ((logits - top) / sampling.temperature).exp().sum(dim=-1, keepdim=True, dtype=torch.float64)
    log_p = (best - top).double() / sampling.temperature - total.log()  # (B, candidates), falling
    before = log_p.exp().cumsum(dim=-1) - log_p.exp()  # probability of all likelier tokens
    log_p = log_p.masked_fill(before >= sampling.top_p, float("-inf"))
    drawn = (log_p + gumbel_noise(seeds, step, ids)).argmax(dim=-1, keepdim=True)
    return ids.gather(1, drawn).squeeze(1)


def seen_tokens(prompts: list[list[int]], free: list[int], device):
    """Token ids (B, K) of each prompt but those in `free`, filled up with ids of its own: a row must not depend on its batch.

    ValueError for a prompt of nothing else.
    """
    import torch

    kept = [[token for token in prompt if token not in free] for prompt in prompts]
    if not all(kept):
        raise ValueError("a prompt holds nothing but stop tokens")
    longest = max(map(len, kept))
    return torch.tensor([ids + ids[:1] * (longest - len(ids)) for ids in kept], device=device)


def decode_batch(
    model,
    prompts: list[list[int]],
    seeds: list[int],
    sampling: Sampling,
    max_new_tokens: int,
    stop_ids: list[int],
    pad_id: int,
) -> list[tuple[list[int], str]]:
    """New token ids of each prompt and its finish reason, `stop` or `length`; the stop token itself is left out.

    A row that has stopped leaves the batch at once, with its part of the KV cache. Stop tokens are free of the repetition
    penalty: they stand in every prompt as the ends of turns, and a penalty on them only keeps a speech from ending.
    """
    import torch
    from transformers import DynamicCache

    from parliabench_utils.models.prompting import pad_left

    device = next(model.parameters()).device
    ids, mask = (t.to(device) for t in pad_left(prompts, pad_id))  # (B, T)
    positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    stops = torch.tensor(stop_ids, device=device)
    rows, keys = torch.arange(len(prompts), device=device), torch.tensor(seeds, device=device)
    answers, reasons = [[] for _ in prompts], ["length"] * len(prompts)
    cache, seen = DynamicCache(config=model.config), seen_tokens(prompts, stop_ids, device)  # stop tokens go free
    with torch.inference_mode():
        for step in range(max_new_tokens):
            logits = (
                model(
                    input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
                )
                .logits[:, -1, :]
                .float()
            )
            token = draw(penalise_seen(logits, seen, sampling.repetition_penalty), keys, step, sampling)  # (B,)
            stopped = torch.isin(token, stops)
            for row, new, end in zip(rows.tolist(), token.tolist(), stopped.tolist(), strict=True):
                if end:
                    reasons[row] = "stop"
                else:
                    answers[row].append(new)
            if stopped.all():
                break
            seen = torch.cat([seen, token.unsqueeze(1)], dim=1)
            ids, positions = token.unsqueeze(1), positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(token), 1)], dim=1)
            if stopped.any():
                alive = (~stopped).nonzero().squeeze(1)
                cache.batch_select_indices(alive)
                ids, positions, mask, seen = ids[alive], positions[alive], mask[alive], seen[alive]
                rows, keys = rows[alive], keys[alive]
    return list(zip(answers, reasons, strict=True))
