"""The end of a plan from its beginning: the baseline's own over-fitting, and a candidate that is only late.

A candidate that has no effect but to learn more slowly goes through the same train losses as the baseline, later, and
validates at each as the baseline did there. Then it ends better exactly where the baseline over-fits after having been
where the candidate ends. So two things are forecast: how the baseline's validation loss goes on as its train loss falls,
and which of its train losses the candidate reaches.

Symbols: ``s`` clock (cumulative learning rate), ``l`` train loss, ``V(l)`` the baseline's validation loss at it, ``m`` its
slope dV/dl (1 without over-fitting, 0 at the best, negative beyond), ``q`` its curvature, ``r`` the speed ratio; losses in
nats per token; axis ``draw``.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from triplepoint.screening.clocks import Curve, delay
from triplepoint.statistics import isotonic

DRAWS = 2000
Draws = Float[np.ndarray, " draw"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prior:
    """What a beginning does not tell of what follows: medians, and spreads of their logarithms.

    The values are guesses from the shape of a few curves, not a fit; the benchmark replaces them.
    """

    acceleration: tuple[float, float] = (2.5, 0.4)
    """Of the train loss's exponent in the clock: annealing and repetition make it steeper than it was."""
    curvature: tuple[float, float] = (0.4, 0.5)
    """q, per nat."""
    catching_up: tuple[float, float] = (0.6, 0.35)
    """Exponent with which r grows in the clock, and the spread of ln r at the end."""
    offset: tuple[float, float] = (0.0, 0.03)
    """Candidate's validation loss minus the baseline's at equal train loss, nats: mean and spread."""


class Beginning(NamedTuple):
    """One arm so far, over its evaluations."""

    s: Curve
    train: Curve
    val: Curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outlook:
    """Draws of the relative difference at the planned end, positive = candidate worse."""

    fixed_step: Draws
    best_checkpoint: Draws
    speed_ratio: float
    slope: float
    """m, over the latter half of the baseline's beginning."""

    def wins(self, endpoint: str) -> float:
        """Return the share of draws in which the candidate ends lower, capped away from 0 and 1."""
        draws = getattr(self, endpoint)
        return float((np.sum(draws < 0) + 1) / (len(draws) + 2))


def outlook(
    baseline: Beginning,
    candidate: Beginning,
    *,
    s_end: float,
    s_end_candidate: float | None = None,
    prior: Prior = Prior(),  # noqa: B008
    seed: int = 0,
) -> Outlook | None:
    """Forecast both endpoints of a plan from both arms' beginnings.

    Args:
        baseline: Its evaluations so far, at least four.
        candidate: The same.
        s_end: Clock of the baseline at the planned end.
        s_end_candidate: The candidate's, where its rate differs.
        prior: What the beginning does not tell.
        seed: Of the draws.

    Returns:
        None where the candidate has not come to a train loss that the baseline had: how late it is, is not known.

    Example:
        A candidate half as fast as a baseline that over-fits ends lower; its best is no better.

        >>> s = np.linspace(0.1, 1.0, 10)
        >>> fast, slow = 3 - s, 3 - s / 2
        >>> val = lambda l: 2 + (l - 2.2) ** 2 / 2
        >>> found = outlook(Beginning(s, fast, val(fast)), Beginning(s, slow, val(slow)), s_end=2.0)
        >>> found.wins("fixed_step") > 0.7, found.wins("best_checkpoint") > 0.6
        (True, False)
    """
    late = delay(*baseline, candidate.train, candidate.val, candidate.s)
    if late.speed_ratio is None or len(baseline.s) < 4:
        return None
    rng = np.random.default_rng(seed)
    going = _Baseline.read(baseline, rng, prior)
    exponent, spread = prior.catching_up
    own_end = s_end if s_end_candidate is None else s_end_candidate
    horizon = np.log(own_end / candidate.s[-1])
    ratio = late.speed_ratio * np.exp(
        rng.normal(exponent * horizon, spread * np.sign(horizon), DRAWS)
    )
    offset = rng.normal(*prior.offset, DRAWS)
    ends = going.train_at(np.full(DRAWS, s_end)), going.train_at(ratio * own_end)
    fixed = [going.val_at(level) for level in ends]
    best = [going.lowest_until(level) for level in ends]
    return Outlook(
        fixed_step=(fixed[1] + offset - fixed[0]) / fixed[0],
        best_checkpoint=(best[1] + offset - best[0]) / best[0],
        speed_ratio=late.speed_ratio,
        slope=going.slope,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Baseline:
    """The baseline's two curves, as measured and as they may go on."""

    so_far: Beginning
    slope: float
    """Over the latter half, at whose middle..."""
    middle: float
    """... this train loss is."""
    exponent: Draws
    """Of the train loss in the clock, from now on."""
    curvature: Draws

    @classmethod
    def read(cls, given: Beginning, rng: np.random.Generator, prior: Prior) -> _Baseline:
        """Fit the latter half, and draw how it goes on."""
        falling = isotonic(given.train, increasing=False)
        half = len(falling) // 2
        train, val = falling[half:], given.val[half:]
        slope = float(np.polyfit(train, val, 1)[0]) if np.ptp(train) > 0 else 1.0
        now = max(-float(np.polyfit(np.log(given.s[half:]), np.log(train), 1)[0]), 0.01)
        draw = lambda median, spread: median * np.exp(rng.normal(0, spread, DRAWS))  # noqa: E731
        return cls(
            Beginning(given.s, falling, given.val), slope, float(train.mean()),
            now * draw(*prior.acceleration), draw(*prior.curvature),
        )  # fmt: skip

    def train_at(self, s: Draws) -> Draws:
        """Return the train loss at a clock: measured up to now, a power law from there."""
        now, last = self.so_far.s[-1], self.so_far.train[-1]
        return np.where(s <= now, np.interp(s, self.so_far.s, self.so_far.train), last * (np.maximum(s, now) / now) ** -self.exponent)  # fmt: skip

    def val_at(self, level: Draws) -> Draws:
        """Return V at a train loss: measured down to now's, a parabola from there."""
        last = self.so_far.train[-1]
        beyond = np.minimum(level - last, 0.0)
        slope = self.slope + self.curvature * (last - self.middle)
        ahead = self.so_far.val[-1] + slope * beyond + self.curvature * beyond**2 / 2
        return np.where(level >= last, self._measured(level), ahead)

    def lowest_until(self, level: Draws) -> Draws:
        """Return the lowest V down to a train loss."""
        last = self.so_far.train[-1]
        slope = self.slope + self.curvature * (last - self.middle)
        # the parabola's bottom, where the curve gets that far
        bottom = self.val_at(np.maximum(last - np.maximum(slope, 0) / self.curvature, level))
        reached = np.minimum.accumulate(self.so_far.val)
        behind = np.interp(-level, -self.so_far.train, reached)
        return np.where(level >= last, behind, np.minimum(reached[-1], bottom))

    def _measured(self, level: Draws) -> Draws:
        return np.interp(-level, -self.so_far.train, self.so_far.val)
