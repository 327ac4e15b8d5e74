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


def classify_topics(texts: Sequence[str], encoder) -> "pd.DataFrame":
    """Return the nearest EuroVoc domain of each text: columns `topic`, `score` (cosine in [-1, 1]), one row a text.

    Zero-shot: a text and the 21 written descriptions above are embedded by `encoder` (a `SentenceEncoder`), and the description
    with the highest cosine wins, whatever its value: there is no threshold, the score is recorded. A text without an embedding
    (NaN) gets topic None and score NaN.
    """
    import numpy as np
    import pandas as pd

    if not len(texts):
        return pd.DataFrame({"topic": pd.Series(dtype=str), "score": pd.Series(dtype=float)})
    cosines = np.asarray(encoder.encode(list(texts))) @ np.asarray(encoder.encode(list(DOMAIN_DESCRIPTIONS.values()))).T
    missing = np.isnan(cosines).any(axis=1)
    best = np.where(missing, 0, np.nan_to_num(cosines).argmax(axis=1))
    topics = [None if gone else EUROVOC_DOMAINS[index] for gone, index in zip(missing, best, strict=True)]
    scores = np.where(missing, np.nan, np.take_along_axis(cosines, best[:, None], axis=1)[:, 0])
    return pd.DataFrame({"topic": topics, "score": scores.round(6)})


def assign_topics(cap_topics: Sequence[str | None], texts: Sequence[str], encoder, classify_all: bool = False):
    """Return a DataFrame of `topic`, `method` (`direct` or `embedding`) and `score` (1 for a direct mapping), one row a text.

    `classify_all` sends every text through the classifier, direct mapping or not.
    """
    import pandas as pd

    mapped = [None if classify_all else CAP_TO_EUROVOC.get(name) for name in cap_topics]
    frame = pd.DataFrame({"topic": mapped, "method": "direct", "score": 1.0}).astype({"topic": object})
    open_rows = frame.index[frame["topic"].isna()]
    found = classify_topics([texts[i] for i in open_rows], encoder)
    frame.loc[open_rows, "topic"] = found["topic"].to_numpy()
    frame.loc[open_rows, "score"] = found["score"].to_numpy()
    frame.loc[open_rows, "method"] = "embedding"
    return frame
