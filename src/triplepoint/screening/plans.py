"""What the user is about to train, and what a short calibration of it looks like."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from torch import nn

from triplepoint.errors import PlanError
from triplepoint.recipes import Recipe, Schedule, screening_steps, whole_number
from triplepoint.screening.looks import Looks, look_steps

Criterion = Literal["best_checkpoint", "fixed_step"]
CRITERIA: tuple[Criterion, ...] = ("best_checkpoint", "fixed_step")
TIE_MARGIN = 0.005
"""A difference of under 0.5 % of the baseline's loss is a tie."""
ASSUMED_FACTOR = 20
"""Without a stated plan it is 20 times the calibration's steps."""
CALIBRATION_WARMUP = 100
"""Longest warm-up of a calibration: a plan's own may leave it on a percent of the run's clock."""
SHARED_FROM = 500
"""Calibrations of one plan of at least so many steps have one recipe: a shorter one is the beginning of a longer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The training that a screen is to decide about."""

    steps: int
    """Planned optimiser steps."""
    unique_tokens: int | None = None
    """Distinct training tokens; None where unknown, and then no epochs and no T/P."""
    lr: float = 1e-3
    """Planned peak learning rate."""
    batch: int = 8
    """Sequences per step."""
    warmup: int = 100
    """Planned warm-up, steps."""
    schedule: Schedule = "cosine"
    """Planned schedule; its decay ends with the plan."""
    weight_decay: float = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    assumed: bool = False
    """Whether the steps were assumed rather than stated."""

    def recipe(self) -> Recipe:
        """Return the planned training itself.

        Raises:
            PlanError: If a value is out of range.
        """
        return Recipe(
            steps=self.steps, lr=self.lr, batch=self.batch, warmup=self.warmup, schedule=self.schedule,
            weight_decay=self.weight_decay, precision=self.precision,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """A candidate that differs from the baseline in more than its norms.

    ``Arm(weight_decay=1.0)`` is the baseline with stronger decay; ``Arm(op="dyt", lr=3e-4)`` a swap at a
    rate of its own; ``Arm(build=...)`` any other model.
    """

    build: Callable[[int], nn.Module] | None = None
    """``build(seed)`` instead of the baseline's."""
    op: str | None = None
    """Op with or without preset, swapped into what ``build`` returns."""
    lr: float | None = None
    weight_decay: float | None = None
    warmup: int | None = None


def calibration_recipe(plan: Plan, looks: Looks, *, own_schedule: bool = False) -> Recipe:
    """Return the recipe of a calibration that is looked at; its seed and rate are set per arm.

    Warm-up of at most 100 steps, then the planned peak rate held, to the plan's end: the calibration is what is trained
    of it until the last look. So it can be made longer later; of :data:`SHARED_FROM` steps and more, all calibrations
    of a plan have one recipe. Where the plan ends with the calibration it is the plan, schedule and all: then the
    result is measured, not forecast.

    Args:
        plan: What is about to be trained.
        looks: When it is judged; the last is its length.
        own_schedule: Whether it has the plan's warm-up and schedule.

    Raises:
        PlanError: If the plan is shorter than the calibration.
    """
    steps = looks.last
    whole_number("steps", steps)
    whole_number("the plan's steps", plan.steps)
    if plan.steps < steps:
        raise PlanError(
            f"The plan of {plan.steps} steps is shorter than the calibration of {steps}.\n"
            f"Give --steps {plan.steps} or fewer: the calibration then is the plan, and its result is measured."
        )
    whole, measured = plan.recipe(), plan.steps == steps
    own, short = own_schedule or measured, min(steps, SHARED_FROM)
    return dataclasses.replace(
        whole,
        warmup=whole.warmup if own else min(whole.warmup, CALIBRATION_WARMUP, max(1, short // 5)),
        schedule=whole.schedule if own else "constant",
        horizon=plan.steps,
        eval_steps=(
            every_twentieth(steps)
            if measured and looks.steps == (steps,)
            else evaluated_steps(plan.steps, dense=short)
        ),
        average_steps=(screening_steps(short) and screening_steps(plan.steps)) or (short,),
        checkpoint_every=max(1, min(100, short // 2)),
    )


def every_twentieth(steps: int) -> tuple[int, ...]:
    """Return the steps at every twentieth of ``steps``.

    Example:
        >>> every_twentieth(100)[:3], every_twentieth(100)[-1]
        ((5, 10, 15), 100)
    """
    stride = max(1, steps // 20)
    return tuple(range(stride, steps + 1, stride))


def evaluated_steps(last: int, *, dense: int) -> tuple[int, ...]:
    """Return the steps at which a calibration is evaluated, wherever it stops.

    Every twentieth of ``dense`` until there, then with a stride of about a tenth of the step, and at every look.

    Example:
        >>> evaluated_steps(1000, dense=500)[-10:]
        (475, 500, 550, 600, 650, 725, 800, 875, 975, 1000)
    """
    steps = list(every_twentieth(dense))
    stride = steps[0]
    while steps[-1] < last:
        steps.append(steps[-1] + stride * max(1, round(steps[-1] / stride / 10)))
    return tuple(sorted(s for s in {*steps, *look_steps(last)} if s <= last))
