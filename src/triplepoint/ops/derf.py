"""Derf: an error function with a learnable slope and shift in place of a norm."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.ops._base import last_below_one
from triplepoint.ops._blocks import Curve, squash_affine
from triplepoint.ops._shifted import Shifted

PEAK = 2 / math.sqrt(math.pi)
"""Slope of erf at 0."""


def _split(z: Tensor, slope: Tensor) -> None:
    """Leave erf(z) in ``z`` and 2/sqrt(pi) exp(-z^2) in ``slope``."""
    torch.mul(z, z, out=slope)
    slope.neg_().exp_().mul_(PEAK)
    z.erf_()


ERF = Curve(torch.erf, _split)


class Derf(Shifted):
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
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
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

    @classmethod
    def exact_edge(cls, dtype: torch.dtype) -> float:
        """Return the |z| from which erf(z) rounds to 1: 2.19 in bfloat16, 3.92 in float32."""
        return float(torch.erfinv(torch.tensor(last_below_one(dtype), dtype=torch.float64)))

    @staticmethod
    def squash(z: Tensor) -> Tensor:
        """Return ``erf(z)``."""
        return torch.erf(z)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Apply the op: computed in float32, returned in the dtype of ``x``; keeps only ``x`` for backward."""
        return squash_affine(
            x, self.alpha, self.shift, self.weight, self.bias, curve=ERF, axis=self.axis
        )


DynamicErf = Derf
"""The op under its long name (the authors' class is spelled ``Dynamic_erf``)."""
