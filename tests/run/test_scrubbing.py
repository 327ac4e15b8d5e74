"""Nothing of the machine and no secret in what a run keeps."""

import io
import json
import os
import socket
from pathlib import Path

import nbformat
import pytest

from parliabench_utils.cli import main
from parliabench_utils.run import artefacts as scrubbing
from parliabench_utils.run.artefacts import ScrubbedStream, Scrubber, scrub, without_credentials
from parliabench_utils.run.project import corpus_folder, project_root
from parliabench_utils.run.runner import StageFailed, run_notebook
from tests.run.test_runner import project, write  # noqa: F401

SECRET = "hush-hush-77"
PACKAGES = next(p for p in scrubbing._places() if p.endswith("site-packages"))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An account `ann7` on the host `gpu-node-3` with folders of its own."""
    for name, value in {
        "HOME": "home/ann7",
        "PARLIABENCH_CACHE": "store/cache",
        "PARLIABENCH_OUTPUTS": "store/out",
    }.items():
        (tmp_path / value).mkdir(parents=True)
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("USER", "ann7")
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-3")
    for cached in (scrubbing._names, scrubbing._accounts):
        cached.cache_clear()
    yield tmp_path
    for cached in (scrubbing._names, scrubbing._accounts):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://ann:pw@h:9/v1", "http://h:9/v1"),
        ("see https://token@h/v1, or postgres://u:p%40w@db/x.", "see https://h/v1, or postgres://db/x."),
        ("GET https://h/v1?model=a&api_key=abc123&n=2", "GET https://h/v1?model=a&api_key=[removed]&n=2"),
        ("https://h/?X-Amz-Signature=ff&access_token=1", "https://h/?X-Amz-Signature=[removed]&access_token=[removed]"),
        ("{'Authorization': 'Bearer abc.def-12'}", "{'Authorization': 'Bearer [removed]'}"),
        ("x-api-key: 0a1b2c", "x-api-key: [removed]"),
        ("login hf_abcdefghijklmnopqrstuv failed", "login [removed] failed"),
        (
            "a basic understanding of the key question; write to a@b.uk",
            "a basic understanding of the key question; write to a@b.uk",
        ),
    ],
)
def test_credentials_go_and_the_rest_of_the_address_stays(text, left):
    assert without_credentials(text) == left
    assert without_credentials(left) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{project}/notebooks/x.py:3: in start", "notebooks/x.py:3: in start"),
        ("cwd={project}", "cwd=."),
        ("{out}/demo/05/x.parquet", "outputs/demo/05/x.parquet"),
        ("{cache}/embeddings/k.f32", "cache/embeddings/k.f32"),
        ("'{home}/My Data/corpus'", "'~/My Data/corpus'"),
        ("{packages}/torch/nn.py:3: UserWarning: old", "site-packages/torch/nn.py:3: UserWarning: old"),
        ("\x1b[32m{packages}/torch/nn.py\x1b[39m", "\x1b[32msite-packages/torch/nn.py\x1b[39m"),
        ("\x1b[0;32m/scratch/ann7/x.py\x1b[0m", "\x1b[0;32m…/x.py\x1b[0m"),
        ("file://{home}/a.html", "~/a.html"),
        ("/tmp/torchinductor_ann7/ab", "tmp/torchinductor_user/ab"),
        ("<td>/mnt/disk/data.csv</td>", "<td>…/data.csv</td>"),
        ("/scratch/ann7", "…/user"),
        ("on gpu-node-3, ann7@gpu-node-3:", "on user, user@user:"),
        (
            "and/or, Lords/Commons, https://h/home/a/b, </home/x>",
            "and/or, Lords/Commons, https://h/home/a/b, </home/x>",
        ),
        ("/dev/null, /tmpfs, n/a, 3/4", "/dev/null, /tmpfs, n/a, 3/4"),
    ],
)
def test_places_are_called_by_what_they_are(machine, text, left):
    named = {
        "project": project_root(),
        "out": machine / "store/out",
        "cache": machine / "store/cache",
        "home": machine / "home/ann7",
        "packages": PACKAGES,
    }
    assert scrub(text.format(**named)) == left
    assert scrub(left) == left


def test_what_is_no_text_stays_and_secrets_go_wherever_they_stand(machine, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "from-the-environment")
    scrubber = Scrubber({"server_url": f"http://u:{SECRET}@h/v1?token=abc%2Fdef", "corpus": "/mnt/My Data/corpus"})
    value = {
        "a": [1, None, 0.5, True, f"said {SECRET}"],
        Path("/mnt/x/y"): ("abc/def", "abc%2Fdef", "from-the-environment"),
    }
    assert scrubber(value) == {"a": [1, None, 0.5, True, "said [removed]"], "…/y": ("[removed]",) * 3}
    assert scrubber("open /mnt/My Data/corpus/a.xml") == "open …/corpus/a.xml"
    assert scrubber({"image/png": "/mnt/x/y"}) == {"image/png": "/mnt/x/y"}


def test_a_common_name_of_an_account_is_no_word_to_remove(machine, monkeypatch):
    monkeypatch.setenv("USER", "demo")
    monkeypatch.setenv("LOGNAME", "grant")
    scrubbing._names.cache_clear()
    scrubbing._accounts.cache_clear()
    assert scrub("params/demo/common.yaml, a grant of land; grant@h") == "params/demo/common.yaml, a grant of land; user@h"


def test_a_path_in_two_pieces_is_one(machine):
    file = io.StringIO()
    stream = ScrubbedStream(file, Scrubber())
    for piece in (str(machine)[:9], str(machine)[9:] + "/home/ann7", "/x\nlast ", "line"):
        stream.write(piece)
    assert file.getvalue() == "~/x\n"
    stream.finish()
    assert file.getvalue() == "~/x\nlast line"


def test_a_home_in_a_manifest_is_found_again(machine):
    corpus = machine / "home/ann7/corpus"
    corpus.mkdir()
    assert corpus_folder(scrub(str(corpus)), "data") == corpus.resolve()


LEAKS = """
import getpass, os, sys, warnings
print("folder", os.getcwd(), folder, word, os.path.expanduser("~"))
print("host " + os.environ["PARLIABENCH_CACHE"], file=sys.stderr)
warnings.warn("asked " + word + " as " + getpass.getuser())
"""


def kept(folder):
    return {file: file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_that_a_run_writes_names_machine_or_secret(project, outputs, machine, monkeypatch, capfd, fails):  # noqa: F811
    monkeypatch.setenv("PARLIABENCH_OUTPUTS", str(outputs))
    last = f'open("{machine}/home/ann7/none")' if fails else 'open(folder + "/toy.csv", "w").write("x\\n")'
    write(project, LEAKS.strip() + "\n" + last)
    settings = {"word": f"http://ann7:{SECRET}@127.0.0.1:9/v1?api_key=k-{SECRET}"}
    if fails:
        with pytest.raises(StageFailed) as failure:
            run_notebook("toy", "demo", settings)
        assert SECRET not in str(failure.value)
    else:
        run_notebook("toy", "demo", settings)
    for file, text in kept(outputs).items():
        for word in (SECRET, str(machine), "ann7", "gpu-node-3", str(project_root())):
            assert word not in text, f"{file.name}: {word}"
    record = json.loads((outputs / "toy/manifests/toy.json").read_text())
    assert record["parameters"]["word"] == "http://127.0.0.1:9/v1?api_key=[removed]"
    notebook = nbformat.read(outputs / "toy/notebooks/toy.ipynb", 4)
    nbformat.validate(notebook)
    assert notebook.metadata.papermill.output_path == "notebooks/toy.ipynb"
    if not fails:
        run_notebook("toy", "demo", settings)
        assert "toy: skipped" in capfd.readouterr().out


def test_the_notebook_still_has_the_password(project, outputs):  # noqa: F811
    write(project, f'assert word == "http://u:{SECRET}@h"\nopen(folder + "/toy.csv", "w").write("x\\n")')
    run_notebook("toy", "demo", {"word": f"http://u:{SECRET}@h"})


def test_the_command_line_repeats_no_password(capsys):
    assert main(["run", "07_judge", "--set", f"server_ulr=http://u:{SECRET}@h"]) == 2
    assert main(["run", "07_judge", "--set", f"points=http://u:{SECRET}@h"]) == 2
    assert SECRET not in capsys.readouterr().err
    assert os.environ.get("PARLIABENCH_RUNNER") is None
