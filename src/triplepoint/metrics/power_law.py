r"""Power laws fitted to the upper tail of a spectrum, with an interval or a reason for none.

Symbols:
    x       positive eigenvalues, ascending; y = ln x at their distinct values
    alpha   density exponent, p(x) ~ x^-alpha for x >= xmin; in results ``tail_exponent``
    F, E    fitted and empirical distribution function of the tail
    n_i     how many eigenvalues are >= x_i, the i-th candidate for xmin
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from triplepoint.errors import MetricInputError

SMALLEST_TAIL = 50
"""Fewest eigenvalues in a tail that is given an exponent: with 32 the 5-95 % range of a true 3 is 2.5 to 4.4."""

XMIN_CANDIDATES_RESAMPLED = 100
"""At most so many candidates for xmin, evenly spaced by rank, in each resample."""

_FLAT = 1e-4
_PROBES = 24
_BLOCK = 2**17


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PowerLawFit:
    """A power law fitted to a tail, or the reason why it is not given."""

    tail_exponent: float | None
    """Density exponent alpha, above 1; None where the fit is refused. The survival function falls as alpha - 1."""
    reason: str | None = None
    """Why there is no exponent; None where there is one."""
    xmin: float | None = None
    """Where the tail begins; known also where the tail is refused for its size."""
    ks: float | None = None
    """Kolmogorov-Smirnov distance with the empirical function at 0/n ... (n-1)/n, as xmin is chosen by."""
    ks_two_sided: float | None = None
    """The textbook distance: both sides of every step of the empirical function."""
    tail_size: int = 0
    """Eigenvalues at or above ``xmin``."""
    count: int = 0
    """Positive eigenvalues."""
    standard_error: float | None = None
    """``(alpha - 1) / sqrt(tail_size)``: of the exponent for a known xmin, so too small."""
    interval: tuple[float, float] | None = None
    """95 % interval that includes the choice of xmin; None without bootstrap."""


class _Tails(NamedTuple):
    """Every tail of a sample at once, by its first distinct value."""

    y: np.ndarray
    below: np.ndarray
    """How many values are smaller."""
    size: np.ndarray
    log_excess: np.ndarray
    """Sum over the tail of ln(x / x_i)."""


def fit_power_law(
    evals: Tensor | np.ndarray | Sequence[float],
    *,
    bootstrap: int = 200,
    min_tail: int = SMALLEST_TAIL,
    seed: int = 0,
) -> PowerLawFit:
    r"""Fit a continuous power law to the tail of ``evals``, over all candidates for its beginning.

    .. math:: \alpha_i = 1 + n_i \Big/ \sum_{x_j \ge x_i} \ln (x_j / x_i), \qquad
        x_\mathrm{min} = \arg\min_{x_i} \max_{x_j \ge x_i} |F_i(x_j) - E_i(x_j)|

    with E at 0/n ... (n-1)/n, as the package ``powerlaw`` has it; candidates are all distinct values but the two
    largest. Only then a tail below ``min_tail`` is refused. The interval is the percentile interval of refits to
    resamples, xmin chosen anew, resamples whose tail would be refused left out. The exponent is that of the
    *density*; Hill's is of the survival function, smaller by 1.

    Cost: about N ln N. The distance on some points is a lower bound of the distance, so most candidates are
    dropped unseen; the result is that of the full N x N table.

    Args:
        evals: Eigenvalues [N], in any order and unit; zeros and negative rounding errors are left out.
        bootstrap: Resamples for the interval; 0 for none, below 40 its ends are the extremes seen. Each costs about as much as a fit.
        min_tail: Fewest eigenvalues that a tail needs, default :data:`SMALLEST_TAIL`.
        seed: Of the resampling.

    Returns:
        The fit. Where eigenvalues are too few, or equal to four digits, all but ``reason`` and ``count`` is None.

    Raises:
        MetricInputError: If ``evals`` is not one axis of finite numbers.

    References:
        Clauset, Shalizi and Newman (2009), Power-law distributions in empirical data, SIAM Review 51, Sec. 3.

    Example:
        >>> quantiles = (torch.arange(1000) + 0.5) / 1000
        >>> fit = fit_power_law(quantiles**-0.5, bootstrap=0)  # density exponent 1 + 1/0.5
        >>> round(fit.tail_exponent, 2), fit.tail_size
        (3.0, 1000)
        >>> fit_power_law([1.0] * 60).reason
        '60 positive eigenvalues are equal to 4 digits: there is no tail'
    """
    if bootstrap < 0:
        raise MetricInputError(
            f"bootstrap is {bootstrap}.\nGive 0 for no interval, or 200 resamples for one."
        )
    x = positive(evals)
    count = len(x)
    if reason := _no_tail(x, min_tail):
        return PowerLawFit(tail_exponent=None, reason=reason, count=count)
    tails = _tails(x)
    best, ks = _best_tail(tails)
    size = int(tails.size[best])
    alpha = _exponent(tails, best)
    small = size < min_tail
    return PowerLawFit(
        tail_exponent=None if small else alpha,
        reason=f"the best tail has {size} eigenvalues, fewer than {min_tail}" if small else None,
        xmin=float(x[int(tails.below[best])]),
        ks=ks,
        ks_two_sided=_two_sided(tails, best, ks),
        tail_size=size,
        count=count,
        standard_error=None if small else (alpha - 1) / math.sqrt(size),
        interval=None if small or not bootstrap else _interval(x, bootstrap, min_tail, seed),
    )


def positive(evals: Tensor | np.ndarray | Sequence[float]) -> np.ndarray:
    """Return the positive entries in float64, ascending, on the CPU.

    Raises:
        MetricInputError: If ``evals`` is not one axis of finite numbers.
    """
    x = torch.as_tensor(evals).detach().to("cpu", torch.float64).numpy()
    if x.ndim != 1:
        raise MetricInputError(
            f"a power law is fitted to eigenvalues [N], got shape {list(x.shape)}.\n"
            "For a weight matrix W pass `spectrum_of(W).evals`."
        )
    if not np.isfinite(x).all():
        raise MetricInputError(
            f"{int((~np.isfinite(x)).sum())} of {x.size} eigenvalues are inf or nan.\n"
            "`spectrum_of(W)` leaves out the rows of W that are not finite, and counts them."
        )
    return np.sort(x[x > 0])


def best_tail(x: np.ndarray) -> tuple[int, float, float]:
    """Return where the best tail of ascending positive ``x`` begins, its exponent and its distance.

    For callers that fit many samples; :func:`fit_power_law` also says when not to.
    """
    tails = _tails(x)
    i, ks = _best_tail(tails)
    return int(tails.below[i]), _exponent(tails, i), ks


def _no_tail(x: np.ndarray, min_tail: int) -> str | None:
    if len(x) < min_tail:
        return f"{len(x)} positive eigenvalues, fewer than {min_tail}"
    if len(x) < 3 or x[-1] <= (1 + _FLAT) * x[0]:
        return f"{len(x)} positive eigenvalues are equal to 4 digits: there is no tail"
    if len(np.unique(np.log(x))) < 4:
        return f"{len(x)} positive eigenvalues have fewer than 4 distinct values"
    return None


def _tails(x: np.ndarray) -> _Tails:
    # distinct by their logarithms: two neighbouring numbers of float64 can share one
    logs = np.log(x)
    first = np.flatnonzero(np.concatenate([[True], logs[1:] != logs[:-1]]))
    y, below = logs[first], first.astype(np.float64)
    size = len(x) - below
    # a sum of positive terms from the top down, so that the smallest tails lose no digits
    log_excess = np.cumsum((size[1:] * np.diff(y))[::-1])[::-1]
    return _Tails(y, below, size, log_excess)


def _exponent(tails: _Tails, i: int) -> float:
    return 1 + float(tails.size[i] / tails.log_excess[i])


def _differences(tails: _Tails, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """E - F of the tails beginning at ``i`` [C], at the values ``j`` [P]; 0 where j is below i."""
    reach = np.minimum(tails.y[i, None] - tails.y[j], 0)
    reach *= (tails.size[i] / tails.log_excess[i])[:, None]
    survival = np.exp(reach, out=reach)
    empirical = np.maximum(tails.below[j] - tails.below[i, None], 0)
    empirical /= tails.size[i, None]
    survival += empirical
    survival -= 1
    return survival


def _best_tail(tails: _Tails, candidates: np.ndarray | None = None) -> tuple[int, float]:
    """Return the candidate of the smallest distance, the first of equals, and the distance.

    The candidate whose lower bound is smallest is measured in full; where its distance is reached is then a
    point at which all bounds are raised. It ends when no bound is below the best distance found.
    """
    distinct = len(tails.y)
    candidates = np.arange(distinct - 2) if candidates is None else candidates
    bounds = np.zeros(len(candidates))
    points = distinct - _ranks_probed(distinct - 1)
    step = max(1, _BLOCK // len(candidates))
    for start in range(0, len(points), step):
        part = _differences(tails, candidates, points[start : start + step])
        np.maximum(bounds, np.abs(part, out=part).max(1), out=bounds)
    best, ks = -1, math.inf
    while bounds.min() < ks:
        at = int(bounds.argmin())
        i = int(candidates[at])
        whole = _differences(tails, candidates[at : at + 1], np.arange(i, distinct))[0]
        ends = np.array([whole.argmin(), whole.argmax()])
        distance = float(np.abs(whole[ends]).max())
        if (distance, i) < (ks, best):
            best, ks = i, distance
        np.maximum(bounds, np.abs(_differences(tails, candidates, ends + i)).max(1), out=bounds)
        bounds[at] = math.inf
    return best, ks


@functools.lru_cache(maxsize=64)
def _ranks_probed(largest: int) -> np.ndarray:
    # from the top in geometric steps: some points in every tail, whatever its size
    return np.unique(np.geomspace(1, largest, _PROBES).round().astype(int))


def _two_sided(tails: _Tails, i: int, ks: float) -> float:
    """Return the distance from both sides: E just after each value too."""
    before = _differences(tails, np.array([i]), np.arange(i, len(tails.y)))[0]
    ends = np.append(tails.below[i:], tails.below[-1] + tails.size[-1])
    return max(ks, float(np.abs(before + np.diff(ends) / tails.size[i]).max()))


def _interval(
    x: np.ndarray, resamples: int, min_tail: int, seed: int
) -> tuple[float, float] | None:
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        tails = _tails(x[np.sort(generator.integers(len(x), size=len(x)))])
        last = len(tails.y) - 3
        if last < 1:
            continue
        most = min(XMIN_CANDIDATES_RESAMPLED, last + 1)
        best, _ = _best_tail(tails, np.linspace(0, last, most).astype(int))
        if tails.size[best] >= min_tail:
            found.append(_exponent(tails, best))
    if len(found) < 2:
        return None
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)
