"""Training: the plan, the masked data, two equal runs, a killed run that goes on, one process against two."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from families import ROW
from tiny import tiny_model

from parliabench_utils.models import finetune
from parliabench_utils.models.finetune import (
    TrainingSettings,
    as_dataset,
    derived_steps,
    drop_other_checkpoints,
    finetune_model,
    last_checkpoint,
    log_rows,
    masked_example,
    model_card,
    preflight,
    prepare_backend,
    rows_after_packing,
    steps_of,
    train,
    train_in_processes,
    trainer_arguments,
    training_rows,
    whole_batches,
)
from parliabench_utils.models.loading import load_model
from parliabench_utils.models.prompting import Example
from parliabench_utils.models.specs import load_tokenizer, read_model_spec
from parliabench_utils.run.artefacts import file_sha256, read_jsonl, write_jsonl

SETTINGS = TrainingSettings(
    backend="peft",
    n_processes=1,
    lora_rank=4,
    lora_alpha=4,
    lora_dropout=0.0,
    lora_seed=3407,
    batch_size=2,
    gradient_accumulation=1,
    learning_rate=0.01,
    scheduler="linear",
    warmup_share=0.03,
    weight_decay=0.01,
    optimizer="adamw_torch",
    max_length=256,
    epochs=1,
    max_steps=6,
    loss_on="answer",
    packing=False,
    group_by_length=False,
    gradient_checkpointing=False,
    held_out_rows=2,
    eval_every=3,
    log_every=1,
    save_every=2,
    max_dropped_share=0.0,
)
ROWS = [ROW | {"speech_id": f"u{i}", "Speech": f"I thank the Minister for answer {i}. " * (1 + i % 4)} for i in range(12)]


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """A tiny model on the disk, trained through the real path."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model().save_pretrained(folder)
    packaged = read_model_spec("smollm2-135m")
    load_tokenizer(packaged).save_pretrained(folder)
    return packaged.model_copy(update={"source": "path", "path": str(folder), "precision": "fp32", "name": "tiny", "sha256": None})


@pytest.fixture(scope="module")
def trained(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(spec, SETTINGS, ROWS, ROWS[:2], folder)


def test_the_papers_steps_are_derived():
    assert derived_steps(int(447_778 * 0.8), 64, 1, 2) == 11_194
    paper = replace(SETTINGS, batch_size=64, epochs=2, max_steps=0)
    assert steps_of(paper, int(447_778 * 0.8)) == (11_194, 336)


def test_too_few_rows_for_one_batch_are_refused():
    with pytest.raises(ValueError, match="lower batch_size"):
        derived_steps(10, 64, 1, 2)


def test_preflight_counts_and_stops():
    rows = [Example([1, 2, 3, 4], 2), Example([1, 2, 3], 3), Example(list(range(256)), 100)]
    report = preflight(rows, replace(SETTINGS, max_dropped_share=0.5))
    assert [report[name] for name in ("rows", "trainable_tokens", "dropped", "longest")] == [3, 158, 1, 256]
    assert report["share_cut"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="1 of 3 prompts fill"):
        preflight(rows, SETTINGS)


def test_loss_is_on_the_answer_or_on_everything():
    rows = [Example([5, 6, 7, 8], 2), Example([5, 6], 2)]
    assert as_dataset(rows, SETTINGS)["completion_mask"][:] == [[0, 0, 1, 1]]
    assert as_dataset(rows, replace(SETTINGS, loss_on="all"))["completion_mask"][:] == [[1] * 4, [1] * 2]


def test_masked_example_shows_where_the_loss_begins():
    tokenizer = load_tokenizer("smollm2-135m")
    ids = tokenizer("question")["input_ids"]
    shown = masked_example(tokenizer, Example(ids + tokenizer("answer")["input_ids"], len(ids)), SETTINGS)
    assert shown.index("question") < shown.index("--- loss:") < shown.index("answer")


def test_log_joins_the_two_losses_of_a_step():
    history = [
        {"step": 0, "eval_loss": 3.0},
        {"step": 2, "loss": 2.5, "learning_rate": 0.1},
        {"step": 2, "eval_loss": 2.4},
    ]
    assert log_rows(history)[1] == {"step": 2, "loss": 2.5, "held_out_loss": 2.4, "learning_rate": 0.1, "tokens": None}


def test_training_learns_and_writes_what_the_contract_says(trained):
    folder, result = trained
    held = [row["held_out_loss"] for row in result.log if row["held_out_loss"] is not None]
    assert [row["step"] for row in result.log] == list(range(7))
    assert held[-1] < held[0]
    assert sorted(f.name for f in folder.iterdir()) == ["adapter", "train_log.jsonl"]
    assert sorted(f.name for f in (folder / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "base.json",
    ]


def test_a_second_training_gives_the_same_bytes(trained, spec, tmp_path):
    folder, result = trained
    again = train(spec, SETTINGS, ROWS, ROWS[:2], tmp_path)
    assert again.log == result.log
    for name in ("adapter_model.safetensors", "adapter_config.json", "base.json"):
        assert file_sha256(tmp_path / "adapter" / name) == file_sha256(folder / "adapter" / name)


def test_a_killed_training_goes_on_with_the_same_losses(trained, spec, tmp_path, monkeypatch):
    folder, result = trained

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(finetune, "save_adapter", killed)
        train(spec, SETTINGS, ROWS, ROWS[:2], tmp_path)
    newest = last_checkpoint(tmp_path)
    assert newest.name == "checkpoint-6"
    shutil.rmtree(newest)
    resumed = train(spec, SETTINGS, ROWS, ROWS[:2], tmp_path)
    assert resumed.resumed_from == 4
    assert resumed.log == result.log
    assert file_sha256(tmp_path / "adapter/adapter_model.safetensors") == file_sha256(folder / "adapter/adapter_model.safetensors")


def test_checkpoints_of_another_training_are_dropped(spec, tmp_path):
    drop_other_checkpoints(spec, SETTINGS, ROWS, tmp_path)
    state = tmp_path / "checkpoints/checkpoint-2/trainer_state.json"
    state.parent.mkdir()
    state.write_text("{}")
    drop_other_checkpoints(spec, SETTINGS, ROWS, tmp_path)
    assert last_checkpoint(tmp_path) == state.parent
    drop_other_checkpoints(spec, replace(SETTINGS, learning_rate=0.02), ROWS, tmp_path)
    assert last_checkpoint(tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"group_by_length": True}, {"packing": True, "max_length": 1024, "batch_size": 1}])
