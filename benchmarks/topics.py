"""How often the offline topic classifier is right on real speeches: `python -m benchmarks.topics RUN`.

RUN is a run whose notebooks 01 and 02 read the real days of October and November 2022. These carry no topics, so every topic is
the classifier's. `topic_headings.csv` names the domain of debates by their heading, as we labelled them by hand before we looked
at any answer; headings that fit two domains are left out. No weight or word of the classifier was chosen with it.
"""

import sys
from pathlib import Path

import pandas as pd

from parliabench_utils.run.artefacts import read_jsonl
from parliabench_utils.run.project import outputs_root

HEADINGS = Path(__file__).with_name("topic_headings.csv")


def labelled(run: str) -> pd.DataFrame:
    """The run's speeches under labelled headings: columns Section, Topic, domain (what the heading's label says)."""
    rows = [row for part in ("train", "test") for row in read_jsonl(outputs_root() / run / "02_dataset" / f"{part}.jsonl")]
    frame = pd.DataFrame(rows).merge(pd.read_csv(HEADINGS), left_on="Section", right_on="section")
    return frame[frame["topic_method"] != "direct"][["Section", "Topic", "domain"]]


def main(run: str) -> None:
    """Print accuracy by speech, heading and domain, and the confusion of domains."""
    frame = labelled(run)
    right = frame["Topic"] == frame["domain"]
    print(f"{len(frame):,} speeches under {frame['Section'].nunique()} labelled headings, {frame['domain'].nunique()} domains")
    print(f"right: {right.mean():.1%} of speeches", end=", ")
    print(f"{right.groupby(frame['Section']).mean().mean():.1%} as mean over headings", end=", ")
    print(f"{right.groupby(frame['domain']).mean().mean():.1%} as mean over domains\n")
    for domain, group in frame.groupby("domain"):
        found = group["Topic"].value_counts(normalize=True).head(3)
        print(f"{domain:38s} {len(group):5d}  " + ", ".join(f"{topic} {share:.0%}" for topic, share in found.items()))


if __name__ == "__main__":
    main(sys.argv[1])
