"""The nine notebooks as sources: parameters, order of cells, house style. Nothing is executed here."""

import ast
import re

import jupytext
import pytest
import yaml

from parliabench_utils.run.params import RULES, notebook_path, parameters_cell, read_profile, resolve
from parliabench_utils.run.stages import STAGES
from tests.conftest import ROOT

PROFILES = ("demo", "small", "paper")
SHARED = ("run", "profile", "seed", "data_root", "models", "types", "n_threads", "offline")  # the keys of common.yaml
STUDIES = sorted(path.stem for path in (ROOT / "notebooks/studies").glob("*.py"))
LONGEST_CELL = 25
COURSE_CELLS_ONLY = ("!", "%pip", "%conda")


def source(name):
    return jupytext.read(notebook_path(name))


def code_cells(name):
    return [cell for cell in source(name).cells if cell.cell_type == "code"]


def cell_parameters(name):
    (cell,) = [cell for cell in code_cells(name) if "parameters" in cell.metadata.get("tags", [])]
    body = ast.parse(cell.source).body
    assert all(isinstance(node, ast.Assign) for node in body), "the parameters cell holds assignments only"
    return {node.targets[0].id: ast.literal_eval(node.value) for node in body}


def read(profile, name):
    path = ROOT / "params" / profile / f"{name}.yaml"
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def test_there_are_nine_notebooks_and_only_sources():
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.py")) == sorted(STAGES)


@pytest.mark.parametrize("name", STAGES)
def test_the_cell_is_the_demo_and_holds_to_its_own_rules(name):
    assert cell_parameters(name) == parameters_cell(ROOT / "notebooks" / f"{name}.py") == resolve(name, "demo", {}).model_dump()
    assert set(RULES[name]) <= set(cell_parameters(name))
    assert set(SHARED) <= set(cell_parameters(name))


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_the_shared_parameters_only(name):
    assert set(cell_parameters(name)) == set(SHARED)
    assert cell_parameters(name) == resolve(name, "demo", {}).model_dump()


def test_the_demo_has_no_files_but_one_that_names_it():
    assert [path.name for path in (ROOT / "params/demo").iterdir()] == ["common.yaml"]
    assert read("demo", "common") == {"run": "demo", "profile": "demo"}


@pytest.mark.parametrize("profile", ["small", "paper"])
@pytest.mark.parametrize("name", ["common", *STAGES])
def test_a_profile_says_what_differs_from_the_cell_and_why(profile, name):
    cell = cell_parameters("01_ingest" if name == "common" else name)
    for key, value in read(profile, name).items():
        assert key in (SHARED if name == "common" else set(cell) - set(SHARED))
        assert value != cell[key] or key in ("run", "profile"), f"{profile}/{name}.yaml: {key} is the notebook's own"
    path = ROOT / "params" / profile / f"{name}.yaml"
    lines = [line for line in (path.read_text().splitlines() if path.exists() else []) if not line.startswith("#")]
    assert all("  # " in line for line in lines if line.partition(":")[0] not in ("run", "profile"))
    if name != "common":
        assert resolve(name, profile, {}).profile == profile


def test_what_the_paper_states_is_what_its_profile_has():
    """Also where the notebook's cell happens to say the same today: sections 4.1, 5.2, 5.3 and Tables 6 and 7."""
    stated = {
        "02_dataset": {"train_share": 0.8, "n_prompts": 3000, "question_share": 0.1, "n_references": 5, "min_speeches": 1000},
        "03_finetune": {"lora_rank": 16, "lora_alpha": 16, "lora_dropout": 0.0, "batch_size": 64, "gradient_accumulation": 1,
                        "learning_rate": 2e-4, "scheduler": "linear", "warmup_share": 0.03, "weight_decay": 0.01, "epochs": 2,
                        "max_length": 1024, "lora_seed": 3407},
        "04_generate": {"temperature": 0.7, "top_p": 0.85, "repetition_penalty": 1.2, "max_attempts": 3, "variants_per_prompt": 1,
                        "min_similarity": 0.08, "max_new_tokens": 850},
        "07_judge": {"judge": "flow-judge", "points": 10},
        "08_statistics": {"correction": "bonferroni", "missing": "complete", "asterisk_test": "pooled"},
    }  # fmt: skip
    for name, values in stated.items():
        assert values.items() <= resolve(name, "paper", {}).model_dump().items()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["common", *STAGES])
