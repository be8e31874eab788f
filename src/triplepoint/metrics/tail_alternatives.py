r"""Does another law describe a fitted tail better, and is the power law plausible at all?

Symbols:
    z = ln(x / xmin) >= 0 of the tail's values; w = x / xmin - 1
    b = alpha - 1   a power law in x is exponential in z: b exp(-b z)
    log-normal      z is normal (t, s), cut below 0: density ~ exp(-(z/s + t)^2 / 2)
    truncated       power law with an exponential cut-off: density ~ exp(-b z - L w), L >= 0
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError
from triplepoint.metrics.power_law import PowerLawFit, best_tail, positive

_T_LARGEST = 200.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(256)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LikelihoodRatio:
    """A power law against another law, both fitted to the same tail by maximum likelihood."""

    ratio: float
    """Log-likelihood of the power law less the other's, nats: positive where the power law is likelier."""
    p: float
    """Two-sided: how often a ratio of this size would come about if both were equally good."""


def compare_tails(evals: Float[Tensor, " n"], fit: PowerLawFit) -> dict[str, LikelihoodRatio]:
    r"""Compare a fitted power law with a log-normal and with a truncated power law.

    Log-normal by Vuong's test, :math:`p = \mathrm{erfc}(|R| / \sqrt{2 n \hat\sigma^2})` with the standard deviation of
    the point-wise differences. The truncated power law contains the power law, so its R is never positive and p is that
    of chi-squared with one degree of freedom. Both contain the power law as a limit; where the maximum lies there, R is
    0 and p is 1. A large p says that the tail cannot tell the two apart, which is usual below some hundred values.

    Args:
        evals: What ``fit`` was made of.
        fit: With an ``xmin``.

    Returns:
        ``{"lognormal": ..., "truncated_power_law": ...}``.

    Raises:
        MetricInputError: If the fit has no tail.

    References:
        Vuong (1989), Econometrica 57, pp. 307-333; Clauset, Shalizi and Newman (2009), Appendix C.

    Example:
        >>> from triplepoint.metrics.power_law import fit_power_law
        >>> x = torch.special.ndtri((torch.arange(4000) + 0.5) / 4000).exp()  # log-normal
        >>> compare_tails(x, fit_power_law(x, bootstrap=0))["lognormal"].ratio < 0
        True
    """
    if fit.xmin is None:
        raise MetricInputError(
            f"there is no tail to compare: {fit.reason}.\nAsk only where `fit.xmin` is a number."
        )
    x = positive(evals)
    z = torch.from_numpy(x[x >= fit.xmin] / fit.xmin).log()
    power = _power_law_likelihoods(z)
    lognormal, truncated = _lognormal_likelihoods(z), _truncated_likelihoods(z)
    return {
        "lognormal": _vuong(power, lognormal),
        "truncated_power_law": _nested(power, truncated),
    }


def goodness_of_fit(
    evals: Float[Tensor, " n"], fit: PowerLawFit, *, draws: int = 200, seed: int = 0
) -> float:
    """Return how often a sample of the fitted law lies as far from its own fit as ``evals`` do.

    Each draw has as many values; each of them is of the fitted tail with the tail's share, else one of the values
    below it; xmin and exponent are fitted anew. Under 0.1 the power law is implausible. Eigenvalues repel each other,
    so they lie *nearer* to a law than independent draws do: a large p is no proof.

    Args:
        evals: What ``fit`` was made of.
        fit: With an exponent.
        draws: The standard error of p is at most 0.5 / sqrt(draws).
        seed: Of the draws.

    Raises:
        MetricInputError: If the fit was refused.

    References:
        Clauset, Shalizi and Newman (2009), SIAM Review 51, Sec. 4.

    Example:
        >>> from triplepoint.metrics.power_law import fit_power_law
        >>> x = ((torch.arange(400) + 0.5) / 400) ** -0.5
        >>> goodness_of_fit(x, fit_power_law(x, bootstrap=0), draws=20)
        1.0
    """
    if fit.tail_exponent is None or fit.xmin is None or fit.ks is None:
        raise MetricInputError(
            f"there is no fit to test: {fit.reason}.\nAsk only where `fit.tail_exponent` is a number."
        )
    x = positive(evals)
    body = x[x < fit.xmin]
    generator = np.random.default_rng(seed)
    farther = 0
    for _ in range(draws):
        in_tail = int(generator.binomial(len(x), fit.tail_size / len(x)))
        tail = fit.xmin * generator.random(in_tail) ** (-1 / (fit.tail_exponent - 1))
        # with no body every value is of the tail
        below = generator.choice(body, len(x) - in_tail) if len(body) else body
        farther += best_tail(np.sort(np.concatenate([tail, below])))[2] >= fit.ks
    return farther / draws


