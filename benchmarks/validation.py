"""The nine checks: false alarms on members' own speeches, detection of broken ones, speed.

    PARLIABENCH_SHARED=folder/of/real/days python -m benchmarks.validation

Reads the real sitting days where they are at hand, else the embedded corpus.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

from benchmarks.broken_speeches import ELSEWHERE, broken
from benchmarks.measure import machine, markdown_table, versions
from parliabench_utils.corpus import read_corpus
from parliabench_utils.corpus.dataset import KeepRules, keep_speeches
from parliabench_utils.models.validation import CHECKS, REASONS, ValidationSettings, similarity_to_prompt, validate_speech
from parliabench_utils.run.project import corpus_folder, project_root

SETTINGS = ValidationSettings()
WITH_CONTEXT = 200  # speeches on which the semantic check is weighed


def human_speeches():
    """Speeches of real days after notebook 02's cleaning, within the length limits of the checks, and where they come from."""
    shared = Path(os.environ.get("PARLIABENCH_SHARED") or project_root().parent / "shared") / "data/parlamint-gb-2022"
    if shared.is_dir():
        corpus = read_corpus(shared, people=shared / "ParlaMint-GB.xml")
    else:
        corpus = read_corpus(corpus_folder("mini", "data"))
    excluded = ("Business of the House", "Point of Order", "Points of Order")
    kept, _ = keep_speeches(corpus, KeepRules(1, SETTINGS.min_words - 1, SETTINGS.max_words + 1, excluded))
    return kept, "real days of October 2022" if shared.is_dir() else "the embedded corpus"


def false_alarms(texts: list[str]) -> list[dict]:
    """A row a check: how many human speeches it rejects."""
    reasons = [validate_speech(text) for text in texts]
    counts = Counter(reason for failed in reasons for reason in [*failed, *(["any"] if failed else [])])
    return [{"check": name, "rejected": counts[name], "share, %": 100 * counts[name] / len(texts)} for name in (*REASONS, "any")]


def detection(texts: list[str]) -> list[dict]:
    """A row a way of breaking: how many broken speeches their own check finds, and how many any check does."""
    made, own, by_any = Counter(), Counter(), Counter()
    for check, text in broken(texts):
        reasons = validate_speech(text)
        made[check] += 1
        own[check] += check in reasons
        by_any[check] += bool(reasons)
    rows = [
        {
            "broken": c,
            "speeches": made[c],
            "by its check, %": 100 * own[c] / made[c],
            "by any, %": 100 * by_any[c] / made[c],
        }
        for c in made
    ]
    total = made.total()
    return [
        *rows,
        {
            "broken": "all",
            "speeches": total,
            "by its check, %": 100 * own.total() / total,
            "by any, %": 100 * by_any.total() / total,
        },
    ]


def semantic(speeches) -> list[dict]:
    """The semantic check: members' speeches against their own context, and texts about something else against the same."""
    from parliabench_utils.models.embeddings import SentenceEncoder

    some = speeches.sample(WITH_CONTEXT, random_state=42)
    contexts = [
        {
            "Party": row.party,
            "Topic": row.cap_topic if isinstance(row.cap_topic, str) else "",
            "Section": row.section,
            "House": row.house,
        }
        for row in some.itertuples()
    ]
    rng, encoder = random.Random(42), SentenceEncoder("all-MiniLM-L6-v2", cache=False)
    elsewhere = [rng.choice(ELSEWHERE) for _ in contexts]
    rows = []
    for name, texts in (("members", some["text"].tolist()), ("something else", elsewhere)):
        below = sum(s < SETTINGS.min_similarity for s in similarity_to_prompt(texts, contexts, encoder))
        rows.append({"texts": name, "pairs": len(texts), "off_topic, %": 100 * below / len(texts)})
    return rows


def speed(texts: list[str]) -> list[dict]:
    """Speeches a second of all checks but the semantic one, of processor time, best of three, and each check's own."""

    def seconds(check) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            for text in texts:
                check(text, SETTINGS)
            best = min(best, time.process_time() - began)
        return best

    whole = seconds(lambda text, settings: validate_speech(text, settings=settings))
    shares = [{"check": c.__name__, "microseconds a speech": 1e6 * seconds(c) / len(texts)} for c in CHECKS]
    return [{"check": "all", "microseconds a speech": 1e6 * whole / len(texts)}, *shares]


def main() -> None:
    """Print everything as Markdown."""
    speeches, source = human_speeches()
    texts = speeches["text"].tolist()
    print(f"{machine()}; {versions('py3langid', 'numpy')}\n\n{len(texts):,} human speeches, {source}, ", end="")
    print(f"{speeches['n_words'].mean():.0f} words on average\n\n{markdown_table(false_alarms(texts))}\n")
    sample = random.Random(42).sample(texts, min(300, len(texts)))
    print(markdown_table(detection(sample)), "\n")
    print(markdown_table(semantic(speeches)), "\n")
    table = speed(random.Random(42).sample(texts, min(1000, len(texts))))
    print(
        markdown_table(table),
        f"\n\n{1e6 / table[0]['microseconds a speech']:,.0f} speeches a second without the semantic check",
    )


if __name__ == "__main__":
    main()
