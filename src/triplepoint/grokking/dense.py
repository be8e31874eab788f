"""The tangent space from J itself: for toys, and as the measure of the matrix-free routes.

Symbols, as in the paper:
    J       Jacobian of the stacked outputs [km, d]
    T       tangent space of the zero-loss set: the null space of J, where J has full rank
    P_T     orthogonal projection on T = I - J^T (J J^T)^-1 J
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class JacobianRank:
    """Whether a point of the zero-loss set is a singular one."""

    rank: int
    """Singular values above the tolerance."""
    rows: int
    """km: what a regular point has."""
    sigma_min: float
    """The smallest of the km singular values; 0 where J has fewer columns than rows."""
    sigma_max: float

    @property
    def singular(self) -> bool:
        """Whether J has less than full row rank, so that the set need not be a manifold here."""
        return self.rank < self.rows


def jacobian_rank(J: Float[Tensor, "km d"], *, rtol: float = 1e-10) -> JacobianRank:
    """Test for a singular point by the singular values of J.

    Near one, ``sigma_min`` falls before the rank does: watch it, the theorem's constant is 1/sigma_min^2.

    Args:
        J: The Jacobian, at a point of the zero-loss set.
        rtol: Singular values up to ``rtol`` times the largest count as zero. 1e-10 is above the rounding of an SVD
            in float64 by five digits; for a float32 J give 1e-5.

    Returns:
        Rank and extreme singular values; rank 0 for a zero J.

    Raises:
        MetricInputError: If J is no finite matrix.

    Example:
        The product of two weights at the origin: J = (0, 0).

        >>> jacobian_rank(torch.zeros(1, 2)).singular
        True
    """
    _check(J)
    sigma = torch.linalg.svdvals(J)
    largest = sigma[0].item()
    return JacobianRank(
        rank=int((sigma > rtol * largest).sum()),
        rows=J.shape[0],
        sigma_min=sigma[-1].item() if J.shape[1] >= J.shape[0] else 0.0,
        sigma_max=largest,
    )


def tangent_part(
    J: Float[Tensor, "km d"], v: Float[Tensor, " d"], *, rtol: float = 1e-10
) -> Float[Tensor, " d"]:
    r"""Project a direction on the null space of J.

    .. math:: P_T v = v - V_r V_r^\top v, \qquad J = U \Sigma V^\top

    with the r right singular vectors above the tolerance; at a singular point T is then larger than the tangent
    directions in the paper's sense. Equal to :math:`v - J^\top (J J^\top)^{-1} J v` at full rank; the form
    :math:`(J^\top J)^{-1} J^\top` of a pseudo-inverse does not exist for a wide J.

    Args:
        J: The Jacobian.
        v: Any direction.
        rtol: As in :func:`jacobian_rank`.

    Returns:
        The tangent part; ``v`` itself where J is 0.

    Raises:
        MetricInputError: If J is no finite matrix, or ``v`` has another length than its rows.

    Example:
        >>> tangent_part(torch.ones(1, 2), torch.tensor([0.0, 2.0])).tolist()
        [-1.0, 1.0]
    """
    _check(J)
    if v.shape != J.shape[1:]:
        raise MetricInputError(
            f"The direction has shape {tuple(v.shape)}, the Jacobian {tuple(J.shape)}.\n"
            f"Give a vector of length {J.shape[1]}."
        )
    _, sigma, Vt = torch.linalg.svd(J, full_matrices=False)
    rows = Vt[sigma > rtol * sigma[0]]
    return v - rows.T @ (rows @ v)


def _check(J: Tensor) -> None:
    if J.ndim != 2 or not J.numel() or not torch.isfinite(J).all():
        raise MetricInputError(
            f"The Jacobian is no finite, non-empty matrix: shape {tuple(J.shape)}.\n"
            "Give [outputs, parameters] at a finite point."
        )
