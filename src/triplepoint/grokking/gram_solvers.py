"""Three ways to solve (J J^T) a = b, and the extreme singular values of J.

Symbols, as in the paper:
    J          Jacobian of the stacked outputs [km, d], seen only through K
    K          J J^T [km, km]: the neural tangent kernel
    a, b       multipliers and right-hand side [km]
    sigma      singular values of J: square roots of the eigenvalues of K
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.linearisation import warn_of_precision


@dataclasses.dataclass(frozen=True, kw_only=True)
class GramSolution:
    """The multipliers, and what the solver saw of J on its way."""

    a: Tensor
    rank: int | None = None
    """Singular values kept; None from a solver that does not see them."""
    sigma_min: float | None = None
    """Smallest singular value kept; from conjugate gradients an estimate from above."""
    sigma_max: float | None = None
    iterations: int = 0
    """Products with K, where the solver counts them."""


def default_tolerance(dtype: torch.dtype) -> float:
    """Return the relative residual asked of conjugate gradients: 1e-10 in float64, 1e-5 in float32."""
    return 1e-10 if dtype == torch.float64 else 1e-5


def solve_cg(
    gram: Callable[[Tensor], Tensor],
    b: Float[Tensor, " km"],
    *,
    tol: float | None = None,
    max_iterations: int | None = None,
) -> GramSolution:
    r"""Solve by conjugate gradients, with nothing but products K a.

    About :math:`\tfrac12 \sqrt{\mathrm{cond}\,K}\, \ln(2/\mathrm{tol})` products. A singular K is no obstacle as long
    as b lies in its range, which J v always does. The coefficients are those of a Lanczos process: the extreme
    eigenvalues of K come free.

    Args:
        gram: a -> K a.
        b: Right-hand side.
        tol: Residual over ||b|| to stop at; by default :func:`default_tolerance`.
        max_iterations: Products allowed; by default 10 km, for in exact arithmetic km suffice.

    Returns:
        The multipliers, 0 for b = 0. A warning says so where ``tol`` was not reached.

    Raises:
        MetricInputError: If b or a product is not finite.
        PlanError: If ``tol`` or ``max_iterations`` is not above 0.

    Example:
        >>> K = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))
        >>> done = solve_cg(lambda a: K @ a, torch.tensor([1.0, 4.0], dtype=torch.float64))
        >>> [round(x, 9) for x in done.a.tolist()], done.iterations, round(done.sigma_max, 6)
        ([1.0, 1.0], 2, 2.0)
    """
    tol = default_tolerance(b.dtype) if tol is None else tol
    limit = 10 * b.numel() if max_iterations is None else max_iterations
    if not tol > 0 or limit < 1:
        raise PlanError(
            f"tol is {tol} and max_iterations {limit}.\nGive both above 0, e.g. tol=1e-10."
        )
    a, r = torch.zeros_like(b), b.clone()
    p, rr = r, (r @ r).item()
    if not math.isfinite(rr):
        raise MetricInputError(
            "The right-hand side is not finite.\nCheck the direction for inf and nan."
        )
    goal, alphas, betas = (tol * tol) * rr, [], []
    while rr > goal and len(alphas) < limit:
        Kp = gram(p)
        curvature = (p @ Kp).item()
        if not math.isfinite(curvature):
            raise MetricInputError(
                "A product with the Jacobian is not finite.\nTake an earlier checkpoint."
            )
        if curvature <= 0:  # b has a part outside the range of K, at the level of rounding
            break
        alphas.append(rr / curvature)
        a = a + alphas[-1] * p
        r = r - alphas[-1] * Kp
        rr, old = (r @ r).item(), rr
        betas.append(rr / old)
        p = r + betas[-1] * p
    if rr > goal:
        warnings.warn(
            f"Conjugate gradients stopped at a relative residual of {tol * math.sqrt(rr / goal):.1e} after "
            f"{len(alphas)} products, {tol:.0e} was asked. Try route='eigh', or a larger tol or max_iterations.",
            RuntimeWarning,
            stacklevel=2,
        )
    low, high = _ritz_values(alphas, betas)
    if low:
        warn_of_precision((high / low) ** 2, b.dtype)
    return GramSolution(a=a, sigma_min=low, sigma_max=high, iterations=len(alphas))


def _ritz_values(alphas: list[float], betas: list[float]) -> tuple[float | None, float | None]:
    """Return the square roots of the extreme eigenvalues of the Lanczos matrix that CG went through."""
    if not alphas:
        return None, None
    al = torch.tensor(alphas, dtype=torch.float64)
    be = torch.tensor(betas, dtype=torch.float64)[:-1]
    diagonal = 1.0 / al
    diagonal[1:] += be / al[:-1]
    return _tridiagonal_extremes(diagonal, be.sqrt() / al[:-1])


def _tridiagonal_extremes(diagonal: Tensor, beside: Tensor) -> tuple[float, float]:
    T = torch.diag(diagonal) + torch.diag(beside, 1) + torch.diag(beside, -1)
    values = torch.linalg.eigvalsh(T).clamp_min(0.0).sqrt()
    return values[0].item(), values[-1].item()


def solve_cholesky(K: Float[Tensor, "km km"], b: Float[Tensor, " km"]) -> GramSolution:
    """Solve by a Cholesky factor, after a look at its pivots.

    A K that is singular only up to rounding often factors without complaint and gives multipliers of no use: so the
    smallest pivot is compared with the rounding of the largest diagonal entry.

    Args:
        K: The Gram matrix.
        b: Right-hand side.

    Returns:
        The multipliers; rank km.

    Raises:
        MetricInputError: If K is not finite, or singular to working precision.

    Example:
        >>> solve_cholesky(4.0 * torch.eye(2), torch.tensor([4.0, 8.0])).a.tolist()
        [1.0, 2.0]
    """
    _check_gram(K, b)
    L, info = torch.linalg.cholesky_ex(K)
    pivots = L.diagonal().square()
    floor = len(K) * torch.finfo(K.dtype).eps * K.diagonal().max()
    if info or not (pivots > floor).all():
        raise MetricInputError(
            f"J J^T ({len(K)} rows) is singular to working precision: a singular point, or repeated samples.\n"
            "Try route='eigh', which works on the rows that are independent."
        )
    warn_of_precision((pivots.max() / pivots.min()).item(), K.dtype)
    return GramSolution(a=torch.cholesky_solve(b[:, None], L)[:, 0], rank=len(K))


def solve_eigh(
    K: Float[Tensor, "km km"], b: Float[Tensor, " km"], *, rtol: float | None = None
) -> GramSolution:
    """Solve on the eigenvectors of K that are not zero: the answer of least norm, at any rank.

    Args:
        K: The Gram matrix.
        b: Right-hand side; its part outside the range of K is left out.
        rtol: Eigenvalues up to ``rtol`` times the largest count as zero; by default km times the rounding unit,
            so that singular values below some 1e-7 of the largest are lost in float64.

    Returns:
        The multipliers, with rank and extreme singular values kept; rank 0 and a = 0 for K = 0.

    Raises:
        MetricInputError: If K is not finite.

    Example:
        The same row twice:

        >>> done = solve_eigh(torch.ones(2, 2), torch.tensor([1.0, 1.0]))
        >>> done.rank, [round(x, 6) for x in done.a.tolist()]
        (1, [0.5, 0.5])
    """
    _check_gram(K, b)
    values, V = torch.linalg.eigh(K)
    rtol = len(K) * torch.finfo(K.dtype).eps if rtol is None else rtol
    kept = values > rtol * values[-1].clamp_min(0.0)
    if not kept.any():
        return GramSolution(a=torch.zeros_like(b), rank=0, sigma_min=0.0, sigma_max=0.0)
    values, V = values[kept], V[:, kept]
    warn_of_precision((values[-1] / values[0]).item(), K.dtype)
    return GramSolution(
        a=V @ ((V.T @ b) / values),
        rank=len(values),
        sigma_min=values[0].sqrt().item(),
        sigma_max=values[-1].sqrt().item(),
    )


def _check_gram(K: Tensor, b: Tensor) -> None:
    if K.shape != (len(b), len(b)) or not (torch.isfinite(K).all() and torch.isfinite(b).all()):
        raise MetricInputError(
            f"J J^T is no finite square matrix for this right-hand side: {tuple(K.shape)} and {tuple(b.shape)}.\n"
            "Check the parameters and inputs for inf and nan."
        )


def extreme_singular_values(
    gram: Callable[[Tensor], Tensor],
    start: Float[Tensor, " km"],
    *,
    iterations: int | None = None,
    rtol: float = 1e-6,
) -> tuple[float, float]:
    r"""Return (sigma_min, sigma_max) of J by Lanczos on K, kept orthogonal to all that came before.

    The smallest one converges last and from above. After km iterations both are exact.

    Args:
        gram: a -> K a.
        start: Any vector that is not orthogonal to what is sought: draw it at random.
        iterations: Products allowed, by default km.
        rtol: Stop once the residual of the smallest Ritz pair is below ``rtol`` times its value.

    Returns:
        Both values, at least 0; repeated ones are found once.

    Raises:
        MetricInputError: If a product is not finite.

    Example:
        >>> low, high = extreme_singular_values(lambda a: torch.tensor([1.0, 9.0]) * a, torch.ones(2))
        >>> round(low, 4), round(high, 4)
        (1.0, 3.0)
    """
    km = start.numel()
    basis, diagonal, beside = [start / start.norm()], [], []
    scale = 0.0
    for j in range(min(km, iterations or km)):
        w = gram(basis[-1])
        diagonal.append((basis[-1] @ w).item())
        if not math.isfinite(diagonal[-1]):
            raise MetricInputError(
                "A product with the Jacobian is not finite.\nTake an earlier checkpoint."
            )
        Q = torch.stack(basis)
        for _ in range(2):  # once is not enough
            w = w - Q.T @ (Q @ w)
        size = w.norm().item()
        scale = max(scale, abs(diagonal[-1]), size)
        invariant = size <= 100 * torch.finfo(w.dtype).eps * scale
        if invariant or (j % 10 == 9 and _lowest_settled(diagonal, beside, size, rtol)):
            break
        beside.append(size)
        basis.append(w / size)
    return _tridiagonal_extremes(_f64(diagonal), _f64(beside[: len(diagonal) - 1]))


def _f64(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _lowest_settled(diagonal: list[float], beside: list[float], size: float, rtol: float) -> bool:
    """Whether the residual of the lowest Ritz pair, size * |last entry of its vector|, is small."""
    T = torch.diag(_f64(diagonal)) + torch.diag(_f64(beside), 1) + torch.diag(_f64(beside), -1)
    values, V = torch.linalg.eigh(T)
    return bool(size * V[-1, 0].abs() <= rtol * values[0].abs())
