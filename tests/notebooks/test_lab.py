"""`make lab`: JupyterLab opens a `.py` notebook as a notebook, and saving it changes nothing that it computes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from parliabench_utils.run.record import cells_hash
from tests.conftest import ROOT

TOKEN = "a-token-of-this-test"


@pytest.fixture
def lab(tmp_path):
    """JupyterLab as `make lab` starts it, on a copy of a notebook, with a home of its own: (ask, folder, home)."""
    home, folder = tmp_path / "home", tmp_path / "notebooks"
    home.mkdir()
    folder.mkdir()
    shutil.copy(ROOT / "notebooks/01_ingest.py", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)  # jupytext's settings
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--no-browser --allow-root --ip=127.0.0.1 --port={port} --IdentityProvider.token={TOKEN}"
    command = ["make", "-o", ".venv/.up-to-date", "lab", f"LAB_ARGS=--notebook-dir {folder} {options}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment | {"HOME": str(home)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip

    def ask(path, value=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"token {TOKEN}"})
        if value is not None:
            request.method, request.data = "PUT", json.dumps(value).encode()
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    try:
        _wait_for(ask, process)
        yield ask, folder, home
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


def _wait_for(ask, process):
    deadline = time.monotonic() + 120
    while True:
        try:
            return ask("/api")
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline, "JupyterLab did not start"
            time.sleep(0.2)


def test_a_double_click_opens_a_notebook_and_saving_it_changes_no_cell(lab):
    ask, folder, home = lab
    plugin = ask("/lab/api/settings/@jupyterlab/docmanager-extension:plugin")
    assert plugin["schema"]["properties"]["defaultViewers"]["default"] == {"python": "Jupytext Notebook"}
    path = folder / "01_ingest.py"
    before = cells_hash(path)
    model = ask("/api/contents/01_ingest.py?type=notebook&content=1")
    assert model["type"] == "notebook" and len(model["content"]["cells"]) > 10
    model["content"]["metadata"]["kernelspec"]["display_name"] = "Another Python"
    for cell in model["content"]["cells"]:
        cell["metadata"]["trusted"] = True
    text = path.read_bytes()
    ask("/api/contents/01_ingest.py", {"type": "notebook", "format": "json", "content": model["content"]})
    assert path.read_bytes() != text
    assert cells_hash(path) == before == cells_hash(ROOT / "notebooks/01_ingest.py")
    assert not list(home.rglob("*default_setting*")) and not list(home.rglob("*.jupyterlab-settings"))
