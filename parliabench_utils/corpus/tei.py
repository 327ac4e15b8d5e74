"""Read a ParlaMint corpus, one row an utterance (section 3, steps 1 and 2; notebook 01).

Releases 2.1 to 5.0: lists embedded in the root or included by it, day files beside the root or in year folders. One file is one
tree, becomes one compact batch of rows and is forgotten, so memory grows with the text alone.

    >>> speeches = read_corpus("ParlaMint-GB.TEI")                                      # doctest: +SKIP
    >>> speeches.loc[0, ["speech_id", "date", "house", "party", "text"]]                # doctest: +SKIP
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parliabench_utils.corpus.organisations import UK_CORPUS
from parliabench_utils.corpus.roots import Corpus, open_corpus
from parliabench_utils.corpus.safe_xml import XML_ID, CorpusError, line_of
from parliabench_utils.corpus.sittings import COLUMNS, LIST_COLUMNS, TEXT_COLUMNS, read_sitting

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ON_ERROR = ("stop", "quarantine")
FILES_A_GROUP = 128  # whose rows become one piece of the table
logger = logging.getLogger(__name__)


def read_corpus(
    root: Path | str, workers: int = 1, on_error: str = "stop", people: Path | str | None = None
) -> "pd.DataFrame":
    """Return the utterances of a corpus in the order of its files, columns as in `COLUMNS`.

    `root` is the corpus's root file or its folder; `people` names another root for day files that came without their own.
    `workers` processes share the files; rows and their order do not depend on it. A file that cannot be read raises CorpusError
    with its name and line, or with `on_error="quarantine"` is set aside. `DataFrame.attrs` holds `dropped` (a list of
    `{"id", "rule", "text"}`, files set aside have the rule `unreadable file`), `unlisted` (a line for each utterance of a
    speaker whom no list knows; its row is there, without a party), `not_listed` (day files that the root does not include, which
    are not read), `moved` (files that were read from another place than the one that the root names), `corpus_id`, `title`,
    `edition`, `orientation_source` and `n_files`.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error={on_error!r}: expected one of {', '.join(ON_ERROR)}")
    stop = on_error == "stop"
    corpus, dropped = open_corpus(Path(root), Path(people) if people else None, stop=stop)
    pieces: list[pa.Table] = []
    unlisted: list[str] = []
    seen = _Seen()
    for paths, (outcomes, rows) in _read_groups(corpus, workers):
        start, kept = 0, []
        for path, outcome in zip(paths, outcomes, strict=True):
            broken = isinstance(outcome, CorpusError)
            error = outcome if broken else seen.clash(path, outcome, corpus.corpus_id)
            if error and stop:
                raise error
            if error:
                dropped.append({"id": path.name, "rule": "unreadable file", "text": str(error)})
            else:
                kept.append(rows.slice(start, len(outcome.ids)))
                dropped += outcome.dropped
                unlisted += outcome.unlisted
            start += 0 if broken else len(outcome.ids)
        pieces += [rows] if len(kept) == len(paths) else kept
    if unlisted:
        logger.warning("%d utterances are by nobody whom the corpus lists; the first: %s", len(unlisted), unlisted[0])
    if corpus.moved:
        logger.warning("%d files lie elsewhere than the root says; the first: %s", len(corpus.moved), corpus.moved[0])
    if corpus.not_listed:
        logger.warning(
            "%d day files are not in the root's list and not read; the first: %s",
            len(corpus.not_listed),
            corpus.not_listed[0],
        )
    frame = _to_frame(pieces)
    frame.attrs = {
        "dropped": dropped,
        "unlisted": unlisted,
        "not_listed": corpus.not_listed,
        "moved": corpus.moved,
        "corpus_id": corpus.corpus_id,
        "title": corpus.title,
        "edition": corpus.edition,
        "orientation_source": corpus.orientation_source,
        "n_files": len(corpus.files),
    }
    return frame


@dataclass(frozen=True)
class _Outcome:
    """What came of one file beside its rows; compact enough to be handed from process to process."""

    ids: list[str]
    day: date
    house: str | None
    dropped: list[dict]
    unlisted: list[str]


_Group = tuple[list[_Outcome | CorpusError], "pa.Table"]  # one outcome a file, and the rows of those that could be read


