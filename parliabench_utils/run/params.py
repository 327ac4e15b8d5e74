"""What people write: names, files in whatever encoding an editor or a spreadsheet gave them, and YAML.

One YAML for everything: parameter files, models, judges and the command line's `--set`. Scalars are those of YAML 1.2's core; what
readers of YAML 1.1 (bare papermill) and 1.2 take for different things (`010`, `1:30`, `no`, `1_000`, a date) is refused by name.

>>> load_yaml("learning_rate: 2e-4")
{'learning_rate': 0.0002}
>>> load_yaml("run: 007")
Traceback (most recent call last):
ValueError: line 1: run: 007 has a leading zero; write the number without it; text stands in quotes: "007"

transformers' names of schedules and optimizers that notebook 03 takes; its own lists would load torch at every command.

>>> "adamw_8bit" in Optimizer.__args__
True

The parameters of each notebook: one pydantic model a notebook, strict types, unknown keys refused before a kernel
starts.

Defaults are the demo's, the same as in the notebook's cell tagged `parameters`; a test keeps the two and
`params/demo/` equal.

>>> validate("01_ingest", {"sede": 9})
Traceback (most recent call last):
ValueError: 01_ingest: unknown parameter 'sede'; did you mean 'seed'?
"""

import codecs
import difflib
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

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


Scheduler = Literal[  # those that need no setting and no loss of their own
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
]
Optimizer = Literal[  # those of torch and bitsandbytes; the others need a package that we do not install
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw_8bit",
    "paged_adamw_32bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_8bit",
    "paged_ademamix_32bit",
    "lion_8bit",
    "lion_32bit",
    "paged_lion_8bit",
    "paged_lion_32bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "adafactor",
    "adagrad",
    "sgd",
]


SpeechType = Literal["baseline", "fine-tuned", "few-shot", "retrieval"]
PlainName = Annotated[str, AfterValidator(plain_name)]
NameOrNone = Annotated[str, AfterValidator(lambda name: name and plain_name(name))]


class Common(BaseModel):
    """What all nine notebooks declare (`params/<profile>/common.yaml`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    run: PlainName = "demo"
    profile: PlainName = "demo"
    seed: int = Field(42, ge=0)
    data_root: str = "data"
    models: list[PlainName] = Field(["smollm2-135m", "smollm2-135m-nf4"], min_length=1)
    types: list[SpeechType] = Field(["baseline", "fine-tuned"], min_length=1)
    n_threads: int = Field(2, ge=1)
    offline: bool = True

    @field_validator("models", "types")
    @classmethod
    def _each_once(cls, names: list[str]) -> list[str]:
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"given twice: {', '.join(twice)}")
        return names


def _words_in_order(params: Any) -> Any:
    if params.min_words > params.max_words:
        raise ValueError(f"min_words {params.min_words} is more than max_words {params.max_words}; change one of them")
    return params


class Job(Common):
    """03 to 07 can be cut into jobs: the runner's --model, --type and --shard set these; empty or -1 means all."""

    model: NameOrNone = ""
    type: Literal["", "human"] | SpeechType = ""
    shard: int = Field(-1, ge=-1)


class Ingest(Common):
    """01_ingest."""

    corpus: str = Field("mini", min_length=1)
    workers: int = Field(1, ge=1)
    on_error: Literal["stop", "quarantine"] = "stop"


class Dataset(Common):
    """02_dataset."""

    min_speeches: int = Field(8, ge=1)
    min_words: int = Field(35, ge=0)
    max_words: int = Field(400, ge=1)
    excluded_sections: list[str] = ["Business of the House", "Point of Order", "Points of Order"]
    topic_classifier: Literal["embedding", "kevlar", "transformers"] = "embedding"
    topic_model: str = ""
    topic_url: str = ""
    topic_rule: Literal["best", "sum"] = "best"
    classify_all: bool = False
    topic_audit: int = Field(1000, ge=1)
    encoder: str = "all-MiniLM-L6-v2"
    long_text: Literal["chunk", "cut"] = "chunk"
    split: Literal["random", "by-debate", "by-speaker", "by-date"] = "by-debate"
    train_share: float = Field(0.8, gt=0, lt=1)
    near_copy: float = Field(0.5, gt=0, le=1)
    n_prompts: int = Field(16, ge=1)
    question_share: float = Field(0.2, ge=0, le=1)
    min_per_party: int = Field(1, ge=0)
    min_context_speeches: int = Field(3, ge=1)
    n_references: int = Field(3, ge=1)
    n_shards: int = Field(1, ge=1)

    _words = model_validator(mode="after")(_words_in_order)


