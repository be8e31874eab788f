"""The zero-loss manifold of any network with squared error: which part of a motion is along it.

Symbols, as in the paper:
    theta   trainable parameters [d]
    F, y    stacked outputs and targets [km]; Z = {F = y}
    J       dF/dtheta [km, d], wide; J^+ = J^T (J J^T)^-1
    T, P_T  tangent space of Z = null space of J; projection on it, I - J^+ J
    v       any direction [d]; of weight decay, -theta
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.gram_solvers import (
    GramSolution,
    solve_cg,
    solve_cholesky,
    solve_eigh,
)
from triplepoint.grokking.linearisation import (
    Inputs,
    Linearisation,
    check_wide,
    stack,
)
from triplepoint.grokking.structured import project_two_layer, two_layer_rows
from triplepoint.grokking.two_layer import ACTIVATIONS, Activation

Route = Literal["cg", "cholesky", "eigh"]
"""How J J^T is solved: matrix-free, factored, or on its independent rows."""

GRAM_LIMIT = 5000
"""Rows of J J^T up to which ``route="auto"`` builds it: 200 MB in float64, some seconds to factor."""


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
    lin: Linearisation,
    v: Float[Tensor, " d"],
    *,
    route: Route = "cg",
    **settings: float | int | None,
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

    The theory is about the network on (or near) the manifold: see ``retract`` and ``validity_number``. It
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
