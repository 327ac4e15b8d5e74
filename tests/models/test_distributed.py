"""One process against two, by torchrun on the CPU: the same losses, killed and resumed too."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import test_finetune as t

from parliabench_utils.models.finetune import finetune_model, last_checkpoint, train, train_in_processes, training_rows
from parliabench_utils.models.specs import read_model_spec
from parliabench_utils.run.artefacts import read_jsonl, write_jsonl

NAME = "smollm2-135m"


@pytest.fixture
def run(tmp_path):
    """A run's folder with training speeches."""
    write_jsonl(tmp_path / "02_dataset/train.jsonl", t.ROWS)
    write_jsonl(tmp_path / "02_dataset/test.jsonl", t.ROWS[:4])
    return tmp_path


@pytest.mark.slow
def test_two_processes_train_like_one(run):
    one = replace(t.SETTINGS, batch_size=4, learning_rate=1e-3, max_steps=4, eval_every=2, save_every=2, max_length=224)
    alone = train(read_model_spec(NAME), one, *training_rows(run, one, 42), run / "alone")
    two = replace(one, n_processes=2)
    shared = finetune_model(NAME, two, run, 42)
    for mine, theirs in zip(alone.log, shared.log, strict=True):
        assert mine["step"] == theirs["step"] and mine["tokens"] == theirs["tokens"]
        for key in ("loss", "held_out_loss"):
            assert (mine[key] is None) == (theirs[key] is None)
            assert mine[key] is None or theirs[key] == pytest.approx(mine[key], abs=1e-3)  # the order of a sum moves it
    assert not (run / "03_finetune" / NAME / "checkpoints").exists()
    assert read_jsonl(run / "03_finetune" / NAME / "train_log.jsonl") == shared.log


@pytest.mark.slow
def test_a_failure_in_a_process_is_told(run):
    bad = replace(t.SETTINGS, n_processes=2, batch_size=4, max_length=32)
    with pytest.raises(RuntimeError, match="prompts fill max_length"):
        finetune_model(NAME, bad, run, 42)
    assert last_checkpoint(run / "03_finetune" / NAME) is None
    shutil.rmtree(run / "03_finetune")


def test_an_interrupt_ends_the_processes(run, monkeypatch):
    started, popen = [], subprocess.Popen

    def patient(_, **settings):
        waits = "import time; print('step 1', flush=True); time.sleep(600)"
        started.append(popen([sys.executable, "-c", waits], **settings))
        return started[0]

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("parliabench_utils.models.finetune.subprocess.Popen", patient)
    monkeypatch.setattr("builtins.print", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_in_processes(NAME, replace(t.SETTINGS, n_processes=2), run, 42)
    assert started[0].wait(timeout=20) == -signal.SIGTERM
