"""What people write: names, files in whatever encoding an editor or a spreadsheet gave them, and YAML.

One YAML for everything: parameter files, models, judges and the command line's `--set`. Scalars are those of YAML 1.2's core; what
readers of YAML 1.1 (bare papermill) and 1.2 take for different things (`010`, `1:30`, `no`, `1_000`, a date) is refused by name.

>>> load_yaml("learning_rate: 2e-4")
{'learning_rate': 0.0002}
>>> load_yaml("run: 007")
Traceback (most recent call last):
ValueError: line 1: run: 007 has a leading zero; write the number without it; text stands in quotes: "007"
"""

import codecs
import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

NAME = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?"
)  # 100 at most: names of jobs and files grow from it
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")  # no file can be called so on Windows
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, which is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def plain_name(name: str) -> str:
    """`name`, where a folder can be called so on every system. Raises ValueError for a path, a hidden, reserved or long name."""
    if not NAME.fullmatch(name) or RESERVED.fullmatch(name):
        raise ValueError(
            "a name has at most 100 letters, digits, `.`, `_` or `-`, begins with a letter or digit, does not end with `.` "
            "and is none that Windows reserves"
        )
    return name


def split_settings(text: str) -> list[str]:
    """Several `key=value` in one text, parted by spaces outside quotes and lists; quotes stay for YAML to read."""
    part = r"""(?:"[^"]*"|'[^']*'|\[[^][]*\]|[^]["'\s])+"""
    if re.sub(part, "", text).strip():
        raise ValueError(f"set={text!r}: a quote or bracket is not closed")
    return re.findall(part, text)


def read_given_text(path: Path) -> str:
    """A file's text without its byte-order mark: UTF-8, or what the mark says. Line ends stay as they are.

    Raises FileNotFoundError where there is no file, ValueError with file, line and likely encoding where the bytes are no text.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file")
    data = path.read_bytes()
    mark, encoding = next(((mark, name) for mark, name in MARKS if data.startswith(mark)), (b"", "utf-8"))
    data = data[len(mark) :]
    if not mark and b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: a NUL byte: no text, or UTF-16 without its mark; save the file as UTF-8"
        )
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].decode(encoding, "replace").count("\n") + 1
        raise ValueError(f"{path}, line {line}: {_likely(data, error, mark)}; save the file as UTF-8") from error


def _likely(data: bytes, error: UnicodeDecodeError, mark: bytes) -> str:
    """What the bytes may be: a byte-order mark is believed; without one, the place is shown as Windows-1252 reads it."""
    if mark:
        return f"its byte-order mark says {error.encoding.upper()}, but these bytes are not"
    near = data[max(error.start - 15, 0) : error.start + 15].decode("cp1252", "replace")
    return f"byte 0x{data[error.start]:02x} is no UTF-8 (Windows-1252 perhaps: {max(near.splitlines(), key=len)!r})"


def read_yaml(path: Path) -> dict[str, Any]:
    """A parameter file: `key: value` lines. Raises ValueError with the file, line and key where it is something else."""
    if not path.is_file():
        raise ValueError(f"parameter file {path} is missing")
    text = read_given_text(path)
    try:
        values = load_yaml(text)
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error
    if not isinstance(values, dict | None):
        raise ValueError(f"{path}: expected `key: value` lines")
    if odd := [key for key in values or {} if not isinstance(key, str)]:
        raise ValueError(f"{path}: a key must be a name, got {odd[0]!r}")
    return values or {}


def load_yaml(text: str) -> Any:
    """One YAML document as Python values. Raises ValueError that begins with the line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line, code = text[: error.position].count("\n") + 1, ord(text[error.position])
        raise ValueError(f"line {line}: the character U+{code:04X} cannot stand in YAML") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"line {mark.line + 1 if mark else 1}: {error.problem}") from error
    except RecursionError as error:
        raise ValueError("line 1: lists or mappings are nested too deeply") from error


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, where YAML would let the later one win, and a scalar of two meanings."""

    yaml_implicit_resolvers: ClassVar[dict] = {}  # its own, filled below

    def __init__(self, stream: str):
        super().__init__(stream)
        self._clear: set[int] = set()  # nodes that are looked at already: an alias may stand for one many times

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        for key, value in node.value:
            self._refuse_two_meanings(value, f"{key.value}: " if isinstance(key, yaml.ScalarNode) else "")
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {', '.join(twice)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        self._refuse_two_meanings(node, "")
        return super().construct_object(node, deep=deep)

    def _refuse_two_meanings(self, node: yaml.Node, key: str) -> None:
        """Raise ConstructorError for a plain scalar, or one in a list, that readers of YAML take for different things."""
        if id(node) in self._clear:
            return
        self._clear.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._refuse_two_meanings(item, key)
        if not isinstance(node, yaml.ScalarNode) or node.style is not None:
            return
        fault = next((fault for pattern, fault in _TWO_MEANINGS if pattern.fullmatch(node.value)), None)
        if fault:
            problem = f'{key}{node.value} {fault}; text stands in quotes: "{node.value}"'
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_TWO_MEANINGS = [
    (re.compile(pattern, re.ASCII), fault)
    for pattern, fault in (
        (r"(?i:y|n|yes|no|on|off)", "is true or false to some readers; write true or false"),
        (r"[-+]?0[oObB][0-9_]+", "is a number in another base to some readers; write the number in digits"),
        (r"[-+]?[0-9][0-9_]*(:[0-9_]+)+(\.[0-9_]*)?", "is a number in base 60 to some readers; write the number in digits"),
        (r"[-+]?[0-9.]*_[0-9_.]*([eE][-+]?[0-9]+)?", "is a number to some readers; write the number without _"),
        (r"[-+]?0x[0-9a-fA-F]*_[0-9a-fA-F_]*", "is a number to some readers; write the number without _"),
        (r"[-+]?0[0-9]+", "has a leading zero; write the number without it"),
        (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?", "is a date to some readers; no parameter is one"),
        (r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "is no finite number; write a number"),
    )
]  # fmt: skip

# YAML 1.2's core, without its octals. Three digits of an exponent at most: a commit or a checksum may be digits around one `e`, and
# must stay text.
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)", list("-+.0123456789")),
    ("float", r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]{1,3}", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$", re.ASCII), _first)
