"""What is asked to test a judge, and what the answers say of judges whose failings are known."""

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.metrics.judge import Reply, ask_all, judge_speeches
from parliabench_utils.metrics.judge_prompts import DIMENSIONS, Judgement, read_judge_spec
from parliabench_utils.metrics.judge_trust import (
    AGAIN,
    CONTROLS,
    LENGTH,
    _passes,
    _repeats,
    checks_frame,
    control_questions,
    controls_of,
    judgements_frame,
    repeat_questions,
    sample_speeches,
    second_questions,
    trust_display,
    trust_measures,
    verdicts,
)
from tests.metrics.test_judge_prompting import SPEECH

SPEC = read_judge_spec("smollm2-constrained")
CONTEXTS = [
    ("Labour", "Centre-left", "TRANSPORT", "trains"),
    ("Conservative", "Centre-right", "LAW", "courts"),
    ("Democratic Unionist Party", "Right", "TRANSPORT", "trains"),
    ("Crossbench", "Unknown", "LAW", "courts"),
]


def speech(n, model, kind):
    party, orientation, topic, word = CONTEXTS[n % 4]
    longer = {"human": n, "baseline": 3 * n % 7, "fine-tuned": 5 * n % 11}[kind]
    text = f"My Lords, first {word} of {party}. Then more {word}. Last {word}." + " Really." * longer
    return SPEECH | {
        "prompt_id": f"p{n:02d}", "model": model, "type": kind, "Party": party, "Political Orientation": orientation,
        "Topic": topic, "generated_speech": text if kind == "human" else text.replace("My Lords", "Well"), "n_words": 9 + longer,
    }  # fmt: skip


SETS = [("a", "baseline"), ("a", "fine-tuned"), ("human", "human")]
SPEECHES = {pair: [speech(n, *pair) for n in range(12)] for pair in SETS}
HUMAN = SPEECHES["human", "human"]


class Judge:
    """Answers `score(prompt, seed)`."""

    whole_speech, signature, versions = False, "fake", "none"

    def __init__(self, score):
        self.score = score

    def ask(self, prompts, seeds):
        return [Reply("", Judgement(self.score(q, s), "ok")) for q, s in zip(prompts, seeds, strict=True)]


def measured(tmp_path, score, second=None):
    engine, other = Judge(score), Judge(second or score)
    rows = {
        pair: judge_speeches(spoken, SPEC, engine, tmp_path / f"{'-'.join(pair)}.jsonl", run_seed=1)
        for pair, spoken in SPEECHES.items()
    }
    sample = sample_speeches(SPEECHES, 9)
    groups = control_questions(HUMAN, HUMAN, SPEC, 10, seed=1) + repeat_questions(sample, SPEC, 10, 3, seed=1)
    asked = ask_all(groups, engine, tmp_path / "trust.jsonl", run_seed=1)
    others = ask_all(second_questions(sample, SPEC, 10), other, tmp_path / "second.jsonl", run_seed=1)
    measures = trust_measures(judgements_frame(rows), SPEECHES, checks_frame(asked), checks_frame(others), 10, 10)
    return measures.set_index(["check", "dimension"])


def sound(prompt, seed):
    """Knows whether a speech is in order, on its topic, its party's, and reads the direction of the rubric."""
    text = prompt.text
    good = 2 + 6 * ("My Lords, first" in text.split(".")[0])
    if any(f"Topic: {topic}" in text and word not in text for _, _, topic, word in CONTEXTS):
        good = 1
    if prompt.dimension == "J_PolApp" and f"of {text.split('Party: ')[1].splitlines()[0]}." not in text:
        good = 1
    good = 1 if "lorem" in text else good
    best_last = prompt.own.index("outstanding") > prompt.own.index("no argument") if prompt.dimension == "J_Qual" else True
    return float(good if best_last else 11 - good)


