"""Files appear whole or not at all; a killed loop's rows are kept."""

import csv
import io
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parliabench_utils.run.artefacts import (
    ResumableJsonl,
    harmless,
    markdown_table,
    printable,
    read_csv,
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


odd_text = st.text(st.sampled_from("=+-@＝'\"`‘ \t\r\n\0\x0b\ufeff\u200b|1.e,;ab\u2028é")) | st.text()


@settings(deadline=None)
@given(st.lists(odd_text, min_size=1), odd_text)
def test_texts_of_a_csv_are_harmless_and_come_back(tmp_path_factory, texts, name):
    """One record a row whatever stands in it, no cell that a spreadsheet computes, and our reader gives the texts back."""
    path, numbers = tmp_path_factory.mktemp("csv") / "rows.csv", [-1.5 * place for place in range(len(texts))]
    write_csv(path, pd.DataFrame({f"{name}x": texts, "n": numbers}))
    content = path.read_bytes().decode()
    records = list(csv.reader(io.StringIO(content, newline="")))
    assert [len(record) for record in records] == [2] * (len(texts) + 1) and not {"\0", "\r"} & set(content)
    for cell in (f"{name}x", *texts):
        shown = harmless(cell)
        assert shown.startswith("'") or is_number(shown) or not re.match(r"[\s'\"`‘\ufeff\u200b]*[=@＝+-]|[\t\n]", shown)
    back = read_csv(path, dtype=str, na_values=[])
    assert back.columns[0] == printable(f"{name}x") and back.iloc[:, 0].tolist() == [printable(text) for text in texts]
    assert back["n"].astype(float).tolist() == numbers


def is_number(text):
    return bool(re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text, re.ASCII))


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"), ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"), ("\r=1", "'\n=1"), ("\r\n=1", "'\n=1"), ("  =1", "'  =1"), ('"=1', "'\"=1"), ("'=1", "''=1"),
        ("＝1", "'＝1"), ("＋1", "'＋1"), ("\ufeff=1", "'\ufeff=1"), ("\x00=1", "\ufffd=1"), ("\u3000@x", "'\u3000@x"),
        ("-1.5", "-1.5"), ("+3e-4", "+3e-4"), ("it's", "it's"), ("a=b", "a=b"), ("a\rb", "a\nb"), ("— (none)", "— (none)"),
    ],
)  # fmt: skip
def test_a_cell_that_would_be_computed_has_an_apostrophe_in_front(text, cell):
    assert harmless(text) == cell


def test_numbers_stay_numbers_and_na_stays_a_text(tmp_path):
    frame = pd.DataFrame({"x": [-1.5, math.nan], "n": [-2, 3], "mixed": ["-", -4], "party": ["NA", None], "yes": [True, False]})
    write_csv(tmp_path / "x.csv", frame)
    assert (tmp_path / "x.csv").read_text() == "x,n,mixed,party,yes\n-1.500000,-2,'-,NA,True\n,3,-4,,False\n"
    back = read_csv(tmp_path / "x.csv")
    assert back["party"][0] == "NA" and pd.isna(back["party"][1]) and back["mixed"].tolist() == ["-", "-4"]
    assert back["x"][0] == -1.5 and back["n"].tolist() == [-2, 3]


@settings(deadline=None)
@given(odd_text, odd_text)
def test_a_cell_of_markdown_stays_in_its_cell(a, b):
    lines = markdown_table(["x", a], [[b, "<img src=x>|[a](javascript:b)"]]).rstrip("\n").split("\n")
    assert len(lines) == 3 and all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3 for line in lines)
    assert "<img" not in lines[2] and "](" not in lines[2]
