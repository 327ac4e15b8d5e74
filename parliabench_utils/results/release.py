"""What is handed on, and what is read from others: generated speeches in the paper's format (section 3.3; notebooks 08 and 09).

    scores = with_composite(pd.read_parquet(this_run.folder / "08_statistics/scores.parquet"), "run")
    write_release(this_run.folder, scores, names)

    python -m parliabench_utils import-published generated.jsonl --run published
    python -m parliabench_utils run 08_statistics --profile paper --run published

A line has the training data's keys (Party, Topic, Political Orientation, Section, House, Speech, Prompts) and Model, Type,
Generated Speech and Evaluation Scores, an object of metric name and value; keys in small letters are ours.
"""

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parliabench_utils.metrics.table import METRICS, Metric
from parliabench_utils.results.scores import PROMPT_COLUMNS, PUBLISHED, SET, SPEECH_COLUMNS, generated, imported_scores
from parliabench_utils.results.statistics import speech_difficulty
from parliabench_utils.run.artefacts import (
    PLAIN_NUMBER,
    markdown_table,
    markdown_text,
    parse_row,
    printable,
    read_jsonl,
    write_json,
    write_jsonl,
    write_parquet,
    write_text,
)
from parliabench_utils.run.params import plain_name, read_given_text
from parliabench_utils.run.project import project_root
from parliabench_utils.run.record import file_hash, vouch_for_import

PAPER_KEYS = ("Party", "Topic", "Political Orientation", "Section", "House", "Speech", "Prompts")
ROLES = ("best", "median", "worst")
RULE = (
    "Of each model and type the best, the median and the worst speech by composite, which is the plain mean of the metrics that "
    "every party has, each normalised to [0, 1] with 1 the good end. Only speeches that the tables compare can be chosen. Equal "
    "composites are put in order of prompt and variant; of an even number the lower of the two middle ones is the median."
)
AI_GENERATED = (
    "Every `Generated Speech` was written by a language model. No member said it, whatever party it is written for; do not pass it "
    "off as a real speech. `Speech` is the speech that the corpus has in its place."
)
RELEASED = ("Model", "Type", "Generated Speech", "Evaluation Scores", "ai_generated", "prompt_id", "variant", "speech_id")
RELEASED += ("instruction", "compared", "composite")


def with_composite(scores: pd.DataFrame, how: str) -> pd.DataFrame:
    """`scores` with `composite` in [0, 1]: the metrics that every party has, over the compared rows; NaN for the others."""
    return scores.assign(composite=(1.0 - speech_difficulty(scores[scores["compared"]], how)).round(6))


