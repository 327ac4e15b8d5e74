"""Reading replies: golden cases, the spec's table among them, and any text at all."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parliabench_utils.metrics.judge_prompts import parse_judgement
from tests.conftest import ROOT

CASES = json.loads((ROOT / "tests/golden/judge_replies.json").read_text(encoding="utf-8"))
PIECES = [
    "<score>",
    "</score>",
    "<feedback>",
    "</feedback>",
    "<Score>",
    "<think>",
    "</think>",
    '{"score": ',
    "}",
    "8",
    "10",
    "-1",
    "/",
    ".",
    "%",
    " ",
    "\n",
    "\u200b",
    "score: ",
    "I give it ",
    "<",
]


def test_there_are_at_least_forty_cases():
    keys = {(c["reply"], tuple(c.get("scale", ())), c.get("cut", False)) for c in CASES}
    assert len(keys) == len(CASES) >= 40


@pytest.mark.parametrize("case", CASES, ids=lambda c: repr(c["reply"][-40:]))
def test_golden(case):
    judgement = parse_judgement(case["reply"], tuple(case.get("scale", (1, 10))), case.get("cut", False))
    assert (judgement.score, judgement.status) == (case["score"], case["status"])
    assert judgement.feedback == case.get("feedback", judgement.feedback)


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.booleans())
def test_any_text_gives_a_score_within_the_scale_or_a_reason(text, cut):
    judgement = parse_judgement(text, cut=cut)
    assert judgement.status
    assert (judgement.score is None) != judgement.status.startswith("ok")
    assert judgement.score is None or 1 <= judgement.score <= 10


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_what_is_thought_is_never_a_verdict(text):
    spoken = "<feedback>Clear.</feedback><score>7</score>"
    assert parse_judgement(f"{text}</think>{spoken}").score == 7
    assert parse_judgement(f"{text}</think>").score is None
    assert parse_judgement(f"<think>{text.replace('</think>', '')}").score is None


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_a_reply_that_was_cut_says_what_the_whole_one_says_or_nothing(text):
    whole, cut = parse_judgement(text), parse_judgement(text, cut=True)
    assert cut.score in (None, whole.score)


def test_feedback_stands_beside_a_verdict_in_whatever_form():
    for reply in ("Score: 7\nClear.", '{"score": 7, "reason": "Clear."}', "Clear.\nScore: 7"):
        assert parse_judgement(reply).feedback == "Clear."


LONG = {
    "tags": "<score>" * 20_000 + "9" * 20_000,
    "numbers": "score: " + "1." * 50_000,
    "brackets": "< " * 50_000,
    "one bracket": "<" + " " * 100_000,
    "feedback": "<feedback></feedback>" * 20_000,
    "objects": '{"a":' * 20_000 + "}" * 20_000,
    "mentions": "x score: 7 or 8 " * 20_000,
    "sentences": "I give it a " * 20_000,
    "lines": "Score:" + "\n" * 50_000,
}


@pytest.mark.parametrize("kind", LONG)
def test_long_replies_are_read_quickly(kind):
    began = time.perf_counter()
    assert parse_judgement(LONG[kind]).score is None
    assert time.perf_counter() - began < 5
