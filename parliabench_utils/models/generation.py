"""Speeches for the same prompts from every model, base and tuned: the engine of notebook 04 (paper, section 5.3).

A speech that fails a check is drawn again, up to three attempts, each with its own seed. All first attempts come before the
second ones, so that those that failed share full batches; rows are appended batch by batch, so that a killed run goes on where
it was. In fp32 batch size, order and resuming change nothing. The end says what tuning changed, before any metric.

    loaded = load_model("smollm2-135m", adapter=folder / "adapter", purpose="generate")
    generate_file(loaded, "fine-tuned", prompts, settings, checks, out / "shard-0.jsonl", seed=42)
    what_changed(speeches, human, kept)         # a row a model and measure, a column a type, the members' own beside them
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parliabench_utils.models.backends import GgufModel, Sampling, ServerModel, decode_batch
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.prompting import encode, render_prompt, stop_ids
from parliabench_utils.models.specs import LoadedModel, read_model_spec
from parliabench_utils.models.validation import NO_ANSWER, ValidationSettings, own_tokens, similarity_to_prompt, validate_speech
from parliabench_utils.run.artefacts import ResumableJsonl, write_json
from parliabench_utils.run.notebook import progress
from parliabench_utils.run.record import row_seed

if TYPE_CHECKING:
    import pandas as pd

FEW_SHOT, RETRIEVAL = "few-shot", "retrieval"
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
        own = ("min_words", "max_words", "max_new_tokens", "batch_size", "max_attempts", "trim_to_sentence", "few_shot_examples")
        sampling = Sampling(p.temperature, p.top_p, p.repetition_penalty)
        return cls(sampling, variants=p.variants_per_prompt, **{name: getattr(p, name) for name in own})

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
        self.attempts, self.seed, self.finish_reason, self.seconds = attempt, seed, finish_reason, round(seconds, 3)

    def reject(self, reasons: list[str]) -> None:
        """Move the newest attempt to the rejected ones."""
        row = {"attempt": self.attempts, "reasons": reasons, "speech": self.speech}
        self.rejected.append(row | {name: getattr(self, name) for name in ("finish_reason", "trimmed", "seconds")})
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

    if text.rstrip().endswith((".", "!", "?", '."', '!"', '?"', ".'", ".)")):
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
    drafts, limits = [], {"min_words": settings.min_words, "max_words": settings.max_words}
    for prompt in prompts:
        near, ids = (examples or {}).get(prompt["prompt_id"], ()), []
        if kind != RETRIEVAL:
            shown = near[: settings.few_shot_examples] if kind == FEW_SHOT else ()
            ids = encode(loaded.tokenizer, render_prompt(loaded.spec, loaded.tokenizer, prompt, examples=shown, **limits))
        drafts += [Draft(prompt, variant, ids, near) for variant in range(settings.variants)]
    return sorted(drafts, key=lambda draft: (len(draft.ids), draft.key))


def even_batches(drafts: list[Draft], batch_size: int) -> list[list[Draft]]:
    """As few batches as `batch_size` allows, of nearly equal size. Fixed by the whole list, so a restart has the same."""
    count = -(-len(drafts) // batch_size)
    edges = [round(i * len(drafts) / count) for i in range(count + 1)] if count else [0]
    return [drafts[a:b] for a, b in pairwise(edges)]


def load_speaker(name: str, kind: str, folder: Path, precision: str | None = None) -> LoadedModel:
    """What speaks for one model and type of the run in `folder`: the base, the base with 03's adapter, or nobody (retrieval)."""
    if kind == RETRIEVAL:
        return LoadedModel(None, None, read_model_spec(name), "nearest training speech", "none")
    adapter = folder / "03_finetune" / name / "adapter" if kind == "fine-tuned" else None
    return load_model(name, adapter=adapter, purpose="generate", precision=precision)


