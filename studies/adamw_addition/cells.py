"""The cells of the study: AdamW runs, and the isolated flow on the same splits.

Symbols:
- ``W1`` [d_in, h], ``W2`` [h, o]: both layers; ``W2*``: the ridge optimum for that W1
- ``C = ||W1|| ||W2*||``; ``V = ||W1||^2 + ||W2||^2``
- ``t``: slow time; the isolated flow's own, and ``lr weight_decay steps`` for AdamW
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from studies.adamw_addition.training import STEPS, train
from triplepoint.grokking import Task, euler, initial_first_layer, pair_task, simulate
from triplepoint.records import Record

P, H = 23, 256
LAM = 1e-6
"""Ridge of the isolated flow: far below the smallest eigenvalue of the kernel, and safe if units die."""
DURATION = 6.0
ETA = 5e-3
Compute = Callable[[], Iterable[Record]]


@dataclasses.dataclass(frozen=True)
class Run:
    """What differs between the AdamW runs."""

    loss: str
    lr: float
    decay: float
    seed: int
    """Of the split and the initial weights."""
    fraction: float = 0.7

    @property
    def name(self) -> str:
        """Name of the cell."""
        return f"{self.loss}_lr{self.lr:g}_wd{self.decay:g}_f{self.fraction:g}_seed{self.seed}"

    @property
    def split(self) -> tuple[float, int]:
        """What the isolated reference depends on."""
        return self.fraction, self.seed


MSE = (
    Run("mse", 1e-3, 0.5, 0), Run("mse", 1e-3, 1.0, 0), Run("mse", 2e-3, 1.0, 0),
    Run("mse", 1e-3, 2.0, 0), Run("mse", 1e-3, 1.0, 1), Run("mse", 1e-3, 1.0, 2),
    Run("mse", 1e-3, 2.0, 1),
    # more for the forecast: other rates, decays, seeds and fractions
    Run("mse", 1e-3, 0.5, 1), Run("mse", 2e-3, 0.5, 2), Run("mse", 2e-3, 1.0, 1),
    Run("mse", 1e-3, 1.5, 2), Run("mse", 5e-4, 2.0, 3), Run("mse", 1e-3, 1.0, 3),
    Run("mse", 1e-3, 1.0, 4), Run("mse", 1e-3, 1.0, 0, 0.8), Run("mse", 1e-3, 1.0, 1, 0.8),
    Run("mse", 1e-3, 1.0, 0, 0.6), Run("mse", 1e-3, 2.0, 2, 0.6),
)  # fmt: skip
CROSS_ENTROPY = tuple(Run("cross_entropy", 1e-3, 1.0, seed) for seed in (0, 1, 2))


def cells() -> dict[str, Compute]:
    """Return all cells; the sheet of settings was fixed before any of them ran."""
    torch.set_num_threads(1)
    found: dict[str, Compute] = {}
    for split in dict.fromkeys(run.split for run in MSE):
        found[isolated_name(split)] = functools.partial(isolated, split)
    for run in (*MSE, *CROSS_ENTROPY):
        found[run.name] = functools.partial(adamw, run)
    return found


def quick_cells() -> dict[str, Compute]:
    """Return one fast run with its reference, and the start of one under cross-entropy."""
    run = Run("mse", 1e-3, 2.0, 0)
    short = CROSS_ENTROPY[0]
    return {
        isolated_name(run.split): functools.partial(isolated, run.split),
        run.name: functools.partial(adamw, run),
        short.name: functools.partial(adamw, short, steps=1500),
    }


def isolated_name(split: tuple[float, int]) -> str:
    """Name of the cell of an isolated reference."""
    return f"isolated_f{split[0]:g}_seed{split[1]}"


def task_of(run_split: tuple[float, int]) -> Task:
    """Build the task: unordered pairs mod 23."""
    fraction, seed = run_split
    return pair_task("add", p=P, fraction=fraction, seed=seed)


def isolated(split: tuple[float, int]) -> list[Record]:
    """Follow the isolated flow from the first layer that the AdamW runs start from."""
    task = task_of(split)
    return isolated_records(initial_first_layer(P, H, std=P**-0.5, seed=split[1]), task, "start")


def isolated_records(W1: Tensor, task: Task, arm: str) -> list[Record]:
    """Return accuracy and C along the isolated flow from ``W1``, against slow time."""
    flow = simulate(
        W1, *task.train_set, lam=LAM, duration=DURATION, test=task.test_set, every=2,
        integrator=functools.partial(euler, eta=ETA),
    )  # fmt: skip
    rows = []
    for point in flow.points:
        at = {"step": point.step, "arm": f"isolated_from_{arm}"}
        rows += [
            Record(metric="slow_time", value=point.t, **at),
            Record(metric="val_accuracy", value=point.test_accuracy, unit="share", **at),
            Record(metric="complexity", value=point.complexity, unit="weight norm^2", **at),
        ]
    return rows


def adamw(run: Run, *, steps: int = STEPS) -> list[Record]:
    """Train with AdamW; for squared error also follow the isolated flow from where it memorised."""
    task = task_of(run.split)
    trained = train(task, H, loss=run.loss, lr=run.lr, decay=run.decay, seed=run.seed, steps=steps)
    rows = list(trained.records)
    if run.loss == "mse" and trained.memorised is not None:
        rows += isolated_records(trained.memorised, task, "memorised")
    return rows
