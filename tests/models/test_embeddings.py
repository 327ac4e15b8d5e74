"""Sentence embeddings: against sentence-transformers, long and odd texts, the cache and its many writers."""

import multiprocessing
import shutil
import threading

import numpy as np
import pytest
import torch

from parliabench_utils.models.embeddings import (
    EmbeddingCache,
    SentenceEncoder,
    TokenEncoder,
    batches_by_length,
    encoder_folder,
    load_encoder,
    read_batches,
    text_key,
)

LONG = "The Minister will know that the bus does not come on Sundays. " * 60


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path))
    return tmp_path


def test_equals_sentence_transformers_where_long_texts_are_cut():
    from sentence_transformers import SentenceTransformer

    texts = ["My Lords, I beg to move.", LONG, "Order."]
    theirs = SentenceTransformer(str(encoder_folder("all-MiniLM-L6-v2")), device="cpu").encode(texts, normalize_embeddings=True)
    ours = SentenceEncoder(long_text="cut", cache=False).encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_chunks_see_the_end_of_a_long_text():
    end = LONG + "Fish, fishing boats and the price of herring. " * 60
    cut, chunk = SentenceEncoder(long_text="cut"), SentenceEncoder()
    assert np.array_equal(*cut.encode([LONG, end]))
    assert float(np.dot(*chunk.encode([LONG, end]))) < 0.95


def test_rows_are_unit_float32_and_nan_for_nothing():
    rows = SentenceEncoder(cache=False).encode(["Order.", "", None, " \n", "😀", "\x00", "\ud800 мы", "Order."])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows[[0, 4, 6, 7]], axis=1), 1, atol=1e-5)
    assert np.isnan(rows[1:4]).all()
    assert np.array_equal(rows[0], rows[7])
    assert SentenceEncoder(cache=False).encode([]).shape == (0, 384)


def test_the_cache_gives_the_same_rows_without_the_model(own_cache, monkeypatch):
    texts = ["Order.", LONG]
    first = SentenceEncoder().encode(texts)
    monkeypatch.setattr("parliabench_utils.models.embeddings.load_encoder", lambda _: pytest.fail("weights were read"))
    assert np.array_equal(SentenceEncoder().encode(texts[::-1])[::-1], first)


def test_a_torn_record_is_passed_over(own_cache):
    keys = [text_key("a"), text_key("b")]
    EmbeddingCache("x").append(dict(zip(keys, np.array([[0.6, 0.8], [1.0, 0.0]]), strict=True)))
    (file,) = EmbeddingCache("x").folder.glob("*.f32")
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert set(EmbeddingCache("x").find(keys)) == {keys[0]}
    file.write_bytes(b"\0" * 48 + whole[48:])
    with pytest.warns(UserWarning, match="1 cached vectors are damaged and are computed again"):
        assert set(EmbeddingCache("x").find(keys)) == {keys[1]}


@pytest.mark.parametrize("place", [0, 35, 39, 40, 47])  # the key, a sign in the vector, the hash
def test_a_flipped_bit_is_found_before_and_while_a_cache_is_used(own_cache, place):
    key, vector = text_key("a"), np.array([0.6, 0.8], dtype=np.float32)
    used = EmbeddingCache("x")
    used.append({key: vector})
    assert key in used.find([key])
    (file,) = used.folder.glob("*.f32")
    damaged = bytearray(file.read_bytes())
    damaged[place] ^= 0x80
    file.write_bytes(damaged)
    for cache in (used, EmbeddingCache("x")):
        with pytest.warns(UserWarning, match="damaged"):
            assert cache.find([key]) == {}
        assert cache.damaged == 1
    used.append({key: vector})
    assert used.find([key])[key].tolist() == vector.tolist()


@pytest.mark.filterwarnings("error")
def test_a_deleted_cache_is_made_again(own_cache):
    keys, cache = [text_key(text) for text in "abc"], EmbeddingCache("x")
    cache.append({keys[0]: np.array([0.6, 0.8]), keys[1]: np.array([0.8, 0.6])})
    assert len(cache.find(keys)) == 2
    shutil.rmtree(own_cache)
    assert cache.find(keys) == {}
    cache.append({keys[2]: np.array([1.0, 0.0])})
    assert set(cache.find(keys)) == {keys[2]}


def test_an_encoder_computes_a_damaged_vector_again(own_cache):
    texts = ["My Lords, I beg to move.", "Order."]
    before = SentenceEncoder().encode(texts)
    (file,) = SentenceEncoder()._cache.folder.glob("*.f32")
    damaged = bytearray(file.read_bytes())
    damaged[35] ^= 0x80
    file.write_bytes(damaged)
    with pytest.warns(UserWarning, match="1 cached vectors"):
        np.testing.assert_array_equal(SentenceEncoder().encode(texts), before)


def _unit(number: int, i: int) -> np.ndarray:
    return np.random.default_rng([number, i]).dirichlet(np.ones(8)) ** 0.5


def _write_and_read(number: int, n: int) -> None:
    """Append, and check whatever the others have written so far."""
    cache = EmbeddingCache("many")
    keys = {text_key(f"{other}-{i}"): (other, i) for other in range(4) for i in range(n)}
    for i in range(n):
        cache.append({text_key(f"{number}-{i}"): _unit(number, i)})
        for key, vector in cache.find(keys).items():
            np.testing.assert_allclose(vector, _unit(*keys[key]), atol=1e-6)


