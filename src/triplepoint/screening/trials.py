"""The paired calibrations of a screen: which there are, and each arm's rate."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from triplepoint.recipes import Recipe
from triplepoint.runs import identity_of
from triplepoint.screening.arms import Arms
from triplepoint.screening.candidates import Candidates
from triplepoint.screening.plans import Arm
from triplepoint.sweeps import ArmRun

RATE_GRID = (1 / 3, 1.0, 3.0)
"""Factors of the planned rate that each arm tries with ``lr_grid``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One calibration to run: an arm at a rate with a seed."""

    arm: str
    recipe: Recipe
    until: int | None = None
    """Step at which it stops for now; None for the recipe's last."""

    @property
    def last(self) -> int:
        """Step at which it stops."""
        return self.recipe.steps if self.until is None else self.until

    def folder(self, root: Path) -> Path:
        """Return where it runs under a screen's folder."""
        return (
            root
            / "arms"
            / _slug(self.arm)
            / f"lr-{self.recipe.lr:.3g}"
            / f"seed-{self.recipe.seed}"
        )


def _slug(arm: str) -> str:
    """Return a folder name for an arm: its own, or what is left of it and a hash to tell it from its like."""
    kept = re.sub(r"[^a-zA-Z0-9_-]+", "-", arm)
    plain = re.fullmatch(r"[a-zA-Z0-9_]+(:[a-zA-Z0-9_]+)?", arm)
    return kept if plain else f"{kept}-{identity_of({'arm': arm})[:6]}"


RunTrials = Callable[[Sequence[Trial]], list[ArmRun]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The arms of a screen, trained to one step."""

    arms: dict[str, Arms]
    """By name, baseline first."""
    trained_steps: int
    """Of all arms, seeds and rates together."""
    notes: list[str]
    """What there is to say about the rates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """What is trained: every arm with every seed, at one rate or at the best of a few."""

    candidates: Candidates
    base: Recipe
    seeds: int
    lr_grid: bool

    def run(self, run_trials: RunTrials, *, until: int) -> Calibrated:
        """Train all arms to step ``until`` and choose the rate of each."""
        rest = range(1, self.seeds)
        if not self.lr_grid:  # all at once, so that no worker waits
            trials = [self._trial(name, s, until) for s in (0, *rest) for name in self._arms]
            return self._calibrated(run_trials(trials), {}, [])
        done = run_trials(
            [self._trial(name, 0, until, factor=f) for name in self._arms for f in RATE_GRID]
        )
        rates, notes = self._chosen(done)
        done += run_trials(
            [self._trial(name, s, until, lr=rates[name]) for s in rest for name in self._arms]
        )
        return self._calibrated(done, rates, notes)

    @property
    def _arms(self) -> dict[str, Arm]:
        return {self.candidates.baseline: Arm(), **self.candidates.arms}

    def _trial(
        self, name: str, seed: int, until: int, *, factor: float = 1.0, lr: float | None = None
    ) -> Trial:
        recipe = _recipe_of(self._arms[name], self.base, seed=seed, factor=factor)
        if lr is not None:
            recipe = dataclasses.replace(recipe, lr=lr)
        return Trial(arm=name, recipe=recipe, until=until)

    def _chosen(self, done: Sequence[ArmRun]) -> tuple[dict[str, float], list[str]]:
        """Return the best rate of each arm, and a note where a wider grid may have a better one."""
        rates, notes = {}, []
        for name in self._arms:
            tried = [run for run in done if run.arm == name]
            best = min(tried, key=_rate_score)
            rates[name] = _rate_of(best)
            if best in (tried[0], tried[-1]):
                notes.append(
                    f"{name}: its best rate {rates[name]:.2g} is at the edge of the grid; a wider one may be better."
                )
        return rates, notes

    def _calibrated(
        self, done: Sequence[ArmRun], rates: dict[str, float], notes: list[str]
    ) -> Calibrated:
        arms = {}
        for name in self._arms:
            runs = [
                r for r in done if r.arm == name and _rate_of(r) == rates.get(name, _rate_of(r))
            ]
            arms[name] = Arms(name, tuple(runs), *self.candidates.op_of(name), _rate_of(runs[0]))
        return Calibrated(arms=arms, trained_steps=sum(r.last_step for r in done), notes=notes)


def _rate_of(run: ArmRun) -> float:
    return float(run.facts["asked"]["recipe"]["lr"])


def _recipe_of(arm: Arm, base: Recipe, *, seed: int, factor: float) -> Recipe:
    return dataclasses.replace(
        base,
        seed=seed,
        lr=(arm.lr or base.lr) * factor,
        weight_decay=base.weight_decay if arm.weight_decay is None else arm.weight_decay,
        warmup=base.warmup if arm.warmup is None else arm.warmup,
    )


def _rate_score(run: ArmRun) -> float:
    """Return the averaged weights' last validation loss, by which an arm's rate is chosen; inf if it diverged."""
    if run.outcome == "diverged":
        return math.inf
    score = run.last("val_loss_ema")
    return run.last("val_loss") if score is None else score


def spent_seconds(arms: Iterable[Arms], wall: float) -> float:
    """Return the seconds of training that the answer cost: those of the arms where this call only read them."""
    trained = sum(
        (a.mean_of("step_wall_time") or 0.0) * sum(r.last_step for r in a.runs) for a in arms
    )
    return max(trained, wall)
