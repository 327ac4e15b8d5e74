"""Read a ParlaMint corpus, one row an utterance (section 3, steps 1 and 2; notebook 01).

Releases 2.1 to 5.0: lists embedded in the root or included by it, day files beside the root or in year folders. One file is one
tree and is forgotten after it is read, so memory grows with the text alone.

    >>> speeches = read_corpus("ParlaMint-GB.TEI")                                      # doctest: +SKIP
    >>> speeches.loc[0, ["speech_id", "date", "house", "party", "text"]]                # doctest: +SKIP
"""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parliabench_utils.corpus.roots import Corpus, open_corpus
from parliabench_utils.corpus.safe_xml import CorpusError
from parliabench_utils.corpus.sittings import COLUMNS, TEXT_COLUMNS, read_sitting

if TYPE_CHECKING:
    import pandas as pd

ON_ERROR = ("stop", "quarantine", "skip")  # the last two are one: set the file aside and go on


def read_corpus(
    root: Path | str, workers: int = 1, on_error: str = "stop", people: Path | str | None = None
) -> "pd.DataFrame":
    """Return the utterances of a corpus in the order of its files, columns as in `COLUMNS`.

    `root` is the corpus's root file or its folder; `people` names another root for day files that came without their own.
    `workers` processes share the files; rows and their order do not depend on it. A file that cannot be read raises CorpusError
    with its name and line, or with `on_error="quarantine"` is set aside. `DataFrame.attrs` holds `dropped` (a list of
    `{"id", "rule", "text"}`), `corpus_id`, `orientation_source` and `n_files`.
    """
    import pandas as pd

    if on_error not in ON_ERROR:
        raise ValueError(f"on_error={on_error!r}: expected one of {', '.join(ON_ERROR)}")
    stop = on_error == "stop"
    corpus, dropped = open_corpus(Path(root), Path(people) if people else None, stop=stop)
    rows: list[tuple] = []
    seen = _Seen(corpus.corpus_id)
    for path, outcome in _read_files(corpus, workers, stop):
        error = outcome if isinstance(outcome, CorpusError) else seen.clash(path, outcome[0])
        if error and stop:
            raise error
        if error:
            dropped.append({"id": path.name, "rule": "unreadable file", "text": str(error)})
            continue
        seen.add(path, outcome[0])
        rows += outcome[0]
        dropped += outcome[1]
    frame = pd.DataFrame.from_records(rows, columns=COLUMNS)
    frame["date"] = pd.to_datetime(frame["date"]).astype("datetime64[ms]")
    frame = frame.astype(dict.fromkeys(TEXT_COLUMNS, "str"))  # all null or not, a column keeps its type
    frame.attrs = {
        "dropped": dropped,
        "corpus_id": corpus.corpus_id,
        "orientation_source": corpus.orientation_source,
        "n_files": len(corpus.files),
    }
    return frame


def _read_files(corpus: Corpus, workers: int, stop: bool) -> Iterator[tuple[Path, object]]:
    """Yield (path, (rows, dropped) or CorpusError) for each file in order, whatever the number of processes."""
    read = partial(_read_one, corpus)
    workers = min(workers, len(corpus.files), os.cpu_count() or 1)  # more only fill the memory
    if workers <= 1:
        yield from zip(corpus.files, map(read, corpus.files), strict=True)
        return
    from multiprocessing import get_context

    # spawn: a notebook's process has threads (torch, pyarrow), and a forked copy of their locks can hang.
    size = max(1, min(16, len(corpus.files) // (4 * workers)))
    with get_context("spawn").Pool(workers, initializer=_start_worker, initargs=(corpus,)) as pool:
        yield from zip(corpus.files, pool.imap(_read_in_worker, corpus.files, chunksize=size), strict=True)


def _read_one(corpus: Corpus, path: Path) -> object:
    try:
        return read_sitting(path, corpus)
    except CorpusError as error:
        return error


_worker_corpus: Corpus | None = None


def _start_worker(corpus: Corpus) -> None:
    global _worker_corpus
    _worker_corpus = corpus


def _read_in_worker(path: Path) -> object:
    return _read_one(_worker_corpus, path)


class _Seen:
    """The ids and the (house, day) pairs read so far: both may occur once only."""

    def __init__(self, corpus_id: str):
        self.corpus_id = corpus_id
        self.ids: set[str] = set()
        self.days: dict[tuple, Path] = {}

    def clash(self, path: Path, rows: list[tuple]) -> CorpusError | None:
        """Return the error that a file's rows make beside those of the files before it."""
        if rows and (other := self.days.get(_house_and_day(rows[0]))):
            return CorpusError(path, None, f"same house and day as {other}; remove one of the two files")
        again = next((row[0] for row in rows if row[0] in self.ids), None)
        return CorpusError(path, None, f"utterance id {again!r} occurs in another file too") if again else None

    def add(self, path: Path, rows: Iterable[tuple]) -> None:
        self.ids.update(row[0] for row in rows)
        if rows and rows[0][3] is not None:
            self.days[_house_and_day(rows[0])] = path


def _house_and_day(row: tuple) -> tuple:
    return row[3], row[2]
