"""What the beginning of a pair of runs says, and, where the plan's end is known, what came of it.

Symbols: ``s`` clock (cumulative learning rate), ``l`` train loss, ``V(l)`` the baseline's validation loss at it, ``m``
its slope dV/dl (1 without over-fitting, 0 at the best, negative beyond), ``q`` its curvature, ``r`` the speed ratio, ``c``
the candidate's validation loss minus the baseline's at equal train loss. Losses in nats per token.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from triplepoint.evidence import Trajectory
from triplepoint.screening.clocks import Curve, delay
from triplepoint.statistics import isotonic

LEAST_EVALUATIONS = 4
PLATEAU = 0.03
"""Nats under the unigram loss within which an arm has learned nothing but frequencies."""
NOISE = 0.1
"""Spread of a measured offset, nats: what shrinks its ratio to the gap where the gap is small."""
SMALL_GAP = 0.3
"""Nats."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """One seed's pair at a look."""

    s: Curve
    """Clock of the baseline's evaluations."""
    train: Curve
    """Its train losses, made monotone."""
    val: Curve
    s_candidate: float
    """The candidate's clock now."""
    best_candidate: float
    """Its lowest validation loss so far."""
    slope: float
    """m, over the latter half."""
    middle: float
    """Train loss at the middle of that half."""
    exponent: float
    """Of the train loss in the clock, -dln l/dln s, over the latter half."""
    speed_ratio: float
    offset: float
    on_plateau: bool
    """Whether the candidate has learned nothing but frequencies."""
    epochs: float
    """Passes over the data so far."""
    regularised: bool
    """Whether the candidate has more dropout or weight decay than the baseline."""

    @property
    def past_middle(self) -> float:
        """How far the last train loss is from where the slope is known, negative."""
        return float(self.train[-1]) - self.middle

    def gap(self, level: np.ndarray, val: np.ndarray) -> np.ndarray:
        """Return how far validation has come apart from training at a level, beyond what it was at first."""
        return np.maximum(val - level - (self.val[0] - self.train[0]), 0.0)

    @property
    def gap_at_candidate(self) -> float:
        """The baseline's gap at the candidate's train loss."""
        where = float(np.interp(self.speed_ratio * self.s_candidate, self.s, self.train))
        return float(self.gap(np.array(where), np.interp(-where, -self.train, self.val)))

    @property
    def relief(self) -> float:
        """The share of the baseline's gap that the candidate has not, -c / gap, shrunk to 0 where the gap is small."""
        gap = self.gap_at_candidate
        return -self.offset * gap / (gap**2 + NOISE**2)


def read(
    baseline: Trajectory,
    candidate: Trajectory,
    *,
    plateau: float,
    epochs_per_step: float,
    regularised: bool = False,
) -> Reading | None:
    """Read a pair.

    Args:
        baseline: Its evaluations so far.
        candidate: The same.
        plateau: Validation loss of the unigram frequencies, nats.
        epochs_per_step: Tokens of a step over unique tokens.
        regularised: Whether the candidate has more dropout or weight decay.

    Returns:
        None where the beginning is too short, an arm diverged, or the candidate has not come to a train loss that the
        baseline had: how late it is, is not known then.
    """
    if baseline.outcome != "finished" or candidate.outcome != "finished":
        return None
    if min(len(baseline.steps), len(candidate.steps)) < LEAST_EVALUATIONS:
        return None
    late = delay(
        baseline.s1, baseline.train, baseline.val, candidate.train, candidate.val, candidate.s1
    )
    if late.speed_ratio is None or late.offset is None:
        return None
    falling = isotonic(baseline.train, increasing=False)
    half = len(falling) // 2
    train, s = falling[half:], baseline.s1[half:]
    slope = float(np.polyfit(train, baseline.val[half:], 1)[0]) if np.ptp(train) > 0 else 1.0
    exponent = -float(np.polyfit(np.log(s), np.log(train), 1)[0])
    return Reading(
        s=baseline.s1, train=falling, val=baseline.val, s_candidate=float(candidate.s1[-1]),
        best_candidate=float(candidate.val.min()), slope=slope, middle=float(train.mean()),
        exponent=max(exponent, 0.01), speed_ratio=late.speed_ratio, offset=late.offset,
        on_plateau=bool(candidate.val[-1] > plateau - PLATEAU), epochs=float(candidate.steps[-1]) * epochs_per_step,
        regularised=regularised,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a reading: the quantities that a forecast has to guess."""

    acceleration: float | None
    """ln of how much steeper the train loss fell in the clock from the look to the end than before it."""
    curvature: float | None
    """q, per nat: of the parabola through V at the look and at the end."""
    catching_up: float | None
    """dln r / dln s, from the look to the end."""
    offset: float | None
    """c at the end."""
    gap: float | None
    """The baseline's gap at the candidate's last train loss."""

    @property
    def relief(self) -> float | None:
        """-c / gap."""
        return None if self.gap is None else -self.offset * self.gap / (self.gap**2 + NOISE**2)

    @property
    def relief_weight(self) -> float:
        """How well it can be told: 1 where the gap is far over the noise of c."""
        return 0.0 if self.gap is None else self.gap**2 / (self.gap**2 + NOISE**2)

    @property
    def offset_without_gap(self) -> float | None:
        """C where the gap is small; None elsewhere."""
        return None if self.gap is None or self.gap > SMALL_GAP else self.offset


def outcome(reading: Reading, baseline: Trajectory, candidate: Trajectory) -> Outcome:
    """Return what became of a reading, from the two finished runs."""
    train = isotonic(baseline.train, increasing=False)
    now, end = float(reading.train[-1]), float(train[-1])
    went = math.log(baseline.s1[-1] / reading.s[-1])
    acceleration = math.log(math.log(now / end) / went / reading.exponent) if end < now else None
    x = end - now
    bend = reading.past_middle * x + x * x / 2  # what q multiplies
    curvature = (
        (float(baseline.val[-1]) - float(reading.val[-1]) - reading.slope * x) / bend
        if abs(bend) > 1e-3
        else None
    )
    late = delay(
        baseline.s1, baseline.train, baseline.val, candidate.train, candidate.val, candidate.s1
    )
    catching_up = gap = None
    if late.speed_ratio is not None and late.offset is not None:
        horizon = math.log(candidate.s1[-1] / reading.s_candidate)
        catching_up = math.log(late.speed_ratio / reading.speed_ratio) / horizon
        level = np.interp(late.speed_ratio * candidate.s1[-1], baseline.s1, train)
        gap = float(reading.gap(level, np.interp(-level, -train, baseline.val)))
    return Outcome(
        acceleration=acceleration, curvature=curvature, catching_up=catching_up, offset=late.offset, gap=gap,
    )  # fmt: skip
