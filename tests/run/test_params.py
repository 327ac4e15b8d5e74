"""Parameters: unknown keys, wrong types and double keys are refused, with the nearest valid name."""

import re
import subprocess
import sys
from typing import get_args

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parliabench_utils.run import params


def test_unknown_key_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown parameter 'sede'; did you mean 'seed'\?"):
        params.validate("01_ingest", {"sede": 9})


def test_unknown_key_lists_the_known_ones_when_none_is_near():
    with pytest.raises(ValueError, match="known: run, profile, seed"):
        params.validate("01_ingest", {"zzzzzz": 9})


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", "seven"), ("seed", "7"), ("seed", 7.5), ("seed", True), ("offline", "yes"), ("models", "smollm2-135m")],
)
def test_wrong_type_is_refused(key, value):
    with pytest.raises(ValueError, match=f"01_ingest: {key}: "):
        params.validate("01_ingest", {key: value})


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "", ".hidden"])
def test_a_run_name_cannot_leave_the_outputs_folder(name):
    with pytest.raises(ValueError, match="run"):
        params.validate("01_ingest", {"run": name})


@pytest.mark.parametrize("notebook", ["02_dataset", "04_generate"])
def test_word_limits_the_wrong_way_round_are_refused(notebook):
    with pytest.raises(ValueError, match=f"^{notebook}: min_words 200 is more than max_words 50; change one of them$"):
        params.validate(notebook, {"min_words": 200, "max_words": 50})
    assert params.validate(notebook, {"min_words": 50, "max_words": 50}).max_words == 50


@pytest.mark.parametrize(
    ("notebook", "key"), [("04_generate", "temperature"), ("03_finetune", "learning_rate"), ("02_dataset", "near_copy")]
)
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_number_that_is_not_finite_is_refused(notebook, key, value):
    with pytest.raises(ValueError, match=f"{notebook}: {key}: Input should be a finite number"):
        params.validate(notebook, {key: float(value)})


@pytest.mark.parametrize(
    ("notebook", "key", "value"),
    [
        ("01_ingest", "models", ["a", "b", "a"]),
        ("01_ingest", "types", ["baseline", "baseline"]),
        ("08_statistics", "types", ["baseline", "baseline"]),
    ],
)
def test_a_name_given_twice_in_a_list_is_refused(notebook, key, value):
    with pytest.raises(ValueError, match=f"{notebook}: {key}: given twice: {value[0]}, got"):
        params.validate(notebook, {key: value})


@pytest.mark.parametrize(("key", "value", "named"), [("scheduler", "linera", "linear"), ("optimizer", "adamw", "sgd")])
def test_an_unknown_schedule_or_optimizer_is_refused(key, value, named):
    with pytest.raises(ValueError, match=f"03_finetune: {key}: Input should be .*'{named}'.*, got '{value}'"):
        params.validate("03_finetune", {key: value})


def test_transformers_makes_each_schedule_and_optimizer_without_more_settings(tmp_path):
    import torch
    from transformers import Trainer, TrainingArguments, get_scheduler

    layer = torch.nn.Linear(2, 2)
    for name in get_args(params.RULES["03_finetune"]["optimizer"]):
        arguments = TrainingArguments(output_dir=str(tmp_path), optim=name, report_to="none", use_cpu=True)
        made, options = Trainer.get_optimizer_cls_and_kwargs(arguments, layer)
        optimizer = made(layer.parameters(), **options)
    for name in get_args(params.RULES["03_finetune"]["scheduler"]):
        get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=10)


def test_parameters_are_read_without_torch():
    check = "import sys, parliabench_utils.run.params; sys.exit(not {'torch', 'transformers'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_unknown_notebook_and_profile():
    with pytest.raises(ValueError, match="did you mean '04_generate'"):
        params.resolve("04_generat", "demo", {})
    with pytest.raises(ValueError, match="did you mean 'demo'"):
        params.resolve("01_ingest", "dmeo", {})


