"""Shared by Derf and the point-wise family: a learnable slope and shift in front of the squashing function."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.ops._base import Squashing, scalar
from triplepoint.ops._blocks import argument


class Shifted(Squashing):
    """Squashes ``alpha * x + shift``; the arguments are those of :class:`~triplepoint.ops.Derf`."""

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        shift: float = 0.0,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        self.alpha = scalar(alpha, device=device, dtype=dtype)
        self.shift = scalar(shift, device=device, dtype=dtype)

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``alpha * x + shift`` in float32, what is squashed."""
        return argument(x, self.alpha, self.shift)
