"""Fetching pins the revision in the parameter file, and takes safetensors and tokenizer files only."""

import shutil
from types import SimpleNamespace

import pytest

from parliabench_utils.models import loading as fetch
from tests.conftest import ROOT


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.setattr(fetch, "project_root", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["llama-3.1-8b", "flow-judge"])
def test_a_fetched_checkpoint_is_pinned(project, monkeypatch, name):
    import huggingface_hub

    taken = {}
    api = SimpleNamespace(model_info=lambda checkpoint, revision: SimpleNamespace(sha="abc123"))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda checkpoint, **options: taken.update(options))
    assert fetch.fetch_model(name) == "abc123"
    assert taken["revision"] == "abc123"
    assert not any("bin" in pattern or "py" in pattern for pattern in taken["allow_patterns"])
    (file,) = (project / "params").glob(f"*/{name}.yaml")
    (line,) = [line for line in file.read_text().splitlines() if "revision:" in line]
    assert "revision: abc123" in line
    assert "#" in line, "the comment stays"


def test_a_packaged_or_unknown_model_cannot_be_fetched(project):
    with pytest.raises(ValueError, match="nothing to fetch"):
        fetch.fetch_model("smollm2-135m")
    with pytest.raises(FileNotFoundError, match="known: "):
        fetch.fetch_model("llama-4")
