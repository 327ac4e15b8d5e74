"""The report of a run: `outputs/<run>/report.html`, one file that needs no network (notebook 09, `make demo`).

Warnings, sentences read from the run's own files, tables, figures, a browser for the speeches, what was dropped, settings and
provenance. It can be read without JavaScript; with it the speeches can be filtered and sorted. Only the two scripts that the page
comes with may run: its content policy names them by their hashes. Everything here is plain values; the template escapes them.

    write_report(this_run.folder, scores, profile="demo", models=models, judge=judge, browser_prompts=24, seed=42)
    print(headline(this_run.folder))
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import pandas as pd

from parliabench_utils.metrics.alignment_tests import overview
from parliabench_utils.metrics.judge_prompts import read_judge_spec
from parliabench_utils.metrics.table import METRICS
from parliabench_utils.models.specs import ModelSpec, as_spec, read_model_spec
from parliabench_utils.results.figures import DPI
from parliabench_utils.results.release import representative
from parliabench_utils.results.scores import HUMAN, PUBLISHED, SET, SMALL_GROUP, generated, kept_prompts, read_judgements
from parliabench_utils.results.statistics import verdict
from parliabench_utils.results.tables import DASH, MARKS, Table, model_names, number, read_table, set_labels, span
from parliabench_utils.run.artefacts import printable, read_csv, write_text
from parliabench_utils.run.params import read_profile
from parliabench_utils.run.project import shown
from parliabench_utils.run.stages import STAGES

# metric -> the parameter of notebook 05 that names what reads the speeches
READERS = {
    "PPL": "language_model",
    "GRUEN's grammar": "grammar",
    "BERTScore": "bertscore_encoder",
    "MoverScore": "moverscore_encoder",
}


def _parameters(folder: Path, stage: str) -> dict[str, Any]:
    """The parameters that a stage's manifests resolved; empty where it has not run."""
    files = sorted((folder / "manifests").glob(f"{stage}*.json"))
    return json.loads(files[0].read_text(encoding="utf-8"))["parameters"] if files else {}


def significance(folder: Path, names: Mapping[str, str]) -> list[str]:
    """One sentence for the paired test and one for the paper's pooled one: which metrics rise and fall, for which model."""
    table = read_csv(folder / "08_statistics/comparison.csv")
    correction = _parameters(folder, "08_statistics").get("correction", "bonferroni")
    said = []
    for test, title in {"paired": "Paired by prompt", "pooled": "Pooled, as in the paper"}.items():
        named = table["metric"] + " (" + table["model"].map(names) + ")"
        found = {mark: ", ".join(named[verdict(table, test, correction) == mark]) or "none" for mark in ("gain", "decline")}
        family = table["family" if test == "pooled" else "paired_p_family"].iloc[0]
        said.append(f"{title} ({correction}, {family}): gains: {found['gain']}; declines: {found['decline']}.")
    return said


def other_readers(folder: Path) -> list[str]:
    """A warning where a metric's model is not the paper's."""
    ours, paper = _parameters(folder, "05_text_metrics"), read_profile("05_text_metrics", "paper")
    other = [f"{m} by {ours[k]} (paper: {paper[k]})" for m, k in READERS.items() if k in ours and ours[k] != paper[k]]
    return [f"Not the paper's models read the speeches: {', '.join(other)}. Values do not compare."] if other else []


def guessing(folder: Path) -> list[str]:
    """A warning where no model's PSA is clearly above that of a guesser who does not read (notebook 06)."""
    file = folder / "06_political_alignment/summary/validation.csv"
    if not file.exists():
        return []
    found = read_csv(file)
    low = found.loc[found["statistic"] == "PSA less the better guesser's", "low"]
    if not len(low) or (low > 0).any():
        return []
    return ["PSA of no set, human speeches included, is clearly above that of the better of two guessers who do not read (Checks)."]


def trust_note(folder: Path) -> str:
    """What a reader of the trust table must know: how the judge draws, and who the second one is."""
    used = _parameters(folder, "07_judge")
    if not used:
        return ""
    judge, said = read_judge_spec(used["judge"]), []
    if judge.temperature == 0:
        said.append("The judge draws at temperature 0, so asking again must give the same rating: no merit of its own.")
    if used.get("second_judge"):
        second = read_judge_spec(used["second_judge"])
        if as_spec(second.model).id == as_spec(judge.model).id:
            scale = f"rates on {used['second_points']} points: a test of the scale, no second opinion."
            said.append(f"The second judge has the same weights and {scale}")
    said.append("Rows from “asked again” on rest on the few speeches of column n; above a control, one half is guessing.")
    return " ".join(said)


