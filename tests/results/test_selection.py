"""Who drops out, whether by chance, and how far the missing speeches could move a result."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.robustness import ALL, CROSSED, composition, worst_case
from parliabench_utils.results.tables import selection_display

GRUEN, PPL, PSA = (METRIC_BY_NAME[name] for name in ("GRUEN", "PPL", "PSA"))


def scores(kept: np.ndarray) -> pd.DataFrame:
    n = len(kept)
    prompts = pd.DataFrame({"prompt_id": [f"p{i:02d}" for i in range(n)], "compared": kept, "Topic": "Law"})
    prompts["Party"] = np.where(np.arange(n) % 2, "Labour", "Conservative")
    prompts["House"] = "House of Commons"
    return pd.concat([prompts.assign(model="m", type=t) for t in ("baseline", "fine-tuned")], ignore_index=True)


def test_shares_before_and_after():
    table = composition(scores(np.arange(8) < 4), draws=50)
    party = table[table["by"] == "Party"]
    assert party["share_before"].tolist() == [0.5, 0.5] and party["kept"].sum() == 4
    assert table.groupby("by")["share_after"].sum().to_numpy() == pytest.approx(1)
    assert set(table["by"]) == {"Party", "House", "Topic", CROSSED}


def test_one_sided_dropping_is_found_and_even_dropping_is_not():
    one_sided = composition(scores(np.arange(40) % 2 == 0), draws=300).set_index("by").loc["Party"].iloc[0]
    even = composition(scores(np.arange(40) % 4 < 2), draws=300).set_index("by").loc["Party"].iloc[0]
    assert one_sided["p"] == pytest.approx(1 / 301) and even["p"] > 0.5
    assert one_sided["chi2"] == pytest.approx(40)  # as scipy.stats.chi2_contingency without correction


def test_members_do_not_keep_a_prompt_that_no_model_answered():
    kept = np.arange(20) >= 10
    rows = pd.concat([scores(kept), scores(np.ones(20, bool)).assign(model="human", type="human").drop_duplicates("prompt_id")])
    rows["Party"] = np.where(rows["prompt_id"] < "p10", "Green", "Labour")
    party = composition(rows, draws=200).query("by == 'Party'").set_index("group")
    assert party["kept"].to_dict() == {"Green": 0, "Labour": 10} and (party["p"] < 0.01).all()
    assert set(party["model"]) == {ALL} and len(party) == 2


def test_sets_that_keep_different_prompts_have_a_block_each():
    rows = scores(np.ones(20, bool))
    rows["Party"] = np.where(rows["prompt_id"] < "p10", "Green", "Labour")
    rows["compared"] = ~((rows["type"] == "baseline") & (rows["Party"] == "Green"))  # the baseline alone fails them
    table = composition(rows, draws=200).query("by == 'Party'").set_index(["type", "group"])
    assert table["kept"].to_dict() == {
        ("baseline", "Green"): 0, ("baseline", "Labour"): 10, ("fine-tuned", "Green"): 10, ("fine-tuned", "Labour"): 10
    }  # fmt: skip
    assert table.loc[("baseline", "Green"), "p"] < 0.01 and np.isnan(table.loc[("fine-tuned", "Green"), "p"])
    display = selection_display(composition(rows, draws=20), {"m": "M"}, ()).display
    assert set(display["Speeches of"]) == {"M (B)", "M (F)"}


@pytest.mark.parametrize("kept", [np.ones(6, bool), np.zeros(6, bool)])
def test_nothing_to_test(kept):
    table = composition(scores(kept), draws=20)
    assert table["p"].isna().all() and (table.loc[table["by"] == "Party", "kept"].sum() == kept.sum())


def values(base: list[float], tuned: list[float], metric=GRUEN) -> pd.DataFrame:
    data = scores(np.ones(len(base), bool))
    data[metric.column] = [*base, *tuned]
    return data


def test_complete_pairs_have_no_room():
    row = worst_case(values([0.1, 0.2], [0.4, 0.3]), [GRUEN]).iloc[0]
    assert row["lowest"] == row["highest"] == row["difference"] == pytest.approx(0.2) and row["sign_certain"]


def test_a_missing_side_may_be_anything_in_the_range():
    row = worst_case(values([0.1, 0.2], [0.4, np.nan]), [GRUEN]).iloc[0]
    assert row["n_pairs"] == 1 and row["n_prompts"] == 2
    assert (row["lowest"], row["highest"]) == (pytest.approx((0.3 - 0.2) / 2), pytest.approx((0.3 + 0.8) / 2))


def test_open_ended_metrics_use_the_runs_own_ends_and_undefined_prompts_do_not_count():
    row = worst_case(values([10, 20, np.nan], [30, np.nan, np.nan], PPL), [PPL]).iloc[0]
    assert row["n_prompts"] == 2 and row["highest"] == pytest.approx((20 + 10) / 2) and row["lowest"] == pytest.approx(5)
    nothing = worst_case(values([np.nan], [np.nan], PSA), [PSA]).iloc[0]
    assert nothing["n_prompts"] == 0 and np.isnan(nothing["lowest"]) and not nothing["sign_certain"]
