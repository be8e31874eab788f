"""How often a detector of collapse is right, and how much sooner than the losses alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from studies.screening_benchmark.collapse_runs import Detector, Watched, patient
from triplepoint.statistics import best_threshold, wilson

Scored = Callable[[Watched, int], float | None]
"""A run and a step -> a number that speaks for a collapse; None where it has none."""
PATIENCES = range(1, 41)
"""Multiples of the baseline's exit step that the loss alone may wait for."""


def less(metric: str) -> Scored:
    """Return a metric with its sign turned: the less of it, the more it speaks for a collapse."""

    def score(run: Watched, step: int) -> float | None:
        value = run.sign(metric, step)
        return None if value is None else -value

    return score


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """What a detector said of the runs that it has a number for."""

    hits: int
    collapsed: int
    false_alarms: int
    others: int

    @classmethod
    def of(cls, said: Sequence[bool | None], runs: Sequence[Watched]) -> Counts:
        """Count answers; None is no answer."""
        known = [(s, run.collapsed) for s, run in zip(said, runs, strict=True) if s is not None]
        truths = [truth for _, truth in known]
        return cls(
            hits=sum(s and y for s, y in known), collapsed=sum(truths),
            false_alarms=sum(s and not y for s, y in known), others=len(truths) - sum(truths),
        )  # fmt: skip

    def row(self) -> str:
        """Return both counts with their intervals, as cells of a table."""
        return f"{share(self.hits, self.collapsed)} | {share(self.false_alarms, self.others)}"


def share(count: int, n: int) -> str:
    """Return ``k of n`` with Wilson's 95 % interval.

    Example:
        >>> share(6, 12)
        '6 of 12 (25-75 %)'
    """
    if not n:
        return "-"
    low, high = wilson(count, n)
    return f"{count} of {n} ({100 * low:.0f}-{100 * high:.0f} %)"


def said_at(detector: Detector, runs: Sequence[Watched], look: int | str) -> Counts:
    """Count what a detector says at a look, or at each run's end."""
    return Counts.of([detector(run, run.steps[-1] if look == "end" else look) for run in runs], runs)  # fmt: skip


def held_out(score: Scored, runs: Sequence[Watched], look: int) -> list[bool | None]:
    """Return what a cut of a score says of the runs on the plateau, fitted on the other groups' runs there.

    The cut is the one of best balanced accuracy; where no other run collapsed, nothing is called.
    """
    values = [score(run, look) for run in runs]
    said: list[bool | None] = []
    cuts: dict[str, float] = {}
    for run, value in zip(runs, values, strict=True):
        if run.group not in cuts:
            known = [
                (v, r.collapsed) for v, r in zip(values, runs, strict=True)
                if v is not None and r.group != run.group and r.on_plateau(look)
            ]  # fmt: skip
            some = any(collapsed for _, collapsed in known)
            cuts[run.group] = best_threshold(*zip(*known, strict=True), balanced=True)[0] if some else math.inf  # fmt: skip
        said.append(None if value is None else run.on_plateau(look) and value > cuts[run.group])
    return said


def first_call(detector: Detector, run: Watched) -> int | None:
    """Return the first evaluation before the planned end at which a run is called; None where it never is."""
    return next((s for s in run.steps if s < run.planned and detector(run, s)), None)


def ever(detector: Detector, runs: Sequence[Watched]) -> Counts:
    """Count the runs that are called at some evaluation before the planned end."""
    called = [
        None if detector(run, run.steps[-1]) is None else first_call(detector, run) is not None
        for run in runs
    ]
    return Counts.of(called, runs)


def ahead(detector: Detector, runs: Sequence[Watched], times: int) -> list[int]:
    """Return the steps by which hits are called before the loss alone calls them, or the plan ends."""
    loss, steps = patient(times), []
    for run in runs:
        called = first_call(detector, run) if run.collapsed else None
        if called is not None:
            told = first_call(loss, run)
            steps.append((run.planned if told is None else told) - called)
    return steps


def patience(runs: Sequence[Watched], allowed: int) -> int | None:
    """Return the least patience at which the loss alone raises no more false alarms; None where none does."""
    return next((k for k in PATIENCES if ever(patient(k), runs).false_alarms <= allowed), None)
