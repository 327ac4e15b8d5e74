"""Speeches in the making: the prompts as token ids, in batches, and what becomes of each (paper, section 5.3).

Used by `generation.py`, the engine of notebook 04.

    drafts = draft_prompts(loaded, "baseline", prompts, settings)
    [len(batch) for batch in even_batches(drafts, settings.batch_size)]         # [9, 9]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from parliabench_utils.models.loading import LoadedModel
from parliabench_utils.models.prompting import encode, render_prompt
from parliabench_utils.models.sampling import Sampling

FEW_SHOT, RETRIEVAL = "few-shot", "retrieval"
SENTENCE_ENDS = (".", "!", "?", '."', '!"', '?"', ".'", ".)")
Examples = Mapping[str, Sequence[Mapping[str, Any]]]  # prompt_id -> training rows, nearest first


@dataclass(frozen=True)
class GenerationSettings:
    """How speeches are drawn: section 5.3 and the details of the paper's project page."""

    sampling: Sampling
    min_words: int
    max_words: int
    max_new_tokens: int
    batch_size: int
    max_attempts: int
    variants: int
    trim_to_sentence: bool
    few_shot_examples: int = 0

    @classmethod
    def from_params(cls, p: Any) -> "GenerationSettings":
        """The generation part of notebook 04's parameters."""
        return cls(
            sampling=Sampling(p.temperature, p.top_p, p.repetition_penalty),
            min_words=p.min_words,
            max_words=p.max_words,
            max_new_tokens=p.max_new_tokens,
            batch_size=p.batch_size,
            max_attempts=p.max_attempts,
            variants=p.variants_per_prompt,
            trim_to_sentence=p.trim_to_sentence,
            few_shot_examples=p.few_shot_examples,
        )

    def examples_needed(self, kinds: Sequence[str]) -> int:
        """Training speeches a prompt for the given types: those that are shown, or one for each draw of a retrieval."""
        shown = self.few_shot_examples if FEW_SHOT in kinds else 0
        return max(shown, self.max_attempts * self.variants if RETRIEVAL in kinds else 0)


@dataclass
class Draft:
    """One speech: its prompt, its newest attempt, and the attempts that were rejected."""

    prompt: dict[str, Any]
    variant: int
    ids: list[int]
    examples: Sequence[Mapping[str, Any]] = ()
    speech: str | None = None
    seed: int = 0
    finish_reason: str = ""
    trimmed: bool = False
    attempts: int = 0
    seconds: float = 0.0
    rejected: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        """What the row is joined by."""
        return self.prompt["prompt_id"], self.variant

    def failed_before(self, attempt: int) -> bool:
        """Whether all attempts before this one were rejected: then the speech takes part in it."""
        return sum(row["attempt"] < attempt for row in self.rejected) == attempt - 1

    def take(self, text: str, attempt: int, seed: int, finish_reason: str, seconds: float, trim: bool) -> None:
        """Note a new attempt's text; what an earlier run rejected at this attempt or later is forgotten."""
        self.rejected = [row for row in self.rejected if row["attempt"] < attempt]
        self.speech, self.trimmed = trim_to_sentence(text) if trim and finish_reason == "length" else (text, False)
        self.attempts, self.seed, self.finish_reason = attempt, seed, finish_reason
        self.seconds = round(seconds, 3)

    def reject(self, reasons: list[str]) -> None:
        """Move the newest attempt to the rejected ones."""
        kept = ("finish_reason", "trimmed", "seconds")
        row = {"attempt": self.attempts, "reasons": reasons, "speech": self.speech}
        self.rejected.append(row | {name: getattr(self, name) for name in kept})
        self.speech = None

    def as_row(self, model: str, kind: str) -> dict[str, Any]:
        """A row of `shard-k.jsonl`; `generated_speech` is null where no attempt passed the checks."""
        spent = sum(row["seconds"] for row in self.rejected) + (self.seconds if self.speech is not None else 0)
        return {
            "prompt_id": self.prompt["prompt_id"],
            "variant": self.variant,
            "model": model,
            "type": kind,
            "generated_speech": self.speech,
            "n_words": len(self.speech.split()) if self.speech else 0,
            "attempts": self.attempts,
            "rejections": [row["reasons"] for row in self.rejected],
            "seed": self.seed,
            "finish_reason": self.finish_reason,
            "trimmed": self.trimmed if self.speech else False,
            "seconds": round(spent, 3),
        }


def trim_to_sentence(text: str) -> tuple[str, bool]:
    """`text` up to its last whole sentence, and whether something was cut. A text without any is returned as it is.

    The splitter knows "hon." and "St. Ives", which a search for the last full stop would take for an end.
    """
    import nupunkt

    if text.rstrip().endswith(SENTENCE_ENDS):
        return text, False
    sentences = nupunkt.sent_tokenize(text)
    if len(sentences) < 2:
        return text, False
    return text[: text.rindex(sentences[-1])].rstrip(), True


def draft_prompts(
    loaded: LoadedModel, kind: str, prompts: list[dict], settings: GenerationSettings, examples: Examples | None = None
) -> list[Draft]:
    """Every (prompt, variant) with its token ids, shortest first so that a batch has little padding.

    A few-shot prompt shows the prompt's nearest examples as earlier turns. A retrieval needs no tokens.
    """
    drafts = []
    for prompt in prompts:
        near = (examples or {}).get(prompt["prompt_id"], ())
        shown = near[: settings.few_shot_examples] if kind == FEW_SHOT else ()
        ids = [] if kind == RETRIEVAL else _prompt_ids(loaded, prompt, settings, shown)
        drafts += [Draft(prompt, variant, ids, near) for variant in range(settings.variants)]
    return sorted(drafts, key=lambda draft: (len(draft.ids), draft.key))


def _prompt_ids(loaded: LoadedModel, prompt: dict, settings: GenerationSettings, shown: Sequence) -> list[int]:
    limits = {"min_words": settings.min_words, "max_words": settings.max_words}
    return encode(loaded.tokenizer, render_prompt(loaded.spec, loaded.tokenizer, prompt, examples=shown, **limits))


def even_batches(drafts: list[Draft], batch_size: int) -> list[list[Draft]]:
    """As few batches as `batch_size` allows, of nearly equal size. Fixed by the whole list, so a restart has the same."""
    count = -(-len(drafts) // batch_size)
    edges = [round(i * len(drafts) / count) for i in range(count + 1)] if count else [0]
    return [drafts[a:b] for a, b in pairwise(edges)]
