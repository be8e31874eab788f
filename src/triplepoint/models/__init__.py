"""Small reference models: GPT-2 and Llama style decoders with several attentions, and a vision transformer."""

from triplepoint.models.attention import AttentionShape as AttentionShape
from triplepoint.models.attentions import ATTENTIONS as ATTENTIONS
from triplepoint.models.gpt2 import GPT2 as GPT2
from triplepoint.models.gpt2 import GPT2Config as GPT2Config
from triplepoint.models.llama import Llama as Llama
from triplepoint.models.llama import LlamaConfig as LlamaConfig
from triplepoint.models.sizes import SIZES as SIZES
from triplepoint.models.sizes import config_of as config_of
from triplepoint.models.sizes import model_of as model_of
from triplepoint.models.sizes import parameter_counts as parameter_counts
from triplepoint.models.vit import ViT as ViT
from triplepoint.models.vit import ViTConfig as ViTConfig
