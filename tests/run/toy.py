"""A project with one notebook, `toy`, that reads `input.txt` and writes `toy.csv`; as a command, the runner on it.

python -m tests.run.toy ROOT KEY=VALUE ...
"""

import os
import sys
from pathlib import Path

from parliabench_utils import cli
from parliabench_utils.run import params, record, runner, stages
from parliabench_utils.run.staging import staging_folder

NOTEBOOK = """\
# %% tags=["parameters"]
run = "toy"
profile = "demo"
seed = 42
data_root = "data"
models = ["m"]
types = ["baseline"]
n_threads = 2
offline = True
word = "hello"
folder = ""

# %%
from pathlib import Path

print("a line that is seen live")

# %%
{body}
"""
WRITES = 'Path(folder, "toy.csv").write_text(f"x\\n{word}\\n")'


def staged(outputs: Path) -> Path:
    """Where the toy works until it is done; a real notebook gets it from `start`."""
    return staging_folder(outputs / "toy", "toy")


def make_project(root: Path, outputs: Path) -> None:
    (root / "notebooks").mkdir(parents=True)
    (root / "params/demo").mkdir(parents=True)
    (root / "params/demo/common.yaml").write_text("run: toy\n")
    (root / "params/demo/toy.yaml").write_text(f"folder: {staged(outputs)}\n")
    (root / "input.txt").write_text("input")


def write(root: Path, body: str = WRITES, text: str = NOTEBOOK) -> None:
    (root / "notebooks/toy.py").write_text(text.format(body=body))


def install(root: Path, put_item, put_attribute) -> None:
    """Make the package see the project in `root` and its stage; `put_…` are monkeypatch's, or the plain ones."""
    stage = stages.Stage("toy", "Toy", (), (), lambda p, f: [root / "input.txt"], lambda p, f: [f / "toy.csv"])
    put_item(stages.STAGES, "toy", stage)
    for module in (runner, record, params):
        put_attribute(module, "project_root", lambda: root)


if __name__ == "__main__":
    install(Path(sys.argv[1]), dict.__setitem__, setattr)
    os.chdir(sys.argv[1])
    settings = [part for text in sys.argv[2:] for part in ("--set", text)]
    sys.exit(cli.main(["run", "toy", "--profile", "demo", *settings]))
