"""What is a speech, what is a question, what is procedure, and what is noise inside a speech (section 3, step 3; notebook 01).

Each rule has a name; nothing is removed without a row that says by which rule. The rules know the UK Parliament's Hansard.

    >>> procedural_rule("Will the Minister give way?")
    'give way'
    >>> remove_noise("I disagree. [Interruption.] I do.")
    ('I disagree. I do.', [('interruption', '[Interruption.]')])
"""

import re

import pandas as pd

# --- questions ------------------------------------------------------------------------------------------------------
_NUMBER = r"(?:T?\d{1,3}\.|\([a-z]\))"  # Commons: "4.", topical "T2.", parts "(a)"
_COMMONS_QUESTION = re.compile(rf"{_NUMBER}\s")
_LORDS_QUESTION = re.compile(r"To ask (?:His|Her|the|Their) (?:Majesty['’]s )?Government\b")
_URGENT_QUESTION = re.compile(r"\(Urgent Question\)")
_NUMBERING = re.compile(rf"\s*(?:{_NUMBER}\s*)+")
_REFERENCE_NUMBER = re.compile(r"\s*\[\d{5,7}\]\.?\s*$")  # the Order Paper's number after a question, 2015 to 2017
# "hon. Friend", "per cent. of" and "No. 10" end no sentence.
_SENTENCE_END = re.compile(r"(?<=[.?])(?<!hon\.)(?<!cent\.)(?<!No\.)\s+(?=[A-Z“\"(])")
SPEECH_AFTER_QUESTION = 30  # words
# Without a number only "To ask" will do: notes hold whole paragraphs of speeches too, some of which begin with "What".
_NOTE_QUESTION = re.compile(
    rf"(?:{_NUMBER}\s+(?:To ask|What|Whether|If (?:he|she|they|the)|How|When|Why|Which)|To ask (?:His|Her|the))\b.{{15,}}"
)


def question_rule(text: str, house: str | None) -> str | None:
    """Return the name of the rule by which an utterance begins with a question, None where it does not."""
    if house == "House of Commons":
        if _URGENT_QUESTION.match(text):
            return "Commons: (Urgent Question)"
        kinds = {"T": "Commons: topical T2.", "(": "Commons: part (a)"}
        return kinds.get(text[0], "Commons: numbered 4.") if _COMMONS_QUESTION.match(text) else None
    if house == "House of Lords" and _LORDS_QUESTION.match(text):
        return "Lords: To ask the Government"
    return None


def question_kind(text: str, house: str | None, urgent_note: bool = False) -> str | None:
    """Return `question`, `urgent` or None for an utterance; `urgent_note`: a note announced a private notice question."""
    rule = question_rule(text, house)
    if rule is None:
        return None
    return "urgent" if "Urgent" in rule or (urgent_note and house == "House of Lords") else "question"


def announces_urgent(note: str) -> bool:
    """Say whether a note announces an urgent question (`Private Notice Question`, `Commons Urgent Question`)."""
    return note.endswith(("Private Notice Question", "Urgent Question"))


def note_is_question(note: str) -> bool:
    """Say whether a note holds a question's own words (`To ask …`, `3. Whether …`), as older volumes print them."""
    return _NOTE_QUESTION.match(note) is not None


def question_text(text: str) -> str:
    """Return a question without its number, its `(Urgent Question):` mark, the Order Paper's reference, and what follows it.

    A question is one sentence; topical ones (`T2.`) come with their preamble and are kept whole.
    """
    text = re.sub(r"^\(Urgent Question\):?\s*", "", text)
    topical = text.startswith("T") and _COMMONS_QUESTION.match(text)
    text = _NUMBERING.sub("", text, count=1) if _COMMONS_QUESTION.match(text) else text
    sentence = text if topical else _SENTENCE_END.split(text, maxsplit=1)[0]
    return _REFERENCE_NUMBER.sub("", sentence).strip()


def opens_a_speech(text: str) -> bool:
    """Say whether an utterance that begins with a question goes on as a speech (as in short debates of the Lords)."""
    return len(text.split()) - len(question_text(text).split()) >= SPEECH_AFTER_QUESTION


# --- procedure: whole utterances --------------------------------------------------------------------------------------
_ADDRESS = r"(?:My Lords|Mr Speaker|Madam Speaker|Mr Deputy Speaker|Madam Deputy Speaker|Sir|Madam)"
PROCEDURAL_RULES = {
    "rose": r"rose(?: to)?\s*[—–-]?",
    "indicated": r"(?:indicated|signified) (?:his|her|their|assent|dissent|consent)\b.{0,60}",
    "address only": rf"{_ADDRESS}\s*[—–,.-]*",
    "give way": r"(?:Will|Would|Could|Can) (?:the|my|he|she|they)\b[^?]{0,70}\bgive way\b[^?]{0,30}\?",
    "chair call": r"(?:I (?:now )?call|We (?:now )?come (?:now )?to|Let us now (?:come|go) to|Before I call)\b.{0,140}",
    "order": r"Order[.,!—].*",
    "point of order": r"(?:Further to that|On a) point of order, .{0,40}",
    "motion": (
        r"(?:(?:My Lords, )?I beg (?:to move|leave to)|That th(?:e|is) (?:Bill|House|order|amendment|draft|clause)|Moved)\b"
        r".{0,250}"
    ),
    "ask the question": r"[^.?!]{0,200}\bask the [Qq]uestion\b[^.?!]{0,80}\bname\b.{0,250}",
    "question put": (
        r"(?:Question (?:put|agreed)|Motion (?:made|agreed)|The (?:House|Committee) (?:divided|proceeded)|Division)\b"
        r".{0,300}"
    ),
    "interjection": r"(?:(?:Oh|Ah|Yes|No|Hear|Shame|Rubbish|Nonsense|Thank you)\b[^.!?]{0,12}|More|Too long)[.!?—]*",
}
# One pattern with a group a rule: `lastindex` says which one it was.
_PROCEDURAL = re.compile("|".join(f"({pattern})" for pattern in PROCEDURAL_RULES.values()), re.DOTALL)
_PROCEDURAL_NAMES = (None, *PROCEDURAL_RULES)
CHAIR_RULE = "chair speaks"  # the Speaker's own words (u/@ana #chair) are conduct of business and no party's speech