def representative(scores: pd.DataFrame) -> pd.DataFrame:
    """Best, median and worst generated speech of each model and type by `RULE`: the rows of `scores` with `role`."""
    known = generated(scores).dropna(subset=["composite"])
    ordered, parts = known.sort_values(["composite", "prompt_id", "variant"], kind="stable"), []
    for pair in scores[SET].drop_duplicates().to_numpy().tolist():
        part = ordered[(ordered[SET] == pair).all(axis=1)]
        places = {"best": len(part) - 1, "median": (len(part) - 1) // 2, "worst": 0}
        parts += [part.iloc[[places[role] for role in ROLES]].assign(role=ROLES)] if len(part) else []
    return pd.concat(parts, ignore_index=True) if parts else known.assign(role="")


def write_release(
    folder: Path, scores: pd.DataFrame, names: Mapping[str, str], models: pd.DataFrame, warnings: Sequence[str]
) -> Path:
    """Write `release/`: generated.jsonl, representative.jsonl and the card README.md; returns the folder.

    `scores` has `composite`; `models` is one row a model for the card. Raises ValueError where a prompt's speech is not in 02's
    test set.
    """
    target, originals = folder / "release", _originals(folder)
    spoken = generated(scores).dropna(subset=["generated_speech"])
    write_jsonl(target / "generated.jsonl", _rows(spoken, names, originals))
    chosen = representative(scores)
    rows = zip(chosen["role"], _rows(chosen, names, originals), strict=True)
    write_jsonl(target / "representative.jsonl", ({"role": role} | row for role, row in rows))
    write_text(target / "README.md", _card(folder, spoken, names, models, warnings))
    return target


def _originals(folder: Path) -> dict[str, dict[str, Any]]:
    """By prompt: the test set's speech that was given in its place, with the paper's keys and `speech_id`."""
    if (imported := imported_scores(folder)) is not None:
        rows = imported.drop_duplicates("prompt_id").assign(Speech="", speech_id=imported["prompt_id"])
        return {row["prompt_id"]: row | {"Prompts": []} for row in rows.to_dict("records")}
    speeches = {row["speech_id"]: row for row in read_jsonl(folder / "02_dataset/test.jsonl")}
    prompts = {row["prompt_id"]: row["speech_id"] for row in read_jsonl(folder / "02_dataset/prompts.jsonl")}
    if stray := sorted(set(prompts.values()) - set(speeches)):
        raise ValueError(f"02_dataset/prompts.jsonl names speeches that test.jsonl lacks: {stray[:3]}; run 02 again")
    return {prompt: speeches[speech] for prompt, speech in prompts.items()}


def _rows(scores: pd.DataFrame, names: Mapping[str, str], originals: Mapping[str, dict]) -> Iterator[dict[str, Any]]:
    for row in scores.to_dict("records"):
        original = originals[row["prompt_id"]]
        values = {metric.name: row[metric.column] for metric in METRICS}
        row |= {"Model": names[row["model"]], "Type": row["type"], "Generated Speech": row["generated_speech"]}
        row |= {"Evaluation Scores": values, "ai_generated": True, "speech_id": original["speech_id"]}
        yield {key: original[key] for key in PAPER_KEYS} | {key: row[key] for key in RELEASED}


def _card(folder: Path, spoken: pd.DataFrame, names: Mapping[str, str], models: pd.DataFrame, warnings: Sequence[str]) -> str:
    counts = spoken.groupby(SET, sort=False)["compared"].agg(speeches="size", compared="sum").reset_index()
    metrics = [[m.name, m.category, "higher" if m.higher_is_better else "lower", m.section] for m in METRICS]
    files = [[n, file_hash(folder / "release" / n)] for n in ("generated.jsonl", "representative.jsonl")]
    card = (Path(__file__).parent / "templates/release_card.md").read_text(encoding="utf-8")
    return card.format(
        run=folder.name,
        mark=AI_GENERATED,
        warnings="\n".join(f"- {markdown_text(warning)}" for warning in warnings) or "- Nothing that the run noticed.",
        counts=_table(counts.assign(model=counts["model"].map(names))),
        models=_table(models),
        metrics=_table(pd.DataFrame(metrics, columns=["metric", "what", "better", "section of the paper"])),
        rule=RULE,
        files=_table(pd.DataFrame(files, columns=["file", "sha256"])),
    )


def _table(frame: pd.DataFrame) -> str:
    return markdown_table(frame.columns, frame.itertuples(index=False))


def parameter_of_08(folder: Path, name: str) -> str:
    """A parameter of notebook 08 (`normalisation`, `estimand`) from the run's manifest. FileNotFoundError before 08 has run."""
    path = folder / "manifests/08_statistics.json"
    if not path.exists():
        raise FileNotFoundError(f"{folder.name} has no manifest of 08_statistics: run 08_statistics first")
    return json.loads(path.read_text(encoding="utf-8"))["parameters"][name]


CONTEXT = ["Party", "Topic", "Political Orientation", "Section", "House"]
REQUIRED = [*CONTEXT, "Model", "Type", "Generated Speech", "Evaluation Scores"]
FAMILIES = {"llama": "llama-3.1-8b", "gemma": "gemma-2-9b", "mistral": "mistral-7b-v0.3", "qwen": "qwen2-7b", "yi": "yi-6b"}
LONGEST_LABEL = 500  # characters of a party, topic, section, House or model's name
TYPES = {"baseline": "baseline", "base": "baseline", "finetuned": "fine-tuned"}
# Other spellings of our metrics' names and columns, in small letters without marks.
SPELLINGS = {
    "perplexity": "PPL", "distn": "Dist-2", "distinctn": "Dist-2", "distinct2": "Dist-2", "bertscore": "BERTScore F1",
    "bertscoref1": "BERTScore F1", "politicalspectrumalignment": "PSA", "partyalignment": "Party Align", "coherence": "J_Coh",
    "conciseness": "J_Conc", "relevance": "J_Rel", "authenticity": "J_Auth", "politicalappropriateness": "J_PolApp",
    "overallquality": "J_Qual",
}  # fmt: skip


def load_published(path: Path) -> pd.DataFrame:
    """One row a speech: prompt_id, variant, model, type, context, text and metrics.

    The prompt's id is the file's, else made from context and prompts; the k-th speech of a model and type to one prompt is
    matched with the k-th of the others. Missing scores are NaN, the judge's -1 ("no score") too. `attrs["ignored"]` counts
    scores that are none of the fourteen. Raises ValueError with file and line for a missing key, an unknown model or type, a value
    of the wrong type or out of its metric's range, and a speech that stands there twice.
    """
    ignored: Counter[str] = Counter()
    lines = {n: line for n, line in enumerate(read_given_text(path).split("\n"), start=1) if line.strip()}
    rows = [_row(parse_row(line, f"{path}, line {n}"), f"{path}, line {n}", ignored) for n, line in lines.items()]
    if not rows:
        raise ValueError(f"{path} has no speeches")
    frame = pd.DataFrame(rows).assign(line=list(lines))
    _refuse_contradictions(frame, path)
    turn = frame.groupby(["prompt_id", *SET, "variant"]).cumcount()
    frame["prompt_id"] += turn.map(lambda k: f".{k}" if k else "")
    frame = frame.drop(columns=["line", "given_model", "given_id"])
    frame.attrs["ignored"] = dict(ignored)
    return frame


def _refuse_contradictions(frame: pd.DataFrame, path: Path) -> None:
    """A speech twice, two models under one name, an id with two contexts: ValueError with both lines."""
    named = frame[frame["given_id"]]
    for rows, key, others, fault in (
        (named, ["prompt_id", *SET, "variant"], [], "{} has this prompt, model, type and variant already"),
        (frame, ["prompt_id", *SET, "variant", "generated_speech"], [], "{} has the same speech to the same prompt"),
        (frame, SET, ["given_model"], "{} calls this model and type otherwise; give each a file in params/models"),
        (named, ["prompt_id"], CONTEXT, "{} gives another context to this prompt_id"),
    ):
        known = rows.dropna(subset=key)
        first = known.groupby(key)[["line", *others]].transform("first")
        wrong = (known[others] != first[others]).any(axis=1) if others else known["line"] != first["line"]
        for line, earlier in zip(known.loc[wrong, "line"], first.loc[wrong, "line"], strict=True):
            raise ValueError(f"{path}, line {line}: {fault.format(f'line {earlier}')}")


def _row(record: dict[str, Any], where: str, ignored: Counter) -> dict[str, Any]:
    if missing := [key for key in REQUIRED if key not in record]:
        raise ValueError(f"{where}: no {', '.join(missing)}; a line needs {', '.join(REQUIRED)}")
    said, variant = record["Generated Speech"], record.get("variant")
    text = _text(said, f"{where}: Generated Speech") if said else None
    if variant is not None and (type(variant) is not int or variant < 0):
        raise ValueError(f"{where}: variant {variant!r:.60} is no whole number from 0 on")
    row = {"prompt_id": _prompt_id(record, where), "variant": variant or 0}
    row |= {"model": _model(record["Model"], where), "type": _type(record["Type"], where), "generated_speech": text}
    row |= {key: _label(record[key], f"{where}: {key}") for key in CONTEXT} | {"instruction": _instruction(record, where)}
    row |= {"given_model": str(record["Model"]), "given_id": bool(record.get("prompt_id"))}
    return row | {"n_words": len((text or "").split())} | _scores(record["Evaluation Scores"], where, ignored)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} is no text: {value!r:.60}")
    if re.search("[\ud800-\udfff]", value):
        raise ValueError(f"{where} has half of a surrogate pair; write the whole character")
    return value


