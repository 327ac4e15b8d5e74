"""What a parameter may be, and YAML as people mean it; a misspelt key or a wrong type is refused before a kernel starts.

A default lives in the notebook's cell tagged `parameters`, which is the demo; `params/<profile>/` holds what differs; RULES here adds
choices and ranges. One YAML for parameter files, models, judges and `--set`: scalars are those of YAML 1.2's core, and what readers
of YAML 1.1 (bare papermill) and 1.2 take for different things (`010`, `1:30`, `no`, `1_000`, a date) is refused by name.

>>> load_yaml("learning_rate: 2e-4")
{'learning_rate': 0.0002}
>>> validate("01_ingest", {"sede": 9})
Traceback (most recent call last):
ValueError: 01_ingest: unknown parameter 'sede'; did you mean 'seed'?
"""

import ast
import codecs
import difflib
import math
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from parliabench_utils.run.project import project_root

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")  # 100 at most: names of jobs and files grow from it
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
        raise ValueError(f"{path}, line {line}: a NUL byte: no text, or UTF-16 without its mark; save the file as UTF-8")
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
        if broken := [key for key in keys if isinstance(key, float)]:  # 1e3 is text to other readers
            raise yaml.constructor.ConstructorError(None, None, f"{broken[0]} is no key", node.start_mark)
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
        (r"[-+]0x[0-9a-fA-F]+", "is a number to some readers; write the number in digits"),
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


SpeechType = Literal["baseline", "fine-tuned", "few-shot", "retrieval"]
PlainName = Annotated[str, AfterValidator(plain_name)]
NameOrNone = Annotated[str, AfterValidator(lambda name: name and plain_name(name))]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
NotZero = Annotated[float, Field(gt=0)]
Types = Annotated[list[SpeechType], Field(min_length=1)]

