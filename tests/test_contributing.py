"""CONTRIBUTING.md: each worked diff applies to a copy of the project and does what it says."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DIFFS = dict(re.findall(r"^## (.+?)\n(?:(?!^## ).*\n)*?```diff\n((?:.*\n)*?)```", TEXT, re.MULTILINE))

PROOFS = {
    "A model": """
from parliabench_utils.models.specs import read_model_spec
assert read_model_spec("qwen2.5-0.5b").family == "qwen2.5"
""",
    "A metric": """
import ast, jupytext, pytest
from parliabench_utils.metrics.table import METRIC_BY_NAME
from parliabench_utils.results.tables import table01
assert METRIC_BY_NAME["MATTR"].column == "MATTR" and "MATTR" in set(table01().data["metric"])
cells = [cell.source for cell in jupytext.read("notebooks/05_text_metrics.py").cells if cell.cell_type == "code"]
assert all(ast.parse(source) for source in cells) and sum("type_token.mattr" in source for source in cells) == 1
assert pytest.main(["-q", "-p", "no:cacheprovider", "tests/metrics/test_type_token.py"]) == 0
""",
    "A dimension for the judge": """
from parliabench_utils.metrics.judge_prompts import DIMENSIONS, judge_prompts, read_judge_spec
from parliabench_utils.metrics.table import METRICS
from tests.metrics.test_judge_prompting import SPEECH
for name in ("flow-judge", "smollm2-constrained", "flow-judge-server"):
    for points in (5, 10):
        asked = judge_prompts(read_judge_spec(name), SPEECH, points)
        assert [prompt.dimension for prompt in asked] == list(DIMENSIONS) and "gracious" in asked[-1].text
assert {m.name for m in METRICS if m.kind == "judge"} == set(DIMENSIONS)
""",
    "A topic classifier": """
from parliabench_utils.corpus.topics import topic_classifier
from parliabench_utils.run.params import resolve
assert resolve("02_dataset", "demo", {"topic_classifier": "heading"}).topic_classifier == "heading"
found = topic_classifier("heading").classify(["I rise.", "I beg to move."], ["Energy Bill", "Adjournment"])
assert found["topic"].tolist() == ["Energy", None]
""",
    "A parameter": """
import pytest
from parliabench_utils.run.params import resolve
assert [resolve("06_political_alignment", profile, {}).repeats for profile in ("demo", "paper")] == [1, 5]
with pytest.raises(ValueError, match="repeats"):
    resolve("06_political_alignment", "demo", {"repeats": 0})
""",
}


def test_every_diff_has_its_proof():
    assert set(DIFFS) == set(PROOFS)


@pytest.mark.parametrize("title", PROOFS)
def test_a_worked_diff_does_what_it_says(title, tmp_path):
    for name in ("parliabench_utils", "params", "notebooks", "tests", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "change.diff").write_text(DIFFS[title], encoding="utf-8")
    applied = subprocess.run(["git", "apply", "change.diff"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", PROOFS[title]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
