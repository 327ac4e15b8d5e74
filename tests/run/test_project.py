"""Caches and homes that cannot be written, terminals that are not UTF-8."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parliabench_utils.run.project import cache_folder, lend_home


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null", "a file"])
def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path, monkeypatch, place):
    if place == "a file":
        place = str(tmp_path / "file")
        (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARLIABENCH_CACHE", place)
    with pytest.raises(ValueError, match=f"cache folder {place}/weights cannot be written .*PARLIABENCH_CACHE"):
        cache_folder("weights")


def test_a_home_that_cannot_be_written_names_the_variable(monkeypatch):
    for name in ("PARLIABENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    with pytest.raises(ValueError, match="PARLIABENCH_CACHE"):
        cache_folder("weights")


def test_libraries_keep_their_caches_below_ours_where_home_cannot_be_written(tmp_path, monkeypatch):
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "TRITON_HOME")
    for name in names:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PARLIABENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    lend_home()
    assert not any(os.environ[name] for name in names)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    lend_home()
    assert all(Path(os.environ[name]).is_dir() and os.environ[name].startswith(str(tmp_path)) for name in names)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_a_terminal_that_is_not_utf_8_stops_nothing(encoding):
    """The words of a stage hold signs that such a terminal cannot show."""
    code = (
        "from parliabench_utils import cli; cli._report = lambda options: print('† — ’ \\ud800 \\U0001f600');"
        "import sys; sys.exit(cli.main(['report']))"
    )
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert done.returncode == 0 and b"\\U0001f600" in done.stdout, done.stderr
