"""The Jacobian of a bias-free two-layer net by its structure: J J^T without J.

Symbols, as in the paper (rows are samples):
    X, W1, W2  inputs [n, d_in], first [d_in, h] and second layer [h, o]; prediction act(X W1) W2
    Z, H, D    pre-activations X W1, features act(Z), gates act'(Z), each [n, h]
    J          Jacobian [n o, d]: rows (sample, output), columns W1 then W2, all row-major
    S          rows X_i . V1[:, b] of stuck pre-activations (i, b), see kinks.py; C = [J; S]
    V1, V2     a direction, in the shapes of W1 and W2
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from triplepoint.errors import MetricInputError, ModelError, PlanError
from triplepoint.grokking.gram_solvers import GramSolution, solve_cholesky, solve_eigh
from triplepoint.grokking.two_layer import Activation, activation_named


@dataclasses.dataclass(frozen=True)
class TwoLayerRows:
    """C = [J; S] of one two-layer net as an operator. Without stuck pre-activations it is J."""

    X: Float[Tensor, "n d_in"]
    W2: Float[Tensor, "h o"]
    H: Float[Tensor, "n h"]
    D: Float[Tensor, "n h"]
    stuck: Bool[Tensor, "n h"]

    def apply(self, V1: Tensor, V2: Tensor) -> Tensor:
        """Return C v = [(X V1 o D) W2 + H V2, row-major; (X V1) at the stuck entries]."""
        XV = self.X @ V1
        return torch.cat([((XV * self.D) @ self.W2 + self.H @ V2).reshape(-1), XV[self.stuck]])

    def transpose(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return C^T a in the shapes of W1 and W2."""
        n, o = len(self.X), self.W2.shape[1]
        A = a[: n * o].view(n, o)
        M = (A @ self.W2.T) * self.D
        M[self.stuck] += a[n * o :]
        return self.X.T @ M, self.H.T @ A

    def gram(self) -> Tensor:
        r"""Return C C^T.

        .. math::
            (J J^\top)_{(ic)(jc')} = (H H^\top)_{ij}\,\delta_{cc'}
                + (X X^\top)_{ij} \sum_b D_{ib} D_{jb} W_{2,bc} W_{2,bc'}

        A row of S looks like one of J whose second layer is a unit vector, and has no H part.
        """
        n, (h, o) = len(self.X), self.W2.shape
        i, b = self.stuck.nonzero(as_tuple=True)
        units = torch.nn.functional.one_hot(b, h).to(self.D)
        through = torch.cat([(self.D[:, None, :] * self.W2.T).reshape(n * o, h), units])
        sample = torch.cat([torch.arange(n, device=i.device).repeat_interleave(o), i])
        K = (self.X @ self.X.T)[sample][:, sample] * (through @ through.T)
        HH = self.H @ self.H.T
        J_part = K[: n * o, : n * o].view(n, o, n, o)
        torch.diagonal(J_part, dim1=1, dim2=3).add_(HH[:, :, None])
        return K


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoLayerProjection:
    """The tangent part of a direction, layer by layer."""

    V1: Tensor
    V2: Tensor
    residual: float
    """||C P v|| / ||C v||: what is left of the change of the outputs. 0 where C v = 0."""
    rows: int
    """Rows of C: n o, and one for each stuck pre-activation."""
    solution: GramSolution

    def flat(self) -> Tensor:
        """Return W1's part and W2's part in one vector, each row-major."""
        return torch.cat([self.V1.reshape(-1), self.V2.reshape(-1)])


