"""On a CUDA device: tokens a second and memory of 03 and 04 with a model of Llama 3.1 8B's shape, random weights, 4 bit.

    python -m benchmarks.gpu FOLDER          # FOLDER keeps the 16 GB of weights; about ten minutes

Nothing is fetched: the shape is Llama 3.1 8B's, the tokenizer the packaged one (its ids are among the 128,256).
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import markdown_table, versions

SHAPE = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0, "pad_token_id": 2, "eos_token_id": 2,
}  # fmt: skip
STEPS, BATCHES = 6, (8, 16, 32, 64)


def shaped_spec(folder: Path):
    """A model file for the random weights in `folder`, which are made on first use."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from parliabench_utils.models.specs import load_tokenizer, read_model_spec

    packaged = read_model_spec("smollm2-135m-nf4")
    if not (folder / "config.json").is_file():
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            model = LlamaForCausalLM(LlamaConfig(**SHAPE))
        torch.set_default_dtype(torch.float32)
        load_tokenizer(packaged).save_pretrained(folder)
        model.save_pretrained(folder)
        del model
        torch.cuda.empty_cache()
    changes = {
        "source": "path",
        "path": str(folder.resolve()),
        "name": "llama-8b-shape",
        "n_parameters": 8030261248,
    } | {"sha256": None}
    return packaged.model_copy(update=changes)


def training(spec) -> list[dict]:
    """Seconds a step, tokens a second and peak memory at Table 7's length, by batch size, until memory ends; first loss series."""
    import torch

    from benchmarks.finetune import rows, settings
    from parliabench_utils.models.finetune import train

    table = []
    for batch in BATCHES:
        chosen = replace(settings(), batch_size=batch, max_length=1024, max_steps=STEPS, gradient_checkpointing=True)
        speeches = [row | {"speech_id": f"u{i}", "Speech": row["Speech"] * 3} for i, row in enumerate(rows() * (batch // 8))]
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                log = train(spec, chosen, speeches, speeches[:1], Path(folder)).log
            except MemoryError:
                return [*table, {"batch": batch, "tokens a second": "out of memory", "peak GB": "", "losses": ""}]
        tokens = batch * 1024 * STEPS
        losses = " ".join(f"{row['loss']:.4f}" for row in log if row["loss"] is not None)
        peak = torch.cuda.max_memory_allocated() / 1e9
        rate = tokens / (time.perf_counter() - began)  # loading and saving are in it: a lower bound
        table.append({"batch": batch, "tokens a second": rate, "peak GB": peak, "losses": losses})
    return table


def generating(spec) -> list[dict]:
    """New tokens a second and peak memory at batch 32, in bf16 (dequantised) and live 4 bit."""
    import torch

    from benchmarks.generation import BATCH, ours, prompts_of
    from parliabench_utils.models.loading import load_model

    table = []
    for precision in ("bf16", "nf4"):
        torch.cuda.reset_peak_memory_stats()
        loaded = load_model(spec, purpose="generate", precision=precision)
        prompts = prompts_of(loaded)
        ours(loaded, prompts, 4, [128255])
        began = time.perf_counter()
        made = sum(map(len, ours(loaded, prompts, 200, [128255])))
        peak = torch.cuda.max_memory_allocated() / 1e9
        table.append(
            {
                "precision": precision,
                "batch": BATCH,
                "new tokens a second": made / (time.perf_counter() - began),
                "peak GB": peak,
            }
        )
        del loaded
        torch.cuda.empty_cache()
    return table


def main(folder: str) -> None:
    """Print both tables."""
    import torch

    Path(folder).mkdir(parents=True, exist_ok=True)
    spec = shaped_spec(Path(folder))
    print(f"{torch.cuda.get_device_name()}; {versions('torch', 'transformers', 'trl', 'bitsandbytes')}\n")
    print(markdown_table(training(spec)), "\n")
    print(markdown_table(generating(spec)))


if __name__ == "__main__":
    main(sys.argv[1])
