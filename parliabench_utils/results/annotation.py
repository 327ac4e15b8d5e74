"""People judge what the judge judged: a blinded sample to fill in, and their files read back (the paper's future work).

Used by `python -m parliabench_utils annotate`. No server is needed: the form is one HTML file that works offline and saves a CSV;
the spreadsheet is a CSV with the same columns. Raters see a speech, its context and the judge's rubric, never who wrote it.

    write_annotation(outputs_root() / "demo", judge="smollm2-constrained", n_speeches=20, points=10, seed=42)
    read_annotation(outputs_root() / "demo", [Path("ratings-ada.csv"), Path("ratings-ben.csv")])
"""

import codecs
import csv
import hashlib
import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, zip_longest
from pathlib import Path

import numpy as np
import pandas as pd

from parliabench_utils.metrics.judge import speeches_of
from parliabench_utils.metrics.judge_prompts import DIMENSIONS, JudgeSpec, read_judge_spec, rubric_lines
from parliabench_utils.metrics.judge_trust import absolute_icc, bootstrap_items, ordinal_alpha, pair_agreement, quadratic_kappa
from parliabench_utils.results.scores import PUBLISHED, SET, imported_scores, read_judgements
from parliabench_utils.run.artefacts import (
    Row,
    csv_text,
    harmless,
    printable,
    read_csv,
    read_jsonl,
    restored,
    write_csv,
    write_json,
    write_text,
)
from parliabench_utils.run.params import read_given_text
from parliabench_utils.run.record import check_inputs, file_hash

KEY = ["item", "model", "type", "prompt_id", "variant"]
SHOWN = ("House", "Topic", "Party", "Political Orientation", "instruction")
TITLES = (  # section 10.1
    "Coherence", "Conciseness", "Relevance", "Authenticity", "Political appropriateness", "Overall quality",
)  # fmt: skip
DELIMITERS = (",", ";", "\t")  # what spreadsheets write, by the computer's language


def write_annotation(folder: Path, judge: str, n_speeches: int, points: int, seed: int) -> Path:
    """Write `form.html`, `sheet.csv`, `rubric.csv` for raters and `key.csv`, `sample.json` for yourself; returns their folder.

    The sample holds equally many speeches of each model and type, to the same prompts, spread over parties, in random order.
    ValueError where there are too few speeches for that.
    """
    spec, target = read_judge_spec(judge), folder / "annotation"
    rows = _sample(folder, n_speeches, seed)
    items = [{"item": f"s{n:03d}"} | row for n, row in enumerate(rows, start=1)]
    for name, rows in (("sheet", _sheet_rows(items)), ("rubric", _rubric_rows(spec, points))):
        text = csv_text(pd.DataFrame(rows))
        write_text(target / f"{name}.csv", "\ufeff" + text)  # the mark tells a spreadsheet that it is UTF-8
    write_csv(target / "key.csv", pd.DataFrame(items)[KEY])
    write_text(target / "form.html", _form(spec, items, points))
    made = {"judge": judge, "points": points, "seed": seed, "items": len(items)}
    write_json(target / "sample.json", made | {"key_sha256": file_hash(target / "key.csv")})
    return target


def _sample(folder: Path, n_speeches: int, seed: int) -> list[Row]:
    files = sorted((folder / "04_generate").glob("*/*/shard-*.jsonl"))
    imported = imported_scores(folder)
    check_inputs("annotate", [folder / "02_dataset/prompts.jsonl", *files] if imported is None else [folder / PUBLISHED], folder)
    sets = sorted({(file.parent.parent.name, file.parent.name) for file in files})
    said = [speeches_of(folder, *pair) for pair in sets]
    if imported is not None:
        sets, parts = zip(*imported.dropna(subset=["generated_speech"]).groupby(SET), strict=True)
        said = [part.to_dict("records") for part in parts]
    spoken = [{row["prompt_id"]: row for row in rows} for rows in said]
    shared = sorted(set.intersection(*map(set, spoken))) if spoken else []
    per_set = n_speeches // max(len(sets), 1)
    if not 0 < per_set <= len(shared):
        raise ValueError(
            f"{folder.name}: {n_speeches} speeches of {len(sets)} models and types need {per_set} prompts that all of them "
            f"answered, at least one; there are {len(shared)}"
        )
    source = random.Random(seed)
    source.shuffle(shared)
    chosen = _by_turns(shared, {prompt: spoken[0][prompt]["Party"] for prompt in shared})[:per_set]
    rows = [own[prompt] for prompt in chosen for own in spoken]
    source.shuffle(rows)
    return rows


def _by_turns(prompts: list[str], party: dict[str, str]) -> list[str]:
    """One prompt of each party, then a second of each, and so on."""
    seen: Counter[str] = Counter()
    turn = {}
    for prompt in prompts:
        turn[prompt] = seen[party[prompt]]
        seen[party[prompt]] += 1
    return sorted(prompts, key=turn.get)


