r"""How a first layer moves: the isolated flow, and joint training as the comparison.

Symbols, as in arXiv 2511.01938 (sum of squares; samples are rows):

- ``X, Y, W1, W2, lam, R, B``: as in ``triplepoint.grokking.isolated``
- ``G``: half gradient of ``R / lam``; the isolated flow is ``dW1/dt = -G``, the paper's equation 20
- ``tau``: flow time of ``theta' = -grad L_lam``; ``t = 2 lam tau``: slow time
- ``eta``: step; in slow time for the isolated flow, in flow time for the joint one
- ``rate``: learning rate of the second layer over that of the first

The isolated flow is the limit of an infinitely fast second layer. It is NOT the limit of joint
training for small ``lam``: at equal rates joint training lags behind it, whatever ``lam`` is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import DataError, PlanError
from triplepoint.grokking.isolated import ReducedCost, checked, cost_at
from triplepoint.grokking.two_layer import (
    Labelled,
    accuracy,
    accuracy_on,
    activation_named,
    predict,
)

Field = Callable[[Tensor], ReducedCost]
Visit = tuple[float, Tensor, ReducedCost]
"""Slow time, ``W1`` and the reduced cost there."""
Integrator = Callable[[Field, Tensor, float], Iterator[Visit]]
"""``(field, W1, duration)`` -> every accepted point from the start on, the last one at ``duration``."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One moment of a trajectory."""

    step: int
    """Accepted steps so far."""
    t: float
    """Slow time."""
    sse: float
    """Sum of squared errors on the training samples."""
    W1_sq: float
    W2_sq: float
    train_accuracy: float
    test_accuracy: float | None
    """None where no test samples were given."""

    @property
    def complexity(self) -> float:
        """``C = ||W1|| ||W2||``."""
        return math.sqrt(self.W1_sq * self.W2_sq)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """Where a run went, and where it ended."""

    points: tuple[Point, ...]
    W1: Float[Tensor, "d_in h"]
    W2: Float[Tensor, "h o"]

    def first_reaching(self, test_accuracy: float) -> Point | None:
        """Return the first recorded point at that test accuracy, or None: censored, not never."""
        for point in self.points:
            if point.test_accuracy is not None and point.test_accuracy >= test_accuracy:
                return point
        return None


def euler(
    field: Field, W1: Tensor, duration: float, *, eta: float = 1e-3, cap: float | None = 0.05
) -> Iterator[Visit]:
    """Explicit Euler: one gradient per step.

    Args:
        field: ``W1`` -> its reduced cost.
        W1: Start.
        duration: Slow time at which to stop.
        eta: Step in slow time. 1e-3 is the paper's; 2e-2 groks at the same slow time.
        cap: Longest step relative to ``||W1||``; a step that would be longer advances ``t`` by less.
            5 %: from a small start the first gradient is so steep that the paper's step leaves the
            flow (51 against ``||W1||`` = 22.5 at p=37). None is the paper's scheme as it stands.

    Yields:
        Slow time, ``W1`` and its cost, before each step and at the end.
    """
    if not eta > 0 or (cap is not None and not cap > 0):
        raise PlanError(
            f"Euler's step and cap must be positive, got {eta} and {cap}.\nTry eta=1e-3."
        )
    t = 0.0
    while True:
        here = field(W1)
        yield t, W1, here
        if t >= duration * (1 - 1e-12):
            return
        h = min(eta, duration - t)
        if cap is not None:
            h = min(h, cap * math.sqrt(here.W1_sq) / max(float(here.half_grad.norm()), 1e-300))
        W1, t = W1 - h * here.half_grad, t + h