def answer(loaded: LoadedModel, prompts: list[list[int]], seeds: list[int], settings: GenerationSettings) -> list[tuple[str, str]]:
    """Text and finish reason of each prompt, by whatever runs the model. Leaked special tokens stay visible in the text.

    MemoryError says what to change.
    """
    import torch

    if isinstance(loaded.model, ServerModel | GgufModel):
        replies = loaded.model.complete(prompts, seeds, settings.sampling, settings.max_new_tokens, loaded.spec.stop)
        return [(text.strip(), reason) for text, reason in replies]
    stops, pad = stop_ids(loaded.spec, loaded.tokenizer), loaded.tokenizer.pad_token_id
    try:
        rows = decode_batch(loaded.model, prompts, seeds, settings.sampling, settings.max_new_tokens, stops, pad)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"out of memory while {loaded.spec.name} generates: halve batch_size (in fp32 it changes no text), lower "
            "max_new_tokens, or take precision: bf16 or nf4"
        ) from error
    return [(loaded.tokenizer.decode(ids, skip_special_tokens=False).strip(), reason) for ids, reason in rows]


def draw_batch(loaded: LoadedModel, kind: str, drafts: list[Draft], attempt: int, settings: GenerationSettings, seed: int) -> None:
    """Draw one speech for each draft. The seed names prompt, variant and attempt, not the model: all start alike.

    A retrieval takes the nearest training speech, a farther one at each attempt; empty where none is left.
    """
    seeds = [row_seed(seed, *draft.key, attempt) for draft in drafts]
    began = time.perf_counter()
    if kind == RETRIEVAL:
        places = [draft.variant + (attempt - 1) * settings.variants for draft in drafts]
        texts = [d.examples[i]["Speech"] if i < len(d.examples) else "" for d, i in zip(drafts, places, strict=True)]
        answers = [(text.strip(), "retrieved") for text in texts]
    else:
        answers = answer(loaded, [draft.ids for draft in drafts], seeds, settings)
    seconds = (time.perf_counter() - began) / len(drafts)
    for draft, own_seed, (text, reason) in zip(drafts, seeds, answers, strict=True):
        draft.take(text, attempt, own_seed, reason, seconds, settings.trim_to_sentence)


def check_drafts(drafts: list[Draft], checks: ValidationSettings) -> None:
    """Validate each draft's newest attempt; a failed one, or one that a server left unanswered, moves to the draft's `rejected`."""
    similarities = similarity_to_prompt([d.speech for d in drafts], [d.prompt for d in drafts], checks.encoder)
    for draft, similarity in zip(drafts, similarities, strict=True):
        unanswered = draft.finish_reason.startswith("no-answer")
        checked = replace(checks, similarity=similarity)
        if reasons := [NO_ANSWER] if unanswered else validate_speech(draft.speech, draft.prompt, checked):
            draft.reject(reasons)


def generate_file(
    loaded: LoadedModel,
    kind: str,
    prompts: list[dict],
    settings: GenerationSettings,
    checks: ValidationSettings,
    path: Path,
    seed: int,
    examples: Examples | None = None,
) -> list[dict[str, Any]]:
    """Generate `path` (and `rejected-….jsonl` beside it), going on from what an interrupted run has written."""
    checks = replace(checks, own_tokens=own_tokens(loaded.tokenizer))
    rejected_path = path.with_name(path.name.replace("shard-", "rejected-"))
    with ResumableJsonl(path, ("prompt_id", "variant")) as log:
        if not log.rows:  # nothing to go on from: what lies beside it is of other parameters
            for old in (rejected_path, rejected_path.with_name(rejected_path.name + ".partial")):
                old.unlink(missing_ok=True)
        with ResumableJsonl(rejected_path, (*log.key, "attempt")) as rejected:
            drafts = draft_prompts(loaded, kind, prompts, settings, examples)
            by_key = {draft.key: draft for draft in drafts}
            for row in sorted(rejected.rows, key=lambda row: row["attempt"]):
                known = {name: value for name, value in row.items() if name not in log.key}
                by_key[row["prompt_id"], row["variant"]].rejected.append(known)
            for attempt in range(1, settings.max_attempts + 1):
                _round(loaded, kind, drafts, attempt, settings, checks, seed, log, rejected)
            rejected.finish()
        log.finish()
    return log.rows


