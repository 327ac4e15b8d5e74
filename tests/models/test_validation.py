"""The nine checks: real-looking speeches that must pass, broken ones that must not, and real members' words."""

import pytest

from parliabench_utils.models.validation import MARKERS, REASONS, ValidationSettings, longest_run, validate_speech

SHORT = ValidationSettings(min_words=5)

PASSING = {
    "a minister": "I am grateful to my hon. Friend for raising this. We have spent £3.2 billion since 2019, up 4% in real terms.",
    "a peer": "My Lords, I declare my interests. My Lords, this amendment is modest. I beg to move.",
    "Welsh": "Diolch, Mr Speaker. As we say in Wales, “Gorau arf, arf dysg”: learning is the best weapon, and colleges need funds.",
    "Gaelic": "I will finish with the words of my constituents in Stornoway, “Suas leis a' Ghàidhlig”, and I hope that he agrees.",
    "Latin": "This is, pro tanto, a Bill of attainder in all but name; fiat justitia, ruat caelum, as noble Lords will know well.",
    "figures": "In 2019, 2020, 2021 and 2022 there were 41, 38, 52 and 61 cases; a rise of 49% over the period.",
    "a list": "There are three points. First, the cost. Secondly, the delay. Thirdly, no impact assessment.",
    "anaphora": "We were told that bills would fall. We were told that wages would rise. We were told to wait. Why?",
    "hear, hear": "No, no, no—the hon. Gentleman is wrong, and he knows it, and the House will judge him.",
    "cannot": "I cannot give the hon. Lady a date today, but I am unable to see why the Department will not publish the response.",
    "AI policy": "Artificial intelligence is a great chance for Britain: as an AI superpower we must lead with care.",
    "a party": "The Labour party has no plan. The Conservative party has a plan, and the House has heard it set out many times.",
    "a quotation": "He told the House: “I will resign if the target is missed.” It was missed. Will he keep his word?",
}  # fmt: skip

WORDS = "The Minister has heard the case that the people of this country make, and it is time that he answered it."
FAILING = {
    "template_leakage": [f"{WORDS} <|im_end|>", f"PARTY: Labour\n{WORDS}", f"{WORDS}\nassistant\n{WORDS}", f"[INST] {WORDS}",
                         f"Topic: Energy\n{WORDS}", f"You are a seasoned UK parliamentary member. {WORDS}", f"<s>{WORDS}"],
    "corrupted_unicode": [f"{WORDS} Itâ€™s late.", f"{WORDS} cafÃ©.", f"{WORDS} 政府.", f"{WORDS} Министр.", f"{WORDS} 🎉.",
                          f"{WORDS} \ufffd.", f"{WORDS} الحكومة."],
    "not_english": [
        "Le ministre a entendu la demande des citoyens de ce pays et il est temps qu'il y réponde sans plus attendre.",
        "Der Minister hat gehört, was die Menschen in diesem Land fordern, und es ist an der Zeit, dass er antwortet.",
        "El ministro ha escuchado lo que pide la gente de este país y ya es hora de que responda a sus preguntas.",
        "Il ministro ha ascoltato le richieste dei cittadini di questo paese ed è ora che risponda alle loro domande.",
        "O ministro ouviu o que pedem as pessoas deste país e já é hora de responder às perguntas que elas fazem.",
        "De minister heeft gehoord wat de mensen in dit land vragen en het is tijd dat hij daarop eens antwoord geeft.",
    ],
    "repetition": [f"{WORDS} very very very very late.", "I thank the Minister. " * 4, f"{WORDS} " * 4,
                   f"{WORDS} 1. a 2. b 3. c 4. d 5. e 6. f 7. g 8. h.", "the the the the end of it is near now.",
                   f"We must act now, we must act now, we must act now, we must act now. {WORDS}"],
    "wrong_length": ["Yes.", "No, Minister.", "I beg to move.", "", "word " * 700, "Not moved."],
    "several_speeches": [
        "My Lords, I thank him. My Lords, I agree. My Lords, I beg to move. My Lords, I oppose it.",
        f"Mr Speaker, {WORDS} Mr Speaker, {WORDS} Mr Speaker, {WORDS} Mr Speaker, {WORDS}",
        f"Madam Deputy Speaker, {WORDS} My Lords, {WORDS} Mr Speaker, yes. Madam Speaker, {WORDS}",
        f"Mr. Speaker, {WORDS} Mr. Speaker, no. Mr. Speaker, yes. Mr. Speaker, {WORDS}",
        "My Lords, one. " * 5 + WORDS, "Mr Deputy Speaker, I rise. " * 4 + WORDS,
    ],
    "corrupted_ending": [f"{WORDS} And so the", f"{WORDS} and,", f"{WORDS}....", f"{WORDS} ###", f"{WORDS} s. t. u. v. w.",
                         f"{WORDS} the hon", f"{WORDS} !!!"],
    "refusal": [f"As an AI language model, {WORDS}", "I'm sorry, but I cannot assist with that request for a speech.",
                f"I am an AI and have no party. {WORDS}", "I cannot write a political speech for that party, I am afraid.",
                "I am unable to generate the speech that you ask for.", "I'm just a language model, so I have no view of it at all."],
}  # fmt: skip


