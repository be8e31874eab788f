r"""Rank measures: how many directions a matrix really uses.

Symbols: sigma singular values; lambda = sigma^2, eigenvalues of X^T X; p a spectrum divided by its sum.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError
from triplepoint.metrics.spectrum import spectrum_of


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """Four answers to how many directions a spectrum spans; each is 0 for a zero matrix."""

    effective: float
    """exp of the entropy of sigma / sum(sigma): Roy and Vetterli."""
    effective_sq: float
    """The same of sigma^2 / sum(sigma^2): never larger."""
    participation: float
    """(sum lambda)^2 / sum lambda^2."""
    stable: float
    """sum lambda / max lambda."""


def ranks_of(evals: Float[Tensor, " k"]) -> Ranks:
    """Return all rank measures of a matrix from the eigenvalues of its ``X^T X``, at least 0, in any order.

    Example:
        >>> ranks_of(torch.tensor([9.0, 1.0])).participation  # 10^2 / (81 + 1)
        1.21951...
    """
    lam = evals.double().clamp(min=0)
    if not lam.numel() or lam.max() == 0:
        return Ranks(effective=0.0, effective_sq=0.0, participation=0.0, stable=0.0)
    lam = lam / lam.max()
    return Ranks(
        effective=_entropy_rank(lam.sqrt()),
        effective_sq=_entropy_rank(lam),
        participation=float(lam.sum().square() / lam.square().sum()),
        stable=float(lam.sum()),
    )


def _entropy_rank(weights: Tensor) -> float:
    return float(torch.special.entr(weights / weights.sum()).sum().exp())


def effective_rank(x: Float[Tensor, "sample dim"]) -> Float[Tensor, ""]:
    r"""Exponential of the entropy of the normalised singular values.

    .. math::
        \mathrm{erank}(X) = \exp\Big(-\sum_i p_i \ln p_i\Big),
        \qquad p_i = \sigma_i / \textstyle\sum_j \sigma_j

    It is 1 for a rank-one matrix, ``min(sample, dim)`` when all directions carry equal weight, and is unchanged by
    rotating or rescaling ``x``. The singular *values* are normalised, not their squares: that is
    :func:`effective_rank_sq`, a smaller number that some papers also call effective rank.

    Args:
        x: Activations, one row per token, or weights. Not centred here: subtract the mean first if the mean
            direction should not count.

    Returns:
        Scalar in ``[1, min(sample, dim)]``, in units of dimensions; 0 if ``x`` is all zeros. Float32, computed in
        float64; directions below 1e-7 of the largest sigma count as empty.

    Raises:
        MetricInputError: If ``x`` is not a matrix, or has entries that are not finite.

    References:
        Roy and Vetterli (2007), The effective rank: a measure of effective dimensionality, EUSIPCO, pp. 606-610.

    Example:
        >>> float(effective_rank(torch.eye(4)))
        4.0
    """
    return torch.tensor(_ranks(x, "effective_rank").effective)


def effective_rank_sq(x: Float[Tensor, "sample dim"]) -> Float[Tensor, ""]:
    r"""Exponential of the entropy of the normalised *squared* singular values.

    .. math:: \exp\Big(-\sum_i p_i \ln p_i\Big), \qquad p_i = \sigma_i^2 / \textstyle\sum_j \sigma_j^2

    Entropy of the shares of variance. Not Roy and Vetterli's :func:`effective_rank`, which is at least as large.
    Arguments, range and errors are the same.

    Example:
        >>> x = torch.diag(torch.tensor([2.0, 1.0]))  # p = 4/5, 1/5; from sigma it would be 2/3, 1/3
        >>> round(float(effective_rank_sq(x)), 4)
        1.6494
    """
    return torch.tensor(_ranks(x, "effective_rank_sq").effective_sq)


def participation_ratio(x: Float[Tensor, "sample dim"]) -> Float[Tensor, ""]:
    r"""Return :math:`(\sum_i \lambda_i)^2 / \sum_i \lambda_i^2` with :math:`\lambda_i = \sigma_i^2`.

    Range and errors as :func:`effective_rank`, and at most :func:`effective_rank_sq`: it is the exponential of the
    second Renyi entropy. Not centred here.

    Example:
        >>> float(participation_ratio(torch.eye(3)))
        3.0
    """
    return torch.tensor(_ranks(x, "participation_ratio").participation)


def stable_rank(x: Float[Tensor, "sample dim"]) -> Float[Tensor, ""]:
    r"""Return :math:`\|X\|_F^2 / \|X\|_2^2 = \sum_i \sigma_i^2 / \sigma_1^2`.

    Range and errors as :func:`effective_rank`. The least of the four measures. Not numerical rank: it does not
    jump when a small singular value vanishes.

    Example:
        >>> float(stable_rank(torch.diag(torch.tensor([2.0, 1.0]))))  # (4 + 1) / 4
        1.25
    """
    return torch.tensor(_ranks(x, "stable_rank").stable)


def _ranks(x: Tensor, name: str) -> Ranks:
    if x.ndim != 2:
        raise MetricInputError(
            f"{name} needs a matrix [sample, dim], got shape {list(x.shape)}.\n"
            "For activations [batch, seq, dim], pass `x.flatten(0, -2)`."
        )
    if not x.isfinite().all():
        raise MetricInputError(
            f"{name} needs finite entries; {int((~x.isfinite()).sum())} of {x.numel()} are inf or nan.\n"
            "The run has probably diverged already; for weights, `spectrum_of` leaves out bad rows."
        )
    return ranks_of(spectrum_of(x, route="gram-float64").evals)