def test_packing_and_grouping_by_length_resume_with_the_same_losses(spec, tmp_path, monkeypatch, changes):
    settings = replace(SETTINGS, max_steps=4, eval_every=2, **changes)
    whole = train(spec, settings, ROWS, ROWS[:2], tmp_path / "a")
    held = [row["held_out_loss"] for row in whole.log if row["held_out_loss"] is not None]
    assert held[-1] < held[0]

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(finetune, "save_adapter", killed)
        train(spec, settings, ROWS, ROWS[:2], tmp_path / "b")
    shutil.rmtree(last_checkpoint(tmp_path / "b"))
    resumed = train(spec, settings, ROWS, ROWS[:2], tmp_path / "b")
    assert resumed.resumed_from == 2
    assert resumed.log == whole.log


def test_packed_speeches_do_not_see_each_other(spec, tmp_path):
    """The first step's loss, before anything was learned: several speeches in one row cost what they cost in rows of their own."""
    few = ROWS[:4]
    apart = train(spec, replace(SETTINGS, max_steps=1, batch_size=4), few, ROWS[:2], tmp_path / "a").log[-1]
    packed = replace(SETTINGS, max_steps=1, batch_size=1, packing=True, max_length=2048)
    together = train(spec, packed, few, ROWS[:2], tmp_path / "b").log[-1]
    assert together["loss"] == pytest.approx(apart["loss"], abs=2e-4)


def test_steps_are_counted_in_packed_rows():
    data = as_dataset([Example(list(range(40)), 10)] * 8, SETTINGS)
    assert rows_after_packing(data, SETTINGS) == 8
    assert rows_after_packing(data, replace(SETTINGS, packing=True, max_length=80)) == 4


def test_a_batch_is_shared_out_among_processes(tmp_path):
    with pytest.raises(ValueError, match="multiples of n_processes"):
        trainer_arguments(replace(SETTINGS, n_processes=3), 12, tmp_path)
    with pytest.raises(RuntimeError, match="started 1"):
        trainer_arguments(replace(SETTINGS, n_processes=2), 12, tmp_path)
    with pytest.raises(ValueError, match="one process"):
        prepare_backend(replace(SETTINGS, n_processes=2, backend="unsloth"))


def test_the_adapter_speaks_the_same_in_plain_peft(trained, spec):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ours = load_model(spec, trained[1].adapter, purpose="generate")
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(spec.path), str(trained[1].adapter)).eval()
    ids = torch.tensor([[1, 5, 9, 30, 7]])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 24}
    assert torch.equal(ours.model.generate(ids, **options), plain.generate(ids, **options))


def test_the_adapter_loads_merged_and_changes_the_model(trained, spec):
    import torch

    base, tuned = load_model(spec, purpose="generate"), load_model(spec, trained[1].adapter, purpose="generate")
    ids = torch.tensor([[1, 5, 9]])
    with torch.no_grad():
        assert not torch.allclose(base.model(ids).logits, tuned.model(ids).logits)
    assert "adapter" in tuned.fingerprint
    with pytest.raises(ValueError, match="trained on"):
        load_model(spec.model_copy(update={"id": "a/other"}), trained[1].adapter)


def test_the_card_names_base_data_and_losses_and_no_time(trained, spec):
    card = model_card(spec, SETTINGS, {"train.jsonl": "sha256 abc"}, trained[1].log)
    assert spec.id in card and "sha256 abc" in card and "lora_rank" in card
    assert "202" not in card.replace(spec.path, "")


def test_out_of_memory_says_what_to_change(spec, tmp_path, monkeypatch):
    import torch
    from trl import SFTTrainer

    def full(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(SFTTrainer, "train", full)
    with pytest.raises(MemoryError, match="halve batch_size"):
        train(spec, SETTINGS, ROWS, ROWS[:2], tmp_path)


@pytest.mark.parametrize(("rows", "at_most", "expected"), [(8, 4, 4), (2, 4, 2), (7, 4, 1), (9, 4, 3), (64, 8, 8), (1, 4, 1)])
def test_no_held_out_row_is_dropped_for_an_incomplete_batch(rows, at_most, expected):
    assert whole_batches(rows, at_most) == expected


NAME = "smollm2-135m"


@pytest.fixture
def run(tmp_path):
    """A run's folder with training speeches."""
    write_jsonl(tmp_path / "02_dataset/train.jsonl", ROWS)
    write_jsonl(tmp_path / "02_dataset/test.jsonl", ROWS[:4])
    return tmp_path


@pytest.mark.slow
def test_two_processes_train_like_one(run):
    one = replace(SETTINGS, batch_size=4, learning_rate=1e-3, max_steps=4, eval_every=2, save_every=2, max_length=224)
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
    bad = replace(SETTINGS, n_processes=2, batch_size=4, max_length=32)
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
        train_in_processes(NAME, replace(SETTINGS, n_processes=2), run, 42)
    assert started[0].wait(timeout=20) == -signal.SIGTERM
