"""Generation: our decoding against transformers' own `generate`, against one prompt at a time, and against the forward pass.

python -m benchmarks.generation
"""

import time

from benchmarks.measure import alternate, machine, markdown_table, versions

BATCH, NEW, ALONE = 32, 64, 4
ROW = {
    "Party": "Labour",
    "Topic": "Energy",
    "Political Orientation": "Centre-left",
    "House": "House of Commons",
    "Prompts": [],
}


def prompts_of(loaded) -> list[list[int]]:
    """32 prompts of a little over 200 tokens, all different and of different lengths."""
    from parliabench_utils.models.prompting import encode, render_prompt

    headings = (
        "Energy Prices",
        "Rural Buses",
        "Fishing Rights",
        "School Meals",
        "Flood Defences",
        "Museums",
        "Dentists",
        "Housing",
    )
    sections = [" and ".join(headings[i % 8 : i % 8 + 1 + i // 8] + headings[: i // 8]) for i in range(BATCH)]
    rows = [ROW | {"Section": section} for section in sections]
    limits = {"min_words": 43, "max_words": 635}
    return [encode(loaded.tokenizer, render_prompt(loaded.spec, loaded.tokenizer, row, **limits)) for row in rows]


def ours(loaded, prompts, new: int, stops: list[int], sampling=None) -> list[list[int]]:
    """New tokens by `decode_batch`."""
    from parliabench_utils.models.backends import Sampling, decode_batch

    sampling, pad = sampling or Sampling(0.7, 0.85, 1.2), loaded.tokenizer.pad_token_id
    return [ids for ids, _ in decode_batch(loaded.model, prompts, list(range(len(prompts))), sampling, new, stops, pad)]


def stock(loaded, prompts, new: int, stops: list[int], greedy: bool = False) -> list[list[int]]:
    """New tokens by transformers' `generate`, with the same settings; what follows a stop token is left out."""
    import torch

    from parliabench_utils.models.prompting import pad_left

    pad = loaded.tokenizer.pad_token_id
    ids, mask = pad_left(prompts, pad)
    torch.manual_seed(0)
    how = {"do_sample": False} if greedy else {"temperature": 0.7, "top_p": 0.85, "top_k": 0, "do_sample": True}
    how |= {"repetition_penalty": 1.0 if greedy else 1.2, "max_new_tokens": new, "pad_token_id": pad}
    with torch.inference_mode():
        made = loaded.model.generate(ids, attention_mask=mask, eos_token_id=stops, **how)[:, ids.shape[1] :].tolist()
    ends = [next((i for i, token in enumerate(row) if token in stops), len(row)) for row in made]
    return [row[:end] for row, end in zip(made, ends, strict=True)]


def forward_rate(loaded) -> float:
    """Tokens a second of one forward pass over 8 x 256."""
    import torch

    ids = torch.randint(5, 1000, (8, 256))
    with torch.inference_mode():
        seconds = alternate({"forward": lambda: loaded.model(ids, logits_to_keep=1)})["forward"]
    return ids.numel() / seconds


def rows_that_end(exact) -> list[dict]:
    """Greedy texts in fp32 (both ways write the same) that end at their first comma, at 128 tokens otherwise.

    The rows of a batch end at very different places: `generate` reads all of them until the last has ended.
    """
    from parliabench_utils.models.backends import Sampling

    prompts, stops = prompts_of(exact), [exact.tokenizer.convert_tokens_to_ids(name) for name in (",", "<|endoftext|>")]
    made: dict[str, list[list[int]]] = {}
    ways = {
        "ours": lambda: made.update(ours=ours(exact, prompts, 2 * NEW, stops, Sampling(0, 1.0, 1.0))),
        "transformers' generate": lambda: made.update(stock=stock(exact, prompts, 2 * NEW, stops, greedy=True)),
    }
    seconds = alternate(ways, repeats=2)
    lengths = [len(row) for row in made["ours"]]
    what = f"rows that end, {sum(lengths)} tokens, the shortest {min(lengths)}, the longest {max(lengths)}"
    same = f"{sum(a == b for a, b in zip(made['ours'], made['stock'], strict=True))} of {BATCH} texts equal"
    return [
        {what: name, "tokens a second": sum(lengths) / value, "ours / this": value / seconds["ours"], "values": same}
        for name, value in seconds.items()
    ]


def where_time_goes(loaded, prompts) -> list[dict]:
    """Seconds of a step's two parts: the model on 32 single tokens after the prompts, and our choice of tokens."""
    import torch
    from transformers import DynamicCache

    from parliabench_utils.models.backends import Sampling, draw, penalise_seen, seen_tokens
    from parliabench_utils.models.prompting import pad_left

    ids, mask = pad_left(prompts, loaded.tokenizer.pad_token_id)
    cache, seeds = DynamicCache(config=loaded.model.config), torch.arange(BATCH)
    parts = {"prompts": 0.0, "model": 0.0, "choice": 0.0}
    seen = seen_tokens(prompts, [], "cpu")
    with torch.inference_mode():
        for step in range(NEW):
            began = time.perf_counter()
            logits = loaded.model(input_ids=ids, attention_mask=mask, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
            parts["model" if step else "prompts"] += time.perf_counter() - began
            began = time.perf_counter()
            token = draw(penalise_seen(logits, seen, 1.2), seeds, step, Sampling(0.7, 0.85, 1.2))
            seen = torch.cat([seen, token.unsqueeze(1)], dim=1)
            parts["choice"] += time.perf_counter() - began
            ids, mask = token.unsqueeze(1), torch.cat([mask, mask.new_ones(BATCH, 1)], dim=1)
    total = sum(parts.values())
    return [{"part": name, "seconds": value, "share, %": 100 * value / total} for name, value in parts.items()]


def main() -> None:
    """Equal texts first, then ratios."""
    from parliabench_utils.models.backends import Sampling
    from parliabench_utils.models.loading import load_model

    exact = load_model("smollm2-135m", purpose="generate", precision="fp32")
    few, never = prompts_of(exact)[:6], [exact.tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    same = ours(exact, few, 12, never, Sampling(0, 1.0, 1.0)) == stock(exact, few, 12, never, greedy=True)
    print(f"{machine()}; {versions('torch', 'transformers')}; bf16\n\ngreedy texts equal in fp32: {same}\n")
    loaded = load_model("smollm2-135m", purpose="generate", precision="bf16")
    prompts = prompts_of(loaded)
    seconds = alternate(
        {
            "ours": lambda: ours(loaded, prompts, NEW, never),
            "transformers' generate": lambda: stock(loaded, prompts, NEW, never),
        },
        repeats=2,
    )
    rates = {name: BATCH * NEW / value for name, value in seconds.items()}
    alone = alternate({"one": lambda: [ours(loaded, [p], NEW, never) for p in prompts[:ALONE]]}, repeats=2, warm_up=False)["one"]
    rates |= {"ours, one prompt at a time": ALONE * NEW / alone, "forward pass, 8 x 256": forward_rate(loaded)}
    print(
        markdown_table([{"way": n, "tokens a second": r, "ours / this": rates["ours"] / r} for n, r in rates.items()]),
        "\n",
    )
    print(markdown_table(rows_that_end(exact)), "\n")
    print(markdown_table(where_time_goes(loaded, prompts)))


if __name__ == "__main__":
    main()
