"""Runs notebooks as JupyterLab does: their cells in one IPython, the parameters' values replaced by a slice's.

python -m tests.notebooks.kernel RUN all|ends STAGE ...      # each stage twice, all its cells or the first ones and the end
"""

import sys

import jupytext

from tests.conftest import ROOT
from tests.slices import chosen_settings


def cells(stage: str, run: str, which: str) -> list[str]:
    """The sources of a notebook's code cells, with the slice's values set after the parameters' cell."""
    notebook = jupytext.read(ROOT / "notebooks" / f"{stage}.py")
    parameters, *others = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    if which == "ends":
        others = [others[0], "this_run.finish()"]
    values = "\n".join(f"{key} = {value!r}" for key, value in (chosen_settings(stage) | {"run": run}).items())
    return [f"{parameters}\n{values}", *others]


def shell():
    """An IPython as a kernel has it, without its history."""
    import matplotlib

    matplotlib.use("agg")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    return InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))


def run_all(ip, stage: str, run: str, which: str = "all") -> None:
    for source in cells(stage, run, which):
        ip.run_cell(source, store_history=False).raise_error()


if __name__ == "__main__":
    run, which, *names = sys.argv[1:]
    for name in names:
        ip = shell()
        for time in (1, 2):
            run_all(ip, name, run, which)
            print(f"{name}: time {time} done", flush=True)
        ip.reset()
