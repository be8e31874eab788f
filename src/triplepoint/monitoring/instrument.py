"""A grokking monitor in the project's own training loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from triplepoint.errors import PlanError
from triplepoint.monitoring.grok import GrokMonitor
from triplepoint.monitoring.networks import outputs_of
from triplepoint.monitoring.quantities import UNITS, Loss
from triplepoint.objectives import Objective
from triplepoint.records import Record


def grok_objective(loss: Loss) -> Objective:
    """Return the training loss that a grokking monitor measures: on ``(X, targets)``, at the last position.

    Args:
        loss: "mse": targets [n, o] as floats. "cross_entropy": labels [n].
    """
    if loss == "mse":
        return Objective(
            lambda output, batch: F.mse_loss(outputs_of(output), batch[1]), unit=UNITS[loss]
        )
    return Objective(
        lambda output, batch: F.cross_entropy(outputs_of(output), batch[1]), unit=UNITS[loss]
    )


class GrokInstrument:
    """What :func:`triplepoint.training.train` asks of whoever measures, answered by a grokking monitor.

    The loop writes ``val_loss`` and ``train_loss`` itself; the monitor adds the rest at the recipe's evaluations.
    :meth:`state` carries the open window, the accuracies so far and the seconds, so that a resumed run has the
    records of an uninterrupted one but for its seconds, and for what a finite budget skips. Full batch: pass
    ``instrument.batches`` and ``instrument.objective`` to ``train``.

    Args:
        monitor: With held-out samples, for the loop keeps the weights of the lowest validation loss.

    Raises:
        PlanError: If the monitor has no held-out samples.
    """

    def __init__(self, monitor: GrokMonitor):
        if monitor.meter.validation is None:
            raise PlanError(
                "The training loop needs a validation loss, and the monitor has no held-out samples.\n"
                "Give GrokMonitor validation=(X, Y), or observe a loop of your own."
            )
        self.monitor = monitor.attach()
        self.objective = grok_objective(monitor.loss)

    @property
    def batches(self) -> Callable[[int], Iterator[tuple[Tensor, Tensor]]]:
        """The whole training set at every step, as ``train`` takes its batches."""
        samples = self.monitor.meter.train
        dtype = next(self.monitor.meter.model.parameters()).dtype
        targets = samples.Y.to(dtype) if self.monitor.loss == "mse" else samples.labels
        return lambda start: itertools.repeat((samples.X, targets))

    def before_step(self, step: int) -> None:
        """Show the monitor the weights of the step before, for its windows."""
        self.monitor.watch(step - 1)

    def after_backward(self, step: int) -> None:
        """Nothing is read from gradients."""

    def before_update(self) -> None:
        """Nothing is read from single updates."""

    def update_records(self, before: None, step: int) -> list[Record]:
        """Return no records."""
        return []

    def evaluate(self, step: int) -> tuple[dict[str, np.ndarray], list[Record]]:
        """Return the loss of each sample, and the records of everything else."""
        records = self.monitor.evaluate(step)
        own = ("train_loss", "val_loss")
        return self.losses(), [record for record in records if record.metric not in own]

    def losses(self) -> dict[str, np.ndarray]:
        """Return ``val_loss`` and ``train_loss`` of each sample."""
        return {k: v.float().cpu().numpy() for k, v in self.monitor.meter.losses().items()}

    def report(self) -> None:
        """There are no samples kept for the report alone."""

    def state(self) -> dict[str, Tensor]:
        """Return what a restart needs."""
        return self.monitor.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        self.monitor.load_state(state)

    def close(self) -> None:
        """Remove the hook."""
        self.monitor.detach()
