"""Say what a layer does that normalises, but not as LayerNorm or RMSNorm over one axis do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor


def normalised(x: Tensor, *, centred: bool, over: int | tuple[int, ...] = -1) -> Tensor:
    """Divide by the root mean square over some axes, after subtracting the mean where ``centred``.

    Example:
        >>> normalised(Tensor([3.0, -3.0]), centred=False).tolist()
        [1.0, -1.0]
    """
    x = x - x.mean(over, keepdim=True) if centred else x
    return x / x.square().mean(over, keepdim=True).sqrt()


def difference_of(x: Tensor, fits: Callable[[Tensor], bool]) -> str:
    """Return what was normalised instead of one token's features.

    Args:
        x: The input ``[batch, *positions, dim]``.
        fits: Whether the output is a gain times this, plus a shift.
    """
    return next(
        (reason for reason, u in _others(x) if fits(u)),
        "normalises in a way that is not known here",
    )


def _others(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield (
        "divides by the standard deviation without subtracting the mean",
        x / x.std(-1, keepdim=True),
    )
    positions = tuple(range(1, x.ndim - 1))
    for centred in (True, False):
        for axes, words in (
            ((-2, -1), "over 2 axes, the features and a position"),
            ((*positions, -1), f"over {x.ndim - 1} axes, the features and all positions"),
            (positions, "over positions, not features"),
            (-2, "over positions, not features"),
            ((0, *positions), "over the batch, which a per-token op cannot stand in for"),
            (0, "over the batch, which a per-token op cannot stand in for"),
        ):
            yield f"normalises {words}", normalised(x, centred=centred, over=axes)
        for size in (k for k in range(2, x.shape[-1]) if x.shape[-1] % k == 0):
            grouped = normalised(x.unflatten(-1, (-1, size)), centred=centred)
            yield f"normalises groups of {size} features", grouped.flatten(-2)


def factor_of(gain: Tensor, known: Tensor, dim: int) -> str | None:
    """Say by which constant a fitted gain differs from a known one, or None where it is not a constant."""
    factors = gain / known
    factor = float(factors.mean())
    if (factors - factor).abs().max() > 1e-4 * abs(factor):
        return None
    for value, reason in (
        (1 / math.sqrt(dim), "divides by the L2 norm, not the root mean square"),
        (math.sqrt((dim - 1) / dim), "divides by the standard deviation over n - 1, not n"),
    ):
        if math.isclose(factor, value, rel_tol=1e-4):
            return reason
    return f"multiplies by {factor:.4g} besides"
