"""Columns of text stand to the left in a notebook, numbers to the right, and nothing in them becomes HTML."""

import pandas as pd
import pytest
from lxml import html

from parliabench_utils.run.notebook import table_html

FRAME = pd.DataFrame({"n": [1.5], "begins": ["<b>My Lords</b>"], "k": [2], "Party": ["Labour"]})


def test_text_is_to_the_left_and_escaped():
    page = html.fromstring(table_html(FRAME))
    style = page.findtext("style")
    assert [f"td:nth-of-type({n})" in style for n in (1, 2, 3, 4)] == [False, True, False, True]
    cells = page.xpath("//tbody//td")
    assert (cells[1].text, len(page.xpath("//td/b"))) == ("<b>My Lords</b>", 0)
    heads = page.xpath("//thead//th")
    assert (heads[2].text, "th:nth-of-type(3)" in style) == ("begins", True)


def test_headings_stand_behind_all_levels_of_the_index():
    made = table_html(FRAME.set_index(["n", "k"]))
    assert "td:nth-of-type(1)" in made and "th:nth-of-type(3)" in made


@pytest.mark.parametrize("frame", [FRAME[["n", "k"]], pd.DataFrame([["a"] * 30])], ids=["no text", "columns left out"])
def test_other_tables_are_as_pandas_makes_them(frame):
    with pd.option_context("display.max_columns", 20):  # as in a notebook
        assert table_html(frame) == frame._repr_html_()
