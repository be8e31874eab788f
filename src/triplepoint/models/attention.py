"""Causal self-attention: heads, rotary positions, and the plain and the gated form.

Axes: ``batch seq dim heads``; ``size`` is the width of one head. Every attention here maps
``[batch, seq, dim]`` to the same shape, knows its number of weights before it is built, and has no biases.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.errors import PlanError

Rope = tuple[Tensor, Tensor]
"""Cosines and sines of the rotary angles, each ``[seq, size]``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """What an attention is built from.

    ``heads`` are those of the plain attention at this width; a variant says what it makes of them. ``kv_heads``
    fewer than ``heads`` is grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245). ``depth`` counts
    blocks from 0.
    """

    width: int
    heads: int
    kv_heads: int
    dropout: float = 0.0
    depth: int = 0

    def __post_init__(self):
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise PlanError(
                f"{self.kv_heads} key/value heads do not divide {self.heads} heads.\n"
                f"Choose a divisor of {self.heads} for kv_heads, or None for as many as heads."
            )

    @property
    def size(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Width of all keys, and of all values."""
        return self.kv_heads * self.size


def rotary_angles(seq: int, size: int, *, base: float, like: Tensor) -> Rope:
    r"""Return cosines and sines of :math:`t\,\theta_i`, with :math:`\theta_i = \mathrm{base}^{-2i/\mathrm{size}}`.

    Both halves of a head carry the same angles, as in Hugging Face's Llama: feature ``i`` is rotated with
    ``i + size/2``. Meta's code and the published study rotate neighbours instead, which is the same model with
    the rows of the query and key matrices in another order.

    Args:
        seq: Number of positions.
        size: Width of a head, even.
        base: 10000 in Su et al. (2021), arXiv 2104.09864.
        like: Gives device and dtype; computed in float32 at least.

    Example:
        >>> cos, sin = rotary_angles(2, 2, base=10000.0, like=torch.zeros(1))
        >>> cos[:, 0].tolist() == [1.0, torch.tensor(1.0).cos().item()]
        True
    """
    wide = torch.promote_types(like.dtype, torch.float32)
    exponents = torch.arange(0, size, 2, device=like.device, dtype=wide) / size
    positions = torch.arange(seq, device=like.device, dtype=wide)
    angles = torch.outer(positions, base**-exponents).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Float[Tensor, "batch heads seq size"], rope: Rope | None) -> Tensor:
    """Rotate each head's features by its position's angles; None leaves them alone."""
    if rope is None:
        return x
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def split_heads(x: Float[Tensor, "batch seq dim"], heads: int) -> Tensor:
    """Return ``[batch, heads, seq, size]``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch heads seq size"]) -> Tensor:
    """Return ``[batch, seq, heads * size]``."""
    return x.transpose(1, 2).flatten(-2)


def attend(q: Tensor, k: Tensor, v: Tensor, *, dropout: float) -> Tensor:
    """Causal softmax attention; several query heads may share a key/value head, neighbours sharing one."""
    size, missing = q.shape[-1], v.shape[-1] - q.shape[-1]
    if missing:
        # torch's fused kernels take one width only and else build [batch, heads, seq, seq]; a zero adds nothing
        q, k = F.pad(q, (0, missing)), F.pad(k, (0, missing))
    return F.scaled_dot_product_attention(
        q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=q.shape[1] != k.shape[1],
        scale=1 / math.sqrt(size),
    )  # fmt: skip


class SoftmaxAttention(nn.Module):
    r"""The baseline: :math:`\mathrm{softmax}(QK^\top/\sqrt{\mathrm{size}})\,V`, then an output projection.

    Args:
        shape: Width and heads.
    """

    matched: ClassVar[bool] = True
    """Whether the feed-forward layer makes room for this attention's weights."""

    def __init__(self, shape: AttentionShape):
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.dropout = shape.dropout
        self.resid_dropout = nn.Dropout(shape.dropout)

    @classmethod
    def weights(cls, shape: AttentionShape) -> int:
        """Return how many weights the matrices have: ``4 width^2`` without grouping."""
        return 2 * shape.width * (shape.width + shape.kv_width)

    def mix(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Return what each head gathers: ``[batch, heads, seq, size]``."""
        shape = self.shape
        q = rotate(split_heads(self.q_proj(x), shape.heads), rope)
        k = rotate(split_heads(self.k_proj(x), shape.kv_heads), rope)
        v = split_heads(self.v_proj(x), shape.kv_heads)
        return attend(q, k, v, dropout=self.dropout if self.training else 0.0)

    def forward(
        self, x: Float[Tensor, "batch seq dim"], rope: Rope | None = None
    ) -> Float[Tensor, "batch seq dim"]:
        """Mix tokens: each position sees itself and those before it."""
        return self.resid_dropout(self.o_proj(join_heads(self.mix(x, rope))))


class GatedAttention(SoftmaxAttention):
    r"""Softmax attention whose output is multiplied by a gate that depends on the input.

    .. math:: Y' = Y \odot \sigma(X W_g)

    one gate per head and feature, between the attention and the output projection. It is not the published
    study's flag of the same name, a learned scalar per head that sees no input.

    References:
        Qiu et al. (2025), `Gated Attention for Large Language Models <https://arxiv.org/abs/2505.06708>`_,
        position G1, elementwise.
    """

    def __init__(self, shape: AttentionShape):
        super().__init__(shape)
        self.gate_proj = nn.Linear(shape.width, shape.width, bias=False)

    @classmethod
    def weights(cls, shape: AttentionShape) -> int:
        """Return how many weights the matrices have: the plain attention's and ``width^2``."""
        return super().weights(shape) + shape.width**2

    def mix(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Return what each head lets through."""
        gate = split_heads(self.gate_proj(x), self.shape.heads)
        return super().mix(x, rope) * torch.sigmoid(gate)
