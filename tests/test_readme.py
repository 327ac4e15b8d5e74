"""What the README says can be done: its commands are run (the long ones dry), its links and files exist."""

import os
import re
import shlex
import subprocess

import pytest

from parliabench_utils.cli import _parser
from parliabench_utils.run.stages import STAGES
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]


def run(command, tmp_path):
    environment = os.environ | {"PARLIABENCH_OUTPUTS": str(tmp_path)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_there_are_commands():
    assert len(COMMANDS) >= 8
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_targets_exist(command, tmp_path):
    result = run([*shlex.split(command), "--dry-run"], tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if " -m parliabench_utils " in c])
def test_our_command_line_accepts_what_is_written(command, tmp_path):
    arguments = shlex.split(command)[3:]
    assert _parser().parse_args(arguments)
    if arguments[0] == "run":
        result = run(shlex.split(command), tmp_path)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if "snakemake" in c])
def test_snakemake_plans_what_is_written(command, tmp_path):
    result = run([*shlex.split(command), "--dry-run"], tmp_path)
    assert result.returncode == 0, result.stderr + result.stdout


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("https://"):
            assert (ROOT / target).exists(), target


def test_every_notebook_is_in_the_table():
    assert all(f"[{stage}](notebooks/{stage}.py)" in README for stage in STAGES)


def test_no_number_was_left_to_fill_in():
    assert "@" not in README


def test_make_help_lists_the_targets(tmp_path):
    printed = run(["make", "help"], tmp_path).stdout
    assert all(target in printed for target in ("env", "demo", "test", "lab", "figures", "book", "clean"))
