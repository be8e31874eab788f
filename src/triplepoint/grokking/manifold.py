"""The zero-loss manifold of any network with squared error: which part of a motion is along it.

Symbols, as in the paper:
    theta   trainable parameters [d]; V = ||theta||^2
    F, y    stacked outputs and targets [km]; L = ||F - y||^2, a sum; Z = {L = 0}
    J       dF/dtheta [km, d], wide; J^+ = J^T (J J^T)^-1
    T, P_T  tangent space of Z = null space of J; projection on it, I - J^+ J
    lam     weight of the norm beside L; t slow time = 2 lam * (flow time); after memorisation theta' = -P_T theta
    tau     ||P_T theta||^2 / ||theta||^2
    eps     lam / sigma_min(J)^2: the picture holds while it is small
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triplepoint.errors import MetricInputError, ModelError, PlanError
from triplepoint.grokking.gram_solvers import (
    GramSolution,
    extreme_singular_values,
    solve_cg,
    solve_cholesky,
    solve_eigh,
)
from triplepoint.grokking.linearisation import (
    Inputs,
    Linearisation,
    check_wide,
    match_targets,
    stack,
)
from triplepoint.grokking.structured import project_two_layer, two_layer_rows
from triplepoint.grokking.two_layer import ACTIVATIONS, Activation

Route = Literal["cg", "cholesky", "eigh"]
"""How J J^T is solved: matrix-free, factored, or on its independent rows."""

GRAM_LIMIT = 5000
"""Rows of J J^T up to which ``route="auto"`` builds it: 200 MB in float64, some seconds to factor."""

VALID_BELOW = 0.02
"""eps below which tanh and softplus nets on modular addition (p = 11) followed -P_T theta to 0.999 or better."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TangentProjection:
    """A direction, and its part along the zero-loss manifold."""

    v: Tensor
    """What was projected [d]."""
    tangent: Tensor
    """P_T v [d]."""
    residual: float
    """||J P_T v|| / ||J v||: 0 is exact, and it costs nothing to know. 0 where J v = 0; of the size of 1 where v
    is tangent up to rounding."""
    rows: int
    """km."""
    solution: GramSolution
    """Multipliers (J J^T)^-1 J v, rank, singular values, iterations."""

    @property
    def share(self) -> float:
        """||P_T v|| / ||v|| in [0, 1]: a ratio of lengths, not of squares; 0 for v = 0."""
        size = self.v.norm()
        return (self.tangent.norm() / size).item() if size > 0 else 0.0


def solve_gram(
    lin: Linearisation,
    b: Float[Tensor, " km"],
    *,
    route: Route = "cg",
    tol: float | None = None,
    max_iterations: int | None = None,
    rtol: float | None = None,
) -> GramSolution:
    """Solve (J J^T) a = b for any network.

    Args:
        lin: The linearised network.
        b: Right-hand side.
        route: ``"cg"``: products only. ``"cholesky"`` and ``"eigh"`` build J and J J^T: km passes, km (km + d) numbers.
        tol: Of ``cg``, the relative residual to stop at.
        max_iterations: Of ``cg``.
        rtol: Of ``eigh``: eigenvalues up to ``rtol`` times the largest count as zero.

    Returns:
        The multipliers and what the solver saw of J.

    Raises:
        PlanError: If there is no such route.
        ModelError: If there are fewer parameters than outputs.
        MetricInputError: From the solver: not finite, or singular.
    """
    check_wide(lin)
    if route == "cg":
        return solve_cg(lambda a: lin.jvp(lin.vjp(a)), b, tol=tol, max_iterations=max_iterations)
    if route not in ("cholesky", "eigh"):
        raise PlanError(f"There is no route {route!r}.\nGive 'auto', 'cg', 'cholesky' or 'eigh'.")
    J = lin.jacobian()
    return solve_cholesky(J @ J.T, b) if route == "cholesky" else solve_eigh(J @ J.T, b, rtol=rtol)


def project_tangent(
    lin: Linearisation, v: Float[Tensor, " d"], *, route: Route = "cg", **settings: float | int | None
) -> TangentProjection:
    r"""Project a direction on the tangent space at one point.

    .. math:: P_T v = v - J^\top (J J^\top)^{-1} J v

    Args:
        lin: The network, linearised by ``stack(model, inputs).at(theta)``.
        v: Any direction.
        route: As in :func:`solve_gram`.
        **settings: ``tol``, ``max_iterations`` or ``rtol``, as in :func:`solve_gram`.

    Returns:
        The projection with its residual.

    Raises:
        MetricInputError: If ``v`` has another length than theta, or is not finite.
    """
    if v.shape != lin.theta.shape or not torch.isfinite(v).all():
        raise MetricInputError(
            f"The direction has shape {tuple(v.shape)}, or is not finite.\n"
            f"Give one finite number for each of the {lin.theta.numel()} trainable parameters."
        )
    v = v.to(lin.theta)
    Jv = lin.jvp(v)
    solution = solve_gram(lin, Jv, route=route, **settings)
    tangent = v - lin.vjp(solution.a)
    size = Jv.norm()
    residual = (lin.jvp(tangent).norm() / size).item() if size > 0 else 0.0
    return TangentProjection(
        v=v, tangent=tangent, residual=residual, rows=len(Jv), solution=solution
    )


