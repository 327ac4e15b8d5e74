"""The permutation test of Self-BLEU finds what is there and nothing else."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.self_bleu import (
    comparable,
    leave_one_out,
    pools,
    require_variants,
    self_bleu,
    shared_ngrams,
    signature,
)
from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.robustness import (
    JOB_COLUMN,
    PUBLISHED,
    compare_permuted,
    compared_self_bleu,
    run_settings,
    self_bleu_test,
    settings_of,
)
from parliabench_utils.results.scores import cell_means
from parliabench_utils.results.statistics import compare
from parliabench_utils.run.params import resolve
from tests.results.synthetic import SETS, write_run

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


def frame(base: list[str], tuned: list[str], group: list[str]) -> pd.DataFrame:
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
    row = self_bleu_test(frame(base, tuned, contexts), group, draws=400, seed=3).iloc[0]
    assert row["unit"] == unit and row["difference"] > 0.1 and row["p"] == pytest.approx(1 / 401)


def test_p_is_even_where_types_do_not_differ():
    rng = np.random.default_rng(2)
    p = [self_bleu_test(frame(texts(8, rng), texts(8, rng), ["c"] * 8), "model", draws=40, seed=i)["p"].iloc[0] for i in range(40)]
    assert 0.3 < np.mean(p) < 0.7 and np.mean(np.array(p) < 0.1) < 0.25


def test_the_same_seed_gives_the_same_p():
    rng = np.random.default_rng(4)
    rows = frame(texts(9, rng), texts(9, rng), ["c"] * 9)
    first, again = (self_bleu_test(rows, draws=50, seed=5) for _ in range(2))
    assert first.equals(again)


def test_nothing_to_change_places_is_nan():
    rows = frame(["a b c"], ["a b d"], ["c"])
    assert np.isnan(self_bleu_test(rows, draws=20)["p"].iloc[0])
    assert self_bleu_test(rows.iloc[:0]).empty


def test_settings_come_from_the_signature():
    assert settings_of(signature("context", 3)) == ("context", 3)
    assert settings_of("Self-BLEU-4|group:prompt|published") == (PUBLISHED, 4)
    with pytest.raises(ValueError, match="05_text_metrics"):
        settings_of("PPL|model:x")


def test_the_permutation_p_takes_the_place_of_the_paired_one():
    rng = np.random.default_rng(6)
    rows = frame(texts(12, rng), texts(12, rng, WORDS[:4]), ["c"] * 12)
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


def test_sets_that_were_scored_by_different_settings_are_refused(tmp_path):
    folder = write_run(tmp_path / "run")
    assert run_settings(folder, SETS) == ("model", 4)
    other = folder / "05_text_metrics/human/human.signatures.json"
    other.write_text('{"Self-BLEU": "Self-BLEU-3|group:context|refs:all-others"}', encoding="utf-8")
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
