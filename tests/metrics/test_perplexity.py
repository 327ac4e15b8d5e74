"""Perplexity on a random one-layer GPT-2: the same code as with a real model."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parliabench_utils.metrics import perplexity as module
from parliabench_utils.metrics.perplexity import (
    corpus_perplexity,
    log_likelihoods,
    per_text,
    perplexity,
    signature,
    start_token,
    token_log_probs,
    windows,
)


def test_windows_golden(golden):
    case = golden["perplexity_windows"]
    spans = list(windows(case["n_predicted"], case["size"], case["stride"]))
    assert [scored for *_, scored in spans] == case["scored"]
    assert list(spans[-1][:2]) == case["last_input"]
    assert list(windows(0, 10, 10)) == []


def test_equals_the_loss_of_transformers(tiny_gpt2, words):
    import torch

    model, tokenizer = tiny_gpt2
    text = words(20)
    ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text)["input_ids"]]])
    with torch.no_grad():
        expected = model(ids, labels=ids).loss.exp().item()
    assert perplexity([text], model, tokenizer)[0] == pytest.approx(expected, rel=1e-5)


def test_a_model_that_knows_nothing(tiny_gpt2, words):
    import copy

    model, tokenizer = copy.deepcopy(tiny_gpt2[0]), tiny_gpt2[1]
    model.transformer.wte.weight.data.zero_()  # tied to the output: every token is as likely as every other
    assert perplexity([words(9)], model, tokenizer)[0] == pytest.approx(100, rel=1e-5)


def test_the_vocabulary_of_gpt2_and_no_knowledge(golden):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    case = golden["perplexity_of_a_model_that_knows_nothing"]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=case["vocabulary"], n_embd=8, n_layer=1, n_head=1)).eval()
    model.transformer.wte.weight.data.zero_()
    with torch.inference_mode():
        values = module._log_probs(torch.zeros(3, 8), torch.tensor([0, 7, 50256]), model)
    np.testing.assert_allclose(-values, case["loss"], atol=1e-6)
    np.testing.assert_allclose(np.exp(-values), case["value"], rtol=1e-5)


@given(st.lists(st.integers(0, 70), min_size=1, max_size=7), st.integers(1, 5), st.randoms())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_company_changes_nothing(tiny_gpt2, words, lengths, batch_size, random):
    texts = [words(n, seed=n) for n in lengths]
    expected = {text: perplexity([text], *tiny_gpt2)[0] for text in texts}
    texts = texts + texts[:2]
    random.shuffle(texts)
    values = perplexity(texts, *tiny_gpt2, batch_size=batch_size)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, [expected[text] for text in texts], rtol=1e-5)
    assert (values[~np.isnan(values)] >= 1).all()


def test_many_texts_go_in_blocks(tiny_gpt2, words, monkeypatch):
    texts = [words(n, seed=n) for n in (9, 3, 30, 12, 3)]
    whole = log_likelihoods(texts, *tiny_gpt2)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 2)
    parts = log_likelihoods(texts, *tiny_gpt2)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5)
    assert parts[1].tolist() == [9, 3, 30, 12, 3]


def test_batch_size_order_and_padding_side_change_nothing(tiny_gpt2, words):
    model, tokenizer = tiny_gpt2
    texts = [words(n, seed=n) for n in (3, 17, 40, 5)]
    alone = np.array([perplexity([text], model, tokenizer)[0] for text in texts])
    tokenizer.padding_side = "left"  # a generator's setting must not matter here
    np.testing.assert_allclose(perplexity(texts, model, tokenizer, batch_size=4), alone, rtol=1e-5)
    np.testing.assert_allclose(perplexity(texts[::-1], model, tokenizer, batch_size=2)[::-1], alone, rtol=1e-5)


def test_texts_longer_than_the_context_are_read_in_windows(tiny_gpt2, words):
    model, tokenizer = tiny_gpt2
    scored = token_log_probs([words(150)], model, tokenizer, window=1024, stride=512)
    assert len(scored[0]) == 150
    short = token_log_probs([words(150)], model, tokenizer, window=64, stride=16)
    np.testing.assert_allclose(scored[0][:64], short[0][:64], atol=1e-6)


def test_odd_texts(tiny_gpt2, words):
    model, tokenizer = tiny_gpt2
    values = perplexity(["", None, "  ", "w1", "😀 \x00 \ud800", "мы " * 5000], model, tokenizer, max_words=None)
    assert np.isnan(values[:3]).all()
    assert np.isfinite(values[3:]).all()
    np.testing.assert_allclose(
        perplexity([words(30)], model, tokenizer, max_words=10), perplexity([words(10)], model, tokenizer), rtol=1e-6
    )


def test_start_token_and_corpus_value(tiny_gpt2):
    _, tokenizer = tiny_gpt2
    assert start_token(tokenizer) == 0
    assert "bos:<|endoftext|>" in signature("tiny", tokenizer)
    sums, counts = np.array([2 * np.log(0.5), np.log(0.25), 0]), np.array([2, 1, 0])
    assert per_text(sums, counts) == pytest.approx([2, 4, np.nan], nan_ok=True)
    assert corpus_perplexity(sums, counts) == pytest.approx(16 ** (1 / 3))
    assert np.isnan(corpus_perplexity(np.array([]), np.array([])))


def test_a_reader_that_is_not_there():
    with pytest.raises(OSError, match=r"'no-such-model'.*hf download no-such-model"):
        module.load_language_model("no-such-model")


@pytest.mark.parametrize("name", ["smollm2-135m", "gpt2"])
@pytest.mark.parametrize("precision", ["fp16", "nf4"])
def test_a_precision_that_is_not_supported_is_refused(name, precision):
    with pytest.raises(ValueError, match=f"precision '{precision}' of '{name}': expected fp32 or bf16"):
        module.load_language_model(name, precision)


def test_a_reader_from_a_folder(tiny_gpt2, tmp_path, words):
    for part in tiny_gpt2:
        part.save_pretrained(tmp_path / "tiny")
    model, tokenizer, fingerprint = module.load_language_model(str(tmp_path / "tiny"))
    assert fingerprint.startswith("tiny@")
    np.testing.assert_allclose(perplexity([words(9)], model, tokenizer), perplexity([words(9)], *tiny_gpt2), rtol=1e-5)


@pytest.mark.hub
def test_gpt2_published_values(golden, monkeypatch):
    try:
        model, tokenizer, _ = module.load_language_model("gpt2")
    except OSError:
        pytest.skip("gpt2 is not on this machine: hf download gpt2")
    monkeypatch.setattr(module, "start_token", lambda _: None)
    for case in golden["perplexity_gpt2_no_start"]:
        assert perplexity([case["text"]], model, tokenizer)[0] == pytest.approx(case["value"], rel=1e-4)
    case = golden["perplexity_gpt2_mean_no_start"]
    values = perplexity(case["texts"], model, tokenizer)
    assert values[0] == pytest.approx(case["first"], abs=0.01)
    assert values.mean() == pytest.approx(case["mean"], abs=0.01)