def bogacki_shampine(
    field: Field, W1: Tensor, duration: float, *, tolerance: float = 1e-3
) -> Iterator[Visit]:
    """Adaptive Runge-Kutta of order 3 with an error estimate of order 2: three gradients per step.

    A pair of low order on purpose: with ReLU the flow crosses kinks, where higher order buys nothing.

    Args:
        field: ``W1`` -> its reduced cost.
        W1: Start.
        duration: Slow time at which to stop.
        tolerance: Error allowed per step, relative to ``||W1||``. 1e-3 takes 250 steps for 3000 of the
            paper's at p=23, and meets the same accuracies at the same slow time to 0.01.

    Yields:
        Slow time, ``W1`` and its cost at every accepted point.

    References:
        Bogacki and Shampine (1989), A 3(2) pair of Runge-Kutta formulas, Appl. Math. Lett. 2, 321-325.
    """
    if not tolerance > 0:
        raise PlanError(f"The tolerance must be positive, got {tolerance}.\nTry tolerance=1e-3.")
    t, here = 0.0, field(W1)
    # a first step that moves W1 by a hundredth: it only has to be safe
    h = 0.01 * math.sqrt(here.W1_sq) / max(float(here.half_grad.norm()), 1e-300)
    while True:
        yield t, W1, here
        if t >= duration * (1 - 1e-12):
            return
        error = math.inf
        while error > 1:
            h = min(h, duration - t)
            k1 = -here.half_grad
            k2 = -field(W1 + h / 2 * k1).half_grad
            k3 = -field(W1 + 3 * h / 4 * k2).half_grad
            new = W1 + h / 9 * (2 * k1 + 3 * k2 + 4 * k3)
            there = field(new)
            wrong = h / 72 * (-5 * k1 + 6 * k2 + 8 * k3 + 9 * there.half_grad)
            error = float(wrong.norm()) / (tolerance * math.sqrt(here.W1_sq) + 1e-300)
            done, h = h, h * min(5.0, max(0.2, 0.9 * (error + 1e-12) ** (-1 / 3)))
        t, W1, here = t + done, new, there


def simulate(
    W1: Float[Tensor, "d_in h"],
    X: Float[Tensor, "n d_in"],
    Y: Float[Tensor, "n o"],
    *,
    lam: float = 0.0,
    activation: str = "relu",
    duration: float = 5.0,
    integrator: Integrator = euler,
    test: Labelled | None = None,
    every: int = 25,
    watch: Callable[[Point], None] | None = None,
) -> Trajectory:
    r"""Follow the isolated flow of the first layer.

    .. math:: \dot W_1 = -\tfrac{1}{2\lambda}\nabla R(W_1)

    in slow time, with the second layer at its ridge optimum all along. With the defaults this is the
    paper's simulation: step 1e-3, 5000 steps, no decay left but the one that drives it.

    Args:
        W1: Start.
        X: Training inputs.
        Y: Training targets.
        lam: Weight decay; 0 is the paper's limit and needs ``h >= n``.
        activation: A name in ``ACTIVATIONS``.
        duration: Slow time to simulate. 5 is the paper's 5000 steps of 1e-3.
        integrator: ``euler``, ``bogacki_shampine`` or a ``functools.partial`` of either.
        test: Inputs and targets to report the accuracy on; they do not steer anything.
        every: Accepted steps between two records; the first and the last are always recorded.
        watch: Called with each record, for a progress bar.

    Returns:
        The recorded points and both layers at the end.

    Raises:
        DataError: As ``reduced_cost`` does, at any step.
        PlanError: If the duration is not a positive number, or ``every`` is not positive.

    References:
        arXiv 2511.01938, eq. 20 and Sec. 7.
    """
    _check_plan(duration, every)
    W1, X, Y = checked(W1, X, Y, lam=lam)
    act = activation_named(activation)
    points: list[Point] = []

    def record(step: int, t: float, W1: Tensor, here: ReducedCost) -> None:
        point = _observe(step, t, W1, here.W2, X, Y, test, activation)
        # the identity lam B keeps what subtracting two nearly equal tables loses
        points.append(dataclasses.replace(point, sse=here.sse))
        if watch is not None:
            watch(points[-1])

    for step, visit in enumerate(
        integrator(lambda W: cost_at(W, X, Y, lam=lam, act=act), W1, duration)
    ):
        if step % every == 0:
            record(step, *visit)
    if points[-1].step != step:
        record(step, *visit)
    return Trajectory(points=tuple(points), W1=visit[1], W2=visit[2].W2)


