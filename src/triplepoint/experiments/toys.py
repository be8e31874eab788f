r"""The toys as runs: curves, end points and times on record, one arm for each ``lam``.

Symbols as in ``triplepoint.grokking.toys`` and ``triplepoint.grokking.addition``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from triplepoint.errors import PlanError, unknown_name
from triplepoint.experiments.folders import GrokRun, run_in_folder
from triplepoint.grokking import addition_descent, addition_end, addition_times, jacobian_rank
from triplepoint.grokking.addition import addition_losses
from triplepoint.grokking.flows import descend
from triplepoint.grokking.toys import (
    Toy,
    addition,
    leaky_relu_sum,
    parabola,
    two_layer_linear,
)
from triplepoint.records import Record

SCOPE = "A toy of a few parameters: exact, and no more than an illustration of the theorem."

STARTS: dict[str, tuple[Callable[[], Toy], tuple[float, ...]]] = {
    "addition": (addition, (-1.0, 1.0)),
    "parabola": (lambda: parabola(0.0), (1.5, 2.25)),
    "two-layer-linear": (lambda: two_layer_linear(1.0), (3.0, 1 / 3)),
    "two-layer-linear-singular": (lambda: two_layer_linear(0.0), (2.0, 0.5)),
    "leaky-relu": (lambda: leaky_relu_sum(1.0), (2.0, -1.0)),
}
"""Name on the command line -> the toy and a start from which both phases show; addition's is the paper's."""

SMALLEST_LAM = 1e-12
"""A smaller decay moves a parameter by less than float64 rounds it, so that nothing is seen."""
LARGEST_START = 1e6
"""Beyond, the square of a parameter loses the targets, which are 1, to rounding."""
MOST_STEPS = 1_000_000
"""Steps kept in memory, some 10 microseconds each: a quarter of a minute for each lam."""

DEFINITIONS = {
    "train_loss": {
        "definition": "L = ||F(theta) - y||^2 on the training sample, without the norm",
        "unit": "sum of squares",
        "source": "arXiv 2511.01938",
    },
    "val_loss": {
        "definition": "||w - 1||^2: the addition toy's squared error in expectation over x ~ N(0, I)",
        "unit": "sum of squares",
        "source": "arXiv 2511.01938",
    },
    "norm_sq": {"definition": "V = ||theta||^2", "unit": "1", "source": "arXiv 2511.01938"},
    "slow_time": {
        "definition": "2 lam eta, summed over the steps",
        "unit": "1",
        "source": "triplepoint",
    },
    "sigma_min": {
        "definition": "smallest singular value of the Jacobian; 0 at a singular point",
        "unit": "1",
        "source": "triplepoint",
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyEnd:
    """What one ``lam`` came to."""

    lam: float
    theta: tuple[float, ...]
    """After the last step."""
    train_loss: float
    norm_sq: float
    sigma_min: float
    """Smallest singular value of the Jacobian there."""
    towards_singular: bool
    """Whether it has fallen below a twentieth of its start: the run heads into a singular point."""
    expected: dict[str, float] | None
    """Addition only: end point, both floors, the steps of fit and drift, and the largest difference from the closed form."""


def run_toy(
    path: Path,
    *,
    name: str = "addition",
    lams: tuple[float, ...] = (0.01, 0.1, 0.2),
    start: tuple[float, ...] | None = None,
    eta: float = 0.1,
    steps: int = 2000,
) -> tuple[GrokRun, tuple[ToyEnd, ...]]:
    """Run gradient descent on a toy for each ``lam``, into a run folder.

    Args:
        path: The run folder.
        name: A name in ``STARTS``.
        lams: Weights of the norm beside the SUM of squares, above 0; the paper's are 0.01, 0.1 and 0.2.
        start: First parameters; None for the one in ``STARTS``. Addition takes any number of them.
        eta: Step size. 0.1 reproduces the paper's picture: fitted in about 10 steps, generalising in hundreds.
        steps: Steps.

    Returns:
        The run, and how each ``lam`` ended.

    Raises:
        UnknownNameError: If there is no such toy.
        PlanError: If a number is out of range, or the start has the wrong length.
        MetricInputError: If a step is so long that the run leaves the finite numbers.
    """
    if name not in STARTS:
        raise unknown_name("toy", name, STARTS)
    start = STARTS[name][1] if start is None else start
    _check(name, lams, start, steps)
    asked = {"command": "toy", "name": name, "lams": list(lams), "start": list(start), "eta": eta, "steps": steps}  # fmt: skip
    toy = addition(len(start)) if name == "addition" else STARTS[name][0]()
    theta0 = torch.tensor(start, dtype=torch.float64)
    paths = [descend(lambda w, lam=lam: toy.gradient(w, lam), theta0, eta=eta, steps=steps) for lam in lams]  # fmt: skip
    ends = tuple(
        _end(toy, name, theta0, theta, lam, eta) for theta, lam in zip(paths, lams, strict=True)
    )

    def records() -> Iterator[Record]:
        for theta, lam in zip(paths, lams, strict=True):
            yield from _records(toy, name, theta, lam, eta)

    facts = {
        "scope": SCOPE,
        "metrics": DEFINITIONS,
        "toy": {"name": name, "ends": [dataclasses.asdict(end) for end in ends]},
    }
    return run_in_folder(path, asked, records, facts), ends


def toy_document(run: GrokRun, ends: tuple[ToyEnd, ...]) -> dict[str, object]:
    """Return what the command prints as JSON."""
    return {"run": str(run.path), **run.facts["toy"], "ends": [dataclasses.asdict(e) for e in ends]}


def _check(name: str, lams: tuple[float, ...], start: tuple[float, ...], steps: int) -> None:
    fits = all(SMALLEST_LAM <= lam < math.inf for lam in lams)
    if not lams or not fits or len(set(lams)) < len(lams):
        raise PlanError(
            f"A toy needs different weights lam of at least {SMALLEST_LAM:g}, got {', '.join(map(str, lams)) or 'none'}.\n"
            "Try --lam 0.01,0.1,0.2; without the norm nothing drifts."
        )
    if not 1 <= steps <= MOST_STEPS:
        raise PlanError(f"A toy takes 1 to {MOST_STEPS:,} steps, got {steps:,}.\nTry --steps 2000.")
    if not all(abs(w) <= LARGEST_START for w in start):
        raise PlanError(
            f"A toy starts from numbers of at most {LARGEST_START:g} in size, got {', '.join(map(str, start))}.\n"
            "Try --start=-1,1."
        )
    if name != "addition" and len(start) != 2:
        raise PlanError(
            f"The toy {name} has two parameters, got a start of {len(start)}.\nTry --start=2,0.5."
        )


def _end(toy: Toy, name: str, theta0: Tensor, path: Tensor, lam: float, eta: float) -> ToyEnd:
    last = path[-1]
    sigma = jacobian_rank(toy.J(last)).sigma_min
    expected = None
    if name == "addition":
        floor = addition_end(len(theta0), lam=lam)
        times = addition_times(theta0, lam=lam, eta=eta)
        exact = addition_descent(theta0, torch.arange(len(path)), lam=lam, eta=eta)
        expected = {
            "w": floor.w,
            "train_floor": floor.train_loss,
            "test_floor": floor.test_loss,
            "fit_steps": times.fit,
            "drift_steps": times.drift,
            "largest_difference": float((exact - path).abs().max()),
        }
    return ToyEnd(
        lam=lam,
        theta=tuple(last.tolist()),
        train_loss=float(toy.loss(last)),
        norm_sq=float(last.square().sum()),
        sigma_min=sigma,
        towards_singular=sigma < jacobian_rank(toy.J(theta0)).sigma_min / 20,
        expected=expected,
    )


def _records(toy: Toy, name: str, path: Tensor, lam: float, eta: float) -> Iterator[Record]:
    for step in log_spaced(len(path) - 1):
        theta = path[step]
        values = {
            "train_loss": float(toy.loss(theta)),
            "norm_sq": float(theta.square().sum()),
            "slow_time": 2 * lam * eta * step,
            "sigma_min": jacobian_rank(toy.J(theta)).sigma_min,
        }
        if name == "addition":
            values["val_loss"] = float(addition_losses(theta)[1])
        for metric, value in values.items():
            unit = DEFINITIONS[metric]["unit"]
            yield Record(metric=metric, value=value, unit=unit, step=step, arm=f"lam={lam:g}")


def log_spaced(last: int, points: int = 200) -> list[int]:
    """Return whole steps from 0 to ``last`` that are even on a log axis.

    Example:
        >>> log_spaced(10, points=4)
        [0, 1, 2, 5, 10]
    """
    grid = torch.logspace(0, math.log10(max(last, 1)), points, dtype=torch.float64)
    return sorted({0, *(round(x) for x in grid.tolist()), last})
