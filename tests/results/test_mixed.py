"""The mixed model is statsmodels' MixedLM; its edges are said, not hidden."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.mixed import fit_random_intercept, mixed_models

GRUEN = [METRIC_BY_NAME["GRUEN"]]


def scores(effects=(0.1, 0.1), sd_prompt=0.05, prompts=60, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = rng.normal(0, sd_prompt, prompts)
    parts = [
        pd.DataFrame({"prompt_id": [f"p{i}" for i in range(prompts)], "model": f"m{m}", "type": kind})
        .assign(GRUEN=0.5 + level + effect * (kind == "fine-tuned") + rng.normal(0, 0.05, prompts))
        for m, effect in enumerate(effects)
        for kind in ("baseline", "fine-tuned")
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_estimates_and_errors_are_statsmodels():
    import statsmodels.api as sm

    rng = np.random.default_rng(1)
    group, cell = np.repeat(np.arange(40), 6), np.tile(np.arange(6), 40)
    y = rng.normal(size=40)[group] + 0.3 * cell + rng.normal(size=240)
    kept = rng.random(240) > 0.2  # unbalanced
    y, x, group = y[kept], np.eye(6)[cell[kept]], group[kept]
    ours, theirs = fit_random_intercept(y, x, group), sm.MixedLM(y, x, group).fit()
    assert ours.converged and not ours.note
    assert ours.beta == pytest.approx(theirs.fe_params, abs=1e-4)
    assert np.sqrt(np.diag(ours.covariance)) == pytest.approx(theirs.bse_fe, rel=1e-3)
    assert ours.sd_group == pytest.approx(np.sqrt(theirs.cov_re[0, 0]), rel=1e-3)
    assert ours.sd_residual == pytest.approx(np.sqrt(theirs.scale), rel=1e-3)


def test_balanced_effect_is_the_paired_difference():
    data = scores()
    table = mixed_models(data, GRUEN).set_index("term")
    wide = data.pivot(index=["model", "prompt_id"], columns="type", values="GRUEN")
    gap = (wide["fine-tuned"] - wide["baseline"]).groupby("model").mean()
    assert table.loc["fine-tuned", "estimate"] == pytest.approx(gap.mean())
    assert table.loc["fine-tuned: m1", "estimate"] == pytest.approx(gap["m1"])
    assert table.loc["fine-tuned", "p"] < 1e-6 and table.loc["type x model", "df"] == 1


def test_effects_that_differ_between_models_are_found():
    assert mixed_models(scores((0.1, -0.1)), GRUEN).set_index("term").loc["type x model", "p"] < 1e-6


def test_no_variance_between_prompts_is_said():
    table = mixed_models(scores(sd_prompt=0.0, prompts=12, seed=2), GRUEN)
    assert (table["sd_prompt"] == 0).all() == table["note"].str.contains("share nothing").all()
    one = mixed_models(scores((0.1,)), GRUEN)
    assert one["term"].tolist() == ["fine-tuned"]


@pytest.mark.parametrize(
    "change", [lambda f: f.assign(GRUEN=0.5), lambda f: f.assign(GRUEN=np.nan), lambda f: f.iloc[:0]]
)
def test_nothing_to_fit_is_a_row_with_a_note(change):
    row = mixed_models(change(scores()), GRUEN).iloc[0]
    assert np.isnan(row["estimate"]) and not row["converged"] and row["note"]


def test_an_empty_cell_is_no_fit():
    data = scores()
    data.loc[data["model"].eq("m1") & data["type"].eq("baseline"), "GRUEN"] = np.nan
    assert not mixed_models(data, GRUEN)["converged"].any()
