"""The drift along the zero-loss manifold: does a run follow it, how fast, and is it the regime at all.

Symbols, as in the paper:
    theta   trainable parameters [d]; V = ||theta||^2
    F, y    stacked outputs and targets [km]; L = ||F - y||^2, a sum; Z = {L = 0}
    J       dF/dtheta [km, d], wide; J^+ = J^T (J J^T)^-1
    P_T     projection on the null space of J, the tangent space of Z
    lam     weight of the norm beside L; t slow time = 2 lam * (flow time); after memorisation theta' = -P_T theta
    tau     ||P_T theta||^2 / ||theta||^2
    eps     lam / sigma_min(J)^2: the picture holds while it is small
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError, ModelError, PlanError
from triplepoint.grokking.gram_solvers import extreme_singular_values
from triplepoint.grokking.linearisation import Linearisation, check_wide, match_targets
from triplepoint.grokking.manifold import Route, TangentProjection, solve_gram

VALID_BELOW = 0.02
"""eps below which tanh and softplus nets on modular addition (p = 11) followed -P_T theta to 0.999 or better."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateComparison:
    """How well "slide down the norm inside Z" explains what training did."""

    cosine: float
    """Between the update and P_T(-theta), in [-1, 1]."""
    speed_ratio: float
    """||update|| / (slow time * ||P_T theta||): 1 where the theory has the pace right too."""
    null_cosine: float
    """Between the update and -theta itself: what projecting has to beat."""


def compare_update(
    update: Float[Tensor, " d"], drift: TangentProjection, *, slow_time: float
) -> UpdateComparison:
    """Compare what training did over a window with the drift that the theory expects.

    Args:
        update: theta at the window's end minus theta at its start. At least 10 steps, for ReLU some 200, so that
            the chatter across the manifold averages out.
        drift: The projection of ``v = -theta``, taken near the window's middle.
        slow_time: What the window covers: ``slow_clock(...).slow_time(steps)``, above 0.

    Returns:
        Cosine, speed ratio and the cosine that the plain decay direction has; nan where a vector is 0.

    Raises:
        MetricInputError: If the lengths differ.
        PlanError: If ``slow_time`` is not above 0.
    """
    if update.shape != drift.v.shape:
        raise MetricInputError(
            f"The update has shape {tuple(update.shape)}, the drift {tuple(drift.v.shape)}.\n"
            "Flatten both in the order of the trainable named_parameters."
        )
    if not slow_time > 0:
        raise PlanError(f"slow_time is {slow_time}.\nGive steps * lr * weight_decay, above 0.")
    update = update.to(drift.v)
    return UpdateComparison(
        cosine=_cosine(update, drift.tangent),
        speed_ratio=(update.norm() / (slow_time * drift.tangent.norm())).item(),
        null_cosine=_cosine(update, drift.v),
    )


def _cosine(a: Tensor, b: Tensor) -> float:
    return (a @ b / (a.norm() * b.norm())).item()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Homogeneity:
    """The drift of a homogeneous net from one solve with its own outputs."""

    degree: float
    """L of F(s theta) = s^L F(theta)."""
    euler_residual: float
    """||J theta - L F|| / ||L F||: 0 for a homogeneous net."""
    tangent: Tensor
    """P_T theta = theta - L J^+ F [d]."""
    tau: float
    """||P_T theta||^2 / ||theta||^2 = 1 - L^2 F^T (J J^T)^-1 F / ||theta||^2, in [0, 1]; dV/dt = -2 tau V in slow
    time. 0 at the end point."""


def homogeneity(
    lin: Linearisation,
    *,
    degree: float | None = None,
    route: Route = "cg",
    **settings: float | int | None,
) -> Homogeneity:
    r"""Return the drift of an L-homogeneous network by the homogeneity lemma.

    .. math:: J \theta = L F(\theta) \;\Rightarrow\; P_T \theta = \theta - L J^+ F, \qquad F = y \text{ on } Z

    For a bias-free ReLU MLP L is its number of layers; for a two-layer net with the square it is 3. Biases and
    normalisation layers break the lemma: there use ``project_tangent``, which needs J theta.

    Args:
        lin: The network, on the manifold.
        degree: L; by default it is read off J theta and F.
        route: As in :func:`solve_gram`.
        **settings: As in :func:`solve_gram`.

    Returns:
        The tangent part of theta and tau.

    Raises:
        ModelError: If the network is not homogeneous of this degree, to 1e-6.

    Example:
        >>> from triplepoint.grokking.linearisation import stack
        >>> net = stack(torch.nn.Linear(2, 1, bias=False), torch.ones(1, 2))
        >>> found = homogeneity(net.at(torch.tensor([0.0, 2.0], dtype=torch.float64)))
        >>> found.degree, found.tangent.tolist(), round(found.tau, 9)
        (1.0, [-1.0, 1.0], 0.5)
    """
    F, pulled = lin.outputs, lin.jvp(lin.theta)
    L = (pulled @ F / (F @ F)).item() if degree is None else degree
    gap = ((pulled - L * F).norm() / (L * F).norm()).item()
    if not gap <= max(1e-6, 100 * torch.finfo(F.dtype).eps):
        raise ModelError(
            f"The network is not homogeneous: J theta differs from {L:g} F by {gap:.1e} of its size.\n"
            "Biases, LayerNorm or a smooth activation break it; use tangent_projection instead."
        )
    a = solve_gram(lin, F, route=route, **settings).a
    tangent = lin.theta - L * lin.vjp(a)
    tau = 1.0 - (L * L * (F @ a) / lin.theta.square().sum()).item()
    return Homogeneity(degree=L, euler_residual=gap, tangent=tangent, tau=tau)


def loss_gradient(lin: Linearisation, targets: Tensor) -> Float[Tensor, " d"]:
    """Return grad L = 2 J^T (F - y). ``project_tangent(lin, it).share`` is its tangent share."""
    return 2.0 * lin.vjp(lin.outputs - match_targets(lin, targets))


def singular_value_range(
    lin: Linearisation, *, iterations: int | None = None, seed: int = 0
) -> tuple[float, float]:
    """Return (sigma_min, sigma_max) of J by Lanczos; sigma_min from above if stopped before km products.

    Args:
        lin: The linearised network.
        iterations: Products with J J^T allowed, by default km.
        seed: Of the start vector.

    Returns:
        Both values.

    Raises:
        ModelError: If there are fewer parameters than outputs.
    """
    check_wide(lin)
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(lin.outputs.numel(), generator=generator, dtype=torch.float64)
    return extreme_singular_values(
        lambda a: lin.jvp(lin.vjp(a)), start.to(lin.outputs), iterations=iterations
    )


def validity_number(*, lam: float, sigma_min: float) -> float:
    """Return eps = lam / sigma_min^2: below :data:`VALID_BELOW` the run is in the regime of the theory.

    It compares how fast decay pulls off the manifold with how fast the loss pulls back along its softest
    direction. ``lam`` is that of the SUM of squares, see ``slow_clock``; a decay of 1e-4 is often too much.

    Args:
        lam: Weight of the norm beside the sum of squares.
        sigma_min: Smallest singular value of J.

    Returns:
        eps, at least 0; infinite at a singular point.

    Raises:
        PlanError: If a value is negative or not finite.

    Example:
        >>> validity_number(lam=0.03125, sigma_min=0.25)
        0.5
    """
    if not (0 <= lam < float("inf") and 0 <= sigma_min < float("inf")):
        raise PlanError(
            f"lam is {lam} and sigma_min {sigma_min}.\nGive finite numbers, at least 0."
        )
    return lam / sigma_min**2 if sigma_min else float("inf")