TRUST = "How far the judge can be trusted (07)"
SMALL_JUDGE = 1_000_000_000  # parameters; below, a judge's scores say next to nothing
NOT_SETTINGS = {"run", "profile", "model", "type", "shard"}
DEMO_NOTE = "Demo models: they show that the pipeline works, not what large models can do."


def demo_note(specs: Sequence[ModelSpec]) -> str:
    """A sentence for captions where the run's models are the packaged demo ones, else nothing."""
    return DEMO_NOTE if all(spec.source == "packaged" for spec in specs) else ""


def read_manifests(folder: Path) -> list[dict[str, Any]]:
    """All manifests of a run, in the order of the stages."""
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted((folder / "manifests").glob("[0-9]*.json"))]


def differences(folder: Path, profile: str) -> list[dict[str, str]]:
    """Every setting of the run that is not the paper profile's: notebook, key, run's value, paper's value.

    The run's values are those its manifests resolved, so `--set` counts; a stage that has not run shows its profile.
    """
    resolved = {record["stage"]: record["parameters"] for record in read_manifests(folder)}
    rows = []
    for stage in STAGES:
        paper = read_profile(stage, "paper")
        ours = read_profile(stage, profile) | resolved.get(stage, {})
        for key in dict.fromkeys([*paper, *ours]):
            if key not in NOT_SETTINGS and ours.get(key) != paper.get(key):
                rows.append({"stage": stage, "key": key, "run": _text(ours.get(key)), "paper": _text(paper.get(key))})
    marks = [(row["key"], row["run"], row["paper"]) for row in rows]
    shared = [mark for mark in dict.fromkeys(marks) if marks.count(mark) == len(STAGES)]  # in all nine notebooks alike
    common = [{"stage": "all", "key": key, "run": ours, "paper": paper} for key, ours, paper in shared]
    return common + [row for row, mark in zip(rows, marks, strict=True) if mark not in shared]


def _text(value: object) -> str:
    if value is None:
        return "not stated"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def dropped_rows(folder: Path) -> list[dict[str, str]]:
    """Reasons and counts of what each stage left out."""
    rows = []
    for stage in ("01_ingest", "02_dataset"):
        file = folder / stage / "dropped.csv"
        frame = read_csv(file, dtype=str) if file.exists() else pd.DataFrame(columns=["rule"])  # nothing of an imported run
        rows += [{"stage": stage, "reason": rule, "rows": f"{n:,}"} for rule, n in frame["rule"].value_counts().items()]
    return rows


def failures(folder: Path) -> pd.DataFrame:
    """04's failed attempts as its summary counts them."""
    file = folder / "04_generate/summary/failures.csv"
    return _printed_part(read_csv(file) if file.exists() else pd.DataFrame(columns=["model", "type", "reason", "count"]))


def checks(folder: Path) -> list[tuple[str, pd.DataFrame, str]]:
    """What earlier stages found out about their own metrics: title, printed table and note of each summary that there is
    (imported published speeches have none).
    """
    validation, summary = folder / "06_political_alignment/summary/validation.csv", folder / "07_judge/summary"
    titles, notes = {}, {}
    if validation.exists():
        found = read_csv(validation)
        guessed = found[found["split"] == "none"].drop(columns=["split", "check"])
        titles["What Party Align sees in human speeches, by condition and by what training and test share (06)"] = overview(found)
        titles["PSA beside the two guessers' (06)"] = guessed
    if summary.is_dir():
        titles[TRUST] = read_csv(summary / "trust.csv")
        notes[TRUST] = trust_note(folder)
        titles["What the judge could not rate (07)"] = read_csv(summary / "failures.csv")
    return [(title, _printed_part(frame), notes.get(title, "")) for title, frame in titles.items()]


def _printed_part(frame: pd.DataFrame) -> pd.DataFrame:
    floats = {name: frame[name].map(number) for name in frame.select_dtypes("floating")}
    return frame.assign(**floats).fillna("—").astype(str)


def missing_scores(scores: pd.DataFrame, kept: Sequence[str], compared: int) -> list[dict[str, str]]:
    """From speeches to the prompts that the tables compare."""
    answered, silent = len(set(kept)), int(scores["generated_speech"].isna().sum())
    counted = (
        ("04_generate", "no attempt passed the checks (speeches)", silent),
        ("04_generate", "prompts that not every model and type answered", scores["prompt_id"].nunique() - answered),
        ("08_statistics", "answered prompts without all ratings", max(answered - compared, 0)),
        ("08_statistics", "prompts that remain and are compared", compared),
    )
    return [{"stage": stage, "reason": reason, "rows": f"{n:,}"} for stage, reason, n in counted]


