"""Files appear whole or not at all; a killed loop's rows are kept."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parliabench_utils.run.artefacts import (
    ResumableJsonl,
    read_jsonl,
    whole_file,
    write_csv,
    write_json,
    write_jsonl,
    write_parquet,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(st.dictionaries(st.text(), json_values)))
def test_jsonl_comes_back_as_it_was(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("jsonl") / "rows.jsonl"
    write_jsonl(path, rows)
    assert read_jsonl(path) == rows


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half of the ne")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nan_becomes_null_and_numpy_becomes_plain(tmp_path):
    write_json(tmp_path / "x.json", {"a": math.nan, "b": np.float64(1.5), "c": np.array([1, 2]), "d": pd.NA})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": 1.5, "c": [1, 2], "d": None}


def test_tables_are_rounded_at_six_decimals(tmp_path):
    frame = pd.DataFrame({"x": [1 / 3, math.nan, 1 / 3e9], "n": [1, 2, 3]})
    write_parquet(tmp_path / "x.parquet", frame)
    assert pd.read_parquet(tmp_path / "x.parquet")["x"][0] == 0.333333
    write_csv(tmp_path / "x.csv", frame)
    assert (tmp_path / "x.csv").read_text() == "x,n\n0.333333,1\n,2\n3.33333e-10,3\n"


def test_an_interrupted_file_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "rows.jsonl"
    with ResumableJsonl(path, key=("id",)) as log:
        log.append({"id": "b", "x": 1})
    assert not path.exists()
    with ResumableJsonl(path, key=("id",)) as log:
        assert log.done == {("b",)}
        log.append({"id": "a", "x": 2})
        log.finish()
    assert [row["id"] for row in read_jsonl(path)] == ["a", "b"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_that_a_kill_cut_short_is_dropped(tmp_path):
    path = tmp_path / "rows.jsonl"
    partial = tmp_path / "rows.jsonl.partial"
    partial.write_text('{"id": 1}\n{"id": 2, "text": "cut of')
    with ResumableJsonl(path, key=("id",)) as log:
        assert log.done == {(1,)}
        log.append({"id": 2})
    assert partial.read_text() == '{"id": 1}\n{"id": 2}\n'


def test_a_finished_file_counts_as_done(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"id": 1}])
    with ResumableJsonl(path, key=("id",)) as log:
        assert log.done == {(1,)}
        log.finish()
    assert read_jsonl(path) == [{"id": 1}]


def test_the_same_key_twice_is_an_error(tmp_path):
    with ResumableJsonl(tmp_path / "rows.jsonl", key=("id",)) as log:
        log.append({"id": 1})
        with pytest.raises(ValueError, match="second row"):
            log.append({"id": 1})


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\nnot json\n')
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read_jsonl(path)
