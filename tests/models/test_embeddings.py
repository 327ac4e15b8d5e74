"""Sentence embeddings: against sentence-transformers, long and odd texts, the cache and its many writers."""

import multiprocessing

import numpy as np
import pytest

from parliabench_utils.models.embedding_cache import EmbeddingCache, text_key
from parliabench_utils.models.embeddings import SentenceEncoder
from parliabench_utils.models.encoders import encoder_folder, load_encoder

LONG = "The Minister will know that the bus does not come on Sundays. " * 60


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path))
    return tmp_path


def test_equals_sentence_transformers_where_long_texts_are_cut():
    from sentence_transformers import SentenceTransformer

    texts = ["My Lords, I beg to move.", LONG, "Order."]
    theirs = SentenceTransformer(str(encoder_folder("all-MiniLM-L6-v2")), device="cpu").encode(
        texts, normalize_embeddings=True
    )
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
    cache = EmbeddingCache("x")
    cache.append({text_key("a"): np.array([0.6, 0.8]), text_key("b"): np.array([1.0, 0.0])})
    (file,) = (own_cache / "embeddings/x").glob("*.f32")
    file.write_bytes(file.read_bytes()[:-3])
    assert set(EmbeddingCache("x").read()) == {text_key("a")}
    file.write_bytes(b"\0" * 40 + file.read_bytes()[40:])
    assert EmbeddingCache("x").read() == {}


def _write(number: int) -> None:
    cache = EmbeddingCache("many")
    for i in range(50):
        cache.append({text_key(f"{number}-{i}"): np.eye(4)[i % 4]})
        cache.read()


def test_many_processes_write_at_once(own_cache):
    processes = [multiprocessing.get_context("fork").Process(target=_write, args=(n,)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(EmbeddingCache("many").read()) == 200


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="long_text 'half'"):
        SentenceEncoder(long_text="half")
    with pytest.raises(OSError, match="neither packaged"):
        load_encoder("no-such-encoder")