def warnings(folder: Path, specs: Sequence[ModelSpec], judge: str, n_prompts: int) -> list[str]:
    """What a reader must know before believing a number of this run."""
    found = [DEMO_NOTE] if demo_note(specs) else []
    if any(record["parameters"].get("corpus") == "mini" for record in read_manifests(folder)):
        found.append(
            "The corpus is the embedded one: invented debates by invented members, written for this project with a large language "
            "model. No party said any of it, and its row “Human speeches” is that corpus, not people."
        )
    files = sorted((folder / "05_text_metrics" / specs[0].name).glob("*.signatures.json"))
    scorer = str(json.loads(files[0].read_text(encoding="utf-8")).get("PPL", "")) if files else ""
    own = [spec.display for spec in specs if spec.id in scorer or spec.id.rpartition("/")[2] in scorer or spec.name in scorer]
    if own:
        found.append(f"Perplexity is scored by the generators' own base ({', '.join(own)}), so it favours their wording.")
    found += other_readers(folder) + guessing(folder) + _judge_warnings(specs, judge)
    if n_prompts < SMALL_GROUP:
        few = f"with fewer than {SMALL_GROUP} most differences cannot be told from chance."
        found.append(f"{n_prompts} prompts are compared: {few}")
    if any(record["environment"].get("git_dirty") for record in read_manifests(folder)):
        found.append("The code had changes that no commit holds when a stage ran.")
    return found


def _judge_warnings(specs: Sequence[ModelSpec], judge: str) -> list[str]:
    spec, found = as_spec(read_judge_spec(judge).model), []
    if spec.n_parameters < SMALL_JUDGE:
        size = f"The judge has {spec.n_parameters / 1e6:,.0f} million parameters"
        found.append(f"{size}: its scores (J_…) show the mechanism and say next to nothing about speeches (see Checks).")
    if spec.id in {s.id for s in specs}:
        found.append("The judge is one of the generators: it judges its own kind.")
    return found


