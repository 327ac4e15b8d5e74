"""Speeches for the same prompts from every model, base and tuned: the engine of notebook 04 (paper, section 5.3).

A speech that fails a check is generated again, up to three attempts, each with its own seed; rows are appended batch by
batch, so that a killed run goes on where it was. In fp32 batch size, order and resuming change nothing.

    loaded = load_model("smollm2-135m", adapter=folder / "adapter", purpose="generate")
    generate_file(loaded, "fine-tuned", prompts, settings, checks, out / "shard-0.jsonl", seed=42)
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from parliabench_utils.models.loading import LoadedModel
from parliabench_utils.models.prompting import encode, render_prompt, stop_ids
from parliabench_utils.models.sampling import Sampling, decode_batch
from parliabench_utils.models.server import ServerModel
from parliabench_utils.models.validation import ValidationSettings, similarity_to_prompt, validate_speech
from parliabench_utils.run.artefacts import ResumableJsonl
from parliabench_utils.run.progress import progress
from parliabench_utils.run.seeds import row_seed

SENTENCE_ENDS = (".", "!", "?", '."', '!"', '?"', ".'", ".)")


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
        )


@dataclass
class Draft:
    """A speech in the making: its prompt, and what has been tried so far."""

    prompt: dict[str, Any]
    variant: int
    ids: list[int]
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


def draft_prompts(loaded: LoadedModel, prompts: list[dict], settings: GenerationSettings) -> list[Draft]:
    """Every (prompt, variant) with its token ids, shortest first so that a batch has little padding."""
    limits = {"min_words": settings.min_words, "max_words": settings.max_words}
    drafts = [
        Draft(prompt, variant, encode(loaded.tokenizer, render_prompt(loaded.spec, loaded.tokenizer, prompt, **limits)))
        for prompt in prompts
        for variant in range(settings.variants)
    ]
    return sorted(drafts, key=lambda draft: (len(draft.ids), draft.key))


def even_batches(drafts: list[Draft], batch_size: int) -> list[list[Draft]]:
    """As few batches as `batch_size` allows, of nearly equal size. Fixed by the whole list, so a restart has the same."""
    count = -(-len(drafts) // batch_size)
    edges = [round(i * len(drafts) / count) for i in range(count + 1)] if count else [0]
    return [drafts[a:b] for a, b in pairwise(edges)]


def answer(loaded: LoadedModel, prompts: list[list[int]], seeds: list[int], settings: GenerationSettings):
    """Text and finish reason of each prompt, in process or from a server. Leaked special tokens stay visible in the text."""
    if isinstance(loaded.model, ServerModel):
        replies = loaded.model.complete(prompts, seeds, settings.sampling, settings.max_new_tokens, loaded.spec.stop)
        return [(text.strip(), reason) for text, reason in replies]
    stops, pad = stop_ids(loaded.spec, loaded.tokenizer), loaded.tokenizer.pad_token_id
    rows = decode_batch(loaded.model, prompts, seeds, settings.sampling, settings.max_new_tokens, stops, pad)
    return [(loaded.tokenizer.decode(ids, skip_special_tokens=False).strip(), reason) for ids, reason in rows]


def _attempt(loaded: LoadedModel, drafts: list[Draft], number: int, settings: GenerationSettings, seed: int):
    """Draw one speech for each draft. The seed names prompt, variant and attempt, not the model: all start alike."""
    seeds = [row_seed(seed, *draft.key, number) for draft in drafts]
    began = time.perf_counter()
    answers = answer(loaded, [draft.ids for draft in drafts], seeds, settings)
    seconds = (time.perf_counter() - began) / len(drafts)
    for draft, row_seed_, (text, reason) in zip(drafts, seeds, answers, strict=True):
        cut = settings.trim_to_sentence and reason == "length"
        draft.speech, draft.trimmed = trim_to_sentence(text) if cut else (text, False)
        draft.seed, draft.finish_reason, draft.attempts = row_seed_, reason, number
        draft.seconds += seconds


def check_drafts(drafts: list[Draft], checks: ValidationSettings) -> list[Draft]:
    """Validate each draft's speech; the failed ones, with speech and reasons moved to `rejected`."""
    similarities = similarity_to_prompt([d.speech for d in drafts], [d.prompt for d in drafts], checks.encoder)
    failed = []
    for draft, similarity in zip(drafts, similarities, strict=True):
        reasons = validate_speech(draft.speech, draft.prompt, replace(checks, similarity=similarity))
        if reasons:
            draft.rejected.append(
                {
                    "attempt": draft.attempts,
                    "reasons": reasons,
                    "speech": draft.speech,
                    "finish_reason": draft.finish_reason,
                    "trimmed": draft.trimmed,
                }
            )
            draft.speech = None
            failed.append(draft)
    return failed