def _label(value: object, where: str) -> str:
    """A name that tables print: text on one line."""
    text = _text(value, where)
    if text != printable(text) or "\n" in text or "\t" in text or len(text) > LONGEST_LABEL:
        raise ValueError(f"{where}: {text!r:.60} is no name (one line, no control characters, at most {LONGEST_LABEL})")
    return text


def _prompt_id(record: dict[str, Any], where: str) -> str:
    given = record.get("prompt_id")
    if given:
        try:
            return plain_name(_text(given, f"{where}: prompt_id"))
        except ValueError as error:
            raise ValueError(f"{where}: prompt_id {given!r:.60}: {error}") from error
    parts = json.dumps([record[key] for key in CONTEXT] + [record.get("Prompts")])
    return "published-" + hashlib.sha256(parts.encode()).hexdigest()[:12]


def _instruction(record: dict[str, Any], where: str) -> str:
    if given := record.get("instruction"):
        return _text(given, f"{where}: instruction")
    prompts = record.get("Prompts") or []
    texts = prompts if isinstance(prompts, list) else [prompts]
    return " ".join(_text(prompt, f"{where}: Prompts") for prompt in texts)


def _plain(name: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _model(name: object, where: str) -> str:
    name = _label(name, f"{where}: Model")
    if name in {file.stem for file in (project_root() / "params/models").glob("*.yaml")}:
        return name
    parts = re.findall(r"[a-z]+", name.lower())
    if len(found := [model for family, model in FAMILIES.items() if family in parts]) != 1:
        raise ValueError(f"{where}: model {name!r} is none of {', '.join(FAMILIES)} and has no file in params/models")
    return found[0]


def _type(name: object, where: str) -> str:
    if _plain(name) not in TYPES:
        raise ValueError(f"{where}: type {name!r:.60}, expected baseline or fine-tuned")
    return TYPES[_plain(name)]


def _scores(given: object, where: str, ignored: Counter) -> dict[str, float]:
    if not isinstance(given, dict):
        raise ValueError(f"{where}: Evaluation Scores is no object of metric and value")
    known = {_plain(name): metric.column for metric in METRICS for name in (metric.name, metric.column)} | SPELLINGS
    metrics = {metric.column: metric for metric in METRICS}
    scores: dict[str, float] = {}
    for name, value in given.items():
        column = known.get(_plain(name))
        if column is None:
            ignored[name] += 1
        elif column in scores:
            raise ValueError(f"{where}: {name!r} and another score are both {column}")
        else:
            scores[column] = _score(value, metrics[column], f"{where}: {name}")
    return dict.fromkeys(metrics, np.nan) | scores


def _score(value: object, metric: Metric, where: str) -> float:
    """A number in the metric's range; NaN for null, NaN and the judge's -1."""
    try:
        if value is None:
            return np.nan
        if isinstance(value, bool) or (isinstance(value, str) and not PLAIN_NUMBER.fullmatch(value.strip())):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {value!r:.60} is no number") from error
    if np.isnan(number) or (metric.kind == "judge" and number == -1):
        return np.nan
    low, high = metric.range
    if number < low or not np.isfinite(number) or (high is not None and number > high):
        raise ValueError(f"{where}: {value!r:.60} is not between {low:g} and {'infinity' if high is None else f'{high:g}'}")
    return number


def import_published(path: Path, folder: Path) -> pd.DataFrame:
    """Write the speeches of `path` as one score frame, `published/scores.parquet`, and `published/settings.json` beside it.

    08 and 09 read these two instead of stages 01 to 07. `folder` must be new and gets its name when it is whole. Returns what
    `load_published` read.
    """
    if folder.exists():
        raise ValueError(f"{folder} is there already: give the run another name or remove it")
    scores = load_published(path)
    frame = _score_frame(scores)
    silent = frame.groupby(["prompt_id", *SET])["generated_speech"].count().groupby("prompt_id").min() == 0
    read_by_08 = {"Self-BLEU": {"group": PUBLISHED, "max_n": 4}}
    settings = {"source": path.name, "kept": sorted(silent.index[~silent]), "settings": read_by_08}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        whole = Path(name) / folder.name
        write_parquet(whole / "published/scores.parquet", frame)
        write_json(whole / "published/settings.json", settings)
        vouch_for_import(whole, path)
        whole.rename(folder)
    return scores


def _score_frame(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows as `join_scores` has them: what is not published is null, and a set that lacks a prompt has a row without a speech."""
    metrics = [metric.column for metric in METRICS]
    prompts = scores.drop_duplicates("prompt_id").sort_values("prompt_id")[["prompt_id", *CONTEXT, "instruction"]]
    grid = scores[SET].drop_duplicates().sort_values(SET).merge(prompts, how="cross")
    frame = grid.merge(scores[["prompt_id", "variant", *SET, "generated_speech", "n_words", *metrics]], how="left")
    frame = frame.fillna({"variant": 0, "n_words": 0}).astype({"variant": int, "n_words": int})
    frame.loc[frame["generated_speech"].isna(), metrics] = np.nan
    kind = frame["instruction"].ne("").map({True: "question", False: "generic"})
    context = frame["Party"] + " / " + frame["Topic"] + " / " + frame["House"]
    made = {"context_id": context, "kind": kind, "weight": 1.0, "attempts": 1, "finish_reason": PUBLISHED, "trimmed": False}
    frame = frame.assign(**made, **{"Party Align deranged": np.nan}, **dict.fromkeys(("speaker_id", "sitting_id", "date")))
    frame = frame.sort_values([*SET, "prompt_id", "variant"], ignore_index=True)
    return frame[[*SPEECH_COLUMNS, *metrics, "Party Align deranged", *PROMPT_COLUMNS[1:]]]
