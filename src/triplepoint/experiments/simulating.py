r"""The paper's simulation as a run: the isolated flow of a first layer, resumable, on record.

Symbols as in ``triplepoint.grokking.trajectories``; ``E`` is the embedding inside ``W1``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torch import Tensor

from triplepoint.checkpoints import Checkpoints, Snapshot
from triplepoint.errors import PlanError, unknown_name
from triplepoint.experiments.embeddings import EmbeddingWatch
from triplepoint.experiments.folders import GrokRun, OpenRun, load_run, open_run, times_of
from triplepoint.experiments.specs import TaskSpec, first_layer
from triplepoint.grokking import Point, as_module, bogacki_shampine, euler, simulate
from triplepoint.grokking.trajectories import Integrator, Visit
from triplepoint.monitoring import definitions
from triplepoint.records import Record

SCOPE = (
    "Isolated flow of the first layer of a bias-free two-layer net with squared error: the limit of an "
    "infinitely fast second layer, not of joint training, which takes about twice the slow time."
)
SAVE_EVERY_S = 20.0
"""Seconds between two checkpoints: what a crash costs at most."""

INTEGRATORS = ("euler", "adaptive")

DEFINITIONS = {
    **definitions("mse"),
    "train_loss": {
        "definition": "sum over samples and outputs of the squared error, training samples",
        "unit": "sum of squares",
        "source": "arXiv 2511.01938",
    },
    "seconds": {
        "definition": "wall seconds since the run began, interruptions left out",
        "unit": "s",
        "source": "triplepoint",
    },
}
"""The monitor's, but for the loss: the paper's is a sum."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulationSpec:
    """One simulation."""

    task: TaskSpec = TaskSpec()
    hidden: int = 256
    activation: str = "relu"
    std: float | None = None
    """Of the first layer's entries; None for p^-1/4, see ``initial_first_layer``."""
    lam: float = 0.0
    """0 is the paper's limit, and needs as many hidden units as training samples."""
    duration: float = 5.0
    """Slow time. 5 is the paper's 5000 steps of 1e-3."""
    integrator: str = "euler"
    eta: float = 1e-3
    """Euler's step in slow time; the paper's."""
    cap: float = 0.05
    """Euler's longest step relative to ``||W1||``."""
    tolerance: float = 1e-3
    """Of the adaptive integrator, relative and per step."""
    every: int = 25
    """Accepted steps between two records."""
    look_every: int = 250
    """Accepted steps between two looks at the embedding."""

    def check(self) -> None:
        """Refuse numbers that no manifest can hold; their ranges are checked where they are used.

        Raises:
            PlanError: If a number is not finite.
        """
        for name in ("lam", "duration", "eta", "cap", "tolerance", "std"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise PlanError(f"{name} must be finite, got {value}.\nTry another --{name}.")

    def stepper(self) -> Integrator:
        """Return the integrator.

        Raises:
            UnknownNameError: If there is none of that name.
        """
        if self.integrator not in INTEGRATORS:
            raise unknown_name("integrator", self.integrator, INTEGRATORS)
        if self.integrator == "euler":
            return functools.partial(euler, eta=self.eta, cap=self.cap)
        return functools.partial(bogacki_shampine, tolerance=self.tolerance)


def run_simulation(
    path: Path, spec: SimulationSpec, *, watch: Callable[[Point], None] = lambda point: None
) -> GrokRun:
    """Simulate into a run folder: an interrupted run goes on, a finished one is read.

    Args:
        path: The run folder.
        spec: What to simulate.
        watch: Called with each recorded point.

    Raises:
        DataError: As ``reduced_cost`` does.
        PlanError: If a setting is out of range.
    """
    spec.check()
    asked = {"command": "simulate", **dataclasses.asdict(spec)}
    with open_run(path, asked) as run:
        if run is not None:
            _Simulation(run, spec).run(watch)
    return load_run(path)


class _Simulation:
    """A simulation on its way: where it stands, what was seen, when it was last saved."""

    def __init__(self, run: OpenRun, spec: SimulationSpec):
        self._run, self._folder, self._spec = run, run.folder, spec
        self._task = spec.task.build()
        self._stepper = spec.stepper()
        self._checkpoints = Checkpoints(run.folder.path / "checkpoints")
        self._embedding = EmbeddingWatch(spec.task.residues)
        self._step, self._t, self._spent, self._size = 0, 0.0, 0.0, 0
        self._over = False
        self._W1 = first_layer(self._task, spec.hidden, std=spec.std, seed=spec.task.seed)
        snapshot = self._checkpoints.latest()
        if snapshot is not None:
            self._step, self._t = snapshot.step, snapshot.counts["t"]
            self._spent, self._size = snapshot.counts["spent"], snapshot.counts["records"]
            self._W1, self._over = snapshot.rest["W1"], snapshot.counts["over"]
            self._embedding.load_state(snapshot.rest)
        self._start = self._saved = time.monotonic()

    def run(self, watch: Callable[[Point], None]) -> None:
        self._folder.rewind(self._size)
        spec = self._spec
        # steps before the checkpoint are a whole number of records, so that both clocks keep in step
        first, t0 = self._step, self._t

        def looked(field, W1: Tensor, duration: float) -> Iterator[Visit]:  # noqa: ANN001
            for offset, (t, W, here) in enumerate(self._stepper(field, W1, duration)):
                step = first + offset
                if step % spec.every == 0 and time.monotonic() - self._saved > SAVE_EVERY_S:
                    self._save(step, t0 + t, W, here.W2)
                # the layer before the look is the one that is looked at again after a restart
                if step % spec.look_every == 0 or t >= duration * (1 - 1e-12):
                    self._append(self._embedding.look(step, W))
                yield t, W, here

        def record(point: Point) -> None:
            moved = dataclasses.replace(point, step=first + point.step, t=t0 + point.t)
            self._append(_rows(moved, self._now()))
            watch(moved)

        if not self._over:
            end = simulate(
                self._W1, *self._task.train_set, lam=spec.lam, activation=spec.activation,
                duration=spec.duration - t0, integrator=looked, test=self._task.test_set,
                every=spec.every, watch=record,
            )  # fmt: skip
            self._over = True
            self._save(first + end.points[-1].step, spec.duration, end.W1, end.W2)
        self._run.finish(self._facts(), self._embedding.arrays())

    def _now(self) -> float:
        return self._spent + time.monotonic() - self._start

    def _append(self, records: list[Record]) -> None:
        self._size = self._folder.append(records)

    def _save(self, step: int, t: float, W1: Tensor, W2: Tensor) -> None:
        """Keep an ordinary network, and what a restart needs beside it."""
        self._folder.sync()
        model = as_module(W1, W2, activation=self._spec.activation).state_dict()
        self._checkpoints.save(
            Snapshot(
                step=step,
                model=dict(model),
                optimizer={},
                rest={"W1": W1, **self._embedding.state()},
                counts={"t": t, "spent": self._now(), "records": self._size, "over": self._over},
                history={},
            )
        )
        self._saved = time.monotonic()

    def _facts(self) -> dict[str, object]:
        records = self._folder.read_records(self._size)
        return {
            "scope": SCOPE,
            "task": self._task.name,
            "samples": {"train": int(self._task.train.sum()), "val": int(self._task.test.sum())},
            "times": times_of(records),
            "metrics": DEFINITIONS,
        }


def _rows(point: Point, seconds: float) -> list[Record]:
    values = {
        "train_loss": point.sse,
        "train_accuracy": point.train_accuracy,
        "val_accuracy": point.test_accuracy,
        "slow_time": point.t,
        "seconds": seconds,
        "complexity": point.complexity,
        "norm_sq": point.W1_sq + point.W2_sq,
    }
    rows = [
        Record(metric=m, value=v, unit=DEFINITIONS[m]["unit"], step=point.step)
        for m, v in values.items()
        if v is not None
    ]
    layers = {"0.weight": point.W1_sq, "2.weight": point.W2_sq}
    return rows + [
        Record(metric="weight_norm_sq", value=v, unit="1", step=point.step, site=site)
        for site, v in layers.items()
    ]