def as_row(draft: Draft, loaded: LoadedModel, kind: str) -> dict[str, Any]:
    """A row of `shard-k.jsonl`; `generated_speech` is null where no attempt passed the checks."""
    return {
        "prompt_id": draft.prompt["prompt_id"],
        "variant": draft.variant,
        "model": loaded.spec.name,
        "type": kind,
        "generated_speech": draft.speech,
        "n_words": len(draft.speech.split()) if draft.speech else 0,
        "attempts": draft.attempts,
        "rejections": [r["reasons"] for r in draft.rejected],
        "seed": draft.seed,
        "finish_reason": draft.finish_reason,
        "trimmed": draft.trimmed if draft.speech else False,
        "seconds": round(draft.seconds, 3),
    }


def generate_batches(
    loaded: LoadedModel,
    batches: list[list[Draft]],
    settings: GenerationSettings,
    checks: ValidationSettings,
    seed: int,
) -> Iterator[list[Draft]]:
    """Each batch after its last attempt: every draft either has a speech or as many rejections as attempts."""
    for batch in batches:
        waiting = batch
        for number in range(1, settings.max_attempts + 1):
            _attempt(loaded, waiting, number, settings, seed)
            waiting = check_drafts(waiting, checks)
            if not waiting:
                break
        yield batch


def generate_file(
    loaded: LoadedModel,
    kind: str,
    prompts: list[dict],
    settings: GenerationSettings,
    checks: ValidationSettings,
    path: Path,
    seed: int,
) -> list[dict[str, Any]]:
    """Generate `path` (and `rejected-….jsonl` beside it), going on from what an interrupted run has written.

    A batch is appended when all its rows are finished, and done anew from its start after a kill, in the same company.
    """
    rejected_path = path.with_name(path.name.replace("shard-", "rejected-"))
    key = ("prompt_id", "variant")
    with ResumableJsonl(path, key) as log:
        if not log.rows:  # nothing to go on from: what lies beside it is of other parameters
            for old in (rejected_path, rejected_path.with_name(rejected_path.name + ".partial")):
                old.unlink(missing_ok=True)
        _fill(loaded, kind, prompts, settings, checks, seed, log, rejected_path)
        log.finish()
    return log.rows


def _fill(loaded, kind, prompts, settings, checks, seed, log: ResumableJsonl, rejected_path: Path) -> None:
    with ResumableJsonl(rejected_path, (*log.key, "attempt")) as rejected:
        batches = even_batches(draft_prompts(loaded, prompts, settings), settings.batch_size)
        to_do = [batch for batch in batches if any(draft.key not in log.done for draft in batch)]
        finished = generate_batches(loaded, to_do, settings, checks, seed)
        for batch in progress(finished, f"{loaded.spec.name} {kind}, batches of {settings.batch_size}", len(to_do)):
            for draft in batch:
                _append(draft, as_row(draft, loaded, kind), log, rejected)
        rejected.finish()


def _append(draft: Draft, row: dict[str, Any], log: ResumableJsonl, rejected: ResumableJsonl) -> None:
    """Rejected attempts first: a row in `log` means that its rejections are on the disk too."""
    for attempt in draft.rejected:
        if (*draft.key, attempt["attempt"]) not in rejected.done:
            rejected.append({"prompt_id": row["prompt_id"], "variant": row["variant"], **attempt})
    if draft.key not in log.done:
        log.append(row)


def pending_shards(folder: Path, model: str, kind: str, shards: list[int]) -> list[int]:
    """The shards whose file is not there yet: a model whose speeches are all made need not be loaded."""
    return [k for k in shards if not _shard_file(folder, model, kind, k).is_file()]


def _shard_file(folder: Path, model: str, kind: str, shard: int) -> Path:
    return folder / "04_generate" / model / kind / f"shard-{shard}.jsonl"


def generate_pair(
    loaded: LoadedModel,
    kind: str,
    prompts: list[dict],
    shards: list[int],
    settings: GenerationSettings,
    checks: ValidationSettings,
    folder: Path,
    seed: int,
) -> None:
    """All wanted shards of one model and type, each into its own file under `04_generate/<model>/<type>/`."""
    for shard in shards:
        rows = [prompt for prompt in prompts if prompt["shard"] == shard]
        generate_file(loaded, kind, rows, settings, checks, _shard_file(folder, loaded.spec.name, kind, shard), seed)


def determinism(fingerprints: dict[str, str]) -> str:
    """What the manifest promises about the texts of the models that this call used."""
    if not fingerprints:
        return "nothing was generated in this call: all files were there"
    if all("fp32" in fingerprint for fingerprint in fingerprints.values()):
        return "fp32: the same texts at any batch size, order and after a restart"
    return "bf16 or live 4-bit: the same texts only with the same batches; batch size and a restart may change them"
