"""The raters' form and spreadsheet, their files read back, and agreement against published values."""

import csv
import io
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from parliabench_utils.cli import main
from parliabench_utils.metrics.judge_prompts import DIMENSIONS
from parliabench_utils.metrics.judge_trust import (
    absolute_icc,
    bootstrap_items,
    length_slope,
    ordinal_alpha,
    pair_agreement,
    quadratic_kappa,
    share_interval,
)
from parliabench_utils.results.annotation import read_annotation, write_annotation
from parliabench_utils.run.artefacts import harmless, read_jsonl, write_jsonl
from parliabench_utils.run.record import vouch_for_import

HOSTILE = '=HYPERLINK("x")</blockquote><script>alert(1)</script> {{ 7 * 7 }} ' + "word " * 30
SETS = [("a", "baseline"), ("a", "fine-tuned"), ("human", "human")]
JUDGE = "smollm2-constrained"


@pytest.fixture
def run(tmp_path):
    """A run with nine prompts of three parties; the judge's score of a speech is its prompt's number."""
    folder = tmp_path / "outputs/demo"
    prompts = [
        {"prompt_id": f"p{n}", "Party": f"Party {n % 3}", "House": "House of Lords", "Topic": "LAW"}
        | {"Political Orientation": "Centre", "instruction": "Speak."}
        for n in range(9)
    ]
    write_jsonl(folder / "02_dataset/prompts.jsonl", prompts)
    for model, kind in SETS:
        names = {"model": model, "type": kind, "variant": 0}
        spoken = [names | {"prompt_id": p["prompt_id"], "generated_speech": HOSTILE + model + kind} for p in prompts]
        write_jsonl(folder / "04_generate" / model / kind / "shard-0.jsonl", spoken)
        rows = [
            {"prompt_id": s["prompt_id"], "variant": 0, "dimension": d, "score": 1.0 + int(s["prompt_id"][1])}
            for s in spoken
            for d in DIMENSIONS
        ]
        write_jsonl(folder / "07_judge" / JUDGE / model / f"{kind}.jsonl", rows)
    vouch_for_import(folder, folder / "02_dataset/prompts.jsonl")
    return folder


def sheet(run):
    with (run / "annotation/sheet.csv").open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def rated(run, name, score, **changes):
    """A rater's file: `score(prompt number)` in every dimension, other cells by `changes` (line -> cells)."""
    key = pd.read_csv(run / "annotation/key.csv").set_index("item")["prompt_id"]
    rows = [
        row | dict.fromkeys(DIMENSIONS, str(score(int(key[row["item"]][1])))) | changes.get(f"row{n}", {})
        for n, row in enumerate(sheet(run))
    ]
    path = run.parent / f"ratings-{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=changes.get("delimiter", ","))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_sample_is_balanced_shuffled_and_blind(run):
    write_annotation(run, JUDGE, n_speeches=11, points=10, seed=1)
    key = pd.read_csv(run / "annotation/key.csv")
    assert key.groupby(["model", "type"]).size().tolist() == [3, 3, 3]
    assert key.groupby("prompt_id").size().tolist() == [3, 3, 3]
    assert {int(p[1]) % 3 for p in key["prompt_id"]} == {0, 1, 2}  # a prompt of each party
    assert key["model"].tolist() != sorted(key["model"])
    text = "".join((run / "annotation" / name).read_text() for name in ("sheet.csv", "form.html"))
    assert not re.search(r"p\d\b|prompt_id", text)
    assert list(sheet(run)[0]) == [
        *("item", "House", "Topic", "Party", "Political Orientation", "instruction", "speech"), *DIMENSIONS, "comment"
    ]  # fmt: skip
    first = (run / "annotation/form.html").read_bytes()
    write_annotation(run, JUDGE, n_speeches=11, points=10, seed=1)
    assert (run / "annotation/form.html").read_bytes() == first
    write_annotation(run, JUDGE, n_speeches=11, points=10, seed=2)
    assert (run / "annotation/form.html").read_bytes() != first


