"""How a run is trained: hyperparameters with unit and source, schedules and clocks. No torch."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from triplepoint.errors import PlanError

Schedule = Literal["cosine", "constant"]
SCHEDULES: tuple[Schedule, ...] = ("cosine", "constant")
MOST_SEQUENCES = 1_000_000
"""A larger batch is a slip of the finger, and would take all the machine's memory before it failed."""
LEAST_RATE = 1e-12
"""Below it a float32 weight of ordinary size does not change at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyperparameters of one training run.

    Raises:
        PlanError: If a value lies outside its range.
    """

    steps: int
    """Optimiser steps."""
    batch: int = 8
    """Sequences per step, over all processes."""
    lr: float = 1e-3
    """Peak learning rate; 1e-3 suits byte models below 3M parameters."""
    warmup: int = 100
    """Steps of linear warm-up from lr/warmup to lr."""
    schedule: Schedule = "cosine"
    """After warm-up: cosine to ``min_lr_ratio * lr`` at ``horizon``, or constant."""
    horizon: int | None = None
    """Step at which the cosine ends; None for ``steps``."""
    min_lr_ratio: float = 0.1
    """nanoGPT's: cosine to a tenth of the peak."""
    weight_decay: float = 0.1
    """AdamW's, on matrices only: alpha, gains, biases, shifts and scales are not decayed."""
    betas: tuple[float, float] = (0.9, 0.95)
    """nanoGPT's."""
    clip: float = 1.0
    """Largest gradient norm; 0 for no clipping."""
    seed: int = 0
    """Seeds initial weights, batch order and dropout, each its own generator."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """``bf16`` is autocast with float32 weights."""
    eval_steps: tuple[int, ...] = ()
    """Steps at which losses and sites are measured; the last step always is."""
    average_steps: tuple[int, ...] = ()
    """Evaluations at which the averaged weights are measured as well; empty: no average is kept."""
    sample_every: int = 10
    """Sample training batches for the ``batch_...`` metrics every so many steps; 0 for never."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 for one at the end only."""

    def __post_init__(self):
        for name in ("steps", "batch"):
            whole_number(name, getattr(self, name))
            _at_least(name, getattr(self, name), 1)
        if self.batch > MOST_SEQUENCES:
            raise PlanError(
                f"batch must be at most {MOST_SEQUENCES} sequences, got {self.batch}.\nTry --batch 8."
            )
        for name in ("warmup", "weight_decay", "clip", "sample_every", "checkpoint_every"):
            _at_least(name, getattr(self, name), 0)
        if not (math.isfinite(self.lr) and self.lr >= LEAST_RATE):
            raise PlanError(
                f"The learning rate must be positive and finite, at least {LEAST_RATE:g}, got {self.lr}.\nTry --lr 1e-3."
            )
        if not 0 <= self.seed < 2**63:
            raise PlanError(f"A seed lies in [0, 2^63), got {self.seed}.\nTry --seed 0.")
        if not 0 <= self.min_lr_ratio <= 1:
            raise PlanError(
                f"min_lr_ratio must lie in [0, 1], got {self.min_lr_ratio}.\nTry 0.1, nanoGPT's."
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise PlanError(f"AdamW's betas lie in [0, 1), got {self.betas}.\nTry (0.9, 0.95).")
        if self.horizon is not None:
            _at_least("horizon", self.horizon, 1)
        if self.schedule not in SCHEDULES:
            raise PlanError(
                f"There is no schedule '{self.schedule}'.\nKnown: {', '.join(SCHEDULES)}."
            )
        if self.precision not in ("fp32", "bf16"):
            raise PlanError(f"There is no precision '{self.precision}'.\nKnown: fp32, bf16.")

    @property
    def evaluations(self) -> tuple[int, ...]:
        """Steps of all evaluations, ascending, the last step included."""
        wanted = {s for s in (*self.eval_steps, *self.average_steps) if 1 <= s <= self.steps}
        return tuple(sorted(wanted | {self.steps}))

    def lr_at(self, step: int) -> float:
        """Return the learning rate of the ``step``-th update, counted from 1.

        Example:
            >>> recipe = Recipe(steps=300, lr=1.0, warmup=100)
            >>> recipe.lr_at(50), recipe.lr_at(100), round(recipe.lr_at(300), 6)
            (0.5, 1.0, 0.1)
        """
        if step <= self.warmup:
            return self.lr * step / self.warmup
        if self.schedule == "constant":
            return self.lr
        length = max((self.horizon or self.steps) - self.warmup, 1)
        progress = min((step - self.warmup) / length, 1.0)
        low = self.min_lr_ratio * self.lr
        return low + (self.lr - low) * (1 + math.cos(math.pi * progress)) / 2

    def s1_at(self, step: int) -> float:
        """Return the cumulative learning rate after ``step`` updates, the clock S1.

        Example:
            >>> Recipe(steps=10, lr=0.5, warmup=0, schedule="constant").s1_at(4)
            2.0
        """
        rising = min(step, self.warmup)
        total = self.lr * rising * (rising + 1) / 2 / max(self.warmup, 1)
        after = step - rising
        if self.schedule == "constant":
            return total + self.lr * after
        length = max((self.horizon or self.steps) - self.warmup, 1)
        falling, low = min(after, length), self.min_lr_ratio * self.lr
        # the sum of cos(k x) over k = 1..n is sin(n x / 2) cos((n + 1) x / 2) / sin(x / 2)
        half = math.pi / length / 2
        cosines = math.sin(falling * half) * math.cos((falling + 1) * half) / math.sin(half)
        return total + low * after + (self.lr - low) * (falling + cosines) / 2


def whole_number(name: str, value: object) -> None:
    """Raise :class:`PlanError` unless ``value`` is an int."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(f"{name} must be a whole number, got {value!r}.\nTry {name}=500.")


def _at_least(name: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise PlanError(
            f"{name} must be at least {least} and finite, got {value}.\n"
            f"Give another --{name.replace('_', '-')}."
        )


def screening_steps(last: int) -> tuple[int, ...]:
    """Return the steps at which a screen looks: 25, 50, 100, 175, 250, 375, 500, 700, 1000, then x 1.4.

    Example:
        >>> screening_steps(500)
        (25, 50, 100, 175, 250, 375, 500)
    """
    steps = [25, 50, 100, 175, 250, 375, 500, 700, 1000]
    while steps[-1] < last:
        steps.append(round(steps[-1] * 1.4 / 100) * 100)
    return tuple(s for s in steps if s <= last)
