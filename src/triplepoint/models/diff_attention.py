"""Differential attention: the difference of two attention maps; as published, and as one study ran it.

Axes: ``batch seq dim heads``; ``size`` is the width of one head of the plain attention.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from triplepoint.errors import PlanError
from triplepoint.models.attention import (
    AttentionShape,
    Rope,
    SoftmaxAttention,
    attend,
    rotate,
    split_heads,
)


def lambda_init(depth: int) -> float:
    r"""Return :math:`0.8 - 0.6\,e^{-0.3\,\mathrm{depth}}`, where the first block has depth 0.

    Example:
        >>> round(lambda_init(0), 4), round(lambda_init(1), 4)
        (0.2, 0.3555)
    """
    return 0.8 - 0.6 * math.exp(-0.3 * depth)


class _Lambda(nn.Module):
    r""":math:`\lambda = e^{\lambda_{q1}\cdot\lambda_{k1}} - e^{\lambda_{q2}\cdot\lambda_{k2}} + \lambda_{init}`."""

    def __init__(self, size: int, start: float):
        super().__init__()
        self.start = start
        for name in ("q1", "k1", "q2", "k2"):
            setattr(self, name, nn.Parameter(0.1 * torch.randn(size)))

    def forward(self) -> Tensor:
        """Return lambda, one number for all heads and tokens; in float32 at least."""
        wide = torch.promote_types(self.q1.dtype, torch.float32)
        q1, k1, q2, k2 = (p.to(wide) for p in (self.q1, self.k1, self.q2, self.k2))
        return (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + self.start


class DiffAttentionV1(SoftmaxAttention):
    r"""Differential attention, version 1, with the weights of the plain attention.

    .. math::
        Y = (1 - \lambda_{init})\,\mathrm{RMSNorm}\big((A_1 - \lambda A_2)\,V\big),\qquad
        A_j = \mathrm{softmax}(Q_j K_j^\top/\sqrt{\mathrm{size}})

    Half as many heads, each with two queries and two keys of ``size`` and one value of ``2 size``. The norm is
    over each head's features of each token by itself, so it is causal; its gain is shared by the heads. Beyond
    the plain attention there are ``6 size`` parameters: four vectors for lambda and the gain.

    With ``kv_heads`` fewer than ``heads``, both queries of a head meet their own key of one group.

    Raises:
        PlanError: If the heads, or the key/value heads, are not even in number.

    References:
        Ye et al. (2025), `Differential Transformer <https://arxiv.org/abs/2410.05258>`_; the authors'
        ``multihead_flashdiff_1.py``.
    """

    def __init__(self, shape: AttentionShape):
        _check_even(shape)
        super().__init__(shape)
        self.scale = 1 - lambda_init(shape.depth)
        self.lambda_ = _Lambda(shape.size, lambda_init(shape.depth))
        self.subln = nn.RMSNorm(2 * shape.size, eps=1e-5)

    @classmethod
    def weights(cls, shape: AttentionShape) -> int:
        """Return how many weights the matrices have: the plain attention's."""
        _check_even(shape)
        return super().weights(shape)

    def mix(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Return the normalised difference: ``[batch, heads / 2, seq, 2 size]``."""
        shape, dropout = self.shape, self.dropout if self.training else 0.0
        q = rotate(split_heads(self.q_proj(x), shape.heads), rope)
        k = rotate(split_heads(self.k_proj(x), shape.kv_heads), rope)
        v = split_heads(self.v_proj(x), shape.kv_heads // 2)
        first, second = (attend(q[:, i::2], k[:, i::2], v, dropout=dropout) for i in (0, 1))
        return self.scale * self.subln(first - self.lambda_().to(x.dtype) * second)


class DiffAttentionV2(SoftmaxAttention):
    r"""Differential attention, version 2: two queries share a key and a value, lambda depends on the token.

    .. math:: Y = A_1 V - \sigma(X W_\lambda) \odot A_2 V

    ``2 heads`` query heads over the key/value heads of the plain attention, their outputs taken in neighbouring
    pairs; one lambda per head and token, no norm and no initial lambda. It has ``width^2 + width heads`` weights
    more than the plain attention, which the feed-forward layer gives up.

    References:
        The authors' ``Diff-Transformer-V2/multihead_flashdiffv2.py`` in ``microsoft/unilm``.
    """

    def __init__(self, shape: AttentionShape):
        super().__init__(shape)
        self.q_proj = nn.Linear(shape.width, 2 * shape.width, bias=False)
        self.lambda_proj = nn.Linear(shape.width, shape.heads, bias=False)

    @classmethod
    def weights(cls, shape: AttentionShape) -> int:
        """Return how many weights the matrices have."""
        return super().weights(shape) + shape.width**2 + shape.width * shape.heads

    def mix(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Return the difference: ``[batch, heads, seq, size]``."""
        shape = self.shape
        q = rotate(split_heads(self.q_proj(x), 2 * shape.heads), rope)
        k = rotate(split_heads(self.k_proj(x), shape.kv_heads), rope)
        v = split_heads(self.v_proj(x), shape.kv_heads)
        y = attend(q, k, v, dropout=self.dropout if self.training else 0.0)
        lambdas = torch.sigmoid(self.lambda_proj(x)).transpose(1, 2).unsqueeze(-1)
        return y[:, 0::2] - lambdas * y[:, 1::2]


class LeakyDiffAttention(SoftmaxAttention):
    """What arXiv 2604.23434 ran as differential attention. **It sees the future**: for its replication only.

    It differs from the published version 1 in that it keeps all heads, with queries and keys twice as wide (so
    ``2 width^2`` weights more, which nothing makes up for); that lambda's start counts blocks from 1; that the
    norm has no gain; and that the norm is a GroupNorm over ``[batch, dim, seq]``: each head's mean and variance
    are taken over *all positions* of the window, so that a token's output depends on later tokens.

    References:
        The study's code, ``lucky-verma/dyt-composition-study``.
    """

    matched: ClassVar[bool] = False

    def __init__(self, shape: AttentionShape):
        super().__init__(shape)
        self.q_proj = nn.Linear(shape.width, 2 * shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, 2 * shape.kv_width, bias=False)
        self.scale = 1 - lambda_init(shape.depth + 1)
        self.lambda_ = _Lambda(shape.size, lambda_init(shape.depth + 1))
        self.subln = nn.GroupNorm(shape.heads, shape.width, affine=False)

    @classmethod
    def weights(cls, shape: AttentionShape) -> int:
        """Return how many weights the matrices have: ``6 width^2`` without grouping."""
        return super().weights(shape) + shape.width * (shape.width + shape.kv_width)

    def mix(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Return the difference, normalised over positions."""
        shape, dropout = self.shape, self.dropout if self.training else 0.0
        q = rotate(split_heads(self.q_proj(x), 2 * shape.heads), rope)
        k = rotate(split_heads(self.k_proj(x), 2 * shape.kv_heads), rope)
        v = split_heads(self.v_proj(x), shape.kv_heads)
        first, second = (attend(q[:, i::2], k[:, i::2], v, dropout=dropout) for i in (0, 1))
        y = first - self.lambda_().to(x.dtype) * second
        over_time = self.subln(y.transpose(2, 3).flatten(1, 2))
        return self.scale * over_time.unflatten(1, (shape.heads, -1)).transpose(2, 3)


def _check_even(shape: AttentionShape) -> None:
    for count, name, what in (
        (shape.heads, "heads", "heads"),
        (shape.kv_heads, "kv_heads", "key/value heads"),
    ):
        if count % 2:
            raise PlanError(
                f"diff_v1 takes heads in pairs, and {count} {what} are not even in number.\n"
                f"Choose an even number for {name}, or diff_v2, which needs no pairs."
            )
