"""Records of a cell -> curves, and when they reach a level for good."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from triplepoint.grokking.forecast import leave_one_out, median_ratio
from triplepoint.phases import crossing_step
from triplepoint.records import Record

Curve = dict[int, float]
"""Step -> value, in the order of steps."""


@dataclasses.dataclass(frozen=True)
class Curves:
    """What was evaluated along one run, or along one isolated flow."""

    of: dict[str, Curve]
    memorised_at: int | None = None
    """Step of the evaluation at which memorisation was certain."""

    def when(self, metric: str, goal: float) -> int | None:
        """Step of the first of three evaluations in a row at the goal; None: not within the run."""
        return crossing_step(list(self.of[metric]), list(self.of[metric].values()), goal).step

    def at(self, metric: str, step: int | None) -> float | None:
        """Value at that step; None for no step, or where the metric does not apply."""
        return None if step is None else self.of.get(metric, {}).get(step)

    @property
    def last(self) -> int:
        """Last step evaluated."""
        return list(self.of["val_accuracy"])[-1]


def curves_of(rows: Iterable[Record], arm: str | None = None) -> Curves:
    """Collect the records of one arm; None is the AdamW run itself."""
    of: dict[str, Curve] = {}
    memorised_at = None
    for r in rows:
        if r.metric == "T_mem":
            memorised_at = (
                r.step
            )  # of the evaluation that confirmed it; its value is the first of the three
        elif r.arm == arm and r.step is not None:
            of.setdefault(r.metric, {})[r.step] = r.value
    return Curves(of=of, memorised_at=memorised_at)


@dataclasses.dataclass(frozen=True)
class Lag:
    """One run seen by the fast-forward law: remaining slow time = lag * that of the isolated flow."""

    name: str
    isolated_t: float
    """Slow time that the isolated flow needs from the memorised checkpoint to 99 % held out."""
    real_t: float
    """Slow time that AdamW really needed from there, lr * weight decay * steps."""
    slow_time_per_step: float

    @property
    def lag(self) -> float:
        """How many times longer the real run took."""
        return self.real_t / self.isolated_t


def forecast_errors(runs: Sequence[Lag]) -> dict[str, tuple[float, ...]]:
    """Absolute relative errors of the remaining steps, each run forecast from the others.

    A share of the slow time is the same share of the steps, so the laws are scored side by side.

    Returns:
        Per law: ``fast_forward`` (median lag of the others), ``median_slow_time`` (always their median
        slow time), ``median_steps`` (always their median number of steps).

    Example:
        >>> runs = [Lag(str(t), t, 2 * t, 0.1) for t in (1.0, 2.0, 3.0)]  # a lag of exactly 2
        >>> forecast_errors(runs)["fast_forward"]
        (0.0, 0.0, 0.0)
    """
    in_slow_time = leave_one_out([(run.isolated_t, run.real_t) for run in runs], median_ratio)
    in_steps = leave_one_out(
        [(run.isolated_t, run.real_t / run.slow_time_per_step) for run in runs], median_ratio
    )
    return {
        "fast_forward": in_slow_time.law_errors,
        "median_slow_time": in_slow_time.median_errors,
        "median_steps": in_steps.median_errors,
    }
