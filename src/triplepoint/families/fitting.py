"""Fit gain and shift to what a norm put out.

Axes: ``token`` one normalised vector, ``dim`` its features.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.families.differences import normalised

TOLERANCE = 2e-5
"""Of the largest output. Float32 norms agree to some 1e-6; n instead of n - 1 differs by 1/(2n), seen up to n = 25,000."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Formula:
    """A LayerNorm or RMSNorm but for its eps."""

    centred: bool
    gain: Float[Tensor, " dim"]
    shift: Float[Tensor, " dim"]

    def deviation(self, x: Tensor) -> Tensor:
        """Return ``x`` without its mean, if that is subtracted."""
        return x - x.mean(-1, keepdim=True) if self.centred else x

    def mean_square(self, x: Tensor) -> Tensor:
        """Return the mean square that it divides by the root of, ``[..., 1]``."""
        return self.deviation(x).square().mean(-1, keepdim=True)

    def output(self, x: Tensor, eps: float) -> Tensor:
        """Return what such a norm computes of ``x``."""
        return self.gain * self.deviation(x) / torch.sqrt(self.mean_square(x) + eps) + self.shift


def fitted(x: Tensor, y: Tensor, *, centred: bool) -> Formula | None:
    """Return the norm that maps ``x`` to ``y`` where eps does not count, or None if there is none."""
    u = normalised(x, centred=centred)
    if not is_affine(u, y):
        return None
    gain, shift = _affine(u, y)
    return Formula(centred=centred, gain=gain.float(), shift=shift.float())


def is_affine(u: Float[Tensor, "*token dim"], y: Float[Tensor, "*token dim"]) -> bool:
    """Whether ``y`` is ``gain * u + shift`` with one gain and shift per feature."""
    gain, shift = _affine(u, y)
    return close(gain * u + shift, y.double())


def _affine(u: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares for each feature, in float64."""
    u, y = u.flatten(0, -2).double(), y.flatten(0, -2).double()
    du, dy = u - u.mean(0), y - y.mean(0)
    gain = (du * dy).sum(0) / du.square().sum(0)
    return gain, y.mean(0) - gain * u.mean(0)


def close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether ``a`` differs from ``b`` by at most this share of the largest entry of ``b``."""
    return float((a - b).abs().max()) <= tolerance * max(float(b.abs().max()), 1e-30)
