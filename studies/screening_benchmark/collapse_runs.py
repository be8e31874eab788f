"""Stored runs as a detector of collapse sees them: step by step, beside the baseline of the same place.

A run *collapsed* where its validation loss never left the unigram plateau and is still there at the planned end. Frozen
alphas and blind predictions are no part of this truth: whether they tell it early is what is asked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from triplepoint.phases import MARGIN, Judgement, judge_arm, plateau_exit_step
from triplepoint.screening.learning import StoredRun

SIGNS = ("alpha_drift_std", "prediction_kl", "saturation@2", "s1")
"""What a detector may read beside the loss, and the clock; saturation as the mean over sites."""
SATURATED = 0.5
"""Share from which arXiv 2604.23434 calls a run collapsed."""
SHARP_KL = 0.001
"""Nats below which :func:`earlier_form` called predictions equal."""
SHARP_DRIFT = 0.02
"""Below which it called alphas frozen."""


class Exit(NamedTuple):
    """When a run left the plateau, and the evaluation that confirmed it."""

    step: float
    known_at: float


NEVER = Exit(math.inf, math.inf)


def exit_of(steps: Sequence[int], val: Sequence[float], plateau: float) -> Exit:
    """Return when a run left, and from when on that is known; infinite where it did not.

    Example:
        >>> exit_of([25, 50, 75, 100], [3.0, 2.9, 2.8, 2.7], 3.0)
        Exit(step=50, known_at=100)
    """
    for seen in range(1, len(steps) + 1):
        found = plateau_exit_step(steps[:seen], val[:seen], plateau)
        if found is not None:
            return Exit(found, steps[seen - 1])
    return NEVER


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Watched:
    """One run that is not its place's baseline. Losses in nats per token."""

    name: str
    family: str
    group: str
    """Model, its changes and its data: runs of one group are left out together."""
    planned: int
    steps: Sequence[int]
    val: Sequence[float]
    plateau: float
    signs: Mapping[str, Mapping[int, float]]
    """Metric -> step -> value."""
    diverged_at: int | None
    exit: Exit
    baseline: Exit
    """Of its slowest seed, as a screen takes it; infinite unless all seeds left."""

    @property
    def collapsed(self) -> bool:
        """Whether it never left the plateau and ended there."""
        return self.exit == NEVER and self.val[-1] >= self.plateau - MARGIN

    def seen(self, step: int) -> int:
        """Return how many evaluations there are up to a step."""
        return int(np.searchsorted(self.steps, step, side="right"))

    def sign(self, metric: str, step: int) -> float | None:
        """Return a metric at the last evaluation up to a step; None where the op has no such number."""
        return self.signs[metric].get(self.steps[self.seen(step) - 1])

    def clock_left(self, step: int) -> float:
        """Return the share of the plan's cumulative learning rate that is still to come."""
        return 1 - self.sign("s1", step) / self.signs["s1"][self.steps[-1]]

    def on_plateau(self, step: int) -> bool:
        """Whether it is on the plateau at a step and the baseline is known to have left: what the losses tell."""
        below = self.val[self.seen(step) - 1] < self.plateau - MARGIN
        return self.baseline.known_at <= step < self.exit.known_at and not below

    def judged(self, step: int) -> Judgement:
        """Return what the library says at a step."""
        seen = self.seen(step)
        gone = self.diverged_at is not None and self.diverged_at <= step
        return judge_arm(
            steps=self.steps[:seen], val_losses=self.val[:seen], plateau=self.plateau, planned_steps=self.planned,
            diverged_at=self.diverged_at if gone else None,
            baseline_exit=int(self.baseline.step) if self.baseline.known_at <= step else None,
            alpha_drift_std=self.sign("alpha_drift_std", step), prediction_kl=self.sign("prediction_kl", step),
        )  # fmt: skip


Detector = Callable[[Watched, int], bool | None]
"""A run and a step -> whether it is called collapsed; None where the number is missing."""


def library(run: Watched, step: int) -> bool:
    """Call it where the library says stalled or collapsed."""
    return run.judged(step).phase in ("stalled", "collapsed")


def collapsed_alone(run: Watched, step: int) -> bool:
    """Call it only where the library says collapsed: that there is no time left to expect an escape."""
    return run.judged(step).phase == "collapsed"


def earlier_form(run: Watched, step: int) -> bool:
    """Call it as the library did before: alphas alone where there are any, and an exit only once it is confirmed."""
    drift, kl = run.sign("alpha_drift_std", step), run.sign("prediction_kl", step)
    frozen = kl is not None and kl < SHARP_KL if drift is None else drift < SHARP_DRIFT
    return run.baseline.known_at <= step < run.exit.known_at and frozen


def blind(cut: float) -> Detector:
    """Call it where it is on the plateau with a prediction KL below a cut: the library's form, its cut left free."""

    def says(run: Watched, step: int) -> bool:
        value = run.sign("prediction_kl", step)
        return run.on_plateau(step) and value is not None and value < cut

    return says


def below(metric: str, cut: float) -> Detector:
    """Call it where a number is below a cut, whatever the losses say."""

    def says(run: Watched, step: int) -> bool | None:
        value = run.sign(metric, step)
        return None if value is None else value < cut

    return says


def saturated(run: Watched, step: int) -> bool | None:
    """Call it where at least half of the arguments are saturated."""
    value = run.sign("saturation@2", step)
    return None if value is None else value >= SATURATED


def patient(times: float) -> Detector:
    """Call it where it is on the plateau at ``times`` the baseline's exit step."""
    return lambda run, step: run.on_plateau(step) and step >= times * run.baseline.step


def watched(runs: Iterable[StoredRun]) -> Iterator[Watched]:
    """Yield every run whose place has a baseline at the same rate."""
    runs = list(runs)
    baselines: dict[tuple, list[StoredRun]] = {}
    for run in runs:
        if run.is_baseline:
            baselines.setdefault((run.place, run.lr), []).append(run)
    exits = {place: max(map(_exit, found)) for place, found in baselines.items()}
    for run in runs:
        if not run.is_baseline and (run.place, run.lr) in exits:
            yield _watched(run, exits[run.place, run.lr])


def _curve(run: StoredRun) -> tuple[list[int], list[float]]:
    return run.arrays["eval_steps"].tolist(), run.arrays["val_loss"].astype(float).mean(axis=1).tolist()  # fmt: skip


def _exit(run: StoredRun) -> Exit:
    if run.facts.get("diverged_at") is not None:
        return NEVER
    return exit_of(*_curve(run), run.facts["plateau"]["val"])


def _watched(run: StoredRun, baseline: Exit) -> Watched:
    steps, val = _curve(run)
    size, data, *_, changes = run.place
    return Watched(
        name=run.name, family=size.partition("-")[0], group=f"{size} {data} {changes}", planned=run.recipe["steps"],
        steps=steps, val=val, plateau=run.facts["plateau"]["val"], signs=_signs(run),
        diverged_at=run.facts.get("diverged_at"), exit=exit_of(steps, val, run.facts["plateau"]["val"]), baseline=baseline,
    )  # fmt: skip


def _signs(run: StoredRun) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, list[float]]] = {metric: {} for metric in SIGNS}
    for record in run.records:
        if record.metric in values and record.step is not None and record.endpoint is None:
            values[record.metric].setdefault(record.step, []).append(record.value)
    return {metric: {step: float(np.mean(v)) for step, v in of.items()} for metric, of in values.items()}  # fmt: skip
