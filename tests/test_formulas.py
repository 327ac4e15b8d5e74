"""docs/FORMULAS.md leads from each formula to the cell that typesets it and the function that computes it."""

import ast
import re

import jupytext
import pytest

from tests.conftest import ROOT

LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
CELLS_BELOW = 4  # code cells among which one calls the function: the formula stands above the first


def rows():
    lines = (ROOT / "docs/FORMULAS.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")]
    return cells[2:]  # without heading and rule


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_formula_stands_above_the_cell_that_computes_it(row):
    _, _, notebook, heading, marker, functions = row
    cells = jupytext.read(ROOT / LINK.search(notebook)[2]).cells
    marker, called = marker.strip("`"), LINK.search(functions)[1]
    start = next(
        i for i, cell in enumerate(cells) if cell.cell_type == "markdown" and re.search(rf"#.*{re.escape(heading)}", cell.source)
    )
    typeset = [i for i, cell in enumerate(cells[start:], start) if cell.cell_type == "markdown" and marker in cell.source]
    assert typeset, f"{marker} is typeset under no {heading!r}"
    below = [cell.source for cell in cells[typeset[0] + 1 :] if cell.cell_type == "code"][:CELLS_BELOW]
    assert any(re.search(rf"\b{called}\(", source) for source in below), f"no cell below {marker} calls {called}"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_functions_exist(row):
    for name, path in LINK.findall(row[-1]):
        found = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        assert name in {node.name for node in found if isinstance(node, ast.FunctionDef)}, f"{path} has no {name}"


def test_what_the_paper_numbers_is_there():
    papers = " ".join(row[1] for row in rows())
    assert all(f"Eq. {n}" in papers for n in (1, 2, 3, 4))
