"""Studies run by hand through the same runner: parameter check, one kernel, manifest; nothing of a run is needed."""

import json
import subprocess
import sys

import pandas as pd

from parliabench_utils.results.paper import audit
from parliabench_utils.run.artefacts import read_csv
from tests.conftest import ROOT
from tests.slices import environment


def study(outputs, *options):
    call = [
        sys.executable,
        "-m",
        "parliabench_utils",
        "run",
        "studies/paper_audit",
        "--profile",
        "demo",
        "--run",
        "alone",
        *options,
    ]
    return subprocess.run(call, cwd=ROOT, env=environment(outputs), capture_output=True, text=True, check=False)


def test_the_paper_is_audited_in_the_open(tmp_path):
    first = study(tmp_path)
    assert first.returncode == 0, first.stderr
    manifest = json.loads((tmp_path / "alone/manifests/paper_audit.json").read_text())
    assert manifest["status"] == "done" and list(manifest["outputs"]) == ["studies/paper_audit"]
    assert manifest["notes"]["verdicts"] == audit()["agrees"].value_counts().to_dict()
    written = read_csv(tmp_path / "alone/studies/paper_audit/verdicts.csv", dtype=str).fillna("")
    pd.testing.assert_frame_equal(written, audit(), check_dtype=False)
    shown = [path.name for path in (tmp_path / "alone").iterdir() if not path.name.startswith(".")]
    assert sorted(shown) == ["manifests", "notebooks", "studies"]
    assert "paper_audit: skipped" in study(tmp_path).stdout


def test_a_misspelt_parameter_is_refused_before_a_kernel_starts(tmp_path):
    result = study(tmp_path, "--set", "sede=9")
    assert result.returncode == 2 and "did you mean 'seed'" in result.stderr
    assert not (tmp_path / "alone").exists()
