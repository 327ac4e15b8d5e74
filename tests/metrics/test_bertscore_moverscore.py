"""BERTScore and MoverScore with the packaged MiniLM: equal to bert-score and to a linear programme, and their properties."""

import numpy as np
import pytest

from parliabench_utils.metrics.bertscore import bertscore, piece_idf, signature
from parliabench_utils.metrics.moverscore import earth_movers_distance, mass, moverscore
from parliabench_utils.models.embeddings import TokenEncoder
from parliabench_utils.models.encoders import encoder_folder

SPEECHES = [
    "My Lords, I beg to move that the Bill be now read a second time.",
    "I thank the hon. Member for his question about rural bus services, which matter to my constituents.",
    "Will the Minister meet me to discuss the closure of the magistrates court in my constituency?",
    "The cost was £1.5m, and nobody in this House voted for it.",
]
REFERENCES = [SPEECHES[1:3], SPEECHES[2:4], [SPEECHES[0]], SPEECHES[:3]]


@pytest.mark.parametrize("idf", [False, True])
def test_equals_the_library(token_encoder, idf):
    import bert_score

    folder = str(encoder_folder("all-MiniLM-L6-v2"))
    theirs = bert_score.score(SPEECHES, REFERENCES, model_type=folder, num_layers=5, idf=idf, batch_size=4)
    ours = bertscore(SPEECHES, REFERENCES, token_encoder, idf=idf)
    np.testing.assert_allclose(np.stack(ours), np.stack([values.numpy() for values in theirs]), atol=1e-5)


def test_bertscore_properties(token_encoder):
    p, r, f = bertscore(SPEECHES, [[text] for text in SPEECHES], token_encoder)
    np.testing.assert_allclose([p, r, f], 1, atol=1e-6)
    assert max(p.max(), r.max(), f.max()) <= 1
    pair = bertscore(SPEECHES[:1], [SPEECHES[1:2]], token_encoder)
    back = bertscore(SPEECHES[1:2], [SPEECHES[:1]], token_encoder)
    np.testing.assert_allclose([pair[0], pair[1], pair[2]], [back[1], back[0], back[2]], atol=1e-6)
    more = bertscore(SPEECHES[:1], [SPEECHES[1:4]], token_encoder)
    assert all(many >= one - 1e-6 for many, one in zip(more, pair, strict=True))


def test_order_duplicates_and_batch_size_change_nothing(token_encoder):
    whole = np.stack(bertscore(SPEECHES, REFERENCES, token_encoder))
    twice = np.stack(bertscore(SPEECHES[::-1] * 2, REFERENCES[::-1] * 2, TokenEncoder(layer=5, batch_size=1)))
    np.testing.assert_allclose(twice[:, :4][:, ::-1], whole, atol=1e-5)
    np.testing.assert_allclose(twice[:, 4:], twice[:, :4], atol=1e-6)


def test_odd_texts_are_nan_or_finite_never_an_error(token_encoder):
    odd = ["", None, " ", "x", "😀", "\x00\ud800", "мы", "word " * 5000]
    for values in bertscore(odd, [["Order."]] * len(odd), token_encoder):
        assert np.isnan(values[:3]).all()
        assert np.isfinite(values[3:]).all()
    assert np.isnan(bertscore(["x"], [[]], token_encoder)[2][0])
    assert np.isnan(bertscore(["x"], [["", " "]], token_encoder)[2][0])
    assert token_encoder.truncated(odd).tolist() == [False] * 7 + [True]


def test_identical_references_with_idf_fall_back_to_equal_weights(token_encoder):
    values = bertscore(["Order."], [["Order.", "Order."]], token_encoder, idf=True)
    assert np.isfinite(np.stack(values)).all()
    assert piece_idf(["a b", "a"], token_encoder)[token_encoder.pieces("a")[0]] == 0


def test_rescaling_needs_a_baseline(token_encoder):
    with pytest.raises(ValueError, match="no baseline for all-MiniLM-L6-v2 layer 5"):
        bertscore(["x"], [["y"]], token_encoder, rescale=True)
    assert "layer:5" in signature(token_encoder)


def test_a_layer_that_is_not_there():
    with pytest.raises(ValueError, match="layers 1 to 6"):
        TokenEncoder(layer=9).encode(["x"])


def test_emd_equals_a_linear_programme():
    from scipy.optimize import linprog
    from scipy.spatial.distance import cdist

    rng = np.random.default_rng(0)
    for n, m in ((1, 1), (2, 3), (5, 4)):
        a, b = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m))
        x, y = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
        sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
        expected = linprog(cdist(x, y).ravel(), A_eq=sums, b_eq=np.concatenate([a, b])).fun
        assert earth_movers_distance(a, x, b, y) == pytest.approx(expected, abs=1e-9)


def test_two_points_by_hand():
    x, y = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0]])
    assert earth_movers_distance(np.array([0.5, 0.5]), x, np.array([1.0]), y) == pytest.approx(0.5)
    assert earth_movers_distance(np.array([0.25, 0.75]), 2 * x, np.array([1.0]), y, "squared") == pytest.approx(3)


def test_moverscore_properties(token_encoder):
    same = moverscore(SPEECHES, [[text] for text in SPEECHES], token_encoder)
    np.testing.assert_allclose(same, 1, atol=1e-6)
    there = moverscore(SPEECHES[:1], [SPEECHES[1:2]], token_encoder, idf=False)
    back = moverscore(SPEECHES[1:2], [SPEECHES[:1]], token_encoder, idf=False)
    assert 0 < there[0] < 1
    np.testing.assert_allclose(there, back, atol=1e-9)
    both = [moverscore(SPEECHES, REFERENCES, token_encoder, over=over) for over in ("mean", "max")]
    assert (both[1] >= both[0]).all()
    fixed = moverscore(SPEECHES, REFERENCES, token_encoder, idf_texts=SPEECHES)
    alone = moverscore(SPEECHES[:1], REFERENCES[:1], token_encoder, idf_texts=SPEECHES)
    np.testing.assert_allclose(alone, fixed[:1], atol=1e-9)


def test_one_pair_with_idf_is_not_perfect(token_encoder):
    assert moverscore(SPEECHES[:1], [SPEECHES[1:2]], token_encoder)[0] < 0.9
    odd = moverscore(["", None, "!!!", "x"], [["Order."]] * 3 + [[]], token_encoder)
    assert np.isnan(odd).all()
    with pytest.raises(ValueError, match="over 'median'"):
        moverscore(["x"], [["y"]], token_encoder, over="median")


def test_pieces_that_do_not_count(token_encoder):
    tokens = token_encoder.encode(["Unparliamentarily, sir!"])[0]
    weights, vectors = mass(tokens, None)
    assert len(weights) == len(vectors) < len(tokens.ids)
    assert weights.sum() == pytest.approx(1)


@pytest.mark.hub
def test_roberta_gets_its_space(golden):
    encoder = TokenEncoder("roberta-large", 17)
    try:
        case = golden["bertscore_roberta_large"]["prefix_space_detector"]
        values = bertscore([case["candidate"]], [[case["reference"]]], encoder, rescale=True)
    except OSError:
        pytest.skip("roberta-large is not on this machine: python -m parliabench_utils fetch-models")
    np.testing.assert_allclose(np.concatenate(values), case["rescaled"], atol=1e-3)
