"""Reading YAML: parameter files, and the values of the command line's `--set`.

Safe loading with two differences: a key given twice is an error, and `1e-3` is a number, as in YAML 1.2; YAML 1.1 wants `1.0e-3`.

>>> load_yaml("learning_rate: 2e-4")
{'learning_rate': 0.0002}
"""

import re
from pathlib import Path
from typing import Any

import yaml


def read_yaml(path: Path) -> dict[str, Any]:
    """A parameter file: flat `key: value` lines. Raises ValueError with the file where it is something else."""
    if not path.is_file():
        raise ValueError(f"parameter file {path} is missing")
    try:
        values = load_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(values, dict | None):
        raise ValueError(f"{path}: expected `key: value` lines")
    return values or {}


def load_yaml(text: str) -> Any:
    """One YAML document as Python values. Raises yaml.YAMLError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice in one file, where YAML would let the later one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {', '.join(twice)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)


# Three digits at most: a commit or a checksum may be digits around one `e`, and must stay text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d{1,3}$", re.ASCII),
    list("-+.0123456789"),
)
