"""What the pictures of a grokking run share: its runs, and the logarithmic axis of steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from triplepoint.report.figures import axis, rounded
from triplepoint.report.formats import count
from triplepoint.report.series import Arm, Curve, Series

TICKS = 7
"""Labels on the step axis: more run into each other on a phone."""
MARKED = "#8a929b"
"""Grey of thin lines; like the arms' colours it can be read on white and on black."""


class Run(NamedTuple):
    """One training of the report: an arm and a seed."""

    arm: Arm
    seed: int | None

    @property
    def label(self) -> str:
        """How the page names it, where there are several."""
        if self.seed is None:
            return self.arm.name
        return f"seed {self.seed}" if self.arm.key is None else f"{self.arm.name}, seed {self.seed}"


def runs_of(series: Series) -> list[Run]:
    """Return the runs that have records, arm by arm, seeds ascending."""
    found = []
    for arm in series.arms:
        seeds = {s for (_, key), curves in series.whole.items() if key == arm.key for s in curves}
        seeds |= {
            seed
            for (_, key), sites in series.by_site.items() if key == arm.key
            for curves in sites.values() for seed in curves
        }  # fmt: skip
        found += [Run(arm, s) for s in sorted(seeds, key=lambda s: -1 if s is None else s)]
    return found


def curve_of(series: Series, run: Run, metric: str, site: str | None = None) -> Curve:
    """Return step -> value of one run; empty where it was not measured."""
    if site is None:
        return series.whole.get((metric, run.arm.key), {}).get(run.seed, {})
    return series.by_site.get((metric, run.arm.key), {}).get(site, {}).get(run.seed, {})


class StepAxis:
    """A logarithmic axis of steps with a place for step 0, a bit left of the first other step.

    Example:
        >>> steps = StepAxis([0, 10, 1000])
        >>> [round(steps.place(s), 2) for s in (0, 10, 1000)]
        [5.01, 10, 1000]
    """

    def __init__(self, steps: Iterable[int]):
        steps = set(steps)
        positive = [step for step in steps if step > 0] or [1]
        self.first, self.last = min(positive), max(positive)
        decades = math.log10(self.last / self.first)
        self.has_zero = 0 in steps
        self.zero = self.first / 10 ** max(0.15 * decades, 0.1)
        low = self.zero if self.has_zero else self.first
        pad = max(0.025 * decades, 0.03)
        self.range = [rounded(math.log10(low) - pad), rounded(math.log10(self.last) + pad)]

    def place(self, step: float) -> float:
        """Return where ``step`` is drawn."""
        return max(step, self.zero)

    def ticks(self) -> dict[float, str]:
        """Return place -> label, at most seven besides 0."""
        found = [tick for tick in log_ticks(self.first, self.last, TICKS) if tick >= 1]
        labels = {self.zero: "0"} if self.has_zero else {}
        return labels | {tick: _short(tick) for tick in found or [self.first, self.last]}

    def axis(self, **more: object) -> dict:
        """Return the axis in plotly's terms."""
        ticks = self.ticks()
        places = {"tickvals": list(ticks), "ticktext": list(ticks.values()), "tickangle": 0}
        return axis(**{"type": "log", "range": self.range, **places, **more})


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers from ``low`` to ``high``, evenly on a logarithmic axis, at most ``most``.

    Example:
        >>> log_ticks(2, 50, 7), log_ticks(2, 50, 3), log_ticks(1, 1e6, 4)
        ([2.0, 5.0, 10.0, 20.0, 50.0], [3.0, 10.0, 30.0], [1.0, 100.0, 10000.0, 1000000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits, stride in [((1, 2, 5), 1), ((1, 3), 1), *(((1,), n) for n in range(1, 400))]:
        powers = (n for n in range(first, last + 1) if n % stride == 0)
        # through text: 3 * 10**-1 is not 0.3
        found = [float(f"{digit}e{n}") for n in powers for digit in digits]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) <= most:
            break
    return found


def _short(step: float) -> str:
    """Return a tick's label: 20000 is 20k."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if step >= size:
            return f"{step / size:g}{unit}"
    return count(step)


def log_thinned(steps: Iterable[int], limit: int) -> list[int]:
    """Return at most about ``limit`` steps, evenly on a logarithmic axis, first and last included.

    Example:
        >>> log_thinned(range(0, 100), 4)
        [0, 3, 9, 31, 99]
    """
    steps = sorted(steps)
    if len(steps) <= limit:
        return steps
    low, high = (math.log1p(step) for step in (steps[0], steps[-1]))
    kept: dict[int, int] = {}
    for step in steps:
        kept.setdefault(int(limit * (math.log1p(step) - low) / (high - low)), step)
    return list(kept.values())
