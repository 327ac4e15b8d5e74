"""Stability, normalisation, difficulty, variance, agreement and the rules for missing values."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results import robustness
from parliabench_utils.results import scores as cells
from parliabench_utils.results import statistics as s
from parliabench_utils.results.paper import published
from parliabench_utils.results.scores import fully_rated_prompts, join_scores, kept_prompts
from parliabench_utils.results.statistics import deranged_psa
from tests.results.synthetic import SETS, write_run

JUDGE = "smollm2-constrained"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def scores(run_folder):
    return join_scores(run_folder, SETS, JUDGE)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20), st.floats(0.1, 10))
def test_stability_is_bounded_and_scale_free(values, factor):
    value = s.stability(values)
    assert 0 < value <= 100
    assert s.stability([factor * v for v in values]) == pytest.approx(value)


def test_stability_of_the_papers_table_8():
    table = published(8)
    found = [round(s.stability(table[m]), 1) for m in ("Gemma 2 9B", "Llama 3.1 8B", "Mistral 7B v0.3", "Qwen2 7B", "Yi 6B")]
    assert found == [97.6, 95.2, 92.2, 94.1, 95.4]


@pytest.mark.parametrize("values", [[], [0.5], [0.0, 0.0], [np.nan, 0.5], [-0.1, 0.1]])
def test_stability_is_undefined(values):
    assert np.isnan(s.stability(values))


def test_join_keeps_every_speech_once(scores):
    assert len(scores) == 18 * len(SETS)
    assert not scores.duplicated(["prompt_id", "variant", "model", "type"]).any()
    missing = scores["generated_speech"].isna()
    assert missing.sum() == 2 and scores.loc[missing, [m.column for m in METRICS]].isna().all(axis=None)


def test_a_missing_stage_is_named(run_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="02_dataset"):
        join_scores(tmp_path, SETS, JUDGE)
    with pytest.raises(FileNotFoundError, match="07_judge"):
        join_scores(run_folder, SETS, "no-such-judge")


def test_missing_rules(scores, run_folder):
    kept = kept_prompts(run_folder)
    complete, available = (cells.is_compared(scores, kept, rule) for rule in ("complete", "available"))
    assert scores.loc[complete, "prompt_id"].nunique() == 17 and available.sum() == 18 * 5 - 2
    hole = scores.copy()
    hole.loc[hole["prompt_id"].eq("p001") & hole["type"].eq("baseline"), "J_Coh"] = np.nan
    assert "p001" not in fully_rated_prompts(hole) and "p002" in fully_rated_prompts(hole)
    with pytest.raises(ValueError, match="complete"):
        cells.is_compared(scores, kept, "all")


def test_normalised_metrics_point_up(scores):
    for how in ("run", "fixed"):
        values = cells.normalise(scores, how)
        assert values.max().max() <= 1 + 1e-9 and (values["PPL"].corr(scores["PPL"], method="spearman")) == pytest.approx(-1)
    with pytest.raises(ValueError, match="normalisation"):
        cells.normalise(scores, "z")


def test_a_metric_without_spread_has_no_normalised_value(scores):
    assert cells.normalise(scores.assign(GRUEN=0.5))["GRUEN"].isna().all()


def test_stability_table_has_all_sets_and_a_chance_level(scores):
    by_metric = s.stability_by_metric(scores, draws=20, seed=1)
    table = s.stability_table(by_metric)
    assert len(table) == len(SETS)
    assert by_metric["p_chance"].dropna().between(0, 1).all() and (table["uneven"] <= table["tests"]).all()
    assert table["overall"].between(0, 100).all() and table["overall_by_chance"].between(0, 100).all()
    assert table["overall"].to_numpy() == pytest.approx(table[["affiliation", "topic", "orientation"]].mean(axis=1))


def test_difficulty_ranks_the_worst_party_first(scores):
    worse = scores.copy()
    columns = ["Party Align", "GRUEN", "BERTScore F1", "MoverScore", "J_Coh", "J_Qual", "J_Rel"]
    worse.loc[worse["Party"] == "Labour", columns] = worse[columns].min().to_numpy()
    table = s.difficulty(worse, "Party")
    assert table.loc[0, "group"] == "Labour" and table["rank"].tolist() == list(range(1, len(table) + 1))
    assert table["difficulty"].between(0, 1).all()


def alike_but_for_psa() -> pd.DataFrame:
    """Two parties with the same values, of which one has no orientation and so no PSA."""
    rng = np.random.default_rng(0)
    base = pd.DataFrame({m.column: (m.range[0] + rng.random(40)) for m in METRICS})
    base["prompt_id"], base["model"], base["type"] = [f"p{i}" for i in range(40)], "m", "fine-tuned"
    base["Topic"] = np.where(np.arange(40) % 2, "Law", "Trade")
    without = base.assign(**{"Party": "Crossbench", "Political Orientation": "Unknown", "PSA": np.nan})
    return pd.concat([without, base.assign(**{"Party": "Labour", "Political Orientation": "Centre-left"})], ignore_index=True)


@pytest.mark.parametrize("how", ["run", "fixed"])
def test_a_party_without_an_orientation_does_not_rank_apart_for_that(how):
    rows = alike_but_for_psa()
    for by in ("Party", "Political Orientation"):
        table = s.difficulty(rows, by, how=how)
        assert np.ptp(table["difficulty"]) == pytest.approx(0, abs=1e-12) and set(table["left_out"]) == {"PSA"}
    hard = s.speech_difficulty(rows, how).groupby(rows["Party"]).mean()
    assert hard["Labour"] == pytest.approx(hard["Crossbench"])
    assert s.difficulty(rows[rows["Party"] == "Labour"], "Party", how=how)["left_out"].tolist() == [""]


def test_a_topic_with_many_such_speeches_does_not_rank_apart_either():
    rows = alike_but_for_psa()
    mixed = rows[(rows["Party"] == "Labour") | (rows["Topic"] == "Law")]
    even = mixed.assign(**{m.column: 2.0 if m.name == "PPL" else 0.5 for m in METRICS if m.name != "PSA"})
    even.loc[even["PSA"].notna(), "PSA"] = 0.1
    table = s.difficulty(even, "Topic", how="fixed")  # speeches without PSA are left out of its mean, not given the others' mean
    assert np.ptp(table["difficulty"]) == pytest.approx(0, abs=1e-12) and table["left_out"].tolist() == ["", ""]


@pytest.mark.parametrize("nothing", ["Unknown", None, np.nan, "", " "])
def test_no_orientation_is_no_group(scores, nothing):
    lacking = scores.assign(**{"Political Orientation": scores["Political Orientation"].replace("Unknown", nothing).astype(object)})
    without = scores[scores["Political Orientation"] != "Unknown"]
    key = ["model", "type", "context", "metric"]
    found, wanted = (
        s.stability_by_metric(f, draws=5).set_index(key).xs("orientation", level="context") for f in (lacking, without)
    )
    counts = ["n_groups", "n"]
    assert found[counts].equals(wanted[counts]) and (found["n"] > 0).any()
    last = s.difficulty(lacking, "Political Orientation").iloc[-1]
    assert last["group"] == "Unknown" and pd.isna(last["rank"]) and last["n"] > 0


def test_nobody_has_an_orientation(scores):
    table = s.stability_by_metric(scores.assign(**{"Political Orientation": "Unknown"}), draws=5)
    assert table[table["context"] == "orientation"]["stability"].isna().all()


def test_anova_is_scipys():
    rng = np.random.default_rng(1)
    values, groups = pd.Series(rng.normal(size=32)), pd.Series([*"abc"] * 10 + ["alone", None])
    found = s.anova(values, groups)
    samples = [values[groups == g] for g in "abc"]
    assert (found["F"], found["p"]) == pytest.approx(stats.f_oneway(*samples))
    assert (found["H"], found["kruskal_p"]) == pytest.approx(stats.kruskal(*samples))
    assert found["eta2"] == pytest.approx(found["F"] * 2 / (found["F"] * 2 + 27))
    assert [found[name] for name in ("n", "groups", "df_between", "df_within")] == [30, 3, 2, 27]
    assert np.isnan(s.anova(values, pd.Series(["a"] * 32))["p"])


def test_uneven_groups_are_beyond_chance_and_even_ones_are_not(scores):
    rows = pd.concat([scores] * 6, ignore_index=True)
    rows["GRUEN"] = np.where(rows["Party"] == "Labour", 0.1, 0.9)
    rows["J_Qual"] = np.random.default_rng(3).uniform(1, 10, len(rows))
    table = s.stability_by_metric(rows, draws=60).set_index(["context", "metric"]).loc["affiliation"]
    assert (table.loc["GRUEN", "p_chance"] < 0.05).all() and (table.loc["J_Qual", "p_chance"] > 0.05).sum() >= 3
    assert (table.loc["GRUEN", "stability"] < table.loc["GRUEN", "by_chance"]).all()


def test_every_analysis_has_its_control(scores):
    table = s.anova_table(scores)
    assert table.groupby("control")["quantity"].nunique().tolist() == [3, 3]
    assert set(table["by"]) == {"Party", "Political Orientation"} and {"all", "human"} <= set(table["model"])


def test_deranged_psa_is_eq_2_for_the_next_orientation():
    rows = pd.DataFrame({"Political Orientation": ["Centre-left", "Right", "Unknown"], "PSA": [0.5, 0.5, np.nan]})
    rows["similarity"], rows["nearest_orientation"] = 0.6, "Centre-left"
    found = deranged_psa(rows)  # Centre-left is scored as Right (4), Right as Centre-left (-2)
    assert found.tolist()[:2] == pytest.approx([0.6 * (1 - 6 / 12), 0.6]) and np.isnan(found[2])
    assert deranged_psa(rows.drop(columns="similarity")).isna().all()


def test_human_preference_finds_the_better_side(scores):
    better = scores.copy()
    better.loc[better["type"] == "human", "J_Qual"] = 11
    better["J_Coh"] = 5.0
    table = robustness.human_preference(better).set_index("metric")["preference"]
    assert table["J_Qual"] == 1 and table["J_Coh"] == 0.5


def test_correlations_are_within_sets():
    """Simpson: within each set J_Coh falls as GRUEN rises, and sets differ in both."""
    rng = np.random.default_rng(0)
    parts = []
    for level, kind in enumerate(("baseline", "fine-tuned")):
        part = pd.DataFrame({m.column: rng.normal(size=30) for m in METRICS}).assign(model="m", type=kind)
        part["GRUEN"] = np.arange(30) / 100 + level
        parts.append(part.assign(J_Coh=5 * level + 1 - part["GRUEN"] + level))
    rows = pd.concat(parts, ignore_index=True)
    assert rows["GRUEN"].corr(rows["J_Coh"], method="spearman") > 0.4
    few = rows.head(4).assign(model="few", J_Coh=rows["GRUEN"].head(4))  # too few to count, and all the other way
    human = rows.assign(model="human", type="human", J_Coh=rows["GRUEN"])
    table = robustness.correlations(pd.concat([rows, few, human])).set_index(["first", "second"]).loc[("GRUEN", "J_Coh")]
    assert table["rho"] == pytest.approx(-1) and (table["n"], table["sets"]) == (60, 2)


def test_a_set_without_spread_does_not_count():
    rows = pd.DataFrame({m.column: np.arange(6.0) for m in METRICS}).assign(model="m", type="baseline")
    constant = rows.assign(type="fine-tuned", J_Coh=5.0)
    table = robustness.correlations(pd.concat([rows, constant])).set_index(["first", "second"])
    assert table.loc[("GRUEN", "J_Coh"), ["rho", "n", "sets"]].tolist() == [1, 6, 1]
    assert table.loc[("GRUEN", "PPL"), ["rho", "n", "sets"]].tolist() == [1, 12, 2]
    assert np.isnan(robustness.correlations(constant).set_index(["first", "second"]).loc[("GRUEN", "J_Coh"), "rho"])


def test_correlations_are_symmetric(scores):
    table = robustness.correlations(scores).pivot(index="first", columns="second", values="rho")
    assert np.allclose(table, table.T, equal_nan=True) and np.allclose(np.diag(table), 1)
