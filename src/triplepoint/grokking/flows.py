"""Following a velocity field: gradient descent and an ODE solver, both on one parameter vector.

Symbols:
    theta   parameters [d]
    eta     step size of gradient descent
    t       time of theta' = velocity(theta), flow or slow time as the velocity has it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError

Velocity = Callable[[Tensor], Tensor]
"""theta [d] -> its time derivative [d]."""

# Dormand and Prince (1980): the fifth-order pair that most solvers use by default.
_STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def descend(
    gradient: Velocity, theta0: Float[Tensor, " d"], *, eta: float, steps: int
) -> Float[Tensor, "points d"]:
    """Run plain gradient descent and keep every point.

    Args:
        gradient: theta -> gradient of the cost.
        theta0: Start.
        eta: Step size, above 0.
        steps: Number of steps, at least 0.

    Returns:
        ``steps + 1`` points, the start among them.

    Raises:
        PlanError: If ``eta`` or ``steps`` is outside its range.
        MetricInputError: If the run leaves the finite numbers.

    Example:
        >>> descend(lambda w: 2 * w, torch.tensor([1.0]), eta=0.25, steps=2).flatten().tolist()
        [1.0, 0.5, 0.25]
    """
    if not eta > 0 or steps < 0:
        raise PlanError(f"eta is {eta} and steps {steps}.\nGive eta > 0 and steps >= 0.")
    points = [theta0]
    for _ in range(steps):
        points.append(points[-1] - eta * gradient(points[-1]))
    path = torch.stack(points)
    if not torch.isfinite(path[-1]).all():
        first = int((~torch.isfinite(path).all(1)).nonzero()[0])
        raise MetricInputError(
            f"Gradient descent left the finite numbers at step {first} of {steps}.\n"
            f"Try a smaller eta than {eta:g}: it must stay below 2 over the largest curvature."
        )
    return path


def integrate(
    velocity: Velocity,
    theta0: Float[Tensor, " d"],
    times: Sequence[float],
    *,
    rtol: float = 1e-10,
    atol: float = 1e-12,
    max_steps: int = 1_000_000,
) -> Float[Tensor, "times d"]:
    """Solve theta' = velocity(theta) by the adaptive Dormand-Prince pair of order 5.

    Explicit: a penalised flow in slow time is stiff like 1/lam, and costs as many steps.

    Args:
        velocity: theta -> its derivative; time does not enter.
        theta0: Value at time 0; give float64, the tolerances are below what float32 resolves.
        times: Where the solution is wanted, ascending, from 0 on.
        rtol: Error allowed per step relative to the entry. 1e-10 keeps about 10 digits over the toys' lengths.
        atol: Error allowed per step beside it.
        max_steps: Accepted and rejected steps together, after which to give up.

    Returns:
        The solution at each time.

    Raises:
        PlanError: If ``times`` is not ascending from 0 on, or ``max_steps`` do not reach its end.
        MetricInputError: If the start, or its velocity, is not finite.

    References:
        Dormand and Prince (1980), A family of embedded Runge-Kutta formulae, J. Comput. Appl. Math. 6, pp. 19-26.

    Example:
        >>> end = integrate(lambda w: -w, torch.tensor([1.0], dtype=torch.float64), [1.0])
        >>> round(end.item(), 8)  # exp(-1)
        0.36787944
    """
    if not times or times[0] < 0 or any(b < a for a, b in zip(times, times[1:], strict=False)):
        raise PlanError("times are not ascending from 0 on.\nSort them and drop negative ones.")
    slope = velocity(theta0)
    if not (torch.isfinite(theta0).all() and torch.isfinite(slope).all()):
        raise MetricInputError(
            "The start or its velocity is not finite.\nCheck theta0 for inf and nan."
        )
    theta, t, out = theta0, 0.0, []
    step = 0.01 * (1.0 + theta.norm().item()) / (1.0 + slope.norm().item())
    for end in times:
        while end - t > 1e-14 * max(1.0, end):
            max_steps -= 1
            if max_steps < 0:
                raise PlanError(
                    f"The solution stands at t = {t:g} of {times[-1]:g} after max_steps.\n"
                    "Raise max_steps or rtol; a stiff flow (small lam) may need a shorter time."
                )
            h = min(step, end - t)
            trial, last, error = _try_step(velocity, theta, slope, h, rtol, atol)
            if error <= 1.0:
                theta, slope, t = trial, last, t + h
            # a step cut short to meet ``end`` says nothing against longer ones
            if error > 1.0 or h == step:
                step = h * min(5.0, max(0.2, 0.9 * (error + 1e-30) ** -0.2))
        out.append(theta)
    return torch.stack(out)


def _try_step(velocity, theta, slope, h, rtol, atol):
    """Return (theta after h, its velocity, error over tolerance); the last stage is the next step's first."""
    k, point = [slope], theta
    for row in _STAGES[1:]:
        point = theta + h * sum(a * s for a, s in zip(row, k, strict=True) if a)
        k.append(velocity(point))
    error = h * sum(e * s for e, s in zip(_ERROR, k, strict=True) if e)
    scale = atol + rtol * torch.maximum(theta.abs(), point.abs())
    size = ((error / scale).square().mean().sqrt()).item()
    return point, k[-1], size if size == size else float("inf")
