"""Notebook 06's test of its own metric: what is kept apart, what the measures are, what the controls hide."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from parliabench_utils.metrics.alignment_controls import Condition, conditions, first_words, guessing, masker
from parliabench_utils.metrics.alignment_evidence import evidence_figure, findings, overview
from parliabench_utils.metrics.alignment_measures import (
    Scored,
    anova,
    auc,
    balanced_accuracy,
    cluster_weights,
    measures,
)
from parliabench_utils.metrics.alignment_validation import (
    COLUMNS,
    SPLITS,
    folds_of,
    guess_rows,
    held_out_cosines,
    score,
    validate,
)
from tests.conftest import ROOT

CASES = json.loads((ROOT / "tests/golden/masks.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def house():
    """Speeches of three parties that differ, by members with habits of their own; and their vectors."""
    rng = np.random.default_rng(0)
    n = 240
    party = np.arange(n) % 3
    speaker = np.array([f"s{party[i]}{i // 3 % 8}" for i in range(n)])
    habit = {name: rng.normal(0, 0.4, 8) for name in sorted(set(speaker))}
    vectors = 1 + np.eye(8)[party] * 1.5 + rng.normal(0, 0.5, (n, 8)) + np.stack([habit[name] for name in speaker])
    human = pd.DataFrame(
        {
            "speech_id": [f"u{i:03d}" for i in range(n)],
            "speaker_id": speaker,
            "debate": [f"d{i // 3 % 20}" for i in range(n)],
            "Party": np.array(["Con", "Green Party", "Labour"])[party],
            "Topic": np.array(["Energy", "Health"])[rng.integers(0, 2, n)],
            "House": "House of Commons",
            "Speech": [f"text {i}" for i in range(n)],
            "is_government": [name in ("s00", "s01") for name in speaker],
        }
    )
    return human, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def plain(vectors):
    n = len(vectors)
    return Condition("all speeches", vectors, np.ones(n, dtype=bool), np.zeros(n, dtype=int))


@pytest.mark.parametrize(("text", "masked"), CASES["cases"])
def test_masks(text, masked):
    hide = masker(CASES["parties"])
    assert hide(text) == masked
    assert hide(masked) == masked, "nothing is left to hide"


def test_a_party_may_have_a_name_with_signs():
    assert masker(["Left (Green) + Co."])("The Left (Green) + Co. party spoke.").endswith("spoke.")


def test_first_words():
    assert first_words("one two  three", 2) == "one two"
    assert len(first_words("word " * 400).split()) == 150


@pytest.mark.parametrize("apart", [column for column in SPLITS.values() if column])
def test_nobody_is_on_both_sides(house, apart):
    human, _ = house
    fold = folds_of(human, apart, 5, seed=1)
    assert pd.Series(fold).groupby(human[apart].to_numpy()).nunique().max() == 1
    assert set(fold) == set(range(5))
    shuffled = human.sample(frac=1, random_state=3)
    again = pd.Series(folds_of(shuffled, apart, 5, seed=1), index=shuffled.index).sort_index()
    np.testing.assert_array_equal(again, fold, err_msg="the order of rows decides nothing")


def test_held_out_cosines_are_those_of_the_other_folds(house):
    human, vectors = house
    codes = pd.factorize(human["Party"], sort=True)[0]
    fold = folds_of(human, "speaker_id", 4, seed=2)
    table = held_out_cosines(vectors, codes, fold, 3)
    others = vectors[(fold != fold[7]) & (codes == 1)].sum(axis=0)
    assert table[7, 1] == pytest.approx(vectors[7] @ others / np.linalg.norm(others), abs=1e-6)
    alone = held_out_cosines(vectors[:4], np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1]), 3)
    assert np.isnan(alone[2:, 0]).tolist() == [False, False]
    assert np.isnan(alone[:2, 0]).all(), "its only speech is in the fold: no centroid"
    assert np.isnan(alone[:, 2]).all(), "a party of nobody"


def test_measures_equal_the_libraries(house):
    human, vectors = house
    codes = pd.factorize(human["Party"], sort=True)[0]
    scored = score(plain(vectors), codes, codes, folds_of(human, None, 5, seed=0), 3)
    values = {statistic: value for (_, statistic), (value, _, _) in measures(scored).items()}
    found = scored.table.argmax(axis=1)
    assert values["balanced accuracy"] == pytest.approx(balanced_accuracy_score(scored.codes, found))
    assert balanced_accuracy(scored) == pytest.approx(values["balanced accuracy"])
    aucs = [roc_auc_score(scored.codes == k, scored.table[:, k]) for k in range(3)]
    assert values["own against others, mean of parties"] == pytest.approx(np.mean(aucs))
    assert values["chance"] == pytest.approx(1 / 3)
    f, eta = anova(scored.own, scored.codes)
    assert f == pytest.approx(stats.f_oneway(*(scored.own[scored.codes == k] for k in range(3))).statistic)
    assert eta == pytest.approx(values["eta squared, true centroids"])


def test_auc_with_ties_strata_and_weights():
    scores, own = np.array([0.1, 0.5, 0.5, 0.9, 0.2, 0.8]), np.array([0, 1, 0, 1, 1, 0], dtype=bool)
    whole = auc(scores, own, np.zeros(6, dtype=int), np.ones((1, 6)))
    assert whole[0] == pytest.approx(roc_auc_score(own, scores))
    weights = np.array([[2, 1, 0, 3, 1, 1]])
    assert auc(scores, own, np.zeros(6, dtype=int), weights)[0] == pytest.approx(
        roc_auc_score(own, scores, sample_weight=weights[0])
    )
    strata = np.array([0, 0, 0, 0, 1, 1])
    assert auc(scores, own, strata, np.ones((1, 6)))[0] == pytest.approx((3.5 + 0) / 5)
    assert np.isnan(auc(scores, np.ones(6, dtype=bool), strata, np.ones((1, 6)))[0])


def test_chance_counts_only_parties_that_speak_in_the_stratum():
    table = np.array([[0.9, 0.1, 0.2], [0.1, 0.9, 0.2], [0.1, 0.2, 0.9], [0.9, 0.2, 0.1]])
    codes, strata = np.array([0, 1, 0, 1]), np.zeros(4, dtype=int)
    scored = Scored(table, codes, strata, np.arange(4), np.arange(4))
    assert measures(scored)["nearest party", "chance"][0] == pytest.approx(0.75 / 2), "one speech is nearest to party 2"


def test_anova_of_strata_sees_only_what_is_within_them():
    groups, strata = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    within = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0])
    apart = within + strata * 100
    assert anova(apart, groups, strata)[1] == pytest.approx(anova(within, groups)[1])
    assert anova(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])) == (pytest.approx(8.0), pytest.approx(0.8))
    assert np.isnan(anova(np.array([1.0, 2.0]), np.array([0, 1]))).all()


def test_bootstrap_draws_whole_members_within_their_party():
    rng = np.random.default_rng(0)
    groups, members = np.array([0, 0, 0, 1, 1, 1]), np.array([5, 5, 7, 8, 9, 9])
    weights = cluster_weights(groups, members, 200, rng)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 4] == weights[:, 5]).all()
    assert (weights[:, 0] + weights[:, 2] == 2).all(), "as many members of each party in every sample"
    assert weights[:, 0].mean() == pytest.approx(1, abs=0.15)


def test_real_parties_are_seen_and_shuffled_ones_are_not(house):
    human, vectors = house
    table = validate([plain(vectors)], human, folds=4, shuffles=20, draws=100, seed=0)
    assert list(table.columns) == COLUMNS
    values = table.set_index(["split", "statistic"])
    for split in SPLITS:
        own = values.loc[(split, "balanced accuracy")]
        assert own["low"] <= own["value"] <= own["high"]
        assert own["low"] > 0.6
        assert values.loc[(split, "balanced accuracy, labels shuffled over speeches")]["high"] < 0.5
        assert values.loc[(split, "own against others, mean of parties")]["value"] > 0.8
    people = values["value"].xs("balanced accuracy, labels shuffled over members", level="statistic")
    assert people["random"] > people["by speaker"] + 0.05, "invented parties of real members are found by their members"
    pd.testing.assert_frame_equal(table, validate([plain(vectors)], human, folds=4, shuffles=20, draws=100, seed=0))


def test_deranged_centroids_of_one_cloud_give_the_same_f():
    """No politics at all, only parties of other sizes: true and wrong centroids give F alike, and accuracy is chance."""
    rng = np.random.default_rng(1)
    sizes = {"a": 12, "b": 80, "c": 500}
    human = pd.DataFrame({"Party": np.repeat(list(sizes), list(sizes.values()))})
    human["speaker_id"] = human["debate"] = [f"s{i}" for i in range(len(human))]
    human["is_government"] = False
    vectors = (0.3 + rng.normal(0, 1, (len(human), 32))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = validate([plain(vectors)], human, folds=4, shuffles=20, draws=100, seed=0).set_index(["split", "statistic"])
    gap = table.loc[("by speaker", "eta squared, true less deranged")]
    assert gap["low"] < 0.05
    for statistic in ("F, true centroids", "F, labels shuffled over members"):
        assert table.loc[("by speaker", statistic)]["value"] > 4.6, "parties of nothing differ with p < 0.01"
    assert table.loc[("by speaker", "balanced accuracy")]["low"] < 1 / 3


def test_residual_takes_topic_away():
    """Parties that speak of their own topics only cannot be told apart once topics are held fixed."""
    rng = np.random.default_rng(2)
    topic = rng.integers(0, 3, 300)
    party = np.where(rng.random(300) < 0.8, topic, rng.integers(0, 3, 300))
    vectors = (1 + 2 * np.eye(12)[topic] + rng.normal(0, 0.5, (300, 12))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    fold = np.arange(300) % 5
    contexts = [f"House/{t}" for t in topic]
    by_topic = score(plain(vectors), party, np.arange(300), fold, 3)
    everyone = np.ones(300, dtype=bool)
    held = Condition("residual", vectors, everyone, np.zeros(300, dtype=int), contexts)
    within = Condition("within topic", vectors, everyone, topic)
    assert balanced_accuracy(by_topic) > 0.7
    assert balanced_accuracy(score(held, party, np.arange(300), fold, 3)) < 0.45
    assert balanced_accuracy(score(within, party, np.arange(300), fold, 3)) < 0.45


def test_conditions_and_what_is_said_about_them(house):
    human, vectors = house
    rows = dict(zip(human["Speech"], vectors, strict=True))
    controls = conditions(human, lambda texts: np.stack([rows[text] for text in texts]))
    assert controls[0].name == "all speeches"
    assert controls[3].rows.sum() == human["is_government"].sum()
    table = validate(controls, human, folds=4, shuffles=5, draws=100, seed=0)
    government = table[table["condition"] == "within government"]
    assert government["value"].isna().all(), "one party governs: nothing to compare"
    assert set(government["n"]) == {0}
    shown = overview(table)
    assert shown["condition"].tolist() == [control.name for control in controls for _ in SPLITS]
    assert shown["split"].tolist() == list(SPLITS) * len(controls)
    assert (shown.loc[shown["condition"] == "within government", "balanced accuracy"] == "—").all()
    said = " ".join(findings(table))
    assert "within government" in said
    accuracy = table.set_index(["condition", "split", "statistic"])["value"][
        "all speeches", "by debate", "balanced accuracy"
    ]
    assert f"{accuracy:.2f} by debate" in said
    assert evidence_figure(table).axes
    assert not table.duplicated(["condition", "split", "check", "statistic"]).any()


def test_one_party_is_reported_not_compared(house):
    human, vectors = house
    alone = human["Party"] == "Con"
    table = validate([plain(vectors[alone])], human[alone].reset_index(drop=True), 4, shuffles=2, draws=100, seed=0)
    assert table["value"].isna().all()
    assert "nothing was tested" in findings(table)[0]


def test_office_is_heard_where_it_sounds(house):
    human, vectors = house
    office = "AUC, holders of office against others of their party"
    silent = validate([plain(vectors)], human.assign(is_government=False), 4, shuffles=2, draws=100, seed=0)
    assert silent.loc[silent["statistic"] == office, "value"].isna().all()
    party = (human["Party"] == "Con").to_numpy()
    nearest = vectors[party] @ vectors[party].mean(axis=0)
    loud = human.assign(is_government=False)
    loud.loc[party, "is_government"] = nearest > np.median(nearest)
    table = validate([plain(vectors)], loud, 4, shuffles=2, draws=100, seed=0)
    assert table.loc[table["statistic"] == office, "value"].min() > 0.8


def test_empty_speeches_do_not_spoil_the_others(house):
    human, vectors = house
    gaps = vectors.copy()
    gaps[[0, 5]] = np.nan
    codes, fold = pd.factorize(human["Party"], sort=True)[0], folds_of(human, None, 5, seed=0)
    assert len(score(plain(gaps), codes, codes, fold, 3).codes) == len(human) - 2


def test_guessers_are_exact():
    counts = {"Centre-left": 30, "Centre-right": 50, "Right": 20}
    place = {"Centre-left": -2, "Centre-right": 2, "Right": 4}
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE

    assert {name: ORIENTATION_SCALE[name] for name in place} == place
    table = guessing([0.6, 0.8, 0.5], ["Centre-left", "Centre-right", "Unknown"], counts)
    assert table["always the commonest orientation"][0] == pytest.approx(0.6 * (1 - 4 / 12))
    assert table["always the commonest orientation"][1] == pytest.approx(0.8)
    by_hand = 0.3 * 1 + 0.5 * (1 - 4 / 12) + 0.2 * (1 - 6 / 12)
    assert table["drawn by corpus share"][0] == pytest.approx(0.6 * by_hand)
    assert table.loc[2].isna().all()
    drawn = np.random.default_rng(0).choice(list(place.values()), p=[0.3, 0.5, 0.2], size=200_000)
    assert table["drawn by corpus share"][1] == pytest.approx(0.8 * np.mean(1 - np.abs(2 - drawn) / 12), abs=1e-3)


def test_a_model_that_reads_is_above_the_guessers_and_one_that_does_not_is_not():
    expected = ["Centre-left"] * 20 + ["Centre-right"] * 30
    rows = [
        {"model": "reader", "similarity": 0.5, "PSA": 0.5, "Political Orientation": label} for label in expected
    ] + [
        {
            "model": "parrot",
            "similarity": 0.5,
            "PSA": 0.5 * (1 - 4 / 12 * (label == "Centre-left")),
            "Political Orientation": label,
        }
        for label in expected
    ]
    speeches = pd.DataFrame(rows).assign(type="baseline", prompt_id=[f"p{i}" for i in range(50)] * 2)
    table = guess_rows(speeches, {"Centre-left": 4, "Centre-right": 6}, draws=200, seed=0).set_index(
        ["condition", "statistic"]
    )
    above = table.xs("PSA less the better guesser's", level="statistic")
    assert above.loc["reader baseline", "low"] > 0
    assert above.loc["parrot baseline", ["value", "low", "high"]].tolist() == pytest.approx([0, 0, 0])


def test_one_party_is_no_comparison():
    vectors = np.eye(4, dtype=np.float32)
    scored = score(plain(vectors), np.zeros(4, dtype=int), np.arange(4), np.array([0, 0, 1, 1]), 1)
    assert isinstance(scored, Scored)
    assert len(scored.codes) == 0