def _rubric_rows(spec: JudgeSpec, points: int) -> list[Row]:
    return [
        {"dimension": name, "criteria": harmless(spec.dimensions[name].criteria), "score": label, "means": harmless(line)}
        for name in DIMENSIONS
        for label, line in rubric_lines(spec, name, points)
    ]


def _sheet_rows(items: list[Row]) -> list[Row]:
    empty = dict.fromkeys([*DIMENSIONS, "comment"], "")
    return [
        {"item": item["item"]}
        | {key: harmless(str(item[key])) for key in SHOWN}
        | {"speech": harmless(item["generated_speech"])}
        | empty
        for item in items
    ]


def _form(spec: JudgeSpec, items: list[Row], points: int) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    form = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True}
    printed = {"finalize": lambda value: printable(value) if type(value) is str else value}
    environment = Environment(loader=PackageLoader("parliabench_utils.results"), **form, **printed)
    dimensions = [
        {"name": d, "title": title, "criteria": spec.dimensions[d].criteria, "lines": rubric_lines(spec, d, points)}
        for d, title in zip(DIMENSIONS, TITLES, strict=True)
    ]
    mark = hashlib.sha256(json.dumps([i["generated_speech"] for i in items]).encode()).hexdigest()[:12]
    template = environment.get_template("annotation.html.j2")
    return template.render(items=items, shown=SHOWN, dimensions=dimensions, points=points, mark=mark)


def read_annotation(folder: Path, files: list[Path]) -> pd.DataFrame:
    """Check the raters' files, write `annotation/ratings.csv` and `agreement.csv`, return the latter: one row a dimension.

    Columns: `raters, items, missing` (empty cells), among raters `alpha` (ordinal, with `alpha_low, alpha_high`), `kappa` (quadratic,
    mean over pairs), `icc` (A,1, on items that all rated); of raters' mean with the judge `judge_n, judge_kappa, judge_icc,
    judge_tau`, and `judge_tau_sets` over the means of models and types. ValueError lists every mistake with file and line.
    """
    target = folder / "annotation"
    if not (target / "sample.json").exists():
        raise FileNotFoundError(f"{target} holds no sample: run `annotate --run {folder.name}` without --read first")
    sample = json.loads((target / "sample.json").read_text(encoding="utf-8"))
    if file_hash(target / "key.csv") != sample.get("key_sha256"):
        raise ValueError(
            f"{target / 'key.csv'} was changed after `annotate` wrote it, its scores would go to other models: "
            "put the file back, or write the sample again"
        )
    key = read_csv(target / "key.csv", dtype=dict.fromkeys(KEY[:-1], str))
    ratings = _read_files(files, list(key["item"]), sample["points"]).merge(key, on="item")
    ratings = ratings.merge(_judge_scores(folder, sample["judge"], key), how="left", on=[*key.columns[1:], "dimension"])
    write_csv(target / "ratings.csv", ratings)
    rows = [_agreement(name, ratings[ratings["dimension"] == name], sample["points"]) for name in DIMENSIONS]
    table = pd.DataFrame(rows)
    write_csv(target / "agreement.csv", table)
    return table


def _read_files(files: list[Path], items: list[str], points: int) -> pd.DataFrame:
    rows: list[Row] = []
    problems: list[str] = []
    for file in files:
        found = _read_file(file, items, points, problems)
        twice = {row["rater"] for row in found} & {row["rater"] for row in rows}
        problems += [f"{file.name}: rater {name!r} has another file already" for name in sorted(twice)]
        rows += found
    if problems:
        raise ValueError("ratings that cannot be read:\n" + "\n".join(problems))
    return pd.DataFrame(rows, columns=["rater", "item", "dimension", "score"]).astype({"score": "float64"})


def _read_file(file: Path, items: list[str], points: int, problems: list[str]) -> list[Row]:
    """One row an item and dimension; the rater is the column `rater`, else the file's name. Mistakes are added to `problems`."""
    before = len(problems)
    try:
        records = list(_records(file))
    except csv.Error as error:
        raise ValueError(f"{file.name}: no CSV ({error})") from error
    header = records[0][1] if records else []
    absent = [name for name in ("item", *DIMENSIONS) if name not in header]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    problems += [f"{file.name}: no column {', '.join(absent)}"] * bool(absent)
    problems += [f"{file.name}: column {', '.join(twice)} stands there twice"] * bool(twice)
    if len(problems) > before:
        return []
    rows: dict[str, list[Row]] = {}
    for line, cells in records[1:]:
        record = dict(zip_longest(header, cells[: len(header)], fillvalue=""))
        item, where = record["item"].strip(), f"{file.name}, line {line}"
        if any(cell.strip() for cell in cells[len(header) :]):
            problems.append(f"{where}: more cells than columns")
        if item not in items or item in rows:
            problems.append(f"{where}: item {item!r} {'stands there twice' if item in rows else 'is not in the sample'}")
            continue
        rater = record.get("rater", "").strip() or file.stem.removeprefix("ratings-")
        if rater != printable(rater) or len(rater.splitlines()) != 1 or len(rater) > 100 or "\ufffd" in rater:
            problems.append(f"{where}: rater {rater!r:.60} is no name (one line of at most 100 characters)")
        scores = {name: _score(record[name], f"{where}, {name}", points, problems) for name in DIMENSIONS}
        rows[item] = [{"rater": rater, "item": item, "dimension": d, "score": s} for d, s in scores.items()]
    if not rows:
        problems.append(f"{file.name}: no speech of the sample is rated")
    raters = sorted({found[0]["rater"] for found in rows.values()})
    problems += [f"{file.name}: raters {', '.join(raters)} in one file; give each a file"] * (len(raters) > 1)
    return [row for item in items for row in rows.get(item) or _unrated(rows, item)]


