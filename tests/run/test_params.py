"""Parameters: unknown keys, wrong types and double keys are refused, with the nearest valid name."""

import subprocess
import sys
from typing import get_args

import pytest

from parliabench_utils.run import params, training_names


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
    for name in get_args(training_names.Optimizer):
        arguments = TrainingArguments(output_dir=str(tmp_path), optim=name, report_to="none", use_cpu=True)
        made, options = Trainer.get_optimizer_cls_and_kwargs(arguments, layer)
        optimizer = made(layer.parameters(), **options)
    for name in get_args(training_names.Scheduler):
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
