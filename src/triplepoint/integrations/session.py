"""A monitor in somebody else's loop: what every integration shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from triplepoint.integrations.trackers import Tracker, open_tracker
from triplepoint.logbook import Logbook, PhaseLine
from triplepoint.monitoring import Monitor
from triplepoint.optimisation import warn_of_optimizer
from triplepoint.phases import Judgement

LOGBOOK = "triplepoint.jsonl"
"""Name of the file in a run's output folder; :func:`triplepoint.logbook.read_logbook` reads it."""


class Session:
    """Observes a run and writes what was seen: to a logbook always, to trackers where some are named.

    In a loop of your own, use it as a context manager, or call :meth:`close`.

    Args:
        monitor: Of the model, not attached yet.
        path: The logbook; ``triplepoint.jsonl`` in it where it is a folder.
        step: Optimiser steps done: 0, or those of the checkpoint that the run goes on from.
        trackers: ``tensorboard``, ``wandb`` or ``mlflow``, or trackers of ``accelerate.tracking`` that were started.
        optimizers: Of the run, if you want to be warned of one that an op is reported to go badly with.
        writes: False on the other ranks of a run on several processes.

    Example:
        >>> import tempfile, torch
        >>> from triplepoint.ops import DyT
        >>> model = torch.nn.Sequential(DyT(2, alpha=1.0))
        >>> with Session(Monitor(model, ["input_rms"]), tempfile.mkdtemp()) as session:
        ...     _ = model(torch.tensor([[3.0, 4.0]]))
        ...     _ = session.observe(1, val_loss=0.5)
        >>> session.path.read_text().splitlines()[-1]
        '{"step": 1, "phase": "generalising", "reason": "validation loss 0.500"}'
    """

    def __init__(
        self,
        monitor: Monitor,
        path: str | Path,
        *,
        step: int = 0,
        trackers: Sequence[str | Any] = (),
        optimizers: Sequence[Optimizer] = (),
        writes: bool = True,
    ):
        for optimizer in optimizers:
            warn_of_optimizer(monitor.model, optimizer)
        self.monitor = monitor
        self.path = Path(path) / LOGBOOK if Path(path).suffix != ".jsonl" else Path(path)
        self._logbook: Logbook | None = Logbook(self.path, step=step) if writes else None
        self._trackers: list[Tracker] = []
        try:
            if step:  # a callback has no state in a checkpoint unless asked; the logbook has it all
                monitor.replay(step, self._logbook.records if writes else ())
            for tracker in trackers if writes else ():
                self._trackers.append(open_tracker(tracker, folder=self.path.parent))
            monitor.attach()
        except BaseException:
            self.close()
            raise

    def observe(
        self, step: int, *, logits: Tensor | None = None, **losses: float
    ) -> Judgement | None:
        """Call :meth:`Monitor.observe`, write what it saw, and return the phase."""
        judged = self.monitor.observe(step, logits=logits, **losses)
        records = self.monitor.collect()
        phase = None if judged is None else PhaseLine(step, *judged)
        if self._logbook is not None:
            self._logbook.write(records, phase)
        for tracker in self._trackers:
            tracker.send(records, phase, step)
        return judged

    def close(self) -> None:
        """Detach the monitor and close what was opened."""
        self.monitor.detach()
        if self._logbook is not None:
            self._logbook.close()
        for tracker in self._trackers:
            tracker.close()
        self._trackers = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Watch:
    """What the callbacks share: they say when a run starts, steps, is evaluated and ends.

    Args:
        metrics: As for :class:`triplepoint.Monitor`, by default its own.
        every: Sample every so many optimiser steps.
        path: A file ``*.jsonl`` or a folder, by default the trainer's own.
        trackers: ``tensorboard``, ``wandb``, ``mlflow``, in the active run if there is one.
        logged: Name in records -> name in what the trainer's evaluation gives.
        options: Further keywords of :class:`triplepoint.Monitor`, e.g. ``plateau`` or ``arm``.
    """

    LOGGED: ClassVar[Mapping[str, str]]
    """Default of ``logged``."""

    def __init__(
        self,
        metrics: Sequence[str] | None = None,
        *,
        every: int = 10,
        path: str | Path | None = None,
        trackers: Sequence[str | Any] = (),
        logged: Mapping[str, str] | None = None,
        **options: Any,
    ):
        chosen = {} if metrics is None else {"metrics": tuple(metrics)}
        self._options = {**chosen, "every": every, **options}
        self._path, self._trackers = path, tuple(trackers)
        self._logged = dict(self.LOGGED if logged is None else logged)
        self._session: Session | None = None
        self.monitor: Monitor | None = None
        """From the beginning of training on."""

    def _start(
        self,
        model: nn.Module,
        folder: str,
        *,
        dtype: torch.dtype | None,
        step: int,
        optimizers: Sequence[Optimizer],
        writes: bool,
    ) -> None:
        self._close()  # where the run before ended with an exception
        self.monitor = Monitor(model, **{"dtype": dtype, **self._options})
        self._session = Session(
            self.monitor, self._path or folder, step=step, trackers=self._trackers,
            optimizers=optimizers, writes=writes,
        )  # fmt: skip

    def _observe(self, step: int, **losses: float) -> None:
        if self._session is not None:  # none while an evaluation or a sanity check runs by itself
            self._session.observe(step, **losses)

    def _evaluated(self, step: int, metrics: Mapping[str, Any]) -> None:
        found = {own: float(metrics[name]) for own, name in self._logged.items() if name in metrics}
        if found:
            self._observe(step, **found)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
