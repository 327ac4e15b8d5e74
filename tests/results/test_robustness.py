"""The permutation test, one model of all speeches, who drops out, what is copied: each finds what is there and nothing else."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from parliabench_utils.metrics.distinct import words
from parliabench_utils.metrics.self_bleu import (
    comparable,
    leave_one_out,
    pools,
    require_variants,
    self_bleu,
    shared_ngrams,
    signature,
)
from parliabench_utils.metrics.table import METRIC_BY_NAME, METRICS
from parliabench_utils.results import robustness
from parliabench_utils.results.robustness import (
    ALL,
    CROSSED,
    JOB_COLUMN,
    PUBLISHED,
    compare_permuted,
    compared_self_bleu,
    composition,
    correlations,
    human_preference,
    memorisation,
    memorisation_summary,
    memorised,
    mixed_models,
    run_settings,
    self_bleu_test,
    worst_case,
)
from parliabench_utils.results.scores import cell_means
from parliabench_utils.results.statistics import compare
from parliabench_utils.results.tables import selection_display
from parliabench_utils.run.params import resolve
from tests.results.synthetic import SETS, write_run

GRUEN, PPL, PSA = (METRIC_BY_NAME[name] for name in ("GRUEN", "PPL", "PSA"))
WORDS = np.array(["the", "hon", "member", "asked", "about", "roads", "and", "schools", "in", "her", "town", "again", "today"])


def texts(n: int, rng: np.random.Generator, words: np.ndarray = WORDS) -> list[str]:
    return [" ".join(rng.choice(words, size=rng.integers(1, 40))) for _ in range(n)]


@pytest.mark.parametrize("max_n", [2, 4])
def test_sides_of_a_group_are_groups_of_their_own(max_n):
    rng = np.random.default_rng(0)
    speeches, groups, side = texts(31, rng), rng.integers(0, 4, 31), rng.random(31) < 0.5
    groups[0], side[0] = 9, True  # alone
    found = leave_one_out(shared_ngrams(speeches, groups, max_n), side)
    wanted = self_bleu(speeches, [(int(g), bool(s)) for g, s in zip(groups, side, strict=True)], max_n)
    assert found == pytest.approx(wanted, abs=1e-12, nan_ok=True) and np.isnan(found[0])


def spoken(base: list[str], tuned: list[str], group: list[str]) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"prompt_id": [f"p{i}" for i in range(len(t))], "variant": 0, "type": kind, "generated_speech": t})
        for kind, t in (("baseline", base), ("fine-tuned", tuned))
    ]
    made = pd.concat([part.assign(context_id=group) for part in parts], ignore_index=True).assign(model="m")
    keys = list(zip(made["type"], made["context_id"], strict=True))
    return made.assign(**{"Self-BLEU": self_bleu(made["generated_speech"].tolist(), keys)})


@pytest.mark.parametrize(("group", "unit"), [("model", "prompt"), ("context", "group")])
def test_more_repetition_is_found_by_either_way(group, unit):
    rng = np.random.default_rng(1)
    contexts = [f"c{i % 25}" for i in range(75)] if group == "context" else ["c"] * 20
    base, tuned = texts(len(contexts), rng), texts(len(contexts), rng, WORDS[:4])
    row = self_bleu_test(spoken(base, tuned, contexts), group, draws=400, seed=3).iloc[0]
    assert row["unit"] == unit and row["difference"] > 0.1 and row["p"] == pytest.approx(1 / 401)


def test_p_is_even_where_types_do_not_differ():
    rng = np.random.default_rng(2)
    p = [self_bleu_test(spoken(texts(8, rng), texts(8, rng), ["c"] * 8), "model", draws=40, seed=i)["p"].iloc[0] for i in range(40)]
    assert 0.3 < np.mean(p) < 0.7 and np.mean(np.array(p) < 0.1) < 0.25


def test_the_same_seed_gives_the_same_p():
    rng = np.random.default_rng(4)
    rows = spoken(texts(9, rng), texts(9, rng), ["c"] * 9)
    first, again = (self_bleu_test(rows, draws=50, seed=5) for _ in range(2))
    assert first.equals(again)


def test_nothing_to_change_places_is_nan():
    rows = spoken(["a b c"], ["a b d"], ["c"])
    assert np.isnan(self_bleu_test(rows, draws=20)["p"].iloc[0])
    assert self_bleu_test(rows.iloc[:0]).empty


def test_the_permutation_p_takes_the_place_of_the_paired_one():
    rng = np.random.default_rng(6)
    rows = spoken(texts(12, rng), texts(12, rng, WORDS[:4]), ["c"] * 12)
    row = compare(rows, [METRIC_BY_NAME["Self-BLEU"]], draws=50, permuted={"m": 0.5}).iloc[0]
    assert row["permutation_p"] == 0.5 == row["paired_p_bonferroni"] and row["paired_p"] < 0.01
    assert row["paired_direction"] == "worse" and row["n_human"] == 0


SELF_BLEU = [METRIC_BY_NAME["Self-BLEU"]]


def unequal(seed: int, answered: dict[tuple[str, str], int], variants: int = 1, leads: bool = True) -> pd.DataFrame:
    """The same source of text for every set, of which each answers the first so many prompts; scored as notebook 05 does."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(60)])
    topic = {p: rng.choice(words, 10, replace=False) for p in range(max(answered.values()))}
    parts = []
    for (model, kind), n in answered.items():
        asked = [(p, v) for p in range(n) for v in range(1 if kind == "human" else variants)]
        said = [" ".join(rng.choice([*topic[p], *words] if leads else words, 30)) for p, _ in asked]
        part = pd.DataFrame(asked, columns=["p", "variant"]).assign(model=model, type=kind, generated_speech=said)
        parts.append(part.assign(**{"Self-BLEU": self_bleu(said)}))
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(prompt_id=rows["p"].map("p{:03d}".format), context_id="c" + (rows["p"] % 3).astype(str), compared=True)


