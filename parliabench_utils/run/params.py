"""The parameters of each notebook: one pydantic model a notebook, strict types, unknown keys refused before a kernel
starts.

Defaults are the demo's, the same as in the notebook's cell tagged `parameters`; a test keeps the two and
`params/demo/` equal.

>>> validate("01_ingest", {"sede": 9})
Traceback (most recent call last):
ValueError: 01_ingest: unknown parameter 'sede'; did you mean 'seed'?
"""

import difflib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from parliabench_utils.run.parameter_files import load_yaml, plain_name, read_yaml
from parliabench_utils.run.project import project_root
from parliabench_utils.run.training_names import Optimizer, Scheduler

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
