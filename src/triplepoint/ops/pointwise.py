r"""The point-wise family that Derf's authors searched: one squashing function each, everything else as in Derf.

.. math:: y = \gamma \odot f(\alpha x + s) + \beta

with scalars :math:`\alpha` and :math:`s` (``shift``) per layer and :math:`\gamma, \beta` per feature. All f are odd, rise
and lie within [-1, 1]; they differ in how steep they are at 0 and in how they approach 1. Functions and initial values
(:math:`\alpha = 0.5, s = 0`) are those of the repository of arXiv 2512.10938.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from triplepoint.ops._base import last_below_one
from triplepoint.ops._shifted import Shifted

SHARE = 1 - math.tanh(2) ** 2
"""Of the largest slope, where a function counts as flat: 7.07 %, as tanh's slope is at 2."""


class PointWise(Shifted):
    """Shared by the family."""

    inverse: Callable[[float], float]
    """Where the function takes a value below 1; where it is clipped, that value."""

    @classmethod
    def exact_edge(cls, dtype: torch.dtype) -> float:
        """Return the |z| from which f(z) rounds to 1; infinite where no float32 is so large, as for SaturLog."""
        try:
            edge = cls.inverse(last_below_one(dtype))
        except OverflowError:
            return math.inf
        return edge if edge <= torch.finfo(torch.float32).max else math.inf


def _odd(of_size: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Continue a function of |z| that is 0 at 0 to negative z, with its slope at 0: that of ``abs`` is 0 there."""

    def f(z: Tensor) -> Tensor:
        zero = torch.zeros_like(z)  # maximum gives either side half of the slope at a tie
        return of_size(torch.maximum(z, zero)) - of_size(torch.maximum(-z, zero))

    return f


def _odd_root(of_size: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Continue a root of |z| to negative z; no slope at 0, where it would be infinite, and the gradient NaN."""
    return lambda z: z.sign() * of_size(z.abs().clamp(min=torch.finfo(z.dtype).tiny))


def _ratio(
    denominator: Callable[[Tensor], Tensor], limit: float = 1e37
) -> Callable[[Tensor], Tensor]:
    """Return z -> z / denominator(z), with z kept below where that is infinite over infinite."""

    def f(z: Tensor) -> Tensor:
        z = z.clamp(-limit, limit)
        return z / denominator(z)

    return f


def _op(
    name: str,
    formula: str,
    squash: Callable[[Tensor], Tensor],
    *,
    inverse: Callable[[float], float],
    slope_edge: float | None,
) -> type[PointWise]:
    """Make the op of one function; it is a class of this module under ``name``, so it can be pickled."""
    body = {
        "__doc__": f"Elementwise replacement for a norm by f(z) = {formula}, see :class:`PointWise`.",
        "__module__": __name__,
        "squash": staticmethod(squash),
        "inverse": staticmethod(inverse),
        "slope_edge": slope_edge,
    }
    return type(name, (PointWise,), body)


def _log_share(size: Tensor) -> Tensor:
    log = size.clamp(max=1e37).log1p()
    return log / (1 + log)


def _cube_share(z: Tensor) -> Tensor:
    cube = z.clamp(-1e10, 1e10) ** 3  # 1 long before; a cube beyond 7e12 is infinite
    return cube / (1 + cube.abs())


def _root(z: Tensor) -> Tensor:
    return torch.hypot(z, torch.ones_like(z))


Arctan = _op(
    "Arctan", "2/pi arctan(z)", lambda z: 2 / math.pi * z.atan(),
    inverse=lambda y: math.tan(math.pi / 2 * y), slope_edge=math.sqrt(1 / SHARE - 1),
)  # fmt: skip
ISRU = _op(
    "ISRU", "z / sqrt(1 + z^2), the inverse square root unit", _ratio(_root),
    inverse=lambda y: y / math.sqrt(1 - y * y), slope_edge=math.sqrt(SHARE ** (-2 / 3) - 1),
)  # fmt: skip
ExpSign = _op(
    "ExpSign", "sgn(z) (1 - exp(-|z|))", _odd(lambda z: -torch.expm1(-z)),
    inverse=lambda y: -math.log1p(-y), slope_edge=-math.log(SHARE),
)  # fmt: skip
SaturSin = _op(
    "SaturSin", "sin(z clipped to [-pi/2, pi/2])", lambda z: z.clamp(-math.pi / 2, math.pi / 2).sin(),
    inverse=math.asin, slope_edge=math.acos(SHARE),
)  # fmt: skip
SmoothSign = _op(
    "SmoothSign", "z / (1 + |z|)", _ratio(lambda z: 1 + z.abs()),
    inverse=lambda y: y / (1 - y), slope_edge=SHARE**-0.5 - 1,
)  # fmt: skip
CubSign = _op(
    "CubSign", "z^3 / (1 + |z|^3), flat at 0 and steepest at 0.79", _cube_share,
    inverse=lambda y: (y / (1 - y)) ** (1 / 3), slope_edge=2.5932,
)  # fmt: skip
ExpRoot = _op(
    "ExpRoot", "sgn(z) (1 - exp(-sqrt|z|)), infinitely steep at 0", _odd_root(lambda z: -torch.expm1(-z.sqrt())),
    inverse=lambda y: math.log1p(-y) ** 2, slope_edge=None,
)  # fmt: skip
SaturLog = _op(
    "SaturLog", "sgn(z) L / (1 + L), L = ln(1 + |z|)", _odd(_log_share),
    inverse=lambda y: math.expm1(y / (1 - y)), slope_edge=2.1081,
)  # fmt: skip
LinearClip = _op(
    "LinearClip", "z clipped to [-1, 1]: HardTanhAlpha with a shift", lambda z: z.clamp(-1, 1),
    inverse=lambda y: 1.0, slope_edge=1.0,
)  # fmt: skip
Power23Clip = _op(
    "Power23Clip", "sgn(z) |z|^(2/3) clipped to [-1, 1], infinitely steep at 0", _odd_root(lambda z: z.clamp(max=1) ** (2 / 3)),
    inverse=lambda y: 1.0, slope_edge=None,
)  # fmt: skip
LogSignClip = _op(
    "LogSignClip", "sgn(z) ln(1 + |z|) clipped to [-1, 1]", _odd(lambda z: z.log1p().clamp(max=1)),
    inverse=lambda y: math.e - 1, slope_edge=math.e - 1,
)  # fmt: skip
LogQuadClip = _op(
    "LogQuadClip", "sgn(z) ln(1 + z^2) clipped to [-1, 1], flat at 0 and steepest at 1",
    lambda z: z.sign() * (z.clamp(-2, 2) ** 2).log1p().clamp(max=1),
    inverse=lambda y: math.sqrt(math.e - 1), slope_edge=math.sqrt(math.e - 1),
)  # fmt: skip
SmoothSignClip = _op(
    "SmoothSignClip", "z / (1 + |z|) clipped to [-1, 1]: the clip never acts, so it is SmoothSign",
    lambda z: SmoothSign.squash(z).clamp(-1, 1),
    inverse=lambda y: y / (1 - y), slope_edge=SHARE**-0.5 - 1,
)  # fmt: skip
RelSign = _op(
    "RelSign", "z / (1 + sqrt(1 + z^2))", _ratio(lambda z: 1 + _root(z)),
    inverse=lambda y: 2 * y / (1 - y * y), slope_edge=math.sqrt(((1 + 8 / SHARE) ** 0.5 - 1) ** 2 / 4 - 1),
)  # fmt: skip