def _vuong(power: Tensor, other: Tensor) -> LikelihoodRatio:
    difference = power - other
    ratio, n = float(difference.sum()), len(difference)
    spread = float(difference.std(correction=0))
    # no spread: the two laws are one
    p = math.erfc(abs(ratio) / (math.sqrt(2 * n) * spread)) if spread > 1e-12 else 1.0
    return LikelihoodRatio(ratio=ratio, p=p)


def _nested(power: Tensor, other: Tensor) -> LikelihoodRatio:
    ratio = min(0.0, float((power - other).sum()))
    return LikelihoodRatio(ratio=ratio, p=math.erfc(math.sqrt(-ratio)))


def _power_law_likelihoods(z: Tensor) -> Tensor:
    b = 1 / z.mean()
    return b.log() - b * z


def _mean_of_cut_normal(t: float) -> float:
    """Mean of X - t for a standard normal X above t."""
    scaled = torch.special.erfcx(torch.tensor(t / math.sqrt(2), dtype=torch.float64))
    return math.sqrt(2 / math.pi) / float(scaled) - t


def _lognormal_likelihoods(z: Tensor) -> Tensor:
    """Log-density of z: of the exponential family in (z, z^2), so the maximum matches both moments.

    Their ratio E[z^2] / E[z]^2 grows with t from 1 to 2, the exponential's: beyond that it is the power law.
    """
    mean, wanted = float(z.mean()), float(z.square().mean() / z.mean() ** 2)

    def ratio(t: float) -> float:
        e = _mean_of_cut_normal(t)
        return (1 - t * e) / e**2

    if wanted >= ratio(_T_LARGEST):
        return _power_law_likelihoods(z)
    low, high = -1e4, _T_LARGEST
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if ratio(t) < wanted else (low, t)
    s = mean / _mean_of_cut_normal(t)
    scaled = z / s
    if t < 0:
        log_mass = float(torch.special.log_ndtr(torch.tensor(-t, dtype=torch.float64)))
        return -((scaled + t) ** 2) / 2 - math.log(s * math.sqrt(2 * math.pi)) - log_mass
    tail = float(torch.special.erfcx(torch.tensor(t / math.sqrt(2), dtype=torch.float64)))
    return -scaled * t - scaled**2 / 2 - math.log(s * math.sqrt(math.pi / 2) * tail)


def _truncated_likelihoods(z: Tensor) -> Tensor:
    """Log-density of z, of the exponential family in (z, w): Newton's method on a convex function."""
    w = torch.expm1(z)
    mean_z, mean_w = float(z.mean()), float(w.mean())
    b = 1 / mean_z
    if b > 1 and mean_w >= 1 / (b - 1):
        # heavier than its own power law: no cut-off helps
        return _power_law_likelihoods(z)
    b, cut = _newton(b, 1 / float(w.max()), mean_z, mean_w)
    return -b * z - cut * w - _moments(b, cut)[0]


def _newton(b: float, cut: float, mean_z: float, mean_w: float) -> tuple[float, float]:
    target = np.array([mean_z, mean_w])

    def cost(b: float, cut: float) -> float:
        return _moments(b, cut)[0] + b * mean_z + cut * mean_w

    now = cost(b, cut)
    for _ in range(200):
        _, mean, covariance = _moments(b, cut)
        gradient = target - mean
        step = np.linalg.solve(covariance, gradient)
        if gradient @ step < 1e-14:
            break
        size = 1.0 if step[1] <= 0 else min(1.0, 0.9 * cut / step[1])
        while size > 1e-10 and cost(b - size * step[0], cut - size * step[1]) > now:
            size /= 2
        b, cut = b - size * step[0], cut - size * step[1]
        now = cost(b, cut)
    return float(b), float(cut)


def _moments(b: float, cut: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return ln of the integral of exp(-b z - cut w) over z >= 0, and mean and covariance of (z, w)."""
    reach = math.log1p((60 + 60 * max(0.0, -b)) / cut)
    end = min(reach, 45 / b) if b > 0 else reach
    z = (1 + _NODES) * end / 2
    w = np.expm1(z)
    exponent = -b * z - cut * w + np.log(_WEIGHTS * end / 2)
    top = exponent.max()
    mass = np.exp(exponent - top)
    total = mass.sum()
    both = np.stack([z, w])
    mean = both @ mass / total
    centred = both - mean[:, None]
    return float(top + math.log(total)), mean, (centred * mass) @ centred.T / total
