"""All models at once: statsmodels' estimating equations, errors that hold when models spread unequally, edges that are said."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.robustness import mixed_models
from parliabench_utils.results.statistics import compare

GRUEN = [METRIC_BY_NAME["GRUEN"]]
TYPES = ("baseline", "fine-tuned")
SPREADS = {"noisy": 10.0, "quiet1": 1.0, "quiet2": 1.0, "quiet3": 1.0, "quiet4": 1.0}


def scores(effects=(0.1, 0.1), sd_prompt=0.05, prompts=60, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = rng.normal(0, sd_prompt, prompts)
    parts = [
        pd.DataFrame({"prompt_id": [f"p{i}" for i in range(prompts)], "model": f"m{m}", "type": kind})
        .assign(GRUEN=0.5 + level + effect * (kind == "fine-tuned") + rng.normal(0, 0.05, prompts))
        for m, effect in enumerate(effects)
        for kind in TYPES
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def nothing(prompts: int, seed: int, missing: float = 0.0, spreads: dict[str, float] = SPREADS) -> pd.DataFrame:
    """Scores that fine-tuning does not change, of models (and of types, with a tuple) that spread unequally."""
    rng = np.random.default_rng(seed)
    level, ids = rng.normal(0, 1, prompts), [f"p{i}" for i in range(prompts)]
    parts = [
        pd.DataFrame({"prompt_id": ids, "model": model, "type": kind})
        .assign(GRUEN=level + rng.normal(0, np.broadcast_to(sd, 2)[place], prompts))
        for model, sd in spreads.items()
        for place, kind in enumerate(TYPES)
    ]  # fmt: skip
    data = pd.concat(parts, ignore_index=True).assign(variant=0, weight=lambda f: 0.5 + (f["prompt_id"].str[-1] < "3"))
    data.loc[rng.random(len(data)) < missing, "GRUEN"] = np.nan
    return data


def false_positives(runs: int, estimand: str = "prompts", **how) -> pd.DataFrame:
    """Share of runs with p < 0.05, of each term."""
    tables = [mixed_models(nothing(seed=seed, **how), GRUEN, estimand).set_index("term")["p"] for seed in range(runs)]
    return (pd.concat(tables, axis=1) < 0.05).mean(axis=1)


@pytest.mark.parametrize("prompts, missing", [(18, 0.0), (24, 0.15)])
def test_unequal_spreads_give_no_false_effects(prompts, missing):
    """All terms together: 100 runs of seven terms."""
    assert 0.03 <= false_positives(100, prompts=prompts, missing=missing).mean() <= 0.08


@pytest.mark.slow
@pytest.mark.parametrize("estimand", ["prompts", "corpus"])
@pytest.mark.parametrize(
    "how",
    [
        {"prompts": 18},
        {"prompts": 24, "missing": 0.15},
        {"prompts": 200},
        {"prompts": 60, "spreads": {"a": (1.0, 5.0), "b": (3.0, 0.5), "c": 1.0}},
    ],
    ids=["18", "24, some missing", "200", "types differ"],
)
def test_unequal_spreads_give_no_false_effects_in_any_term(how, estimand):
    found = false_positives(400, estimand, **how)
    names = ["fine-tuned", "type x model", *(f"fine-tuned: {m}" for m in list(how.get("spreads", SPREADS))[:2])]
    assert found[names].between(0.03 if estimand == "prompts" else 0.02, 0.08).all()


def test_estimates_and_errors_are_statsmodels():
    import statsmodels.api as sm

    data = scores().sample(frac=0.8, random_state=1)  # unbalanced
    cell = pd.factorize(data["model"] + data["type"], sort=True)[0]
    fit = sm.GEE(data["GRUEN"], np.eye(4)[cell], data["prompt_id"], cov_struct=sm.cov_struct.Exchangeable())
    theirs = fit.fit(cov_type="bias_reduced")
    contrast = np.array([-0.5, 0.5, -0.5, 0.5])
    row = mixed_models(data, GRUEN).iloc[0]
    assert row["estimate"] == pytest.approx(contrast @ theirs.params.to_numpy(), rel=1e-4)
    assert row["se"] == pytest.approx(np.sqrt(contrast @ theirs.cov_params() @ contrast), rel=1e-3)
    assert row["sd_prompt"] ** 2 + row["sd_residual"] ** 2 == pytest.approx(theirs.scale, rel=1e-3)


def test_balanced_effect_is_the_paired_difference():
    data = scores()
    table = mixed_models(data, GRUEN).set_index("term")
    wide = data.pivot(index=["model", "prompt_id"], columns="type", values="GRUEN")
    gap = (wide["fine-tuned"] - wide["baseline"]).groupby("model").mean()
    assert table.loc["fine-tuned", "estimate"] == pytest.approx(gap.mean())
    assert table.loc["fine-tuned: m1", "estimate"] == pytest.approx(gap["m1"])
    assert table.loc["fine-tuned", "p"] < 1e-6 and table.loc["type x model", "df"] == 1
    assert table.loc["fine-tuned", "df_error"] == 59 and table.loc["type x model", "df_error"] == 59


@pytest.mark.parametrize("estimand", ["corpus", "parties"])
def test_effects_are_of_the_estimand(estimand):
    """As in the paired comparison: full data, so the same estimate for each model."""
    data = scores(prompts=30).assign(variant=0, Party=lambda f: np.where(f["prompt_id"].str.len() > 2, "A", "B"))
    data["weight"] = np.where(data["Party"] == "A", 0.5, 2.0)
    ours, theirs = (
        mixed_models(data, GRUEN, estimand).set_index("term"),
        compare(data, GRUEN, draws=9, estimand=estimand),
    )
    for row in theirs.itertuples():
        assert ours.loc[f"fine-tuned: {row.model}", "estimate"] == pytest.approx(row.paired_difference, abs=1e-6)
    assert ours["n_effective"].iloc[0] == pytest.approx(theirs["n_effective"].iloc[0])
    assert set(ours["estimand"]) == {estimand}


def test_effects_that_differ_between_models_are_found():
    assert mixed_models(scores((0.1, -0.1)), GRUEN).set_index("term").loc["type x model", "p"] < 1e-6


def test_no_variance_between_prompts_is_said():
    table = mixed_models(scores(sd_prompt=0.0, prompts=12, seed=2), GRUEN)
    assert (table["sd_prompt"] == 0).all() == table["note"].str.contains("share nothing").all()
    one = mixed_models(scores((0.1,)), GRUEN)
    assert one["term"].tolist() == ["fine-tuned"]


@pytest.mark.parametrize("change", [lambda f: f.assign(GRUEN=0.5), lambda f: f.assign(GRUEN=np.nan), lambda f: f.iloc[:0]])
def test_nothing_to_fit_is_a_row_with_a_note(change):
    row = mixed_models(change(scores()), GRUEN).iloc[0]
    assert np.isnan(row["estimate"]) and not row["converged"] and row["note"]


def shifted(data: pd.DataFrame, models: list[str], shift: float) -> pd.DataFrame:
    """Every prompt of `models` gains the same."""
    base = data[data["type"] == "baseline"].set_index(["model", "prompt_id"])["GRUEN"]
    mask = data["model"].isin(models) & data["type"].eq("fine-tuned")
    data.loc[mask, "GRUEN"] = base.loc[pd.MultiIndex.from_frame(data.loc[mask, ["model", "prompt_id"]])].to_numpy() + shift
    return data


@pytest.mark.parametrize("shift", [0.1, 1.0])
def test_a_constant_shift_has_an_estimate_and_no_test(shift):
    table = mixed_models(shifted(scores(), ["m0", "m1"], shift), GRUEN).set_index("term")
    assert table.loc[["fine-tuned", "fine-tuned: m0"], "estimate"].tolist() == pytest.approx([shift, shift])
    assert table[["se", "p", "ci_low"]].isna().all(axis=None) and table["note"].str.contains("same difference").all()
    one = mixed_models(shifted(scores(), ["m0"], shift), GRUEN).set_index("term")
    assert one.loc["fine-tuned: m0", "estimate"] == pytest.approx(shift) and np.isnan(one.loc["fine-tuned: m0", "p"])
    assert 0 <= one.loc["fine-tuned: m1", "p"] <= 1 and 0 <= one.loc["type x model", "p"] <= 1


def test_an_empty_cell_is_no_fit():
    data = scores()
    data.loc[data["model"].eq("m1") & data["type"].eq("baseline"), "GRUEN"] = np.nan
    assert not mixed_models(data, GRUEN)["converged"].any()
