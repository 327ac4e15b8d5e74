"""The nine checks that a generated speech must pass, each a small function with a name (section 5.3 and the project page).

Notebook 04 draws a failed speech again. The rules know what real members do: quoted Welsh or Latin, "hon.", figures, and a peer's
repeated "My Lords" pass. Every check takes the text and the settings and says whether something is wrong.

    from parliabench_utils.models.validation import ValidationSettings, validate_speech
    validate_speech("As an AI language model, I cannot write a speech.", settings=ValidationSettings(min_words=5))   # ["refusal"]
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from parliabench_utils.models.embeddings import SentenceEncoder
from parliabench_utils.models.prompting import GENERIC_INSTRUCTION, instruction

# 27 markers, as many as the paper's project page counts; which ones it does not print.
SPECIAL_TOKENS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>",
    "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<s>", "</s>", "[INST]", "[/INST]",
)  # fmt: skip
ROLE_MARKERS = ("<|system|>", "<|user|>", "<|assistant|>", "### Response", "You are a seasoned UK parliamentary member")
CONTEXT_LABELS = ("PARTY:", "TOPIC:", "SECTION:", "ORIENTATION:", "HOUSE:", "Instruction:")
MARKERS = SPECIAL_TOKENS + ROLE_MARKERS + CONTEXT_LABELS
# Special tokens by their form, of whatever family and number: bars (ChatML, Llama 3, Qwen, Phi, GPT-2; DeepSeek's are wide), angle
# brackets (Llama 2, Gemma, T5, SmolLM2, thoughts, tools, bytes), Mistral's, BERT's and GLM's square ones, Alpaca's headings. What
# Hansard puts in brackets are words: [Interruption.], [HON. MEMBERS: “Oh!”], [NATO].
TOKENS = re.compile(
    r"<\s?[|｜]|[|｜]\s?>|</?(?:[a-z_]|[0-9]+[a-z])[\w:.-]{0,40}\s?/?>|<<\s?/?sys\s?>>"
    r"|\[\s?/?(?:inst|cls|sep|pad|unk|mask|[gs]mask|bos|eos|img|audio|think|args|prefix|middle|suffix|multimodal|@bos@)\s?\]"
    r"|\[\s?/?(?:unused|control_|extra_id_|reserved_)[0-9]+\s?\]|\[\s?/?[a-z]+_[a-z_]+[0-9]*\s?\]"
    r"|^#{2,}\s*(?:instruction|response|input|human|assistant|user|system)\b",
    re.IGNORECASE | re.MULTILINE,
)
ROLE_LINE = re.compile(r"^\W*(system|user|assistant|model)\W*$", re.I | re.M)
LABEL_LINE = re.compile(r"^\W*(party|topic|section|(political )?orientation|house|context|instruction)\**:", re.I | re.M)

# 14 patterns of text that was decoded wrongly or escaped twice.
CORRUPTIONS = (
    "\ufffd", "Ã©", "Ã¨", "Ã¢", "Ã¼", "Â£", "Â ", "â€", "ï»¿", "ï¿½", "\\u00", "\\u20", "\\x", "&#x",
)  # fmt: skip
# 11 ranges that have no place in a British speech. Greek and Latin letters with marks (Welsh ŵ, Gaelic ò) have.
FORBIDDEN = re.compile(
    "["
    "\u0000-\u0008\u000b-\u001f\u007f-\u009f"  # control characters
    "\u0400-\u052f"  # Cyrillic
    "\u0590-\u05ff"  # Hebrew
    "\u0600-\u06ff"  # Arabic
    "\u0900-\u0dff"  # Indic scripts
    "\u0e00-\u0eff"  # Thai, Lao
    "\u2500-\u27bf"  # boxes, symbols, dingbats
    "\u3040-\u30ff"  # Japanese
    "\u3400-\u9fff"  # CJK
    "\uac00-\ud7af"  # Korean
    "\ue000-\uf8ff\U0001f000-\U0001faff"  # private use, emoji
    "]"
)

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
OPENING = re.compile(
    r"(?:^|(?<=[.!?\"”\n])\s*)(?:My Lords|Mr\.? Speaker|Madam Speaker|(?:Mr\.?|Madam) Deputy Speaker|Lord Speaker)\s*,"
)
ENGLISH = {"the", "of", "and", "to", "that", "for", "this", "have", "with", "are", "which", "not", "was", "they"}
TAIL = 80  # characters in which an ending is looked for
MODEL = r"(?:AI|artificial intelligence|(?:large )?language model)"
WRITE = r"(?:generate|write|create|compose|produce)"
CANNOT = r"(?:(?: cannot| can't| can not| won't| will not)|(?:'m| am) (?:un|not )able to)"
REFUSALS = (
    re.compile(rf"\bas an? {MODEL}\b(?= ?(?:language|model|assistant|,|I\b))", re.I),
    re.compile(rf"\bI(?:'m| am) (?:just |only )?an? {MODEL}\b(?! (?:expert|minister|sceptic))", re.I),
    re.compile(rf"\bI{CANNOT} {WRITE} (?:\w+ ){{1,4}}?(?:speech|text|content|response|statement)\b", re.I),
    re.compile(
        r"^\W*(?:I'm sorry|I am sorry|I apologi[sz]e|Sorry|Unfortunately),? but (?:I|as)\b"
        r".{0,60}\b(?:assist|help you|fulfil+|comply|generate|write)\b",
        re.I,
    ),
    re.compile(r"\b(?:my training data|my knowledge cut-?off|I don't have personal (?:opinions|beliefs))\b", re.I),
)
# A dash behind a word is how the record marks that a member was interrupted. "my hon." is no end.
GOOD_END = re.compile(r"(?:[.!?…](?:[\"”'’)\]]){0,2}|\w[—–])$")
BAD_END = re.compile(r"(?:[!?,;:]{3,}|\.{4,}|(?:\b[A-Za-z]\b[ .]*){5,}|[#*_|\\/<>{}=~^`-]{2,}\W*|\b(?:hon|Mrs?|Ms|Dr|St)\.)$")


@dataclass(frozen=True)
class ValidationSettings:
    """Thresholds of the checks; the defaults are the paper's and its page's. `similarity` is filled in per speech."""

    min_words: int = 43
    max_words: int = 635
    min_similarity: float = 0.08  # cosine, speech to context
    max_other_language: float = 0.85  # probability in [0, 1] of the likeliest language that is not English
    max_word_run: int = 3  # one word, times running
    max_phrase_run: int = 3  # 3 to 7 words, times running
    max_phrase_total: int = 3  # 7 words or more, times in all
    max_counting: int = 6  # consecutive whole numbers in order
    max_openings: int = 3
    similarity: float | None = None  # precomputed; None with an encoder computes it, without one skips the check
    encoder: Any = None  # models.embeddings.SentenceEncoder
    own_tokens: tuple[str, ...] = ()  # special and added tokens of the model that speaks


def validation_settings(p: Any) -> ValidationSettings:
    """The thresholds among notebook 04's parameters, with the encoder of the semantic check."""
    named = ("min_words", "max_words", "min_similarity", "max_other_language", "max_word_run", "max_phrase_run", "max_openings")
    return ValidationSettings(**{name: getattr(p, name) for name in named}, encoder=SentenceEncoder(p.encoder))


