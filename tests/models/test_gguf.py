"""GGUF through llama.cpp: our own draws, one row at a time; a clear message where llama-cpp-python is missing."""

from importlib.util import find_spec

import numpy as np
import pytest

from parliabench_utils.models import backends as gguf
from parliabench_utils.models import specs as packaged
from parliabench_utils.models.backends import GgufModel, Sampling, gguf_file
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.specs import load_tokenizer, read_model_spec

SAMPLING = Sampling(0.7, 0.85, 1.2)
STOP = 9


class FakeLlama:
    """Ten tokens; the logits depend on the last token only. It takes the likeliest token after the logits processors."""

    def tokenize(self, text, add_bos, special):
        return [STOP] if text == b"<|im_end|>" else [1, 2]

    def generate(self, tokens, temp, repeat_penalty, logits_processor):
        assert (temp, repeat_penalty) == (0.0, 1.0), "the draws are ours"
        ids = list(tokens)
        while True:
            logits = np.random.default_rng(ids[-1]).normal(size=10).astype(np.float32)
            for process in logits_processor:
                logits = process(np.array(ids), logits)
            ids.append(int(logits.argmax()))
            yield ids[-1]

    def detokenize(self, tokens, special):
        return " ".join(map(str, tokens)).encode()


def speak(prompts, seeds, most=30):
    return GgufModel(None, llama=FakeLlama()).complete(prompts, seeds, SAMPLING, most, ["<|im_end|>", "<|endoftext|>"])


def test_rows_depend_on_their_own_seed_alone():
    both = speak([[1, 2], [3]], [11, 12])
    assert both == speak([[1, 2]], [11]) + speak([[3]], [12])
    assert both[0] != speak([[1, 2]], [13])[0]
    for text, reason in both:
        assert str(STOP) not in text.split()
        assert reason in ("stop", "length")


def test_it_ends_at_the_limit():
    text, reason = speak([[1]], [2], most=1)[0]
    assert len(text.split()) <= 1 and reason in ("stop", "length")
    with pytest.raises(ValueError, match="exceed"):
        GgufModel(None, context=8, llama=FakeLlama()).complete([[1] * 6], [1], SAMPLING, 5, [])


def test_without_llama_cpp_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    loaded = load_model("smollm2-135m-gguf", purpose="generate")
    assert "gguf" in loaded.fingerprint
    with pytest.raises(ImportError, match="pip install llama-cpp-python"):
        loaded.model.complete([[1]], [1], SAMPLING, 5, ["<|im_end|>"])


def test_a_gguf_file_neither_trains_nor_takes_an_adapter(tmp_path):
    with pytest.raises(ValueError, match=r"llama\.cpp; it can neither"):
        load_model("smollm2-135m-gguf", purpose="score")
    with pytest.raises(ValueError, match="leave fine-tuned out"):
        load_model("smollm2-135m-gguf", adapter=tmp_path, purpose="generate")
    with pytest.raises(FileNotFoundError, match="not a GGUF file"):
        gguf_file(read_model_spec("smollm2-135m-gguf").model_copy(update={"path": "no/such.gguf"}))


def test_a_declared_sha256_of_a_file_is_checked(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    spec = read_model_spec("smollm2-135m-gguf").model_copy(update={"path": str(tmp_path / "x.gguf")})
    with pytest.raises(ValueError, match="sha256 is b179c9523d0e"):
        gguf_file(spec)
    digest = packaged.file_sha256(tmp_path / "x.gguf")
    assert gguf_file(spec.model_copy(update={"sha256": digest})) == tmp_path / "x.gguf"
    with pytest.raises(ValueError, match="sha256"):
        gguf_file(spec.model_copy(update={"path": None, "sha256": "0" * 64}))


def test_its_tokenizer_is_the_packaged_one():
    ours, packaged = load_tokenizer("smollm2-135m-gguf"), load_tokenizer("smollm2-135m")
    assert ours("My Lords, in 2022")["input_ids"] == packaged("My Lords, in 2022")["input_ids"]


def test_the_real_file_speaks():
    if find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed")
    loaded = load_model("smollm2-135m-gguf", purpose="generate")
    ids = loaded.tokenizer("My Lords, I")["input_ids"]
    first = loaded.model.complete([ids, ids], [1, 2], SAMPLING, 12, loaded.spec.stop)
    assert first[0] != first[1]
    assert loaded.model.complete([ids], [2], SAMPLING, 12, loaded.spec.stop) == first[1:]
