"""Logistic regression, for few coefficients.

Axes: ``cell`` one labelled thing, ``feature`` one measured number of it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import Labels, need_both_classes, need_finite, scores_and_labels

STEPS = 100
"""Newton steps at most; a fit that exists takes about ten."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Logistic:
    """A fitted logistic regression."""

    intercept: float
    coefficients: Float[np.ndarray, " feature"]
    """Logits per unit of each feature."""
    covariance: Float[np.ndarray, "1+feature 1+feature"]
    """Inverse curvature at the fit, the intercept first. With a ridge it is no sampling covariance."""

    def logit(self, x: Float[np.ndarray, "*cell feature"]) -> Float[np.ndarray, "*cell"]:
        """Return the log odds of True."""
        return self.intercept + np.asarray(x, dtype=float) @ self.coefficients

    def p(self, x: Float[np.ndarray, "*cell feature"]) -> Float[np.ndarray, "*cell"]:
        """Return the probability of True."""
        return sigmoid(self.logit(x))


def sigmoid(z: Float[np.ndarray, "*cell"]) -> Float[np.ndarray, "*cell"]:
    """Return 1 / (1 + exp(-z)) without overflow."""
    return np.exp(-np.logaddexp(0, -z))


def logistic_regression(
    x: Float[np.ndarray, "cell feature"], labels: Labels, *, ridge: float = 0.0
) -> Logistic:
    r"""Fit log odds that are linear in the features, by Newton's method.

    .. math::
        \max_{a, b} \sum_i \ln \sigma\big(\pm_i (a + b^\top x_i)\big) - \tfrac{\lambda}{2} \lVert b \rVert^2

    with + for True. The intercept is not penalised; the features are taken as they are, so standardise them
    before a ridge.

    Args:
        x: Features, one row per cell.
        labels: True or False per cell, both present.
        ridge: :math:`\lambda \ge 0`; 0 for maximum likelihood.

    Raises:
        StatisticsError: If shapes differ, a feature is not finite, a class is missing, or no maximum exists:
            without a ridge, where a plane separates the classes or features determine each other.

    Example:
        One feature that is 0 or 1: the log odds of each are those that were counted, 1:3 and 3:1.

        >>> x = np.array([[0], [0], [0], [0], [1], [1], [1], [1]])
        >>> fit = logistic_regression(x, [1, 0, 0, 0, 1, 1, 1, 0])
        >>> [round(float(p), 6) for p in fit.p(np.array([[0], [1]]))]
        [0.25, 0.75]
    """
    name = "logistic_regression"
    rows = np.asarray(x, dtype=float)
    if rows.ndim != 2:
        raise StatisticsError(
            f"{name} needs features [cell, feature], got shape {list(rows.shape)}.\nFor one feature pass `x[:, None]`."
        )
    need_finite(name, rows)
    _, y = scores_and_labels(name, np.zeros(len(rows)), labels)
    need_both_classes(name, y)
    design = np.column_stack([np.ones(len(rows)), rows])
    penalty = np.full(design.shape[1], float(ridge))
    penalty[0] = 0.0
    beta, curvature = _newton(design, y.astype(float), penalty)
    return Logistic(
        intercept=float(beta[0]), coefficients=beta[1:], covariance=np.linalg.inv(curvature)
    )


def _newton(
    design: np.ndarray, y: np.ndarray, penalty: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and curvature at the maximum."""

    def loss(beta: np.ndarray) -> float:
        return float(
            np.logaddexp(0, np.where(y > 0, -1, 1) * (design @ beta)).sum() + penalty @ beta**2 / 2
        )

    beta = np.zeros(design.shape[1])
    for _ in range(STEPS):
        p = sigmoid(design @ beta)
        curvature = (design.T * (p * (1 - p))) @ design + np.diag(penalty)
        gradient = design.T @ (y - p) - penalty * beta
        # a curvature that is flat in some direction: the maximum is at infinity, or is a ridge line
        if np.linalg.cond(curvature) > 1e12:
            break
        step = np.linalg.solve(curvature, gradient)
        if np.abs(step).max() < 1e-10:
            return beta, curvature
        before = loss(beta)
        while loss(beta + step) > before + 1e-12 and np.abs(step).max() > 1e-10:
            step = step / 2
        beta = beta + step
    raise StatisticsError(
        "logistic_regression has no finite maximum: a plane separates the classes, or features determine each other.\n"
        "Add cells, drop a feature, or pass a ridge."
    )