def two_layer_rows(
    X: Float[Tensor, "n d_in"],
    W1: Float[Tensor, "d_in h"],
    W2: Float[Tensor, "h o"],
    *,
    activation: str | Activation = "relu",
    gates: Float[Tensor, "n h"] | None = None,
    stuck: Bool[Tensor, "n h"] | None = None,
) -> TwoLayerRows:
    """Linearise a two-layer net.

    Args:
        X: Inputs.
        W1: First layer; ``torch.nn.Linear`` stores its transpose.
        W2: Second layer.
        activation: Name in ``ACTIVATIONS``, or an ``Activation``.
        gates: D, where it is not act' at this point but a mean over a window.
        stuck: Pre-activations that are held where they are.

    Returns:
        The operator.

    Raises:
        MetricInputError: If shapes do not fit, or a value is not finite.
        UnknownNameError: If there is no activation of that name.
    """
    act = activation_named(activation) if isinstance(activation, str) else activation
    fits = X.ndim == W1.ndim == W2.ndim == 2 and (X.shape[1], W1.shape[1]) == (len(W1), len(W2))
    if not fits:
        raise MetricInputError(
            f"X {tuple(X.shape)}, W1 {tuple(W1.shape)} and W2 {tuple(W2.shape)} do not chain.\n"
            "Give [n, d_in], [d_in, h] and [h, o]; nn.Linear stores the transpose."
        )
    Z = X @ W1
    for name, extra in (("gates", gates), ("stuck", stuck)):
        if extra is not None and extra.shape != Z.shape:
            raise MetricInputError(
                f"{name} has shape {tuple(extra.shape)}, the pre-activations {tuple(Z.shape)}.\n"
                "Give one entry per sample and hidden unit."
            )
    D = act.pull_back(Z, torch.ones_like(Z)) if gates is None else gates.to(Z)
    if not (torch.isfinite(Z).all() and torch.isfinite(W2).all() and torch.isfinite(D).all()):
        raise MetricInputError(
            "A pre-activation or weight is not finite.\nTake an earlier checkpoint."
        )
    none = torch.zeros(Z.shape, dtype=torch.bool, device=Z.device)
    return TwoLayerRows(X, W2, act.value(Z), D, none if stuck is None else stuck)


def project_two_layer(
    rows: TwoLayerRows,
    V1: Float[Tensor, "d_in h"],
    V2: Float[Tensor, "h o"],
    *,
    route: Literal["cholesky", "eigh"] = "cholesky",
    rtol: float | None = None,
) -> TwoLayerProjection:
    r"""Project a direction on the null space of C, by its Gram matrix.

    .. math:: P v = v - C^\top (C C^\top)^{+} C v

    Cost: (n o)^2 h for the Gram matrix, (n o)^3 / 3 for Cholesky, some 10 (n o)^3 for ``eigh``; memory (n o)^2.

    Args:
        rows: From :func:`two_layer_rows`.
        V1: First layer's part of the direction.
        V2: Second layer's part.
        route: ``"cholesky"`` refuses a singular C C^T; ``"eigh"`` works on its independent rows.
        rtol: For ``eigh``: eigenvalues up to ``rtol`` times the largest count as zero.

    Returns:
        The tangent part, with the residual ||C P v||/||C v|| as a check that costs nothing.

    Raises:
        MetricInputError: If shapes do not fit, or ``cholesky`` meets a singular matrix.
        ModelError: If there are fewer parameters than outputs.
        PlanError: If there is no such route.

    Example:
        One weight each: F = W1 W2 at (1, 1). Along (1, -1) the output stays.

        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> done = project_two_layer(two_layer_rows(one, one, one), one, -one)
        >>> done.flat().tolist()
        [1.0, -1.0]
    """
    if V1.shape != (rows.X.shape[1], len(rows.W2)) or V2.shape != rows.W2.shape:
        raise MetricInputError(
            f"The direction has shapes {tuple(V1.shape)} and {tuple(V2.shape)}.\n"
            f"Give those of the layers, {(rows.X.shape[1], len(rows.W2))} and {tuple(rows.W2.shape)}."
        )
    km, d = len(rows.X) * rows.W2.shape[1], V1.numel() + V2.numel()
    if d < km:
        raise ModelError(
            f"{d} parameters cannot meet {km} targets: there is no zero-loss manifold to slide on.\n"
            "Take fewer samples, or a wider model."
        )
    Cv = rows.apply(V1, V2)
    if route == "cholesky":
        solution = solve_cholesky(rows.gram(), Cv)
    elif route == "eigh":
        solution = solve_eigh(rows.gram(), Cv, rtol=rtol)
    else:
        raise PlanError(f"There is no route {route!r} for two layers.\nGive 'cholesky' or 'eigh'.")
    N1, N2 = rows.transpose(solution.a)
    P1, P2 = V1 - N1, V2 - N2
    size = Cv.norm()
    residual = (rows.apply(P1, P2).norm() / size).item() if size > 0 else 0.0
    return TwoLayerProjection(V1=P1, V2=P2, residual=residual, rows=len(Cv), solution=solution)
