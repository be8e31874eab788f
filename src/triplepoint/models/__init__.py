"""Small reference models."""

from triplepoint.models.gpt2 import GPT2 as GPT2
from triplepoint.models.gpt2 import GPT2Config as GPT2Config
from triplepoint.models.sizes import SIZES as SIZES
from triplepoint.models.sizes import config_of as config_of
from triplepoint.models.sizes import parameter_counts as parameter_counts
