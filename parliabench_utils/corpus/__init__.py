"""Section 3 of the paper: the UK Parliament's record as a data set of speeches.

>>> from parliabench_utils.corpus import read_corpus
>>> speeches = read_corpus("ParlaMint-GB.TEI")      # doctest: +SKIP
"""

from parliabench_utils.corpus.tei import read_corpus
from parliabench_utils.corpus.xml import CorpusError

__all__ = ["CorpusError", "read_corpus"]
