"""GPT-2 style decoder: pre-norm, learned positions, tied head, no biases.

Axes: ``batch seq dim vocab``. A model of L layers has 2L+1 norm sites.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.errors import unknown_name
from triplepoint.models._shapes import check_length, check_shape, hidden_width
from triplepoint.models.attention import AttentionShape
from triplepoint.models.attentions import ATTENTIONS, weights_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPT2Config:
    """Shape of a GPT-2 style model.

    ``bias=False`` as arXiv 2604.23434 ran all its models; GPT-2 itself has biases.
    """

    width: int
    layers: int
    heads: int
    vocab: int = 256
    context: int = 128
    dropout: float = 0.0
    bias: bool = False
    attention: str = "sdpa"
    """One of :data:`~triplepoint.models.ATTENTIONS`; all but ``sdpa`` are without biases in any case."""

    def __post_init__(self):
        check_shape(self, "width", "layers", "heads", "vocab", "context")
        if self.attention not in ATTENTIONS:
            raise unknown_name("attention", self.attention, ATTENTIONS)
        weights_of(self.attention, self.attention_shape())

    def attention_shape(self, depth: int = 0) -> AttentionShape:
        """Return what the attention of block ``depth`` is built from."""
        return AttentionShape(
            width=self.width,
            heads=self.heads,
            kv_heads=self.heads,
            dropout=self.dropout,
            depth=depth,
        )

    @property
    def ffn_width(self) -> int:
        """Width inside the MLP: ``4 width``, less where the attention has more weights than ``sdpa``."""
        taken = weights_of(self.attention, self.attention_shape())
        return hidden_width(self.width, attention_weights=taken, matrices=2)


class Attention(nn.Module):
    """Causal self-attention with one fused projection."""

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.c_attn = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.c_proj = nn.Linear(config.width, config.width, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        """Mix tokens: each position sees itself and those before it."""
        batch, seq, dim = x.shape
        q, k, v = (
            part.view(batch, seq, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(dim, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(batch, seq, dim)))


class MLP(nn.Module):
    """Two linear layers around an exact GELU, four times as wide inside (see ``GPT2Config.ffn_width``)."""

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.c_fc = nn.Linear(config.width, config.ffn_width, bias=config.bias)
        self.c_proj = nn.Linear(config.ffn_width, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        """Transform each token by itself."""
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class Block(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, config: GPT2Config, depth: int):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width, bias=config.bias)
        # the plain attention has one fused projection, as GPT-2's checkpoints have
        self.attn = (
            Attention(config)
            if config.attention == "sdpa"
            else ATTENTIONS[config.attention](config.attention_shape(depth))
        )
        self.ln_2 = nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        """Add attention, then MLP, to the residual stream."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """A GPT-2 style language model.

    Weights are drawn from N(0, 0.02^2), the residual output projections from N(0, (0.02/sqrt(2L))^2), as in
    nanoGPT; biases are zero. The head shares the token embedding's weight.

    Args:
        config: Shape of the model.

    Example:
        >>> model = GPT2(GPT2Config(width=8, layers=1, heads=2))
        >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
        torch.Size([2, 5, 256])
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList(Block(config, depth) for depth in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width, bias=config.bias)
        self.lm_head = nn.Linear(config.width, config.vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                continue
            residual = name.endswith(("c_proj.weight", "o_proj.weight"))
            std = 0.02 / math.sqrt(2 * self.config.layers) if residual else 0.02
            nn.init.normal_(parameter, std=std)

    def forward(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq vocab"]:
        """Return the logits of each position's next token."""
        seq = tokens.shape[1]
        check_length(seq, self.config.context)
        positions = torch.arange(seq, device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))
