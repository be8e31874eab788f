"""Llama style decoder: RMSNorm, rotary positions, SwiGLU, grouped-query attention, no biases.

Axes: ``batch seq dim vocab``. A model of L layers has 2L+1 norm sites. Modules are named as in Hugging Face's
``LlamaForCausalLM``, without its prefix ``model.``.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.errors import PlanError, unknown_name
from triplepoint.models._shapes import check_length, check_shape, hidden_width
from triplepoint.models.attention import AttentionShape, Rope, rotary_angles
from triplepoint.models.attentions import ATTENTIONS, weights_of

FFNS = {"swiglu": 3, "gelu": 2}
"""Feed-forward layer -> its number of matrices."""

POSITIONS = ("rope", "learned")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Shape of a Llama style model.

    The ablations are fields, and each leaves a block its ``12 width^2`` weights to within rounding:
    ``ffn="gelu"`` (wider, for it has no gate), ``positions="learned"`` (a table besides), ``kv_heads=heads``
    (multi-head attention, with a narrower feed-forward layer) and ``attention``, one of
    :data:`~triplepoint.models.ATTENTIONS`.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int | None = None
    """Key/value heads; None for as many as heads."""
    vocab: int = 256
    context: int = 128
    dropout: float = 0.0
    ffn: str = "swiglu"
    """``swiglu`` or ``gelu``."""
    hidden: int | None = None
    """Width of the feed-forward layer; None for what the attention leaves of ``12 width^2`` weights: the usual
    ``8/3 width`` with SwiGLU and no grouping."""
    gate_scale: float = 1.0
    """Factor on SwiGLU's initial gate weights: the larger, the sooner the gate is on or off."""
    positions: str = "rope"
    """``rope`` or ``learned``."""
    attention: str = "sdpa"
    rope_base: float = 10000.0
    eps: float = 1e-5
    tied: bool = True
    """Whether the head shares the token embedding's weight."""

    def __post_init__(self):
        check_shape(self, "width", "layers", "heads", "vocab", "context")
        for kind, given, known in (
            ("feed-forward layer", self.ffn, FFNS),
            ("kind of positions", self.positions, POSITIONS),
            ("attention", self.attention, ATTENTIONS),
        ):
            if given not in known:
                raise unknown_name(kind, given, known)
        if self.positions == "rope" and self.width // self.heads % 2:
            raise PlanError(
                f"Rotary positions need heads of even width, got {self.width // self.heads}.\n"
                "Choose a width that is an even multiple of the number of heads."
            )
        if self.gate_scale != 1 and (self.ffn != "swiglu" or not 0 < self.gate_scale < math.inf):
            raise PlanError(
                f"gate_scale is {self.gate_scale:g} with ffn={self.ffn!r}.\n"
                "Give a positive number, with swiglu only: other layers have no gate."
            )
        if self.ffn_width < 1:
            raise PlanError(
                f"hidden must be at least 1, got {self.hidden}.\nLeave it out for the usual width."
            )

    def attention_shape(self, depth: int = 0) -> AttentionShape:
        """Return what the attention of block ``depth`` is built from."""
        return AttentionShape(
            width=self.width,
            heads=self.heads,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            dropout=self.dropout,
            depth=depth,
        )

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward layer."""
        taken = weights_of(self.attention, self.attention_shape())
        if self.hidden is not None:
            return self.hidden
        return hidden_width(self.width, attention_weights=taken, matrices=FFNS[self.ffn])


class SwiGLU(nn.Module):
    r""":math:`W_{down}\,(\mathrm{silu}(W_{gate} x) \odot W_{up} x)` (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.ffn_width, bias=False)
        self.up_proj = nn.Linear(config.width, config.ffn_width, bias=False)
        self.down_proj = nn.Linear(config.ffn_width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        """Transform each token by itself."""
        return self.dropout(self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)))


class GELUMLP(nn.Module):
    """Two linear layers around an exact GELU: SwiGLU's ablation."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.width, config.ffn_width, bias=False)
        self.down_proj = nn.Linear(config.ffn_width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        """Transform each token by itself."""
        return self.dropout(self.down_proj(F.gelu(self.up_proj(x))))


class LlamaBlock(nn.Module):
    """Attention and feed-forward layer, each behind a norm and beside a residual."""

    def __init__(self, config: LlamaConfig, depth: int):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.width, eps=config.eps)
        self.self_attn = ATTENTIONS[config.attention](config.attention_shape(depth))
        self.post_attention_layernorm = nn.RMSNorm(config.width, eps=config.eps)
        self.mlp = SwiGLU(config) if config.ffn == "swiglu" else GELUMLP(config)

    def forward(
        self, x: Float[Tensor, "batch seq dim"], rope: Rope | None
    ) -> Float[Tensor, "batch seq dim"]:
        """Add attention, then the feed-forward layer, to the residual stream."""
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """A Llama style language model.

    Weights are drawn from N(0, 0.02^2), the residual output projections from N(0, (0.02/sqrt(2L))^2), as in
    the published study.

    Args:
        config: Shape of the model.

    References:
        Touvron et al. (2023), arXiv 2302.13971.

    Example:
        >>> model = Llama(LlamaConfig(width=8, layers=1, heads=2, kv_heads=1))
        >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
        torch.Size([2, 5, 256])
    """

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.width)
        self.embed_positions = (
            nn.Embedding(config.context, config.width) if config.positions == "learned" else None
        )
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(LlamaBlock(config, depth) for depth in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=config.eps)
        self.lm_head = nn.Linear(config.width, config.vocab, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(
                parameter, std=0.02 / math.sqrt(2 * self.config.layers) if residual else 0.02
            )
            if name.endswith("gate_proj.weight"):
                with torch.no_grad():
                    parameter.mul_(self.config.gate_scale)

    def forward(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq vocab"]:
        """Return the logits of each position's next token."""
        config, seq = self.config, tokens.shape[1]
        x, rope = self.embed_tokens(tokens), None
        if self.embed_positions is not None:
            check_length(seq, config.context)
            x = x + self.embed_positions(torch.arange(seq, device=tokens.device))
        else:
            rope = rotary_angles(seq, config.width // config.heads, base=config.rope_base, like=x)
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, rope)
        return self.lm_head(self.norm(x))
