"""A small slice of the demo: one model, four prompts, a few training steps; every notebook through the real runner."""

import os
import subprocess
import sys
from pathlib import Path

from parliabench_utils.run.params import schema_of
from parliabench_utils.run.stages import STAGES
from tests.conftest import ROOT

SETTINGS = {
    "models": ["smollm2-135m"],
    "n_prompts": 4,
    "n_shards": 2,
    "max_steps": 2,
    "batch_size": 4,
    "held_out_rows": 2,
    "sample_tokens": 8,
    "max_new_tokens": 48,
    "min_words": 8,
    "max_attempts": 2,
    "shuffles": 20,
    "validation_speeches": 200,
    "control_speeches": 1,
    "repeat_speeches": 1,
    "repeats": 2,
    "cache": False,
    "bootstrap_draws": 100,
    "chance_draws": 20,
}
# The same name means another thing in these notebooks.
EXCEPTIONS = {"02_dataset": {"min_words"}, "05_text_metrics": {"batch_size"}, "07_judge": {"max_attempts"}}


def chosen_settings(stage: str) -> dict[str, object]:
    """The slice's values for the parameters of a stage that differ from the demo's."""
    known = schema_of(stage).model_fields
    return {k: v for k, v in SETTINGS.items() if k in known and k not in EXCEPTIONS.get(stage, ())}


def command(stage: str, run: str, **settings: object) -> list[str]:
    """The runner's command line for a stage of the slice."""
    options = [
        part for key, value in (chosen_settings(stage) | settings).items() for part in ("--set", f"{key}={yaml_text(value)}")
    ]
    return [sys.executable, "-m", "parliabench_utils", "run", stage, "--profile", "demo", "--run", run, *options]


def run_stage(stage: str, outputs: Path, run: str = "slice", **settings: object) -> str:
    """Run one stage; returns what it printed. Fails with its output when it fails."""
    result = subprocess.run(
        command(stage, run, **settings), cwd=ROOT, env=environment(outputs), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{stage}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def run_all(outputs: Path, run: str = "slice", **settings: object) -> dict[str, str]:
    """All nine stages in order: stage → what it printed."""
    return {
        stage: run_stage(stage, outputs, run, **{k: v for k, v in settings.items() if k in schema_of(stage).model_fields})
        for stage in STAGES
    }


def environment(outputs: Path) -> dict[str, str]:
    return os.environ | {"PARLIABENCH_OUTPUTS": str(outputs)}


def yaml_text(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
