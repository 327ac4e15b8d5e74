"""PSA, Party Align and the centroids: arithmetic by hand, what is left out, and what swapped labels do."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.corpus.dataset import debate_id, debate_of
from parliabench_utils.metrics.alignment import (
    COLUMNS,
    align,
    centroids,
    cosines,
    deranged,
    margin,
    nearest,
    party_alignment,
    political_spectrum_alignment,
    psa,
    read_centroids,
    write_centroids,
)


class FixedEncoder:
    """Vectors by look-up, in place of a sentence encoder."""

    signature = "encoder:fixed"

    def __init__(self, table):
        self.table = table

    def encode(self, texts):
        return np.stack([self.table[text] for text in texts]).astype(np.float32)


@pytest.fixture
def parliament():
    """Ninety speeches of three parties, each around a direction of its own, and their vectors."""
    rng = np.random.default_rng(0)
    parties = np.repeat(["Conservative", "Green Party", "Labour"], 30)
    orientation = {"Conservative": "Centre-right", "Green Party": "Left", "Labour": "Centre-left"}
    vectors = np.repeat(np.eye(5)[:3] * 2 + 1, 30, axis=0) + rng.normal(0, 0.5, (90, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    frame = pd.DataFrame(
        {
            "speech_id": [f"u{i:02d}" for i in range(90)],
            "speaker_id": [f"s{i % 12}" for i in range(90)],
            "sitting_id": [f"day{i % 4}" for i in range(90)],
            "Section": [f"debate{i % 5}" for i in range(90)],
            "Party": parties,
            "Political Orientation": [orientation[party] for party in parties],
            "House": "House of Commons",
            "Topic": np.array(["Energy", "Health", None])[np.arange(90) % 7 % 3],
            "Speech": [f"text {i}" for i in range(90)],
        }
    )
    return frame, vectors


def test_psa_golden(golden):
    scale = ["Far-left", "Centre-left", "Centre", "Centre-right", "Far-right"]
    from parliabench_utils.corpus.people import ORIENTATION_SCALE

    for case in golden["psa"]:
        pairs = [(a, b) for a in scale for b in ORIENTATION_SCALE]
        expected, closest = next((a, b) for a, b in pairs if abs(ORIENTATION_SCALE[a] - ORIENTATION_SCALE[b]) == case["distance"])
        speech = np.array([[case["similarity"], np.sqrt(1 - case["similarity"] ** 2)]])
        made = {closest: np.array([1.0, 0.0])}
        value = political_spectrum_alignment(speech, [expected], made)[0]
        assert value == pytest.approx(case["value"], abs=1e-9)


def test_similarity_is_that_of_the_nearest_orientation():
    made = {"Left": np.array([1.0, 0.0]), "Right": np.array([0.0, 1.0])}
    parts = psa(cosines(np.array([[0.6, 0.8]]), made), ["Left"])
    assert parts["nearest_orientation"][0] == "Right"
    assert parts["similarity"][0] == pytest.approx(0.8)
    assert parts["PSA"][0] == pytest.approx(0.8 * (1 - parts["distance"][0] / 12))


def test_undefined_and_unknown():
    made = {"Left": np.array([1.0, 0.0]), "Right": np.array([0.0, 1.0])}
    speech = np.array([[1.0, 0.0], [np.nan, np.nan]])
    assert np.isnan(political_spectrum_alignment(speech, ["Unknown", None], made)).all()
    with pytest.raises(ValueError, match="'centre-left' is not on the scale"):
        political_spectrum_alignment(speech, ["Unknown", "centre-left"], made)
    with pytest.raises(ValueError, match="2 speeches and 1 expected"):
        political_spectrum_alignment(speech, ["Unknown"], made)
    assert np.isnan(political_spectrum_alignment(speech, [None, None], made)).all()
    assert np.isnan(party_alignment(speech, [None, "Left"], made)).all()
    assert np.isnan(margin(cosines(speech, made), [None, "Left"])).all()
    assert nearest(cosines(speech, made)).tolist() == ["Left", None]
    with pytest.raises(ValueError, match="no centroid for 'Labuor'"):
        party_alignment(speech, ["Labuor", "Left"], made)
    with pytest.raises(ValueError, match="not on the scale"):
        political_spectrum_alignment(speech, ["Left", "Left"], {"Leftish": np.array([1.0, 0.0])})
    with pytest.raises(ValueError, match="no centroids"):
        party_alignment(speech, ["Left", "Left"], {})


def test_centroids_by_hand():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 3.0], [np.nan, np.nan]])
    made = centroids(rows, ["a", "a", "b", "b"])
    np.testing.assert_allclose(made["a"], [2**-0.5] * 2)
    assert party_alignment(rows[2:3], ["b"], made)[0] == pytest.approx(1), "one member: the centroid is the speech"
    assert party_alignment(rows[:1], ["b"], made)[0] == pytest.approx(0), "orthogonal"
    scaled = centroids(rows * 7, ["a", "a", "b", "b"])
    np.testing.assert_allclose(scaled["a"], made["a"])


def test_leaving_out_is_exact(parliament, tmp_path):
    frame, vectors = parliament
    encoder = FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True)))
    write_centroids(tmp_path, frame.sample(frac=1, random_state=1), encoder)
    store = read_centroids(tmp_path)
    assert store.encoder == "encoder:fixed"
    assert store.counts("Party") == {"Conservative": 30, "Green Party": 30, "Labour": 30}
    debate, speaker = debate_id(frame["sitting_id"][3], frame["Section"][3]), frame["speaker_id"][3]
    same = [debate_id(*pair) == debate for pair in zip(frame["sitting_id"], frame["Section"], strict=True)]
    kept = ~(np.array(same) | (frame["speaker_id"] == speaker).to_numpy())
    for label in ("Party", "Political Orientation"):
        expected = centroids(vectors[kept], frame[label][kept])
        found = store.centroids(label, without_debate=debate, without_speaker=speaker)
        for name, direction in expected.items():
            np.testing.assert_allclose(found[name], direction, atol=1e-6)


def test_leaving_out_is_exact_for_residuals_too(parliament, tmp_path):
    frame, vectors = parliament
    encoder = FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True)))
    store = write_centroids(tmp_path, frame, encoder)
    debate, speaker = debate_id(frame["sitting_id"][3], frame["Section"][3]), frame["speaker_id"][3]
    same = [debate_id(*pair) == debate for pair in zip(frame["sitting_id"], frame["Section"], strict=True)]
    kept = ~(np.array(same) | (frame["speaker_id"] == speaker).to_numpy())
    found = store.residuals(without_debate=debate, without_speaker=speaker)
    topics = frame["Topic"].fillna("Unknown").to_numpy()
    means = {topic: vectors[kept & (topics == topic)].mean(axis=0) for topic in set(topics)}
    left = vectors - np.stack([means[topic] for topic in topics])
    for party, direction in found.centroids.items():
        own = left[kept & (frame["Party"] == party).to_numpy()].mean(axis=0)
        np.testing.assert_allclose(direction, own / np.linalg.norm(own), atol=1e-5)
    row = found.of(vectors[[3]], ["House of Commons/" + topics[3]])
    np.testing.assert_allclose(row[0], left[3] / np.linalg.norm(left[3]), atol=1e-5)
    aligned = align(frame.iloc[[3]], vectors[[3]], store)["Party Align residual"].iloc[0]
    assert aligned == pytest.approx(row[0] @ found.centroids[frame["Party"][3]])


def test_residual_means_back_off_from_topic_to_house_to_everything(parliament, tmp_path):
    frame, vectors = parliament
    frame = frame.assign(House=["House of Lords"] * 30 + ["House of Commons"] * 60)
    left = write_centroids(tmp_path, frame, FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True)))).residuals()
    np.testing.assert_allclose(left.mean("House of Lords/Fisheries"), vectors[:30].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(left.mean("Senate/Fisheries"), vectors.mean(axis=0), atol=1e-6)
    assert "Conservative" not in left.centroids, "alone in its House: party and House cannot be told apart"
    assert np.isnan(align(frame.head(3), vectors[:3], read_centroids(tmp_path), "none")["Party Align residual"]).all()


def test_files_of_an_older_make_say_what_to_run(parliament, tmp_path):
    np.savez(tmp_path / "centroids.npz", sums=np.eye(2), encoder=np.array("x"))
    with pytest.raises(ValueError, match="run 02_dataset again"):
        read_centroids(tmp_path)
    with pytest.raises(FileNotFoundError, match="run 02_dataset first"):
        read_centroids(tmp_path / "nowhere")


def test_centroid_files_do_not_depend_on_the_order_of_rows(parliament, tmp_path):
    frame, vectors = parliament
    encoder = FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True)))
    for name, rows in (("one", frame), ("two", frame[::-1])):
        write_centroids(tmp_path / name, rows, encoder)
    one, two = (read_centroids(tmp_path / name) for name in ("one", "two"))
    pd.testing.assert_frame_equal(one.cells, two.cells)
    np.testing.assert_array_equal(one.sums, two.sums)


def swap(made, first, second):
    return {**made, first: made[second], second: made[first]}


def test_swapped_labels_lower_party_align_of_those_two_parties_and_no_other(parliament, tmp_path):
    """Issue 1, done when: score the human row against centroids whose labels for two parties were swapped."""
    frame, vectors = parliament
    made = centroids(vectors[::2], frame["Party"][::2])
    human, labels = vectors[1::2], frame["Party"][1::2].to_numpy()
    before = party_alignment(human, labels, made)
    after = party_alignment(human, labels, swap(made, "Labour", "Conservative"))
    change = pd.Series(after - before).groupby(labels).mean()
    assert change["Labour"] < -0.05
    assert change["Conservative"] < -0.05
    assert change["Green Party"] == 0


def test_align_gives_all_columns(parliament, tmp_path):
    frame, vectors = parliament
    encoder = FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True)))
    store = write_centroids(tmp_path, frame, encoder)
    plain, left_out = align(frame, vectors, store, "none"), align(frame, vectors, store)
    assert list(plain.columns) == list(left_out.columns)
    assert plain.index.equals(frame.index)
    assert left_out["Party Align"].mean() < plain["Party Align"].mean(), "nobody helps to define himself any more"
    assert (plain["margin"] > 0).mean() > 0.8
    assert plain["Party Align deranged"].mean() < plain["Party Align"].mean()


def test_whoever_answers_a_prompt_meets_the_same_centroids(parliament, tmp_path):
    """The member, and a model that says the same to the same prompt, get the same values: all columns, and by hand."""
    frame, vectors = parliament
    store = write_centroids(tmp_path, frame, FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True))))
    both = pd.concat([frame.assign(model="human"), frame.sample(frac=1, random_state=2).assign(model="m")])
    scored = align(both, vectors[both.index], store).reset_index(drop=True)
    scored[["speech_id", "model"]] = both[["speech_id", "model"]].to_numpy()
    human, model = (scored[scored["model"] == name].set_index("speech_id").sort_index() for name in ("human", "m"))
    pd.testing.assert_frame_equal(human.drop(columns="model"), model.drop(columns="model"))
    for i in (3, 40, 77):
        same = (debate_of(frame) == debate_of(frame)[i]) | (frame["speaker_id"] == frame["speaker_id"][i])
        made, row = centroids(vectors[~same], frame["Party"][~same]), human.iloc[i]
        assert row["Party Align"] == pytest.approx(party_alignment(vectors[[i]], [frame["Party"][i]], made)[0])
        assert row["margin"] == pytest.approx(margin(cosines(vectors[[i]], made), [frame["Party"][i]])[0])
        following = sorted(made)[(sorted(made).index(frame["Party"][i]) + 1) % 3]
        assert row["Party Align deranged"] == pytest.approx(party_alignment(vectors[[i]], [following], made)[0])
        orientations = centroids(vectors[~same], frame["Political Orientation"][~same])
        by_hand = psa(cosines(vectors[[i]], orientations), [frame["Political Orientation"][i]])["PSA"][0]
        assert row["PSA"] == pytest.approx(by_hand)


def test_a_party_of_one_member_has_no_value_for_him_nor_for_a_model(parliament, tmp_path):
    frame, vectors = parliament
    lonely = frame.head(1).assign(Party="Alliance", speaker_id="s99", sitting_id="day9")
    lonely["Political Orientation"] = "Centre"
    encoder = FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True)))
    store = write_centroids(tmp_path, pd.concat([frame.iloc[1:], lonely]), encoder)
    both = pd.concat([lonely, lonely])
    nothing = align(both, vectors[[0, 50]], store)
    assert nothing[[*COLUMNS[2:6], *COLUMNS[7:]]].isna().all(axis=None), "he alone was its centroid"
    assert nothing["similarity"].notna().all() and (nothing["nearest_party"] != "Alliance").all()
    assert align(both, vectors[[0, 50]], store, "none")[["PSA", "Party Align"]].notna().all(axis=None)


def test_what_cannot_be_left_out_or_found_is_said(parliament, tmp_path):
    frame, vectors = parliament
    store = write_centroids(tmp_path, frame, FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True))))
    with pytest.raises(ValueError, match="90 speeches answer prompts without speaker_id"):
        align(frame.assign(speaker_id=None), vectors, store)
    with pytest.raises(ValueError, match="leave_out is one of prompt, none"):
        align(frame, vectors, store, "human")
    with pytest.raises(ValueError, match="no centroid for 'Labuor'"):
        align(frame.assign(Party="Labuor"), vectors, store)


def test_debates_without_a_heading_are_left_out_too(parliament, tmp_path):
    """None in one table is NaN in another: both are the untitled part of that sitting."""
    frame, vectors = parliament
    frame = frame.assign(Section=[None if i % 3 else "debate" for i in range(90)], speaker_id=[f"s{i}" for i in range(90)])
    store = write_centroids(tmp_path, frame, FixedEncoder(dict(zip(frame["Speech"], vectors, strict=True))))
    same = (frame["sitting_id"] == frame["sitting_id"][4]) & frame["Section"].isna()
    made = centroids(vectors[~same], frame["Party"][~same])
    expected = party_alignment(vectors[[4]], [frame["Party"][4]], made)[0]
    for empty in (None, np.nan):
        asked = frame.iloc[[4]].assign(Section=pd.Series([empty], index=[4], dtype=object))
        assert align(asked, vectors[[4]], store)["Party Align"].iloc[0] == pytest.approx(expected)


def test_nobody_meets_his_own_party_whenderanged():
    table = pd.DataFrame([[0.1, 0.2, 0.3, 0.4]] * 4 + [[0.1, np.nan, 0.3, 0.4]] * 2, columns=list("abcd"))
    found = deranged(table, [*"abcd", "a", "b"])
    np.testing.assert_array_equal(found, [0.2, 0.3, 0.4, 0.1, 0.3, np.nan])
    assert np.isnan(deranged(table[["a"]], ["a"] * 6)).all(), "there is nobody else"


def test_swapped_labels_on_members_own_words():
    """The same with real vectors of the embedded corpus: centroids from half of the debates, speeches from the others."""
    from parliabench_utils.corpus import read_corpus
    from parliabench_utils.models.embeddings import SentenceEncoder
    from parliabench_utils.run.project import corpus_folder

    speeches = read_corpus(corpus_folder("mini", "data"))
    speeches = speeches[(speeches["kind"] == "speech") & speeches["n_words"].between(35, 120)].sort_values("speech_id")
    chosen = speeches[speeches["party"].isin(["Crossbench", "Labour", "Scottish National Party"])]
    chosen = chosen.groupby("party").head(30)
    debates = pd.factorize(chosen["sitting_id"] + chosen["section"], sort=True)[0]
    vectors = SentenceEncoder(cache=False).encode(chosen["text"].tolist())
    train, labels = debates % 2 == 0, chosen["party"].to_numpy(dtype=object)
    made = centroids(vectors[train], labels[train])
    before = party_alignment(vectors[~train], labels[~train], made)
    after = party_alignment(vectors[~train], labels[~train], swap(made, "Crossbench", "Scottish National Party"))
    change = pd.Series(after - before).groupby(labels[~train]).mean()
    assert change["Crossbench"] < 0
    assert change["Scottish National Party"] < 0
    assert change["Labour"] == 0
