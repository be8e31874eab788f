"""HardTanh: clip each element, without and with a learnable slope."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.ops._base import Clip, scalar
from triplepoint.ops._blocks import argument, wide


class HardTanh(Clip):
    r"""Clip each element at one: the probe of arXiv 2604.23434, with no alpha.

    .. math:: \mathrm{HardTanh}(x) = \gamma \odot \mathrm{clip}(x, -1, 1) + \beta

    Not ``torch.nn.Hardtanh``, which has no gain or shift.

    Args:
        dim: Number of features.
        affine: Whether to learn a gain.
        bias: Whether to learn a shift.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    Example:
        >>> HardTanh(3)(torch.tensor([-5.0, 0.25, 5.0])).tolist()
        [-1.0, 0.25, 1.0]
    """

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``x`` in float32, what is clipped."""
        return wide(x)


class HardTanhAlpha(Clip):
    r"""HardTanh with DyT's learnable slope: our extension, not in the paper.

    .. math:: y = \gamma \odot \mathrm{clip}(\alpha x, -1, 1) + \beta

    Args:
        dim: Number of features.
        alpha: Initial slope, dimensionless; 1 starts it as plain HardTanh.
        affine: Whether to learn a gain.
        bias: Whether to learn a shift.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    Example:
        >>> HardTanhAlpha(2, alpha=2.0)(torch.tensor([0.25, 5.0])).tolist()
        [0.5, 1.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 1.0,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        self.alpha = scalar(alpha, device=device, dtype=dtype)

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``alpha * x`` in float32, what is clipped."""
        return argument(x, self.alpha, None)
