"""Files that are written whole or not at all, and JSONL that survives a kill.

Every stage writes through this module. A file appears under its final name only when it is complete; a long loop appends one
row at a time to `NAME.partial`, which a restarted run reads before it goes on.

>>> import tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.jsonl"
>>> with ResumableJsonl(path, key=("id",)) as log:
...     log.append({"id": 1})
...     log.finish()
>>> read_jsonl(path)
[{'id': 1}]
"""

import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; on leaving without an error it replaces `path` in one step, else it is removed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names no file
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """UTF-8 with Unix line ends, atomically."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Indented JSON with NaN as null, atomically."""
    write_text(path, json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Row]) -> None:
    """One JSON object a line, atomically."""
    write_text(path, "".join(_line(row) for row in rows))


# A cell that begins so, be it after spaces, quotes or marks that nobody sees, is computed by a spreadsheet; plain numbers are not.
_FORMULA = re.compile(r"""[\s'"`‘’“”\u00ad\u200b-\u200f\u2060\ufeff]*[=+@＝＋－＠﹢﹣﹦﹫-]|'*[\t\n\ufeff]""")
PLAIN_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """`text` with one kind of line end, and U+FFFD for control characters and halves of surrogate pairs."""
    return _NO_TEXT.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _is_formula(text: str) -> bool:
    return bool(_FORMULA.match(text)) and not PLAIN_NUMBER.fullmatch(text)


def harmless(text: str) -> str:
    """`text` as a cell of a CSV or sheet: printable, and `'` before what a spreadsheet would compute, which `restored` undoes."""
    text = printable(text)
    return f"'{text}" if _is_formula(text) else text


def restored(text: str) -> str:
    """A cell's text before `harmless` put `'` in front of it."""
    return text[1:] if text.startswith("'") and _is_formula(text[1:]) else text


def csv_text(frame: "pd.DataFrame") -> str:
    """CSV without the index, floats at 6 decimals, smaller ones (p-values) at 6 digits."""
    return frame.to_csv(index=False, lineterminator="\n", float_format=_number)


def write_csv(path: Path, frame: "pd.DataFrame") -> None:
    """`csv_text` with all texts and names of columns `harmless`, atomically; `read_csv` gives them back."""
    import pandas as pd

    safe = frame.rename(columns=_each_text(harmless))
    for place, dtype in enumerate(frame.dtypes):
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_datetime64_any_dtype(dtype)):
            cells = [_each_text(harmless)(cell) for cell in frame.iloc[:, place]]
            safe.isetitem(place, pd.Series(cells, index=frame.index, dtype=object))
    write_text(path, csv_text(safe))


def read_csv(path: Path, **options: Any) -> "pd.DataFrame":
    """A CSV that `write_csv` made, with its texts as they were; only an empty cell is missing. `options` are those of pandas."""
    import pandas as pd

    frame = pd.read_csv(path, **({"encoding": "utf-8", "keep_default_na": False, "na_values": [""]} | options))
    for place, dtype in enumerate(frame.dtypes):
        if pd.api.types.is_string_dtype(dtype):
            frame.isetitem(place, frame.iloc[:, place].map(_each_text(restored)))
    return frame.rename(columns=_each_text(restored), index=_each_text(restored))


def _each_text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: change(value) if isinstance(value, str) else value


def markdown_text(value: Any) -> str:
    """`value` on one line of Markdown, also in a cell of a table: no markup, link or HTML of its own."""
    text = " ".join(printable(str(value)).split()).replace("\\", "\\\\").replace("|", "\\|")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")


def markdown_table(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; all cells are `markdown_text`."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(markdown_text, line)) + " |" for line in lines) + "\n"


def _number(value: float) -> str:
    return f"{value:.6f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.6g}"


def write_parquet(path: Path, frame: "pd.DataFrame") -> None:
    """Parquet with float columns rounded to 6 decimals, atomically."""
    floats = {name: frame[name].round(6) for name in frame.select_dtypes("floating").columns}
    with whole_file(path) as temporary:
        frame.assign(**floats).to_parquet(temporary, index=False)


def read_jsonl(path: Path) -> list[Row]:
    """All rows of a JSONL file of a stage. Raises ValueError with file and line where a line is not a JSON object."""
    with Path(path).open(encoding="utf-8") as lines:
        return [
            parse_row(line, f"{path}, line {number}", "; delete the file and run its stage again")
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]


def read_json(path: Path) -> Any:
    """A JSON file. Raises ValueError with the file where it is none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError(f"{path}: not JSON as a stage writes it (nested too deeply)") from error


def parse_row(line: str, where: str, remedy: str = "") -> Row:
    """One line of JSONL. Raises ValueError that begins with `where` and ends with `remedy`."""
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({getattr(error, 'msg', 'nested too deeply')}){remedy}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected a JSON object, found {type(row).__name__}")
    return row


def _line(row: Row) -> str:
    return json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """`value` in JSON's own types: NumPy scalars and arrays, tuples, paths and dates too; NaN and NA become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if hasattr(value, "tolist") and not isinstance(value, str):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class ResumableJsonl:
    """A JSONL file in the making: rows that an interrupted run wrote are kept and need not be made again.

    Rows are appended to `PATH.partial` and flushed to the disk one by one; `finish` sorts them and gives the file its name. A last
    line that a kill cut short is dropped. If `path` itself exists, its rows count as done. The runner removes files of other
    parameters, inputs or code before a stage starts, so what is found here belongs to this run.
    """

    def __init__(self, path: Path, key: tuple[str, ...]):
        self.path, self.key = Path(path), key
        self.partial = self.path.with_name(self.path.name + ".partial")
        self.rows: list[Row] = []
        self.done: set[tuple] = set()
        self._file = None

    def __enter__(self) -> "ResumableJsonl":
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.partial.exists():
            self._keep(read_jsonl(self.path))
            write_jsonl(self.partial, self.rows)
        elif self.partial.exists():
            self._keep(_complete_rows(self.partial))
        self._file = self.partial.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, row: Row) -> None:
        """Write one row and flush it to the disk. Raises ValueError when its key is there already."""
        self._keep([row])
        self._file.write(_line(row))
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self, sort_key: Callable[[Row], Any] | None = None) -> None:
        """Sort the rows by `sort_key` (default: by the key columns) and give the file its final name."""
        order = sort_key or (lambda row: tuple(row[name] for name in self.key))
        self.rows.sort(key=order)
        write_jsonl(self.path, self.rows)
        self.partial.unlink()

    def _keep(self, rows: list[Row]) -> None:
        for row in rows:
            key = tuple(row[name] for name in self.key)
            if key in self.done:
                raise ValueError(f"{self.partial}: a second row with {dict(zip(self.key, key, strict=True))}")
            self.done.add(key)
            self.rows.append(row)


def _complete_rows(partial: Path) -> list[Row]:
    """The rows of a partial file; a last line without its line end is cut off the file."""
    data = partial.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if len(complete) < len(data):
        with partial.open("r+b") as file:
            file.truncate(len(complete))
    return read_jsonl(partial)
