"""Dynamic Tanh (DyT): squash each element instead of normalising each token.

Axes: ``*batch`` any leading axes, ``dim`` the axis the replaced norm ran over.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.ops._base import Tanh, scalar


class DyT(Tanh):
    r"""Elementwise replacement for LayerNorm.

    .. math:: \mathrm{DyT}(x) = \gamma \odot \tanh(\alpha x) + \beta

    One scalar :math:`\alpha` per layer; :math:`\gamma, \beta` per feature. Unlike LayerNorm nothing here
    depends on the other features of a token, so the output keeps the input's scale while
    :math:`|\alpha x| \ll 1` and loses it beyond.

    Args:
        dim: Number of features.
        alpha: Initial value of the learnable scalar, dimensionless. 0.5 is the paper's default for
            everything except language models.
        affine: Whether to learn a gain; a norm without one gives an op without.
        bias: Whether to learn a shift.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    References:
        Zhu, Chen, He, LeCun and Liu (2025), `Transformers without Normalization
        <https://arxiv.org/abs/2503.10622>`_, Sec. 4.

    Example:
        >>> op = DyT(2, alpha=1.0)
        >>> op(torch.tensor([0.0, 100.0])).tolist()
        [0.0, 1.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        affine: bool = True,
        bias: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, device=device, dtype=dtype)
        self.alpha = scalar(alpha, device=device, dtype=dtype)

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``alpha * x`` in float32, the argument of the tanh."""
        return self.alpha.float() * x.float()


DynamicTanh = DyT
"""The class name in the authors' repository."""