@pytest.mark.parametrize("name", PASSING)
def test_what_members_really_say_passes(name):
    assert validate_speech(PASSING[name], settings=SHORT) == []


@pytest.mark.parametrize(("reason", "speech"), [(r, s) for r, speeches in FAILING.items() for s in speeches])
def test_broken_speeches_fail_their_check(reason, speech):
    assert reason in validate_speech(speech, settings=SHORT)


def test_every_check_has_examples():
    assert set(FAILING) | {"off_topic"} == set(REASONS)
    assert len(REASONS) == 9
    assert len(MARKERS) == len(set(MARKERS)) == 27


def test_off_topic_needs_a_similarity_under_the_threshold():
    assert validate_speech(WORDS, settings=ValidationSettings(min_words=5, similarity=0.0799)) == ["off_topic"]
    assert validate_speech(WORDS, settings=ValidationSettings(min_words=5, similarity=0.08)) == []


def test_similarity_is_computed_with_an_encoder():
    import numpy as np

    class Encoder:
        def encode(self, texts):
            return np.array([[1.0, 0.0] if "Minister" in text else [0.0, 1.0] for text in texts])

    prompt = {"Party": "Labour", "Topic": "Energy", "Section": "Prices", "instruction": ""}
    assert validate_speech(WORDS, prompt, ValidationSettings(min_words=5, encoder=Encoder())) == ["off_topic"]
    assert (
        validate_speech(WORDS, prompt | {"Section": "Minister"}, ValidationSettings(min_words=5, encoder=Encoder()))
        == []
    )


def test_a_speech_can_fail_several_checks_in_a_fixed_order():
    assert validate_speech("政府 <s>", settings=SHORT)[:2] == ["template_leakage", "corrupted_unicode"]


def test_longest_run_counts_whole_phrases():
    words = list("abcabcabcd")
    assert longest_run(words, 3) == 3
    assert longest_run(words, 1) == 1
    assert longest_run([], 3) == 1


@pytest.mark.shared
def test_false_alarms_on_real_speeches_are_under_two_per_cent(shared_data, tmp_path):
    from parliabench_utils.corpus import read_corpus

    for day in sorted((shared_data / "parlamint-gb-2022").glob("ParlaMint-GB_2022-10-1[78]-*.xml")):
        (tmp_path / day.name).symlink_to(day)
    corpus = read_corpus(tmp_path, people=shared_data / "parlamint-gb-2022/ParlaMint-GB.xml")
    speeches = corpus[(corpus["kind"] == "speech") & corpus["n_words"].between(43, 635)]["text"].tolist()
    rejected = [text for text in speeches if validate_speech(text)]
    assert len(speeches) > 300
    assert len(rejected) < 0.02 * len(speeches), [text[-60:] for text in rejected]
