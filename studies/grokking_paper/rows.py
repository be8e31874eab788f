"""Trajectories as records and back.

Symbols: ``t`` slow time, ``sse`` sum of squared errors on the training samples, ``W1_sq`` and
``W2_sq`` the squared norms of the layers, whose product is the square of ``C``. Isolated flows without
decay have ``sse`` 0 by identity; only the paper's runs have it measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from triplepoint.grokking import Point
from triplepoint.records import Record

POINT = ("t", "sse", "W1_sq", "W2_sq", "train_accuracy", "test_accuracy")
"""What is kept of a point besides its step: the metrics of the records."""


def point_records(points: Iterable[Point], arm: str, seed: int) -> list[Record]:
    """Return the records of a trajectory, one for each point and quantity."""
    return [
        Record(metric=name, value=getattr(point, name), step=point.step, arm=arm, seed=seed)
        for point in points
        for name in POINT
    ]


def read_points(records: Sequence[Record], arm: str) -> list[Point]:
    """Return the trajectory of one arm, by step; empty where there is none."""
    by_step: dict[int, dict[str, float]] = {}
    for r in records:
        if r.arm == arm and r.metric in POINT and r.step is not None:
            by_step.setdefault(r.step, {})[r.metric] = r.value
    return [Point(step=step, **by_step[step]) for step in sorted(by_step)]


def first_at(points: Sequence[Point], test_accuracy: float) -> Point | None:
    """Return the first recorded point at that test accuracy; None is "not within this run"."""
    return next((p for p in points if p.test_accuracy >= test_accuracy), None)


def last_below(points: Sequence[Point], test_accuracy: float) -> Point | None:
    """Return the last recorded point below that test accuracy, None where there is none."""
    return next((p for p in reversed(points) if p.test_accuracy < test_accuracy), None)
