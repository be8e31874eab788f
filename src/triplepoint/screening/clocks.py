"""Two arms on one clock: how much slower the candidate is, and what it costs at equal progress.

The clock is S1, the cumulative learning rate. At equal train loss the *speed ratio* r says how much less far
the candidate is, the *offset* c how much worse it validates there. A candidate that is only slow has c = 0.
Symbols: ``s`` S1, ``b`` baseline, ``c`` candidate; losses in nats per token.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from triplepoint.statistics import isotonic

Curve = Float[np.ndarray, " evaluation"]

OFFSET_SD = 0.06
"""Spread of the offset between calibration and end, nats: that of a pilot of 14 pairs of byte models."""
RATIO_SD = 0.15
"""Spread of ln r at a horizon of 4.5 times the clock: the same pilot's."""
RATIO_HORIZON = 4.5
EXPONENT = (0.45, 0.35)
"""Median and spread of ln of the exponent of loss against S1, from fits of public one-epoch runs."""
DRAWS = 2000


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """Relative difference at the end of the plan, with its 95 % interval and the share of draws below 0."""

    delta_rel: float
    interval: tuple[float, float]
    probability: float
    """Share of the draws in which the candidate ends lower; capped away from 0 and 1."""
    loss: float
    """The candidate's median forecast loss, nats per token."""


def forecast(
    s: Curve, val_b: Curve, found: Delay, *, s_end: float, seed: int = 0
) -> Forecast | None:
    r"""Forecast both arms at the end of a plan of one epoch at most, as a delayed baseline plus an offset.

    Baseline: :math:`V(s) = L_0 + A (s/s_{now})^{-a}` on the second half of its evaluations, with a prior on
    the exponent; candidate: :math:`V(r_T s_{end}) + c_T` with r and c drawn around what was measured. Errors
    common to both arms cancel. This is a prior carried forward, not a rule tested on a benchmark.

    Args:
        s: Clock of the evaluations, ascending.
        val_b: Baseline's validation losses.
        found: Measured r and c.
        s_end: Clock at the end of the plan.
        seed: Of the draws.

    Returns:
        None where r or c is missing or the baseline's curve does not fall.
    """
    half = len(s) // 2
    s, val_b = s[half:], val_b[half:]
    if found.speed_ratio is None or found.offset is None or len(s) < 4 or val_b[-1] >= val_b[0]:
        return None
    rng = np.random.default_rng(seed)
    a = np.exp(rng.normal(np.log(EXPONENT[0]), EXPONENT[1], DRAWS))
    low, amplitude, weight = _fit(s / s[-1], val_b, a)
    chosen = rng.choice(DRAWS, DRAWS, p=weight)
    distance = np.log(s_end / s[-1]) / np.log(RATIO_HORIZON)
    r = found.speed_ratio * np.exp(rng.normal(0, RATIO_SD * max(distance, 0.0), DRAWS))
    c = rng.normal(found.offset, OFFSET_SD, DRAWS)
    a, low, amplitude = a[chosen], low[chosen], amplitude[chosen]
    end = s_end / s[-1]
    baseline = low + amplitude * end**-a
    candidate = low + amplitude * (r * end) ** -a + c
    delta = (candidate - baseline) / baseline
    below = (np.sum(delta < 0) + 1) / (DRAWS + 2)
    return Forecast(
        delta_rel=float(np.median(delta)),
        interval=(float(np.quantile(delta, 0.025)), float(np.quantile(delta, 0.975))),
        probability=float(below),
        loss=float(np.median(candidate)),
    )


def _fit(x: Curve, y: Curve, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least squares of ``y = low + amplitude * x**-a`` for each exponent, and each one's weight.

    Residuals count with 0.02 nats of noise: evaluations of one run share it, so more of them do not make
    the exponent surer. Floors below 0 are impossible and get weight 0.
    """
    power = x[None, :] ** -a[:, None]
    mean_p, mean_y = power.mean(axis=1, keepdims=True), y.mean()
    amplitude = ((power - mean_p) * (y - mean_y)).sum(axis=1) / ((power - mean_p) ** 2).sum(axis=1)
    low = mean_y - amplitude * mean_p[:, 0]
    residual = ((low[:, None] + amplitude[:, None] * power - y) ** 2).mean(axis=1)
    log_weight = -residual / (2 * 0.02**2)
    weight = np.exp(log_weight - log_weight.max()) * ((low > 0) & (amplitude > 0))
    if weight.sum() == 0:
        weight = np.ones_like(weight)
    return low, amplitude, weight / weight.sum()
