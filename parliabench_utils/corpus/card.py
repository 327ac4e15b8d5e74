"""The data set's card, `README.md`, written from the run's own files (notebook 02).

>>> write_card(folder, kept, counts, source)      # doctest: +SKIP
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parliabench_utils.run.artefacts import write_text

if TYPE_CHECKING:
    import pandas as pd

DATA_FILES = ("train.jsonl", "test.jsonl", "prompts.jsonl", "references.jsonl", "dropped.csv")

_HEADER = """---
license: cc-by-4.0
language: en
task_categories: [text-generation]
configs:
- config_name: speeches
  data_files:
  - {split: train, path: train.jsonl}
  - {split: test, path: test.jsonl}
- config_name: prompts
  data_files: prompts.jsonl
- config_name: references
  data_files: references.jsonl
---
"""


def write_card(folder: Path, kept: "pd.DataFrame", facts: dict[str, Any], parameters: dict[str, Any]) -> None:
    """Write `folder/README.md`: `facts` are counts by name, `parameters` those of notebook 02. The data files must be there."""
    from parliabench_utils.corpus.overview import party_table

    days = kept["date"].dt.date
    parts = [
        _HEADER,
        "# Speeches of the UK Parliament, in ParliaBench's format\n",
        f"{len(kept):,} speeches by {kept['speaker_id'].nunique():,} speakers of {kept['party'].nunique()} affiliations, "
        f"{days.min()} to {days.max()}. Source: ParlaMint (CC BY 4.0, CLARIN); contains Parliamentary information licensed "
        "under the Open Parliament Licence v3.0. Party and orientation are those of the speech's day.\n",
        "## Numbers\n" + _table(("what", "value"), facts.items()),
        "## Affiliations\n" + _table(party_table(kept).columns, party_table(kept).itertuples(index=False)),
        "## Made with\n" + _table(("parameter", "value"), parameters.items()),
        "## Files\n" + _table(("file", "sha256"), ((name, _sha256(folder / name)) for name in DATA_FILES)),
        "`Topic` is a EuroVoc domain: mapped from the corpus's CAP topic where Table 4 maps it (`topic_method` direct), else the "
        "domain whose written description is nearest to speech and heading by sentence embedding (cosine in `topic_score`, no "
        "threshold). "
        "`Prompts` are the questions that a speech answers.\n",
    ]
    write_text(folder / "README.md", "\n".join(parts))


def _table(header, rows) -> str:
    lines = [header, ["---"] * len(list(header)), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