def signatures(folder: Path, sets: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Each metric's signature and whose speeches have it: the settings under which numbers may be compared."""
    found: dict[tuple[str, str], list[str]] = {}
    for stage in ("05_text_metrics", "06_political_alignment"):
        for model, kind in sets if not (folder / PUBLISHED).is_dir() else ():
            record = json.loads((folder / stage / model / f"{kind}.signatures.json").read_text(encoding="utf-8"))
            record.pop("settings", None)
            for metric, signature in record.items():
                found.setdefault((metric, _text(signature)), []).append(f"{model}/{kind}")
    if not found:
        return [{"metric": metric.name, "signature": PUBLISHED, "of": "all"} for metric in METRICS]
    return [
        {"metric": metric, "signature": signature, "of": "all" if len(owners) == len(sets) else ", ".join(owners)}
        for (metric, signature), owners in found.items()
    ]


def provenance_rows(folder: Path) -> list[dict[str, str]]:
    """What ran: job, status, seed, commit, and its notes. Durations and memory are in the manifests themselves."""
    return [
        {"job": record["job"], "status": record["status"], "seed": str(record["seed"])}
        | {"commit": (record["environment"].get("git_commit") or "no git")[:10]}
        | {"notes": json.dumps(record["notes"], ensure_ascii=False, sort_keys=True, indent=1)}
        for record in read_manifests(folder)
        if record["status"] != "running"  # notebook 09 itself, while it writes this
    ]


def model_rows(specs: Sequence[ModelSpec]) -> pd.DataFrame:
    """The run's models for the card of the release: checkpoint, revision and licence of each."""
    rows = [(spec.display, spec.id, spec.revision or "not pinned", spec.precision, spec.licence) for spec in specs]
    return pd.DataFrame(rows, columns=["model", "checkpoint", "revision", "precision", "licence"])


SCORES = (("Composite", "composite", True), *((m.name, m.column, m.higher_is_better) for m in METRICS))
KEY = [*SET, "prompt_id", "variant"]
CONTEXT = ("prompt_id", "instruction", "Party", "Topic", "Political Orientation", "House", "Section")


def browser(folder: Path, scores: pd.DataFrame, names: Mapping[str, str], *, judge: str, limit: int, seed: int) -> dict[str, Any]:
    """What the template needs: prompts with their speeches, choices of the filters, extremes of each party, and what is left out."""
    chosen, rule = browser_prompts(scores, limit, seed)
    order = {prompt: place for place, prompt in enumerate(chosen)}
    rows = scores[scores["prompt_id"].isin(order)]
    words = _judge_words(folder, judge, rows)
    roles = {tuple(row[key] for key in KEY): row["role"] for row in representative(scores).to_dict("records")}
    by_prompt = rows.groupby(rows["prompt_id"].map(order))
    prompts = [_prompt(place, part, names, words, roles) for place, (_, part) in enumerate(by_prompt)]
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
    speeches = [_speech(f"p{place}s{position}", row, names, words, roles, several) for position, row in enumerate(ordered)]
    context = {key: ordered[0][key] for key in CONTEXT}
    return context | {"id": f"p{place}", "speeches": speeches, "n_generated": len(generated(rows))}


def _speech(
    place: str, row: Mapping[str, Any], names: Mapping[str, str], words: Mapping, roles: Mapping, several: bool
) -> dict[str, Any]:
    key, human = tuple(row[name] for name in KEY), row["type"] == HUMAN
    label = names[row["model"]] if human else f"{names[row['model']]}, {row['type']}"
    text, n_words = row["generated_speech"], row["n_words"]
    return (
        {"id": place, "model": row["model"], "display": names[row["model"]], "type": row["type"], "human": human}
        | {"label": f"{label}, variant {row['variant']}" if several and not human else label, "party": row["Party"]}
        | {"text": text if pd.notna(text) else None, "n_words": int(n_words) if pd.notna(n_words) else 0}
        | {"composite": row["composite"], "scores": [(name, _score(row[column])) for name, column, _ in SCORES]}
        | {"judge": words.get(key, []), "role": roles.get(key, ""), "compared": bool(row["compared"])}
    )


def _score(value: float) -> str:
    return number(value) if pd.isna(value) or abs(value) < 10 else number(value, 1)


def _choices(rows: pd.DataFrame, names: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Values and printed names of each filter, in the order in which the run has them or in that of the alphabet."""
    found = {key.lower(): sorted(set(rows[key])) for key in ("Party", "Topic", "House")}
    choices = {key: [(value, value) for value in values] for key, values in found.items()}
    choices["model"] = [(model, names[model]) for model in dict.fromkeys(rows["model"])]
    return choices | {"type": [(kind, kind) for kind in dict.fromkeys(rows["type"])]}


def _extremes(speeches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each party's best and worst generated speech by composite, for readers without a script too."""
    found: dict[str, list[dict[str, Any]]] = {}
    for speech in speeches:
        if not speech["human"] and not pd.isna(speech["composite"]):
            found.setdefault(speech["party"], []).append(speech)
    by_score = {party: sorted(group, key=lambda s: s["composite"]) for party, group in sorted(found.items())}
    return [{"party": party, "best": group[-1], "worst": group[0]} for party, group in by_score.items()]


FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "s1", "s2", "s3", "s4")
NUMBERED = tuple(f"table{n:02d}" for n in range(1, 14))
AUDIT = "paper_audit"
TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tablesort.min.js", "browser.js")
SCREEN_DPI = 125  # figures stand a little larger on the page than in print
NUMBER = r"[<\[−+-]?\s?\d.*"
HEADLINE_WIDTH, NAME_WIDTH = 11, 14  # characters


def write_report(
    folder: Path, scores: pd.DataFrame, *, profile: str, models: Sequence[str], judge: str, browser_prompts: int, seed: int
) -> Path:
    """Write `report.html` from the run's tables, figures, manifests and `scores` (with `composite`); returns its path.

    Speeches, names and settings are escaped by the template; pictures, style and scripts lie inside. `browser_prompts` is the
    most prompts that the speech browser holds, `seed` draws them where the run has more.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    printed = {"finalize": lambda value: printable(value) if type(value) is str else value, "autoescape": True}
    form = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(TEMPLATES), **printed, **form)
    environment.filters |= {"text_columns": text_columns, "sha256": _csp_hash, "round3": number}
    inner = ("report.css", "tablesort.LICENCE", *SCRIPTS)
    own = {name: Markup((TEMPLATES / name).read_text(encoding="utf-8")) for name in inner}
    content = _content(folder, scores, profile, models, judge)
    content["browser"] = browser(folder, scores, model_names(models), judge=judge, limit=browser_prompts, seed=seed)
    content |= {"style": own["report.css"], "licence": own["tablesort.LICENCE"], "scripts": [own[s] for s in SCRIPTS]}
    write_text(folder / "report.html", environment.get_template("report.html.j2").render(content))
    return folder / "report.html"


def _csp_hash(script: str) -> str:
    """A script as the page's content policy names it: `sha256-` and the base64 of its hash."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _content(folder: Path, scores: pd.DataFrame, profile: str, models: Sequence[str], judge: str) -> dict[str, Any]:
    kept = kept_prompts(folder)
    spoken = generated(scores)
    compared = spoken.loc[spoken["compared"], "prompt_id"].nunique()
    specs = [read_model_spec(model) for model in models]
    return {
        "run": folder.name,
        "profile": profile,
        "models": [spec.display for spec in specs],
        "n_prompts": compared,
        "warnings": warnings(folder, specs, judge, compared),
        "headline": headline_frame(folder),
        "significance": significance(folder, model_names(models)),
        "tables": [_printed(read_table(folder, name)) for name in _table_names(folder)],
        "audit": read_table(folder, AUDIT),
        "figures": [_figure(folder, name) for name in FIGURES],
        "dropped": dropped_rows(folder) + missing_scores(scores, kept, compared),
        "failures": failures(folder),
        "checks": checks(folder),
        "differences": differences(folder, profile),
        "signatures": signatures(folder, list(dict.fromkeys(zip(scores["model"], scores["type"], strict=True)))),
        "provenance": provenance_rows(folder),
    }


def _table_names(folder: Path) -> list[str]:
    """The paper's tables in its order, then the run's other ones; the audit has a section of its own."""
    written = {path.stem for path in (folder / "tables").glob("*.json")}
    return [*NUMBERED, *sorted(written - {*NUMBERED, AUDIT})]


def text_columns(frame: pd.DataFrame) -> list[bool]:
    """Which columns hold words rather than numbers, so that the page sets them to the left; dashes do not decide."""
    cells = [frame[column].astype(str) for column in frame.columns]
    known = [column[column != DASH] for column in cells]
    return [len(column) > 0 and bool(column.str.fullmatch(NUMBER).mean() <= 0.5) for column in known]


def _printed(table: Table) -> Table:
    """A table that is wider than a page and short is turned: Table 2 has metrics in rows on the page."""
    frame = table.display
    if len(frame.columns) < 14 or len(frame) > 12:
        return table
    turned = frame.set_index(frame.columns[0]).T.rename_axis("", axis=1).reset_index(names="")
    return replace(table, display=turned)


def _figure(folder: Path, name: str) -> dict[str, Any]:
    target = folder / "figures" / name
    record = json.loads(target.with_suffix(".json").read_text(encoding="utf-8"))
    picture = target.with_suffix(".png").read_bytes()
    width = int.from_bytes(picture[16:20]) * SCREEN_DPI // DPI  # a PNG's width stands in bytes 16 to 19
    number = f"Figure {name.removeprefix('fig')}"
    return record | {"png": base64.b64encode(picture).decode("ascii"), "width": width, "number": number}


def headline_frame(folder: Path) -> pd.DataFrame:
    """Metrics in rows, models and types in columns: means with * (gain) and † (decline), from `tables/table02.csv`."""
    data = read_csv(folder / "tables/table02.csv")
    names = dict(zip(data["model"], data["display"], strict=True))
    labels = set_labels(data, names)
    cell = data["mean"].map(number) + data["mark"].fillna("").map(MARKS)
    frame = pd.DataFrame({"metric": data["metric"], "set": labels, "cell": cell})
    wide = frame.pivot(index="metric", columns="set", values="cell")
    wide = wide.reindex(index=[m.name for m in METRICS], columns=list(dict.fromkeys(labels)))
    wide.index = [f"{m.name} {'↑' if m.higher_is_better else '↓'}" for m in METRICS]
    wide.loc["n"] = data.groupby(labels)["n"].apply(span).reindex(wide.columns)  # a metric may have fewer values
    return wide


def headline(folder: Path) -> str:
    """The headline table for a terminal, and where the report lies. FileNotFoundError where 08 or 09 has not run."""
    report = folder / "report.html"
    if not report.exists():
        raise FileNotFoundError(f"{folder.name} has no report.html: run 09_figures first (make demo)")
    frame = headline_frame(folder)
    columns = [wrap(str(column), HEADLINE_WIDTH) or [""] for column in frame.columns]
    width = max(HEADLINE_WIDTH, *(len(line) for lines in columns for line in lines)) + 2
    height = max(map(len, columns))
    padded = [[""] * (height - len(lines)) + lines for lines in columns]
    head = [" " * NAME_WIDTH + "".join(lines[row].rjust(width) for lines in padded) for row in range(height)]
    rows = zip(frame.index, frame.to_numpy(), strict=True)
    body = [name.ljust(NAME_WIDTH) + "".join(cell.rjust(width) for cell in cells) for name, cells in rows]
    rule = "-" * len(body[0])
    legend = "(B) baseline, (F) fine-tuned; * significant gain, † significant decline"
    return "\n".join([*head, rule, *body, rule, legend, f"report: {shown(report)}"])