def tangent_projection(
    model: nn.Module,
    inputs: Inputs,
    v: Float[Tensor, " d"] | None = None,
    *,
    route: Route | Literal["auto"] = "auto",
    dtype: torch.dtype = torch.float64,
    **settings: float | int | None,
) -> TangentProjection:
    """Project a direction on the tangent space of the zero-loss manifold, where the network stands.

    The theory is about the network on (or near) the manifold: see :func:`retract` and :func:`validity_number`. It
    holds for squared error; with cross-entropy there is no zero-loss set. ReLU nets slide along kinks, which J
    does not see: see ``kinks.py``.

    Args:
        model: Any module with one output tensor; it is not changed.
        inputs: The training inputs, all of them: the tangent space is that of the whole training set.
        v: Direction, flattened in the order of the trainable ``named_parameters``. By default -theta, the pull of
            weight decay, whose projection is the drift after memorisation.
        route: ``"auto"`` takes the structured Gram matrix and Cholesky for a bias-free two-layer net of up to 5000
            outputs in all, and conjugate gradients otherwise. ``"cholesky"`` and ``"eigh"`` use the structure where there
            is one and the whole J where not; ``"eigh"`` also works at and near singular points.
        dtype: Precision of the computation, whatever the model's.
        **settings: ``tol``, ``max_iterations`` (of cg) or ``rtol`` (of eigh), as in :func:`solve_gram`.

    Returns:
        The tangent part with its residual ||J P_T v|| / ||J v||.

    Raises:
        MetricInputError: If something is not finite, or J J^T singular under Cholesky.
        ModelError: If the model cannot be described: no output tensor, random, fewer parameters than outputs.
        PlanError: If there is no such route.

    References:
        arXiv 2511.01938, Theorem 4.14 and Appendix D (which prints the pseudo-inverse of a tall J).

    Example:
        Two weights that add up to 2: decay moves them along the line of constant sum.

        >>> net = nn.Linear(2, 1, bias=False)
        >>> net.weight.data = torch.tensor([[0.0, 2.0]])
        >>> tangent_projection(net, torch.ones(1, 2)).tangent.tolist()
        [1.0, -1.0]
    """
    net = stack(model, inputs, dtype=dtype)
    layers = two_layer_parts(model, inputs)
    v = -net.theta if v is None else v
    small = layers is not None and len(inputs) * len(layers[1]) <= GRAM_LIMIT
    if route == "auto":
        route = "cholesky" if small else "cg"
    if layers is None or route not in ("cholesky", "eigh"):
        return project_tangent(net.at(), v, route=route, **settings)
    return _project_structured(net.theta, inputs.to(dtype), layers, v, route, settings.get("rtol"))


def two_layer_parts(
    model: nn.Module, inputs: Inputs
) -> tuple[nn.Parameter, nn.Parameter, Activation] | None:
    """Return (first weight, second weight, activation) of a bias-free two-layer net on rows, None for another model."""
    if not (type(model) is nn.Sequential and len(model) == 3 and isinstance(inputs, Tensor)):
        return None
    first, act, last = model
    known = {repr(entry.module()): entry for entry in ACTIVATIONS.values()}
    linear = all(
        type(layer) is nn.Linear and layer.bias is None and layer.weight.requires_grad
        for layer in (first, last)
    )
    if not linear or repr(act) not in known or inputs.ndim != 2 or first.weight is last.weight:
        return None
    return first.weight, last.weight, known[repr(act)]


def _project_structured(theta, X, layers, v, route, rtol) -> TangentProjection:
    """The two-layer route: torch keeps [h, d_in] and [o, h], the paper's W1 and W2 are their transposes."""
    first, last, act = layers
    if v.shape != theta.shape:
        raise MetricInputError(
            f"The direction has shape {tuple(v.shape)}.\n"
            f"Give one finite number for each of the {theta.numel()} trainable parameters."
        )

    def layer_by_layer(flat: Tensor) -> tuple[Tensor, Tensor]:
        one, two = flat.to(theta).split([first.numel(), last.numel()])
        return one.view(first.shape).T, two.view(last.shape).T

    W1, W2 = layer_by_layer(theta)
    rows = two_layer_rows(X, W1, W2, activation=act)
    done = project_two_layer(rows, *layer_by_layer(v), route=route, rtol=rtol)
    return TangentProjection(
        v=v.to(theta),
        tangent=torch.cat([done.V1.T.reshape(-1), done.V2.T.reshape(-1)]),
        residual=done.residual,
        rows=done.rows,
        solution=done.solution,
    )


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
    lin: Linearisation, *, degree: float | None = None, route: Route = "cg", **settings: float | int | None
) -> Homogeneity:
    r"""Return the drift of an L-homogeneous network by the homogeneity lemma.

    .. math:: J \theta = L F(\theta) \;\Rightarrow\; P_T \theta = \theta - L J^+ F, \qquad F = y \text{ on } Z

    For a bias-free ReLU MLP L is its number of layers; for a two-layer net with the square it is 3. Biases and
    normalisation layers break the lemma: there use :func:`project_tangent`, which needs J theta.

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
        >>> net = stack(nn.Linear(2, 1, bias=False), torch.ones(1, 2))
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
        raise PlanError(f"lam is {lam} and sigma_min {sigma_min}.\nGive finite numbers, at least 0.")
    return lam / sigma_min**2 if sigma_min else float("inf")