def test_a_sound_judge_passes(tmp_path):
    found = measured(tmp_path, sound)
    for control, dimensions in CONTROLS.items():
        for name in dimensions:
            if (control, name) not in [("sentences shuffled", "J_Auth")]:
                assert found.loc[(f"above its control: {control}", name), "value"] > 0.7, (control, name)
    assert found.loc[("asked again: alpha", "J_Coh"), "value"] == 1
    assert found.loc[("asked again: standard deviation", "J_Coh"), "value"] == 0
    assert found.loc[("rubric reversed: Kendall's tau", "J_Qual"), "value"] == pytest.approx(1)
    assert found.loc[("rubric reversed: change of the mean", "J_Qual"), "value"] == 0
    assert found.loc[("second judge: quadratic kappa", "J_Coh"), "value"] == 1
    assert found.loc[("second judge: ICC(A,1)", "J_Coh"), "value"] == pytest.approx(1)
    assert found.loc[("human minus models", "J_Coh"), "value"] == 6
    verdict = verdicts(found.reset_index(), 10).set_index("dimension")
    assert "lorem ipsum" in verdict.loc["J_PolApp", "passed"]
    assert "party swapped" in verdict.loc["J_PolApp", "passed"]


def test_a_judge_that_ignores_the_rubric_is_found_out(tmp_path):
    found = measured(tmp_path, lambda q, seed: 1.0 + int(q.sha256[:2], 16) % 3 + 5 * ("My Lords" in q.text))
    assert found.loc[("rubric reversed: Kendall's tau", "J_Coh"), "value"] < 0
    assert "rubric reversed" in verdicts(found.reset_index(), 10).set_index("dimension").loc["J_Coh", "failed"]


def test_a_judge_that_counts_words_is_found_out(tmp_path):
    found = measured(tmp_path, lambda q, seed: min(10.0, len(q.shared.split()) / 5))
    slope = found.loc[(LENGTH, "J_Coh")]
    assert slope["low"] > 0 and slope["value"] == pytest.approx(20, rel=0.05)
    assert "points per 100 words" in verdicts(found.reset_index(), 10)["failed"].iloc[0]


