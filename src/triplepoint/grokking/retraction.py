"""Back onto the zero-loss manifold, and how far away a point is from it.

Symbols, as in the paper:
    theta   trainable parameters [d]; theta0 where the search starts
    F, y    stacked outputs and targets [km]; L = ||F - y||^2; Z = {L = 0}
    J, J^+  Jacobian of F [km, d]; J^T (J J^T)^-1
    P_T     projection on the null space of J
    lam     weight of the norm beside L
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.linearisation import Linearisation, Stacked, match_targets
from triplepoint.grokking.manifold import Route, solve_gram


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retraction:
    """A point of the manifold near another point, and the way there."""

    theta: Tensor
    """Where it ended [d]; on the manifold if ``converged``."""
    distance: float
    """||theta - theta0||. An upper bound of the distance from Z, the distance itself for ``nearest=True``."""
    loss: float
    """L = ||F - y||^2 at the end, a sum."""
    iterations: int
    converged: bool


def retract(
    net: Stacked,
    targets: Tensor,
    *,
    theta: Float[Tensor, " d"] | None = None,
    nearest: bool = False,
    tol: float = 1e-10,
    max_iterations: int = 50,
    route: Route = "cg",
) -> Retraction:
    r"""Move onto the zero-loss manifold by Gauss-Newton steps of least norm.

    .. math:: \theta \leftarrow \theta - J^+ (F - y)

    halved until the loss falls. Where it ends differs from the nearest point by the square of the distance times
    the curvature. With ``nearest`` the steps :math:`P_T(\theta_0 - \theta) - J^+ (F - y)` follow until
    :math:`\theta_0 - \theta` is normal: the paper's proj_Z, if theta0 is closer than the radius of curvature.

    Args:
        net: The network on its training inputs.
        targets: In the shape of its outputs.
        theta: Where to start; by default where the network stands.
        nearest: Whether to go on to the nearest point.
        tol: Relative size of the residual, ||F - y|| / ||y||, and of the tangent part of theta0 - theta, to stop at.
        max_iterations: Steps in all.
        route: How each step is solved, as in ``solve_gram``; ``"eigh"`` near singular points.

    Returns:
        The point reached. ``converged`` is False where no step made the loss fall, or steps ran out.

    Raises:
        MetricInputError: If targets do not fit, or the start is not finite.
        PlanError: If ``tol`` or ``max_iterations`` is not above 0.
    """
    if not tol > 0 or max_iterations < 1:
        raise PlanError(f"tol is {tol}, max_iterations {max_iterations}.\nGive both above 0.")
    theta0 = net.theta if theta is None else theta.to(net.theta)
    if theta0.shape != net.theta.shape or not torch.isfinite(theta0).all():
        raise MetricInputError(
            f"The start has shape {tuple(theta0.shape)}, or is not finite.\n"
            f"Give {net.theta.numel()} finite parameters."
        )
    lin = net.at(theta0)
    y = match_targets(lin, targets)
    goal = tol * (y.norm() if y.any() else 1.0)
    for done in range(max_iterations + 1):
        r = lin.outputs - y
        there = bool(r.norm() <= goal)
        back = theta0 - lin.theta
        along = _tangent(lin, back, route) if nearest and there else torch.zeros_like(back)
        settled = there and along.norm() <= max(tol, 1e-8) * back.norm()
        if settled or done == max_iterations:
            break
        step = along - _least_norm(lin, r, route)
        trial = net.at(lin.theta + step) if there else _descending(net, lin, step, y)
        if trial is None:
            break
        lin = trial
    distance = (lin.theta - theta0).norm().item()
    loss = (lin.outputs - y).square().sum().item()
    return Retraction(
        theta=lin.theta, distance=distance, loss=loss, iterations=done, converged=bool(settled)
    )


def _least_norm(lin: Linearisation, r: Tensor, route: Route) -> Tensor:
    """J^+ r."""
    return lin.vjp(solve_gram(lin, r, route=route).a)


def _tangent(lin: Linearisation, v: Tensor, route: Route) -> Tensor:
    return v - _least_norm(lin, lin.jvp(v), route)


def _descending(net: Stacked, lin: Linearisation, step: Tensor, y: Tensor) -> Linearisation | None:
    """Return the network after the longest of step, step/2, step/4, ... that lowers the loss; None after 30."""
    before = (lin.outputs - y).norm()
    for halvings in range(30):
        theta = lin.theta + step / 2**halvings
        if (net.F(theta).detach() - y).norm() < before:
            return net.at(theta)
    return None


def off_manifold_distance(lin: Linearisation, targets: Tensor, *, route: Route = "cg") -> float:
    """Return ||J^+ (F - y)||, the distance from the zero-loss manifold to first order: one solve.

    Exact where F is linear; elsewhere good while it is small beside the radius of curvature. For the distance
    itself see :func:`retract` with ``nearest=True``.

    Args:
        lin: The linearised network.
        targets: In the shape of its outputs.
        route: As in ``solve_gram``.

    Returns:
        The distance, at least 0, in units of theta.

    Raises:
        MetricInputError: If targets do not fit.
    """
    return _least_norm(lin, lin.outputs - match_targets(lin, targets), route).norm().item()


def decay_displacement(
    lin: Linearisation, *, lam: float, route: Route = "cg"
) -> Float[Tensor, " d"]:
    r"""Return how far weight decay holds the network off the manifold, to first order in ``lam``.

    .. math:: \delta = -\lambda J^+ (J J^\top)^{-1} J \theta

    Its length over ``lam`` is the constant of the stability theorem at this point.

    Args:
        lin: The network, on the manifold.
        lam: Weight of the norm beside the sum of squares, at least 0.
        route: As in ``solve_gram``.

    Returns:
        The displacement; normal to the manifold, and 0 for ``lam = 0``.

    Raises:
        PlanError: If ``lam`` is negative.
    """
    if not lam >= 0:
        raise PlanError(
            f"lam is {lam}.\nGive the weight of ||theta||^2 beside the sum of squares, >= 0."
        )
    a = solve_gram(lin, lin.jvp(lin.theta), route=route).a
    return -lam * _least_norm(lin, a, route)
