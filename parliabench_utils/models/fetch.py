"""Fetch the weights that a parameter file names, and write the revision that came into the file.

Used by the command line: `python -m parliabench_utils fetch-models llama-3.1-8b flow-judge`. Afterwards notebooks run offline.
"""

import re
from pathlib import Path

from parliabench_utils.run.artefacts import write_text
from parliabench_utils.run.parameter_files import read_given_text, read_yaml
from parliabench_utils.run.project import project_root

WANTED_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.model", "*.txt"]


def fetch_model(name: str) -> str:
    """Download `params/models/<name>.yaml` or `params/judges/<name>.yaml`'s checkpoint and pin it; returns the commit.

    Safetensors and tokenizer files only: no pickles, no code. A file that is pinned already is fetched at that revision. Raises
    FileNotFoundError for an unknown name and ValueError for a model that is not on a hub.
    """
    from huggingface_hub import HfApi, snapshot_download

    file = _parameter_file(name)
    checkpoint, revision = _hub_id(file)
    commit = HfApi().model_info(checkpoint, revision=revision).sha
    snapshot_download(checkpoint, revision=commit, allow_patterns=WANTED_FILES)
    _pin(file, commit)
    return commit


def _parameter_file(name: str) -> Path:
    folders = [project_root() / "params" / kind for kind in ("models", "judges")]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = ", ".join(sorted(file.stem for folder in folders for file in folder.glob("*.yaml")))
    raise FileNotFoundError(f"no model or judge {name!r}; known: {known}")


def _hub_id(file: Path) -> tuple[str, str | None]:
    values = read_yaml(file)
    values = values["model"] if isinstance(values.get("model"), dict) else values
    if values.get("source") != "hub":
        raise ValueError(
            f"{file.name}: nothing to fetch, its weights come from {values.get('source') or values.get('model')}"
        )
    return values["id"], values.get("revision")


def _pin(file: Path, commit: str) -> None:
    """Replace the value of the one `revision:` line, keeping the file's comments."""
    text = read_given_text(file)
    pinned, count = re.subn(r"(?m)^(\s*revision:\s*)\S+", rf"\g<1>{commit}", text)
    if count != 1:
        raise ValueError(f"{file}: expected one line `revision:`, found {count}")
    write_text(file, pinned)
