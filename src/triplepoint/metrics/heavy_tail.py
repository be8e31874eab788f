r"""Everything that heavy-tailed self-regularisation reads off one weight matrix.

Symbols:
    lambda  eigenvalues of W^T W; lambda_max the largest
    alpha   density exponent of their tail, ``tail_exponent``
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError
from triplepoint.metrics.power_law import PowerLawFit, fit_power_law, positive
from triplepoint.metrics.random_matrices import Bulk, marchenko_pastur, shuffled
from triplepoint.metrics.rank import Ranks, ranks_of
from triplepoint.metrics.spectrum import Route, Spectrum, spectrum_of
from triplepoint.metrics.tail_null import NullComparison, compare_with_null


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TailReport:
    """Everything that is read off one weight matrix's spectrum."""

    spectrum: Spectrum
    fit: PowerLawFit
    bulk: Bulk
    ranks: Ranks
    norms: dict[str, float]
    """See :func:`log_norms`; with ``weighted_tail_exponent`` where there is an exponent."""
    null: NullComparison | None
    """None where no null was asked for."""


def tail_report(
    w: Float[Tensor, "m n"],
    *,
    bootstrap: int = 200,
    null: bool = True,
    seed: int = 0,
    route: Route | None = None,
) -> TailReport:
    """Measure a weight matrix: spectrum, tail with interval, noise bulk, ranks, norms and the shuffled null.

    Args:
        w: Matrix [m, n] of any floating dtype.
        bootstrap: Resamples for the exponent's interval; 0 for none.
        null: Whether to decompose the shuffled matrix too, which doubles the time.
        seed: Of the resampling and the shuffle.
        route: Of :func:`triplepoint.metrics.spectrum.spectrum_of`.

    Example:
        >>> report = tail_report(torch.eye(60), bootstrap=0)
        >>> report.fit.reason
        '60 positive eigenvalues are equal to 4 digits: there is no tail'
        >>> report.null.heavy_tailed
        False
    """
    spectrum = spectrum_of(w, route=route)
    fit = fit_power_law(spectrum.evals, bootstrap=bootstrap, seed=seed)
    norms = log_norms(spectrum.evals)
    if fit.tail_exponent is not None:
        weighted = weighted_tail_exponent(fit.tail_exponent, norms["log_spectral_norm"])
        norms["weighted_tail_exponent"] = weighted
    return TailReport(
        spectrum=spectrum,
        fit=fit,
        bulk=marchenko_pastur(spectrum.evals, rows=spectrum.rows, columns=spectrum.columns),
        ranks=ranks_of(spectrum.evals),
        norms=norms,
        null=_null_of(w, spectrum, fit, seed) if null else None,
    )


def _null_of(w: Tensor, spectrum: Spectrum, fit: PowerLawFit, seed: int) -> NullComparison:
    # float8 can be neither tested nor moved about
    w = w if w.dtype in (torch.float32, torch.float64) else w.float()
    finite = w[w.isfinite().all(dim=1)] if spectrum.bad_rows else w
    # the same precision as the matrix itself, so that the two differ in nothing else
    twin = spectrum_of(shuffled(finite, seed=seed), route=spectrum.route)
    return compare_with_null(spectrum.evals, twin.evals, fit=fit)


def hill_exponent(evals: Float[Tensor, " n"], *, k: int) -> float:
    r"""Hill's estimate of the *survival* exponent from the k largest values above the next.

    .. math:: \hat\gamma = k \Big/ \sum_{j=1}^{k} \ln (x_{(j)} / x_{(k+1)}), \qquad P(X > x) \sim x^{-\gamma}

    Smaller by 1 than the density exponent (``tail_exponent``) of the same tail.

    Args:
        evals: At least k + 1 positive values, any order.
        k: How many of the largest to use. Its choice matters; :func:`fit_power_law` makes it by distance.

    Returns:
        The exponent, above 0; infinity where the k + 1 largest are equal.

    Raises:
        MetricInputError: If k is under 1 or there are not more than k positive values.

    References:
        Hill (1975), Annals of Statistics 3, pp. 1163-1174.

    Example:
        >>> hill_exponent(torch.tensor([1.0, math.e, math.e**2]), k=2)  # 2 / (1 + 2)
        0.666...
    """
    x = positive(evals)
    if not 1 <= k < len(x):
        raise MetricInputError(
            f"hill_exponent uses the k largest values above the next: k = {k} of {len(x)} positive values.\n"
            f"Choose k from 1 to {len(x) - 1}."
        )
    excess = float(np.log(x[-k:] / x[-k - 1]).sum())
    return k / excess if excess > 0 else math.inf


def weighted_tail_exponent(tail_exponent: float, log_spectral_norm: float) -> float:
    r"""Return :math:`\alpha \log_{10} \lambda_\mathrm{max}`, which WeightWatcher calls ``alpha_weighted``.

    Unlike alpha it depends on the scale of the weights; it is negative where lambda_max < 1.

    References:
        Martin, Peng and Mahoney (2021), Nature Communications 12, 4122.

    Example:
        >>> weighted_tail_exponent(3.0, 2.0)
        6.0
    """
    return tail_exponent * log_spectral_norm


alpha_weighted = weighted_tail_exponent
"""The name that WeightWatcher gives it."""


def log_norms(evals: Float[Tensor, " k"]) -> dict[str, float]:
    r"""Return ``log_norm`` and ``log_spectral_norm``: decimal logarithms of sum lambda and of lambda_max.

    That is of the *squared* Frobenius and spectral norms, as in the literature of these spectra; minus infinity for
    a zero matrix.

    Example:
        >>> log_norms(torch.tensor([90.0, 10.0]))["log_norm"]
        2.0
    """
    total, largest = (float(v) for v in (evals.sum(), evals.max() if evals.numel() else 0.0))
    return {"log_norm": _log10(total), "log_spectral_norm": _log10(largest)}


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf
