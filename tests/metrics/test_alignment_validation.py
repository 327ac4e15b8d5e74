"""Notebook 06's test of its own metric: what is kept apart, what the measures are, what the controls hide."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from parliabench_utils.metrics.alignment_tests import (
    ACCURACY,
    BEST,
    COLUMNS,
    EVEN,
    SPLITS,
    TESTED,
    Condition,
    Scored,
    _checks,
    _Test,
    anova,
    auc,
    conditions,
    evidence_figure,
    findings,
    folds_of,
    guess_rows,
    guessing,
    held_out_cosines,
    masker,
    measures,
    overview,
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


def dealt(human, apart, folds, seed):
    """Folds of `human`, units by name."""
    units = pd.factorize(human[apart], sort=True)[0] if apart else np.arange(len(human))
    return folds_of(units, pd.factorize(human["Party"], sort=True)[0], folds, np.random.default_rng(seed))


def accuracy(scored):
    return measures(scored)[ACCURACY]


@pytest.mark.parametrize(("text", "masked"), CASES["cases"])
def test_masks(text, masked):
    hide = masker(CASES["parties"])
    assert hide(text) == masked
    assert hide(masked) == masked, "nothing is left to hide"


def test_a_party_may_have_a_name_with_signs():
    assert masker(["Left (Green) + Co."])("The Left (Green) + Co. party spoke.").endswith("spoke.")


@pytest.mark.parametrize("apart", [column for column in SPLITS.values() if column])
def test_nobody_is_on_both_sides(house, apart):
    human, _ = house
    fold = dealt(human, apart, 5, 1)
    assert pd.Series(fold).groupby(human[apart].to_numpy()).nunique().max() == 1
    assert set(fold) == set(range(5))
    shuffled = human.sample(frac=1, random_state=3)
    again = pd.Series(dealt(shuffled, apart, 5, 1), index=shuffled.index).sort_index()
    np.testing.assert_array_equal(again, fold, err_msg="the order of rows decides nothing")


def test_held_out_cosines_are_those_of_the_other_folds(house):
    human, vectors = house
    codes = pd.factorize(human["Party"], sort=True)[0]
    fold = dealt(human, "speaker_id", 4, 2)
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
    scored = score(plain(vectors), codes, dealt(human, None, 5, 0), 3)
    values = {statistic: value for (_, statistic), value in measures(scored).items()}
    found = scored.table.argmax(axis=1)
    assert values["balanced accuracy"] == pytest.approx(balanced_accuracy_score(scored.codes, found))
    aucs = [roc_auc_score(scored.codes == k, scored.table[:, k]) for k in range(3)]
    assert values["own against others, mean of parties"] == pytest.approx(np.mean(aucs))
    assert measures(scored)[EVEN] == pytest.approx(1 / 3)
    f, eta = anova(scored.shifted(0), scored.codes)
    assert f == pytest.approx(stats.f_oneway(*(scored.shifted(0)[scored.codes == k] for k in range(3))).statistic)
    assert eta == pytest.approx(values["eta squared, true centroids"])


def test_auc_with_ties_and_strata():
    scores, own = np.array([0.1, 0.5, 0.5, 0.9, 0.2, 0.8]), np.array([0, 1, 0, 1, 1, 0], dtype=bool)
    assert auc(scores, own, np.zeros(6, dtype=int)) == pytest.approx(roc_auc_score(own, scores))
    strata = np.array([0, 0, 0, 0, 1, 1])
    assert auc(scores, own, strata) == pytest.approx((3.5 + 0) / 5)
    assert auc(np.r_[scores, np.nan], np.r_[own, True], np.r_[strata, 0]) == pytest.approx((3.5 + 0) / 5)
    assert np.isnan(auc(scores, np.ones(6, dtype=bool), strata))


def test_even_odds_count_only_parties_that_speak_in_the_stratum():
    table = np.array([[0.9, 0.1, 0.2], [0.1, 0.9, 0.2], [0.1, 0.2, 0.9], [0.9, 0.2, 0.1]])
    codes, strata = np.array([0, 1, 0, 1]), np.zeros(4, dtype=int)
    assert measures(Scored(table, codes, strata, np.arange(4)))[EVEN] == pytest.approx(0.75 / 2), "one is nearest to 2"


def test_accuracy_is_balanced_within_strata_then_weighed_by_their_speeches():
    table = np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9], [0.9, 0.1], [0.9, 0.1]])
    scored = Scored(table, np.array([0, 0, 1, 1, 0, 1]), np.array([3, 3, 3, 3, 7, 7]), np.arange(6))
    assert accuracy(scored) == pytest.approx((4 * (0.5 + 1) / 2 + 2 * (1 + 0) / 2) / 6)


def test_anova_of_strata_sees_only_what_is_within_them():
    groups, strata = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    within = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0])
    apart = within + strata * 100
    assert anova(apart, groups, strata)[1] == pytest.approx(anova(within, groups)[1])
    assert anova(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])) == (pytest.approx(8.0), pytest.approx(0.8))
    assert np.isnan(anova(np.array([1.0, 2.0]), np.array([0, 1]))).all()


def test_every_party_is_spread_over_the_folds():
    codes, members = np.repeat([0, 0, 1, 2], [30, 30, 50, 20]), np.repeat(np.arange(26), 5)
    fold = folds_of(members, codes, 5, np.random.default_rng(0))
    for code in range(3):
        per_fold = [len(np.unique(members[(codes == code) & (fold == number)])) for number in range(5)]
        assert max(per_fold) - min(per_fold) <= 1


def test_labels_are_dealt_within_the_house_of_the_members():
    members, house = np.repeat(np.arange(12), 3), np.repeat([0, 1], 18)
    codes = np.repeat([0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 1, 1], 3)
    vectors = np.random.default_rng(0).normal(size=(36, 6))
    control = Condition("within House", vectors, np.ones(36, dtype=bool), house)
    seen = []
    test = _Test(control, codes, members, members, 3, 0)
    test.score = lambda dealt, rng: seen.append(dealt) or test.scored
    test.by_lot(members, 20, np.random.default_rng(1))
    for labels in seen:
        assert (np.bincount(labels[house == 0], minlength=3) == [9, 9, 0]).all(), "no party of the other House"
        assert pd.Series(labels).groupby(members).nunique().max() == 1, "a member has one label"
    assert len({labels.tobytes() for labels in seen}) > 10


def null_parliament(rng, per_party, speaks=6):
    """Three invented parties of members with habits of their own, in debates: no politics anywhere."""
    members = np.repeat(np.arange(3 * per_party), rng.integers(speaks // 2, speaks * 3 // 2 + 1, 3 * per_party))
    debates = rng.integers(0, 20, len(members))
    habits, topics = rng.normal(0, 0.35, (3 * per_party, 16)), rng.normal(0, 0.5, (20, 16))
    vectors = 0.6 + habits[members] + topics[debates] + rng.normal(0, 0.9, (len(members), 16))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), members // per_party, members, debates


def misses(per_party, runs, shuffles=199, splits=tuple(SPLITS)):
    """Share of null runs whose 95 % interval misses that split's chance, by (split, statistic), and even odds by speaker."""
    found = []
    for run in range(runs):
        rng = np.random.default_rng([per_party, run])
        vectors, codes, members, debates = null_parliament(rng, per_party)
        units_of = {"random": np.arange(len(codes)), "by debate": debates, "by speaker": members}
        for split in splits:
            units = units_of[split]
            rows = pd.DataFrame(_checks(_Test(plain(vectors), codes, members, units, 5, run), shuffles, rng))
            at = rows.set_index(["check", "statistic"])
            for key in TESTED:
                own = at.loc[key]
                name = "chance" if key == ACCURACY else f"{key[1].removesuffix(', true centroids')}, labels shuffled over members"
                chance = at.loc[(key[0], name), "value"]
                found.append((split, key[1], not own["low"] <= chance <= own["high"]))
            own = at.loc[ACCURACY]
            found.append((split, "even odds", not own["low"] <= 1 / 3 <= own["high"]))
    return pd.DataFrame(found, columns=["split", "statistic", "missed"]).groupby(["split", "statistic"])["missed"].mean()