def test_equal_text_of_40_and_120_speeches_does_not_differ():
    rows = unequal(1, {("m", "baseline"): 40, ("m", "fine-tuned"): 120})
    naive = compare(rows[rows["p"] < 40], SELF_BLEU, draws=50).iloc[0]
    assert abs(naive["cohens_d"]) > 1  # what the jobs' own values say of the same prompts
    scores = compared_self_bleu(rows, "model")
    found, test = compare_permuted(scores, "model", draws=199, seed=1, metrics=SELF_BLEU)
    row = found.iloc[0]
    assert row["n_baseline"] == row["n_fine_tuned"] == row["n_pairs"] == 40
    assert abs(row["cohens_d"]) < 0.5 and row["permutation_p"] > 0.05 and row["ci_low"] < 0 < row["ci_high"]
    assert row["difference"] == pytest.approx(test["difference"].iloc[0]) and np.isnan(row["wilcoxon_p"])
    assert scores[JOB_COLUMN].equals(rows["Self-BLEU"])


@pytest.mark.parametrize("group", ["context", "model"])
@pytest.mark.parametrize("variants", [1, 3])
def test_every_set_has_the_same_prompts_in_every_pool(group, variants):
    answered = {("a", "baseline"): 12, ("a", "fine-tuned"): 30, ("b", "baseline"): 20, ("human", "human"): 40}
    rows = unequal(2, answered, variants)
    rows.loc[rows.sample(20, random_state=1).index, "generated_speech"] = None
    label = pools(rows, group)
    inside = rows.assign(pool=label, value=comparable(rows, group))[label.notna()]
    made = inside[inside["type"] != "human"].groupby(["model", "type", "pool"])["prompt_id"].apply(sorted)
    for _, prompts in made.groupby("pool"):
        assert len(prompts) == 3 and all(p == prompts.iloc[0] for p in prompts)  # three generated sets
        assert not pd.Series(prompts.iloc[0]).duplicated().any()
    people = inside[inside["type"] == "human"].groupby("pool")["prompt_id"].apply(sorted)
    assert len(people) and all(people[p] == made["a", "baseline", p] for p in people.index)
    assert rows.loc[label.isna(), "prompt_id"].ge("p012").any() and inside["value"].notna().sum() > 10


