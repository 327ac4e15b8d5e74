"""The data set's card, `README.md`, written from the run's own files and counts (notebook 02).

>>> write_card(folder, kept, facts, parameters, speeches.attrs)      # doctest: +SKIP
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parliabench_utils.run.artefacts import markdown_table, markdown_text, write_text
from parliabench_utils.run.provenance import row_count

if TYPE_CHECKING:
    import pandas as pd

DATA_FILES = ("train.jsonl", "test.jsonl", "prompts.jsonl", "references.jsonl", "dropped.csv")
NOT_OF_THE_DATA = ("run", "profile", "data_root", "models", "types", "n_threads", "offline", "topic_url")  # parameters

_HEADER = """---
license: cc-by-4.0
language: en
task_categories: [text-generation]
configs:
- config_name: speeches
  default: true
  data_files:
  - {split: train, path: train.jsonl}
  - {split: test, path: test.jsonl}
- config_name: prompts
  data_files: prompts.jsonl
- config_name: references
  data_files: references.jsonl
---
"""
_METHODS = {
    "direct": "mapped from the corpus's CAP topic by the paper's Table 4 (score 1)",
    "embedding": "the domain whose descriptions are nearest to speech and heading by sentence embedding (score: centred cosine)",
    "kevlar": "the EuroVoc classifier KEVLAR (score: the concept's, or the sum where `topic_rule` is sum)",
    "transformers": "a sequence classifier with EuroVoc labels (score: probability, or the sum where `topic_rule` is sum)",
}


def write_card(
    folder: Path,
    kept: "pd.DataFrame",
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    corpus: Mapping[str, Any],
) -> None:
    """Write `folder/README.md`. The data files must be there.

    `facts` are counts by name, `parameters` those of notebook 02, `corpus` what `read_corpus` says of its root (title, edition).
    """
    from parliabench_utils.corpus.overview import party_table

    made_with = {key: value for key, value in parameters.items() if key not in NOT_OF_THE_DATA}
    methods = [f"- `{name}`: {_METHODS[name]}" for name in sorted(kept["topic_method"].unique())]
    parts = [
        _HEADER,
        "# Parliamentary speeches in ParliaBench's format\n",
        _summary(kept, corpus),
        "## Numbers\n" + _table(("what", "value"), facts.items()),
        "## Affiliations\n" + _table(party_table(kept).columns, party_table(kept).itertuples(index=False)),
        "Party is the speaker's on the day of the speech, orientation the party's in the corpus.\n",
        "## Topics\n`Topic` is one of EuroVoc's 21 domains. `topic_method` says how it was found, `topic_score` how surely:\n",
        "\n".join(methods) + "\n",
        "## Prompts and references\n"
        "`Prompts` are the questions that a speech answers. In `prompts.jsonl` the generic instruction is ParliaBench's own wording; "
        "`weight` undoes the oversampling of small parties. References are training speeches of the prompt's context, never from "
        "its own debate or by its own speaker.\n",
        "## Made with\n" + _table(("parameter", "value"), made_with.items()),
        "## Files\n" + _table(("file", "rows", "SHA-256 of the file"), [_file(folder / name) for name in DATA_FILES]),
        "The run's manifest hashes JSONL by its rows, so its values differ from these.\n",
    ]
    write_text(folder / "README.md", "\n".join(parts))


def _summary(kept: "pd.DataFrame", corpus: Mapping[str, Any]) -> str:
    days = kept["date"].dt.date
    title = markdown_text(f"{corpus['title']}, edition {corpus['edition']}")
    if "invented" in title:
        source = f"Source: {title}: every member, place, case and word is made up (CC BY 4.0)."
    else:
        source = f"Source: {title}, of the ParlaMint corpora (CC BY 4.0, CLARIN)."
        if corpus["corpus_id"] == "ParlaMint-GB":
            source += " Contains Parliamentary information licensed under the Open Parliament Licence v3.0."
    return (
        f"{len(kept):,} speeches by {kept['speaker_id'].nunique():,} speakers of {kept['party'].nunique()} affiliations, "
        f"{days.min()} to {days.max()}. {source}\n"
    )


def _table(header, rows) -> str:
    return markdown_table(header, [map(_shown, row) for row in rows])


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}" if type(value) is int else str(value)


def _file(path: Path) -> tuple[str, int | None, str]:
    return path.name, row_count(path), hashlib.sha256(path.read_bytes()).hexdigest()