def test_the_form_works_offline_and_escapes_speeches(run):
    write_annotation(run, "flow-judge", n_speeches=3, points=10, seed=1)
    html = (run / "annotation/form.html").read_text()
    assert html.count("<script>") == html.count("</script>") == 1 and "{{" not in html.replace("{{ 7 * 7 }}", "")
    assert "&lt;script&gt;alert(1)" in html
    assert not re.search(r"""(?:src|href)\s*=|https?://|fetch\(|XMLHttp""", html.replace("link.href = URL", ""))
    assert html.count('type="radio"') == 3 * 6 * 10
    assert html.count("Could stand in the Official Report unnoticed.") == 3
    assert all(row["speech"].startswith("'=") for row in sheet(run))


def test_two_raters_are_read_and_compared(run, tmp_path):
    write_annotation(run, JUDGE, n_speeches=27, points=10, seed=1)
    same = rated(run, "ada", lambda n: n + 1)
    one_higher = rated(run, "ben", lambda n: n + 2, delimiter=";", row0=dict.fromkeys(DIMENSIONS, ""))
    table = read_annotation(run, [same, one_higher]).set_index("dimension")
    coh = table.loc["J_Coh"]
    assert (coh["raters"], coh["items"], coh["missing"]) == (2, 27, 1)
    assert 0.9 < coh["alpha"] < 1 and coh["alpha_low"] < coh["alpha"] and coh["alpha_low"] < coh["alpha_high"] < 1
    assert 0.9 < coh["kappa"] < 1 and 0.9 < coh["icc"] < 1
    assert coh["judge_tau"] > 0.99 and coh["judge_icc"] > 0.9
    written = pd.read_csv(run / "annotation/ratings.csv")
    assert set(written.columns) == {
        "rater",
        "item",
        "dimension",
        "score",
        "model",
        "type",
        "prompt_id",
        "variant",
        "judge",
    }
    assert (written.loc[written["rater"] == "ada", "score"] == written.loc[written["rater"] == "ada", "judge"]).all()


def test_every_mistake_is_named_with_its_place(run):
    write_annotation(run, JUDGE, n_speeches=9, points=5, seed=1)
    wrong = rated(
        run, "ada", lambda n: 3, row0={"J_Coh": "6"}, row1={"J_Rel": "8/10"}, row2={"item": "s999"}, row3={"item": "s001"},
        row4={"J_Qual": "2.5"}, row5={"J_Qual": "4.0"},
    )  # fmt: skip
    bare = run.parent / "bare.csv"
    bare.write_text("item,J_Coh\ns001,3\n")
    with pytest.raises(ValueError) as error:
        read_annotation(run, [wrong, bare, wrong])
    text = str(error.value)
    for part in (
        *("line 2, J_Coh: '6' is no whole number from 1 to 5", "line 3, J_Rel: '8/10'", "'s999' is not in the sample"),
        *("'s001' stands there twice", "J_Qual: '2.5'", "bare.csv: no column J_Conc", "rater 'ada' has another file"),
    ):
        assert part in text
    assert "4.0" not in text
    assert not (run / "annotation/ratings.csv").exists()


SPREADSHEETS = {  # what LibreOffice and Excel write, by language and menu entry
    "utf-8 with a mark": ("utf-8-sig", ",", "", "{}"),
    "German": ("utf-8-sig", ";", "", "{},0"),
    "Windows": ("cp1252", ";", "", "{}"),
    "Unicode text": ("utf-16", "\t", "", "{}"),
    "big endian": ("utf-16-be", "\t", "\ufeff", "{},0"),
    "sep": ("utf-8", ";", "sep=;\r\n", "{}.00"),
}