def test_a_judge_that_throws_dice_is_found_out(tmp_path):
    dice = measured(tmp_path, lambda q, seed: float(seed % 10 + 1), second=lambda q, seed: float(seed // 7 % 10 + 1))
    assert dice.loc[("asked again: alpha", "J_Coh"), "value"] < 0.5
    assert dice.loc[("asked again: standard deviation", "J_Coh"), "value"] > 1
    assert dice.loc[("dimensions shuffled: largest change", "J_Coh"), "value"] == 0  # the same seeds: the order alone changed
    assert dice.loc[("second judge: quadratic kappa", "J_Coh"), "value"] < 0.6
    assert all("asked again" in failed for failed in verdicts(dice.reset_index(), 10)["failed"])


def test_a_constant_judge_and_no_answers_give_no_false_numbers(tmp_path):
    constant = measured(tmp_path, lambda q, seed: 5.0)
    assert constant.loc[("different scores", "J_Coh"), "value"] == 1
    assert np.isnan(constant.loc[("asked again: alpha", "J_Coh"), "value"])
    assert constant.loc[("above its control: lorem ipsum", "J_Coh"), "value"] == 0.5
    verdict = verdicts(constant.reset_index(), 10)
    assert (verdict["passed"] == LENGTH).all() and verdict["failed"].str.contains("above its control: lorem").all()
    assert verdict["undecided"].str.contains("second judge").all()  # nothing to measure with: neither passed nor failed
    none = trust_measures(judgements_frame({}), {}, checks_frame([]), checks_frame([]), 10, 5)
    assert none["value"].isna().sum() >= 6 * 8
    assert set(trust_display(none)["check"]) >= {"mean score", "above its control: lorem ipsum"}


def test_controls_change_what_they_say_and_nothing_else():
    controls = controls_of(HUMAN[0], HUMAN, seed=7)
    assert list(controls) == list(CONTROLS)
    assert controls == controls_of(HUMAN[0], HUMAN, seed=7)
    own = HUMAN[0]["generated_speech"]
    mixed = controls["sentences shuffled"]["generated_speech"]
    assert mixed != own and sorted(mixed.split()) == sorted(own.split())
    swapped = controls["party swapped"]
    assert swapped["generated_speech"] == own
    assert swapped["Party"] == "Democratic Unionist Party"  # the farthest from Labour
    other = controls["another topic's speech"]
    assert (other["Topic"], other["Party"]) == (HUMAN[0]["Topic"], HUMAN[0]["Party"])
    assert "courts" in other["generated_speech"]
    assert len(controls["lorem ipsum"]["generated_speech"].split()) == len(own.split())
    assert list(controls_of(HUMAN[0] | {"generated_speech": "One."}, HUMAN[:1], seed=7)) == ["lorem ipsum"]


def test_the_sample_takes_each_set_for_the_same_prompts():
    sample = sample_speeches(SPEECHES, 6)
    prompts = list(dict.fromkeys(s["prompt_id"] for s in sample))
    assert len(prompts) == 2
    assert [(s["prompt_id"], s["model"], s["type"]) for s in sample] == [(p, *pair) for p in prompts for pair in SETS]
    assert sample_speeches(SPEECHES, 4) == sample  # all sets of a drawn prompt, never a part of them
    assert sample_speeches(SPEECHES, 9)[:6] == sample  # more adds to fewer
    assert sample_speeches({}, 5) == [] == sample_speeches(SPEECHES, 0)
    assert sample_speeches(SPEECHES | {("b", "baseline"): []}, 6) == sample  # a set that said nothing does not empty it


def test_the_sample_is_drawn_from_all_days():
    long = {pair: [{"prompt_id": f"p{n:04d}", "set": pair} for n in range(1000)] for pair in SETS}
    places = [int(s["prompt_id"][1:]) for s in sample_speeches(long, 300, seed=1)]
    assert len(set(places)) == 100 and 400 < np.mean(places) < 600 and min(places) < 100 and max(places) > 900
    shuffled = {pair: spoken[::-1] for pair, spoken in long.items()}
    assert sample_speeches(shuffled, 300, seed=1) == sample_speeches(long, 300, seed=1)
    assert sample_speeches(long, 300, seed=2) != sample_speeches(long, 300, seed=1)


def test_the_first_variant_of_a_prompt_is_taken():
    spoken = [{"prompt_id": "p", "variant": v} for v in range(3)]
    assert sample_speeches({("a", "baseline"): spoken}, 1) == [spoken[0]]


def test_one_missing_rating_costs_one_speech():
    """Three speeches asked three times; the third has one rating, of which there is no spread."""
    keys = [{"model": "m", "type": "t", "prompt_id": f"p{i}", "variant": 0} for i in range(3)]
    own = pd.DataFrame([k | {"score": s} for k, s in zip(keys, [5.0, 6.0, np.nan], strict=True)])
    rounds = {2: [5.0, 6.0, 4.0], 3: [6.0, 7.0, np.nan]}
    rows = [k | {"check": f"{AGAIN} {n}", "score": s} for n, v in rounds.items() for k, s in zip(keys, v, strict=True)]
    found = _repeats(own, pd.DataFrame(rows), 10)
    assert found[f"{AGAIN}: standard deviation"] == (pytest.approx(1 / np.sqrt(3)), 2)
    assert found[f"{AGAIN}: alpha"][1] == 2


@pytest.mark.parametrize(
    ("low", "high", "passed"),
    [(-0.2, 0.5, True), (0.01, 0.05, True), (-2.0, 2.0, None), (0.1, 1.5, None), (0.3, 0.5, False), (0.8, 1.5, False),
     (-1.5, -0.8, False)],
)  # fmt: skip
def test_length_is_passed_failed_or_undecided(low, high, passed):
    row = pd.Series({"value": (low + high) / 2, "low": low, "high": high})
    assert _passes(LENGTH, row, 10) is passed
    assert _passes(LENGTH, row * 4 / 9, 5) is passed  # on five points the bounds shrink with the scale


def test_what_was_not_measured_is_undecided():
    nothing = pd.Series({"value": np.nan, "low": np.nan, "high": np.nan})
    assert _passes(LENGTH, nothing, 10) is None and _passes("second judge: ICC(A,1)", nothing, 10) is None


def test_the_display_is_text_with_intervals(tmp_path):
    table = trust_display(measured(tmp_path, sound).reset_index())
    row = table.set_index("check").loc["above its control: lorem ipsum"]
    assert row["J_Coh"] == "1.00 [0.76, 1.00]"
    assert table.map(type).eq(str).all(axis=None)
    assert pd.Series(["J_Rel"]).isin(table.columns).all() and set(DIMENSIONS) < set(table.columns)