def _records(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of each record, the header first, as any spreadsheet may write them; empty lines are left out.

    A file in Windows-1252 is read as such: what counts in it is plain, and a rater's name may have an accent.
    """
    try:
        text = read_given_text(file)
    except ValueError:
        data = file.read_bytes()
        if b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise
        text = data.decode("cp1252", "replace")
    first, _, rest = text.partition("\n")
    named = re.fullmatch(r"sep=(.)", first.strip(" \r"))
    header = rest.partition("\n")[0] if named else first
    delimiter = named[1] if named else max(DELIMITERS, key=header.count)
    reader = csv.reader(io.StringIO(rest if named else text, newline=""), delimiter=delimiter)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num + bool(named), [restored(cell) for cell in cells]


def _unrated(rows: dict[str, list[Row]], item: str) -> list[Row]:
    """An item that a rater left out altogether counts as six empty cells."""
    rater = next((found[0]["rater"] for found in rows.values()), None)
    return [{"rater": rater, "item": item, "dimension": d, "score": None} for d in DIMENSIONS] if rater else []


def _score(text: str, where: str, points: int, problems: list[str]) -> float | None:
    """A whole number of the scale, `7`, `7.0` or, as some languages write it, `7,0`; None for an empty cell."""
    text = text.strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,2}([.,]0+)?", text, re.ASCII) or not 1 <= int(re.split("[.,]", text)[0]) <= points:
        problems.append(f"{where}: {text!r:.60} is no whole number from 1 to {points}")
        return None
    return float(re.split("[.,]", text)[0])


def _judge_scores(folder: Path, judge: str, key: pd.DataFrame) -> pd.DataFrame:
    parts = []
    if (folder / PUBLISHED).is_dir():
        check_inputs("annotate", [folder / PUBLISHED], folder)
        parts = [read_judgements(folder, judge, key[SET].itertuples(index=False, name=None))]
        key = key.iloc[:0]
    for model, kind in key[["model", "type"]].drop_duplicates().itertuples(index=False):
        file = folder / "07_judge" / judge / model / f"{kind}.jsonl"
        if not file.exists():
            raise FileNotFoundError(f"{file} is missing: run 07_judge with judge={judge} first")
        check_inputs("annotate", [file], folder)
        parts.append(pd.DataFrame(read_jsonl(file)).assign(model=model, type=kind))
    columns = ["model", "type", "prompt_id", "variant", "dimension", "score"]
    return pd.concat(parts)[columns].rename(columns={"score": "judge"}).astype({"judge": "float64"})


def _agreement(name: str, ratings: pd.DataFrame, points: int) -> Row:
    wide = ratings.pivot_table(index="item", columns="rater", values="score", dropna=False)
    table = wide.to_numpy(float).T  # (n_raters, n_items); prompts were sampled, so the interval draws prompts
    prompts = ratings.drop_duplicates("item").set_index("item")["prompt_id"].reindex(wide.index)
    low, high = bootstrap_items(ordinal_alpha, table, clusters=prompts.to_numpy())
    complete = table[:, ~np.isnan(table).any(axis=0)]
    kappas = [quadratic_kappa(a, b, points) for a, b in combinations(complete, 2)] if complete.size else []
    items = ratings.groupby("item").agg(
        score=("score", "mean"), judge=("judge", "first"), model=("model", "first"), type=("type", "first")
    )
    with_judge = pair_agreement(items["score"].to_numpy(), items["judge"].to_numpy(), points)
    means = items.groupby(["model", "type"])[["score", "judge"]].mean().to_numpy()
    return (
        {"dimension": name, "raters": len(table), "items": table.shape[1], "missing": int(np.isnan(table).sum())}
        | {"alpha": ordinal_alpha(table), "alpha_low": low, "alpha_high": high}
        | {"kappa": float(np.mean(kappas)) if kappas else np.nan, "icc": absolute_icc(complete) if len(table) > 1 else np.nan}
        | {f"judge_{key}": value for key, value in with_judge.items()}
        | {"judge_tau_sets": pair_agreement(*means.T, points)["tau"]}
    )
