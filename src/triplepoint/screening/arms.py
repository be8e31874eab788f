"""The runs of one arm of a screen, and what they have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from triplepoint.records import Record
from triplepoint.sweeps import ArmRun


@dataclasses.dataclass(frozen=True)
class Arms:
    """All runs of one arm, one per seed, and what they have in common."""

    name: str
    runs: tuple[ArmRun, ...]
    op: str
    preset: str | None
    lr: float

    @property
    def steps(self) -> list[int]:
        """Steps of the evaluations that all seeds have."""
        shortest = min(self.runs, key=lambda r: len(r.arrays["eval_steps"]))
        return [int(s) for s in shortest.arrays["eval_steps"]]

    def losses(self, name: str) -> np.ndarray:
        """Return losses [seed, evaluation, window]."""
        return np.stack([r.arrays[name][: len(self.steps)] for r in self.runs]).astype(np.float64)

    def curve(self, name: str) -> np.ndarray:
        """Return the mean loss over seeds and windows, per evaluation."""
        return self.losses(name).mean(axis=(0, 2))

    def clock(self) -> np.ndarray:
        """Return S1, the cumulative learning rate, at the evaluations."""
        steps, values = self.runs[0].series("s1")
        return np.interp(self.steps, steps, values)

    def averaged(self) -> tuple[list[int], np.ndarray]:
        """Return the steps at which averaged weights were measured, and their losses [seed, step, window]."""
        each = [r.arrays.get("val_loss_ema", np.empty((0, 1))) for r in self.runs]
        count = min(len(losses) for losses in each)
        steps = [int(s) for s in self.runs[0].arrays.get("average_steps", [])[:count]]
        return steps, np.stack([losses[:count] for losses in each]).astype(np.float64)

    def mean_of(self, metric: str, **where: object) -> float | None:
        """Return the mean over seeds (and sites) of a metric's last records."""
        return _mean([v for run in self.runs for v in last_values(run.records, metric, **where)])

    def diverged_at(self) -> int | None:
        """Return the first step at which any seed diverged."""
        return min((r.diverged_at for r in self.runs if r.diverged_at is not None), default=None)


def last_values(
    records: Sequence[Record], metric: str, *, endpoint: str | None = None
) -> list[float]:
    """Return a metric's values at its last step: one for the whole model, or one per site."""
    rows = [r for r in records if r.metric == metric and r.endpoint == endpoint]
    last = max((r.step for r in rows), default=None)
    return [r.value for r in rows if r.step == last]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