def test_many_processes_write_and_read_at_once(own_cache):
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_write_and_read, args=(number, 25)) for number in range(4)]
    killed = fork.Process(target=_write_and_read, args=(4, 100_000))
    for process in [killed, *processes]:
        process.start()
    for process in processes:
        process.join()
    killed.kill()
    killed.join()
    assert [process.exitcode for process in processes] == [0] * 4
    keys = [text_key(f"{number}-{i}") for number in range(4) for i in range(25)]
    assert len(EmbeddingCache("many").find(keys)) == 100


def test_a_cache_in_use_sees_what_is_added_and_keeps_other_settings_apart(own_cache):
    reader, writer = EmbeddingCache("x"), EmbeddingCache("x")
    assert reader.find([text_key("a")]) == {}
    writer.append({text_key("a"): np.array([0.6, 0.8])})
    assert reader.find([text_key("a")])[text_key("a")] == pytest.approx([0.6, 0.8])
    assert EmbeddingCache("y").find([text_key("a")]) == {}
    keys = {SentenceEncoder(long_text=how, batch_size=n)._cache.folder.name for how in ("cut", "chunk") for n in (1, 2)}
    assert len(keys) == 4


def test_token_vectors_in_memory_are_bounded():
    texts = [f"My Lords, amendment {i} is before the House." for i in range(12)]
    small, large = TokenEncoder(batch_size=4, keep_mb=0), TokenEncoder(batch_size=4)
    for one, other in zip(small.encode(texts), large.encode(texts), strict=True):
        np.testing.assert_allclose(one.vectors, other.vectors, atol=1e-6)
    assert not small._kept
    assert len(large._kept) == 12
    large.keep_mb = large._bytes / 2**20 - 0.001
    large.encode(texts[:1])
    assert len(large._kept) == 11
    assert texts[0] in large._kept, "the text used last stays"


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory):
    """A one-layer RoBERTa with a byte-level vocabulary that has words with a space before them."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["I thank the hon. Member for the question about the the cat"] * 9, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = dict(zip(["bos_token", "pad_token", "eos_token", "unk_token"], special, strict=True))
    folder = tmp_path_factory.mktemp("models") / "tiny-roberta"
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=10**30, **names).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    RobertaModel(RobertaConfig(vocab_size=300, max_position_embeddings=66, **size)).save_pretrained(folder)
    return folder


def test_byte_level_pieces_get_their_space_and_their_limit(tiny_roberta):
    encoder = TokenEncoder(str(tiny_roberta), layer=1)
    tokenizer = encoder._loaded[0]
    (tokens,) = encoder.encode(["the hon. Member, the cat!"])
    names = tokenizer.convert_ids_to_tokens(tokens.ids.tolist())
    assert names[0] == "<s>"
    assert names[1] == "Ġthe", "as every other `the`, although the text opens with it"
    assert tokens.special.tolist() == [True] + [False] * (len(names) - 2) + [True]
    kept = [name for name, keep in zip(names, tokens.kept, strict=True) if keep]
    assert all(name in ("<s>", "</s>") or name.startswith("Ġ") for name in kept)
    assert encoder.limit == 64
    assert encoder.truncated(["the " * 70, "the"]).tolist() == [True, False]
    assert len(encoder.encode(["the " * 70])[0].ids) == 64
    assert "+space" in encoder.signature


def test_vectors_that_are_no_numbers_are_an_error(tiny_roberta):
    import torch

    encoder = TokenEncoder(str(tiny_roberta), layer=1)
    with torch.no_grad():
        encoder._loaded[1].embeddings.word_embeddings.weight[:] = float("nan")
    with pytest.raises(ValueError, match="no numbers"):
        encoder.encode(["the cat"])


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="long_text 'half'"):
        SentenceEncoder(long_text="half")
    with pytest.raises(OSError, match=r"neither packaged.*hf download no-such-encoder"):
        load_encoder("no-such-encoder")


def test_a_batch_is_bounded_in_pieces_and_in_texts():
    lengths = [500, 3, 700, 3, 250, 3, 250, 1]
    assert batches_by_length(lengths) == [[7, 1, 3, 5], [4, 6], [0], [2]]
    assert batches_by_length(lengths, at_most=2) == [[7, 1], [3, 5], [4, 6], [0], [2]]
    assert batches_by_length([]) == []


@pytest.fixture
def two_threads():
    """Torch with two threads, as on a laptop."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_batches_are_read_in_order_each_by_one_thread_of_its_own(two_threads):
    """Two at a time: each waits for the other, which a single reader could not."""
    both = threading.Barrier(2, timeout=20)

    def read(batch: int) -> tuple[int, int]:
        both.wait()
        return batch * 10, torch.get_num_threads()

    assert read_batches(read, range(4)) == [(0, 1), (10, 1), (20, 1), (30, 1)]
    assert read_batches(read, []) == []
    assert torch.get_num_threads() == 2


def test_a_batch_that_fails_is_an_error_and_leaves_the_threads_as_they_were(two_threads):
    with pytest.raises(ZeroDivisionError):
        read_batches(lambda batch: 1 / batch, [1, 0, 2])
    assert torch.get_num_threads() == 2


def test_vectors_do_not_depend_on_the_number_of_threads(two_threads):
    texts = [f"My Lords, clause {i} stands. " * i for i in range(1, 40)]
    by_two = [tokens.vectors for tokens in TokenEncoder(layer=5).encode(texts)]
    sentence_by_two = SentenceEncoder(cache=False).encode(texts)
    torch.set_num_threads(1)
    for tokens, other in zip(TokenEncoder(layer=5).encode(texts), by_two, strict=True):
        np.testing.assert_array_equal(tokens.vectors, other)
    np.testing.assert_array_equal(SentenceEncoder(cache=False).encode(texts), sentence_by_two)
    np.testing.assert_array_equal(SentenceEncoder(cache=False).encode(texts[:1]), sentence_by_two[:1])
