"""CAP topics of the corpus and EuroVoc domains of the benchmark (section 3 step 4, Table 4, appendix 9.2; notebook 02).

>>> CAP_TO_EUROVOC["Transportation"], CAP_TO_EUROVOC["Health"]
('Transport', None)
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

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

# The 21 EuroVoc domains by Table 11's names, each with our own sentence for the embedding classifier.
DOMAIN_DESCRIPTIONS = {
    "Agri-Foodstuffs": "Food and drink: food safety and labelling, nutrition, meat, dairy, sugar, beverages, supermarkets.",
    "Agriculture, Forestry and Fisheries": "Farmers, farm payments, livestock, crops, forests, fishing fleets and quotas.",
    "Business and Competition": "Companies, small firms, high street shops, insolvency, corporate governance, monopolies, "
    "consumer protection and tourism.",
    "Economics": "The economy: growth, inflation, cost of living, regional policy, levelling up, economic forecasts.",
    "Education and Communications": "Schools, universities, teachers, children's learning, the press, broadcasting, the "
    "BBC, the internet, arts and libraries.",
    "Employment and Working Conditions": "Jobs, unemployment, wages, the minimum wage, trade unions, strikes, workers' rights.",
    "Energy": "Electricity, gas and oil supply, nuclear power, wind and solar power, fracking, household energy bills.",
    "Environment": "Climate change, net zero, pollution, water and air quality, waste, nature, wildlife and floods.",
    "European Union": "Brexit and the European Union: the withdrawal agreement, EU law, the single market, the Commission.",
    "Finance": "Taxes, banks, credit, pensions funds, insurance, public spending, the Budget, government borrowing and debt.",
    "Geography": "Particular places: Scotland, Wales, Northern Ireland, English regions, towns, islands and coasts.",
    "Industry": "Manufacturing: steel, cars, chemicals, aerospace, shipbuilding, textiles, construction, house building.",
    "International Organisations": "The United Nations, NATO, the World Health Organisation, the Council of Europe and "
    "the Commonwealth as bodies.",
    "International Relations": "Foreign affairs, war, the armed forces and defence, diplomacy, sanctions, overseas aid, "
    "human rights abroad, refugees from conflicts.",
    "Law": "Courts, judges, the police, crime, prisons, sentencing, civil rights, equality and discrimination, migration law, "
    "justice and the rule of law.",
    "Politics": "Parliament, elections, voting, ministers, the civil service, local councils, devolution, the constitution, "
    "parliamentary procedure.",
    "Production, Technology and Research": "Technology, artificial intelligence, data, innovation, research funding, "
    "patents, digital infrastructure.",
    "Science": "Natural sciences and the humanities: physics, biology, medicine as a science, space, history, archaeology.",
    "Social Questions": "Hospitals, the NHS, doctors and nurses, social care, benefits, housing and homelessness, "
    "families, disabled people, migration, sport, culture and religion.",
    "Trade": "Imports and exports, customs, tariffs, trade agreements, retail markets and international trade.",
    "Transport": "Railways, trains, buses, roads, cycling, airports, aviation, ports, ferries and shipping.",
}
EUROVOC_DOMAINS = tuple(DOMAIN_DESCRIPTIONS)


def classify_topics(texts: Sequence[str], encoder, sections: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return the nearest EuroVoc domain of each text: columns `topic`, `score`, one row a text.

    Zero-shot: a text and the 21 written descriptions above are embedded by `encoder` (a `SentenceEncoder`), and the description
    with the highest cosine wins, whatever its value: there is no threshold, `score` in [-1, 1] is recorded. With `sections`
    (headings of the texts' debates) the score is the mean of the two cosines: a speech often takes its heading for granted.
    A text without an embedding (NaN) gets topic None and score NaN.
    """
    import numpy as np
    import pandas as pd

    if not len(texts):
        return pd.DataFrame({"topic": pd.Series(dtype=str), "score": pd.Series(dtype=float)})
    domains = np.asarray(encoder.encode(list(DOMAIN_DESCRIPTIONS.values())))
    cosines = np.asarray(encoder.encode(list(texts))) @ domains.T
    if sections is not None:
        headings = np.nan_to_num(np.asarray(encoder.encode(list(sections))) @ domains.T)
        cosines = (cosines + headings) / 2
    missing = np.isnan(cosines).any(axis=1)
    best = np.nan_to_num(cosines, nan=-1.0).argmax(axis=1)
    topics = [None if gone else EUROVOC_DOMAINS[index] for gone, index in zip(missing, best, strict=True)]
    scores = np.where(missing, np.nan, np.take_along_axis(cosines, best[:, None], axis=1)[:, 0])
    return pd.DataFrame({"topic": topics, "score": scores.round(6)})


def assign_topics(speeches: "pd.DataFrame", encoder, classify_all: bool = False) -> "pd.DataFrame":
    """Return `speeches` (columns `cap_topic`, `text`, `section`) with `topic`, `topic_method` and `topic_score`.

    Method `direct` is a mapping of Table 4 (score 1), `embedding` the classifier's. `classify_all` sends every speech through the
    classifier, direct mapping or not.
    """
    direct = speeches["cap_topic"].map(lambda name: None if classify_all else CAP_TO_EUROVOC.get(name))
    is_open = direct.isna().to_numpy()
    rest = speeches[is_open]
    found = classify_topics(rest["text"].tolist(), encoder, rest["section"].fillna("").tolist())
    topic, score = direct.to_numpy(object, copy=True), (~is_open).astype(float)
    topic[is_open], score[is_open] = found["topic"].to_numpy(), found["score"].to_numpy()
    method = ["embedding" if classified else "direct" for classified in is_open]
    return speeches.assign(topic=topic, topic_method=method, topic_score=score)