def test_parameter_files_are_flat(profile, name):
    for key, value in read(profile, name).items():
        items = value if isinstance(value, list) else [value]
        assert all(isinstance(item, str | int | float | bool | None) for item in items), f"{profile}/{name}.yaml: {key}"


@pytest.mark.parametrize("name", [*STAGES, *STUDIES])
def test_first_cells_and_last_line(name):
    cells = source(name).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    codes = code_cells(name)
    assert "parameters" in codes[0].metadata.get("tags", [])
    assert f'this_run = start("{name}", globals())' in codes[1].source
    assert codes[-1].source.strip().endswith("this_run.finish()")


def bound_names(source):
    """The names that a cell binds in the notebook's own scope: assignments, loops, `with`, imports, definitions, deletions."""

    def visit(node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
            return
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return set(visit(ast.parse(source)))


@pytest.mark.parametrize(
    "source", ["run = 1", "for run in x: pass", "with x as run: pass", "import a as run", "def run(): pass", "del run",
               "(run := 1)", "a, (b, run) = x", "run += 1", "[(run := a) for a in x]", "run: int = 1", "from a import run"]
)  # fmt: skip
def test_what_binds_a_name(source):
    assert "run" in bound_names(source)


@pytest.mark.parametrize("source", ["[run for run in x]", "x.run = 1", "x['run'] = 1", "f(run=1)", "lambda run: 1"])
def test_what_binds_no_name(source):
    assert "run" not in bound_names(source)


@pytest.mark.parametrize("name", [*STAGES, *STUDIES])
def test_no_cell_overwrites_a_parameter(name):
    parameters = set(cell_parameters(name))
    for cell in code_cells(name):
        if "parameters" not in cell.metadata.get("tags", []):
            assert not bound_names(cell.source) & parameters, cell.source


@pytest.mark.parametrize("name", [*STAGES, *STUDIES])
def test_cells_are_short_and_hold_no_classes_or_installs(name):
    for cell in code_cells(name):
        if "parameters" in cell.metadata.get("tags", []):
            continue
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= LONGEST_CELL, f"a cell of {len(lines)} lines:\n{cell.source}"
        assert not cell.source.lstrip().startswith(COURSE_CELLS_ONLY)
        tree = ast.parse(cell.source)
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.AsyncFunctionDef)]
        assert all(n.end_lineno - n.lineno < 12 for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


@pytest.mark.parametrize("name", [*STAGES, *STUDIES])
def test_most_code_cells_follow_prose(name):
    kinds = [cell.cell_type for cell in source(name).cells]
    code = [i for i, kind in enumerate(kinds) if kind == "code"]
    assert sum(kinds[i - 1] == "markdown" for i in code) >= 0.7 * len(code)


@pytest.mark.parametrize("name", [*STAGES, *STUDIES])
def test_a_round_trip_through_jupytext_changes_nothing(name):
    notebook = source(name)
    again = jupytext.reads(jupytext.writes(notebook, fmt="ipynb"), fmt="ipynb")
    before = [(c.cell_type, c.source, c.metadata.get("tags")) for c in notebook.cells]
    assert [(c.cell_type, c.source, c.metadata.get("tags")) for c in again.cells] == before


NUMERALS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "fifteen": 15, "sixteen": 16, "eighteen": 18, "twenty": 20,
}  # fmt: skip
TYPED = re.compile(
    rf"(?<![\w.,`-])([1-9][\d,]*(?:\.\d+)?|{'|'.join(NUMERALS)})[ -](?!hundred|thousand|million)([a-z]+)(?:[ -]([a-z]+))?\b",
    re.IGNORECASE,
)
CITES = re.compile(r"\b(papers?|paper's|[Tt]ables?|sections?|page|Eqs?\.|Table 7's)\b")  # what others did is no parameter of ours
FACTS = {
    "8 words",
    "eight words",
    "six prompts",
}  # constants: the runs of corpus/leaks.py, a speech's prompts for the judge


