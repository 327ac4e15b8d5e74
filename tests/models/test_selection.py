"""Reading what 04 wrote: every prompt of every shard, no more and no less."""

import pytest

from parliabench_utils.metrics.speeches import generated_rows, read_generated
from parliabench_utils.run.artefacts import write_jsonl

PROMPTS = [{"prompt_id": "a", "shard": 0}, {"prompt_id": "b", "shard": 1}, {"prompt_id": "c", "shard": 0}]


def row(prompt, variant=0):
    return {"prompt_id": prompt, "variant": variant, "model": "m", "type": "baseline", "generated_speech": "Yes."}


@pytest.fixture
def run(tmp_path):
    """A run with three prompts in two shards, all answered."""
    write_jsonl(tmp_path / "02_dataset/prompts.jsonl", PROMPTS)
    write_jsonl(tmp_path / "04_generate/m/baseline/shard-0.jsonl", [row("a"), row("c")])
    write_jsonl(tmp_path / "04_generate/m/baseline/shard-1.jsonl", [row("b")])
    write_jsonl(tmp_path / "04_generate/human/human/shard-0.jsonl", [row("a"), row("b"), row("c")])
    return tmp_path


def test_shards_are_those_of_the_prompts(run):
    write_jsonl(run / "04_generate/m/baseline/shard-2.jsonl", [row("gone")])
    found = read_generated(run, [("m", "baseline"), ("human", "human")])
    assert found["prompt_id"].tolist() == ["a", "c", "b", "a", "b", "c"]


def test_a_missing_shard_is_named(run):
    (run / "04_generate/m/baseline/shard-1.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"shard-1.jsonl: run 04 for m, baseline"):
        generated_rows(run, "m", "baseline")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a")], r"no row of a prompt \(c\)"),
        ([], r"no row of a prompt \(a and 1 more\)"),
        ([row("a"), row("c"), row("a")], r"two rows of one variant \(a\)"),
        ([row("a"), row("c"), row("b")], r"a prompt that is not the shard's \(b\)"),
    ],
)
def test_rows_that_are_not_the_prompts_ones_are_refused(run, rows, message):
    write_jsonl(run / "04_generate/m/baseline/shard-0.jsonl", rows)
    with pytest.raises(ValueError, match=rf"shard-0.jsonl has {message}"):
        generated_rows(run, "m", "baseline")


def test_variants_are_rows_of_their_own(run):
    write_jsonl(run / "04_generate/m/baseline/shard-1.jsonl", [row("b"), row("b", 1)])
    assert [r["variant"] for r in generated_rows(run, "m", "baseline")] == [0, 0, 0, 1]
