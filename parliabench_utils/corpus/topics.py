"""CAP topics of the corpus and EuroVoc domains of the benchmark (section 3 step 4, Table 4, appendix 9.2; notebook 02).

>>> CAP_TO_EUROVOC["Transportation"], CAP_TO_EUROVOC["Health"]
('Transport', None)
"""

from typing import TYPE_CHECKING

from parliabench_utils.corpus.eurovoc import DOMAIN_CODES

if TYPE_CHECKING:
    import pandas as pd

    from parliabench_utils.corpus.topic_classifiers import TopicClassifier

# ParlaMint-taxonomy-topic (5.0): id -> CAP major topic. `argic` is upstream's spelling.
CAP_TOPICS = {
    "argic": "Agriculture",
    "civil": "Civil Rights",
    "cultu": "Culture",
    "defen": "Defense",
    "domes": "Domestic Commerce",
    "educa": "Education",
    "energ": "Energy",
    "envir": "Environment",
    "trade": "Foreign Trade",
    "gover": "Government Operations",
    "healt": "Health",
    "housi": "Housing",
    "immig": "Immigration",
    "inter": "International Affairs",
    "labor": "Labor",
    "lawcr": "Law and Crime",
    "macro": "Macroeconomics",
    "mixed": "Mix",
    "other": "Other",
    "lands": "Public Lands",
    "welfa": "Social Welfare",
    "techn": "Technology",
    "trans": "Transportation",
}

_DIRECT = {
    "Energy": "Energy",
    "Environment": "Environment",
    "Transportation": "Transport",
    "Foreign Trade": "Trade",
    "Government Operations": "Politics",
    "International Affairs": "International Relations",
    "Labor": "Employment and Working Conditions",
    "Law and Crime": "Law",
    "Agriculture": "Agriculture, Forestry and Fisheries",
    "Education": "Education and Communications",
    "Macroeconomics": "Economics",
    "Social Welfare": "Social Questions",
    "Technology": "Production, Technology and Research",
}
# Table 4: 13 direct mappings; None = the classifier decides.
CAP_TO_EUROVOC = {name: _DIRECT.get(name) for name in CAP_TOPICS.values()}
EUROVOC_DOMAINS = tuple(sorted(DOMAIN_CODES.values()))
UNREACHABLE = tuple(
    name for name in EUROVOC_DOMAINS if name not in _DIRECT.values()
)  # by a direct mapping: eight of 21


def assign_topics(
    speeches: "pd.DataFrame", classifier: "TopicClassifier", classify_all: bool = False
) -> "pd.DataFrame":
    """Return `speeches` (columns `cap_topic`, `text`, `section`) with `topic`, `topic_method` and `topic_score`.

    Method `direct` is a mapping of Table 4 (score 1), else it is the classifier's name and the score is its own. `classify_all`
    sends every speech through the classifier, direct mapping or not. `topic` is None where the classifier finds none.
    """
    direct = [None if classify_all else CAP_TO_EUROVOC.get(name) for name in speeches["cap_topic"]]
    topics = speeches.assign(topic=direct, topic_method="direct", topic_score=1.0).astype({"topic": object})
    is_open = topics["topic"].isna()
    if is_open.any():
        found = _classify(topics[is_open], classifier)
        topics.loc[is_open, ["topic", "topic_score"]] = found[["topic", "score"]].to_numpy(object)
        topics.loc[is_open, "topic_method"] = classifier.name
    return topics.astype({"topic_score": float})


def _classify(speeches: "pd.DataFrame", classifier: "TopicClassifier") -> "pd.DataFrame":
    return classifier.classify(speeches["text"].tolist(), speeches["section"].fillna("").tolist())


def second_opinion(speeches: "pd.DataFrame", classifier: "TopicClassifier", at_most: int, seed: int) -> "pd.DataFrame":
    """Return what the classifier says of speeches that Table 4 maps directly: columns `cap_topic`, `direct`, `classified`.

    At most `at_most` of them, drawn by `seed`, in the corpus's order. An empty frame for a corpus without topics.
    """
    mapped = speeches[["cap_topic", "text", "section"]].assign(direct=speeches["cap_topic"].map(_DIRECT))
    mapped = mapped[mapped["direct"].notna()]
    sample = mapped.sample(min(at_most, len(mapped)), random_state=seed).sort_index()
    classified = _classify(sample, classifier)["topic"].to_numpy() if len(sample) else []
    return sample[["cap_topic", "direct"]].assign(classified=classified).reset_index(drop=True)


def direct_cost(opinions: "pd.DataFrame") -> "pd.DataFrame":
    """Return a row a directly mapped CAP category: its domain, speeches, and shares of them where the classifier agrees,
    chooses one of the eight unreachable domains, and which domain it prefers to the mapping.
    """
    import pandas as pd

    rows = []
    for (cap, domain), group in opinions.groupby(["cap_topic", "direct"], sort=False):
        others = group.loc[group["classified"] != domain, "classified"].value_counts()
        unreachable = group["classified"].isin(UNREACHABLE).mean()
        agreed = (group["classified"] == domain).mean()
        rows.append((cap, domain, len(group), agreed, unreachable, others.index[0] if len(others) else None))
    columns = ["cap_category", "eurovoc_domain", "speeches", "agreement", "unreachable", "commonest_other"]
    return pd.DataFrame(rows, columns=columns).sort_values("speeches", ascending=False, ignore_index=True)


def confusion(opinions: "pd.DataFrame") -> "pd.DataFrame":
    """Return counts: the directly mapped domains as rows, the classifier's as columns, the eight unreachable ones last."""
    import pandas as pd

    reached = [name for name in EUROVOC_DOMAINS if name not in UNREACHABLE]
    table = pd.crosstab(opinions["direct"], opinions["classified"])
    return table.reindex(
        index=[name for name in reached if name in table.index], columns=[*reached, *UNREACHABLE], fill_value=0
    )


def agreement(opinions: "pd.DataFrame") -> dict[str, float]:
    """Return how many speeches were compared, the share on which both agree, its mean over the mapped domains, and what always
    naming the commonest domain would reach. An empty dict where there is nothing to compare.
    """
    if opinions.empty:
        return {}
    agreed = opinions["classified"] == opinions["direct"]
    return {
        "speeches": len(opinions),
        "agreement": round(float(agreed.mean()), 4),
        "mean over domains": round(float(agreed.groupby(opinions["direct"]).mean().mean()), 4),
        "commonest domain": round(float(opinions["direct"].value_counts(normalize=True).iloc[0]), 4),
    }