def procedural_rule(text: str, role: str = "regular") -> str | None:
    """Return the name of the rule by which a whole utterance is procedure, None where it is speech."""
    found = _PROCEDURAL.fullmatch(text)
    if found:
        return _PROCEDURAL_NAMES[found.lastindex]
    return CHAIR_RULE if role == "chair" else None


# --- noise: parts of an utterance -------------------------------------------------------------------------------------
NOISE_RULES = {
    "interruption": r"\[(?:Interruption|Laughter|Applause|Cheers|Disruption)\.?\]",
    "members shout": r"\[H(?:on|ON)\. M(?:embers|EMBERS):[^\]]{0,200}\]",
    "official report": r"\[Official Report,[^\]]{1,150}\]",
    "reference": r"\[(?:R|P\d{4,7}|\d{5,7}|Lords)\]",
    "relevant document": r"(?:^|(?<=[.!?] ))Relevant documents?: .*?Committee\b.{0,40}?(?:\.(?= |$)|$)",
    "question put": (
        r"(?:^|(?<=[.!?—] ))"
        r"(?:Question (?:put|agreed|accordingly)|The (?:House|Committee) (?:divided|proceeded to a)) .*$"
    ),
}
_NOISE = {name: re.compile(pattern, re.DOTALL) for name, pattern in NOISE_RULES.items()}
# What a rule must find in a text: looking for a word is much quicker than a pattern is.
_MARKS = dict.fromkeys(NOISE_RULES, ("[",)) | {
    "relevant document": ("Relevant document",),
    "question put": ("Question ", " divided ", " proceeded to a "),
}
_SUSPECT_BRACKET = re.compile(r"\[[^\]]{1,300}\]")


def remove_noise(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return `text` without editorial noise, and a (rule, removed text) pair for each removal."""
    removed: list[tuple[str, str]] = []
    for name, pattern in _NOISE.items():
        if not any(mark in text for mark in _MARKS[name]):
            continue
        found = [match.group(0) for match in pattern.finditer(text)]
        if found:
            removed += [(name, item) for item in found]
            text = pattern.sub(" ", text)
    if removed:
        text = re.sub(r"\s+([.,;:!?])", r"\1", " ".join(text.split()))
    return text, removed


def clean_speeches(speeches: pd.DataFrame) -> tuple[pd.DataFrame, list[dict[str, str]]]:
    """Return the utterances with noise removed from speeches, and a row (`id`, `rule`, `text`) for each removal.

    Questions and procedure keep their words. A speech of which nothing is left becomes procedure.
    """
    is_speech = (speeches["kind"] == "speech").tolist()
    outcomes = [remove_noise(text) if speech else (text, []) for text, speech in zip(speeches["text"], is_speech, strict=True)]
    rows = [
        {"id": identity, "rule": f"noise: {rule}", "text": text}
        for identity, (_, removed) in zip(speeches["speech_id"], outcomes, strict=True)
        for rule, text in removed
    ]
    texts = [text for text, _ in outcomes]
    kinds = ["procedural" if not text else kind for text, kind in zip(texts, speeches["kind"], strict=True)]
    n_words = [text.count(" ") + 1 if text else 0 for text in texts]  # one blank a gap
    return speeches.assign(text=texts, kind=kinds, n_words=n_words), rows


def suspect_brackets(text: str) -> list[str]:
    """Return the bracketed pieces that no rule removes: counted and shown, never deleted (ParlaMint issue 841)."""
    return _SUSPECT_BRACKET.findall(text)


LOST = ("\ufffd", "ï¿½")  # U+FFFD stands for a character that somebody could not read; the second is its own bytes misread


def with_lost_characters(speeches: pd.DataFrame) -> list[str]:
    """Return the ids of the utterances in whose words, heading or prompts a character is lost: told, and left as they are."""
    columns = zip(speeches["speech_id"], speeches["text"], speeches["section"], speeches["prompts"], strict=True)
    return [
        identity
        for identity, text, section, prompts in columns
        if any(mark in said for mark in LOST for said in (text, *prompts, section if isinstance(section, str) else ""))
    ]


_DOUBLE_QUOTES = dict.fromkeys(map(ord, "“”„‟«»″"), '"')
_SINGLE_QUOTES = dict.fromkeys(map(ord, "‘’‚‛′"), "'")


def plain_quotes(text: str) -> str:
    """Return `text` with typographic double quotes as `"`, single ones and apostrophes as `'`."""
    return text.translate(_DOUBLE_QUOTES | _SINGLE_QUOTES)