def test_variants_of_a_prompt_are_as_many_on_both_sides():
    rows = unequal(3, {("m", "baseline"): 8, ("m", "fine-tuned"): 8, ("human", "human"): 8}, variants=5)
    rows.loc[(rows["type"] == "baseline") & (rows["variant"] < 2), "generated_speech"] = None
    values = rows.assign(v=comparable(rows, "prompt")).groupby(["type", "prompt_id"])["v"].count().unstack("type")
    assert (values["baseline"] == 3).all() and (values["fine-tuned"] == 3).all() and (values["human"] == 0).all()


def test_a_set_that_said_nearly_nothing_bars_nobody():
    rows = unequal(4, {("m", "baseline"): 20, ("m", "fine-tuned"): 20, ("silent", "baseline"): 1})
    assert comparable(rows, "model").notna().groupby(rows["model"]).sum().to_dict() == {"m": 40, "silent": 0}
    assert comparable(rows.head(1), "model").isna().all() and comparable(rows.iloc[:0], "model").empty


def test_the_order_of_rows_and_their_index_do_not_matter():
    rows = unequal(5, {("m", "baseline"): 12, ("m", "fine-tuned"): 20}, variants=2)
    mixed = rows.sample(frac=1, random_state=3)
    for group in ("prompt", "context", "model"):
        assert np.allclose(comparable(mixed, group).sort_index(), comparable(rows, group), equal_nan=True)


@pytest.mark.parametrize("group", ["context", "model"])
def test_equal_values_under_the_complete_rule_are_those_of_notebook_05(group):
    rows = unequal(6, {("m", "baseline"): 15, ("m", "fine-tuned"): 15, ("human", "human"): 15})
    column = {"context": "context_id", "model": "model"}[group]
    wanted = pd.concat(
        [pd.Series(self_bleu(j["generated_speech"].tolist(), j[column].tolist()), j.index) for _, j in rows.groupby("type")]
    )
    assert np.allclose(comparable(rows, group), wanted.sort_index())


def test_published_values_stay_as_they_are():
    rows = unequal(7, {("m", "baseline"): 8, ("m", "fine-tuned"): 12})
    assert compared_self_bleu(rows, PUBLISHED)["Self-BLEU"].equals(rows["Self-BLEU"])
    shift = rows.assign(**{"Self-BLEU": np.where(rows["type"] == "baseline", 0.5, 0.6) + rows["p"] / 100})
    row = self_bleu_test(shift, PUBLISHED, draws=199).iloc[0]
    assert row["difference"] > 0 and row["p"] < 0.05 and row["unit"] == "group" and row["n_prompts"] == 8


def test_settings_are_data_beside_the_signatures_and_are_the_same(tmp_path):
    folder = write_run(tmp_path / "run")
    assert run_settings(folder, SETS) == ("model", 4)
    file = folder / "05_text_metrics/human/human.signatures.json"

    def of_people(record: dict) -> tuple[str, int]:
        file.write_text(json.dumps(record), encoding="utf-8")
        return run_settings(folder, [("human", "human")])

    for record in ({"Self-BLEU": signature("context", 3)}, {"settings": {"PPL": {}}}):
        with pytest.raises(ValueError, match="05_text_metrics"):
            of_people(record)
    assert of_people({"settings": {"Self-BLEU": {"group": "context", "max_n": 3}}}) == ("context", 3)
    with pytest.raises(ValueError, match="human/human"):
        run_settings(folder, SETS)


@pytest.mark.parametrize("profile", ["demo", "small", "paper"])
def test_every_profile_has_a_value_in_every_column(profile):
    """Self-BLEU of as many speeches a prompt as 04 makes, grouped as 05 asks for; 08 and 09 read the judge that 07 is."""
    group, variants = (
        resolve("05_text_metrics", profile, {}).self_bleu_group, resolve("04_generate", profile, {}).variants_per_prompt
    )  # fmt: skip
    require_variants(group, variants)
    rows = unequal(8, {("m", "baseline"): 6, ("m", "fine-tuned"): 6}, variants)
    made = compared_self_bleu(rows, group, resolve("05_text_metrics", profile, {}).self_bleu_n)
    cells = cell_means(made, metrics=SELF_BLEU)
    assert (cells["n"] > 0).all() and cells["mean"].notna().all() and len(cells) == 2
    assert len({resolve(n, profile, {}).judge for n in ("07_judge", "08_statistics", "09_figures")}) == 1
    known = resolve("05_text_metrics", profile, {})
    assert not known.bertscore_rescale or (known.bertscore_encoder, known.bertscore_layer) == ("roberta-large", 17)


