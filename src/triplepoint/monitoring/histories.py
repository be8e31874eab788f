"""When a run memorised and generalised: in steps, in slow time and in seconds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from triplepoint.phases import Crossing, Judgement, grokking_times, judge_grokking


class Clock(Protocol):
    """Steps -> slow time; :class:`triplepoint.grokking.slow_time.SlowClock` is one."""

    lam: float | None
    """Weight of ||theta||^2 beside the SUM of squares; None where the optimiser has none (AdamW)."""

    def slow_time(self, steps: int | float) -> float: ...  # noqa: D102


class Stopwatch:
    """Wall seconds of a run, and how many of them its monitor took. Adds up over restarts.

    Args:
        timer: Returns seconds; differences count.
    """

    def __init__(self, timer: Callable[[], float]):
        self._timer = timer
        self._start = timer()
        self._before = 0.0
        self.own = 0.0
        """Seconds spent under :meth:`measuring`."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start, the monitor's among them."""
        return self._before + self._timer() - self._start

    @property
    def training(self) -> float:
        """Seconds since the start, without the monitor's."""
        return self.elapsed - self.own

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Count what happens inside as the monitor's; not to be nested."""
        start = self._timer()
        try:
            yield
        finally:
            self.own += self._timer() - start

    def state(self) -> Tensor:
        """Return what a restart needs."""
        return torch.tensor([self.elapsed, self.own], dtype=torch.float64)

    def load_state(self, state: Tensor) -> None:
        """Take up what :meth:`state` returned."""
        self._before, self.own = state.tolist()
        self._start = self._timer()


class History:
    """The accuracies of a run so far, and the clocks at each evaluation."""

    def __init__(self, *, chance: float, validated: bool):
        self._chance, self._validated = chance, validated
        self._rows: list[tuple[float, ...]] = []  # step, train, val, slow time, seconds

    def add(
        self, step: int, train: float, val: float | None, *, slow: float | None, seconds: float
    ) -> dict[str, int]:
        """Take down an evaluation; returns the times that it confirms, e.g. ``{"T_mem": 300}``.

        One at a step that is not behind the last replaces what was from there on: the same weights looked at
        twice are no second confirmation, and a run may be set back.
        """
        known = self.crossings()
        while self._rows and self._rows[-1][0] >= step:
            self._rows.pop()
        self._rows.append(
            (step, train, *(math.nan if x is None else x for x in (val, slow)), seconds)
        )
        return {
            name: found.step
            for name, found in self.crossings().items()
            if found.step is not None and found.step != known[name].step
        }

    def crossings(self) -> dict[str, Crossing]:
        """Return the times in steps."""
        steps, train, val = self._series()
        return grokking_times(steps, train, val)

    def times(self) -> dict[str, dict[str, float | int | None]]:
        """Return the times as a manifest has them: step or censored_at, slow time and seconds of the step."""
        clocks = {row[0]: row[3:] for row in self._rows}
        found = {}
        for name, crossing in self.crossings().items():
            slow, seconds = clocks.get(crossing.step, (math.nan, math.nan))
            found[name] = {
                **crossing._asdict(),
                "slow_time": None if math.isnan(slow) else slow,
                "seconds": None if math.isnan(seconds) else seconds,
            }
        return found

    def judge(self, *, zero_loss_share: float) -> Judgement:
        """Return the phase at the last evaluation."""
        steps, train, val = self._series()
        return judge_grokking(
            steps=steps, train_accuracies=train, val_accuracies=val, chance=self._chance,
            zero_loss_share=zero_loss_share,
        )  # fmt: skip

    def _series(self) -> tuple[list[int], list[float], list[float] | None]:
        val = [row[2] for row in self._rows] if self._validated else None
        return [int(row[0]) for row in self._rows], [row[1] for row in self._rows], val

    def state(self) -> Tensor:
        """Return what a restart needs."""
        return torch.tensor(self._rows, dtype=torch.float64).reshape(-1, 5)

    def load_state(self, state: Tensor) -> None:
        """Take up what :meth:`state` returned."""
        self._rows = [tuple(row) for row in state.tolist()]