@pytest.mark.parametrize("name", SPREADSHEETS)
def test_ratings_are_read_as_any_spreadsheet_writes_them(run, name):
    encoding, delimiter, before, score = SPREADSHEETS[name]
    write_annotation(run, JUDGE, n_speeches=9, points=10, seed=1)
    path = rated(run, "ada", lambda n: score.format(n + 1), delimiter=delimiter, row0={"comment": "naïve – “so”"})
    path.write_bytes((before + path.read_text(encoding="utf-8")).encode(encoding))
    ben = rated(run, "Béa", lambda n: n + 1)
    read_annotation(run, [path, ben])
    written = pd.read_csv(run / "annotation/ratings.csv")
    assert len(written) == 2 * 9 * 6 and (written["score"] == written["judge"]).all()
    assert set(written["rater"]) == {"ada", "Béa"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column item"),
        ("item,J_Coh,J_Coh\n", "no column J_Conc"),
        ("{h},J_Coh\n", "column J_Coh stands there twice"),
        ("{h}\n", "no speech of the sample is rated"),
        ("{h}\ns001,1_0,1e1,nan,inf,-1,0\n", "line 2, J_Coh: '1_0' is no whole"),
        ("{h}\ns001,5,5,5,5,5,11\n", "J_Qual: '11' is no whole"),
        ("{h}\ns001,5,5,5,5,5,5,5\n", "line 2: more cells than columns"),
        ("rater,{h}\na\x07b,s001\n", "line 2: rater 'a\\x07b' is no name"),
        ("rater,{h}\na,s001\nb,s002\n", "raters a, b in one file"),
        ("{h}\n../s001,5\n", "item '../s001' is not in the sample"),
        ("{h}\n" + "x" * 200_000, "no CSV"),
    ],
)
def test_ratings_that_are_none_are_named(run, text, message):
    write_annotation(run, JUDGE, n_speeches=9, points=10, seed=1)
    path = run.parent / "ratings-x.csv"
    path.write_text(text.format(h=",".join(["item", *DIMENSIONS])))
    with pytest.raises(ValueError, match=f"ratings-x.csv.*{re.escape(message)}"):
        read_annotation(run, [path])
    assert not (run / "annotation/ratings.csv").exists()


@pytest.mark.parametrize("text", ['Hello\r=HYPERLINK("http://evil")', "\r=1+1", "\n=1", "\t=1", " =1", '"=1', "＝1", "a\0=1", "@x"])
def test_a_sheet_has_one_record_an_item_and_nothing_to_compute(run, text):
    for file in (run / "04_generate").glob("*/*/shard-0.jsonl"):
        write_jsonl(file, [row | {"generated_speech": text} for row in read_jsonl(file)])
    vouch_for_import(run, run / "02_dataset/prompts.jsonl")
    write_annotation(run, JUDGE, n_speeches=9, points=10, seed=1)
    content = (run / "annotation/sheet.csv").read_bytes().decode("utf-8-sig")
    records = list(csv.reader(io.StringIO(content, newline="")))
    assert len(records) == 10 and not {"\r", "\0"} & set(content + (run / "annotation/form.html").read_text())
    assert not [cell for record in records for cell in record if re.match(r"""[\s"]*[=＝@]|[\t\n]""", cell)]


def test_the_file_that_the_form_saves_has_nothing_to_compute(run):
    """The template's own function, in Node: the same apostrophe as in the sheet."""
    if not (node := shutil.which("node")):
        pytest.skip("no Node on this machine")
    write_annotation(run, JUDGE, n_speeches=3, points=10, seed=1)
    script = re.search(r"const formula = .*?\n}\n", (run / "annotation/form.html").read_text(), re.DOTALL)[0]
    texts = ["=1+1", "\r=1", " @x", "'=1", "＝1", "7", 'fine, "so"', "- a list", "a\rb"]
    done = subprocess.run(
        [node, "-e", f"{script}console.log(JSON.stringify({json.dumps(texts)}.map(quoted)))"],
        capture_output=True,
        check=True,
    )
    saved = [next(csv.reader(io.StringIO(cell, newline="")))[0] for cell in json.loads(done.stdout)]
    assert saved == [harmless(text) for text in texts]


def test_one_rater_and_a_constant_one_give_no_false_agreement(run):
    write_annotation(run, JUDGE, n_speeches=9, points=10, seed=1)
    table = read_annotation(run, [rated(run, "ada", lambda n: 5)])
    assert table[["alpha", "kappa", "icc"]].isna().all(axis=None)
    assert (table["judge_kappa"] == 0).all()
    table = read_annotation(run, [rated(run, "ada", lambda n: 5), rated(run, "ben", lambda n: 5)])
    assert table[["alpha", "kappa", "icc"]].isna().all(axis=None)