def test_variants_that_nobody_made_are_refused():
    with pytest.raises(ValueError, match="variants_per_prompt of 04 to 2 or more"):
        require_variants("prompt", 1)
    require_variants("prompt", 2)
    require_variants("model", 1)
    require_variants("prompt", 0)  # members alone, who speak once


def null_run(seed: int, group: str) -> tuple[bool, bool]:
    """Whether the test is significant and whether the interval misses 0, where nothing differs but how many prompts are answered."""
    rows = compared_self_bleu(unequal(seed, {("m", "baseline"): 15, ("m", "fine-tuned"): 45}, leads=seed % 2 == 0), group)
    test = self_bleu_test(rows, group, draws=99, seed=seed).iloc[0]
    return test["p"] <= 0.05, not test["ci_low"] <= 0 <= test["ci_high"]


def test_few_null_runs_are_significant():
    assert np.mean([null_run(seed, "model") for seed in range(20)]) <= 0.15  # by the jobs' own values all of them are


@pytest.mark.slow
@pytest.mark.parametrize("group", ["model", "context"])
def test_one_null_run_in_twenty_is_significant(group):
    found = np.mean([null_run(seed, group) for seed in range(400)], axis=0)
    assert ((found >= 0.03) & (found <= 0.08)).all(), found


TYPES = ("baseline", "fine-tuned")
SPREADS = {"noisy": 10.0, "quiet1": 1.0, "quiet2": 1.0, "quiet3": 1.0, "quiet4": 1.0}