def template_leakage(speech: str, settings: ValidationSettings) -> bool:
    """A special token of the model or of any family, one of 27 markers, or a line that is a label or a role."""
    speech = html.unescape(speech)
    spelt = any(marker in speech for marker in (*MARKERS, *settings.own_tokens))
    return spelt or any(pattern.search(speech) for pattern in (TOKENS, ROLE_LINE, LABEL_LINE))


def own_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Texts of a tokenizer's special and added tokens; those that spell a word, punctuation or white space may be said by anybody."""
    texts = {token.content.strip() for token in tokenizer.added_tokens_decoder.values()} if tokenizer else set()
    return tuple(sorted(text for text in texts if len(text) > 2 and re.search(r"[<>\[\]{}|｜@#_]", text)))


def corrupted_unicode(speech: str, settings: ValidationSettings) -> bool:
    """One of 14 patterns of wrong decoding, or a character of 11 foreign ranges."""
    return any(pattern in speech for pattern in CORRUPTIONS) or bool(FORBIDDEN.search(speech))


@lru_cache(maxsize=1)
def _language_model():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def not_english(speech: str, settings: ValidationSettings) -> bool:
    """Other languages together are likelier than `max_other_language`. A quotation does not tip a speech.

    The detector takes most of the nine checks' time, so a text of which a sixth are words that only English has is not given to it.
    """
    words = speech.lower().split()
    if 6 * sum(word in ENGLISH for word in words) >= len(words) > 0:
        return False
    return 1 - dict(_language_model().rank(speech))["en"] > settings.max_other_language


