"""The nine checks: real-looking speeches that must pass, broken ones that must not, and real members' words."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from parliabench_utils.models.specs import load_tokenizer
from parliabench_utils.models.validation import (
    MARKERS,
    REASONS,
    ValidationSettings,
    longest_run,
    own_tokens,
    repetition,
    template_leakage,
    validate_speech,
)
from tests.conftest import ROOT

SHORT = ValidationSettings(min_words=5)
MINI = ROOT / "parliabench_utils/corpus/mini"

PASSING = {
    "template_leakage": [
        "The Labour party has no plan. The Conservative party has a plan, and the House has heard it set out many times.",
        "The topic: what energy costs. I have spoken to the Minister about the topic before, and I shall speak again.",
        "That section of the Bill says it plainly: the House, and not the party, decides. I urge Members to read it.",
        "The system has failed the user, and the assistant at the jobcentre could only say: come back next week.",
        "I shall not give way. [Interruption.] The instruction to the Committee is clear, and it binds this House.",
        "My hon. Friend speaks of his own political orientation: I speak of the people of Leith who cannot pay their rent.",
    ],
    "corrupted_unicode": [
        "In Tŷ Hafan, in Ysbyty Gwynedd and in every ward in Wales, nurses ask for £3.2 billion – no more—and no less.",
        "The café owners of Orkney, naïve as they may be, were promised ½ of the cost; they have had a quarter of it.",
        "The Taoiseach, Micheál Martin, and President Erdoğan met; so did Mr Zełenski. The House should welcome all of it.",
        "“I will resign”, he said, ‘tomorrow’. At 40°C the tracks buckle, and the Minister’s answer is a press release…",
        "As the Greek has it, πάντα ῥεῖ: everything flows, my Lords, except the traffic on the road to Dover.",
        "The estimates are: 1. £10m for Skye; 2. €4m for Derry; 3. nothing for Llŷn. That is not levelling up.",
    ],
    "not_english": [
        "Diolch, Mr Speaker. As we say in Wales, “Gorau arf, arf dysg”: learning is the best weapon, and colleges need funds.",
        "I will finish with the words of my constituents in Stornoway, “Suas leis a' Ghàidhlig”, and I hope that he agrees.",
        "This is, pro tanto, a Bill of attainder in all but name; fiat justitia, ruat caelum, as noble Lords will know well.",
        "President Macron said, “Je n’ai pas d’argent magique”, and the Chancellor, it seems, has found none either.",
        "Mae'n bleser gen i siarad heddiw: it is my pleasure to speak today, and I thank the Secretary of State for Wales.",
        "Brexit means Brexit, we were told; “Vorsprung durch Technik” was the answer of the car makers in Sunderland.",
    ],
    "repetition": [
        "No, no, no—the hon. Gentleman is wrong, and he knows it, and the House will judge him.",
        "We were told that bills would fall. We were told that wages would rise. We were told to wait. Why?",
        "My Lords, I declare my interests. My Lords, this amendment is modest. My Lords, I beg to move.",
        "In 2019, 2020, 2021 and 2022 there were 41, 38, 52 and 61 cases; a rise of 49% over the period.",
        "Education, education, education: that was the promise. What did they get? Cuts, cuts and more cuts to schools.",
        "There are three points. First, the cost. Secondly, the delay. Thirdly, no impact assessment.",
        "Some say that it is too late. I say that it is not. Some say that it costs too much. I say that it does not.",
    ],
    "several_speeches": [
        "My Lords, I declare my interests. My Lords, this amendment is modest. I beg to move.",
        "I thank you, Mr Speaker, and through you, Mr Speaker, the Clerks; I say to you, Mr Speaker, that we owe them much.",
        "My noble friends and my Lords Spiritual have spoken, and my Lords Temporal will speak: your Lordships will decide.",
        "Madam Deputy Speaker, I am grateful. The Speaker was right, and you, Madam Deputy Speaker, were right, to insist on it.",
        "Mr Speaker, I wrote to you in May, and I now ask the Leader of the House to say when the debate will be held.",
        "My Lords, I thank the noble Baroness for her amendment, and I shall be brief. My Lords, it is right; my Lords, it is late.",
    ],
    "corrupted_ending": [
        "He told the House: “I will resign if the target is missed.” It was missed. Will he keep his word?",
        "The Minister said that he would write to me (and to the Committee), and he has not (so far as I know).",
        "I ask him once more, on behalf of the people of St. Ives, to meet me and my right hon. Friend.",
        "That is what they said in 2019: “Get it done!” They have not done it, and now they say, “Get it done!”",
        "It was 4% in 2010, 7% in 2015 and it is 11% now. What will it be when he next comes to this Dispatch Box…",
        "I shall conclude, since you are looking at me, Madam Deputy Speaker, as you do. [Laughter.]",
    ],
    "refusal": [
        "I cannot give the hon. Lady a date today, but I am unable to see why the Department will not publish the response.",
        "Artificial intelligence is a great chance for Britain: as an AI superpower we must lead with care.",
        "I am sorry, but I will not give way: I have given way to the hon. Gentleman three times, and others want to speak.",
        "I cannot write a blank cheque, and the Chancellor will not write one: taxpayers in Bury would pay for it.",
        "I am an artificial intelligence sceptic, Mr Speaker, and I cannot support a Bill that leaves it all to companies.",
        "The Minister apologises, but I say this: as a large employer, the Department cannot create a fair rule for itself.",
    ],
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


@pytest.mark.parametrize(("check", "speech"), [(c, s) for c, speeches in PASSING.items() for s in speeches])
def test_what_members_really_say_passes(check, speech):
    assert validate_speech(speech, settings=SHORT) == []


@pytest.mark.parametrize(("reason", "speech"), [(r, s) for r, speeches in FAILING.items() for s in speeches])
def test_broken_speeches_fail_their_check(reason, speech):
    assert reason in validate_speech(speech, settings=SHORT)


def test_every_check_has_six_passing_and_six_failing_speeches():
    for check in set(REASONS) - {"off_topic", "wrong_length"}:
        assert len(FAILING[check]) >= 6 and len(PASSING[check]) >= 6
    assert len(REASONS) == 9
    assert len(MARKERS) == len(set(MARKERS)) == 27


TOKENS = [
    "<unused7>", "<pad>", "<unk>", "<mask>", "<|reserved_special_token_5|>", "<|python_tag|>", "<|eom_id|>", "[TOOL_CALLS]",
    "<|startoftext|>", "<think>", "</think>", "<|IM_END|>", "<| im_end |>", "<|im_end", "im_end|>", "&lt;|im_end|&gt;",
    "<｜end▁of▁sentence｜>", "<<SYS>>", "<</SYS>>", "<extra_id_0>", "<extra_id_99>", "[CLS]", "[SEP]", "[PAD]", "[MASK]",
    "[unused12]", "[/INST]", "[ /INST ]", "[inst]", "[AVAILABLE_TOOLS]", "[control_768]", "[gMASK]", "[IMG]",
    "<start_of_image>", "<0x0A>", "<2mass>", "<file_sep>", "<repo_name>", "<gh_stars>", "<jupyter_start>", "<tool_call>",
    "</tool_response>", "<|fim_prefix|>", "<|endoftext|>", "<|placeholder1|>", "<|channel>", "<channel|>", "<s>", "</s>",
    "<eod>", "<table>", "<br/>", "<seed:think>", "<reserved_17>", "[MODEL_SETTINGS]", "\n### Response:\n",
    "\n## Instruction\n", "<unk> <unk>",
]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_special_tokens_of_any_family_are_leaked_markup(token):
    assert "template_leakage" in validate_speech(f"{WORDS} {token} {WORDS}", settings=SHORT)
    assert "template_leakage" in validate_speech(f"{WORDS.removesuffix('.')}{token}.", settings=SHORT)


@pytest.mark.parametrize(
    "said",
    ["[Interruption.]", "[Laughter]", "[HON. MEMBERS: “Oh!”]", "[NATO]", "[Official Report, 2 March 2022; Vol. 4, c. 5.]",
     "a < b", "x<3, y > 4", "5 < 6 > 4", "Q&A", "AT&T", "£3 | £4", "[MPs]", "#MeToo", "&c.", "[sic]", "[Mask wearing]"],
)  # fmt: skip
def test_brackets_and_signs_that_members_use_are_words(said):
    assert "template_leakage" not in validate_speech(f"{WORDS} {said} {WORDS}", settings=SHORT)


@pytest.mark.parametrize("name", ["smollm2-135m"])
def test_every_special_token_of_the_loaded_tokenizer_is_found(name):
    tokenizer = load_tokenizer(name)
    assert set(own_tokens(tokenizer)) >= {"<|im_start|>", "<repo_name>"}
    for token in tokenizer.all_special_tokens + list(own_tokens(tokenizer)):
        assert "template_leakage" in validate_speech(f"{WORDS} {token} {WORDS}", settings=SHORT), token


def test_the_tokens_of_the_model_that_speaks_are_found_and_its_words_are_not():
    added = {0: "{{eot}}", 1: "Parliament", 2: "  ", 3: "@@end", 4: ".", 5: "\n\n"}
    tokenizer = SimpleNamespace(added_tokens_decoder={i: SimpleNamespace(content=text) for i, text in added.items()})
    settings = replace(SHORT, own_tokens=own_tokens(tokenizer))
    assert settings.own_tokens == ("@@end", "{{eot}}")
    assert validate_speech(f"{WORDS} {{{{eot}}}} {WORDS}", settings=settings) == ["template_leakage"]
    assert validate_speech(f"Parliament waits.\n\n{WORDS}", settings=settings) == []
    assert own_tokens(None) == ()


@pytest.mark.shared
def test_no_member_says_a_special_token(shared_data):
    from lxml import etree

    days = [
        *sorted((shared_data / "parlamint-gb-2022").glob("ParlaMint-GB_*.xml")),
        *sorted(MINI.rglob("ParlaMint-GB_*.xml")),
    ]
    speeches = [u for day in days for u in etree.parse(day).iter("{http://www.tei-c.org/ns/1.0}u")]
    said = [" ".join("".join(u.itertext()).split()) for u in speeches]
    assert len(said) > 5000
    assert not [text for text in said if template_leakage(text, SHORT)]


@pytest.mark.parametrize("words", [43, 44, 100, 300, 634, 635])
def test_a_length_within_the_limits_passes(words):
    assert "wrong_length" not in validate_speech("yes " * words)


@pytest.mark.parametrize("words", [0, 1, 42, 636, 1000, 5000])
def test_a_length_outside_the_limits_fails(words):
    assert "wrong_length" in validate_speech("yes " * words)


ENERGY = {"Party": "Labour", "Topic": "Energy", "Section": "Energy Prices", "House": "House of Commons", "Prompts": []}
HEALTH = ENERGY | {"Party": "Conservative", "Topic": "Social Questions", "Section": "NHS Waiting Times"}
ON_TOPIC = [
    (ENERGY, "Families in my constituency open the gas bill with dread. The price cap has doubled in a year, and wages have not."),
    (ENERGY, "We need wind and nuclear power, and a grid that can carry it to homes, so that electricity becomes cheap again."),
    (ENERGY, "Will the Secretary of State extend the windfall tax on oil and gas producers and help people to insulate homes?"),
    (HEALTH, "My mother waited nineteen hours on a trolley. Hospitals lack beds, nurses and doctors, and patients pay for it."),
    (HEALTH, "The number of people who wait for an operation has passed seven million, and cancer patients wait longest of all."),
    (HEALTH, "We are recruiting more GPs, and surgeries in Cornwall will see patients sooner. I commend the plan to the House."),
]  # fmt: skip
OFF_TOPIC = [
    (ENERGY, "Whisk the eggs with sugar until pale, fold in the flour, and bake for twenty minutes. Let the cake cool before icing."),
    (ENERGY, "The goalkeeper dived to his left, but the ball had gone in off the post, and the away fans sang until midnight."),
    (ENERGY, "Once upon a time a little rabbit lived in a hollow tree, and every evening he counted the stars over the meadow."),
    (HEALTH, "To sort a list in place, call its method with a key function; to keep the original, make a sorted copy instead."),
    (HEALTH, "The galaxy has two spiral arms, and its light left it before there were people to see it with telescopes."),
    (HEALTH, "She tuned her guitar, tried a minor chord, and hummed the melody that had followed her since the train."),
]  # fmt: skip


@pytest.fixture(scope="module")
def with_encoder():
    from parliabench_utils.models.embeddings import SentenceEncoder

    return ValidationSettings(min_words=5, encoder=SentenceEncoder("all-MiniLM-L6-v2", cache=False))


@pytest.mark.parametrize(("prompt", "speech"), ON_TOPIC)
def test_a_speech_on_its_topic_passes(with_encoder, prompt, speech):
    assert validate_speech(speech, prompt, with_encoder) == []


@pytest.mark.parametrize(("prompt", "speech"), OFF_TOPIC)
def test_a_text_about_something_else_fails(with_encoder, prompt, speech):
    assert validate_speech(speech, prompt, with_encoder) == ["off_topic"]


def test_off_topic_needs_a_similarity_under_the_threshold():
    assert validate_speech(WORDS, settings=ValidationSettings(min_words=5, similarity=0.0799)) == ["off_topic"]
    assert validate_speech(WORDS, settings=ValidationSettings(min_words=5, similarity=0.08)) == []


def test_similarity_is_computed_with_an_encoder():
    import numpy as np

    class Encoder:
        def encode(self, texts):
            return np.array([[1.0, 0.0] if "Minister" in text else [0.0, 1.0] for text in texts])

    prompt = {"Party": "Labour", "Topic": "Energy", "Section": "Prices", "House": "House of Lords", "instruction": ""}
    assert validate_speech(WORDS, prompt, ValidationSettings(min_words=5, encoder=Encoder())) == ["off_topic"]
    assert validate_speech(WORDS, prompt | {"Section": "Minister"}, ValidationSettings(min_words=5, encoder=Encoder())) == []


def test_a_speech_can_fail_several_checks_in_a_fixed_order():
    assert validate_speech("政府 <s>", settings=SHORT)[:2] == ["template_leakage", "corrupted_unicode"]


@pytest.mark.parametrize("size", range(3, 8))
@pytest.mark.parametrize("before", [0, 5])
def test_a_phrase_said_four_times_is_found_whatever_surrounds_it(size, before):
    """The short cut for texts without a repeated sequence of seven words must not hide it."""
    phrase = [f"w{i}" for i in range(size)]
    text = " ".join([*(f"a{i}" for i in range(before)), *phrase * 4, "z1", "z2."])
    assert repetition(text, SHORT)
    assert not repetition(text.replace("w1", "x", 2), SHORT)


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
