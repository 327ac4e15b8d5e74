"""docs/FORMULAS.md: each formula is typeset under the heading it names, above a cell that calls the function it names."""

import ast
import re

import jupytext
import pytest

from tests.conftest import ROOT

ROW = re.compile(
    r"^\| (?P<formula>.+?) \| \[\w+\]\(\.\./(?P<notebook>notebooks/\w+\.py)\), \"(?P<heading>.+?)\" "
    r"\| \[`(?P<function>\w+)`\]\(\.\./(?P<module>[\w/]+\.py)\) \|$",
    re.MULTILINE,
)
ROWS = [match.groupdict() for match in ROW.finditer((ROOT / "docs/FORMULAS.md").read_text(encoding="utf-8"))]


def test_every_row_is_read():
    lines = [line for line in (ROOT / "docs/FORMULAS.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(lines) - 2
    assert {f"Eq. {n}" for n in range(1, 5)} <= {row["formula"].partition(",")[0] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["formula"][:30])
def test_the_formula_stands_above_the_cell_that_computes_it(row):
    cells = jupytext.read(ROOT / row["notebook"]).cells
    heading = re.compile(rf"^#+ .*{re.escape(row['heading'])}", re.MULTILINE)
    (start,) = [i for i, cell in enumerate(cells) if cell.cell_type == "markdown" and heading.search(cell.source)]
    later = [i for i in range(start + 1, len(cells)) if cells[i].cell_type == "markdown" and cells[i].source.startswith("## ")]
    section = cells[start : later[0] if later else len(cells)]
    calls = [i for i, cell in enumerate(section) if cell.cell_type == "code" and f"{row['function']}(" in cell.source]
    assert calls, f"no cell under the heading calls {row['function']}"
    assert any("$$" in cell.source for cell in section[: calls[0]]), "no formula stands above it"
    if equation := re.match(r"Eq\. (\d)", row["formula"]):
        assert rf"\tag{{{equation[1]}}}" in "".join(cell.source for cell in section[: calls[0]])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["formula"][:30])
def test_the_function_is_there(row):
    tree = ast.parse((ROOT / row["module"]).read_text(encoding="utf-8"))
    assert row["function"] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