class Finetune(Job):
    """03_finetune."""

    backend: Literal["peft", "unsloth"] = "peft"
    n_processes: int = Field(1, ge=1)
    lora_rank: int = Field(16, ge=1)
    lora_alpha: int = Field(16, ge=1)
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    lora_seed: int = Field(3407, ge=0)
    batch_size: int = Field(4, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    learning_rate: float = Field(0.002, gt=0)
    scheduler: Scheduler = "linear"
    warmup_share: float = Field(0.03, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    optimizer: Optimizer = "adamw_torch"
    max_length: int = Field(256, ge=32)
    epochs: int = Field(1, ge=1)
    max_steps: int = Field(8, ge=0)
    loss_on: Literal["answer", "all"] = "answer"
    packing: bool = False
    group_by_length: bool = False
    gradient_checkpointing: bool = False
    held_out_rows: int = Field(8, ge=1)
    eval_every: int = Field(8, ge=1)
    log_every: int = Field(2, ge=1)
    save_every: int = Field(4, ge=1)
    max_dropped_share: float = Field(0.0, ge=0, le=1)
    sample_tokens: int = Field(80, ge=1)


class Generate(Job):
    """04_generate."""

    temperature: float = Field(0.7, ge=0)
    top_p: float = Field(0.85, gt=0, le=1)
    repetition_penalty: float = Field(1.2, ge=1)
    max_new_tokens: int = Field(112, ge=1)
    min_words: int = Field(30, ge=1)
    max_words: int = Field(200, ge=1)
    batch_size: int = Field(16, ge=1)
    variants_per_prompt: int = Field(1, ge=1)
    max_attempts: int = Field(3, ge=1)
    few_shot_examples: int = Field(3, ge=1)
    precision: Literal["auto", "fp32", "bf16", "nf4"] = "auto"
    trim_to_sentence: bool = True
    min_similarity: float = Field(0.08, ge=-1, le=1)
    max_other_language: float = Field(0.85, ge=0, le=1)
    max_word_run: int = Field(3, ge=1)
    max_phrase_run: int = Field(3, ge=1)
    max_openings: int = Field(3, ge=0)
    encoder: str = "all-MiniLM-L6-v2"

    _words = model_validator(mode="after")(_words_in_order)


class TextMetrics(Job):
    """05_text_metrics: each metric's model and choices; all of them go into the metrics' signatures."""

    language_model: str = "smollm2-135m"
    precision: Literal["fp32", "bf16"] = "fp32"
    max_words: int = Field(512, ge=1)
    batch_size: int = Field(8, ge=1)
    distinct_per: Literal["ngrams", "tokens", "expected"] = "ngrams"
    distinct_vocabulary: int = Field(30522, ge=2)
    self_bleu_group: Literal["prompt", "context", "model"] = "model"
    self_bleu_n: int = Field(4, ge=1)
    grammar: Literal["causal", "masked"] = "causal"
    masked_model: str = "bert-base-cased"
    acceptability_model: str = "textattack/bert-base-uncased-CoLA"
    gruen_parity: bool = False
    sentence_encoder: str = "all-MiniLM-L6-v2"
    bertscore_encoder: str = "all-MiniLM-L6-v2"
    bertscore_layer: int = 5
    bertscore_idf: bool = False
    bertscore_rescale: bool = False
    moverscore_encoder: str = "all-MiniLM-L6-v2"
    moverscore_layer: int = -1
    moverscore_idf: Literal["off", "references", "both"] = "references"
    moverscore_over: Literal["mean", "max"] = "mean"
    moverscore_cost: Literal["euclidean", "squared"] = "euclidean"


class Alignment(Job):
    """06_political_alignment: the encoder, what happens to long speeches, and how the metric itself is put to the test."""

    encoder: str = "all-MiniLM-L6-v2"
    long_text: Literal["chunk", "cut"] = "chunk"
    leave_out: Literal["prompt", "none"] = "prompt"
    folds: int = Field(5, ge=2)
    shuffles: int = Field(79, ge=1)
    bootstrap_draws: int = Field(500, ge=100)
    validation_speeches: int = Field(1000, ge=1)


class Judge(Job):
    """07_judge."""

    judge: PlainName = "smollm2-constrained"
    points: Literal[5, 10] = 10
    max_attempts: int = Field(1, ge=1)
    server_url: str = ""
    cache: bool = True
    control_speeches: int = Field(4, ge=0)
    repeat_speeches: int = Field(5, ge=0)
    repeats: int = Field(3, ge=1)
    second_judge: NameOrNone = "smollm2-constrained"
    second_points: Literal[5, 10] = 5


class Statistics(Common):
    """08_statistics."""

    types: list[SpeechType] = Field(["baseline", "fine-tuned"], min_length=2)  # it compares the one with the other
    judge: PlainName = "smollm2-constrained"
    missing: Literal["complete", "available"] = "complete"
    asterisk_test: Literal["pooled", "paired"] = "paired"
    correction: Literal["bonferroni", "holm", "bh"] = "bonferroni"
    bootstrap_draws: int = Field(2000, ge=100)
    bootstrap_cluster: Literal["prompt_id", "context_id", "sitting_id", "speaker_id"] = "prompt_id"
    estimand: Literal["prompts", "corpus", "parties"] = "prompts"
    normalisation: Literal["run", "fixed"] = "run"
    chance_draws: int = Field(200, ge=1)


class Figures(Common):
    """09_figures."""

    judge: PlainName = "smollm2-constrained"
    browser_prompts: int = Field(24, ge=1)


SCHEMAS: dict[str, type[Common]] = {
    "01_ingest": Ingest,
    "02_dataset": Dataset,
    "03_finetune": Finetune,
    "04_generate": Generate,
    "05_text_metrics": TextMetrics,
    "06_political_alignment": Alignment,
    "07_judge": Judge,
    "08_statistics": Statistics,
    "09_figures": Figures,
}


def schema_of(notebook: str) -> type[Common]:
    """The parameter model of a notebook. Raises ValueError with the nearest name for an unknown notebook."""
    if notebook not in SCHEMAS:
        raise ValueError(f"no notebook {notebook!r}{_did_you_mean(notebook, SCHEMAS)}; there are {', '.join(SCHEMAS)}")
    return SCHEMAS[notebook]


def validate(notebook: str, values: dict[str, Any]) -> Common:
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
    """`params/<profile>/common.yaml` overlaid with `params/<profile>/<notebook>.yaml`, flat."""
    folder = project_root() / "params" / profile
    if not (folder / "common.yaml").is_file():
        profiles = sorted(path.parent.name for path in (project_root() / "params").glob("*/common.yaml"))
        raise ValueError(f"no profile {profile!r}{_did_you_mean(profile, profiles)}; there are {', '.join(profiles)}")
    return read_yaml(folder / "common.yaml") | read_yaml(folder / f"{notebook}.yaml")


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


def resolve(notebook: str, profile: str, settings: dict[str, Any]) -> Common:
    """A notebook's parameters: its profile's files, then `settings`; the run's name defaults to the profile's."""
    schema_of(notebook)
    return validate(notebook, {"run": profile, "profile": profile} | read_profile(notebook, profile) | settings)


def _problem(error: Any) -> str:
    """One of pydantic's errors in a line; one about several keys names them itself."""
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_type" and isinstance(error["input"], int | float | None):
        message += " (text that looks like a number, true or null stands in quotes)"
    return f"{'.'.join(map(str, error['loc']))}: {message}, got {error['input']!r}" if error["loc"] else message


def _did_you_mean(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
