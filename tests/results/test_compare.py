"""t-tests, bootstrap and corrections against scipy, statsmodels and the paper."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.compare import cliffs_delta, compare, signed_rank_p, t_test_from_summary, verdict

GRUEN, PPL = METRIC_BY_NAME["GRUEN"], METRIC_BY_NAME["PPL"]


def frame(base: np.ndarray, tuned: np.ndarray, column: str = "GRUEN", ids: int = 0) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {"prompt_id": [f"p{i + offset}" for i in range(len(values))], "variant": 0, "type": kind, column: values}
        )
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
    assert (table["direction"].tolist() == ["worse"] and verdict(table).tolist() == ["decline"]) or table["p"].iloc[
        0
    ] > 0.05


def test_corrections_are_ordered(sides):
    data = pd.concat([frame(*sides), frame(sides[0], sides[0] + 0.01).assign(model="n")])
    table = compare(data, [GRUEN], draws=50)
    assert (table["p"] <= table["p_bh"]).all() and (table["p_bh"] <= table["p_holm"]).all()
    assert (table["p_holm"] <= table["p_bonferroni"]).all()
    assert table["family"].iloc[0].startswith("2 tests")


def test_bootstrap_repeats_with_its_seed_and_covers(sides):
    gaps = (sides[1] - sides[0])[:, None]
    first, again = (bootstrap_means(gaps, np.arange(40), 500, 1) for _ in range(2))
    assert (first == again).all()
    half = 1.96 * gaps.std() / np.sqrt(40)
    assert first[:, 0] == pytest.approx([gaps.mean() - half, gaps.mean() + half], abs=0.01)


def test_clusters_widen_the_interval():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(10), 20)
    values = (rng.normal(0, 1, 10)[clusters] + rng.normal(0, 0.1, 200))[:, None]
    wide, narrow = bootstrap_means(values, clusters, 500, 1), bootstrap_means(values, np.arange(200), 500, 1)
    assert np.ptp(wide) > 2 * np.ptp(narrow)


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
