"""Shared fixtures, and the rule that no test may skip unless `tests/allowed_skips.txt` says so."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
USE_SLICE = ("tests/notebooks/test_pipeline.py", "tests/notebooks/test_kernel.py", "tests/resume/test_kill.py")
unexpected_skips: list[str] = []


def shared_folder() -> Path | None:
    """The folder of real corpus files: PARLIABENCH_SHARED, else `shared` beside the checkout; None where neither is there."""
    folder = Path(os.environ.get("PARLIABENCH_SHARED") or ROOT.parent / "shared")
    return folder if (folder / "data").is_dir() else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """`data/` of the real corpus files; skips where they are not at hand."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the real corpus files are not here: set PARLIABENCH_SHARED to their folder")
    return folder / "data"


@pytest.fixture
def outputs(tmp_path, monkeypatch) -> Path:
    """A fresh outputs folder for this test alone."""
    monkeypatch.setenv("PARLIABENCH_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def pytest_collection_modifyitems(items):
    """Whatever uses the run `slice` comes first: it takes longest."""
    items.sort(key=lambda item: _share(item.nodeid) != "slice")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where tests are shared among workers, a file stays in one, and so does all that uses the run `slice`."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _share(nodeid)

    return ByFile(config, log)


def _share(nodeid: str) -> str:
    file = nodeid.split("::")[0]
    return "slice" if file in USE_SLICE else file


def allowed_skips() -> list[str]:
    lines = (ROOT / "tests/allowed_skips.txt").read_text(encoding="utf-8").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def pytest_runtest_logreport(report):
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and not any(report.nodeid.startswith(prefix) for prefix in allowed_skips()):
        unexpected_skips.append(report.nodeid)


def pytest_sessionfinish(session, exitstatus):
    if unexpected_skips and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter):
    if unexpected_skips:
        terminalreporter.section("skipped, but not in tests/allowed_skips.txt: this fails the run", red=True)
        for nodeid in unexpected_skips:
            terminalreporter.line(nodeid)


@pytest.fixture(scope="session")
def slice_outputs(tmp_path_factory) -> Path:
    """An outputs folder with the run `slice`: all nine notebooks on a small slice of the demo, run once a session."""
    from tests.slices import run_all

    folder = tmp_path_factory.mktemp("outputs")
    run_all(folder)
    return folder