# What a notebook's cell cannot say: choices and ranges. A parameter without an entry may be anything of its default's type.
FOR_ALL: dict[str, Any] = {
    "run": PlainName, "profile": PlainName, "seed": Natural, "models": Annotated[list[PlainName], Field(min_length=1)],
    "types": Types, "n_threads": Count,
    # 03 to 07 can be cut into jobs: the runner's --model, --type and --shard set these; empty or -1 means all.
    "model": NameOrNone, "type": Literal["", "human"] | SpeechType, "shard": Annotated[int, Field(ge=-1)],
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "01_ingest": {"corpus": Annotated[str, Field(min_length=1)], "workers": Count, "on_error": Literal["stop", "quarantine"]},
    "02_dataset": {
        "min_speeches": Count, "min_words": Natural, "max_words": Count, "topic_audit": Count,
        "topic_classifier": Literal["embedding", "kevlar", "transformers"], "topic_rule": Literal["best", "sum"],
        "long_text": Literal["chunk", "cut"], "split": Literal["random", "by-debate", "by-speaker", "by-date"],
        "train_share": Annotated[float, Field(gt=0, lt=1)], "near_copy": Annotated[float, Field(gt=0, le=1)],
        "n_prompts": Count, "question_share": Share, "min_per_party": Natural, "min_context_speeches": Count,
        "n_references": Count, "n_shards": Count,
    },
    "03_finetune": {
        "backend": Literal["peft", "unsloth"], "n_processes": Count, "lora_rank": Count, "lora_alpha": Count,
        "lora_dropout": Annotated[float, Field(ge=0, lt=1)], "lora_seed": Natural, "batch_size": Count,
        "gradient_accumulation": Count, "learning_rate": NotZero, "warmup_share": Annotated[float, Field(ge=0, lt=1)],
        "scheduler": Literal["linear", "cosine", "constant", "constant_with_warmup"],
        "optimizer": Literal["adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd"],
        "weight_decay": Annotated[float, Field(ge=0)], "max_length": Annotated[int, Field(ge=32)], "epochs": Count,
        "max_steps": Natural, "loss_on": Literal["answer", "all"], "held_out_rows": Count, "eval_every": Count,
        "log_every": Count, "save_every": Count, "max_dropped_share": Share, "sample_tokens": Count,
    },
    "04_generate": {
        "temperature": Annotated[float, Field(ge=0)], "top_p": Annotated[float, Field(gt=0, le=1)],
        "repetition_penalty": Annotated[float, Field(ge=1)], "max_new_tokens": Count, "min_words": Count, "max_words": Count,
        "batch_size": Count, "variants_per_prompt": Count, "max_attempts": Count, "few_shot_examples": Count,
        "precision": Literal["auto", "fp32", "bf16", "nf4"], "min_similarity": Annotated[float, Field(ge=-1, le=1)],
        "max_other_language": Share, "max_word_run": Count, "max_phrase_run": Count, "max_openings": Natural,
    },
    "05_text_metrics": {
        "precision": Literal["fp32", "bf16"], "max_words": Count, "batch_size": Count,
        "distinct_per": Literal["ngrams", "tokens", "expected"], "distinct_vocabulary": Annotated[int, Field(ge=2)],
        "self_bleu_group": Literal["prompt", "context", "model"], "self_bleu_n": Count, "grammar": Literal["causal", "masked"],
        "moverscore_idf": Literal["off", "references", "both"], "moverscore_over": Literal["mean", "max"],
        "moverscore_cost": Literal["euclidean", "squared"],
    },
    "06_political_alignment": {
        "long_text": Literal["chunk", "cut"], "leave_out": Literal["prompt", "none"], "folds": Annotated[int, Field(ge=2)],
        "shuffles": Count, "bootstrap_draws": Annotated[int, Field(ge=100)], "validation_speeches": Count,
    },
    "07_judge": {
        "judge": PlainName, "points": Literal[5, 10], "max_attempts": Count, "control_speeches": Natural,
        "repeat_speeches": Natural, "repeats": Count, "second_judge": NameOrNone, "second_points": Literal[5, 10],
    },
    "08_statistics": {
        "types": Annotated[list[SpeechType], Field(min_length=2)],  # it compares the one with the other
        "judge": PlainName, "missing": Literal["complete", "available"], "asterisk_test": Literal["pooled", "paired"],
        "correction": Literal["bonferroni", "holm", "bh"], "bootstrap_draws": Annotated[int, Field(ge=100)],
        "bootstrap_cluster": Literal["prompt_id", "context_id", "sitting_id", "speaker_id"],
        "estimand": Literal["prompts", "corpus", "parties"], "normalisation": Literal["run", "fixed"], "chance_draws": Count,
    },
    "09_figures": {"judge": PlainName, "browser_prompts": Count},
}  # fmt: skip


class Parameters(BaseModel):
    """A notebook's parameters; `schema_of` adds the fields. All notebooks have those of `params/<profile>/common.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("models", "types", check_fields=False)
    @classmethod
    def _each_once(cls, names: list[str]) -> list[str]:
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"given twice: {', '.join(twice)}")
        return names

    @model_validator(mode="after")
    def _words_in_order(self) -> "Parameters":
        if getattr(self, "min_words", 0) > (most := getattr(self, "max_words", math.inf)):
            raise ValueError(f"min_words {self.min_words} is more than max_words {most}; change one of them")
        return self


def parameters_cell(notebook: Path) -> dict[str, Any]:
    """The defaults that a notebook's cell tagged `parameters` assigns; ValueError unless there is one cell, of plain assignments."""
    cells = re.split(r"^# %%", notebook.read_text(encoding="utf-8"), flags=re.MULTILINE)
    tagged = [cell for cell in cells if re.search(r"tags=\[[^]\n]*\"parameters\"", cell.partition("\n")[0])]
    if len(tagged) != 1:
        raise ValueError(f"{notebook.name}: {len(tagged)} cells are tagged `parameters`, expected exactly one")
    try:
        body = ast.parse(tagged[0].partition("\n")[2]).body
        return {node.targets[0].id: ast.literal_eval(node.value) for node in body}
    except (SyntaxError, ValueError, AttributeError) as error:
        raise ValueError(f"{notebook.name}: the cell tagged `parameters` holds more than `name = value` lines ({error})") from error