def test_too_few_speeches_and_no_sample_are_said(run):
    with pytest.raises(ValueError, match="3 models and types need 10 prompts"):
        write_annotation(run, JUDGE, n_speeches=30, points=10, seed=1)
    with pytest.raises(ValueError, match="at least one"):
        write_annotation(run, JUDGE, n_speeches=2, points=10, seed=1)
    with pytest.raises(FileNotFoundError, match="without --read"):
        read_annotation(run, [])


def test_the_command_line_writes_and_reads(run, monkeypatch, capsys):
    monkeypatch.setenv("PARLIABENCH_OUTPUTS", str(run.parent))
    assert main(["annotate", "--run", "demo", "--speeches", "9"]) == 0
    assert "form.html" in capsys.readouterr().out
    assert json.loads((run / "annotation/sample.json").read_text())["items"] == 9
    assert main(["annotate", "--read", str(rated(run, "ada", lambda n: n + 1)), str(rated(run, "ben", lambda n: n + 1))]) == 0
    assert re.search(r"alpha +1.0", capsys.readouterr().out)
    assert main(["annotate", "--read", str(run.parent / "nobody.csv")]) == 2


def test_a_changed_key_or_judgement_is_refused(run):
    write_annotation(run, JUDGE, n_speeches=9, points=10, seed=1)
    raters = [rated(run, "ada", lambda n: n + 1)]
    judged = run / "07_judge" / JUDGE / "a/baseline.jsonl"
    honest = judged.read_text()
    judged.write_text(honest.replace("3.0", "9.0"))
    with pytest.raises(ValueError, match=r"a/baseline\.jsonl was changed after"):
        read_annotation(run, raters)
    judged.write_text(honest)
    read_annotation(run, raters)
    key = run / "annotation/key.csv"
    key.write_text(key.read_text().replace("fine-tuned", "baseline"))
    with pytest.raises(ValueError, match=r"key\.csv was changed"):
        read_annotation(run, raters)


def test_published_values_of_agreement():
    """Krippendorff's example C, Cohen's kappa by hand, Shrout and Fleiss's table of four judges and six targets."""
    c = np.array([
        [1, 2, 3, 3, 2, 1, 4, 1, 2, np.nan, np.nan, np.nan],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, np.nan, 3],
        [np.nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, np.nan],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, np.nan],
    ])  # fmt: skip
    assert ordinal_alpha(c) == pytest.approx(0.8154, abs=1e-4)
    up = np.arange(1, 11)
    assert quadratic_kappa(up, np.minimum(up, 9), 10) == pytest.approx(0.99363, abs=1e-5)
    assert quadratic_kappa(up[:5], up[1:6], 10) == pytest.approx(0.80)  # one off everywhere
    assert quadratic_kappa(up, np.full(10, 5), 10) == 0
    judges = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]])
    assert absolute_icc(judges) == pytest.approx(0.290, abs=1e-3)
    assert np.isnan(ordinal_alpha(np.full((2, 5), 3.0)))
    assert pair_agreement(up[:2], up[:2], 10)["n"] == 2 and np.isnan(pair_agreement(up[:2], up[:2], 10)["icc"])


def test_length_slope_and_shares():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "n_words": rng.integers(50, 400, 200),
            "Party": rng.choice(list("ABC"), 200),
            "Topic": rng.choice(list("XY"), 200),
            "set": "m/baseline",
        }
    )
    bias = frame["Party"].map({"A": 0, "B": 2, "C": 4})
    slope, low, high, n = length_slope(frame.assign(score=3 + 0.01 * frame["n_words"] + bias + rng.normal(0, 0.1, 200)))
    assert slope == pytest.approx(1, abs=0.05) and low < slope < high and n == 200
    assert np.isnan(length_slope(frame.head(4).assign(score=1.0))[0])
    assert np.isnan(length_slope(frame.assign(score=1.0, n_words=50, prompt_id=range(200)))[0])  # nothing varies in a prompt
    assert share_interval(np.array([1, 1, 0.5, np.nan]))[::3] == (pytest.approx(2.5 / 3), 3)
    assert np.isnan(share_interval(np.array([np.nan]))[0])


