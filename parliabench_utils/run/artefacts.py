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

Nothing of the machine and no secret in what a run keeps: manifests, executed notebooks and their logs go through here as they
are written. Code that needs the real path or password still has it.

>>> scrub("asked http://ann:secret@127.0.0.1:9/v1?api_key=abc")
'asked http://127.0.0.1:9/v1?api_key=[removed]'
>>> scrub({"corpus": str(project_root() / "data/ParlaMint-GB")})
{'corpus': 'data/ParlaMint-GB'}
"""

import hashlib
import json
import math
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import parse_qsl, quote, unquote

from parliabench_utils.run.project import outputs_root, project_root

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


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_finished(path: Path) -> bool:
    """Whether a file has its final name: a running or killed stage leaves `.partial`, `.tmp` and `.lock` files."""
    return not path.name.endswith((".partial", ".tmp", ".lock"))


REMOVED = "[removed]"
SHORTEST_SECRET = 6  # characters; a shorter one is removed from URLs only, as it may be part of a word
SECRET_NAME = r"[\w.-]*(?:key|token|secret|passw|pwd|auth|signature|credential|session)[\w.-]*"
_USER_INFO = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#\"'<>`]*@")
_QUERY = re.compile(rf"([?&;]{SECRET_NAME}=)(?!\[removed)[^&\s\"'<>#;)\]]+", re.I)
_SCHEME = r"(?:bearer|basic|token)\s"
_HEADER = re.compile(
    rf"""((?:authorization|x-api-key|api[-_ ]?key)["']?\s*[:=]\s*["']?(?:{_SCHEME}+)?)"""
    rf"""(?!\[removed|{_SCHEME})[^\s"',;}}\]]+""",
    re.I,
)
_TOKEN = re.compile(r"\b(?:sk-|hf_|ghp_|github_pat_|glpat-|xox[bp]-)[A-Za-z0-9_-]{16,}")
_ESCAPE = r"\x1b\[[\d;]*m"  # a traceback colours its paths
_PART = r"[^\s/\"'<>|:,;()\[\]{}*?\\`\x1b]+"
_END = r"(?![\w-]|\.\w)"  # a place ends here: /tmp is no part of /tmpfs
PICTURES = {"image/png", "image/jpeg", "application/pdf"}
COMMON_ACCOUNTS = {"root", "user", "admin", "runner", "ubuntu", "jovyan", "localhost", "nobody", "home"}


def without_credentials(text: str) -> str:
    """`text` without user names and passwords of URLs, secret query values, authorization headers and tokens of known forms."""
    text = _USER_INFO.sub(r"\1", text)
    text = _QUERY.sub(rf"\1{REMOVED}", text)
    return _TOKEN.sub(REMOVED, _HEADER.sub(rf"\1{REMOVED}", text))


class Scrubber:
    """Scrubs whatever a run with these parameters writes. The passwords and keys in their URLs, and the environment's, are removed
    wherever they stand.
    """

    def __init__(self, parameters: Mapping[str, Any] | None = None):
        secrets = _secrets_in(parameters or {}) | _environment_secrets()
        self.hidden = dict.fromkeys(secrets, REMOVED) | _spaced_paths(parameters or {})
        self.places = _places()
        self.known, self.other, self.accounts = _known_places(tuple(self.places)), _other_places(), _accounts()

    def __call__(self, value: Any) -> Any:
        """`value` with every text in it scrubbed, keys of dictionaries too; numbers, pictures and other things as they are."""
        if isinstance(value, str | Path):
            return self.text(str(value))
        if isinstance(value, Mapping):
            return {self(key): item if str(key) in PICTURES else self(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return type(value)(self(item) for item in value)
        return value

    def text(self, text: str) -> str:
        """`text` without credentials, and with places by what they are: `notebooks/x.py` of the project, `outputs/demo`, `cache`,
        `tmp`, `site-packages/torch`, `~/corpora`; of any other absolute path the last part.
        """
        text = self.without_secrets(text)
        if "/" in text:
            text = self.known.sub(self._named, text)
            text = self.other.sub(lambda found: f"{found['before']}…/{_anonymous(found['last'])}", text)
        return self.accounts.sub("user", text) if self.accounts else text

    def without_secrets(self, text: str) -> str:
        """`text` without credentials; paths as they are, for whoever sits at this machine."""
        for hidden in sorted(self.hidden, key=len, reverse=True):
            text = text.replace(hidden, self.hidden[hidden])
        return without_credentials(text)

    def _named(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        called, rest = self.places[groups.get("long") or groups.get("short")], found["rest"]
        if called == ".":
            return rest.lstrip("/") or "."
        return called + (rest if called in ("outputs", "python", "site-packages") else _anonymous(rest))


def scrub(value: Any) -> Any:
    """`value` as a `Scrubber` that knows no parameters leaves it."""
    return Scrubber()(value)


def _secrets_in(parameters: Mapping[str, Any]) -> set[str]:
    """The passwords and keys that stand in URLs among the parameters, as they are written and as they are sent."""
    found: set[str] = set()
    for value in parameters.values():
        if isinstance(value, str) and "://" in value:
            authority, _, query = value.partition("://")[2].partition("?")
            info = re.split(r"[/#]", authority)[0].rpartition("@")[0]
            keys = [key for name, key in parse_qsl(query.partition("#")[0]) if re.fullmatch(SECRET_NAME, name, re.I)]
            for secret in [info.partition(":")[2], *keys]:
                found |= {secret, unquote(secret), quote(unquote(secret), safe="")}
    return {secret for secret in found if len(secret) >= SHORTEST_SECRET}


def _environment_secrets() -> set[str]:
    name = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.I)
    return {value for key, value in os.environ.items() if name.search(key) and len(value) >= 8}


def _spaced_paths(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Absolute paths with a blank in them among the parameters: in running text nobody could tell where they end."""
    paths = [v for v in parameters.values() if isinstance(v, str) and v.startswith("/") and " " in v]
    return {path: f"…/{Path(path).name}" for path in paths if not any(path.startswith(known) for known in _places())}


def _places() -> dict[str, str]:
    """Folder of this machine → what it is called, longest first; links both as they are named and as they resolve."""
    named = {
        project_root(): ".",
        outputs_root(): "outputs",
        Path(os.environ.get("PARLIABENCH_OUTPUTS") or outputs_root()): "outputs",
        _cache_root(): "cache",
        Path(tempfile.gettempdir()): "tmp",
        Path("/tmp"): "tmp",
        Path("/var/tmp"): "tmp",
        Path.home(): "~",
        Path(sys.prefix): "python",
        Path(sys.base_prefix): "python",
        Path(sysconfig.get_path("stdlib")): "python",
    }
    named |= {Path(sysconfig.get_path(kind)): "site-packages" for kind in ("purelib", "platlib")}
    both = {str(form): called for path, called in named.items() for form in (path.absolute(), path.resolve())}
    both |= {quote(path): called for path, called in both.items()}
    return {path: both[path] for path in sorted(both, key=len, reverse=True) if path != "/"}


def _cache_root() -> Path:
    from platformdirs import user_cache_path

    return Path(os.environ.get("PARLIABENCH_CACHE") or user_cache_path("parliabench"))


@lru_cache(maxsize=8)
def _known_places(places: tuple[str, ...]) -> re.Pattern[str]:
    """A known folder and what follows it. One of a single part, as /tmp, only where no longer path leads to it."""
    long, short = ("|".join(re.escape(p) for p in places if (p.count("/") > 1) == deep) for deep in (True, False))
    alone = r"(?:(?<![\w.~/-])|(?<=\dm)|(?<=;m)|(?<=\[m)|(?<=//))"
    kinds = [rf"(?P<long>{long})"] * bool(long) + [rf"{alone}(?P<short>{short})"] * bool(short)
    return re.compile(rf"(?:file://)?(?:{'|'.join(kinds)}){_END}(?P<rest>(?:/{_PART})*)")


@lru_cache(maxsize=1)
def _other_places() -> re.Pattern[str]:
    """An absolute path below a folder that this or a usual machine has at its root; devices and `/proc` name nobody."""
    usual = set("home Users Volumes mnt media opt srv scratch data usr var private tmp".split())  # noqa: SIM905
    tops = sorted((usual | {path.name for path in Path("/").iterdir()}) - {"dev", "proc", "sys", ""})
    start = rf"(?P<before>^|[^\w.~:/<\x1b-]|{_ESCAPE}|file://|\s-[A-Z])"
    return re.compile(rf"{start}/(?:{'|'.join(map(re.escape, tops))})(?:/{_PART})*/(?P<last>{_PART})", re.M)


def _anonymous(path: str) -> str:
    """Folders that are called after the account, such as `torchinductor_ann`, without its name."""
    for name in _names():
        path = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "user", path)
    return path


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    """Names of the account and of the machine, common ones left out."""
    found = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "USERNAME", "HOSTNAME")} | {Path.home().name}
    hosts = {socket.gethostname(), os.uname().nodename}
    found |= hosts | {host.partition(".")[0] for host in hosts}
    return tuple(sorted((name for name in found if len(name) > 1 and name.lower() not in COMMON_ACCOUNTS), key=len, reverse=True))


@lru_cache(maxsize=1)
def _accounts() -> re.Pattern[str] | None:
    """An account or host name where it is one: in `ann@host`, or anywhere if no word looks like it (`ab12345`, `gpu-node-7`)."""
    names = [re.escape(name) for name in _names()]
    marked = [re.escape(name) for name in _names() if len(name) > 3 and re.search(r"[\d_.-]", name)]
    kinds = [rf"\b(?:{'|'.join(names)})(?=@\w)|(?<=\w@)(?:{'|'.join(names)})\b"] if names else []
    kinds += [rf"(?<![\w-])(?:{'|'.join(marked)})(?![\w-])"] if marked else []
    return re.compile("|".join(kinds)) if kinds else None


class ScrubbedStream:
    """A text stream that scrubs whole lines before it writes them: a path that comes in two pieces is still one."""

    def __init__(self, stream: TextIO, scrubber: Scrubber):
        self.stream, self.scrubber, self._unfinished = stream, scrubber, ""

    def write(self, text: str) -> None:
        """Write the lines that are whole, keep the last one back."""
        lines, end, self._unfinished = (self._unfinished + text).rpartition("\n")
        self.stream.write(self.scrubber.text(lines) + end)

    def flush(self) -> None:
        """Flush what was written."""
        self.stream.flush()

    def finish(self) -> None:
        """Write the last line, whole or not."""
        self.stream.write(self.scrubber.text(self._unfinished))
        self._unfinished = ""
        self.stream.flush()


class ScrubbedNotebooks:
    """Papermill's writer of executed notebooks: each time one is saved, after every cell, it is scrubbed and put in place whole.

    papermill.execute_notebook(source, ScrubbedNotebooks.target(executed, scrubber), …)
    """

    SCHEME = "scrubbed:"

    def __init__(self, scrubber: Scrubber):
        self.scrubber = scrubber

    @classmethod
    def target(cls, path: Path, scrubber: Scrubber) -> str:
        """`path` as an output for papermill, which this class writes from now on."""
        from papermill.iorw import papermill_io

        papermill_io.register(cls.SCHEME, cls(scrubber))
        return f"{cls.SCHEME}{path}"

    def write(self, text: str, path: str) -> None:
        """`text` is a notebook as JSON."""
        target = Path(path.removeprefix(self.SCHEME))
        notebook = self.scrubber(json.loads(text))
        source = f"notebooks/{target.stem.partition('-')[0]}.py"
        named = {"input_path": source, "output_path": f"notebooks/{target.name}"}
        notebook["metadata"]["papermill"] = notebook["metadata"].get("papermill", {}) | named
        write_text(target, json.dumps(notebook, ensure_ascii=False, indent=1) + "\n")

    def pretty_path(self, path: str) -> str:
        """The path as papermill's own log has it."""
        return path.removeprefix(self.SCHEME)
