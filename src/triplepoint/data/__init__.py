"""Token and image sources with fixed evaluation splits: text, token files, tokenised data sets, images."""

from triplepoint.data.corpus import SPLITS as SPLITS
from triplepoint.data.corpus import Corpus as Corpus
from triplepoint.data.sources import load_corpus as load_corpus
from triplepoint.data.vision import ImageSet as ImageSet
from triplepoint.data.vision import load_images as load_images
