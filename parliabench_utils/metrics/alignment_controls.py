"""The conditions under which notebook 06 puts Party Align to the test, and the guessers that PSA must beat.

A metric of politics should go on knowing parties when topic, House and office are held fixed, when courtesy forms and
party names are hidden, and when every speech is cut to the same length.

    hide = masker(["Labour"])
    hide("I thank my hon. Friend the Member for Eltham. Labour cut it.")    # 'I thank a member. party cut it.'
    controls = conditions(human, SentenceEncoder().encode)                  # for alignment_validation.validate
    guesses = guessing([0.8, 0.7], ["Left", "Right"], {"Left": 30, "Right": 10})     # (2, 14)
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from parliabench_utils.metrics.alignment import WIDEST
from parliabench_utils.metrics.residual import context_key

FIRST_WORDS = 150

# What members call parties, beside the corpus's names. "Green", "Alliance" and "Alba" alone are as often something else.
_NICKNAMES = (
    r"Conservatives?", r"Tory", r"Tories", r"(?:New )?Labour", r"Co-operative [Pp]arty", r"SNP", r"Nationalists?",
    r"Lib(?:eral)? Dem(?:ocrat)?s?", r"Liberals?", r"DUP", r"UUP", r"SDLP", r"(?:Democratic |Ulster )?Unionists?",
    r"Sinn F[eé]in", r"Plaid(?: Cymru)?", r"Greens", r"Green [Pp]arty", r"Alliance [Pp]arty", r"Alba [Pp]arty", r"UKIP",
    r"Brexit [Pp]arty", r"Reform UK", r"Change UK", r"Independent Group", r"Cross[- ]?[Bb]ench(?:er)?s?",
)  # fmt: skip
_NOT_A_NAME = {"Independent", "Non-Affiliated"}  # words that members use of much else

_ADDRESS = re.compile(r",?\s*\b(?:My Lords|(?:Mr|Madam)\.? (?:Deputy )?(?:Speaker|Chairman|Chair))\b,?")
_WORD = r"[A-Z][\w’'-]+"
_PLACE = rf"{_WORD}(?:\s+(?:(?:and|of|upon|on|under|the)\s+)*{_WORD})*"
_TITLED = rf"(?:Lord|Lady|Baroness|Viscount|Earl|Bishop)\s+(?:of\s+)?{_PLACE}"
# "Member for Birmingham, Erdington (Mrs ...)": a second place belongs to the seat where the name in brackets follows.
_SEAT = rf"Members?\s+for\s+{_PLACE}(?:,\s+{_PLACE}(?=\s+\())?(?:\s+\([^)]*\))?"
_STYLE = (
    r"(?:[Rr]ight\s+)?(?:[Hh]on(?:\.|ourable\b)|[Nn]oble|[Rr]everend)(?:(?:,|\s+and)\s+(?:learned|gallant|reverend))*"
)
_NOUN = r"(?:[Ff]riends?|Members?|Gentlem[ae]n|Lad(?:y|ies)|Lords?|Baroness(?:es)?|Viscount|Earls?|Prelates?)"
_WHO = r"(?:(?:[Mm]y|[Tt]he|[Tt]hat|[Tt]his|[Hh]is|[Hh]er|[Oo]ur|[Aa]n?)\s+)?"
_PERSON = re.compile(
    rf"\b{_WHO}(?:{_STYLE}\s+(?:{_SEAT}|{_NOUN}\b(?:,?\s+(?:the\s+)?(?:{_SEAT}|{_TITLED}))?)|{_SEAT}|{_TITLED})"
)


def masker(parties: Sequence[str]) -> Callable[[str], str]:
    """A function that hides courtesy forms, members named by seat or title, and names of parties, case by case.

    What a speech says of "the Government" and "the Opposition" stays: it is half of what there is to say.
    """
    names = [re.escape(name) for name in parties if name not in _NOT_A_NAME]
    longest_first = sorted({*names, *_NICKNAMES}, key=lambda name: (-len(name), name))
    party = re.compile(rf"\b(?:{'|'.join(longest_first)})(?:\s+[Pp]arty)?\b")

    def mask(text: str) -> str:
        text = _PERSON.sub("a member", _ADDRESS.sub("", text))
        return " ".join(party.sub("party", text).split())

    return mask


def first_words(text: str, n: int = FIRST_WORDS) -> str:
    """The first `n` words."""
    return " ".join(text.split()[:n])


@dataclass(frozen=True)
class Condition:
    """How human speeches are tested: their vectors (n, d), which `rows` (n,) take part, within which `strata` (n,) they
    are compared, and in which `contexts` they are made residual (None: not)."""

    name: str
    vectors: np.ndarray
    rows: np.ndarray
    strata: np.ndarray
    contexts: Sequence[str] | None = field(default=None)

    def only(self, rows: np.ndarray) -> "Condition":
        """The same condition for these row numbers alone."""
        contexts = None if self.contexts is None else [self.contexts[row] for row in rows]
        return Condition(self.name, self.vectors[rows], self.rows[rows], self.strata[rows], contexts)


def conditions(human: pd.DataFrame, encode: Callable[[list[str]], np.ndarray]) -> list[Condition]:
    """All conditions for speeches with `Speech, Party, Topic, House, is_government`; the first one changes nothing."""
    texts, office = human["Speech"].tolist(), human["is_government"].to_numpy(dtype=bool)
    everyone, together = np.ones(len(human), dtype=bool), np.zeros(len(human), dtype=int)
    topic, house = (pd.factorize(human[key].fillna("Unknown"), sort=True)[0] for key in ("Topic", "House"))
    contexts = [context_key(*pair) for pair in zip(human["House"], human["Topic"], strict=True)]
    vectors, hide = encode(texts), masker(sorted(human["Party"].unique()))
    return [
        Condition("all speeches", vectors, everyone, together),
        Condition("within topic", vectors, everyone, topic),
        Condition("within House", vectors, everyone, house),
        Condition("within government", vectors, office, together),
        Condition("outside government", vectors, ~office, together),
        Condition("names masked", encode([hide(text) for text in texts]), everyone, together),
        Condition(f"first {FIRST_WORDS} words", encode([first_words(text) for text in texts]), everyone, together),
        Condition("residual", vectors, everyone, together, contexts),
    ]


def guessing(similarity: Sequence[float], expected: Sequence[str | None], counts: Mapping[str, int]) -> pd.DataFrame:
    """Expected PSA (n_speeches,) of models that do not read, a column each; NaN where the orientation is not on the scale.

    They keep the speech's own `similarity` (Eq. 2's first factor) and only guess its place: `always O` for each of the
    orientations O of the scale, and, last, one drawn by its share in `counts`, training speeches of each orientation.
    """
    from parliabench_utils.corpus.organisations import ORIENTATION_SCALE

    places = np.array(list(ORIENTATION_SCALE.values()), dtype=np.float64)
    share = np.array([counts.get(name, 0) for name in ORIENTATION_SCALE]) / sum(counts.values())
    own = np.array([float(ORIENTATION_SCALE.get(label, np.nan)) for label in expected])
    factor = 1 - np.abs(own[:, None] - places[None, :]) / WIDEST  # (n_speeches, n_orientations)
    scale = np.asarray(similarity, dtype=np.float64)[:, None]
    guesses = pd.DataFrame(scale * factor, columns=[f"always {name}" for name in ORIENTATION_SCALE])
    return guesses.assign(**{"drawn by corpus share": (scale * factor) @ share})
