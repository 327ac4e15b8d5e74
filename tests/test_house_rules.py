"""House rules that a machine can check: module size, docstrings, direction of imports, no work at import."""

import ast

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "parliabench_utils"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = {"run": 0, "models": 1, "corpus": 1, "metrics": 2, "results": 2}
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
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 600, "a module has at most 600 lines"
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


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_run_one_way(path):
    """The room `run` knows no other; corpus and models know no metrics or results."""
    room = path.relative_to(PACKAGE).parts[0]
    if room not in ROOMS:
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parliabench_utils."):
            other = node.module.split(".")[1]
            assert ROOMS.get(other, 0) <= ROOMS[room], f"{path.name} imports {node.module}"
