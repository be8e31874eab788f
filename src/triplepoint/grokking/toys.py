"""Toys of the zero-loss manifold: exact solutions to test against, and to look at.

Symbols, as in the paper:
    theta, w   parameters [d]; of the addition toy, its N weights
    F, y       outputs and targets [km]; L = ||F - y||^2, a sum without 1/2
    J          dF/dtheta [km, d]
    lam        weight of the norm: L_lam = L + lam ||theta||^2
    eta        step size of gradient descent
    t          time; *flow time* of theta' = -grad L_lam, or *slow time* = 2 lam times it
    P_T        projection on the null space of J
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import leaky_relu

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.dense import tangent_part
from triplepoint.grokking.flows import Velocity


@dataclasses.dataclass(frozen=True)
class Toy:
    """A few parameters, a few outputs, and the Jacobian by hand."""

    F: Callable[[Tensor], Tensor]
    """theta [d] -> outputs [km]."""
    J: Callable[[Tensor], Tensor]
    """theta [d] -> Jacobian [km, d]."""
    y: Tensor
    """Targets [km]."""

    def loss(self, theta: Tensor) -> Tensor:
        """Return L = ||F - y||^2."""
        return (self.F(theta) - self.y).square().sum()

    def gradient(self, theta: Tensor, lam: float = 0.0) -> Tensor:
        """Return grad L_lam = 2 J^T (F - y) + 2 lam theta."""
        return 2.0 * (self.J(theta).T @ (self.F(theta) - self.y) + lam * theta)

    def penalised(self, lam: float) -> Velocity:
        """Return the velocity of the gradient flow of L_lam in slow time: -grad L_lam / (2 lam)."""
        if not lam > 0:
            raise PlanError(
                f"lam is {lam}: slow time stands still.\nGive lam > 0, or follow -gradient in flow time."
            )
        return lambda theta: self.gradient(theta, lam) / (-2.0 * lam)

    def riemannian(self, theta: Tensor) -> Tensor:
        """Return -P_T theta: the flow of ||theta||^2 / 2 on the zero-loss set, in slow time; the lam -> 0 limit."""
        return -tangent_part(self.J(theta), theta)


def _row(*entries: Tensor) -> Tensor:
    return torch.stack(entries)[None]


def addition(n: int = 2) -> Toy:
    """Return the sum of ``n`` weights with the target ``n``: Z is a plane, its point of least norm (1, .., 1).

    The one sample is x = (1, .., 1) of the task "add the entries of x", so that (1, .., 1) generalises and other
    points of Z do not.
    """
    if n < 1:
        raise PlanError(f"{n} weights to add.\nGive n >= 1; the paper has 2 and 3.")
    ones = torch.ones(1, n, dtype=torch.float64)
    return Toy(lambda w: ones @ w, lambda w: ones, torch.tensor([float(n)], dtype=torch.float64))


def parabola(y: float = 0.0) -> Toy:
    """Return F = theta_2 - theta_1^2: Z is the parabola of height ``y``, regular everywhere."""
    return Toy(
        lambda th: th[1:] - th[:1].square(),
        lambda th: _row(-2.0 * th[0], torch.ones_like(th[0])),
        torch.tensor([y], dtype=torch.float64),
    )


def two_layer_linear(y: float = 1.0) -> Toy:
    """Return F = theta_1 theta_2: Z is a hyperbola, and for ``y=0`` two lines with a singular point at the origin."""
    return Toy(
        lambda th: th[:1] * th[1:],
        lambda th: _row(th[1], th[0]),
        torch.tensor([y], dtype=torch.float64),
    )


def leaky_relu_sum(y: float = 1.0, *, slope: float = 0.1) -> Toy:
    """Return F = act(theta_1) + act(theta_2), act the leaky ReLU: Z is a broken line with kinks on both axes.

    The paper shows one layer with this slope without a formula; the sum is our reading of it. J at a kink is the
    one of the negative side, as in torch.
    """

    def jacobian(th: Tensor) -> Tensor:
        return torch.where(th > 0, 1.0, slope)[None].to(th)

    return Toy(
        lambda th: leaky_relu(th, slope).sum()[None],
        jacobian,
        torch.tensor([y], dtype=torch.float64),
    )


def orthogonality_ratio(toy: Toy, foot: Float[Tensor, " d"], *, dist: float) -> float:
    r"""Measure how far the loss gradient is from normal, per distance from the zero-loss set.

    .. math:: \max_{v \in T} |\cos(v, \nabla L(\theta))| / \mathrm{dist}, \qquad
        \theta = \mathrm{foot} + \mathrm{dist} \cdot n

    The theorem of orthogonality bounds it near a regular point. For the parabola its limit for small ``dist`` is
    :math:`4 |x_0| / (1 + 4 x_0^2)^{3/2}`.

    Args:
        toy: A toy with one output.
        foot: A regular point of its zero-loss set.
        dist: Signed distance along n, the unit vector of J^T, not 0.

    Returns:
        The ratio, at least 0.

    Raises:
        MetricInputError: If ``foot`` is off the zero-loss set, or singular, or the toy has several outputs.

    Example:
        >>> foot = torch.tensor([0.5, 0.25], dtype=torch.float64)
        >>> round(orthogonality_ratio(parabola(), foot, dist=1e-6), 4)  # 2 / 2^1.5
        0.7071
    """
    J = toy.J(foot)
    if len(J) != 1 or toy.loss(foot) > 1e-20 or not J.any():
        raise MetricInputError(
            f"{foot.tolist()} is no regular point of the zero-loss set of a toy with one output.\n"
            "Give a point with F = y and a Jacobian that is not 0."
        )
    g = toy.gradient(foot + dist * J[0] / J.norm())
    return (tangent_part(J, g).norm() / g.norm()).item() / abs(dist)
