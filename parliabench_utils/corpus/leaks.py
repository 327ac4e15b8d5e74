"""What a split lets through: test speeches with a near-copy, a neighbour in the debate or their own speaker in training.

The paper splits single speeches at random and does not look (section 5.2); notebook 02 shows all four splits.

>>> told = "I beg to ask the Minister how many buses run to the village on a Sunday"
>>> copies(shingles([told + " in winter."]), shingles(["Order.", told + "?"]))[1].tolist()
[1]
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parliabench_utils.corpus.dataset import debate_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from scipy.sparse import csr_matrix

RUN = 8  # words: shorter runs are the House's formulas ("I am grateful to my hon. Friend for")
COLUMNS = 2**22  # runs are hashed to so many numbers: two runs of a pair of speeches hardly ever meet by chance


def shingles(texts: Sequence[str], n: int = RUN) -> "csr_matrix":
    """Return which runs of `n` words each text has, hashed: a sparse 0/1 matrix (n_texts, 2**22), case and marks ignored."""
    import numpy as np
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(
        ngram_range=(n, n),
        n_features=COLUMNS,
        token_pattern=r"\w+",
        binary=True,
        norm=None,
        alternate_sign=False,
        dtype=np.float32,
    )
    return vectorizer.transform(texts)


def copies(test: "csr_matrix", train: "csr_matrix", block: int = 512) -> tuple["np.ndarray", "np.ndarray"]:
    """Return for each test text the largest share of its runs that one training text has too, in [0, 1], and that text's row.

    Both arrays have shape (n_test,). A text too short for a run has share 0, and the row means nothing where the share is 0.
    """
    import numpy as np

    columns, sizes = train.T.tocsr(), np.maximum(test.getnnz(axis=1), 1)
    shared = [test[start : start + block] @ columns for start in range(0, test.shape[0], block)]
    most = [part.max(axis=1).toarray().ravel() for part in shared]
    rows = [np.asarray(part.argmax(axis=1)).ravel() for part in shared]
    return np.concatenate([*most, []]) / sizes, np.concatenate([*rows, []]).astype(int)


def leak_table(kept: "pd.DataFrame", divided: Mapping[str, tuple], near: float) -> "pd.DataFrame":
    """Return a row a split of `kept`: sizes, and shares of the test speeches that have something of theirs in training.

    `near_copy`: at least the share `near` of the speech's runs of eight words is in one training speech; `same_debate`,
    `same_speaker`, `same_day` say it themselves; `copy_or_debate` is either of the first two.
    """
    import pandas as pd

    runs = shingles(kept["text"].tolist())
    place = pd.Series(range(len(kept)), index=kept["speech_id"])
    table = {}
    for by, (train, test) in divided.items():
        share, _ = copies(runs[place[test["speech_id"]]], runs[place[train["speech_id"]]])
        found = companions(train, test).assign(near_copy=share >= near)
        found["copy_or_debate"] = found["near_copy"] | found["same_debate"]
        order = ["near_copy", "same_debate", "copy_or_debate", "same_speaker", "same_day"]
        table[by] = {"train": len(train), "test": len(test)} | found[order].mean().round(6).to_dict()
    return pd.DataFrame(table).T.astype({"train": int, "test": int})


def companions(train: "pd.DataFrame", test: "pd.DataFrame") -> "pd.DataFrame":
    """Return for each test speech whether its debate, its speaker and its day are in training too."""
    import pandas as pd

    keys = {
        "same_debate": debate_of,
        "same_speaker": lambda rows: rows["speaker_id"],
        "same_day": lambda rows: rows["date"],
    }
    return pd.DataFrame({name: key(test).isin(set(key(train))) for name, key in keys.items()})


def closest_copies(train: "pd.DataFrame", test: "pd.DataFrame", k: int = 3) -> "pd.DataFrame":
    """Return the `k` test speeches most like a training speech word for word: share of their runs, both texts, both debates."""
    share, rows = copies(shingles(test["text"].tolist()), shingles(train["text"].tolist()))
    top = (-share).argsort(kind="stable")[:k]
    found = test.iloc[top][["section", "text"]].reset_index(drop=True).assign(share=share[top])
    twins = train.iloc[rows[top]].reset_index(drop=True)
    found = found.assign(training_section=twins["section"], training_text=twins["text"])
    return found[found["share"] > 0].rename(columns={"section": "test_section", "text": "test_text"})
