"""Reading replies: golden cases, the spec's table among them, and any text at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parliabench_utils.metrics.judge import parse_judgement
from tests.conftest import ROOT

CASES = json.loads((ROOT / "tests/golden/judge_replies.json").read_text(encoding="utf-8"))
PIECES = [
    "<score>",
    "</score>",
    "<feedback>",
    "</feedback>",
    "<Score>",
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
    "<",
]


def test_there_are_at_least_forty_cases():
    assert len({(c["reply"], tuple(c.get("scale", ()))) for c in CASES}) == len(CASES) >= 40


@pytest.mark.parametrize("case", CASES, ids=lambda c: repr(c["reply"][-40:]))
def test_golden(case):
    judgement = parse_judgement(case["reply"], tuple(case.get("scale", (1, 10))))
    assert (judgement.score, judgement.status) == (case["score"], case["status"])
    assert judgement.feedback == case.get("feedback", judgement.feedback)


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_gives_a_score_within_the_scale_or_a_reason(text):
    judgement = parse_judgement(text)
    assert judgement.status
    assert (judgement.score is None) != judgement.status.startswith("ok")
    assert judgement.score is None or 1 <= judgement.score <= 10


def test_long_replies_are_read_quickly():
    assert parse_judgement("<score>" * 20_000 + "9" * 20_000).score is None
    assert parse_judgement("score: " + "1." * 50_000).score is None
    assert parse_judgement("< " * 50_000).score is None
