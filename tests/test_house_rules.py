"""House rules that a machine can check: docstrings, direction of imports, no work at import."""

import ast
import re
import statistics
from graphlib import TopologicalSorter

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "parliabench_utils"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = ["run", "models", "corpus", "metrics", "results"]  # each may import those before it
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "sentence_transformers",
    "sklearn",
    "unsloth",
    "ot",
    "bert_score",
}


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_module(path):
    assert ast.get_docstring(tree(path)), "a module says what it is for"
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node) or len(node.body) <= 2, f"{node.name} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_are_not_imported_at_import(path):
    for node in tree(path).body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & HEAVY


def imports(path):
    """Modules of the package that a file imports, late imports too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parliabench_utils"):
            base = node.module.removeprefix("parliabench_utils").strip(".").replace(".", "/")
            inner = [PACKAGE / base / f"{alias.name}.py" for alias in node.names]
            yield from [file for file in inner if file.exists()] or [PACKAGE / f"{base}.py" if base else PACKAGE / "__init__.py"]


IMPORTS = {path: {file for file in imports(path) if file != path and file.exists()} for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_run_one_way(path):
    """results -> metrics -> corpus -> models -> run, strictly."""
    room = path.parent.name
    for other in IMPORTS[path] if room in ROOMS else ():
        assert other.parent.name not in ROOMS or ROOMS.index(other.parent.name) <= ROOMS.index(room), f"{path} imports {other}"


def test_no_circle():
    """Not even through late imports: TopologicalSorter names the modules of a circle."""
    list(TopologicalSorter(IMPORTS).static_order())


def test_no_module_serves_one_other_alone():
    """Whatever one module of the package alone imports belongs into it; notebooks and the command line are readers of their own."""
    users = {path: {other for other in MODULES if path in IMPORTS[other]} for path in MODULES}
    for notebook in (ROOT / "notebooks").rglob("*.py"):
        for path in imports(notebook):
            users.setdefault(path, set()).add(notebook)
    alone = {path: found for path, found in users.items() if path.name != "__init__.py" and len(found) == 1}
    assert not [
        path for path, (user,) in alone.items() if PACKAGE in user.parents and user.name != "cli.py" and path.name != "cli.py"
    ]


def test_the_package_stays_thin():
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    functions = [n for path in MODULES for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef)]
    assert len(lines) <= 55
    assert sum(lines.values()) <= 16_300  # on the way to 13,000: only downwards
    assert statistics.median(n.end_lineno - n.lineno + 1 for n in functions) <= 10


def test_the_page_on_architecture_names_every_file():
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    package = text.partition("## The package")[2]
    named = [(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\((\.\./parliabench_utils/[^)]+\.py)\)", package)]
    assert sorted(named) == [path for path in MODULES if not path.name.startswith("__")]
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / "docs" / link).exists(), link