def test_intervals_hold_chance_where_there_is_no_politics():
    """A part of the simulation below, in seconds; 20 runs of a right interval stay within its bounds."""
    share = misses(8, runs=20, shuffles=39, splits=("random", "by speaker"))
    assert (share.drop("even odds", level="statistic") <= 0.2).all()
    assert share["by speaker", "even odds"] <= 0.2
    assert share["random", "even odds"] > 0.2, "knowing members is not knowing parties: random splits have another chance"


@pytest.mark.slow
@pytest.mark.parametrize("per_party", [4, 8, 25])
def test_three_to_eight_of_a_hundred_intervals_miss_chance(per_party):
    """Issue 14, A 4: in 200 null simulations 3-8 % of 95 % intervals miss, with every split."""
    share = misses(per_party, runs=200)
    print(share)
    chance = share.xs("balanced accuracy", level="statistic")
    assert chance.between(0.03, 0.08).all()
    assert 0.02 <= share["by speaker", "even odds"] <= 0.08
    assert share.drop("even odds", level="statistic").between(0.01, 0.1).all()


def test_real_parties_are_seen_and_shuffled_ones_are_not(house):
    human, vectors = house
    table = validate([plain(vectors)], human, folds=4, shuffles=20, seed=0)
    assert list(table.columns) == COLUMNS
    values = table.set_index(["split", "statistic"])
    for split in SPLITS:
        own = values.loc[(split, "balanced accuracy")]
        assert own["low"] <= own["value"] <= own["high"]
        assert own["low"] > 0.6
        assert values.loc[(split, "balanced accuracy, labels shuffled over speeches")]["high"] < 0.5
        chance = values.loc[(split, "chance")]
        assert chance["low"] < chance["value"] < chance["high"] < own["value"]
        assert own["low"] > chance["value"], "the interval and the test say the same"
        assert values.loc[(split, "own against others, mean of parties")]["value"] > 0.8
    people = values["value"].xs("chance", level="statistic")
    assert people["random"] > people["by speaker"] + 0.05, "invented parties of real members are found by their members"
    pd.testing.assert_frame_equal(table, validate([plain(vectors)], human, folds=4, shuffles=20, seed=0))


