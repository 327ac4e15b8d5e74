"""The speech browser of the report: which prompts the page holds, and what it shows of each speech (notebook 09).

    content = browser(this_run.folder, scores, names, judge="flow-judge", limit=100, seed=42)

`scores` has `composite` (`release.with_composite`). Everything here is plain values; the template escapes them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from parliabench_utils.metrics.table import METRICS
from parliabench_utils.results.cells import HUMAN, SET, generated
from parliabench_utils.results.release import representative
from parliabench_utils.results.scores import read_judgements
from parliabench_utils.results.tabular import number

SCORES = (("Composite", "composite", True), *((m.name, m.column, m.higher_is_better) for m in METRICS))
KEY = [*SET, "prompt_id", "variant"]
CONTEXT = ("prompt_id", "instruction", "Party", "Topic", "Political Orientation", "House", "Section")


def browser(
    folder: Path, scores: pd.DataFrame, names: Mapping[str, str], *, judge: str, limit: int, seed: int
) -> dict[str, Any]:
    """What the template needs: prompts with their speeches, choices of the filters, extremes of each party, and what is left out."""
    chosen, rule = browser_prompts(scores, limit, seed)
    order = {prompt: place for place, prompt in enumerate(chosen)}
    rows = scores[scores["prompt_id"].isin(order)]
    words = _judge_words(folder, judge, rows)
    roles = {tuple(row[key] for key in KEY): row["role"] for row in representative(scores).to_dict("records")}
    prompts = [
        _prompt(place, part, names, words, roles)
        for place, (_, part) in enumerate(rows.groupby(rows["prompt_id"].map(order)))
    ]
    speeches = [speech for prompt in prompts for speech in prompt["speeches"]]
    return {
        "prompts": prompts,
        "n_speeches": sum(speech["text"] is not None for speech in speeches),
        "n_silent": sum(speech["text"] is None for speech in speeches),
        "rule": rule,
        "choices": _choices(rows, names),
        "scores": [(name, "↑" if higher else "↓") for name, _, higher in SCORES],
        "extremes": _extremes(speeches),
        "judge_is_silent": not any(speech["judge"] for speech in speeches),
    }


def browser_prompts(scores: pd.DataFrame, limit: int, seed: int) -> tuple[list[str], str]:
    """Prompts for the page in order of party, and a sentence that says how they were chosen.

    All of them up to `limit`. Of more: those of each party's best and worst and of the representative speeches, then one prompt
    of each party in turn, drawn with `seed`, until there are `limit`.
    """
    prompts = scores.drop_duplicates("prompt_id")[["prompt_id", "Party"]].sort_values(["Party", "prompt_id"])
    if len(prompts) <= limit:
        return prompts["prompt_id"].tolist(), f"All {len(prompts):,} prompts of the run are here."
    needed = set(representative(scores)["prompt_id"]) | _extreme_prompts(scores)
    rest = prompts[~prompts["prompt_id"].isin(needed)].sample(frac=1, random_state=seed)
    turns = rest.assign(turn=rest.groupby("Party").cumcount()).sort_values(["turn", "Party"], kind="stable")
    kept = needed | set(turns["prompt_id"].head(max(limit - len(needed), 0)))
    rule = (
        f"{len(kept):,} of the run's {len(prompts):,} prompts are here: the {len(needed):,} of each party's best and worst speech "
        f"and of the representative speeches, and others drawn party by party with seed {seed}. All are in release/generated.jsonl."
    )
    return prompts.loc[prompts["prompt_id"].isin(kept), "prompt_id"].tolist(), rule


def _extreme_prompts(scores: pd.DataFrame) -> set[str]:
    known = generated(scores).dropna(subset=["composite"]).sort_values(["composite", *KEY])
    ends = known.groupby("Party")["prompt_id"].agg(["first", "last"])
    return set(ends["first"]) | set(ends["last"])


def _judge_words(folder: Path, judge: str, rows: pd.DataFrame) -> dict[tuple, list[tuple[str, str]]]:
    """What the judge wrote about each speech: (dimension, words), the dimensions without words left out."""
    wanted, found = set(rows["prompt_id"]), {}
    for pair in rows[SET].drop_duplicates().itertuples(index=False, name=None):
        judged = read_judgements(folder, judge, [pair])
        for row in judged[judged["prompt_id"].isin(wanted)].to_dict("records"):
            if text := (row["feedback"] or "").strip():
                found.setdefault(tuple(row[key] for key in KEY), []).append((row["dimension"], text))
    return found


def _prompt(place: int, rows: pd.DataFrame, names: Mapping[str, str], words: Mapping, roles: Mapping) -> dict[str, Any]:
    """One prompt: its context and its speeches, models in the run's order, the human one last."""
    several = rows["variant"].nunique() > 1
    ordered = pd.concat([generated(rows), rows[rows["type"] == HUMAN]]).to_dict("records")
    speeches = [
        _speech(f"p{place}s{position}", row, names, words, roles, several) for position, row in enumerate(ordered)
    ]
    return {key: ordered[0][key] for key in CONTEXT} | {
        "id": f"p{place}",
        "speeches": speeches,
        "n_generated": len(generated(rows)),
    }


def _speech(
    place: str, row: Mapping[str, Any], names: Mapping[str, str], words: Mapping, roles: Mapping, several: bool
) -> dict[str, Any]:
    key, human = tuple(row[name] for name in KEY), row["type"] == HUMAN
    label = names[row["model"]] if human else f"{names[row['model']]}, {row['type']}"
    return {
        "id": place,
        "model": row["model"],
        "display": names[row["model"]],
        "type": row["type"],
        "label": f"{label}, variant {row['variant']}" if several and not human else label,
        "human": human,
        "party": row["Party"],
        "text": row["generated_speech"] if pd.notna(row["generated_speech"]) else None,
        "n_words": int(row["n_words"]) if pd.notna(row["n_words"]) else 0,
        "composite": row["composite"],
        "scores": [(name, _score(row[column])) for name, column, _ in SCORES],
        "judge": words.get(key, []),
        "role": roles.get(key, ""),
        "compared": bool(row["compared"]),
    }


def _score(value: float) -> str:
    return number(value) if pd.isna(value) or abs(value) < 10 else number(value, 1)


def _choices(rows: pd.DataFrame, names: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Values and printed names of each filter, in the order in which the run has them or in that of the alphabet."""
    models = list(dict.fromkeys(rows["model"]))
    return {
        "party": _named(sorted(set(rows["Party"]))),
        "topic": _named(sorted(set(rows["Topic"]))),
        "house": _named(sorted(set(rows["House"]))),
        "model": [(model, names[model]) for model in models],
        "type": _named(dict.fromkeys(rows["type"])),
    }


def _named(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in values]


def _extremes(speeches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each party's best and worst generated speech by composite, for readers without a script too."""
    found: dict[str, list[dict[str, Any]]] = {}
    for speech in speeches:
        if not speech["human"] and not pd.isna(speech["composite"]):
            found.setdefault(speech["party"], []).append(speech)
    by_score = {party: sorted(group, key=lambda s: s["composite"]) for party, group in sorted(found.items())}
    return [{"party": party, "best": group[-1], "worst": group[0]} for party, group in by_score.items()]