def _round(loaded, kind, drafts, attempt, settings, checks, seed, log: ResumableJsonl, rejected: ResumableJsonl) -> None:
    """One attempt for all drafts whose earlier ones failed.

    The batches are cut from all of them, done or not: a batch that a kill cut short is drawn anew in the same company, so that bf16
    gives the same texts too.
    """
    last = attempt == settings.max_attempts
    batches = even_batches([draft for draft in drafts if draft.failed_before(attempt)], settings.batch_size)

    def settled(draft: Draft) -> bool:
        return draft.key in log.done or (not last and (*draft.key, attempt) in rejected.done)

    to_do = [batch for batch in batches if not all(map(settled, batch))]
    for batch in progress(to_do, f"{loaded.spec.name} {kind}, attempt {attempt}, batches"):
        draw_batch(loaded, kind, batch, attempt, settings, seed)
        check_drafts(batch, checks)
        for draft in batch:
            row = draft.as_row(loaded.spec.name, kind) if last or draft.speech is not None else None
            _append(draft, row, log, rejected)


def _append(draft: Draft, row: dict[str, Any] | None, log: ResumableJsonl, rejected: ResumableJsonl) -> None:
    """Rejected attempts first: a row in `log` means that its rejections are on the disk too."""
    prompt_id, variant = draft.key
    for attempt in draft.rejected:
        if (*draft.key, attempt["attempt"]) not in rejected.done:
            rejected.append({"prompt_id": prompt_id, "variant": variant, **attempt})
    if row is not None and draft.key not in log.done:
        log.append(row)


def _file(folder: Path, model: str, kind: str, name: str) -> Path:
    return folder / "04_generate" / model / kind / name


def pending_shards(folder: Path, model: str, kind: str, shards: list[int]) -> list[int]:
    """The shards whose file is not there yet: a model whose speeches are all made need not be loaded."""
    return [k for k in shards if not _file(folder, model, kind, f"shard-{k}.jsonl").is_file()]


def generate_pair(
    loaded: LoadedModel,
    kind: str,
    prompts: list[dict],
    shards: list[int],
    settings: GenerationSettings,
    checks: ValidationSettings,
    folder: Path,
    seed: int,
    examples: Examples | None = None,
) -> None:
    """All wanted shards of one model and type, each into its own file under `04_generate/<model>/<type>/`.

    `model-<k>.json` beside a shard says what made it, for the manifest of a later call that finds the shard whole.
    """
    for shard in shards:
        rows = [prompt for prompt in prompts if prompt["shard"] == shard]
        path = _file(folder, loaded.spec.name, kind, f"shard-{shard}.jsonl")
        write_json(path.with_name(f"model-{shard}.json"), {"fingerprint": loaded.fingerprint})
        generate_file(loaded, kind, rows, settings, checks, path, seed, examples)


def read_fingerprints(folder: Path, pairs: list[tuple[str, str]], shards: list[int]) -> dict[str, str]:
    """`model/type` → what made its speeches, for every pair, whether this call or an earlier one generated them."""
    found = {}
    for model, kind in pairs:
        files = [_file(folder, model, kind, f"model-{k}.json") for k in shards]
        prints = {json.loads(file.read_text(encoding="utf-8"))["fingerprint"] for file in files}
        if len(prints) > 1:
            raise ValueError(f"shards of {model}/{kind} were made by different models, {sorted(prints)}: delete them")
        found[f"{model}/{kind}"] = prints.pop()
    return found


