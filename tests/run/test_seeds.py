"""A row's seed depends on the run's seed and the row's ids, and on nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from parliabench_utils.run.record import row_seed


@given(st.integers(0, 2**40), st.lists(st.text() | st.integers(), max_size=4))
def test_seed_is_stable_and_in_range(seed, ids):
    assert 0 <= row_seed(seed, *ids) < 2**31
    assert row_seed(seed, *ids) == row_seed(seed, *ids)


def test_other_ids_other_seeds():
    assert len({row_seed(s, p, v) for s in (1, 2) for p in ("a", "b") for v in (0, 1)}) == 8
    assert row_seed(1, "ab", "c") != row_seed(1, "a", "bc")


def test_golden_value():
    assert row_seed(42, "prompt-1", 0) == 478600679
