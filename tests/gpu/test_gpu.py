"""On a CUDA device: 03 and 04's real paths, 4 bit and bf16. `python -m benchmarks.gpu` measures the paper's sizes there."""

from dataclasses import replace

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture
def settings():
    from benchmarks.finetune import settings

    return replace(settings(), eval_every=2, max_steps=4, learning_rate=1e-3, gradient_checkpointing=True)


@pytest.mark.parametrize("name", ["smollm2-135m", "smollm2-135m-nf4"])
def test_training_on_a_gpu_learns_and_repeats(tmp_path, settings, name):
    from benchmarks.finetune import rows
    from parliabench_utils.models.finetune import train
    from parliabench_utils.models.specs import read_model_spec

    logs = [train(read_model_spec(name), settings, rows(), rows()[:1], tmp_path / f"{i}").log for i in range(2)]
    held = [row["held_out_loss"] for row in logs[0] if row["held_out_loss"] is not None]
    assert held[-1] < held[0]
    for first, second in zip(*logs, strict=True):
        assert first["loss"] is None or second["loss"] == pytest.approx(first["loss"], abs=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "nf4"])
def test_generation_on_a_gpu(precision):
    from benchmarks.generation import ours, prompts_of
    from parliabench_utils.models.loading import load_model

    name = "smollm2-135m-nf4" if precision == "nf4" else "smollm2-135m"
    loaded = load_model(name, purpose="generate", precision=precision)
    assert loaded.device.type == "cuda"
    prompts = prompts_of(loaded)[:4]
    texts = ours(loaded, prompts, 16, [0])
    assert all(texts)
    if precision == "fp32":
        assert [ours(loaded, [prompt], 16, [0])[0] for prompt in prompts[:1]] == texts[:1]


def test_out_of_memory_on_a_gpu_says_what_to_change(tmp_path, settings, monkeypatch):
    import torch

    from benchmarks.finetune import rows
    from parliabench_utils.models.finetune import train
    from parliabench_utils.models.specs import read_model_spec

    torch.cuda.set_per_process_memory_fraction(0.001)
    try:
        with pytest.raises(MemoryError, match="halve batch_size"):
            train(read_model_spec("smollm2-135m"), settings, rows(), rows()[:1], tmp_path)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
