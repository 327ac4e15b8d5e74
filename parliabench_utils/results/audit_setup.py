"""Audit of Tables 3 to 7 and of sections 3 and 5: corpus, topics, models, training (`paper.audit`)."""

import math

import pandas as pd

from parliabench_utils.corpus.people import ORIENTATION_SCALE
from parliabench_utils.results.audit_tools import Finding, agrees, rounds_to

CORPUS_SPEECHES, CORPUS_SPEAKERS = 447_778, 1_901  # section 3.2
TOPIC_SPELLINGS = {"Economy": "Economics", "Agriculture, Forestry, Fisheries": "Agriculture, Forestry and Fisheries"}


def _shares(table3: pd.DataFrame) -> pd.Series:
    return table3.groupby("orientation")["speeches"].sum() / table3["speeches"].sum()


def check_corpus(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Table 3's sums and the percentages that the text draws from it."""
    table3 = tables[3]
    total, speakers = int(table3["speeches"].sum()), int(table3["speakers"].sum())
    share = 100 * table3.set_index("party")["speeches"] / total
    centre = 100 * _shares(table3)[["Centre-left", "Centre-right"]].sum()
    side = table3["orientation"].map(ORIENTATION_SCALE)
    lead = int(table3.loc[side > 0, "speeches"].sum() - table3.loc[side < 0, "speeches"].sum())
    return [
        Finding("11 speeches", "447,778 speeches", "3.2", "447,778", f"{total:,}", agrees(total == CORPUS_SPEECHES)),
        Finding(
            "11 speakers",
            "1,901 speakers in 11 affiliations",
            "3.2",
            "1,901",
            f"{speakers:,} in the column",
            agrees(speakers == CORPUS_SPEAKERS),
            f"{speakers - CORPUS_SPEAKERS} affiliations more than people: temporal alignment matters",
        ),
        Finding(
            "24 Conservative",
            "Conservatives give 58.9 % of the speeches",
            "6.2",
            "58.9 %",
            f"{share['Conservative']:.3f} %",
            agrees(rounds_to(share["Conservative"], 58.9, 1)),
        ),
        Finding(
            "24 Labour",
            "Labour gives 24.3 % of the speeches",
            "6.2",
            "24.3 %",
            f"{share['Labour']:.3f} %",
            agrees(rounds_to(share["Labour"], 24.3, 1)),
        ),
        Finding(
            "24 centre",
            "Centre-left and Centre-right are 88 %",
            "6.4",
            "88 %",
            f"{centre:.1f} %",
            agrees(rounds_to(centre, 88, 0)),
        ),
        Finding(
            "24 right",
            "the right's side has 110,000 speeches more",
            "3.2",
            "110,000",
            f"{lead:,}",
            agrees(rounds_to(lead, 110_000, -3)),
        ),
        Finding(
            "24 words",
            "99.94 million words, 223 a speech",
            "3.2",
            "223",
            f"{99.94e6 / total:.1f}",
            agrees(rounds_to(99.94e6 / total, 223, 0)),
        ),
        Finding(
            "13 Labour",
            "Labour's orientation is Left",
            "3.3, example",
            "Left",
            str(table3.set_index("party").loc["Labour", "orientation"]),
            agrees(table3.set_index("party").loc["Labour", "orientation"] == "Left"),
        ),
        Finding(
            "13 Labour's name",
            "the party is called Labour Party",
            "3.3, example",
            "Labour Party",
            ", ".join(p for p in table3["party"] if "Labour" in p),
            agrees("Labour Party" in set(table3["party"])),
        ),
    ]


def check_topics(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Table 4's mapping against the text and against Table 11's domains."""
    table4, domains = tables[4], set(tables[11]["topic"])
    count = table4["method"].value_counts()
    direct = set(table4.loc[table4["method"] == "Direct", "eurovoc_domain"])
    other = sorted(direct - domains)
    reached = {TOPIC_SPELLINGS.get(name, name) for name in direct}
    left = sorted(domains - reached)
    return [
        Finding(
            "5 direct",
            "16 categories are mapped directly",
            "9.2",
            "16",
            str(count.get("Direct", 0)),
            agrees(count.get("Direct", 0) == 16),
        ),
        Finding(
            "5 automated",
            "6 categories are classified",
            "9.2",
            "6",
            str(count.get("Automated", 0)),
            agrees(count.get("Automated", 0) == 6),
        ),
        Finding(
            "34 spelling",
            "Table 4's domains are Table 11's",
            "Tables 4, 11",
            "the same names",
            f"{len(other)} names differ",
            agrees(not other),
            "; ".join(other),
        ),
        Finding(
            "35 reach",
            "each domain can be reached by a direct mapping",
            "Tables 4, 11",
            f"{len(domains)} domains",
            f"{len(left)} only through a classifier",
            agrees(not left),
            "; ".join(left),
        ),
    ]


def check_models(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """The models of Table 5 against those with results."""
    listed, used = set(tables[5]["model"]), set(tables[2]["model"])
    text = f"listed only: {', '.join(sorted(listed - used)) or 'none'}; results only: {', '.join(sorted(used - listed)) or 'none'}"
    return [
        Finding(
            "7 models",
            "Table 5 lists the models that have results",
            "Table 5",
            "five models",
            text,
            agrees(listed == used),
        )
    ]


def check_training(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """Steps, epochs and warm-up of Table 7."""
    setting = tables[7].set_index("parameter")["value"]
    batch, steps, warmup = int(setting["Batch Size"]), int(setting["Max Steps"]), int(setting["Warmup Steps"])
    epoch = math.floor(tables[3]["speeches"].sum() * 0.8 / batch)
    share, alpha = 100 * warmup / steps, tables[6].set_index("parameter")["value"]
    ratio = int(alpha["LoRA Alpha"]) / int(alpha["LoRA Rank (r)"])
    return [
        Finding(
            "8 steps",
            "two epochs are 11,194 steps",
            "Table 7",
            f"{steps:,}",
            f"{2 * epoch:,}",
            agrees(steps == 2 * epoch),
            f"{epoch:,} steps an epoch, rounded down",
        ),
        Finding(
            "8 warm-up",
            "the warm-up is 3 % of the steps",
            "Table 7",
            "3 %",
            f"{share:.2f} %",
            agrees(rounds_to(share, 3, 0)),
        ),
        Finding(
            "8 warm-up, page",
            "the warm-up is 10 % of the steps",
            "project page",
            "10 %",
            f"{share:.2f} %",
            agrees(rounds_to(share, 10, 0)),
        ),
        Finding("8 alpha", "alpha / r is 1", "Table 6", "1", f"{ratio:g}", agrees(ratio == 1)),
    ]


def check_generation(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """The counts of section 5.3."""
    sets = tables[2].groupby(["model", "type"]).ngroups
    return [
        Finding(
            "2 sets",
            "27,560 rated speeches are 2,756 for each of ten model-type sets",
            "5.3",
            "27,560",
            f"{27_560 / sets:,.1f} x {sets}",
            agrees(27_560 % sets == 0),
        ),
        Finding(
            "2 kept",
            "29,220 kept speeches are one number for each set",
            "5.3",
            "29,220",
            f"{29_220 / sets:,.1f} x {sets}",
            agrees(29_220 % sets == 0),
        ),
        Finding(
            "2 kept, page",
            "2,700 speeches are kept for each model",
            "project page",
            "2,700",
            f"{29_220 / sets:,.0f}",
            agrees(29_220 / sets == 2_700),
        ),
        Finding(
            "2 28k",
            "28k speeches were generated",
            "1",
            "28k",
            "27,560 rated, 29,220 kept",
            agrees(rounds_to(27_560, 28_000, -3)),
            "28k counts the rated ones",
        ),
    ]


def distance_factor(table3: pd.DataFrame, guess: pd.Series) -> float:
    """Mean of Eq. 2's factor 1 - distance / 12 for a speaker whose orientation is drawn from `guess`, on Table 3's mix."""
    mix = table3[table3["orientation"].isin(ORIENTATION_SCALE)].groupby("orientation")["speeches"].sum()
    mix, guess = mix / mix.sum(), guess / guess.sum()
    return float(
        sum(m * g * (1 - abs(ORIENTATION_SCALE[o] - ORIENTATION_SCALE[h]) / 12) for o, m in mix.items() for h, g in guess.items())
    )


def check_guessing(tables: dict[int, pd.DataFrame]) -> list[Finding]:
    """What PSA's distance factor is worth to a model that guesses."""
    table3 = tables[3]
    mix = table3[table3["orientation"].isin(ORIENTATION_SCALE)].groupby("orientation")["speeches"].sum()
    always, drawn = distance_factor(table3, pd.Series({"Centre-right": 1.0})), distance_factor(table3, mix)
    claim = "PSA's distance factor of the tuned models (about 0.84 to 0.86) is above guessing"
    return [
        Finding(
            "37 guessing",
            claim,
            "4.1.1, 6.1",
            "0.84 to 0.86",
            f"always Centre-right {always:.3f}; drawn by corpus share {drawn:.3f}",
            agrees(max(always, drawn) < 0.84),
            "the tuned models' factor is Table 2's PSA with own-orientation similarity factored out",
        )
    ]


CHECKS = (check_corpus, check_topics, check_models, check_training, check_generation, check_guessing)
