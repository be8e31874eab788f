"""The end of a plan from its beginning: the baseline's own over-fitting, and a candidate that is only late.

A candidate that has no effect but to learn more slowly goes through the same train losses as the baseline, later, and
validates at each as the baseline did there. Then it ends better exactly where the baseline over-fits after having been
where the candidate ends. A candidate that regularises is, besides, spared a share of the baseline's gap. So three things
are forecast: how the baseline's train loss falls, how its validation loss goes on from there, and where on that path the
candidate is. What the beginning does not tell of them is drawn from laws (:mod:`latents`).

Symbols as in :mod:`readings`; axes ``time`` (grid from the look to the planned end) and ``draw``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from triplepoint.evidence import ENDPOINTS, Endpoint
from triplepoint.screening.latents import QUANTITIES, Draws, Laws
from triplepoint.screening.readings import Reading

DRAWS = 1000
GRID = 16
"""Points in time at which both curves are drawn, evenly in the logarithm of the clock."""
LEAST_LOSS = 0.05
"""Nats; a parabola that is carried on too far would go below."""

Paths = Float[np.ndarray, "time draw"]


@dataclasses.dataclass(frozen=True, eq=False)
class Outlook:
    """Draws of both arms' losses at the endpoints of a plan, nats per token."""

    baseline: Mapping[Endpoint, Draws]
    candidate: Mapping[Endpoint, Draws]
    best_clock: Draws
    """The baseline's clock at its best checkpoint."""

    def difference(self, endpoint: Endpoint) -> Draws:
        """Return (candidate - baseline) / baseline."""
        baseline = self.baseline[endpoint]
        return (self.candidate[endpoint] - baseline) / baseline

    @classmethod
    def mean(cls, outlooks: Sequence[Outlook]) -> Outlook:
        """Return the mean over seeds, draw by draw."""
        over = lambda arm, e: np.mean([getattr(o, arm)[e] for o in outlooks], axis=0)  # noqa: E731
        return cls(
            {e: over("baseline", e) for e in ENDPOINTS},
            {e: over("candidate", e) for e in ENDPOINTS},
            np.mean([o.best_clock for o in outlooks], axis=0),
        )


def outlook(
    reading: Reading,
    laws: Laws,
    *,
    s_end: float,
    s_end_candidate: float | None = None,
    seed: int = 0,
) -> Outlook:
    """Forecast both endpoints of a plan from a pair's beginning.

    Args:
        reading: Of the beginning. Where the baseline's run in it goes to the planned end already, only the candidate is
            forecast.
        laws: Of what it does not tell.
        s_end: Clock of the baseline at the planned end.
        s_end_candidate: The candidate's, where its rate differs.
        seed: Of the draws; equal for the seeds of one cell, which share what the laws leave open.

    Example:
        A candidate half as fast as a baseline that over-fits ends lower; its best is no better.

        >>> from triplepoint.screening.latents import fit_laws
        >>> s = np.linspace(0.1, 1.0, 10)
        >>> train = 3 - s
        >>> pair = Reading(
        ...     s=s, train=train, val=2 + (train - 2.2) ** 2 / 2, s_candidate=1.0, best_candidate=2.05, slope=0.1,
        ...     middle=2.3, exponent=0.5, speed_ratio=0.5, offset=0.0, on_plateau=False, epochs=10.0, regularised=False,
        ... )
        >>> found = outlook(pair, fit_laws([]), s_end=2.0)
        >>> bool(np.median(found.difference("fixed_step")) < -0.02)
        True
        >>> bool(abs(np.median(found.difference("best_checkpoint"))) < 0.02)
        True
    """
    drawn = _Drawn(reading, _draws(reading, laws, seed))
    time = np.linspace(0.0, 1.0, GRID + 1)[1:, None]
    now, own_now = float(reading.s[-1]), reading.s_candidate
    own_end = s_end if s_end_candidate is None else s_end_candidate
    clock = now * (max(s_end, now) / now) ** time
    baseline = drawn.baseline(clock)
    candidate = drawn.candidate(own_now * (own_end / own_now) ** time)
    lowest, measured = baseline.min(axis=0), float(reading.val.min())
    best_clock = np.where(
        lowest < measured, clock[baseline.argmin(axis=0), 0], reading.s[reading.val.argmin()]
    )
    return Outlook(
        {"fixed_step": baseline[-1], "best_checkpoint": np.minimum(lowest, measured)},
        {
            "fixed_step": candidate[-1],
            "best_checkpoint": np.minimum(candidate.min(axis=0), reading.best_candidate),
        },
        best_clock,
    )


def wins(draws: Draws, margin: float) -> float:
    """Return P(candidate ends lower), given that the arms end apart by more than the margin.

    Laplace's rule keeps it away from 0 and 1.

    Example:
        >>> wins(np.array([-0.1, -0.1, 0.001, 0.2]), 0.005)
        0.6
    """
    lower, higher = float(np.sum(draws < -margin)), float(np.sum(draws > margin))
    return (lower + 1) / (lower + higher + 2)


def _draws(reading: Reading, laws: Laws, seed: int) -> dict[str, Draws]:
    rng = np.random.default_rng(seed)
    return {
        name: laws[name].draw(quantity.features(reading), rng.normal(size=DRAWS))
        for name, quantity in QUANTITIES.items()
    }


@dataclasses.dataclass(frozen=True, eq=False)
class _Drawn:
    """Both arms' curves from the look on."""

    so_far: Reading
    drawn: Mapping[str, Draws]

    def baseline(self, s: Paths) -> Paths:
        """Return the baseline's validation loss at a clock."""
        return self._val_at(self._train_at(s))

    def candidate(self, s: Paths) -> Paths:
        """Return the candidate's validation loss at its own clock."""
        r = self.so_far
        pace = self.drawn["escaping" if r.on_plateau else "catching_up"]
        ratio = r.speed_ratio * (s / r.s_candidate) ** pace
        # a late arm catches up; it does not overtake on the strength of being late
        ratio = np.minimum(ratio, max(1.0, r.speed_ratio))
        level = self._train_at(ratio * s)
        val = self._val_at(level)
        spared = self.drawn["relief"] * r.gap(level, val)
        return np.maximum(val + self.drawn["offset"] - spared, LEAST_LOSS)

    def _train_at(self, s: Paths) -> Paths:
        """Measured up to now, a power law from there."""
        r = self.so_far
        now = float(r.s[-1])
        exponent = r.exponent * np.exp(self.drawn["acceleration"])
        ahead = r.train[-1] * (np.maximum(s, now) / now) ** -exponent
        return np.where(s <= now, np.interp(s, r.s, r.train), ahead)

    def _val_at(self, level: Paths) -> Paths:
        """Measured down to now's train loss, a parabola from there."""
        r, curvature = self.so_far, self.drawn["curvature"]
        last = r.train[-1]
        beyond = np.minimum(level - last, 0.0)
        slope = r.slope + curvature * r.past_middle
        ahead = r.val[-1] + slope * beyond + curvature * beyond**2 / 2
        measured = np.interp(-level, -r.train, r.val)
        return np.maximum(np.where(level >= last, measured, ahead), LEAST_LOSS)