def _read_groups(corpus: Corpus, workers: int) -> Iterator[tuple[list[Path], _Group]]:
    """Yield (paths, what came of them) for groups of files in order, whatever the number of processes."""
    workers = min(workers, len(corpus.files), os.cpu_count() or 1)  # more only fill the memory
    if workers <= 1:
        groups = _cut(corpus.files, FILES_A_GROUP)
        yield from zip(groups, map(partial(_read_group, corpus), groups), strict=True)
        return
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing import get_context

    groups = _cut(corpus.files, max(1, min(16, len(corpus.files) // (4 * workers))))
    # spawn: a notebook's process has threads (torch, pyarrow), and a forked copy of their locks can hang.
    pool = ProcessPoolExecutor(workers - 1, get_context("spawn"), initializer=_start_worker, initargs=(corpus,))
    try:
        asked: dict[int, Future] = {}
        own: dict[int, _Group] = {}
        first, last = 0, len(groups)  # groups[first:last] nobody has begun
        for i, group in enumerate(groups):
            while True:
                while first < min(last, i + 3 * workers):
                    asked[first] = pool.submit(_read_in_worker, groups[first])
                    first += 1
                if i in own or asked[i].done() or first == last:
                    break
                last -= 1  # this process reads too, from the end
                own[last] = _read_group(corpus, groups[last])
            yield group, own.pop(i) if i in own else asked.pop(i).result()
    finally:
        pool.shutdown(cancel_futures=True)


def _cut(files: list[Path], size: int) -> list[list[Path]]:
    return [files[start : start + size] for start in range(0, len(files), size)]


def _read_group(corpus: Corpus, paths: list[Path]) -> _Group:
    outcomes: list[_Outcome | CorpusError] = []
    batches = []
    for path in paths:
        try:
            here = read_sitting(path, corpus)
        except CorpusError as error:
            outcomes.append(error)
            continue
        batches.append(_to_batch(here.rows))
        ids = [row[0] for row in here.rows]
        outcomes.append(_Outcome(ids, here.day, here.house, here.dropped, here.unlisted))
    return outcomes, _joined(batches)


_worker_corpus: Corpus | None = None


def _start_worker(corpus: Corpus) -> None:
    global _worker_corpus
    _worker_corpus = corpus


def _read_in_worker(paths: list[Path]) -> _Group:
    return _read_group(_worker_corpus, paths)


def _schema() -> "pa.Schema":
    import pyarrow as pa

    types = dict.fromkeys(COLUMNS, pa.int64()) | dict.fromkeys(TEXT_COLUMNS, pa.large_string())
    types |= dict.fromkeys(LIST_COLUMNS, pa.list_(pa.string()))
    return pa.schema(types | {"date": pa.date32(), "is_government": pa.bool_()})


def _to_batch(rows: list[tuple]) -> "pa.RecordBatch":
    import pyarrow as pa

    schema = _schema()
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(batches: "list[pa.RecordBatch]") -> "pa.Table":
    """The rows of many files in one piece: a frame in thousands of pieces is slow, and the small ones leave holes in the memory."""
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema=_schema()).combine_chunks()


def _to_frame(pieces: "list[pa.Table]") -> "pd.DataFrame":
    import pyarrow as pa

    table = pa.concat_tables([pa.Table.from_batches([], schema=_schema()), *pieces])
    lists = {name: table[name].to_pylist() for name in LIST_COLUMNS}
    return table.drop_columns(list(LIST_COLUMNS)).to_pandas(date_as_object=False).assign(**lists)[list(COLUMNS)]


class _Seen:
    """The ids and the (house, day) pairs read so far: both may occur once only."""

    def __init__(self):
        self.ids: set[str] = set()
        self.days: dict[tuple[str | None, date], Path] = {}

    def clash(self, path: Path, outcome: _Outcome, corpus_id: str) -> CorpusError | None:
        """Return the error that a file makes beside those before it, None where it makes none and is now one of them."""
        sitting = outcome.house, outcome.day
        if corpus_id == UK_CORPUS and (other := self.days.get(sitting)):  # other parliaments sit twice on a day
            line = line_of(path, "when", outcome.day.isoformat())
            return CorpusError(path, line, f"same house and day as {other.name}; remove one of the two files")
        again = next((identity for identity in outcome.ids if identity in self.ids), None)
        if again is not None:
            return CorpusError(path, line_of(path, XML_ID, again), f"xml:id {again!r} occurs in an earlier file too")
        self.ids.update(outcome.ids)
        self.days[sitting] = path
        return None
