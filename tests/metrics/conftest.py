"""Golden cases and the small real models that metric tests share."""

import json

import numpy as np
import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="session")
def golden() -> dict:
    """Cases of tests/golden/metrics.json."""
    return json.loads((ROOT / "tests/golden/metrics.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tests share their machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def token_encoder():
    """The packaged MiniLM, layer 5."""
    from parliabench_utils.models.embeddings import TokenEncoder

    return TokenEncoder(layer=5)


@pytest.fixture(scope="session")
def tiny_gpt2():
    """A GPT-2 of one layer with random weights, and a tokeniser of its words; positions up to 64."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    names = ["<|endoftext|>", "<unk>", *(f"w{i}" for i in range(98))]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=16, n_layer=1, n_head=2)
    return GPT2LMHeadModel(config).eval(), tokenizer


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """`tiny_bert(kind, name, pickled)`: a folder with a one-layer BERT of that auto class, random weights, MiniLM's words."""
    import torch
    from transformers import AutoTokenizer, BertConfig

    from parliabench_utils.models.embeddings import encoder_folder

    def folder(kind, name: str, pickled: bool = False):
        torch.manual_seed(0)
        size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        model = kind.from_config(BertConfig(vocab_size=30522, **size))
        path = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(path)
        AutoTokenizer.from_pretrained(encoder_folder("all-MiniLM-L6-v2")).save_pretrained(path)
        if pickled:
            torch.save(model.state_dict(), path / "pytorch_model.bin")
            (path / "model.safetensors").unlink()
        return path

    return folder


@pytest.fixture
def words():
    """`words(n, seed)`: a text of n random words of the tiny model."""

    def text(n: int, seed: int = 0) -> str:
        return " ".join(f"w{i}" for i in np.random.default_rng(seed).integers(0, 98, n))

    return text
