"""A run that may grok, watched: accuracies of its own and a refitted head, norms, drift, Fourier features."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from triplepoint.errors import PlanError
from triplepoint.monitoring.histories import Clock, History, Stopwatch
from triplepoint.monitoring.meters import Meter
from triplepoint.monitoring.quantities import UNITS, Loss, definitions
from triplepoint.monitoring.scope import Part, parts_of
from triplepoint.monitoring.tangents import TangentWatch
from triplepoint.phases import Judgement
from triplepoint.records import Record


class GrokMonitor:
    r"""Watch a run on a small data set: has it memorised, does it generalise, does it slide along the manifold?

    At an evaluation: losses and accuracies on all training and all held-out samples, those of a head refitted by
    ridge regression on the training features (it leads the network's own, also under cross-entropy), squared
    norms by layer, slow time, the share of losses that are exactly 0; of a bias-free two-layer net also
    :math:`C = \|W_1\| \|W_2^*\|` and the imbalance of its units; Fourier features where a row per residue is
    known. Every ``diagnose_every`` steps, with squared error: does the averaged update follow
    :math:`P_T(-\theta)`? What does not apply is left out and said by :meth:`applies`.

    Training goes on as it would without it: weights, gradients, modes and random numbers are not touched.
    Weight decay is taken to act on all trainable parameters. In a plain loop::

        monitor = GrokMonitor(model, train=(X, Y), validation=(X_val, Y_val)).attach()
        for step in range(1, steps + 1):
            ...
            monitor.observe(step)
        records, times = monitor.collect(), monitor.times()

    Args:
        model: Returns ``[n, o]``, or ``[n, seq, o]`` of which the last position counts.
        train: Inputs and targets of the whole training set: labels [n], or one-hot rows or values [n, o].
        validation: The same of samples that are held out; None where there are none.
        clock: From ``slow_clock``; anything with ``slow_time(steps)`` and ``lam``. None: no slow time.
        loss: "mse" (mean over samples and outputs) or "cross_entropy".
        head: Path of the last linear layer; by default it is looked for.
        embedding: Path of the residues' embedding; by default the first layer of a two-layer net on coded pairs.
        every: :meth:`observe` evaluates every so many steps.
        diagnose_every: Steps between tangent diagnostics; None for none.
        window: Steps over which an update is averaged; by default 200 for a two-layer ReLU net, 10 else.
        budget: Share of the elapsed time that tangent diagnostics may take; those left out are counted in
            :attr:`skipped`, by reason. What is skipped depends on the machine: ``math.inf`` for a run to be repeated.
        rows: How many samples go through the model at once.
        timer: Returns seconds.
        labels: ``arm`` and ``seed`` of the records.

    Raises:
        ModelError: If the outputs have another form, or a named head or embedding is none.
        DataError: If samples do not fit the outputs.
        PlanError: If a number is out of range.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> layer.weight.data = torch.eye(2)
        >>> monitor = GrokMonitor(layer, train=(torch.eye(2), torch.tensor([0, 1])))
        >>> found = {r.metric: r.value for r in monitor.evaluate(0)}
        >>> found["train_loss"], found["train_accuracy"], found["norm_sq"]
        (0.0, 1.0, 2.0)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        train: tuple[Tensor, Tensor],
        validation: tuple[Tensor, Tensor] | None = None,
        clock: Clock | None = None,
        loss: Loss = "mse",
        head: str | None = None,
        embedding: str | None = None,
        every: int = 100,
        diagnose_every: int | None = None,
        window: int | None = None,
        budget: float = 0.25,
        rows: int = 1024,
        timer: Callable[[], float] = time.perf_counter,
        **labels: object,
    ):
        if loss not in UNITS:
            raise PlanError(f"There is no loss {loss!r} here.\nGive 'mse' or 'cross_entropy'.")
        if every < 1 or rows < 1:
            raise PlanError(f"every is {every}, rows {rows}.\nGive whole numbers of at least 1.")
        self.loss, self._clock, self._every = loss, clock, every
        self._labels, self._units = labels, definitions(loss)
        self.meter = meter = Meter(
            model, train, validation, loss=loss, head=head, embedding=embedding, rows=rows
        )
        self._parts = parts_of(meter, clock=clock, diagnosed=diagnose_every is not None)
        self._stopwatch = Stopwatch(timer)
        self._tangents = None
        if diagnose_every is not None and self._applies("zero-loss manifold"):
            both = meter.layers is not None and meter.layers.trained
            self._tangents = TangentWatch(
                model, meter.train, layers=meter.layers if both else None, clock=clock, every=diagnose_every,
                window=window, budget=budget, stopwatch=self._stopwatch,
            )  # fmt: skip
        self._history = History(chance=1 / meter.width, validated=validation is not None)
        self._watched: int | None = None
        self._pending: list[Record] = []
        self._records: list[Record] = []
        self.phase: Judgement | None = None
        """As of the last evaluation."""

    # -- the four methods ------------------------------------------------------------------------------

    def attach(self) -> GrokMonitor:
        """Register the hook on the head; it is off except during an evaluation."""
        self.meter.attach()
        return self

    def observe(self, step: int, **losses: float) -> Judgement | None:
        """Go through one step; evaluate every ``every`` steps. Call it after every optimiser step.

        Tangent diagnostics need every step of their windows; one that is missed counts as skipped.

        Args:
            step: Optimiser steps done; 0 before the first, to have the start in the records.
            **losses: The loop's own, as an early sign: one that is not finite makes the run diverged. They are not
                recorded, for the monitor's are over all samples.

        Returns:
            The phase as of the last evaluation, None before the first.
        """
        if any(not math.isfinite(value) for value in losses.values()):
            self.phase = Judgement("diverged", f"the loss is not finite at step {step}")
            return self.phase
        self.watch(step)
        if step % self._every == 0:
            self._records += self.evaluate(step)
        return self.phase

    def collect(self) -> list[Record]:
        """Hand over the records since the last call; each is handed over once."""
        records, self._records = self._records + self._pending, []
        self._pending = []
        return records

    def detach(self) -> None:
        """Remove the hook. What was recorded can still be collected."""
        self.meter.detach()

    def __enter__(self) -> GrokMonitor:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()

    # -- what is known ---------------------------------------------------------------------------------

    def applies(self) -> list[Part]:
        """Return each part of the monitor, whether it applies to this run, and why."""
        return self._parts

    def _applies(self, part: str) -> bool:
        return next(p.applies for p in self._parts if p.part == part)

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> how many tangent diagnostics were due and left out for it; without those at 0."""
        found = {} if self._tangents is None else self._tangents.skipped
        return {reason: n for reason, n in found.items() if n}

    def times(self) -> dict[str, dict[str, float | int | None]]:
        """Return ``T_mem`` and ``T_grok_...``: ``step`` or ``censored_at``, and ``slow_time``, ``seconds`` of the step.

        Seconds are wall time without the monitor's own.
        """
        return self._history.times() if self._applies("accuracies and times") else {}

    def embedding(self) -> Tensor | None:
        """Return a copy of the residues' embedding [p, dim] as it is now, e.g. to draw its circles; None without."""
        found = self.meter.embedding
        return None if found is None else found().clone()

    def facts(self) -> dict[str, object]:
        """Return what a manifest says of this run: times, what applies, skipped diagnostics, definitions."""
        return {
            "times": self.times(),
            "applies": [part._asdict() for part in self._parts],
            "skipped_diagnostics": self.skipped,
            "metrics": definitions(self.loss),
        }

    # -- measuring -------------------------------------------------------------------------------------

    def watch(self, step: int) -> None:
        """Go through one step of a tangent window; twice the same step counts once."""
        if self._tangents is None or step == self._watched:
            return
        self._watched = step
        with self._stopwatch.measuring():
            found = self._tangents.watch(step)
        self._pending += [self._record(name, None, value, step) for name, value in found.items()]

    def evaluate(self, step: int) -> list[Record]:
        """Measure now; returns the records, which :meth:`collect` does not hand over again."""
        self.watch(step)
        with self._stopwatch.measuring():
            measured = self.meter.measure()
        slow = None if self._clock is None else self._clock.slow_time(step)
        rows = measured.rows + ([] if slow is None else [("slow_time", None, slow)])
        records = [self._record(*row, step) for row in rows] + self._pending
        self._pending = []
        if not measured.finite:
            self.phase = Judgement("diverged", f"the loss is not finite at step {step}")
        if measured.train_accuracy is None:
            return records
        new = self._history.add(
            step, measured.train_accuracy, measured.val_accuracy, slow=slow,
            seconds=self._stopwatch.training,
        )  # fmt: skip
        self.phase = self._history.judge(zero_loss_share=measured.zero_loss_share)
        for name, when in new.items():
            metric, level = ("T_mem", None) if name == "T_mem" else ("T_grok", name[7:])
            records.append(self._record(metric, level, when, step))
        return records

    def _record(self, metric: str, site: str | None, value: float, step: int) -> Record:
        unit = self._units[metric]["unit"]
        return Record(metric=metric, value=value, unit=unit, step=step, site=site, **self._labels)

    # -- across a restart ------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what a restart needs, as tensors: times so far, clocks, the open window."""
        names = list(self._units)
        pending = [(names.index(r.metric), r.step, r.value) for r in self._pending]
        tangents = {} if self._tangents is None else self._tangents.state()
        return {
            "history": self._history.state(),
            "stopwatch": self._stopwatch.state(),
            "watched": torch.tensor(-1 if self._watched is None else self._watched),
            "pending": torch.tensor(pending, dtype=torch.float64).reshape(-1, 3),
            **{f"tangents|{k}": v for k, v in tangents.items()},
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        names = list(self._units)
        self._history.load_state(state["history"])
        self._stopwatch.load_state(state["stopwatch"])
        watched = int(state["watched"])
        self._watched = None if watched < 0 else watched
        self._pending = [
            self._record(names[int(name)], None, value, int(step))
            for name, step, value in state["pending"].tolist()
        ]
        if self._tangents is not None:
            prefix = "tangents|"
            part = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            self._tangents.load_state(part)
