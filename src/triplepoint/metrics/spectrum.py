"""Eigenvalues of W^T W, and what of them the arithmetic can resolve.

Symbols: m rows, n columns, k = min(m, n); eigenvalues are squared singular values, not divided by m or n.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor

from triplepoint.errors import MetricInputError

Route = Literal["gram-float32", "gram-float64", "svd-float64"]

_UNRESOLVED_SHARE = 0.05
_SMALLEST_SQUARE, _LARGEST_SQUARE = 1e-24, 1e30
_CHUNK_BYTES = 32 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Spectrum:
    """The eigenvalues of W^T W (or W W^T, whichever is smaller) and how they were found."""

    evals: Tensor
    """Ascending [k], float64, at least 0; k is 0 where the matrix has no finite row."""
    rows: int
    """Finite rows that were measured."""
    columns: int
    bad_rows: int
    """Rows left out because they hold inf or nan."""
    route: Route
    unresolved: int
    """Eigenvalues below the route's rounding error: 0 as far as it can tell."""

    @property
    def sigma(self) -> Tensor:
        """Singular values, ascending [k]."""
        return self.evals.sqrt()


def spectrum_of(w: Tensor, *, route: Route | None = None) -> Spectrum:
    r"""Return the eigenvalues of :math:`W^\top W` by the Gram matrix of the smaller side.

    A Gram matrix in a dtype of rounding unit eps finds each eigenvalue to about
    :math:`\sqrt k\,\epsilon\,\lambda_\mathrm{max}`: small ones are lost. The route is ``gram-float32``, which resolves
    sigma to 2e-3 of the largest at k = 768; where more than 5 % of the eigenvalues would be lost, ``gram-float64``,
    which resolves it to 1e-7, as much as float32 weights carry. Float64 weights start at ``gram-float64`` and fall
    back on ``svd-float64``. In float64 what is not resolved is set to 0; in float32 it is kept with its error, too
    small to move a tail or a rank, and counted.

    Cost: m n k operations and about k^3; beside a float32 copy of W at most 16 k^2 bytes and 64 MiB (the singular
    value decomposition of a float64 matrix: two more copies).

    Args:
        w: Matrix [m, n] of any floating dtype, float8 included. Convolutions are unfolded before.
        route: One of the three; by default chosen as said.

    Returns:
        Spectrum of the finite rows; rows with inf or nan are left out and counted.

    Raises:
        MetricInputError: If ``w`` is not a matrix of floating-point numbers.

    Example:
        >>> spectrum_of(torch.diag(torch.tensor([3.0, 1.0]))).evals.tolist()
        [1.0, 9.0]
    """
    if w.ndim != 2 or not w.is_floating_point():
        raise MetricInputError(
            f"a spectrum needs a floating-point matrix [m, n], got {str(w.dtype)} {list(w.shape)}.\n"
            "Unfold a convolution with `w.flatten(1)`; dequantise packed weights first."
        )
    w = w.detach()
    w = w if w.dtype in (torch.float32, torch.float64) else w.float()
    used = route or ("gram-float64" if w.dtype == torch.float64 else "gram-float32")
    # whether every row is finite and no square overflows shows in the Gram matrix, without another pass over w
    found, scale, bad = _of_route(w, used), 1.0, 0
    if found is None:
        w, scale, bad = _tamed(w)
        found = _of_route(w, used) or _all_zero(min(w.shape))
    if route is None and _many(found[1]) and float(found[0][-1]):
        used = "svd-float64" if w.dtype == torch.float64 else "gram-float64"
        found = _of_route(w, used)
    evals, lost = found
    return Spectrum(
        evals=(evals if used == "gram-float32" else evals.masked_fill(lost, 0.0)) * scale**2,
        rows=len(w),
        columns=w.shape[1],
        bad_rows=bad,
        route=used,
        unresolved=int(lost.sum()),
    )


def _tamed(w: Tensor) -> tuple[Tensor, float, int]:
    """Return the finite rows over a power of two that makes their largest entry about 1, that power, the rows lost."""
    finite = w.isfinite().all(dim=1)
    kept = w[finite]
    largest = float(torch.linalg.vector_norm(kept, ord=math.inf)) if kept.numel() else 1.0
    # 2^126 is the largest such power of which float32 has the inverse too
    scale = 2.0 ** min(max(math.frexp(largest)[1], -126), 126)
    return kept / scale, scale, len(w) - len(kept)


def _all_zero(k: int) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros(k, dtype=torch.float64)
    return zeros, zeros == 0


def _many(lost: Tensor) -> bool:
    return int(lost.sum()) > _UNRESOLVED_SHARE * len(lost)


def _of_route(w: Tensor, route: Route) -> tuple[Tensor, Tensor] | None:
    """Return the eigenvalues and which are below the rounding error; None where squares are out of range."""
    if not w.numel():
        return None
    if route == "svd-float64":
        if not w.isfinite().all() or not w.any():
            return None
        sigma = torch.linalg.svdvals(w.double()).cpu().flip(0)
        noise = (max(w.shape) * torch.finfo(torch.float64).eps * sigma[-1]) ** 2
        return sigma.square(), sigma.square() <= noise
    dtype = torch.float32 if route == "gram-float32" else torch.float64
    gram = gram_of(w if len(w) >= w.shape[1] else w.T, dtype=dtype)
    if not _SMALLEST_SQUARE < float(gram.diagonal().max()) < _LARGEST_SQUARE:
        return None
    evals = torch.linalg.eigvalsh(gram).double().clamp_(min=0).cpu()
    k, eps = len(evals), torch.finfo(dtype).eps
    # the bound is k eps; in float32 errors of 0.3 to 0.9 sqrt(k) eps were seen, and what is lost is kept
    noise = (k if dtype == torch.float64 else math.sqrt(k)) * eps * evals[-1]
    return evals, evals <= noise


def gram_of(w: Tensor, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return ``w^T w`` [n, n] summed in ``dtype``, converting few rows at a time."""
    if w.dtype == dtype:
        return w.T @ w
    total = torch.zeros(w.shape[1], w.shape[1], dtype=dtype, device=w.device)
    for part in w.split(max(1, _CHUNK_BYTES // (8 * max(1, w.shape[1])))):
        part = part.to(dtype)
        total.addmm_(part.T, part)
    return total