def notebook_path(notebook: str) -> Path:
    """`notebooks/<notebook>.py`, or a study's in `notebooks/studies/`. ValueError names the nearest one that is there."""
    folders = (project_root() / folder for folder in ("notebooks", "notebooks/studies"))
    found = {path.stem: path for folder in folders for path in sorted(folder.glob("*.py"))}
    if notebook not in found:
        raise ValueError(f"no notebook {notebook!r}{_did_you_mean(notebook, found)}; there are {', '.join(found)}")
    return found[notebook]


def schema_of(notebook: str) -> type[Parameters]:
    """The parameter model of a notebook: its cell's names and defaults, with RULES."""
    path = notebook_path(notebook)
    return _schema(path, path.stat().st_mtime_ns)


@cache
def _schema(path: Path, _: int) -> type[Parameters]:
    rules = FOR_ALL | RULES.get(path.stem, {})
    defaults = parameters_cell(path)
    kinds = {key: rules.get(key, list[str] if isinstance(value, list) else type(value)) for key, value in defaults.items()}
    return create_model(path.stem, __base__=Parameters, **{key: (kinds[key], defaults[key]) for key in defaults})


def validate(notebook: str, values: dict[str, Any]) -> Parameters:
    """`values` as the notebook's parameters. Raises ValueError that names each wrong key, and the nearest valid one."""
    schema = schema_of(notebook)
    for key in values:
        if key not in schema.model_fields:
            raise ValueError(f"{notebook}: unknown parameter {key!r}{_did_you_mean(key, schema.model_fields)}")
    try:
        return schema(**values)
    except ValidationError as error:
        raise ValueError(f"{notebook}: {'; '.join(map(_problem, error.errors()))}") from error


def read_profile(notebook: str, profile: str) -> dict[str, Any]:
    """The notebook's own values, overlaid with `params/<profile>/common.yaml` and, where there is one, `<notebook>.yaml`.

    The run's name is the profile's unless its file says otherwise.
    """
    folder = project_root() / "params" / profile
    if not (folder / "common.yaml").is_file():
        profiles = sorted(path.parent.name for path in (project_root() / "params").glob("*/common.yaml"))
        raise ValueError(f"no profile {profile!r}{_did_you_mean(profile, profiles)}; there are {', '.join(profiles)}")
    own = folder / f"{notebook}.yaml"
    files = read_yaml(folder / "common.yaml") | (read_yaml(own) if own.exists() else {})
    return schema_of(notebook)().model_dump() | {"run": profile, "profile": profile} | files


def parse_setting(text: str) -> tuple[str, Any]:
    """`key=value` of the command line, the value read as YAML: `seed=7`, `models=[a, b]`, `corpus=mini`."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not key:
        raise ValueError(f"--set {text!r}: expected key=value")
    try:
        return key, load_yaml(value) if value else ""
    except ValueError as error:
        hint = f" (and the shell takes off one pair: '{key}=\"...\"')" if "quotes" in str(error) else ""
        raise ValueError(f"--set {text!r}: {str(error).removeprefix('line 1: ')}{hint}") from error


def resolve(notebook: str, profile: str, settings: dict[str, Any]) -> Parameters:
    """A notebook's parameters: its cell, its profile's files, then `settings`."""
    return validate(notebook, read_profile(notebook, profile) | settings)


def _problem(error: Any) -> str:
    """One of pydantic's errors in a line; one about several keys names them itself."""
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_type" and isinstance(error["input"], int | float | None):
        message += " (text that looks like a number, true or null stands in quotes)"
    return f"{'.'.join(map(str, error['loc']))}: {message}, got {error['input']!r}" if error["loc"] else message


def _did_you_mean(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
