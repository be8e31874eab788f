"""L-BFGS as a generator: every function evaluation is handed out, so the caller counts and stops."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

from torch import Tensor

ARMIJO, CURVATURE = 1e-4, 0.9
"""Constants of the weak Wolfe conditions, as in Nocedal and Wright (2006), p. 142."""


def lbfgs(
    f: Callable[[Tensor], tuple[float, Tensor]], x: Tensor, *, memory: int, first_move: float
) -> Iterator[tuple[Tensor, float]]:
    """Minimise ``f`` by L-BFGS with a bisection for the weak Wolfe conditions.

    The weak conditions, because they hold at kinks too, where the strong ones may not
    (Lewis and Overton, 2013).

    Args:
        f: Point -> value and gradient, in the shape of the point.
        x: Start.
        memory: Pairs of differences to keep.
        first_move: Length of the first trial step relative to ``||x||``.

    Yields:
        Every point at which ``f`` was evaluated, with its value. Ends where no step descends.
    """
    value, g = f(x)
    yield x, value
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
    while True:
        direction = -_times_inverse_hessian(g, pairs)
        slope = float((direction * g).sum())
        if not slope < 0:
            return
        step = 1.0 if pairs else first_move * float(x.norm()) / float(g.norm())
        low, high, accepted = 0.0, math.inf, None
        for _ in range(25):
            trial = x + step * direction
            trial_value, trial_g = f(trial)
            yield trial, trial_value
            if not trial_value <= value + ARMIJO * step * slope:
                high = step
            else:
                accepted = trial, trial_value, trial_g
                if float((direction * trial_g).sum()) >= CURVATURE * slope:
                    break
                low = step
            step = (low + high) / 2 if math.isfinite(high) else 2 * step
        if accepted is None:
            return
        s, y = accepted[0] - x, accepted[2] - g
        x, value, g = accepted
        if (sy := float((s * y).sum())) > 0:
            pairs.append((s, y, sy))


def _times_inverse_hessian(g: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Two-loop recursion (Nocedal and Wright, algorithm 7.4)."""
    if not pairs:
        return g
    r, weights = g.clone(), []
    for s, y, sy in reversed(pairs):
        weights.append(float((s * r).sum()) / sy)
        r.sub_(y, alpha=weights[-1])
    _, y, sy = pairs[-1]
    r.mul_(sy / float(y.square().sum()))
    for (s, y, sy), a in zip(pairs, reversed(weights), strict=True):
        r.add_(s, alpha=a - float((y * r).sum()) / sy)
    return r
