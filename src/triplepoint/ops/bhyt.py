"""BHyT: a tanh of the normalised token, bounded and with a learnable slope.

Axes: ``*batch`` any leading axes, ``dim`` the axis the replaced norm ran over.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.ops._base import Tanh, scalar
from triplepoint.ops._blocks import wide

EPS = 1e-6
"""Beside the mean square, as the authors have it."""


class BHyT(Tanh):
    r"""Squash each token's elements in units of the token's own root mean square.

    .. math:: \mathrm{BHyT}(x) = \gamma \odot \tanh\!\left(\frac{\lambda}{\kappa}
        \frac{x}{\sqrt{\mathrm{mean}(x^2) + 10^{-6}}}\right) + \beta

    The exact form. It is NOT free of statistics, as DyT is; the authors' faster form reuses an approximate second
    moment after attention, which needs the whole block and is not built here. Its effective slope is 0.2 where
    :math:`\lambda = 2`, so it is nearly linear: rules about saturation say nothing about it.

    Args:
        dim: Number of features.
        lam: Initial value of the learnable scalar lambda; 2 is the authors', who suggest 1 to 5.
        kappa: Constant; 10 is the authors'.
        affine: Whether to learn a gain; a norm without one gives an op without.
        bias: Whether to learn a shift; the authors have none.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    References:
        arXiv 2601.09719, the exact variant ("Star").

    Example:
        >>> [round(y, 4) for y in BHyT(2, lam=10.0)(torch.tensor([3.0, -3.0])).tolist()]  # tanh(1)
        [0.7616, -0.7616]
    """

    def __init__(
        self,
        dim: int,
        *,
        lam: float = 2.0,
        kappa: float = 10.0,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        self.kappa = kappa
        self.lam = scalar(lam, device=device, dtype=dtype)

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return the argument of the tanh, in float32."""
        x = wide(x)
        scale = torch.rsqrt(x.square().mean(dim=self.axis, keepdim=True) + EPS)
        return wide(self.lam) / self.kappa * x * scale
