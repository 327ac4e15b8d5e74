"""Comparisons and corrections against scipy and the paper; stability, difficulty and variance, and what they leave out."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from parliabench_utils.metrics.table import METRIC_BY_NAME, METRICS
from parliabench_utils.results.paper import published
from parliabench_utils.results.statistics import (
    anova,
    anova_table,
    cliffs_delta,
    compare,
    deranged_psa,
    difficulty,
    signed_rank_p,
    speech_difficulty,
    stability,
    stability_by_metric,
    stability_table,
    t_test_from_summary,
    verdict,
)
from tests.results.synthetic import SETS

GRUEN, PPL = METRIC_BY_NAME["GRUEN"], METRIC_BY_NAME["PPL"]


def frame(base: np.ndarray, tuned: np.ndarray, column: str = "GRUEN", ids: int = 0) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"prompt_id": [f"p{i + offset}" for i in range(len(values))], "variant": 0, "type": kind, column: values})
        for kind, values, offset in (("baseline", base, 0), ("fine-tuned", tuned, ids))
    ]
    return pd.concat(parts, ignore_index=True).assign(model="m", context_id=lambda f: f["prompt_id"].str[-1])


@pytest.fixture
def sides():
    rng = np.random.default_rng(3)
    base = rng.normal(0.5, 0.1, 40)
    return base, base + 0.05 + rng.normal(0, 0.05, 40)


def test_summary_test_is_scipys(sides):
    base, tuned = sides
    ours = t_test_from_summary(base.mean(), base.std(ddof=1), 40, tuned.mean(), tuned.std(ddof=1), 40)
    theirs = stats.ttest_ind(tuned, base)
    assert ours.t == pytest.approx(theirs.statistic) and ours.p == pytest.approx(theirs.pvalue)
    assert ours.d == pytest.approx(ours.t * np.sqrt(2 / 40))


@pytest.mark.parametrize("values", [(1, 1, 1, 2, 1, 9), (1, 0, 5, 1, 0, 5), (1, np.nan, 3, 2, 1, 3)])
def test_summary_test_is_undefined_without_spread_or_speeches(values):
    assert np.isnan(t_test_from_summary(*values)).all()


def test_paired_side_is_scipys(sides):
    row = compare(frame(*sides), [GRUEN], draws=200).iloc[0]
    theirs = stats.ttest_rel(sides[1], sides[0])
    assert row["paired_t"] == pytest.approx(theirs.statistic) and row["paired_p"] == pytest.approx(theirs.pvalue)
    assert row["wilcoxon_p"] == pytest.approx(stats.wilcoxon(sides[1] - sides[0]).pvalue)
    assert row["ci_low"] < row["paired_difference"] < row["ci_high"]


def test_no_shared_prompt_gives_zero_pairs(sides):
    row = compare(frame(*sides, ids=100), [GRUEN], draws=50).iloc[0]
    assert row["n_pairs"] == 0 and np.isnan(row["paired_p"]) and row["n_baseline"] == 40


def test_no_speeches_at_all_give_an_empty_or_nan_table():
    nothing = frame(np.full(3, np.nan), np.full(3, np.nan))
    row = compare(nothing, [GRUEN], draws=10).iloc[0]
    assert row["n_pairs"] == 0 and row["n_baseline"] == 0 and np.isnan(row["p_bonferroni"])
    assert compare(nothing.iloc[:0], [GRUEN]).empty


def test_lower_perplexity_is_better(sides):
    table = compare(frame(*sides, column="PPL"), [PPL], draws=50)
    assert (table["direction"].tolist() == ["worse"] and verdict(table).tolist() == ["decline"]) or table["p"].iloc[0] > 0.05


def test_corrections_are_ordered(sides):
    data = pd.concat([frame(*sides), frame(sides[0], sides[0] + 0.01).assign(model="n")])
    table = compare(data, [GRUEN], draws=50)
    assert (table["p"] <= table["p_bh"]).all() and (table["p_bh"] <= table["p_holm"]).all()
    assert (table["p_holm"] <= table["p_bonferroni"]).all()
    assert table["family"].iloc[0].startswith("2 tests")


def test_a_cluster_for_each_prompt_is_the_paired_test(sides):
    data = frame(*sides).assign(speaker_id=lambda f: "s" + f["prompt_id"])
    own, plain = (compare(data, [GRUEN], draws=50, cluster=c).iloc[0] for c in ("speaker_id", "prompt_id"))
    names = ["paired_t", "paired_df", "paired_p", "wilcoxon_p", "ci_low", "ci_high"]
    assert own[names].tolist() == plain[names].tolist() and plain["paired_df"] == pytest.approx(39)
    low, high = stats.ttest_rel(sides[1], sides[0]).confidence_interval()
    assert (plain["ci_low"], plain["ci_high"]) == pytest.approx((low, high))


def test_paired_p_and_wilcoxon_follow_the_clusters():
    """Eight speakers with five prompts each: what one speaker's prompts share is seen eight times, not forty."""
    rng = np.random.default_rng(5)
    base, shared = rng.normal(0.5, 0.1, 40), np.repeat(rng.normal(0.03, 0.05, 8), 5)
    data = frame(base, base + shared + rng.normal(0, 0.01, 40))
    data["speaker_id"] = "s" + (data["prompt_id"].str[1:].astype(int) // 5).astype(str)
    prompts, speakers = (compare(data, [GRUEN], cluster=c).iloc[0] for c in ("prompt_id", "speaker_id"))
    wide = data.pivot(index=["speaker_id", "prompt_id"], columns="type", values="GRUEN")
    means = (wide["fine-tuned"] - wide["baseline"]).groupby("speaker_id").mean()
    assert speakers["paired_t"] == pytest.approx(stats.ttest_1samp(means, 0).statistic)
    assert (speakers["n_clusters"], speakers["paired_df"]) == (8, pytest.approx(7))
    assert all(speakers[name] > 2 * prompts[name] for name in ("paired_p", "wilcoxon_p"))


def test_signed_ranks_by_cluster_find_nothing_in_nothing():
    rng, clusters = np.random.default_rng(4), np.repeat(np.arange(20), [1] * 12 + [3, 4, 5, 6, 8, 10, 12, 15])
    values = rng.normal(size=(400, 20))[:, clusters] + rng.normal(size=(400, clusters.size))
    found = [signed_rank_p(row, clusters, np.ones(clusters.size), 400, 1) < 0.05 for row in values]
    assert 0.03 <= np.mean(found) <= 0.08


CONTEXT = pd.DataFrame(
    {"Party": ["Con"] * 6 + ["Lab"] * 4 + ["Green"] * 8, "House": (["Commons", "Lords"] * 9), "kind": "generic"}
).assign(prompt_id=[f"p{i}" for i in range(18)], weight=[1.8] * 6 + [1.2] * 4 + [0.3] * 8)  # fmt: skip


def weighted_frame(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return frame(rng.normal(size=18), rng.normal(size=18)).drop(columns="context_id").merge(CONTEXT, on="prompt_id")


def test_the_corpus_is_numpys_weighted_average():
    data = weighted_frame()
    row = compare(data, [GRUEN], draws=50, estimand="corpus").iloc[0]
    wide = data.pivot(index="prompt_id", columns="type", values="GRUEN").loc[CONTEXT["prompt_id"]]
    base, tuned, weights = wide["baseline"], wide["fine-tuned"], CONTEXT["weight"].to_numpy()
    assert row["paired_difference"] == pytest.approx(np.average(tuned - base, weights=weights), abs=1e-9)
    assert row["mean_baseline"] == pytest.approx(np.average(base, weights=weights))
    assert row["difference"] == pytest.approx(row["paired_difference"], abs=1e-9)
    assert row["n_effective"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum()) and row["n_pairs"] == 18
    assert row["ci_low"] < row["paired_difference"] < row["ci_high"]
    kept = compare(data.drop(columns=["Party", "House", "kind"]), [GRUEN], draws=50, estimand="corpus").iloc[0]
    assert kept["paired_difference"] == pytest.approx(row["paired_difference"])


def test_parties_count_the_same():
    data = weighted_frame()
    row = compare(data, [GRUEN], draws=50, estimand="parties").iloc[0]
    wide = data.pivot(index=["Party", "prompt_id"], columns="type", values="GRUEN")
    gaps = (wide["fine-tuned"] - wide["baseline"]).groupby("Party").mean()
    assert row["paired_difference"] == pytest.approx(gaps.mean(), abs=1e-9)
    assert row["mean_fine_tuned"] == pytest.approx(wide["fine-tuned"].groupby("Party").mean().mean())


@pytest.mark.slow
@pytest.mark.parametrize("estimand", ["prompts", "corpus", "parties"])
def test_no_estimand_finds_something_in_nothing(estimand):
    """Both tests, paired and unpaired, of frames in which nothing differs."""
    tables = [compare(weighted_frame(seed), [GRUEN], draws=9, estimand=estimand) for seed in range(400)]
    found = pd.concat(tables)[["p", "paired_p"]] < 0.05
    assert found.mean().between(0.03, 0.08).all()


def test_what_an_estimand_lacks_is_named(sides):
    for estimand, word in (("corpus", "weight"), ("parties", "Party"), ("people", "expected one of")):
        with pytest.raises(ValueError, match=word):
            compare(frame(*sides), [GRUEN], draws=9, estimand=estimand)
    with pytest.raises(ValueError, match="p0"):
        compare(frame(*sides).assign(weight=0.0), [GRUEN], draws=9, estimand="corpus")


@pytest.mark.parametrize("shift", [0.1, 1.0, 0.3, 1e-3, 1e4, -0.1])
def test_a_constant_shift_has_one_rule(sides, shift):
    row = compare(frame(sides[0], sides[0] + shift), [GRUEN], draws=50).iloc[0]
    undefined = ["paired_t", "paired_p", "paired_d", "wilcoxon_p", "ci_low", "ci_high", "paired_p_bonferroni"]
    assert row[undefined].isna().all() and row["paired_difference"] == pytest.approx(shift, rel=1e-6)
    assert row["paired_direction"] == ("better" if shift > 0 else "worse")


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("values", [(0.04, 0.04), (0.3, 0.1 + 0.2), (0.7, 0.8)])
def test_constants_have_no_test(values, scale):
    base, tuned = (np.full(n, value * scale) for value, n in zip(values, (10, 30), strict=True))
    row = compare(frame(base, tuned), [GRUEN], draws=50).iloc[0]
    assert row[["t", "p", "cohens_d", "paired_t", "paired_p", "paired_d", "wilcoxon_p"]].isna().all()
    apart = values == (0.7, 0.8)
    assert {row["direction"], row["paired_direction"]} == {"better" if apart else "no change"}
    assert row["cliffs_delta"] == (1 if apart else 0)


def test_a_small_spread_is_a_spread(sides):
    base, tuned = (0.5 + 1e-6 * side for side in sides)
    row, wide = (compare(frame(*pair), [GRUEN], draws=50).iloc[0] for pair in ((base, tuned), sides))
    assert row["paired_t"] == pytest.approx(wide["paired_t"], rel=1e-3) and row["t"] == pytest.approx(wide["t"], rel=1e-3)


def test_the_family_is_what_was_planned(sides):
    """An undefined test, and a model without a speech, stay in the count."""
    data = frame(*sides).assign(PPL=5.0)
    alone, planned = compare(data, [GRUEN], draws=9), compare(data, [GRUEN, PPL], draws=9, models=["m", "silent"])
    for p in ("p", "paired_p"):
        assert planned[f"{p}_bonferroni"].iloc[0] == pytest.approx(min(1, 4 * alone[p].iloc[0]))
        assert planned[f"{p}_bh"].iloc[0] == pytest.approx(min(1, 4 * alone[p].iloc[0]))
        assert planned[f"{p}_holm"].notna().sum() == 1
    assert planned["family"].unique() == ["4 tests planned: 2 models x 2 metrics, 1 of them defined"]
    assert planned["n_baseline"].tolist() == [40, 40, 0, 0]


def test_a_prompt_without_a_speaker_is_a_cluster_of_its_own(sides):
    data = frame(*sides).assign(speaker_id=None)
    ours, plain = (compare(data, [GRUEN], draws=300, cluster=c).iloc[0] for c in ("speaker_id", "prompt_id"))
    assert (ours["ci_low"], ours["ci_high"]) == (plain["ci_low"], plain["ci_high"])


def test_the_paired_verdict_goes_by_the_paired_difference():
    """One unanswered easy prompt turns the unpaired means round; the pairs say better."""
    rng = np.random.default_rng(0)
    base = np.append(rng.normal(0.2, 0.01, 30), np.full(90, np.nan))
    tuned = np.append(base[:30] + 0.1 + rng.normal(0, 0.01, 30), np.full(90, 0.0))
    row = compare(frame(base, tuned), [GRUEN], draws=50)
    assert row["direction"].tolist() == ["worse"] and row["paired_direction"].tolist() == ["better"]
    assert verdict(row, "pooled").tolist() == ["decline"] and verdict(row, "paired").tolist() == ["gain"]


def test_cliffs_delta():
    assert cliffs_delta(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1
    assert cliffs_delta(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    assert np.isnan(cliffs_delta(np.array([np.nan]), np.array([1.0])))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20), st.floats(0.1, 10))
def test_stability_is_bounded_and_scale_free(values, factor):
    value = stability(values)
    assert 0 < value <= 100
    assert stability([factor * v for v in values]) == pytest.approx(value)


def test_stability_of_the_papers_table_8():
    table = published(8)
    found = [round(stability(table[m]), 1) for m in ("Gemma 2 9B", "Llama 3.1 8B", "Mistral 7B v0.3", "Qwen2 7B", "Yi 6B")]
    assert found == [97.6, 95.2, 92.2, 94.1, 95.4]


@pytest.mark.parametrize("values", [[], [0.5], [0.0, 0.0], [np.nan, 0.5], [-0.1, 0.1]])
def test_stability_is_undefined(values):
    assert np.isnan(stability(values))


def test_stability_table_has_all_sets_and_a_chance_level(scores):
    by_metric = stability_by_metric(scores, draws=20, seed=1)
    table = stability_table(by_metric)
    assert len(table) == len(SETS)
    assert by_metric["p_chance"].dropna().between(0, 1).all() and (table["uneven"] <= table["tests"]).all()
    assert table["overall"].between(0, 100).all() and table["overall_by_chance"].between(0, 100).all()
    assert table["overall"].to_numpy() == pytest.approx(table[["affiliation", "topic", "orientation"]].mean(axis=1))


def test_difficulty_ranks_the_worst_party_first(scores):
    worse = scores.copy()
    columns = ["Party Align", "GRUEN", "BERTScore F1", "MoverScore", "J_Coh", "J_Qual", "J_Rel"]
    worse.loc[worse["Party"] == "Labour", columns] = worse[columns].min().to_numpy()
    table = difficulty(worse, "Party")
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
        table = difficulty(rows, by, how=how)
        assert np.ptp(table["difficulty"]) == pytest.approx(0, abs=1e-12) and set(table["left_out"]) == {"PSA"}
    hard = speech_difficulty(rows, how).groupby(rows["Party"]).mean()
    assert hard["Labour"] == pytest.approx(hard["Crossbench"])
    assert difficulty(rows[rows["Party"] == "Labour"], "Party", how=how)["left_out"].tolist() == [""]


def test_a_topic_with_many_such_speeches_does_not_rank_apart_either():
    rows = alike_but_for_psa()
    mixed = rows[(rows["Party"] == "Labour") | (rows["Topic"] == "Law")]
    even = mixed.assign(**{m.column: 2.0 if m.name == "PPL" else 0.5 for m in METRICS if m.name != "PSA"})
    even.loc[even["PSA"].notna(), "PSA"] = 0.1
    table = difficulty(even, "Topic", how="fixed")  # speeches without PSA are left out of its mean, not given the others' mean
    assert np.ptp(table["difficulty"]) == pytest.approx(0, abs=1e-12) and table["left_out"].tolist() == ["", ""]


@pytest.mark.parametrize("nothing", ["Unknown", None, np.nan, "", " "])
def test_no_orientation_is_no_group(scores, nothing):
    lacking = scores.assign(**{"Political Orientation": scores["Political Orientation"].replace("Unknown", nothing).astype(object)})
    without = scores[scores["Political Orientation"] != "Unknown"]
    key = ["model", "type", "context", "metric"]
    found, wanted = (stability_by_metric(f, draws=5).set_index(key).xs("orientation", level="context") for f in (lacking, without))
    counts = ["n_groups", "n"]
    assert found[counts].equals(wanted[counts]) and (found["n"] > 0).any()
    last = difficulty(lacking, "Political Orientation").iloc[-1]
    assert last["group"] == "Unknown" and pd.isna(last["rank"]) and last["n"] > 0


def test_nobody_has_an_orientation(scores):
    table = stability_by_metric(scores.assign(**{"Political Orientation": "Unknown"}), draws=5)
    assert table[table["context"] == "orientation"]["stability"].isna().all()


def test_anova_is_scipys():
    rng = np.random.default_rng(1)
    values, groups = pd.Series(rng.normal(size=32)), pd.Series([*"abc"] * 10 + ["alone", None])
    found = anova(values, groups)
    samples = [values[groups == g] for g in "abc"]
    assert (found["F"], found["p"]) == pytest.approx(stats.f_oneway(*samples))
    assert (found["H"], found["kruskal_p"]) == pytest.approx(stats.kruskal(*samples))
    assert found["eta2"] == pytest.approx(found["F"] * 2 / (found["F"] * 2 + 27))
    assert [found[name] for name in ("n", "groups", "df_between", "df_within")] == [30, 3, 2, 27]
    assert np.isnan(anova(values, pd.Series(["a"] * 32))["p"])


def test_uneven_groups_are_beyond_chance_and_even_ones_are_not(scores):
    rows = pd.concat([scores] * 6, ignore_index=True)
    rows["GRUEN"] = np.where(rows["Party"] == "Labour", 0.1, 0.9)
    rows["J_Qual"] = np.random.default_rng(3).uniform(1, 10, len(rows))
    table = stability_by_metric(rows, draws=60).set_index(["context", "metric"]).loc["affiliation"]
    assert (table.loc["GRUEN", "p_chance"] < 0.05).all() and (table.loc["J_Qual", "p_chance"] > 0.05).sum() >= 3
    assert (table.loc["GRUEN", "stability"] < table.loc["GRUEN", "by_chance"]).all()


def test_every_analysis_has_its_control(scores):
    table = anova_table(scores)
    assert table.groupby("control")["quantity"].nunique().tolist() == [3, 3]
    assert set(table["by"]) == {"Party", "Political Orientation"} and {"all", "human"} <= set(table["model"])


def test_deranged_psa_is_eq_2_for_the_next_orientation():
    rows = pd.DataFrame({"Political Orientation": ["Centre-left", "Right", "Unknown"], "PSA": [0.5, 0.5, np.nan]})
    rows["similarity"], rows["nearest_orientation"] = 0.6, "Centre-left"
    found = deranged_psa(rows)  # Centre-left is scored as Right (4), Right as Centre-left (-2)
    assert found.tolist()[:2] == pytest.approx([0.6 * (1 - 6 / 12), 0.6]) and np.isnan(found[2])
    assert deranged_psa(rows.drop(columns="similarity")).isna().all()
