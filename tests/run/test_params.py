"""Parameters: unknown keys, wrong types and double keys are refused, with the nearest valid name."""

import pytest

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


def test_the_run_is_named_after_its_profile():
    assert params.resolve("01_ingest", "demo", {}).run == "demo"
    assert params.resolve("01_ingest", "demo", {"run": "other"}).run == "other"
