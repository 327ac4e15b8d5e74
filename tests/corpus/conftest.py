"""A corpus small enough to read in a test, built from strings; the real files where they are at hand."""

import os
from pathlib import Path

import pytest

from tests.corpus.corpus_files import root_xml, sitting_xml


@pytest.fixture
def corpus(tmp_path):
    """A function that writes `{file stem: body XML}` as a corpus and returns its folder."""

    def write(bodies: dict[str, str], **root) -> Path:
        for name, body in bodies.items():
            day = name.split("_")[1][:10]
            (tmp_path / f"{name}.xml").write_text(body if "<TEI" in body else sitting_xml(body, name, day), encoding="utf-8")
        (tmp_path / "ParlaMint-GB.xml").write_text(root_xml([f"{name}.xml" for name in bodies], **root), encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpus files; the test is skipped where it is not."""
    root = Path(os.environ.get("PARLIABENCH_SHARED") or Path(__file__).resolve().parents[3] / "shared")
    if not (root / "data").is_dir():
        pytest.skip("no real corpus files: set PARLIABENCH_SHARED to the folder that holds data/")
    return root / "data"
