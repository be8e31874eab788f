"""The phase of a live run, from the losses and accuracies told so far."""

from __future__ import annotations

import math
from collections.abc import Mapping

from triplepoint.phases import Judgement, diverged_step, judge_arm, judge_grokking

JUDGED = ("train_loss", "val_loss", "train_accuracy", "val_accuracy")
"""What the phase follows from; only these are kept."""


class LossHistory:
    """Losses at evaluations, and what phase they tell.

    An evaluation is a step at which ``val_loss`` or an accuracy is known. The training loss of one batch is too
    noisy to be judged: what counts is its mean since the evaluation before.

    Args:
        plateau: Cross-entropy of the unigram distribution, nats per token, or None.
        planned_steps: Length of the planned run, or None.
    """

    def __init__(self, *, plateau: float | None, planned_steps: int | None):
        self._plateau, self._planned = plateau, planned_steps
        self._series: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in JUDGED}
        self._sum, self._count = 0.0, 0  # of the training losses since the last evaluation
        self.phase: Judgement | None = None
        """What :meth:`add` last said."""

    def add(self, step: int, losses: Mapping[str, float]) -> Judgement | None:
        """Take down what is known at a step and return the phase, None where nothing tells it."""
        told = {name: float(losses[name]) for name in JUDGED if name in losses}
        if "train_loss" in told:
            self._sum, self._count = self._sum + told.pop("train_loss"), self._count + 1
        if told and self._count:
            told["train_loss"] = self._sum / self._count
            self._sum, self._count = 0.0, 0
        for name, value in told.items():
            self._series[name][0].append(step)
            self._series[name][1].append(value)
        if any(not math.isfinite(value) for value in losses.values()):
            self.phase = Judgement("diverged", f"the loss is not finite at step {step}")
        elif told:
            self.phase = self._judge()
        return self.phase

    def _judge(self) -> Judgement | None:
        steps, train = self._series["train_accuracy"]
        own_steps, val = self._series["val_accuracy"]
        if steps and own_steps == steps:
            return judge_grokking(steps=steps, train_accuracies=train, val_accuracies=val)
        steps, val = self._series["val_loss"]
        if not steps:
            return None
        return judge_arm(
            steps=steps,
            val_losses=val,
            plateau=self._plateau,
            planned_steps=self._planned or math.inf,
            diverged_at=self._diverged_at(),
        )

    def _diverged_at(self) -> int | None:
        if self._plateau is None:
            return None
        steps, train = self._series["train_loss"]
        return diverged_step(steps, train, self._plateau, warmup=0)

    # -- across a restart ------------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """Return everything as lists and numbers."""
        return {
            "losses": {name: [list(part) for part in self._series[name]] for name in JUDGED},
            "since": [self._sum, self._count],
            "phase": None if self.phase is None else list(self.phase),
        }

    def load_state(self, state: Mapping[str, object]) -> None:
        """Take up what :meth:`state` returned."""
        self._series = {name: (list(s), list(v)) for name, (s, v) in state["losses"].items()}
        self._sum, self._count = state["since"]
        self.phase = None if state["phase"] is None else Judgement(*state["phase"])
