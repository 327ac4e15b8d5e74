"""BERTScore and MoverScore with the packaged MiniLM: equal to bert-score and to a linear programme, and their properties."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parliabench_utils.metrics.bertscore import bertscore, piece_idf, signature
from parliabench_utils.metrics.moverscore import earth_movers_distance, mass, moverscore, similarity
from parliabench_utils.metrics.moverscore import signature as mover_signature
from parliabench_utils.models.embeddings import TokenEncoder, encoder_folder

SPEECHES = [
    "My Lords, I beg to move that the Bill be now read a second time.",
    "I thank the hon. Member for his question about rural bus services, which matter to my constituents.",
    "Will the Minister meet me to discuss the closure of the magistrates court in my constituency?",
    "The cost was £1.5m, and nobody in this House voted for it.",
]
REFERENCES = [SPEECHES[1:3], SPEECHES[2:4], [SPEECHES[0]], SPEECHES[:3]]


WORDS = [
    "my",
    "lords",
    "i",
    "beg",
    "to",
    "move",
    "the",
    "bill",
    ",",
    "minister",
    "!",
    "hon",
    ".",
    "member",
    "rail",
    "fish",
]
SPOKEN = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
LISTS = st.lists(SPOKEN, min_size=1, max_size=3)


@pytest.mark.parametrize("idf", [False, True])
def test_equals_the_library(token_encoder, idf):
    import bert_score

    folder = str(encoder_folder("all-MiniLM-L6-v2"))
    theirs = bert_score.score(SPEECHES, REFERENCES, model_type=folder, num_layers=5, idf=idf, batch_size=4)
    ours = bertscore(SPEECHES, REFERENCES, token_encoder, idf=idf)
    np.testing.assert_allclose(np.stack(ours), np.stack([values.numpy() for values in theirs]), atol=1e-5)


def test_equals_the_library_on_long_and_single_texts(token_encoder):
    import bert_score

    long = [" ".join(SPEECHES) * 12, "Order."]
    folder = str(encoder_folder("all-MiniLM-L6-v2"))
    theirs = bert_score.score(long, SPEECHES[:2], model_type=folder, num_layers=5, batch_size=2)
    ours = bertscore(long, [[text] for text in SPEECHES[:2]], token_encoder)
    np.testing.assert_allclose(np.stack(ours), np.stack([values.numpy() for values in theirs]), atol=1e-5)


def test_identical_texts_score_one(token_encoder):
    scores = np.stack(bertscore(SPEECHES, [[text] for text in SPEECHES], token_encoder))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, 1, atol=1e-6)
    assert scores.max() <= 1
    np.testing.assert_allclose(moverscore(SPEECHES, [[text] for text in SPEECHES], token_encoder), 1, atol=1e-6)


@given(SPOKEN, SPOKEN, LISTS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_symmetry_bounds_and_adding_a_reference(token_encoder, text, other, more):
    pair = np.stack(bertscore([text], [[other]], token_encoder))
    back = np.stack(bertscore([other], [[text]], token_encoder))
    np.testing.assert_allclose(pair, back[[1, 0, 2]], atol=1e-6)
    many = np.stack(bertscore([text], [[other, *more]], token_encoder))
    assert (many >= pair - 1e-6).all()
    assert (np.abs(many) <= 1).all()
    there, back = (moverscore([a], [[b]], token_encoder, idf=False)[0] for a, b in ((text, other), (other, text)))
    np.testing.assert_allclose(there, back, atol=1e-9)
    best = moverscore([text], [[other, *more]], token_encoder, idf=False, over="max")[0]
    assert np.isnan(there) or 0 < there <= best + 1e-9 <= 1 + 1e-9


def test_order_duplicates_and_batch_size_change_nothing(token_encoder):
    whole = np.stack(bertscore(SPEECHES, REFERENCES, token_encoder))
    small = TokenEncoder(layer=5, batch_size=1, keep_mb=0)
    movers = moverscore(SPEECHES, REFERENCES, token_encoder, idf=False)
    turned = moverscore(SPEECHES[::-1] * 2, REFERENCES[::-1] * 2, small, idf=False, n_threads=1)
    np.testing.assert_allclose(turned, np.tile(movers[::-1], 2), atol=1e-6)
    twice = np.stack(bertscore(SPEECHES[::-1] * 2, REFERENCES[::-1] * 2, small))
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
    values = moverscore(odd, [["Order."]] * len(odd), token_encoder)
    assert values.dtype == np.float64
    assert np.isnan(values[:3]).all()
    assert np.isfinite(values[[3, 6, 7]]).all()


def test_fewer_references_than_others_have(token_encoder):
    values = bertscore(["Order."] * 3, [["Order.", "No."], ["No."], []], token_encoder)[2]
    assert np.isnan(values).tolist() == [False, False, True]
    assert values[0] > values[1]


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


def test_two_points_by_hand(golden):
    for case in golden["earth_movers_distance"]:
        (a, b), (x, y) = (map(np.array, case["weights"]), (np.array(points, dtype=float) for points in case["points"]))
        assert earth_movers_distance(a, x, b, y, case["cost"]) == pytest.approx(case["value"], abs=1e-9)


def test_equals_the_padded_problem_of_version_2(token_encoder):
    """The reference code transports over all pieces of both texts, those without mass included, among themselves too."""
    import ot
    from scipy.spatial.distance import cdist

    idf = piece_idf(SPEECHES, token_encoder)
    for text, other in itertools.combinations(SPEECHES, 2):
        tokens = token_encoder.encode([text, other])
        both = np.concatenate([side.vectors for side in tokens])
        weights = [np.array([idf[int(i)] for i in side.ids]) * side.kept for side in tokens]
        a = np.concatenate([weights[0] / weights[0].sum(), np.zeros(len(tokens[1].ids))])
        b = np.concatenate([np.zeros(len(tokens[0].ids)), weights[1] / weights[1].sum()])
        expected = 1 / (1 + ot.emd2(a, b, cdist(both, both)))
        ours = similarity(*(mass(side, idf) for side in tokens))
        assert ours == pytest.approx(expected, abs=1e-6)


def test_aggregation_and_fixed_idf(token_encoder):
    both = [moverscore(SPEECHES, REFERENCES, token_encoder, over=over) for over in ("mean", "max")]
    assert (both[1] >= both[0]).all()
    fixed = moverscore(SPEECHES, REFERENCES, token_encoder, idf_texts=SPEECHES)
    alone = moverscore(SPEECHES[:1], REFERENCES[:1], token_encoder, idf_texts=SPEECHES)
    np.testing.assert_allclose(alone, fixed[:1], atol=1e-9)
    squared = moverscore(SPEECHES, REFERENCES, token_encoder, cost="squared")
    assert (squared < both[0]).all()
    assert "cost:squared|1-emd" in mover_signature(token_encoder, cost="squared")


def test_a_solver_that_gives_up_is_an_error_not_a_perfect_score(monkeypatch):
    import ot

    monkeypatch.setattr(ot, "emd2", lambda *_, **__: (0.0, {"warning": "Problem infeasible"}))
    with pytest.raises(RuntimeError, match=r"optimal transport of .2, 1. pieces failed: Problem infeasible"):
        earth_movers_distance(np.array([0.5, 0.5]), np.eye(2), np.array([1.0]), np.eye(2)[:1])


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
def test_roberta_large_published_values(golden):
    encoder, case = TokenEncoder("roberta-large", 17), golden["bertscore_roberta_large"]
    texts, references = zip(*((text, [reference]) for text, reference in case["pairs"]), strict=True)
    try:
        plain = bertscore(texts, references, encoder)
    except OSError:
        pytest.skip("roberta-large is not on this machine: hf download roberta-large")
    np.testing.assert_allclose(plain, case["plain"], atol=1e-4)
    np.testing.assert_allclose(bertscore(texts, references, encoder, idf=True)[2], case["idf_f1"], atol=1e-4)
    np.testing.assert_allclose(bertscore(texts, references, encoder, rescale=True)[2], case["rescaled_f1"], atol=1e-3)
    case = case["prefix_space_detector"]
    values = bertscore([case["candidate"]], [[case["reference"]]], encoder, rescale=True)
    np.testing.assert_allclose(np.concatenate(values), case["rescaled"], atol=1e-3)


@pytest.mark.hub
def test_distilbert_properties():
    encoder = TokenEncoder("distilbert-base-uncased")
    try:
        same = moverscore(SPEECHES, [[text] for text in SPEECHES], encoder)
    except OSError:
        pytest.skip("distilbert-base-uncased is not on this machine: hf download distilbert-base-uncased")
    np.testing.assert_allclose(same, 1, atol=1e-6)
    there, back = (moverscore([a], [[b]], encoder, idf=False) for a, b in (SPEECHES[:2], SPEECHES[1::-1]))
    np.testing.assert_allclose(there, back, atol=1e-9)
    assert 0 < there[0] < 0.9


@pytest.mark.parametrize("nothing", ["\u200b", "\x00", "\ufeff"])
def test_a_text_without_pieces_counts_as_none(token_encoder, nothing):
    speech, reference = "My Lords, I beg to move.", "My Lords, I rise to move the Bill."
    with_it = bertscore([speech, nothing], [[reference, nothing], [reference]], token_encoder)
    alone = bertscore([speech], [[reference]], token_encoder)
    np.testing.assert_array_equal([row[0] for row in with_it], [row[0] for row in alone])
    assert np.isnan([row[1] for row in with_it]).all()
    assert np.isnan(bertscore([speech], [[nothing]], token_encoder)).all()


@pytest.mark.parametrize("score", [bertscore, moverscore])
def test_references_are_a_list_for_each_speech(token_encoder, score):
    with pytest.raises(ValueError, match="one string"):
        score(["One.", "Two."], ["a reference", "another"], token_encoder)
    with pytest.raises(ValueError, match="2 speeches and 1 lists"):
        score(["One.", "Two."], [["a reference"]], token_encoder)
