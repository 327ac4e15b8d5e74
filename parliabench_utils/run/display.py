"""How tables look in a notebook: pandas sets everything to the right, and speeches are read from the left.

>>> import pandas as pd
>>> print(table_html(pd.DataFrame({"n": [1], "begins": ["My Lords"]})).splitlines()[0])
<div class="text-2"><style>.text-2 tbody td:nth-of-type(2),.text-2 thead th:nth-of-type(3) {text-align: left !important}</style>
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def left_align_text() -> None:
    """From now on a notebook shows columns of text from the left; without a notebook nothing changes."""
    import pandas as pd
    from IPython import get_ipython

    if shell := get_ipython():
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, table_html)


def table_html(frame: "pd.DataFrame") -> str | None:
    """pandas' own HTML of the frame with its columns of text to the left; None where pandas is told to give none."""
    import pandas as pd

    html, shown = frame._repr_html_(), pd.get_option("display.max_columns")
    text = [n for n, dtype in enumerate(frame.dtypes, start=1) if pd.api.types.is_string_dtype(dtype)]
    if (
        html is None or not text or len(frame.columns) > (shown or len(frame.columns))
    ):  # with columns left out, n is not the place
        return html
    name = f"text-{'-'.join(map(str, text))}"
    cells = [f".{name} tbody td:nth-of-type({n}),.{name} thead th:nth-of-type({n + frame.index.nlevels})" for n in text]
    return f'<div class="{name}"><style>{",".join(cells)} {{text-align: left !important}}</style>\n{html}</div>'
