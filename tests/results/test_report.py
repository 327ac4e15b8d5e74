"""The report: whole, escaped, self-contained; its speech browser in Chromium; warnings; the headline table; notebooks 08 and 09."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pandas as pd
import pytest

from parliabench_utils.models.specs import read_model_spec
from parliabench_utils.results import report as parts
from parliabench_utils.results.report import guessing, headline, significance, text_columns
from parliabench_utils.results.statistics import verdict
from parliabench_utils.run.params import read_profile
from parliabench_utils.run.runner import run_notebook
from tests.results.synthetic import MODELS, write_run

HOSTILE = '<script>alert("x")</script> & <img src=x onerror=alert(2)>'


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.scripts, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem:
            self.scripts.append(data)
        self.text += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Notebooks 08 and 09 through the real runner, on the made-up run."""
    root = tmp_path_factory.mktemp("outputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLIABENCH_OUTPUTS", str(root))
        write_run(root / "made-up", hostile=HOSTILE)
        for notebook in ("08_statistics", "09_figures"):
            run_notebook(notebook, "demo", {"run": "made-up"})
    return root / "made-up"


@pytest.fixture(scope="module")
def page(folder) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_all_that_the_architecture_names_is_there(folder):
    tables = [folder / f"tables/table{n:02d}.{kind}" for n in range(1, 14) for kind in ("csv", "tex", "json")]
    names = [f"fig{n}" for n in range(1, 9)] + ["s1", "s2", "s3", "s4"]
    figures = [folder / f"figures/{name}.{kind}" for name in names for kind in ("pdf", "png", "json", "csv")]
    assert not [path for path in (*tables, *figures, folder / "tables/anova.csv") if not path.exists()]


def test_a_hostile_speech_is_text(page):
    parsed = Page(page)
    assert HOSTILE in parsed.text and "Plain <b>words</b> of a judge." in parsed.text
    assert len(parsed.scripts) == 2 and not [script for script in parsed.scripts if "alert(" in script]
    assert not [a for _, a in parsed.tags if any(name.startswith("on") for name in a)]


def test_only_the_pages_own_scripts_may_run(page):
    parsed = Page(page)
    policy = next(a["content"] for tag, a in parsed.tags if tag == "meta" and "http-equiv" in a)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in parsed.scripts]
    assert re.findall(r"sha256-([^']+)", policy) == hashes
    assert "default-src 'none'" in policy and "script-src 'unsafe" not in policy
    assert "Tristen Brown" in page  # the licence of the table library


def test_nothing_is_fetched(page):
    for _, attributes in Page(page).tags:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,"))
    assert "url(" not in page and "@import" not in page


def test_pictures_have_alt_texts_and_headings_are_there(page):
    pictures = [a for tag, a in Page(page).tags if tag == "img"]
    assert len(pictures) == 12 and all(len(a["alt"]) > 20 for a in pictures)
    for heading in ("Headline", "Audit of the paper", "What was left out", "differs from the paper's set-up"):
        assert heading in Page(page).text


def test_generated_speeches_are_marked(page):
    assert page.count('class="tag">AI-generated') == 4 * page.count('class="tag human">from the corpus') == 4 * 18


def test_the_headline_is_table_2s(folder):
    text = headline(folder)
    data = pd.read_csv(folder / "tables/table02.csv")
    for value in data.loc[data["metric"] == "PPL", "mean"]:
        assert f"{value:.3f}" in text
    assert text.splitlines()[-1].endswith("report.html") and max(map(len, text.splitlines()[:-1])) < 120


def test_headline_without_a_report(tmp_path):
    with pytest.raises(FileNotFoundError, match="09_figures"):
        headline(tmp_path)


def test_differences_are_those_of_the_profiles(folder):
    rows = {(r["stage"], r["key"]): r for r in parts.differences(folder, "demo")}
    for stage in ("02_dataset", "03_finetune"):
        ours, paper = read_profile(stage, "demo"), read_profile(stage, "paper")
        for key in set(ours) - {"run", "profile"}:
            differs = ours[key] != paper[key]
            assert ((stage, key) in rows or ("all", key) in rows) == differs, (stage, key)
    assert ("all", "models") in rows


def test_a_setting_given_on_the_command_line_counts(tmp_path):
    folder = write_run(tmp_path)
    path = folder / "manifests/02_dataset.json"
    record = json.loads(path.read_text())
    record["parameters"]["min_speeches"] = 5
    path.write_text(json.dumps(record))
    found = {(r["stage"], r["key"]): r["run"] for r in parts.differences(folder, "demo")}
    assert found[("02_dataset", "min_speeches")] == "5"