def answers(effects=(0.1, 0.1), sd_prompt=0.05, prompts=60, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = rng.normal(0, sd_prompt, prompts)
    parts = [
        pd.DataFrame({"prompt_id": [f"p{i}" for i in range(prompts)], "model": f"m{m}", "type": kind})
        .assign(GRUEN=0.5 + level + effect * (kind == "fine-tuned") + rng.normal(0, 0.05, prompts))
        for m, effect in enumerate(effects)
        for kind in TYPES
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def null_answers(prompts: int, seed: int, missing: float = 0.0, spreads: dict[str, float] = SPREADS) -> pd.DataFrame:
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
    tables = [mixed_models(null_answers(seed=seed, **how), [GRUEN], estimand).set_index("term")["p"] for seed in range(runs)]
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

    data = answers().sample(frac=0.8, random_state=1)  # unbalanced
    cell = pd.factorize(data["model"] + data["type"], sort=True)[0]
    fit = sm.GEE(data["GRUEN"], np.eye(4)[cell], data["prompt_id"], cov_struct=sm.cov_struct.Exchangeable())
    theirs = fit.fit(cov_type="bias_reduced")
    contrast = np.array([-0.5, 0.5, -0.5, 0.5])
    row = mixed_models(data, [GRUEN]).iloc[0]
    assert row["estimate"] == pytest.approx(contrast @ theirs.params.to_numpy(), rel=1e-4)
    assert row["se"] == pytest.approx(np.sqrt(contrast @ theirs.cov_params() @ contrast), rel=1e-3)
    assert row["sd_prompt"] ** 2 + row["sd_residual"] ** 2 == pytest.approx(theirs.scale, rel=1e-3)


def test_balanced_effect_is_the_paired_difference():
    data = answers()
    table = mixed_models(data, [GRUEN]).set_index("term")
    wide = data.pivot(index=["model", "prompt_id"], columns="type", values="GRUEN")
    gap = (wide["fine-tuned"] - wide["baseline"]).groupby("model").mean()
    assert table.loc["fine-tuned", "estimate"] == pytest.approx(gap.mean())
    assert table.loc["fine-tuned: m1", "estimate"] == pytest.approx(gap["m1"])
    assert table.loc["fine-tuned", "p"] < 1e-6 and table.loc["type x model", "df"] == 1
    assert table.loc["fine-tuned", "df_error"] == 59 and table.loc["type x model", "df_error"] == 59
    t, f = table["statistic"].iloc[:-1], table["statistic"].iloc[-1]
    assert table["p"].to_numpy() == pytest.approx(np.append(2 * stats.t.sf(t.abs(), 59), stats.f.sf(f, 1, 59)))
    assert (table["ci_high"] - table["ci_low"]).dropna().to_numpy() == pytest.approx(
        2 * stats.t.ppf(0.975, 59) * table["se"].dropna()
    )
    wide = wide["fine-tuned"] - wide["baseline"]
    assert f == pytest.approx(stats.ttest_1samp(wide["m1"] - wide["m0"], 0).statistic ** 2, rel=0.05)


@pytest.mark.parametrize("estimand", ["corpus", "parties"])
def test_effects_are_of_the_estimand(estimand):
    """As in the paired comparison: full data, so the same estimate for each model."""
    data = answers(prompts=30).assign(variant=0, Party=lambda f: np.where(f["prompt_id"].str.len() > 2, "A", "B"))
    data["weight"] = np.where(data["Party"] == "A", 0.5, 2.0)
    ours, theirs = (
        mixed_models(data, [GRUEN], estimand).set_index("term"),
        compare(data, [GRUEN], draws=9, estimand=estimand),
    )
    for row in theirs.itertuples():
        assert ours.loc[f"fine-tuned: {row.model}", "estimate"] == pytest.approx(row.paired_difference, abs=1e-6)
    assert ours["n_effective"].iloc[0] == pytest.approx(theirs["n_effective"].iloc[0])
    assert set(ours["estimand"]) == {estimand}


def test_effects_that_differ_between_models_are_found():
    assert mixed_models(answers((0.1, -0.1)), [GRUEN]).set_index("term").loc["type x model", "p"] < 1e-6


def test_no_variance_between_prompts_is_said():
    table = mixed_models(answers(sd_prompt=0.0, prompts=12, seed=2), [GRUEN])
    assert (table["sd_prompt"] == 0).all() == table["note"].str.contains("share nothing").all()
    one = mixed_models(answers((0.1,)), [GRUEN])
    assert one["term"].tolist() == ["fine-tuned"]


@pytest.mark.parametrize("change", [lambda f: f.assign(GRUEN=0.5), lambda f: f.assign(GRUEN=np.nan), lambda f: f.iloc[:0]])
def test_nothing_to_fit_is_a_row_with_a_note(change):
    row = mixed_models(change(answers()), [GRUEN]).iloc[0]
    assert np.isnan(row["estimate"]) and not row["converged"] and row["note"]


def shifted(data: pd.DataFrame, models: list[str], shift: float) -> pd.DataFrame:
    """Every prompt of `models` gains the same."""
    base = data[data["type"] == "baseline"].set_index(["model", "prompt_id"])["GRUEN"]
    mask = data["model"].isin(models) & data["type"].eq("fine-tuned")
    data.loc[mask, "GRUEN"] = base.loc[pd.MultiIndex.from_frame(data.loc[mask, ["model", "prompt_id"]])].to_numpy() + shift
    return data


@pytest.mark.parametrize("shift", [0.1, 1.0])
def test_a_constant_shift_has_an_estimate_and_no_test(shift):
    table = mixed_models(shifted(answers(), ["m0", "m1"], shift), [GRUEN]).set_index("term")
    assert table.loc[["fine-tuned", "fine-tuned: m0"], "estimate"].tolist() == pytest.approx([shift, shift])
    assert table[["se", "p", "ci_low"]].isna().all(axis=None) and table["note"].str.contains("same difference").all()
    one = mixed_models(shifted(answers(), ["m0"], shift), [GRUEN]).set_index("term")
    assert one.loc["fine-tuned: m0", "estimate"] == pytest.approx(shift) and np.isnan(one.loc["fine-tuned: m0", "p"])
    assert 0 <= one.loc["fine-tuned: m1", "p"] <= 1 and 0 <= one.loc["type x model", "p"] <= 1


def test_an_empty_cell_is_no_fit():
    data = answers()
    data.loc[data["model"].eq("m1") & data["type"].eq("baseline"), "GRUEN"] = np.nan
    assert not mixed_models(data, [GRUEN])["converged"].any()


def halves(kept: np.ndarray) -> pd.DataFrame:
    n = len(kept)
    prompts = pd.DataFrame({"prompt_id": [f"p{i:02d}" for i in range(n)], "compared": kept, "Topic": "Law"})
    prompts["Party"] = np.where(np.arange(n) % 2, "Labour", "Conservative")
    prompts["House"] = "House of Commons"
    return pd.concat([prompts.assign(model="m", type=t) for t in ("baseline", "fine-tuned")], ignore_index=True)


def test_shares_before_and_after():
    table = composition(halves(np.arange(8) < 4), draws=50)
    party = table[table["by"] == "Party"]
    assert party["share_before"].tolist() == [0.5, 0.5] and party["kept"].sum() == 4
    assert table.groupby("by")["share_after"].sum().to_numpy() == pytest.approx(1)
    assert set(table["by"]) == {"Party", "House", "Topic", CROSSED}


def test_one_sided_dropping_is_found_and_even_dropping_is_not():
    one_sided = composition(halves(np.arange(40) % 2 == 0), draws=300).set_index("by").loc["Party"].iloc[0]
    even = composition(halves(np.arange(40) % 4 < 2), draws=300).set_index("by").loc["Party"].iloc[0]
    assert one_sided["p"] == pytest.approx(1 / 301) and even["p"] > 0.5
    assert one_sided["chi2"] == pytest.approx(40)  # as scipy.stats.chi2_contingency without correction


def test_members_do_not_keep_a_prompt_that_no_model_answered():
    kept = np.arange(20) >= 10
    rows = pd.concat([halves(kept), halves(np.ones(20, bool)).assign(model="human", type="human").drop_duplicates("prompt_id")])
    rows["Party"] = np.where(rows["prompt_id"] < "p10", "Green", "Labour")
    party = composition(rows, draws=200).query("by == 'Party'").set_index("group")
    assert party["kept"].to_dict() == {"Green": 0, "Labour": 10} and (party["p"] < 0.01).all()
    assert set(party["model"]) == {ALL} and len(party) == 2


def test_sets_that_keep_different_prompts_have_a_block_each():
    rows = halves(np.ones(20, bool))
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
    table = composition(halves(kept), draws=20)
    assert table["p"].isna().all() and (table.loc[table["by"] == "Party", "kept"].sum() == kept.sum())


def both_sides(base: list[float], tuned: list[float], metric=GRUEN) -> pd.DataFrame:
    data = halves(np.ones(len(base), bool))
    data[metric.column] = [*base, *tuned]
    return data


def test_complete_pairs_have_no_room():
    row = worst_case(both_sides([0.1, 0.2], [0.4, 0.3]), [GRUEN]).iloc[0]
    assert row["lowest"] == row["highest"] == row["difference"] == pytest.approx(0.2) and row["sign_certain"]


def test_a_missing_side_may_be_anything_in_the_range():
    row = worst_case(both_sides([0.1, 0.2], [0.4, np.nan]), [GRUEN]).iloc[0]
    assert row["n_pairs"] == 1 and row["n_prompts"] == 2
    assert (row["lowest"], row["highest"]) == (pytest.approx((0.3 - 0.2) / 2), pytest.approx((0.3 + 0.8) / 2))


def test_open_ended_metrics_use_the_runs_own_ends_and_undefined_prompts_do_not_count():
    row = worst_case(both_sides([10, 20, np.nan], [30, np.nan, np.nan], PPL), [PPL]).iloc[0]
    assert row["n_prompts"] == 2 and row["highest"] == pytest.approx((20 + 10) / 2) and row["lowest"] == pytest.approx(5)
    nothing = worst_case(both_sides([np.nan], [np.nan], PSA), [PSA]).iloc[0]
    assert nothing["n_prompts"] == 0 and np.isnan(nothing["lowest"]) and not nothing["sign_certain"]


SENTENCE = st.lists(st.sampled_from("ab.c"), max_size=12).map(" ".join)


def longest(text: list[str], training: list[list[str]]) -> int:
    """By trying every run."""
    runs = {tuple(t[i:j]) for t in training for i in range(len(t)) for j in range(i, len(t) + 1)}
    return max((j - i for i in range(len(text)) for j in range(i, len(text) + 1) if tuple(text[i:j]) in runs), default=0)


@settings(max_examples=40, deadline=None)
@given(st.lists(SENTENCE, min_size=1, max_size=4), st.lists(SENTENCE, min_size=1, max_size=4))
def test_longest_run_is_that_of_a_plain_search(texts, training):
    found = memorised(texts, training)["longest_run"].tolist()
    assert found == [longest(words(t), [words(s) for s in training]) for t in texts]


def test_runs_do_not_cross_from_one_training_speech_into_the_next():
    assert memorised(["a b c d"], ["x a b", "c d y"])["longest_run"].tolist() == [2]


def test_overlap_and_passage():
    row = memorised(["One two three four five six. Other"], ["And ONE two three four five six again"]).iloc[0]
    assert row["longest_run"] == 6 and row["longest_passage"] == "one two three four five six" and row["n_words"] == 8
    assert row["overlap_5"] == pytest.approx(2 / 4) and row["overlap_8"] == 0 and np.isnan(row["overlap_13"])


def test_parts_of_the_training_set_give_what_the_whole_gives(monkeypatch):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdef"), 30)) for _ in range(12)]
    whole = memorised(texts[:4], texts[4:])
    monkeypatch.setattr(robustness, "CHUNK", 3)
    pd.testing.assert_frame_equal(whole, memorised(texts[:4], texts[4:]))


@pytest.mark.parametrize(("texts", "training"), [([None, ""], ["a b"]), (["a b"], []), (["a b"], [""])])
def test_empty_sides(texts, training):
    found = memorised(texts, training)
    assert (found["longest_run"] == 0).all() and (found["longest_passage"] == "").all()


def test_a_copying_model_stands_out_against_people():
    training = [f"we shall fight on the {place} and never give in" for place in ("beaches", "hills", "streets")]
    rows = pd.DataFrame({"prompt_id": [f"p{i}" for i in range(9)], "variant": 0})
    rows["model"], rows["type"] = ["copier"] * 3 + ["own"] * 3 + ["human"] * 3, ["baseline"] * 6 + ["human"] * 3
    rows["generated_speech"] = training + ["roads matter here"] * 3 + ["we shall see", "on the road", None]
    summary = memorisation_summary(memorisation(rows, training)).set_index("model")
    assert summary.loc["copier", "above_human_95"] == 1 and summary.loc["copier", "cliffs_delta"] == 1
    assert summary.loc["own", "above_human_95"] == 0 and summary.loc["human", "n"] == 2
    assert np.isnan(summary.loc["human", "p"])


def test_without_people_there_is_no_yardstick():
    rows = pd.DataFrame({"prompt_id": ["p"], "variant": [0], "model": ["m"], "type": ["baseline"], "generated_speech": ["a"]})
    assert np.isnan(memorisation_summary(memorisation(rows, ["a"]))["above_human_95"].iloc[0])


def test_human_preference_finds_the_better_side(scores):
    better = scores.copy()
    better.loc[better["type"] == "human", "J_Qual"] = 11
    better["J_Coh"] = 5.0
    table = human_preference(better).set_index("metric")["preference"]
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
    table = correlations(pd.concat([rows, few, human])).set_index(["first", "second"]).loc[("GRUEN", "J_Coh")]
    assert table["rho"] == pytest.approx(-1) and (table["n"], table["sets"]) == (60, 2)


def test_a_set_without_spread_does_not_count():
    rows = pd.DataFrame({m.column: np.arange(6.0) for m in METRICS}).assign(model="m", type="baseline")
    constant = rows.assign(type="fine-tuned", J_Coh=5.0)
    table = correlations(pd.concat([rows, constant])).set_index(["first", "second"])
    assert table.loc[("GRUEN", "J_Coh"), ["rho", "n", "sets"]].tolist() == [1, 6, 1]
    assert table.loc[("GRUEN", "PPL"), ["rho", "n", "sets"]].tolist() == [1, 12, 2]
    assert np.isnan(correlations(constant).set_index(["first", "second"]).loc[("GRUEN", "J_Coh"), "rho"])


def test_correlations_are_symmetric(scores):
    table = correlations(scores).pivot(index="first", columns="second", values="rho")
    assert np.allclose(table, table.T, equal_nan=True) and np.allclose(np.diag(table), 1)
