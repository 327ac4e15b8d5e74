"""Read a judge's reply: the last verdict counts, and what cannot be read is missing with a reason, never a number.

Notebook 07. The paper gives missing values the score -1 (section 10.8.1); averaged, that would lower a mean, so here a
failure has the score None and its reason stays in `status`.

>>> parse_judgement("<feedback>Clear.</feedback><score>8</score>")
Judgement(score=8.0, status='ok', feedback='Clear.')
"""

import re
from dataclasses import dataclass

INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
OPEN = re.compile(r"<\s*score\s*>", re.IGNORECASE)
CLOSE = re.compile(r"<\s*/\s*score\s*>", re.IGNORECASE)
FEEDBACK_OPEN = re.compile(r"<\s*feedback\s*>", re.IGNORECASE)
FEEDBACK_CLOSE = re.compile(r"<\s*/\s*feedback\s*>", re.IGNORECASE)
# "Score: 8", "**Score** is 8/10": a verdict of a judge that forgot its tags
UNTAGGED = re.compile(r"\bscore\b[\s*_:=]{0,8}(?:(?:is|of)\b)?[\s*_:=]{0,8}(?=[-−0-9])([^\n]*)", re.IGNORECASE)
# a number that is no part of a word or of a version such as 1.2.3, with what it is measured against ("/10", "out of 10", "%")
NUMBER = re.compile(
    r"(?<![\w.,])(?P<value>[-−]?[0-9]+(?:[.,][0-9]+)?)(?![\w]|[.,][0-9])"
    r"(?:\s?\(?(?:/|out\s+of|of)\s?(?P<of>[0-9]+)|\s?(?P<percent>%))?",
    re.IGNORECASE,
)
REFUSAL = re.compile(
    r"\bas an ai\b|\bi(?:['’]m| am) (?:unable|not able|sorry)"
    r"|\bi (?:cannot|can['’]t|will not|won['’]t|must decline)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Judgement:
    """One judgement. `score` lies within the scale, or is None and `status` names the reason.

    A status that begins with "ok" has a score: `ok`, `ok-decimal` (7.5), `ok-lenient` (8/10, **8**, Score: 8, capitals),
    `ok-untagged`, `ok-unclosed-feedback`, `ok-truncated` (the reply ends inside the score tag), `ok-weighted` (mean over
    the scale, from the constrained ending). Without a score: `empty`, `refusal`, `truncated`, `no-score`, `no-number`,
    `ambiguous`, `wrong-scale`, `out-of-range`; an engine adds `no-answer` and `prompt-too-long`.
    """

    score: float | None
    status: str
    feedback: str = ""


def parse_judgement(text: str, scale: tuple[int, int] = (1, 10)) -> Judgement:
    """Score, status and feedback of a reply; `text` is newly generated text only, without the prompt.

    Never raises for a string: random text gives a status. Escaped tags (`&lt;score&gt;`, as speeches are quoted in our
    prompts) are no verdict.
    """
    text = INVISIBLE.sub("", text)
    if not text.strip():
        return Judgement(None, "empty")
    body, start, status = _last_verdict(text)
    feedback, unclosed = _feedback(text[:start])
    if body is None:
        return Judgement(None, _why_missing(text, unclosed), feedback)
    score, reading = _read_number(body, scale)
    if score is None:
        empty_end = status == "ok-truncated" and not body.strip()
        return Judgement(None, "truncated" if empty_end else reading, feedback)
    if status == "ok-truncated" and str(scale[1]).startswith(body.strip()) and score != scale[1]:
        return Judgement(None, "truncated", feedback)  # "<score>1" may be the beginning of 10
    if status == "ok" and reading == "ok" and unclosed:
        status = "ok-unclosed-feedback"
    return Judgement(score, reading if status == "ok" else status, feedback)


def _last_verdict(text: str) -> tuple[str | None, int, str]:
    """(text of the last verdict or None, where it starts, status so far)."""
    opens = list(OPEN.finditer(text))
    if opens:
        return _tagged(text, opens)
    closes = list(CLOSE.finditer(text))
    if closes:  # "8</score>": the opening tag is missing
        line_start = max(text.rfind(mark, 0, closes[-1].start()) for mark in "\n>") + 1
        return text[line_start : closes[-1].start()], line_start, "ok-lenient"
    named = list(UNTAGGED.finditer(text))
    if named:
        return named[-1].group(1), named[-1].start(), "ok-untagged"
    if NUMBER.fullmatch(text.strip(" \n\t*_`.")):
        return text, 0, "ok-untagged"
    return None, len(text), ""


def _tagged(text: str, opens: list[re.Match]) -> tuple[str, int, str]:
    last = opens[-1]
    close = CLOSE.search(text, last.end())
    if close:
        exact = last.group() == "<score>" and close.group() == "</score>"
        return text[last.end() : close.start()], last.start(), "ok" if exact else "ok-lenient"
    rest = text[last.end() :]
    if not rest.strip() and len(opens) > 1 and not CLOSE.search(text, opens[-2].end()):
        return text[opens[-2].end() : last.start()], opens[-2].start(), "ok-lenient"  # "<score>8<score>"
    return rest, last.start(), "ok-truncated"


def _read_number(body: str, scale: tuple[int, int]) -> tuple[float | None, str]:
    """(score, "ok", "ok-decimal" or "ok-lenient") or (None, reason) for the text of one verdict."""
    low, high = scale
    found = list(NUMBER.finditer(body))
    if not found:
        return None, "no-number"
    values = {float(match["value"].replace("−", "-").replace(",", ".")) for match in found}
    if len(values) > 1:
        return None, "ambiguous"
    if any(match["percent"] or (match["of"] and float(match["of"]) != high) for match in found):
        return None, "wrong-scale"
    (value,) = values
    if not low <= value <= high:
        return None, "out-of-range"
    if value != int(value):
        return value, "ok-decimal"
    return value, "ok" if body.strip().isdecimal() else "ok-lenient"


def _feedback(before: str) -> tuple[str, bool]:
    """(feedback in the text before the verdict, whether its tag was left open)."""
    opened = FEEDBACK_OPEN.search(before)
    closes = list(FEEDBACK_CLOSE.finditer(before))
    start = opened.end() if opened else 0
    end = closes[-1].start() if closes and closes[-1].start() >= start else len(before)
    return before[start:end].strip(), bool(opened) and end == len(before)


def _why_missing(text: str, unclosed_feedback: bool) -> str:
    if REFUSAL.search(text):
        return "refusal"
    return "truncated" if unclosed_feedback or re.search(r"<\s*/?\s*[a-z]*\s*$", text, re.IGNORECASE) else "no-score"
