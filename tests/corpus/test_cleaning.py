"""The rules for questions, procedure and noise."""

import pandas as pd
import pytest

from parliabench_utils.corpus import cleaning


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("rose—", "rose"),
        ("indicated assent.", "indicated"),
        ("My Lords—", "address only"),
        ("Will the hon. Gentleman give way on that point?", "give way"),
        ("I call the shadow Minister.", "chair call"),
        ("Order. I must ask the hon. Lady to start again.", "order"),
        ("On a point of order, Madam Deputy Speaker.", "point of order"),
        ("I beg to move, That the Bill be now read a Second time.", "motion"),
        ("Question put and agreed to.", "question put"),
        (
            "My Lords, on behalf of my noble friend, I beg leave to ask the Question standing in her name on the Order Paper.",
            "ask the question",
        ),
        ("Oh!", "interjection"),
        ("No, I will not.", "interjection"),
        ("I beg to move amendment 1. " + "It matters because buses matter. " * 30, None),
        ("My Lords, I am grateful to the Minister.", None),
        ("Will the Minister say how many buses run?", None),
        ("Orderly queues are British.", None),
    ],
)
def test_procedure_is_a_whole_utterance(text, rule):
    assert cleaning.procedural_rule(text) == rule


def test_the_chair_is_procedure_by_role():
    assert cleaning.procedural_rule("A word on dress in the Chamber.", "chair") == cleaning.CHAIR_RULE


@pytest.mark.parametrize(
    ("text", "clean", "rules"),
    [
        ("I see. [Interruption.] I do.", "I see. I do.", ["interruption"]),
        ("He said so [Laughter], twice.", "He said so, twice.", ["interruption"]),
        ("Resign! [Hon. Members: “Hear, hear!”] Now.", "Resign! Now.", ["members shout"]),
        ("We said so. [Official Report, 7/11/22; col. 535.]", "We said so.", ["official report"]),
        ("So I present it. [P002774]", "So I present it.", ["reference"]),
        ("I thank the House. Question put and agreed to. Bill read.", "I thank the House.", ["question put"]),
        ("That is the Question put to the Minister.", "That is the Question put to the Minister.", []),
        ("They “[did] know”.", "They “[did] know”.", []),
    ],
)
def test_noise_inside_a_speech(text, clean, rules):
    result, removed = cleaning.remove_noise(text)
    assert (result, [rule for rule, _ in removed]) == (clean, rules)
    assert cleaning.remove_noise(result) == (result, [])


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("4. What steps?", "What steps?"),
        ("T2. (a) What steps? [901234]", "What steps?"),
        ("(a) Whether buses run.", "Whether buses run."),
        ("(Urgent Question): To ask him.", "To ask him."),
        (
            "4. Whether his hon. Friend runs 5 per cent. of buses. I ask. [901234]",
            "Whether his hon. Friend runs 5 per cent. of buses.",
        ),
        ("T3. Buses matter. Will he act?", "Buses matter. Will he act?"),
        ("To ask His Majesty’s Government what.", "To ask His Majesty’s Government what."),
    ],
)
def test_numbering_is_removed(text, question):
    assert cleaning.question_text(text) == question


@pytest.mark.parametrize(
    "note",
    [
        "2.10 pm",
        "6(1) A misrepresentation may be made.",
        "Question",
        "Moved by",
        "What?",
        "What we have heard supports this.",
    ],
)
def test_other_notes_are_no_questions(note):
    assert not cleaning.note_is_question(note)


def test_quotes_are_plain():
    assert cleaning.plain_quotes("“It’s” «so»") == '"It\'s" "so"'


@pytest.mark.parametrize("note", ["To ask Her Majesty’s Government what plans they have.", "3. What steps he is taking."])
def test_notes_that_hold_a_question(note):
    assert cleaning.note_is_question(note)


@pytest.mark.parametrize(
    ("text", "house", "rule"),
    [
        ("4. What steps?", "House of Commons", "Commons: numbered 4."),
        ("T2. What steps?", "House of Commons", "Commons: topical T2."),
        ("(a) Whether buses run.", "House of Commons", "Commons: part (a)"),
        ("(Urgent Question): To ask him.", "House of Commons", "Commons: (Urgent Question)"),
        ("To ask His Majesty’s Government what.", "House of Lords", "Lords: To ask the Government"),
        ("To ask His Majesty’s Government what.", "House of Commons", None),
        ("4. What steps?", "House of Lords", None),
        ("4.5 million people agree.", "House of Commons", None),
    ],
)
def test_each_question_rule_has_a_name(text, house, rule):
    assert cleaning.question_rule(text, house) == rule


def test_lost_characters_are_found_in_words_headings_and_prompts():
    rows = [
        ("a", "All is well.", "Roads", []),
        ("b", "The caf\ufffd is shut.", "Roads", []),
        ("c", "Yes.", "Caf\ufffds", []),
    ]
    rows += [
        ("d", "Yes.", None, ["Whether the caf\ufffd is shut."]),
        ("e", "The cafÃ¯Â¿Â½ is shut.".encode("cp1252").decode(), None, []),
    ]
    frame = pd.DataFrame(rows, columns=["speech_id", "text", "section", "prompts"])
    assert cleaning.with_lost_characters(frame) == ["b", "c", "d", "e"]
