r"""Is a tail heavy? Only against the same matrix with its entries shuffled.

Symbols:
    lambda  eigenvalues of W^T W; lambda_max the largest
    alpha   density exponent of the tail, alpha_0 that of the shuffled matrix
    k       how many of the largest eigenvalues are compared
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float
from torch import Tensor

from triplepoint.metrics.power_law import PowerLawFit, fit_power_law, positive

_SMALLEST_TOP = 20

BEYOND = 5
"""Eigenvalues that must exceed the shuffled matrix's largest: two spectra of one law have so many with p = 2^-5."""

NULL_Z = 1.96
"""Standard errors by which the exponent must be smaller than the shuffled matrix's."""

BEHIND_Z = 1.3
"""The same for the eigenvalues behind those beyond the null. Noise with 5 to 16 spikes stays below 1.1 where they are at
most a tenth of the spectrum, for eigenvalues of noise repel each other; planted power laws are at 1.7 and above."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NullComparison:
    """The same matrix with its entries shuffled, and whether the tail is heavier than that."""

    fit: PowerLawFit
    """Of the shuffled matrix, at its own xmin."""
    largest: float
    """Largest eigenvalue of the shuffled matrix."""
    beyond: int
    """Eigenvalues of the matrix that are larger."""
    top: int
    """How many of the largest eigenvalues the two exponents below are of; 0 where the fit was refused."""
    exponent_top: float | None
    """Exponent of the matrix's own largest."""
    exponent_same_tail: float | None
    """Exponent of as many of the shuffled matrix's."""
    exponent_behind: float | None
    """Exponent of as many of the matrix's, those beyond ``largest`` left out."""
    heavy_tailed: bool
    """See :func:`compare_with_null`."""
    reason: str
    """Which condition decided."""


def compare_with_null(
    evals: Float[Tensor, " k"], null_evals: Float[Tensor, " k"], *, fit: PowerLawFit | None = None
) -> NullComparison:
    r"""Say whether a tail is heavy: fitted, reaching beyond its null, and falling more slowly.

    "Heavy-tailed" is claimed where all four hold:

    1. the fit has an exponent (a tail of 50 or more);
    2. at least :data:`BEYOND` eigenvalues are larger than the null's largest. If matrix and null were of one law, the
       largest c of both spectra together would all be the matrix's with probability 2^-c (less for noise, whose
       eigenvalues repel each other);
    3. over the same number k of largest eigenvalues, the tail but at most a tenth of all, the exponent is smaller than
       the null's by :data:`NULL_Z` standard errors, :math:`\sqrt{((\alpha-1)^2 + (\alpha_0-1)^2)/k}`. Over more than
       the top the spread of the bulk itself would pass for a tail;
    4. the k behind those that are beyond the null's largest fall more slowly than the null's largest k as well, by
       :data:`BEHIND_Z`: a tail goes on there, a bulk with some spikes beside it does not.

    The null may be heavy-tailed itself, where single entries are: then this says that it is not the *correlations*.

    Args:
        evals: Eigenvalues of the matrix.
        null_evals: Of the same matrix with its entries shuffled.
        fit: Of ``evals``, if it is there already.

    Example:
        >>> import torch
        >>> pareto, flat = torch.linspace(0.01, 1, 200) ** -1.0, torch.linspace(1, 2, 200)
        >>> compare_with_null(pareto, flat).heavy_tailed
        True
    """
    fit = fit_power_law(evals, bootstrap=0) if fit is None else fit
    largest = float(null_evals.max()) if null_evals.numel() else 0.0
    beyond = int((evals > largest).sum())
    top, own, null, behind = 0, None, None, None
    if fit.tail_exponent is not None:
        top = min(fit.tail_size, max(_SMALLEST_TOP, fit.count // 10))
        own, null = _exponent_of_largest(evals, top), _exponent_of_largest(null_evals, top)
        behind = _exponent_of_largest(evals, top, skip=beyond)
    heavy, reason = _decide(fit, beyond, top, own, null, behind)
    return NullComparison(
        fit=fit_power_law(null_evals, bootstrap=0),
        largest=largest,
        beyond=beyond,
        top=top,
        exponent_top=own,
        exponent_same_tail=null,
        exponent_behind=behind,
        heavy_tailed=heavy,
        reason=reason,
    )


def _decide(
    fit: PowerLawFit,
    beyond: int,
    top: int,
    own: float | None,
    null: float | None,
    behind: float | None,
) -> tuple[bool, str]:
    if fit.reason or own is None:
        return False, fit.reason or f"the largest {top} eigenvalues are equal"
    if beyond < BEYOND:
        return False, (
            f"{beyond} eigenvalues are beyond the shuffled matrix's largest, fewer than {BEYOND}"
        )
    if null is None:
        return True, f"the shuffled matrix's largest {top} eigenvalues are equal: it has no tail"
    z = _standard_errors(own, null, top)
    verb = "below" if z > NULL_Z else "not clearly below"
    said = (
        f"exponent {own:.2f} of the largest {top} is {verb} the shuffled matrix's {null:.2f}, z = {z:.1f}; "
        f"{beyond} eigenvalues are beyond its largest"
    )
    if z > NULL_Z and (behind is None or _standard_errors(behind, null, top) <= BEHIND_Z):
        return False, f"{said}, and behind them there is a bulk: spikes, no tail"
    return z > NULL_Z, said


def _standard_errors(own: float, null: float, k: int) -> float:
    return (null - own) / math.sqrt(((own - 1) ** 2 + (null - 1) ** 2) / k)


def _exponent_of_largest(evals: Tensor, k: int, *, skip: int = 0) -> float | None:
    x = positive(evals)
    x = x[: len(x) - skip][-k:]
    excess = float(np.log(x / x[0]).sum()) if len(x) else 0.0
    return 1 + len(x) / excess if excess > 0 else None
