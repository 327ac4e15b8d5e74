"""Where things are: the project's root, the folder of outputs, the user's cache.

Used by every notebook through `start`, and by the runner.

>>> project_root().joinpath("pyproject.toml").is_file()
True
"""

import os
import re
import tempfile
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

    The environment variable PARLIABENCH_CACHE moves it. Entries are keyed by content hashes, so it is always safe to delete. Raises
    ValueError that names the variable where the folder cannot be made or written.
    """
    from platformdirs import user_cache_path

    base = Path(os.environ.get("PARLIABENCH_CACHE") or user_cache_path("parliabench"))
    try:
        folder = base.expanduser() / name
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError) as error:  # RuntimeError: HOME is unset and nobody knows the user's
        raise ValueError(
            f"the cache folder {base / name} cannot be written ({getattr(error, 'strerror', '') or error}): set the environment "
            "variable PARLIABENCH_CACHE to a folder that can"
        ) from error


def lend_home() -> None:
    """Where HOME cannot be written (compute nodes, service users), libraries cache below PARLIABENCH_CACHE, if it is set."""
    home = os.environ.get("HOME") or ""
    if not os.environ.get("PARLIABENCH_CACHE") or os.access(home, os.W_OK | os.X_OK):
        return
    if (fetched := Path(home, ".cache/huggingface")).is_dir():
        os.environ.setdefault("HF_HOME", str(fetched))  # what is fetched there can still be read
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "TRITON_HOME"):
        if not os.environ.get(name):
            os.environ[name] = str(cache_folder(f"libraries/{name.lower()}"))


def corpus_folder(corpus: str, data_root: str) -> Path:
    """The corpus that the parameter `corpus` names: `mini` is the embedded one, else a root file or folder.

    A name is looked up from the project's root, then under `data_root`; whether it is there is the caller's to check.
    """
    if corpus == "mini":
        return Path(__file__).resolve().parents[1] / "corpus/mini"
    given = project_root() / corpus
    return (given if given.exists() else project_root() / data_root / corpus).resolve()


PLAIN_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)?(?:[^/?#]*@)?"
    r"(?P<place>(?:\[[0-9a-f:.]+\]|[^/?#@:\[\]]*)(?::\d+)?(?:/[^?#@]*)?)(?:[?#]|\Z)",
    re.IGNORECASE,
)


def public_url(url: str) -> str:
    """`url` as it may be shown or kept: without user name, password, query and fragment, which may hold secrets.

    Of what is no address (a password with a slash in it reads as one) nothing is shown.

    >>> public_url("https://me:secret@host:8000/v1?key=secret")
    'https://host:8000/v1'
    """
    plain = PLAIN_URL.match(url)
    return f"{plain['scheme'] or ''}{plain['place']}" if plain else "(not a URL)"


def shown(path: Path) -> str:
    """A path as people are told it: within the project without its place, and in a job's staging folder as what it becomes."""
    parts = path.parts
    if PARTIAL in parts:
        place = parts.index(PARTIAL)
        path = Path(*parts[:place], *parts[place + 3 :])
    root = project_root()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
