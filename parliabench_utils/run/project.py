"""Where things are: the project's root, the folder of outputs, the user's cache.

Used by every notebook through `start`, and by the runner.

>>> project_root().joinpath("pyproject.toml").is_file()
True
"""

import os
from pathlib import Path

PARTIAL = ".partial"  # outputs/<run>/.partial/<job>/<run>: where a job works


def project_root() -> Path:
    """The checkout that holds notebooks/ and params/, found from the package's own place.

    Raises FileNotFoundError where the package was installed without its checkout (the notebooks are part of the project).
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "notebooks").is_dir() or not (root / "params").is_dir():
        raise FileNotFoundError(
            f"{root} has no notebooks/ and params/: install ParliaBench from a checkout with `pip install -e .` (make env)"
        )
    return root


def outputs_root() -> Path:
    """`outputs/` of the project, or the folder that the environment variable PARLIABENCH_OUTPUTS names."""
    return Path(os.environ.get("PARLIABENCH_OUTPUTS") or project_root() / "outputs").resolve()


def cache_folder(name: str) -> Path:
    """A folder for things that can be made again (converted weights, embeddings), shared by all runs of a user.

    The environment variable PARLIABENCH_CACHE moves it. Entries are keyed by content hashes, so it is always safe to delete.
    """
    from platformdirs import user_cache_path

    base = Path(os.environ.get("PARLIABENCH_CACHE") or user_cache_path("parliabench"))
    folder = base / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def corpus_folder(corpus: str, data_root: str) -> Path:
    """The corpus that the parameter `corpus` names: `mini` is the embedded one, else a root file or folder.

    A name is looked up from the project's root, then under `data_root`; `~` is the user's home, as
    manifests write it. Whether it is there is the caller's to check.
    """
    if corpus == "mini":
        return Path(__file__).resolve().parents[1] / "corpus/mini"
    given = project_root() / Path(corpus).expanduser()
    return (given if given.exists() else project_root() / Path(data_root).expanduser() / corpus).resolve()


def shown(path: Path) -> str:
    """A path as people are told it: within the project without its place, and in a job's staging folder as what it becomes."""
    parts = path.parts
    if PARTIAL in parts:
        place = parts.index(PARTIAL)
        path = Path(*parts[:place], *parts[place + 3 :])
    root = project_root()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
