"""`python -m benchmarks.ingest [FOLDER]`: reading real sitting days, beside a bare walk of `lxml.etree.iterparse` over the files.

FOLDER is a ParlaMint-GB corpus of some whole days (`parlamint-gb-2022` of the real files that PARLIABENCH_SHARED names, or of
`../shared`). One process reads it twenty times; workers and memory are measured on one corpus of twenty times as many
files, copies of the days with dates of their own.
"""

import os
import re
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from unittest.mock import patch

from lxml import etree

from benchmarks.measure import alternate, in_own_process, machine, markdown_table, peak_memory_mib, versions
from parliabench_utils.corpus import cleaning, read_corpus

TEI = "{http://www.tei-c.org/ns/1.0}"
PASSES = 20
WHOLE_CORPUS = {"files": 2209, "words": 126_705_494}  # ParlaMint-GB 3.0 to 5.0


def walk(files: list[Path]) -> int:
    """The least that any reader does: meet every element's end, and forget it."""
    count = 0
    for path in files:
        for _, element in etree.iterparse(path):
            count += element.tag == f"{TEI}u"
            element.clear()
    return count


def read_without_rules(folder: Path) -> None:
    """`read_corpus` with the rules for questions and procedure switched off: XML, people and text alone."""
    off = dict.fromkeys(("question_kind", "procedural_rule", "note_is_question", "announces_urgent"), lambda *_: None)
    with patch.multiple(cleaning, **off):
        read_corpus(folder)


def words_by_walk(files: list[Path]) -> dict[str, int]:
    """Words of each utterance, counted in its segments by XPath."""
    counts = {}
    for path in files:
        for u in etree.parse(path).iterfind(f".//{TEI}u"):
            text = " ".join("".join(seg.itertext()) for seg in u.iterfind(f"{TEI}seg"))
            counts[u.get("{http://www.w3.org/XML/1998/namespace}id")] = len(text.split())
    return counts


def multiply(folder: Path, target: Path, times: int) -> None:
    """Copy a corpus `times` over: each copy of a file gets a day of its own, so that no id and no sitting occurs twice."""
    root = (folder / "ParlaMint-GB.xml").read_text(encoding="utf-8")
    head = root[: root.index("<xi:include", root.rindex("</teiHeader>"))]
    days = sorted(folder.glob("ParlaMint-GB_*.xml"))
    used = {"commons": date(2022, 11, 30), "lords": date(2022, 11, 30)}
    names = []
    for _ in range(times):
        for path in days:
            stamp, house = re.search(r"_(\S+)-(commons|lords)$", path.stem).groups()
            new = used[house].isoformat()
            used[house] -= timedelta(days=1)
            names.append(path.name.replace(stamp, new))
            (target / names[-1]).write_bytes(path.read_bytes().replace(stamp.encode(), new.encode()))
        links = "".join(f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{name}"/>\n' for name in names)
        (target / f"root-{len(names)}.xml").write_text(f"{head}{links}</teiCorpus>", encoding="utf-8")


def report_one_process(folder: Path) -> None:
    files = sorted(folder.glob("*.xml"))
    speeches = read_corpus(folder)
    counted = words_by_walk([path for path in files if "_" in path.name])
    assert speeches.set_index("speech_id")["n_words"].to_dict() == counted
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} files, {size / 1e6:.1f} MB, {len(speeches):,} utterances, the same words by both ways; {PASSES} passes\n")
    ways = {
        "iterparse walk": lambda: walk(files),
        "read_corpus, question rules off": lambda: read_without_rules(folder),
        "read_corpus": lambda: read_corpus(folder),
        "noise rules (clean_speeches)": lambda: cleaning.clean_speeches(speeches),
    }
    seconds = alternate(ways, repeats=PASSES)
    bare = seconds["iterparse walk"]
    print(markdown_table([{"way": k, "seconds a pass": v, "ratio to the walk": v / bare} for k, v in seconds.items()]))
    everything = seconds["read_corpus"] + seconds["noise rules (clean_speeches)"]
    projected = everything * WHOLE_CORPUS["words"] / speeches["n_words"].sum()
    print(f"\nProjection to {WHOLE_CORPUS['files']:,} files, {WHOLE_CORPUS['words']:,} words, one core: {projected:.0f} s\n")


def report_workers(root: Path) -> None:
    ways = {f"{n} worker{'s' * (n > 1)}": lambda n=n: read_corpus(root, workers=n) for n in (1, 2)}
    seconds = alternate(ways, repeats=3, warm_up=False)
    one = seconds["1 worker"]
    print(markdown_table([{"one large corpus": k, "seconds": v, "ratio to one": v / one} for k, v in seconds.items()]))


def report_memory(roots: list[Path]) -> None:
    rows = []
    for root in roots:
        peak, text, frame, before = map(float, in_own_process("benchmarks.ingest", "--peak", str(root)).split())
        rows.append(
            {
                "files": root.stem.split("-")[1],
                "peak MiB": peak,
                "text MiB": text,
                "other columns MiB": frame - text,
                "beyond the table and imports MiB": peak - before - frame,
            }
        )
    print(markdown_table(rows) + "\n")


def print_peak(root: Path) -> None:
    """Peak memory, the text's bytes, those of the whole table, and the memory before reading, MiB."""
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401

    before = peak_memory_mib()
    speeches = read_corpus(root)
    peak = peak_memory_mib()
    text = sum(len(text.encode()) for text in speeches["text"])
    print(peak, text / 2**20, speeches.memory_usage(deep=True).sum() / 2**20, before)


def main() -> None:
    shared = Path(os.environ.get("PARLIABENCH_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "data/parlamint-gb-2022"
    print(f"{machine()}, {versions('lxml', 'pandas', 'pyarrow')}\n")
    with tempfile.TemporaryDirectory() as name:
        target = Path(name)
        multiply(folder, target, PASSES)
        sizes = sorted(target.glob("root-*.xml"), key=lambda path: int(path.stem.split("-")[1]))
        report_memory([sizes[0], sizes[4], sizes[9], sizes[19]])  # first: a child's peak begins at its parent's size
        report_one_process(folder)
        report_workers(sizes[-1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print_peak(Path(sys.argv[2]))
    else:
        main()
