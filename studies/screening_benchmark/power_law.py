"""One arm's validation loss, extrapolated by itself: what a rule that looks at the pair has to beat.

Symbols: ``s`` cumulative learning rate over its last value seen, ``L`` floor, ``A`` loss above it at the last value
seen, ``a`` exponent; axis ``start`` of the fits that run side by side.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
from jaxtyping import Float

from triplepoint.evidence import Trajectory
from triplepoint.statistics.logistic import sigmoid

DELTA = 1e-3
"""Error of a log loss beyond which it counts linearly (pseudo-Huber), and the unit of errors beside the prior."""
EXPONENT = (0.45, 0.35)
"""Median and spread of ln a: fits of public one-epoch runs."""
EXPONENTS, FLOORS = (0.2, 0.4, 0.7, 1.0), (0.5, 0.7, 0.9)
"""Starts: each exponent with each floor, as a share of the last loss."""
LEAST = 4
"""Evaluations; three numbers are fitted."""
STEPS = 100
"""Of the damped Gauss-Newton iteration."""


def extrapolated(run: Trajectory, s1_end: float, *, after: int) -> float | None:
    """Return the validation loss at a later clock, nats per token; None before four evaluations.

    Args:
        run: What was seen of it.
        s1_end: Cumulative learning rate at the planned end.
        after: Warm-up: evaluations up to this step are not fitted.
    """
    fitted = run.steps > after
    if fitted.sum() < LEAST:
        return None
    s, y = run.s1[fitted], run.val[fitted]
    return _at(tuple((s / s[-1]).tolist()), tuple(y.tolist()), float(s1_end / s[-1]))


@functools.cache  # a run is asked for again by every fold
def _at(s: tuple[float, ...], y: tuple[float, ...], end: float) -> float:
    floor, above, exponent = fit(np.array(s), np.array(y))
    return floor + above * end**-exponent


def fit(
    s: Float[np.ndarray, " evaluation"], y: Float[np.ndarray, " evaluation"]
) -> tuple[float, float, float]:
    r"""Fit :math:`y = L + A s^{-a}` to log losses; returns L, A and a.

    .. math::
        \min \sum_i \Big(\sqrt{1 + (r_i / \delta)^2} - 1\Big) + \tfrac12 \Big(\frac{\ln a - \ln 0.45}{0.35}\Big)^2,
        \qquad r_i = \ln y_i - \ln(L + A s_i^{-a})

    with 0 < L < min y, from twelve starts at once; the lowest end is kept. With the prior on the exponent, a short
    beginning still has a floor to fall to.

    Args:
        s: Clock over its last value, ascending to 1.
        y: Losses, nats per token.
    """
    lowest = float(y.min())
    starts = list(itertools.product(EXPONENTS, FLOORS))
    # theta: logit of L / min y, ln A, ln a
    share = np.minimum(np.array([f * y[-1] for _, f in starts]) / lowest, 0.98)
    theta = np.stack([
        np.log(share / (1 - share)), np.log(y[-1] - share * lowest), np.log([a for a, _ in starts])
    ], axis=1)  # fmt: skip
    damping = np.full(len(starts), 1e-3)
    error, jacobian, loss = _errors(theta, s, y)
    for _ in range(STEPS):
        weight = 1 / np.sqrt(1 + error**2)
        weight[:, -1] = 1  # the prior is a parabola
        curvature = np.einsum("bip,bi,biq->bpq", jacobian, weight, jacobian)
        gradient = np.einsum("bip,bi->bp", jacobian, weight * error)
        ridge = damping[:, None, None] * (curvature + 1e-9) * np.eye(3)
        step = np.linalg.solve(curvature + ridge, -gradient[..., None])[..., 0]
        moved = theta + np.clip(step, -2, 2)
        new_error, new_jacobian, new_loss = _errors(moved, s, y)
        better = new_loss < loss
        theta = np.where(better[:, None], moved, theta)
        error = np.where(better[:, None], new_error, error)
        jacobian = np.where(better[:, None, None], new_jacobian, jacobian)
        loss = np.where(better, new_loss, loss)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e9)
    z, log_above, log_exponent = theta[int(np.argmin(loss))]
    return float(lowest * sigmoid(z)), float(np.exp(log_above)), float(np.exp(log_exponent))


def _errors(
    theta: Float[np.ndarray, "start 3"], s: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return errors over their unit, the prior's last; their derivatives by theta; the objective."""
    share = sigmoid(theta[:, :1])
    a = np.exp(theta[:, 2:])
    floor, falling = share * y.min(), np.exp(theta[:, 1:2] - a * np.log(s))
    value = floor + falling
    error = (np.log(value) - np.log(y)) / DELTA
    prior = (theta[:, 2:] - np.log(EXPONENT[0])) / EXPONENT[1]
    slopes = np.stack([floor * (1 - share) / value, falling / value, -falling * a * np.log(s) / value], -1) / DELTA  # fmt: skip
    of_prior = np.broadcast_to([0.0, 0.0, 1 / EXPONENT[1]], (len(theta), 1, 3))
    loss = (np.sqrt(1 + error**2) - 1).sum(axis=1) + prior[:, 0] ** 2 / 2
    return np.hstack([error, prior]), np.concatenate([slopes, of_prior], axis=1), loss
