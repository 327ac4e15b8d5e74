"""The unsloth back-end trains too. In a process of its own, since unsloth patches transformers, trl and peft for good."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, "tests/models")
from parliabench_utils.models.finetune import TrainingSettings
from parliabench_utils.models.finetune import prepare_backend
from parliabench_utils.models.finetune import train
from dataclasses import replace
import test_finetune as t
settings = replace(t.SETTINGS, backend="unsloth", learning_rate=1e-3, max_steps=4, eval_every=2)
prepare_backend(settings)
from parliabench_utils.models.loading import load_model, read_model_spec
spec = read_model_spec(sys.argv[2])
result = train(spec, settings, t.ROWS, t.ROWS[:2], Path(sys.argv[1]))
load_model(spec, adapter=result.adapter, purpose="generate")
print("LOG", json.dumps(result.log))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m", "smollm2-135m-nf4"])
def test_unsloth_trains_and_its_adapter_loads_in_peft(tmp_path, name):
    if find_spec("unsloth") is None:
        pytest.skip("unsloth is not installed")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), name],
        cwd=root,
        env=os.environ | {"UNSLOTH_DISABLE_STATISTICS": "1"},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    log = json.loads(done.stdout.split("LOG ")[1])
    held = [row["held_out_loss"] for row in log if row["held_out_loss"] is not None]
    assert held[-1] < held[0]
    assert (tmp_path / "adapter/adapter_model.safetensors").is_file()