def test_warnings(folder):
    specs = [read_model_spec(model) for model in MODELS]
    text = " ".join(parts.warnings(folder, specs, "smollm2-constrained", 17))
    assert "Demo models" in text and "135 million" in text and "17 prompts" in text and "invented" in text
    path = folder / "05_text_metrics" / MODELS[0] / "baseline.signatures.json"
    path.write_text(json.dumps({"PPL": f"model:{specs[0].id}@x"}))
    assert any("own base" in warning for warning in parts.warnings(folder, specs, "smollm2-constrained", 100))


def test_the_page_says_what_each_test_finds(folder, page):
    said = significance(folder, {model: model for model in [*MODELS, "human"]})
    comparison = pd.read_csv(folder / "08_statistics/comparison.csv")
    for sentence, test in zip(said, ("paired", "pooled"), strict=True):
        marks = verdict(comparison, test, "bonferroni")
        for mark, part in zip(("gain", "decline"), sentence.split("declines:"), strict=True):
            wanted = [f"{row.metric} ({row.model})" for row in comparison[marks == mark].itertuples()]
            assert all(name in part for name in wanted) and part.count("(smollm2") == len(wanted)
    assert "gains:" in Page(page).text


def test_guessing_is_a_warning_only_while_no_model_is_above_it(tmp_path):
    file = tmp_path / "06_political_alignment/summary/validation.csv"
    file.parent.mkdir(parents=True)
    for low, warned in ((-0.1, True), (0.1, False)):
        pd.DataFrame({"statistic": ["PSA less the better guesser's"], "low": [low]}).to_csv(file)
        assert bool(guessing(tmp_path)) == warned


def test_words_stand_left_and_numbers_right():
    frame = pd.DataFrame({"a": ["x", "—"], "b": ["1.0", "—"], "c": ["< 0.0001", "-2"], "d": ["—", "—"]})
    assert text_columns(frame) == [True, False, False, False]


def test_the_report_says_nothing_about_this_machine(page):
    assert not re.search(r"/(home|root|tmp|Users)/", page)


def test_every_speech_can_be_read_without_a_script(page):
    parsed = Page(page)
    prompts = [a for tag, a in parsed.tags if tag == "details" and a.get("class") == "prompt"]
    assert len(prompts) == 18
    assert [a for tag, a in parsed.tags if tag == "form"] == [{"id": "find", "hidden": None}]
    links = {a["href"][1:] for tag, a in parsed.tags if tag == "a"}
    assert links <= {a["id"] for _, a in parsed.tags if "id" in a}


def test_the_best_and_the_worst_of_a_party_are_named(folder, page):
    best = re.search(r'<th scope="row">Labour</th><td><a href="#(\w+)">', page).group(1)
    rows = pd.DataFrame(map(json.loads, (folder / "release/generated.jsonl").read_text().splitlines()))
    labour = rows[rows["Party"] == "Labour"].sort_values("composite").iloc[-1]
    article = page[page.index(f'<article id="{best}"') :]
    assert f"{labour['Model']}, {labour['Type']}" in article[:600]
    assert f"<dt>Composite</dt><dd>{labour['composite']:.3f}</dd>" in article[:6000]


def chromium(page_path, *arguments: str, view: str = "") -> str:
    """What headless Chromium answers about a page, opened at `view`."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        pytest.skip("needs Chromium")
    quiet = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page_path.parent / '.chromium'}"]
    command = [program, *quiet, *arguments, page_path.as_uri() + view]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_browser_filters_sorts_and_shows(folder):
    view = "#find?party=Conservative&model=smollm2-135m&type=baseline&score=1"
    text = chromium(folder / "report.html", "--virtual-time-budget=5000", "--dump-dom", view=view)
    shown = [row for row in re.findall(r"<tr data-prompt.*?</tr>", text) if "hidden" not in row[: row.index(">")]]
    assert 1 < len(shown) < 18
    assert all('data-party="Conservative"' in row and 'data-type="baseline"' in row for row in shown)
    ppl = [float(value) for row in shown for value in re.findall(r"</th><td>([\d.]+)</td>", row)]
    assert ppl == sorted(ppl) and f"{len(shown)} of 90 answers" in text  # perplexity: lower is better, best first
    page = Page(text)
    visible = [a for tag, a in page.tags if tag == "details" and a.get("class") == "prompt" and "hidden" not in a]
    assert len(visible) == len({re.search(r'data-prompt="(\w+)"', row).group(1) for row in shown})
    assert "<script>alert" not in text and HOSTILE in page.text  # the speech with a script is text


def test_browser_prints(folder, tmp_path):
    target = tmp_path / "report.pdf"
    chromium(folder / "report.html", "--virtual-time-budget=5000", "--no-pdf-header-footer", f"--print-to-pdf={target}")
    printed = target.read_bytes()
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") > 5