def test_a_key_given_twice_in_one_file_is_refused(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("seed: 1\nseed: 2\n")
    with pytest.raises(ValueError, match="given twice: seed"):
        params.read_yaml(path)


@pytest.mark.parametrize("text", ["- a\n- b\n", "seed: [1\n", "!!python/object/apply:os.system ['true']\n"])
def test_a_file_that_is_not_flat_yaml_is_refused(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.yaml"):
        params.read_yaml(path)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "010",
            "-010",
            "0o10",
            "0b11",
            "1:30",
            "12:30:45",
            "1_000",
            "2026_11_30",
            "2019_2020",
            "0x1_F",
            "1_0.5",
            "007",
        ),
        *("no", "Yes", "ON", "off", "y", "N", "2026-11-30", "2026-11-30 12:00:00", ".nan", "-.inf", ".Inf"),
    ],
)
def test_what_readers_of_yaml_take_for_different_things_is_refused_by_name(tmp_path, text):
    """Bare papermill reads 010 as 8 and 1:30 as 90; in quotes each is the text that was typed."""
    path = tmp_path / "odd.yaml"
    for line, content in (
        (2, f"seed: 1\nrun: {text}\n"),
        (3, f"seed: 1\nmodels:\n- {text}\n"),
        (1, f"models: [a, {text}]\n"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=rf"odd\.yaml, line {line}: (run|models): {re.escape(text)} .*in quotes: \"{text}\""):
            params.read_yaml(path)
    with pytest.raises(ValueError, match=rf"--set 'run={re.escape(text)}': {re.escape(text)} .*the shell takes off one pair"):
        params.parse_setting(f"run={text}")
    path.write_text(f"run: \"{text}\"\nmodels: ['{text}']\n")
    assert params.read_yaml(path) == {"run": text, "models": [text]}
    assert params.parse_setting(f'run="{text}"') == ("run", text)


@pytest.mark.parametrize("value", ["3.1", "7", "1e5", "0x1F", "true", "null"])
def test_a_number_where_a_name_belongs_is_refused_and_the_quotes_are_named(value):
    for key, text in (("run", value), ("models", f"[{value}]")):
        with pytest.raises(ValueError, match=rf"01_ingest: {key}.*stands in quotes\), got"):
            params.validate("01_ingest", dict([params.parse_setting(f"{key}={text}")]))
    assert params.validate("01_ingest", dict([params.parse_setting(f"run='{value}'")])).run == value


@pytest.mark.parametrize(("text", "value"), [("10", 10), ("0", 0), ("0x1F", 31), ("+5", 5)])
def test_a_number_that_all_readers_agree_on_is_that_number(text, value):
    assert params.parse_setting(f"seed={text}") == ("seed", value) == ("seed", yaml.safe_load(text))


@given(st.text(st.sampled_from("0123456789_.:-+eExXoObyYnNfFsaT ~")))
@example("0E0:")
@example("-0x0")
@example("- 9e2")
@settings(max_examples=500, deadline=None)
def test_no_scalar_is_taken_otherwise_than_bare_papermill_takes_it(text):
    """Both agree, or ours refuses; but for 1e3, a number in YAML 1.2 alone, and texts that PyYAML itself cannot read."""
    try:
        ours = params.load_yaml(text)
    except ValueError:
        return
    assert _same(ours, yaml.safe_load(text))


def _same(ours, theirs):
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return ours == float(theirs) if isinstance(ours, float) else repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", ["a" * 101, "con", "NUL.txt", "a.", "a/../b", "a\\b", "a\n", "ä", "a b", "12:30", ".."])
@pytest.mark.parametrize("key", ["run", "models", "judge", "second_judge", "model"])
def test_names_of_folders_are_plain_names(key, name):
    with pytest.raises(ValueError, match=rf"07_judge: {key}.*a name has at most 100 letters"):
        params.validate("07_judge", {key: [name] if key == "models" else name})


@pytest.mark.parametrize(
    "name", ["2026_11_30", "2026-11-30", "007", "1e5", "0x1F", "true", "null", "3.10", "no", "a..b", "x" * 100]
)
def test_a_run_may_be_called_as_people_call_things(name):
    assert params.resolve("01_ingest", "demo", {"run": name}).run == name


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_of_any_editor_are_read(tmp_path, encoding):
    path = tmp_path / "p.yaml"
    mark = "\ufeff" if encoding[-2:] in ("le", "be") else ""
    path.write_bytes((mark + "corpus: Jämtland’s\r\nseed: 7\r\n").encode(encoding))
    assert params.read_yaml(path) == {"corpus": "Jämtland’s", "seed": 7}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("seed: 7\nrun: Jämtland".encode("cp1252"), r"p\.yaml, line 2: byte 0xe4 is no UTF-8 \(Windows-1252 perhaps: '.*Jämtland'"),
        ("seed: 7\n".encode("utf-16-le"), r"p\.yaml, line 1: a NUL byte.*UTF-16 without its mark; save the file as UTF-8"),
        (b"\xff\xfes\0e\0\0\xd8", r"p\.yaml, line 1: its byte-order mark says UTF-16-LE, but these bytes are not"),
        (b"seed: 7\ncorpus: a\x07b\n", r"p\.yaml, line 2: the character U\+0007 cannot stand in YAML"),
        (b"1: 2\n", r"p\.yaml: a key must be a name, got 1"), (b"a: [" + b"[" * 5000, r"p\.yaml, line 1: .*nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_named_with_its_line_and_encoding(tmp_path, data, message):
    (tmp_path / "p.yaml").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        params.read_yaml(tmp_path / "p.yaml")


def test_several_settings_in_one_text():
    split = params.split_settings
    assert split("seed=7  models=[a, b]\tcorpus='x y'") == ["seed=7", "models=[a, b]", "corpus='x y'"]
    assert split('corpus="2019_2020"') == ['corpus="2019_2020"'] and split("") == []
    for text in ("models=[a, b", "corpus='x y"):
        with pytest.raises(ValueError, match="not closed"):
            split(text)


def test_settings_of_the_command_line_are_typed():
    assert params.parse_setting("seed=7") == ("seed", 7)
    assert params.parse_setting("models=[a, b]") == ("models", ["a", "b"])
    assert params.parse_setting("corpus=a=b") == ("corpus", "a=b")
    with pytest.raises(ValueError, match="expected key=value"):
        params.parse_setting("seed")
    with pytest.raises(ValueError, match=r"--set 'models=\[a'"):
        params.parse_setting("models=[a")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("2E4", 2e4), ("-.5e1", -5.0), ("1.e+3", 1000.0), ("1.0e-3", 0.001), ("[1e-3]", [0.001])],
)
def test_a_number_needs_no_point_before_its_exponent(tmp_path, text, value):
    path = tmp_path / "number.yaml"
    path.write_text(f"learning_rate: {text}\n")
    assert repr(params.read_yaml(path)["learning_rate"]) == repr(value)
    assert repr(params.parse_setting(f"learning_rate={text}")[1]) == repr(value)


@pytest.mark.parametrize("text", ["1e", "e3", "1e3a", "1e-3 a", "12345678901234567890e1234567890123456789"])
def test_what_only_resembles_a_number_stays_text(text):
    assert params.parse_setting(f"revision={text}") == ("revision", text)


def test_a_learning_rate_of_the_command_line_is_accepted():
    key, value = params.parse_setting("learning_rate=1e-3")
    assert params.resolve("03_finetune", "demo", {key: value}).learning_rate == 0.001


def test_the_run_is_named_after_its_profile():
    assert params.resolve("01_ingest", "demo", {}).run == "demo"
    assert params.resolve("01_ingest", "demo", {"run": "other"}).run == "other"
