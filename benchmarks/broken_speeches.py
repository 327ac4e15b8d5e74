"""Real speeches broken on purpose, one way a check: what `benchmarks.validation` counts as detected. All added text is invented."""

import random
from collections.abc import Callable, Iterator

MARKERS = ("<|im_end|>", "<|eot_id|>", "[/INST]", "<end_of_turn>", "</s>", "\nassistant\n", "\nPARTY: Labour\n", "\n### Response\n",
           "\nTopic: Energy\n", "\nUser:\n", "<|user|>", "\nHOUSE: House of Lords\n")  # fmt: skip
SPLINTERS = ("政府", "министр", "الحكومة", "정부", "\ufffd", "â€™", "Ã©", "🎉", "\\u2019", "&#x27;", "\x07", "รัฐบาล")
FOREIGN = (
    "Monsieur le Président, mes chers collègues, nous devons voter ce texte parce que les familles de notre pays attendent depuis "
    "trop longtemps une réponse du gouvernement sur le prix de l'énergie et sur les salaires.",
    "Herr Präsident, meine Damen und Herren, wir müssen diesem Gesetz zustimmen, weil die Familien in unserem Land schon viel zu "
    "lange auf eine Antwort der Regierung zu den Energiepreisen warten.",
    "Señor Presidente, señorías, debemos aprobar esta ley porque las familias de nuestro país llevan demasiado tiempo esperando una "
    "respuesta del Gobierno sobre el precio de la energía y los salarios.",
    "Signor Presidente, onorevoli colleghi, dobbiamo approvare questa legge perché le famiglie del nostro paese aspettano da troppo "
    "tempo una risposta del governo sul prezzo dell'energia.",
    "Senhor Presidente, senhoras e senhores deputados, temos de aprovar esta lei porque as famílias do nosso país esperam há "
    "demasiado tempo por uma resposta do governo sobre o preço da energia.",
    "Mijnheer de voorzitter, wij moeten deze wet aannemen, omdat de gezinnen in ons land al veel te lang wachten op een antwoord van "
    "de regering over de prijs van energie en over de lonen.",
    "Panie marszałku, wysoka izbo, musimy przyjąć tę ustawę, ponieważ rodziny w naszym kraju zbyt długo czekają na odpowiedź rządu w "
    "sprawie cen energii i płac.",
    "Herr talman, vi måste anta denna lag, eftersom familjerna i vårt land har väntat alltför länge på ett svar från regeringen om "
    "energipriserna och om lönerna.",
)  # fmt: skip
REFUSALS = (
    "I'm sorry, but I can't assist with that request.", "As an AI language model, I cannot take a party's side.",
    "I am an AI assistant and do not hold political views.", "I cannot generate a speech that attacks a named person.",
    "I'm unable to write a partisan speech on this topic.", "As a large language model, I have to stay neutral here.",
    "I can't create political content for a specific party.", "I won't write this speech.",
    "Unfortunately, I am not able to generate this type of content.", "I apologize, but I cannot fulfill this request.",
    "I don't have personal opinions, so I can only summarise.", "My training data does not cover this debate.",
)  # fmt: skip
RUBBISH = ("####", "a b c d e f", "!!!", "\n\n---", "<", "....", ", ,")
ELSEWHERE = (
    "Whisk the eggs with sugar until pale, fold in the flour, and bake for twenty minutes. Let the cake cool before icing.",
    "The goalkeeper dived to his left, but the ball had gone in off the post, and the away fans sang until midnight.",
    "Once upon a time a little rabbit lived in a hollow tree, and every evening he counted the stars over the meadow.",
    "To sort a list in place, call its method with a key function; to keep the original, make a sorted copy instead.",
    "The galaxy has two spiral arms, and its light left it before there were people to see it with telescopes.",
    "She tuned her guitar, tried a minor chord, and hummed the melody that had followed her since the train.",
    "Knit two, purl two, to the end of the row; turn the work, slip the first stitch and begin the pattern again.",
    "The octopus has three hearts and blue blood, and it can taste with the suckers on each of its eight arms.",
)  # fmt: skip


def leaked(text: str, rng: random.Random) -> str:
    """A marker between two words."""
    return _between(text, rng.choice(MARKERS), rng)


def garbled(text: str, rng: random.Random) -> str:
    """A splinter of another script or of wrong decoding between two words."""
    return _between(text, rng.choice(SPLINTERS), rng)


def foreign(text: str, rng: random.Random) -> str:
    """Another language, two sentences of it."""
    return f"{rng.choice(FOREIGN)} {rng.choice(FOREIGN)}"


def looping(text: str, rng: random.Random) -> str:
    """A word, a phrase or a sentence said five times running."""
    words = text.split()
    size = rng.choice((1, 3, 4, 5, 6, 7))
    start = rng.randrange(len(words) - size)
    phrase = words[start : start + size]
    return " ".join(words[:start] + phrase * 5 + words[start + size :])


def of_wrong_length(text: str, rng: random.Random) -> str:
    """A fragment, or the speech many times over."""
    return " ".join(text.split()[: rng.randrange(1, 42)]) if rng.random() < 0.5 else " ".join([text] * 16)


def glued(text: str, rng: random.Random) -> str:
    """Four to six short speeches, each with its opening."""
    words = text.split()
    opening = rng.choice(("My Lords", "Mr Speaker", "Madam Deputy Speaker"))
    parts = [words[i::6] for i in range(6)][: rng.randrange(4, 7)]
    thanks = (
        "I thank the Minister for that answer.",
        "I am grateful to the noble Lord.",
        "I beg to differ.",
        "I rise to speak.",
    )
    return " ".join(f"{opening}, {rng.choice(thanks)} {' '.join(part)}." for part in parts)


def cut_short(text: str, rng: random.Random) -> str:
    """The last words lost, or rubbish at the end."""
    words = text.split()
    if rng.random() < 0.3:
        return f"{text} {rng.choice(RUBBISH)}"
    kept = words[: -rng.randrange(1, 9)]
    while kept[-1][-1] in ".?!\"')":  # the end of another sentence would be a whole speech
        kept.pop()
    return " ".join(kept)


def refusing(text: str, rng: random.Random) -> str:
    """A refusal in front of the speech, or behind it."""
    said = rng.choice(REFUSALS)
    return f"{said} {text}" if rng.random() < 0.7 or said.startswith(("I'm sorry", "I apol", "Unf")) else f"{text} {said}"


BREAK: dict[str, Callable[[str, random.Random], str]] = {
    "template_leakage": leaked,
    "corrupted_unicode": garbled,
    "not_english": foreign,
    "repetition": looping,
    "wrong_length": of_wrong_length,
    "several_speeches": glued,
    "corrupted_ending": cut_short,
    "refusal": refusing,
}


def broken(texts: list[str], seed: int = 42) -> Iterator[tuple[str, str]]:
    """(check, broken speech) for each text and way, in order."""
    rng = random.Random(seed)
    for text in texts:
        for check, way in BREAK.items():
            yield check, way(text, rng)


def _between(text: str, piece: str, rng: random.Random) -> str:
    words = text.split()
    place = rng.randrange(1, len(words))
    return " ".join(words[:place]) + f" {piece} " + " ".join(words[place:])