def longest_run(words: list[str], size: int) -> int:
    """How many times the same `size` words stand running, at most, anywhere in the text."""
    best, equal = 1, 0
    for i in range(size, len(words)):
        equal = equal + 1 if words[i] == words[i - size] else 0
        best = max(best, 1 + equal // size)
    return best


def counts_up(words: list[str], most: int) -> bool:
    """More than `most` whole numbers in a row, each one more than the last ("1. … 2. …" or "1, 2, 3")."""
    numbers = [int(word) for word in words if word.isdecimal() and len(word) < 5]
    steps = [after == before + 1 for before, after in pairwise(numbers)]
    return any(all(steps[i : i + most]) for i in range(len(steps) - most + 1))


def repetition(speech: str, settings: ValidationSettings) -> bool:
    """A word or phrase said again and again running, seven words that come back too often, or counting."""
    words = [word.lower() for word in WORD.findall(speech)]
    if longest_run(words, 1) > settings.max_word_run or counts_up(words, settings.max_counting):
        return True
    phrases = list(zip(*(words[i:] for i in range(7)), strict=False))
    if len(set(phrases)) == len(phrases) and settings.max_phrase_run >= 3:
        return False  # 3 to 7 words said four times running hold a sequence of 7 words twice
    if any(longest_run(words, size) > settings.max_phrase_run for size in range(3, 8)):
        return True
    return bool(phrases) and max(Counter(phrases).values()) > settings.max_phrase_total


def off_topic(speech: str, settings: ValidationSettings) -> bool:
    """Cosine between speech and context, in [-1, 1], under the threshold. Nothing is said where none was computed."""
    return settings.similarity is not None and settings.similarity < settings.min_similarity


def wrong_length(speech: str, settings: ValidationSettings) -> bool:
    """Words, split at white space, outside `min_words` to `max_words`."""
    return not settings.min_words <= len(speech.split()) <= settings.max_words


def several_speeches(speech: str, settings: ValidationSettings) -> bool:
    """Four or more sentences that open with "My Lords,", "Mr Speaker,": of 8,268 members' own speeches none has over two."""
    return len(OPENING.findall(speech)) > settings.max_openings


def corrupted_ending(speech: str, settings: ValidationSettings) -> bool:
    """No end of a sentence at the end, or a tail of punctuation, single letters or markup."""
    text = speech.rstrip()[-TAIL:]
    return not GOOD_END.search(text) or bool(BAD_END.search(text))


def refusal(speech: str, settings: ValidationSettings) -> bool:
    """The model speaks as a model, or declines to write. A minister who cannot give a date does neither."""
    speech = speech.replace("’", "'")
    return any(pattern.search(speech) for pattern in REFUSALS)


CHECKS: tuple[Callable[[str, ValidationSettings], bool], ...] = (
    template_leakage, corrupted_unicode, not_english, repetition, off_topic, wrong_length, several_speeches,
    corrupted_ending, refusal,
)  # fmt: skip
REASONS = tuple(check.__name__ for check in CHECKS)
NO_ANSWER = "no_answer"  # the reason of an attempt for which a server gave no text to check


def prompt_text(prompt: Mapping[str, Any]) -> str:
    """What a speech must be about, as a sentence: House, section, topic and party, then the question that it answers.

    A sentence is nearer to speeches, and farther from anything else, than the bare fields are (benchmarks/README.md).
    """
    asked = instruction(prompt)
    about = ", ".join(prompt[name] for name in ("Section", "Topic") if prompt[name])
    text = f"A speech in the {prompt['House']} on {about}, by a {prompt['Party']} member"
    return text if asked == GENERIC_INSTRUCTION else f"{text}. {asked}"


def similarity_to_prompt(speeches: list[str], prompts: list[Mapping[str, Any]], encoder) -> list[float | None]:
    """Cosine of each speech with its prompt's text, in [-1, 1]; None without an encoder; -1 for an empty speech."""
    if encoder is None or not speeches:
        return [None] * len(speeches)
    a, b = encoder.encode(speeches), encoder.encode([prompt_text(prompt) for prompt in prompts])  # (n, d) unit rows
    cosine = (a * b).sum(axis=1)
    return [float(c) if c == c else -1.0 for c in cosine]


def validate_speech(speech: str, prompt: Mapping[str, Any] | None = None, settings: ValidationSettings | None = None) -> list[str]:
    """Names of the checks that the speech fails, in the order of `REASONS`; an empty list means valid.

    With a prompt and `settings.encoder` the similarity is computed; `settings.similarity` saves that for many speeches.
    """
    settings = settings or ValidationSettings()
    if settings.similarity is None and prompt is not None and settings.encoder is not None:
        settings = replace(settings, similarity=similarity_to_prompt([speech], [prompt], settings.encoder)[0])
    return [check.__name__ for check in CHECKS if check(speech, settings)]