def values_of_nouns(profiles):
    """`steps` -> the values that max_steps and every other parameter that ends in `steps` has in these profiles."""
    values = {}
    for name in ["common", *STAGES]:
        for profile in profiles:
            for key, value in (read_profile(name, profile) if name in STAGES else {}).items():
                noun = re.sub(r"_(size|rank|per_prompt)$", "", key).rpartition("_")[2]
                if type(value) in (int, float) and not noun.endswith(("share", "seed", "ratio")):
                    values.setdefault(noun.removesuffix("s"), set()).add(value)
    return values


def prose():
    """Every sentence that people read: notebooks' text and comments of their parameters, parameter files' comments, the guides."""
    for name in [*STAGES, *STUDIES]:
        for cell in source(name).cells:
            if cell.cell_type == "markdown":
                yield from ((f"{name}.py", text) for text in sentences(cell.source))
            elif "parameters" in cell.metadata.get("tags", []):
                yield from ((f"{name}.py", line.partition("#")[2]) for line in cell.source.splitlines())
    for file in (file for profile in PROFILES for file in sorted((ROOT / "params" / profile).glob("*.yaml"))):
        comments = (line.partition("#")[2] for line in file.read_text(encoding="utf-8").splitlines())
        yield from ((f"{file.parent.name}/{file.name}", comment) for comment in comments)
    for name in ("README.md", "CONTRIBUTING.md"):
        yield from ((name, text) for text in sentences((ROOT / name).read_text(encoding="utf-8")))


def sentences(text):
    return re.split(r"(?<=[.:;?!])\s+|\n\s*\n", text.replace("\n", " \n").replace(" \n \n", "\n\n"))


def contradictions(texts):
    of_demo, of_any = values_of_nouns(["demo"]), values_of_nouns(PROFILES)
    for where, text in texts:
        line = " ".join(text.split())
        known = of_demo if "demo" in f"{where} {line}" else of_any
        for number, *words in [] if CITES.search(line) else TYPED.findall(line):
            value = NUMERALS.get(number.lower())
            value = float(number.replace(",", "")) if value is None else value
            noun = next((word for word in words if word.lower().removesuffix("s") in known), "")
            allowed = known.get(noun.lower().removesuffix("s"))
            if allowed and value not in allowed and f"{number} {noun}".lower() not in FACTS:
                yield f"{where}: {number} {noun} (a parameter says {sorted(allowed)}): {line}"


def test_no_typed_number_contradicts_a_parameter():
    assert not list(contradictions(prose()))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("The demo trains 16 steps.", 1), ("The demo trains 8 steps and compares at most 19 prompts.", 1),
        ("Twenty draws are enough, in four shards.", 2), ("The paper draws 30 prompts in 99 steps.", 0),
        ("It takes 16 minutes.", 0), ("The demo trains 400 steps.", 1), ("at most three training steps", 1),
    ],
)  # fmt: skip
def test_a_typed_number_that_contradicts_is_found(text, wrong):
    assert len(list(contradictions([("here", text)]))) == wrong


@pytest.mark.parametrize("profile", PROFILES)
def test_the_judge_that_rates_is_the_one_that_is_reported(profile):
    assert len({resolve(name, profile, {}).judge for name in ("07_judge", "08_statistics", "09_figures")}) == 1
