"""Derf: an error function with a learnable slope and shift in place of a norm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.ops._base import (
    Squashing,
    last_below_one,
    scalar,
)


class Derf(Squashing):
    r"""Elementwise replacement for LayerNorm, by the Gaussian error function.

    .. math:: \mathrm{Derf}(x) = \gamma \odot \mathrm{erf}(\alpha x + s) + \beta

    Scalars :math:`\alpha` and :math:`s` (``shift``) per layer; :math:`\gamma, \beta` per feature. Steeper
    than DyT at equal alpha: erf'(0) = 2/sqrt(pi) = 1.128 where tanh'(0) = 1.

    Args:
        dim: Number of features.
        alpha: Initial slope, dimensionless; 0.5 is the authors' module default.
        shift: Initial shift of the argument, dimensionless; 0 is the authors' default.
        affine: Whether to learn a gain; a norm without one gives an op without.
        bias: Whether to learn an output shift.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    References:
        Chen et al. (2025), `Stronger Normalization-Free Transformers
        <https://arxiv.org/abs/2512.10938>`_.

    Example:
        >>> Derf(1, alpha=1.0)(torch.tensor([1.0])).item()  # erf(1)
        0.8427007...
    """

    slope_edge = 1.6277
    """exp(-1.6277^2) = 0.0707, the share of the largest slope that tanh has at 2."""

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        shift: float = 0.0,
        affine: bool = True,
        bias: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, device=device, dtype=dtype)
        self.alpha = scalar(alpha, device=device, dtype=dtype)
        self.shift = scalar(shift, device=device, dtype=dtype)

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``alpha * x + shift`` in float32, the argument of the erf."""
        return self.alpha.float() * x.float() + self.shift.float()

    @classmethod
    def exact_edge(cls, dtype: torch.dtype) -> float:
        """Return the |z| from which erf(z) rounds to 1: 2.19 in bfloat16, 3.92 in float32."""
        return float(torch.erfinv(torch.tensor(last_below_one(dtype), dtype=torch.float64)))

    @staticmethod
    def squash(z: Tensor) -> Tensor:
        """Return ``erf(z)``."""
        return torch.erf(z)


DynamicErf = Derf
"""The op under its long name (the authors' class is spelled ``Dynamic_erf``)."""
