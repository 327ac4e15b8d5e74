"""A run's scores joined, which of them are compared, whose mean a mean is, what is missing, and tests of clustered values."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.alignment_tests import anova as stratified_anova
from parliabench_utils.metrics.table import METRIC_BY_NAME, METRICS, is_rounding, settled
from parliabench_utils.results.robustness import human_preference, worst_case
from parliabench_utils.results.scores import (
    cell_means,
    cluster_t_test,
    compared_rows,
    coverage,
    estimand_weights,
    fully_rated_prompts,
    is_compared,
    join_scores,
    kept_prompts,
    normalise,
    summary,
)
from parliabench_utils.results.statistics import anova, category_changes
from parliabench_utils.results.tables import coverage_display
from tests.results.synthetic import SETS


def test_join_keeps_every_speech_once(scores):
    assert len(scores) == 18 * len(SETS)
    assert not scores.duplicated(["prompt_id", "variant", "model", "type"]).any()
    missing = scores["generated_speech"].isna()
    assert missing.sum() == 2 and scores.loc[missing, [m.column for m in METRICS]].isna().all(axis=None)


def test_a_missing_stage_is_named(run_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="02_dataset"):
        join_scores(tmp_path, SETS, "any")
    with pytest.raises(FileNotFoundError, match="07_judge"):
        join_scores(run_folder, SETS, "no-such-judge")


def test_missing_rules(scores, run_folder):
    kept = kept_prompts(run_folder)
    complete, available = (is_compared(scores, kept, rule) for rule in ("complete", "available"))
    assert scores.loc[complete, "prompt_id"].nunique() == 17 and available.sum() == 18 * 5 - 2
    hole = scores.copy()
    hole.loc[hole["prompt_id"].eq("p001") & hole["type"].eq("baseline"), "J_Coh"] = np.nan
    assert "p001" not in fully_rated_prompts(hole) and "p002" in fully_rated_prompts(hole)
    with pytest.raises(ValueError, match="complete"):
        is_compared(scores, kept, "all")


def test_normalised_metrics_point_up(scores):
    for how in ("run", "fixed"):
        values = normalise(scores, how)
        assert values.max().max() <= 1 + 1e-9 and (values["PPL"].corr(scores["PPL"], method="spearman")) == pytest.approx(-1)
    with pytest.raises(ValueError, match="normalisation"):
        normalise(scores, "z")


def test_a_metric_without_spread_has_no_normalised_value(scores):
    assert normalise(scores.assign(GRUEN=0.5))["GRUEN"].isna().all()


def four_rows(**columns) -> pd.DataFrame:
    base = {metric.column: [1.0] * 4 for metric in METRICS}
    base |= {"model": ["a"] * 4, "type": ["baseline"] * 4, "generated_speech": ["x", "x", "x", None]}
    return pd.DataFrame(base | columns)


def test_shares_are_of_the_speeches_that_exist():
    found = coverage(four_rows(J_Coh=[np.nan, 1, 1, np.nan], **{"truncated PPL": [1, 1, 0, np.nan]})).set_index("metric")
    assert (found["n"] == 3).all()
    assert found.loc["J_Coh", ["missing", "kind"]].tolist() == [1, "judge"]
    assert found.loc["PPL", ["missing", "truncated"]].tolist() == [0, 2]
    assert np.isclose(found.loc["PPL", "truncated_share"], 2 / 3)
    assert np.isnan(found.loc["Self-BLEU", "truncated"])


def test_the_table_prints_both_shares():
    table = coverage_display(coverage(four_rows(**{"truncated PPL": [1, 0, 0, 0]})), {"a": "A"}, ())
    assert table.display.iloc[0].tolist()[:3] == ["A (B)", "3", "0.0% / 33.3%"]


GRUEN = METRIC_BY_NAME["GRUEN"]


def prompts() -> pd.DataFrame:
    """Con (weight 1.5): two of the Commons and two Lords; Green, lifted (0.5): three of the Commons and one Lord."""
    return pd.DataFrame(
        {"prompt_id": [f"p{i}" for i in range(8)], "Party": ["Con"] * 4 + ["Green"] * 4, "kind": "generic"}
    ).assign(
        House=["Commons", "Commons", "Lords", "Lords", "Commons", "Commons", "Commons", "Lords"],
        weight=[2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5],
        GRUEN=np.arange(8.0),
    )  # fmt: skip


def test_weights_are_numpys():
    rows = prompts()
    found = estimand_weights(rows, "corpus", rows)
    assert found == pytest.approx(rows["weight"] / rows["weight"].mean())
    n, mean, sd, effective = summary(rows["GRUEN"].to_numpy(), found)
    assert (n, mean) == (8, pytest.approx(np.average(rows["GRUEN"], weights=rows["weight"])))
    assert effective == pytest.approx(8.0**2 / (4 + 4 + 1 + 1 + 4 * 0.25))
    assert summary(np.arange(5.0), np.ones(5))[1:] == pytest.approx((2.0, np.std(range(5), ddof=1), 5.0)) and sd > 0


@pytest.mark.parametrize(
    "lost, wanted",
    [
        (["p0"], [4, 1, 1, 0.5, 0.5, 0.5, 0.5]),  # the other of its House stands for both
        (["p0", "p1"], [3, 3, 0.5, 0.5, 0.5, 0.5]),  # a House that is lost lends its weight to its party's other
        (["p0", "p1", "p2", "p3"], [0.5, 0.5, 0.5, 0.5]),  # a party that is lost to all others
    ],
)
def test_weights_after_rows_drop_out(lost, wanted):
    rows = prompts()
    kept = rows[~rows["prompt_id"].isin(lost)]
    found = estimand_weights(kept, "corpus", rows)
    assert found == pytest.approx(np.array(wanted) / np.mean(wanted))
    compared = compared_rows(rows.assign(compared=~rows["prompt_id"].isin(lost)))
    assert compared["weight"].to_numpy() == pytest.approx(found)
    assert estimand_weights(compared, "corpus") == pytest.approx(found)


def test_cells_of_each_estimand():
    rows = prompts().assign(model="m", type="baseline", variant=0)
    rows.loc[0, "GRUEN"] = np.nan  # this metric alone lacks a value
    wanted = {"prompts": 28 / 7, "parties": (np.mean([1, 2, 3]) + np.mean([4, 5, 6, 7])) / 2}
    wanted["corpus"] = np.average(np.arange(1.0, 8), weights=[4, 1, 1, 0.5, 0.5, 0.5, 0.5])
    for estimand, mean in wanted.items():
        row = cell_means(rows, metrics=[GRUEN], estimand=estimand).iloc[0]
        assert row["mean"] == pytest.approx(mean) and row["n"] == 7 and row["estimand"] == estimand
    by_party = cell_means(rows, ["Party"], [GRUEN], "corpus").set_index("Party")
    assert by_party.loc["Con", "mean"] == pytest.approx(np.average([1, 2, 3], weights=[4, 1, 1]))
    assert by_party.loc["Green", "n_effective"] == pytest.approx(4)


def pairs(base, tuned, column: str = "GRUEN") -> pd.DataFrame:
    parts = [prompts().drop(columns="GRUEN").assign(model=m, type=t, variant=0, **{column: values})
             for m, t, values in (("m", "baseline", base), ("m", "fine-tuned", tuned), ("human", "human", base))]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    from parliabench_utils.metrics.table import METRICS

    return frame.assign(**{m.column: 0.5 for m in METRICS if m.column not in frame})


def test_category_changes_and_preference_take_the_estimand():
    rng = np.random.default_rng(0)
    base, tuned = rng.random(8), rng.random(8)
    data = complete(pairs(base, tuned))
    for estimand, weights in (("prompts", np.ones(8)), ("corpus", prompts()["weight"].to_numpy())):
        changes = category_changes(data, "fixed", estimand=estimand).set_index("category")
        of_three = np.average(tuned - base, weights=weights) / 3  # GRUEN and two constants of its category; and J_Rel
        assert changes.loc["Semantic Coherence", "change"] == pytest.approx(of_three * 3 / 4)
        assert np.isnan(changes.loc["Political Authenticity", "low"])  # nothing changes there
        found = human_preference(data[data["type"] != "baseline"], [GRUEN], estimand).iloc[0]
        assert found["preference"] == pytest.approx(np.average(base > tuned, weights=weights))


def test_rounding_is_no_spread_anywhere():
    third = np.full(8, 0.1 + 0.2)
    third[::2] = 0.3  # equal but for rounding
    data = complete(pairs(third, third[::-1].copy()))
    assert normalise(data)["GRUEN"].isna().all()
    assert not worst_case(data, [GRUEN])["sign_certain"].any()
    assert human_preference(data[data["type"] != "baseline"], [GRUEN])["preference"].tolist() == [0.5]
    groups = pd.Series(list("aaaabbbb"))
    alike, apart = (anova(pd.Series(third + np.repeat([0, shift], 4)), groups) for shift in (0.0, 1.0))
    assert np.isnan([alike["F"], alike["H"], apart["F"], apart["p"]]).all()
    assert apart["eta2"] == pytest.approx(1) and apart["H"] > 0
    assert np.isnan(stratified_anova(third, groups.to_numpy())).all()
    f, eta2 = stratified_anova(third + np.repeat([0, 1.0], 4), groups.to_numpy())
    assert np.isnan(f) and eta2 == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_is_relative(scale):
    assert is_rounding(1e-16 * scale, scale) and not is_rounding(1e-6 * scale, scale) and is_rounding(np.nan, scale)
    low, high = settled(np.array([0.3, 0.1 + 0.2]) * scale)
    assert low == high and settled(np.array([0.0, 0.0])).tolist() == [0, 0]
    assert np.isnan(settled(np.array([np.nan, scale]))[0])


SIZES = {"equal": np.full(20, 5), "unequal": np.r_[np.full(12, 1), 3, 4, 5, 6, 8, 10, 12, 15]}


def rejections(clusters: np.ndarray, weights: np.ndarray, correlation: float, runs: int, seed: int = 0) -> float:
    """Share of null samples whose 95 % interval misses 0."""
    rng, n = np.random.default_rng(seed), clusters.max() + 1
    shared, own = rng.normal(size=(runs, n))[:, clusters], rng.normal(size=(runs, clusters.size))
    values = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    tests = [cluster_t_test(row, clusters, weights) for row in values]
    assert all((test.p < 0.05) == (not test.low <= 0 <= test.high) for test in tests)
    return float(np.mean([test.p < 0.05 for test in tests]))


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("sizes", SIZES)
def test_intervals_of_twenty_clusters_cover(sizes, correlation):
    clusters = np.repeat(np.arange(20), SIZES[sizes])
    assert 0.03 <= rejections(clusters, np.ones(clusters.size), correlation, 1000) <= 0.08


LIFTED = np.r_[np.full(9, 1.9), np.full(9, 0.1)]  # the case prompt_weights: nine prompts of a party that was lifted


@pytest.mark.parametrize("weights", [LIFTED, np.random.default_rng(1).gamma(2, size=60), np.repeat([1, 0.2], [40, 20])])
def test_weighted_tests_find_nothing_in_nothing(weights):
    assert 0.03 <= rejections(np.arange(weights.size), weights, 0.0, 1000) <= 0.08


@pytest.mark.parametrize("noisy", ["heavy", "light"])
def test_weighted_tests_stand_unequal_variances(noisy):
    rng, weights = np.random.default_rng(2), np.repeat([1.6, 0.4], 20)
    spread = weights if noisy == "heavy" else 1 / weights
    tests = [cluster_t_test(rng.normal(size=40) * spread, np.arange(40), weights).p < 0.05 for _ in range(1000)]
    assert 0.03 <= np.mean(tests) <= 0.08
