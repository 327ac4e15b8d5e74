"""Speeches for the same prompts from every model, base and tuned: the engine of notebook 04 (paper, section 5.3).

A speech that fails a check is drawn again, up to three attempts, each with its own seed. All first attempts come before the
second ones, so that those that failed share full batches; rows are appended batch by batch, so that a killed run goes on where
it was. In fp32 batch size, order and resuming change nothing.

    loaded = load_model("smollm2-135m", adapter=folder / "adapter", purpose="generate")
    generate_file(loaded, "fine-tuned", prompts, settings, checks, out / "shard-0.jsonl", seed=42)
"""

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from parliabench_utils.models.drafts import (
    RETRIEVAL,
    Draft,
    Examples,
    GenerationSettings,
    draft_prompts,
    even_batches,
)
from parliabench_utils.models.gguf import GgufModel
from parliabench_utils.models.loading import LoadedModel, load_model, read_model_spec
from parliabench_utils.models.prompting import stop_ids
from parliabench_utils.models.sampling import decode_batch
from parliabench_utils.models.server import ServerModel
from parliabench_utils.models.validation import (
    NO_ANSWER,
    ValidationSettings,
    own_tokens,
    similarity_to_prompt,
    validate_speech,
)
from parliabench_utils.run.artefacts import ResumableJsonl, write_json
from parliabench_utils.run.progress import progress
from parliabench_utils.run.seeds import row_seed

OUT_OF_MEMORY = (
    "out of memory while {name} generates: halve batch_size (in fp32 it changes no text), lower max_new_tokens, or take "
    "precision: bf16 or nf4"
)


def load_speaker(name: str, kind: str, folder: Path, precision: str | None = None) -> LoadedModel:
    """What speaks for one model and type of the run in `folder`: the base, the base with 03's adapter, or nobody (retrieval)."""
    if kind == RETRIEVAL:
        return LoadedModel(None, None, read_model_spec(name), "nearest training speech", "none")
    adapter = folder / "03_finetune" / name / "adapter" if kind == "fine-tuned" else None
    return load_model(name, adapter=adapter, purpose="generate", precision=precision)


def answer(
    loaded: LoadedModel, prompts: list[list[int]], seeds: list[int], settings: GenerationSettings
) -> list[tuple[str, str]]:
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
        raise MemoryError(OUT_OF_MEMORY.format(name=loaded.spec.name)) from error
    return [(loaded.tokenizer.decode(ids, skip_special_tokens=False).strip(), reason) for ids, reason in rows]


def retrieved(drafts: list[Draft], attempt: int, settings: GenerationSettings) -> list[tuple[str, str]]:
    """The training speech that stands in for each draft's answer, a farther one at each attempt; empty where none is left."""
    places = [draft.variant + (attempt - 1) * settings.variants for draft in drafts]
    texts = [d.examples[i]["Speech"] if i < len(d.examples) else "" for d, i in zip(drafts, places, strict=True)]
    return [(text.strip(), "retrieved") for text in texts]


def draw_batch(
    loaded: LoadedModel, kind: str, drafts: list[Draft], attempt: int, settings: GenerationSettings, seed: int
) -> None:
    """Draw one speech for each draft. The seed names prompt, variant and attempt, not the model: all start alike."""
    seeds = [row_seed(seed, *draft.key, attempt) for draft in drafts]
    began = time.perf_counter()
    if kind == RETRIEVAL:
        answers = retrieved(drafts, attempt, settings)
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
        reasons = [NO_ANSWER] if unanswered else validate_speech(draft.speech, draft.prompt, checked)
        if reasons:
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
    """Generate `path` (and `rejected-….jsonl` beside it), going on from what an interrupted run has written.

    A batch that a kill cut short is drawn anew in the same company, so that bf16 gives the same texts too.
    """
    checks = replace(checks, own_tokens=own_tokens(loaded.tokenizer))
    rejected_path = path.with_name(path.name.replace("shard-", "rejected-"))
    with ResumableJsonl(path, ("prompt_id", "variant")) as log:
        if not log.rows:  # nothing to go on from: what lies beside it is of other parameters
            for old in (rejected_path, rejected_path.with_name(rejected_path.name + ".partial")):
                old.unlink(missing_ok=True)
        with ResumableJsonl(rejected_path, (*log.key, "attempt")) as rejected:
            drafts = draft_prompts(loaded, kind, prompts, settings, examples)
            _restore(drafts, rejected.rows)
            for attempt in range(1, settings.max_attempts + 1):
                _round(loaded, kind, drafts, attempt, settings, checks, seed, log, rejected)
            rejected.finish()
        log.finish()
    return log.rows


def _restore(drafts: list[Draft], rows: Iterable[dict[str, Any]]) -> None:
    """Give each draft the rejections that an interrupted run has written."""
    by_key = {draft.key: draft for draft in drafts}
    for row in sorted(rows, key=lambda row: row["attempt"]):
        draft = by_key[row["prompt_id"], row["variant"]]
        draft.rejected.append({name: value for name, value in row.items() if name not in ("prompt_id", "variant")})


def _round(
    loaded, kind, drafts, attempt, settings, checks, seed, log: ResumableJsonl, rejected: ResumableJsonl
) -> None:
    """One attempt for all drafts whose earlier ones failed. The batches are cut from all of them, done or not."""
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


def pending_shards(folder: Path, model: str, kind: str, shards: list[int]) -> list[int]:
    """The shards whose file is not there yet: a model whose speeches are all made need not be loaded."""
    return [k for k in shards if not _file(folder, model, kind, f"shard-{k}.jsonl").is_file()]


def _file(folder: Path, model: str, kind: str, name: str) -> Path:
    return folder / "04_generate" / model / kind / name


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
