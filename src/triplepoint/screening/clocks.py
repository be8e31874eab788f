"""Two arms on one clock: how much slower the candidate is, and what it costs at equal progress.

The clock is S1, the cumulative learning rate. At equal train loss the *speed ratio* r says how much less far
the candidate is, the *offset* c how much worse it validates there. A candidate that is only slow has c = 0.
Symbols: ``s`` S1, ``b`` baseline, ``c`` candidate; losses in nats per token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from triplepoint.statistics import isotonic

Curve = Float[np.ndarray, " evaluation"]


class Delay(NamedTuple):
    """The candidate as a delayed baseline."""

    speed_ratio: float | None
    """r = S1 at which the baseline had the candidate's train loss / the candidate's S1; under 1 is slower."""
    offset: float | None
    """c = candidate's validation loss - baseline's at the same train loss, nats."""


def delay(
    s: Curve, train_b: Curve, val_b: Curve, train_c: Curve, val_c: Curve, s_c: Curve | None = None
) -> Delay:
    """Return r and c at the candidate's last evaluation.

    Train curves are made monotone first. A candidate further than the baseline ever got is compared at the
    baseline's last loss instead, which gives r >= 1. Where one arm ends before the other's first evaluation
    the ratio cannot be measured, only bounded by the grid of evaluations: both are None.

    Args:
        s: Clock of the baseline's evaluations, ascending.
        train_b: Baseline's train losses at them.
        val_b: Baseline's validation losses.
        train_c: Candidate's train losses.
        val_c: Candidate's validation losses.
        s_c: Clock of the candidate's evaluations, where its rate differs; None for ``s``.

    Example:
        >>> s = np.array([1.0, 2.0, 3.0, 4.0])
        >>> fast, slow = 4.0 - s / 2, 4.0 - s / 4  # half as fast
        >>> delay(s, fast, fast, slow, slow)
        Delay(speed_ratio=0.5, offset=0.0)
    """
    s_c = s if s_c is None else s_c
    down_b, down_c = isotonic(train_b, increasing=False), isotonic(train_c, increasing=False)
    if down_c[-1] > down_b[0] or down_b[-1] > down_c[0]:
        return Delay(None, None)
    if down_c[-1] < down_b[-1]:
        reached = float(_when(down_c, s_c, down_b[-1]))
        offset = float(_at(down_c, val_c, down_b[-1]) - val_b[-1])
        return Delay(float(s[-1]) / reached, offset)
    ratio = float(_when(down_b, s, down_c[-1]) / s_c[-1])
    return Delay(ratio, float(val_c[-1] - _at(down_b, val_b, down_c[-1])))


def _when(falling: Curve, s: Curve, level: float) -> float:
    """Clock at which a falling curve first is at ``level``, linear between evaluations, held at its ends."""
    return float(np.interp(-level, -falling, s))


def _at(falling: Curve, values: Curve, level: float) -> float:
    return float(np.interp(-level, -falling, values))


class BreakEven(NamedTuple):
    """Values at which both arms would end equal, the other one as measured."""

    speed_ratio: float | None
    offset: float | None


def break_even(s: Curve, val_b: Curve, found: Delay) -> BreakEven:
    """Return r* and c*: the speed ratio and the offset at which the candidate's loss equals the baseline's.

    With V the baseline's validation curve and S its last clock, the candidate ends at V(rS) + c. So
    c* = V(S) - V(rS), and r* solves V(r* S) = V(S) - c. None where the curve does not reach that far: a
    positive offset needs a faster candidate than the baseline's own curve can tell.
    """
    if found.speed_ratio is None:
        return BreakEven(None, None)
    end = float(val_b[-1])
    where = found.speed_ratio * float(s[-1])
    offset = end - float(np.interp(where, s, val_b)) if where <= s[-1] else None
    if found.offset is None:
        return BreakEven(None, offset)
    falling = isotonic(val_b, increasing=False)
    level = end - found.offset
    reachable = falling[-1] <= level <= falling[0]
    ratio = _when(falling, s, level) / float(s[-1]) if reachable else None
    return BreakEven(ratio, offset)
