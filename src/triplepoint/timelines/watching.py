"""The rules, one observation at a time: what is known of a run up to a step."""

from __future__ import annotations

import math

from triplepoint.phases import CONFIRMATIONS, EXPLODED, MEMORISED, Phase
from triplepoint.timelines.curves import named


class Latch:
    """On after some observations in a row, off after :data:`CONFIRMATIONS` in a row against it."""

    def __init__(self, needed: int = CONFIRMATIONS):
        self.on, self.since = False, math.nan
        self._needed, self._run, self._first = needed, 0, math.nan

    def see(self, step: float, holds: bool) -> None:
        """Take one observation; ``since`` is the first of the row that switched it."""
        if holds == self.on:
            self._run = 0
            return
        self._first = step if self._run == 0 else self._first
        self._run += 1
        if self._run >= (self._needed if holds else CONFIRMATIONS):
            self.on, self.since, self._run = holds, self._first, 0


class Watch:
    """What is known of a run up to a step; its methods are named after the curves."""

    def __init__(self, plateau: float | None, chance: float, margin: float):
        self._plateau, self._half, self._margin = plateau, (1 + chance) / 2, margin
        self._broken, self._blown = Latch(1), Latch()
        self._left, self._over, self._together = Latch(), Latch(), Latch()
        self._memorised, self._learnt = Latch(), Latch()
        self._first_train = self._first_val = self._last_train = self._last_val = math.nan
        self._train_accuracy = self._val_accuracy = math.nan
        self._best, self._best_step, self._been_below = math.inf, math.nan, False
        self._between: list[float] = []
        self._mean = self._mean_at_best = math.nan

    def train_loss(self, step: float, x: float) -> None:
        """Take a training loss."""
        self._broken.see(step, not math.isfinite(x))
        if not math.isfinite(x):
            return
        self._first_train = x if math.isnan(self._first_train) else self._first_train
        self._last_train = x
        self._between.append(x)
        if self._plateau is not None:
            back = self._been_below and x > self._plateau + self._margin
            exploded = x > max(self._plateau, self._first_train) + EXPLODED
            self._blown.see(step, back or exploded)
            self._been_below = self._been_below or x < self._plateau

    def val_loss(self, step: float, x: float) -> None:
        """Take a validation loss."""
        self._broken.see(step, not math.isfinite(x))
        if not math.isfinite(x):
            return
        self._first_val = x if math.isnan(self._first_val) else self._first_val
        self._last_val = x
        self._left.see(step, x < self._level() - self._margin)
        # a single batch is too noisy to say whether the training loss has risen
        if self._between:
            self._mean = math.fsum(self._between) / len(self._between)
            self._between.clear()
        if x < self._best:
            self._best, self._best_step, self._mean_at_best = x, step, self._mean
        above = x >= self._best + self._margin
        risen = self._mean > self._mean_at_best + self._margin
        self._over.see(step, above and not risen)
        self._together.see(step, above and risen)

    def train_accuracy(self, step: float, x: float) -> None:
        """Take an accuracy on training samples, a share."""
        self._train_accuracy = x
        self._memorised.see(step, x >= MEMORISED)

    def val_accuracy(self, step: float, x: float) -> None:
        """Take an accuracy on held-out samples, a share."""
        self._val_accuracy = x
        self._learnt.see(step, x >= self._half)

    def _level(self) -> float:
        return self._first_val if self._plateau is None else self._plateau

    def _by_accuracy(self) -> bool:
        """Whether accuracies tell the phase: without those of held-out samples only where no loss is better."""
        known = not math.isnan(self._train_accuracy)
        return known and not (math.isnan(self._val_accuracy) and self._best < math.inf)

    def phase(self) -> Phase | None:
        """Return the phase so far."""
        if self._broken.on or self._blown.on:
            return "diverged"
        if self._by_accuracy():
            if self._learnt.on:
                return "generalising"
            return "memorised" if self._memorised.on else "fitting"
        if self._over.on:
            return "overfitting"
        if self._together.on:
            return None
        return "generalising" if self._left.on else "fitting"

    def reason(self) -> str:
        """Return the sentence that says why."""
        if self._broken.on:
            return f"the loss is not finite at step {named(self._broken.since)}"
        if self._blown.on:
            return (
                f"training loss {self._last_train:.3f}, above a guess that ignores the input "
                f"({self._plateau:.3f}) since step {named(self._blown.since)}"
            )
        return self._accuracy_reason() if self._by_accuracy() else self._loss_reason()

    def _accuracy_reason(self) -> str:
        if self._learnt.on:
            return f"validation accuracy {self._half:.2f} or more since step {named(self._learnt.since)}"
        if not self._memorised.on:
            return f"train accuracy {self._train_accuracy:.3f}, not {CONFIRMATIONS} evaluations in a row at {MEMORISED}"
        held_out = (
            "no held-out samples to tell whether it generalises"
            if math.isnan(self._val_accuracy)
            else f"validation accuracy {self._val_accuracy:.3f}"
        )
        return f"train accuracy {MEMORISED} or more since step {named(self._memorised.since)}, {held_out}"

    def _loss_reason(self) -> str:
        if self._best == math.inf:
            return f"training loss {self._last_train:.3f}; no validation loss to tell more"
        best = f"its best, {self._best:.3f} at step {named(self._best_step)}"
        if self._over.on:
            return f"validation loss {self._margin:g} or more above {best}, since step {named(self._over.since)}"
        if self._together.on:
            return (
                f"validation loss {self._margin:g} or more above {best}, but training loss has risen as well: "
                "no over-fitting"
            )
        if self._left.on and self._left.since < max(self._over.since, self._together.since):
            return f"validation loss {self._last_val:.3f}, back within {self._margin:g} of {best}"
        level = "its first value" if self._plateau is None else "the plateau"
        below = f"more than {self._margin:g} below {level}, {self._level():.3f}"
        if self._left.on:
            return f"validation loss {below}, since step {named(self._left.since)}"
        return f"validation loss {self._last_val:.3f}, not {CONFIRMATIONS} evaluations in a row {below}"
