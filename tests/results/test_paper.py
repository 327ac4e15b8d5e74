"""The audit: its verdicts, and that each hangs on the tables it names."""

import pandas as pd
import pytest

from parliabench_utils.results.paper import KINDS, PAPER_MODELS, all_tables, audit, claims, published, quantities
from parliabench_utils.results.statistics import t_test_from_summary


@pytest.fixture(scope="module")
def findings() -> pd.DataFrame:
    return audit()


def test_one_name_a_model():
    for number in (2, 12, 13):
        assert set(published(number)["model"]) == set(PAPER_MODELS)
    for number in (8, 11):
        assert set(PAPER_MODELS) <= set(published(number).columns)


def test_unknown_table_is_refused():
    with pytest.raises(ValueError, match="Table 14"):
        published(14)


def test_size_and_columns(findings):
    assert len(findings) >= 60
    assert list(findings.columns) == ["item", "claim", "place", "published", "recomputed", "agrees", "note"]
    assert set(findings["agrees"]) == {"yes", "no", "not computable"}


def test_claims_name_what_their_kinds_compute():
    tables, rows = all_tables(), claims().to_dict("records")
    assert {claim["kind"] for claim in rows} == {*KINDS, "not computable"}
    for claim in rows:
        known = quantities(claim, tables)
        used = [condition.split(" ")[0].split("[")[0] for condition in claim["holds"].split("; ") if condition]
        assert set(used) <= set(known) and bool(used) == (claim["kind"] != "not computable"), claim


def test_every_published_t_follows_from_table_2(findings):
    tests = findings[findings["item"] == "2 t-tests"]
    assert len(tests) == 63 and (tests["agrees"] == "yes").all()


EXPECTED = {
    "1 header": "no", "3 count": "yes", "3 asterisks": "yes", "3 declines": "no", "3 caption": "no", "3 rule": "yes",
    "4 Self-BLEU": "no", "5 direct": "no", "7 models": "no", "8 steps": "yes", "8 warm-up": "yes", "8 warm-up, page": "no",
    "10 difficulty": "not computable", "11 speakers": "no", "12 most stable": "no", "13 Labour": "no",
    "14 Centre-left": "no", "14 Centre-right": "yes", "15 consistent": "no", "17 superior": "no", "18 variance": "no",
    "19 PSA size": "no", "20 Party Align": "yes", "21 Yi": "no", "22 minor parties": "no", "23 abundance": "no",
    "24 Conservative": "no", "24 Labour": "yes", "24 right": "yes", "25 centre": "no", "26 Geography": "no",
    "27 disagreement": "no", "28 ANOVA": "no", "29 repeated rows": "no", "31 context": "no", "32 maintained": "not computable",
    "34 spelling": "no", "35 reach": "no", "36 Bishops": "no", "37 guessing": "no",
}  # fmt: skip


@pytest.mark.parametrize(("item", "verdict"), EXPECTED.items())
def test_verdicts(findings, item, verdict):
    assert set(findings.loc[findings["item"] == item, "agrees"]) == {verdict}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("3 declines", "18 significant"), ("15 consistent", "45 better, 18 worse, 7 not"), ("18 variance", "49 fell, 2 are equal"),
        ("17 superior", "3 of 14"), ("21 Yi", "0.521-0.633"), ("23 abundance", "-0.17 (p = 0.62"), ("26 Geography", "rank 5"),
        ("28 consistency", "3.9 to 5.2"), ("29 repeated rows", "5 repeat"), ("35 reach", "8 only"), ("37 guessing", "0.877"),
        ("37 guessing", "0.840"), ("11 speakers", "2,005"), ("24 Conservative", "58.849"), ("24 right", "109,992"),
    ],
)  # fmt: skip
def test_recomputed_values(findings, item, text):
    assert text in " ".join(findings.loc[findings["item"] == item, "recomputed"])


def test_n_bounds_are_those_of_table_13(findings):
    rows = findings[findings["item"] == "2 n"].set_index("claim")["recomputed"]
    assert "2681.5 to 2686.7" in rows.filter(like="PSA").iloc[0]
    assert "2683.9 to 2684.2" in rows.filter(like="Self-BLEU").iloc[0]


def altered(number: int, row, column: str, value) -> dict[int, pd.DataFrame]:
    table = published(number)
    table.loc[row, column] = value
    return {number: table}


@pytest.mark.parametrize(
    ("change", "item", "before", "after"),
    [
        (altered(2, 0, "mean", 66.0), "2 t-tests", 63, 62),
        (altered(13, 0, "t", -40.0), "2 t-tests", 63, 62),
        (altered(3, 0, "speeches", 270_000), "11 speeches", 1, 0),
        (altered(8, 0, "average", 0.7), "30 margins", 4, 3),
        (altered(12, 0, "overall", 97.0), "9 overall", 5, 4),
        (altered(2, 14, "starred", 0), "3 asterisks", 1, 0),
        (altered(3, 0, "speakers", published(3)["speakers"][0] - 104), "11 speakers", 0, 1),
        (altered(4, slice(0, 21), "method", "Direct"), "5 direct", 0, 0),
        (altered(5, published(5)["model"].str.contains("Falcon"), "model", "Yi 6B"), "7 models", 0, 1),
        (altered(7, published(7)["parameter"] == "Warmup Steps", "value", "1119"), "8 warm-up", 1, 0),
        (altered(7, published(7)["parameter"] == "Warmup Steps", "value", "1119"), "8 warm-up, page", 0, 1),
        (altered(9, slice(None), "F", 2.5), "28 ANOVA", 0, 1),
        (altered(10, slice(None), "difficulty", 0.5), "29 repeated rows", 0, 1),
        (altered(11, published(11)["topic"] == "Geography", "average", 0.5), "26 Geography", 0, 1),
    ],
)
def test_an_altered_table_flips_its_verdict(findings, change, item, before, after):
    def count(frame):
        return int((frame.loc[frame["item"] == item, "agrees"] == "yes").sum())

    assert count(findings) == before and count(audit(change)) == after


def test_the_papers_first_t_test():
    test = t_test_from_summary(61.150, 35.890, 2756, 31.623, 8.251, 2756)
    assert test.t == pytest.approx(-42.093, abs=0.01) and test.d == pytest.approx(-1.134, abs=0.0005)