def simulate_joint(
    W1: Float[Tensor, "d_in h"],
    X: Float[Tensor, "n d_in"],
    Y: Float[Tensor, "n o"],
    *,
    lam: float,
    steps: int,
    W2: Float[Tensor, "h o"] | None = None,
    activation: str = "relu",
    eta: float | None = None,
    rate: float = 1.0,
    test: Labelled | None = None,
    every: int = 1000,
    watch: Callable[[Point], None] | None = None,
) -> Trajectory:
    r"""Train both layers by gradient descent on ``L_lam``: what the isolated flow is compared with.

    .. math:: \dot W_1 = -\nabla_{W_1} L_\lambda, \qquad \dot W_2 = -\mathtt{rate}\,\nabla_{W_2} L_\lambda

    With ``lam = 0`` it is training without the norm term: the control in which nothing groks. Its
    slow time stands still then.

    Args:
        W1: Start of the first layer.
        X: Training inputs.
        Y: Training targets.
        lam: Weight decay against the sum of squares.
        steps: Gradient steps.
        W2: Start of the second layer; None is its optimum, so that the run starts memorised.
        activation: A name in ``ACTIVATIONS``.
        eta: Step in flow time. None is one over a bound of the largest curvature at the start, half
            of what would be unstable; for p=23 about 4e-4 can be taken.
        rate: How many times faster the second layer learns.
        test: Inputs and targets to report the accuracy on.
        every: Steps between two records; the first and the last are always recorded.
        watch: Called with each record.

    Returns:
        The recorded points, in slow time, and both layers at the end.

    Raises:
        DataError: As ``reduced_cost`` does, or if the run leaves the finite numbers.
        PlanError: If a step, a rate or a number of steps is not positive.
    """
    _check_plan(float(steps), every)
    W1, X, Y = checked(W1, X, Y, lam=lam)
    act = activation_named(activation)
    W2 = cost_at(W1, X, Y, lam=lam, act=act).W2 if W2 is None else W2.detach().to(W1.dtype)
    eta = 1 / _curvature_bound(W1, W2, X, lam, rate, activation) if eta is None else eta
    if not (0 < eta < math.inf and 0 < rate < math.inf):
        raise PlanError(f"Step and rate must be positive, got {eta} and {rate}.\nTry rate=1.")
    points: list[Point] = []
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            points.append(_observe(step, 2 * lam * eta * step, W1, W2, X, Y, test, activation))
            if not math.isfinite(points[-1].sse):
                raise DataError(
                    f"Joint training left the finite numbers by step {step} of {steps}.\n"
                    f"Try a smaller step than eta={eta:.2g}."
                )
            if watch is not None:
                watch(points[-1])
        if step < steps:
            Z = X @ W1
            H = act.value(Z)
            E = H @ W2 - Y
            G1 = X.T @ act.pull_back(Z, E @ W2.T) + lam * W1
            G2 = H.T @ E + lam * W2
            W1, W2 = W1 - 2 * eta * G1, W2 - 2 * eta * rate * G2
    return Trajectory(points=tuple(points), W1=W1, W2=W2)


def _observe(step, t, W1, W2, X, Y, test, activation) -> Point:
    """Read one moment off both layers."""
    fitted = predict(W1, W2, X, activation=activation)
    return Point(
        step=step,
        t=t,
        sse=float((fitted - Y).square().sum()),
        W1_sq=float(W1.square().sum()),
        W2_sq=float(W2.square().sum()),
        train_accuracy=accuracy(fitted, Y),
        test_accuracy=accuracy_on(W1, W2, test, activation=activation),
    )


def _curvature_bound(W1, W2, X, lam, rate, activation) -> float:
    """Bound the largest eigenvalue of the loss's Gauss-Newton matrix, second layer's rate included."""
    Z = X @ W1
    act = activation_named(activation)
    steepest = float(act.pull_back(Z, torch.ones_like(Z)).abs().max())
    norms = [float(torch.linalg.matrix_norm(M, 2)) for M in (act.value(Z), X, W2)]
    second, first = norms[0] ** 2, (steepest * norms[1] * norms[2]) ** 2
    return 2 * (rate * second + first + max(rate, 1) * lam)


def _check_plan(length: float, every: int) -> None:
    if not 0 < length < math.inf or every < 1:
        raise PlanError(
            f"A run needs a positive length and a positive distance between records, got {length} "
            f"and {every}.\nTry duration=5.0 (or steps=5000) and every=25."
        )