def test_deranged_centroids_of_one_cloud_give_the_same_f():
    """No politics at all, only parties of other sizes: true and wrong centroids give F alike, and accuracy is chance."""
    rng = np.random.default_rng(1)
    sizes = {"a": 12, "b": 80, "c": 500}
    human = pd.DataFrame({"Party": np.repeat(list(sizes), list(sizes.values()))})
    human["speaker_id"] = human["debate"] = [f"s{i}" for i in range(len(human))]
    human["is_government"] = False
    vectors = (0.3 + rng.normal(0, 1, (len(human), 32))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = validate([plain(vectors)], human, folds=4, shuffles=20, seed=0).set_index(["split", "statistic"])
    gap = table.loc[("by speaker", "eta squared, true less deranged")]
    assert gap["low"] < table.loc[("by speaker", "eta squared, true less deranged, labels shuffled over members"), "value"]
    for statistic in ("F, true centroids", "F, labels shuffled over members"):
        assert table.loc[("by speaker", statistic)]["value"] > 3.01, "parties of nothing differ with p < 0.05"
    assert table.loc[("by speaker", "balanced accuracy")]["low"] < table.loc[("by speaker", "chance")]["value"]


def test_residual_takes_topic_away():
    """Parties that speak of their own topics only cannot be told apart once topics are held fixed."""
    rng = np.random.default_rng(2)
    topic = rng.integers(0, 3, 300)
    party = np.where(rng.random(300) < 0.8, topic, rng.integers(0, 3, 300))
    vectors = (1 + 2 * np.eye(12)[topic] + rng.normal(0, 0.5, (300, 12))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    fold = np.arange(300) % 5
    contexts = [f"House/{t}" for t in topic]
    by_topic = score(plain(vectors), party, fold, 3)
    everyone = np.ones(300, dtype=bool)
    held = Condition("residual", vectors, everyone, np.zeros(300, dtype=int), contexts)
    within = Condition("within topic", vectors, everyone, topic)
    assert accuracy(by_topic) > 0.7
    assert accuracy(score(held, party, fold, 3)) < 0.45
    assert accuracy(score(within, party, fold, 3)) < 0.45


def test_conditions_and_what_is_said_about_them(house):
    human, vectors = house
    rows = dict(zip(human["Speech"], vectors, strict=True))
    controls = conditions(human, lambda texts: np.stack([rows[text] for text in texts]))
    assert controls[0].name == "all speeches"
    assert controls[3].rows.sum() == human["is_government"].sum()
    table = validate(controls, human, folds=4, shuffles=5, seed=0)
    government = table[table["condition"] == "within government"]
    assert government["value"].isna().all(), "one party governs: nothing to compare"
    assert set(government["n"]) == {0}
    shown = overview(table)
    assert shown["condition"].tolist() == [control.name for control in controls for _ in SPLITS]
    assert shown["split"].tolist() == list(SPLITS) * len(controls)
    assert (shown.loc[shown["condition"] == "within government", "balanced accuracy"] == "—").all()
    said = " ".join(findings(table))
    assert "within government" in said
    found = table.set_index(["condition", "split", "statistic"])["value"]["all speeches", "by debate", "balanced accuracy"]
    assert f"{found:.2f} by debate" in said
    assert evidence_figure(table).axes
    assert not table.duplicated(["condition", "split", "check", "statistic"]).any()


def test_one_party_is_reported_not_compared(house):
    human, vectors = house
    alone = human["Party"] == "Con"
    table = validate([plain(vectors[alone])], human[alone].reset_index(drop=True), 4, shuffles=2, seed=0)
    assert table["value"].isna().all()
    assert "nothing was tested" in findings(table)[0]


def test_office_is_heard_where_it_sounds(house):
    human, vectors = house
    office = "AUC, holders of office against others of their party"
    silent = validate([plain(vectors)], human.assign(is_government=False), 4, shuffles=2, seed=0)
    assert silent.loc[silent["statistic"] == office, "value"].isna().all()
    party = (human["Party"] == "Con").to_numpy()
    nearest = vectors[party] @ vectors[party].mean(axis=0)
    loud = human.assign(is_government=False)
    loud.loc[party, "is_government"] = nearest > np.median(nearest)
    table = validate([plain(vectors)], loud, 4, shuffles=2, seed=0)
    assert table.loc[table["statistic"] == office, "value"].min() > 0.8


def test_empty_speeches_do_not_spoil_the_others(house):
    human, vectors = house
    gaps = vectors.copy()
    gaps[[0, 5]] = np.nan
    codes, fold = pd.factorize(human["Party"], sort=True)[0], dealt(human, None, 5, 0)
    assert len(score(plain(gaps), codes, fold, 3).codes) == len(human) - 2


def test_guessers_are_exact():
    counts = {"Centre-left": 30, "Centre-right": 50, "Right": 20}
    place = {"Centre-left": -2, "Centre-right": 2, "Right": 4}
    from parliabench_utils.corpus.people import ORIENTATION_SCALE

    assert {name: ORIENTATION_SCALE[name] for name in place} == place
    table = guessing([0.6, 0.8, 0.5], ["Centre-left", "Centre-right", "Unknown"], counts)
    assert list(table) == [*(f"always {name}" for name in ORIENTATION_SCALE), "drawn by corpus share"]
    assert len(table.columns) == 14
    assert table["always Centre-right"][0] == pytest.approx(0.6 * (1 - 4 / 12))
    assert table["always Centre-right"][1] == pytest.approx(0.8)
    assert table["always Far-left"][0] == pytest.approx(0.6 * (1 - 4 / 12)), "also one that no training speech has"
    by_hand = 0.3 * 1 + 0.5 * (1 - 4 / 12) + 0.2 * (1 - 6 / 12)
    assert table["drawn by corpus share"][0] == pytest.approx(0.6 * by_hand)
    assert table.loc[2].isna().all()
    drawn = np.random.default_rng(0).choice(list(place.values()), p=[0.3, 0.5, 0.2], size=200_000)
    assert table["drawn by corpus share"][1] == pytest.approx(0.8 * np.mean(1 - np.abs(2 - drawn) / 12), abs=1e-3)


def blind(expected, constant, noise=0.0, seed=0):
    """Speeches of a model that always says `constant`, whatever it is asked."""
    from parliabench_utils.corpus.people import ORIENTATION_SCALE

    far = np.array([abs(ORIENTATION_SCALE[label] - ORIENTATION_SCALE[constant]) for label in expected])
    psa = 0.6 * (1 - far / 12) + np.random.default_rng(seed).normal(0, noise, len(far))
    ids = [f"p{i}" for i in range(len(far))]
    rows = {"model": "blind", "type": "t", "prompt_id": ids, "similarity": 0.6, "PSA": psa}
    return pd.DataFrame(rows | {"Political Orientation": expected})


def test_no_constant_beats_the_guesser_that_is_shown():
    """A middle that is nobody's commonest orientation may be the best guess: always Centre, among Left and Right."""
    for expected in (["Left"] * 40 + ["Centre"] * 30 + ["Right"] * 30, ["Left"] * 30 + ["Right"] * 31 + ["Far-right"]):
        counts = pd.Series(expected).value_counts().to_dict()
        for constant in ("Centre", "Left", "Right", "Centre-right"):
            values = guess_rows(blind(expected, constant), counts, 200, 0).set_index("statistic")
            assert values.loc["PSA less the better guesser's", "value"] <= 1e-12
            assert values.loc[BEST, "value"] >= values.loc["PSA", "value"] - 1e-12
    values = guess_rows(blind(["Left"] * 40 + ["Centre"] * 30 + ["Right"] * 30, "Centre"), {"Left": 1}, 200, 0)
    assert values.set_index("statistic").loc["PSA less the better guesser's", "value"] == pytest.approx(0)


def test_intervals_of_guessing_hold_what_is_true_with_few_prompts():
    """A model whose expected PSA is the best constant's: 95 % intervals over 18 or 60 prompts hold the 0."""
    for n, runs in ((18, 100), (60, 60)):
        rows = [
            guess_rows(blind(["Left"] * (n // 2 - 2) + ["Right"] * (n // 2 + 2), "Right", 0.1, run), {"Left": 1}, 200, run)
            for run in range(runs)
        ]
        last = pd.concat(rows).query('statistic == "PSA less the better guesser\'s"')
        missed = ((last["low"] > 0) | (last["high"] < 0)).mean()
        assert missed <= 0.08
        assert (last["low"] > 0).mean() <= 0.05, "seldom called better than a guess"


def test_a_model_that_reads_is_above_the_guessers_and_one_that_does_not_is_not():
    expected = ["Centre-left"] * 20 + ["Centre-right"] * 30
    rows = [{"model": "reader", "similarity": 0.5, "PSA": 0.5, "Political Orientation": label} for label in expected] + [
        {
            "model": "parrot",
            "similarity": 0.5,
            "PSA": 0.5 * (1 - 4 / 12 * (label == "Centre-left")),
            "Political Orientation": label,
        }
        for label in expected
    ]
    speeches = pd.DataFrame(rows).assign(type="baseline", prompt_id=[f"p{i}" for i in range(50)] * 2)
    table = guess_rows(speeches, {"Centre-left": 4, "Centre-right": 6}, draws=200, seed=0).set_index(["condition", "statistic"])
    above = table.xs("PSA less the better guesser's", level="statistic")
    assert above.loc["reader baseline", "low"] > 0
    assert above.loc["parrot baseline", "value"] == pytest.approx(0)
    assert above.loc["parrot baseline", "low"] <= 0


def test_one_party_is_no_comparison():
    vectors = np.eye(4, dtype=np.float32)
    scored = score(plain(vectors), np.zeros(4, dtype=int), np.array([0, 0, 1, 1]), 1)
    assert isinstance(scored, Scored)
    assert len(scored.codes) == 0