def rated_by_prompt(seed: int, n_prompts: int, sets: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Two raters (2, n_items) who differ in how they take a prompt, and the prompt of each item."""
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(n_prompts), sets)
    level = rng.normal(0, 1.2, n_prompts)[prompt] + rng.normal(0, 0.5, prompt.size)
    apart = rng.normal(0, 0.8, n_prompts)[prompt]
    both = [5 + level + sign * apart + rng.normal(0, 0.4, prompt.size) for sign in (1, -1)]
    return np.clip(np.round(both), 1, 10), prompt


def missed(n_prompts: int, runs: int, draws: int) -> float:
    """Share of runs whose interval, by prompt, misses the alpha of a population of prompts."""
    truth = np.mean([ordinal_alpha(rated_by_prompt(10**6 + i, 1500)[0]) for i in range(3)])
    found = []
    for seed in range(runs):
        ratings, prompt = rated_by_prompt(seed, n_prompts)
        found.append(bootstrap_items(ordinal_alpha, ratings, draws, seed, clusters=prompt))
    low, high = np.array(found).T
    return float(np.mean((low > truth) | (truth > high)))


def test_the_interval_of_alpha_draws_prompts():
    ratings, prompt = rated_by_prompt(1, 12)
    (low, high), (by_item_low, by_item_high) = (bootstrap_items(ordinal_alpha, ratings, 200, 1, clusters=c) for c in (prompt, None))
    assert high - low > 1.4 * (by_item_high - by_item_low)
    one_each = np.arange(ratings.shape[1])
    assert bootstrap_items(ordinal_alpha, ratings, 50, 1, one_each) == bootstrap_items(ordinal_alpha, ratings, 50, 1)
    assert np.isnan(bootstrap_items(ordinal_alpha, ratings[:, :10], 50, 1, prompt[:10])[0])  # two prompts
    assert missed(12, 40, 100) <= 0.15  # by items it is .3


@pytest.mark.slow
@pytest.mark.parametrize("n_prompts", [12, 40])
def test_ninety_five_of_a_hundred_intervals_of_alpha_hold(n_prompts):
    assert 0.02 <= missed(n_prompts, 400, 300) <= 0.08


def speeches_of_a_blind_judge(seed: int, n_prompts: int, sets: int = 5, pays: float = 0.0) -> pd.DataFrame:
    """Scores that follow set, prompt and (by `pays` points for 100 words) length, which follows set and prompt too."""
    rng = np.random.default_rng(seed)
    prompt, place = np.divmod(np.arange(n_prompts * sets), sets)
    n_words = 120 + 40 * place + rng.normal(0, 30, n_prompts)[prompt] + rng.normal(0, 25, prompt.size)
    score = 4 + 0.7 * place + rng.normal(0, 0.6, n_prompts)[prompt] + rng.normal(0, 0.8, prompt.size)
    frame = pd.DataFrame({"score": score + pays * n_words / 100, "n_words": n_words, "prompt_id": prompt, "set": place})
    return frame.assign(Party=[list("ABC")[p % 3] for p in prompt], Topic="X")


def share_that_misses_0(n_prompts: int, runs: int, pays: float = 0.0) -> float:
    slopes = [length_slope(speeches_of_a_blind_judge(i, n_prompts, pays=pays))[1:3] for i in range(runs)]
    return float(np.mean([not low <= 0 <= high for low, high in slopes]))


def test_a_judge_that_is_blind_to_length_has_no_slope_though_sets_differ():
    assert share_that_misses_0(30, 60) <= 0.12
    assert share_that_misses_0(100, 10, pays=1.0) == 1
    frame = speeches_of_a_blind_judge(0, 200)
    assert abs(length_slope(frame.drop(columns="prompt_id"))[0]) < 0.6  # party and topic in the prompt's place
    assert length_slope(frame.assign(set=1).drop(columns="prompt_id"))[0] > 1.2  # sets thrown together


@pytest.mark.slow
@pytest.mark.parametrize("n_prompts", [18, 100])
def test_slopes_of_a_blind_judge_hold_0(n_prompts):
    assert 0.03 <= share_that_misses_0(n_prompts, 400) <= 0.08
