"""Token sources with fixed evaluation windows: text, token files, tokenised data sets."""

from triplepoint.data.corpus import SPLITS as SPLITS
from triplepoint.data.corpus import Corpus as Corpus
from triplepoint.data.sources import load_corpus as load_corpus