def determinism(fingerprints: dict[str, str]) -> str:
    """What the manifest promises about the texts of the models that made them."""
    steady = ("fp32", "gguf", "nearest training speech")
    if all(any(word in fingerprint for word in steady) for fingerprint in fingerprints.values()):
        return "fp32: the same texts at any batch size, order and after a restart"
    return "bf16, live 4-bit or a server: the same texts only with the same batches; batch size may change them"


# Said in the Chamber and hardly elsewhere: who is addressed, and how one speaks of the place.
PARLIAMENTARY = re.compile(
    r"\b(?:hon\.|(?:right )?honourable|[Nn]oble (?:Lords?|Baroness|Friend|and learned|Earl)|[Mm]y Lords|[Yy]our Lordships|"
    r"Mr\.? (?:Deputy )?Speaker|Madam (?:Deputy )?Speaker|[Tt]he Minister|Secretary of State|[Tt]he (?:Prime Minister|Chancellor)|"
    r"[Tt]h(?:e|is) House|[Tt]he Member for|[Mm]y constituen(?:cy|ts)|Opposition (?:Front )?Bench(?:es)?|Members opposite|"
    r"I beg to move|give way)"
)


def parliamentary_share(text: str) -> float:
    """Phrases of the Chamber per 100 words; 0 for an empty text."""
    words = len(text.split())
    return 100 * len(PARLIAMENTARY.findall(text)) / words if words else 0.0


def what_changed(speeches: "pd.DataFrame", human: "pd.DataFrame", kept: list[str]) -> "pd.DataFrame":
    """One row a model and measure, a column a type, and `human` where it can be said of members.

    Failures are shares of all prompts; words and phrases are taken on the prompts of `kept`, the same for all.
    """
    import pandas as pd

    def failures(rows: pd.DataFrame) -> dict[str, float]:
        return {
            "first attempt rejected, share": (rows["rejections"].str.len() > 0).mean(),
            "never valid, share": rows["generated_speech"].isna().mean(),
            "stopped by itself, share": (rows["finish_reason"] == "stop").mean(),
        }

    def manner(rows: pd.DataFrame) -> dict[str, float]:
        rows = rows[rows["prompt_id"].isin(kept)]
        phrases = rows["generated_speech"].map(parliamentary_share).astype(float)
        quartiles = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
        return {f"words, {name}": rows["n_words"].quantile(share) for name, share in quartiles.items()} | {
            "phrases of the Chamber per 100 words": phrases.mean(),
            "speeches with one or more, share": (phrases > 0).mean(),
        }

    own, frames = pd.Series(manner(human), name="human"), {}
    for model, group in speeches.groupby("model", sort=False):
        columns = {kind: failures(rows) | manner(rows) for kind, rows in group.groupby("type", sort=False)}
        frames[model] = pd.DataFrame(columns).join(own)
    return pd.concat(frames, names=["model", "measure"])


def parliamentary_pairs(speeches: "pd.DataFrame", kept: list[str]) -> "pd.DataFrame":
    """Tuned against base on the prompts of `kept`: phrases of the Chamber per 100 words, and on how many prompts which has more.

    Empty where a type is missing.
    """
    import pandas as pd

    rows = []
    spoken = speeches[speeches["prompt_id"].isin(kept)]
    spoken = spoken.assign(share=spoken["generated_speech"].map(parliamentary_share).astype(float))
    for model, group in spoken.groupby("model", sort=False):
        wide = group.pivot_table(index="prompt_id", columns="type", values="share")
        if {"baseline", "fine-tuned"} <= set(wide):
            change = wide["fine-tuned"] - wide["baseline"]
            counts = [int((change > 0).sum()), int((change < 0).sum()), int((change == 0).sum())]
            rows.append([model, len(wide), wide["baseline"].mean(), wide["fine-tuned"].mean(), *counts])
    return pd.DataFrame(rows, columns=["model", "prompts", "baseline", "fine-tuned", "more often", "less often", "equal"])
