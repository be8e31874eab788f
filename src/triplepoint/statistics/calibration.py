"""Probabilities against what happened: whether what is called 80 % happens in 80 %.

Symbols: ``p`` a probability that was said of one cell, ``y`` whether it happened.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import (
    Labels,
    Numbers,
    need_both_classes,
    normal_quantile,
    scores_and_labels,
)
from triplepoint.statistics.logistic import logistic_regression

PRIOR_SPREAD = 0.5
"""Of ln kappa around 0."""


def brier_score(p: Numbers, labels: Labels) -> float:
    r"""Mean squared error of probabilities, :math:`\frac1n \sum_i (p_i - y_i)^2`.

    Low is good: 0 is certain and right, 0.25 is "one half" said always. It is proper, so that saying what one
    believes is best. Even a perfectly calibrated forecaster's scatters, by 0.03 at 40 cells.

    Args:
        p: Probabilities of True in [0, 1].
        labels: What happened.

    Returns:
        A number in [0, 1].

    Raises:
        StatisticsError: If lengths differ or a probability lies outside [0, 1].

    References:
        Brier (1950), Verification of forecasts expressed in terms of probability, Monthly Weather Review 78.

    Example:
        >>> brier_score([1.0, 0.5], [True, False])
        0.125
    """
    said, y = _probabilities("brier_score", p, labels)
    return float(((said - y) ** 2).mean())


def brier_skill(p: Numbers, labels: Labels) -> float:
    r"""Share of the base rate's Brier score that is gone, :math:`1 - B / \bar y (1 - \bar y)`.

    The base rate is that of these very cells, which a forecaster did not know: a fair one that knows no more
    scores a little under 0.

    Args:
        p: Probabilities of True in [0, 1].
        labels: What happened, both outcomes present.

    Returns:
        At most 1; 0 is no better than the base rate, negative is worse.

    Raises:
        StatisticsError: As :func:`brier_score`, or if only one outcome happened.

    Example:
        0.25 with a coin, 0.0625 here:

        >>> brier_skill([0.75, 0.25], [True, False])
        0.75
    """
    _, y = _probabilities("brier_skill", p, labels)
    need_both_classes("brier_skill", y)
    return 1 - brier_score(p, labels) / float(y.mean() * (1 - y.mean()))


class BrierParts(NamedTuple):
    """What adds up to the Brier score: reliability - resolution + uncertainty + within."""

    reliability: float
    """How far the mean probability of a bin is from what happened there; 0 is calibrated."""
    resolution: float
    """How far what happens differs between bins; more is better."""
    uncertainty: float
    """That of the base rate alone."""
    within: float
    """What is left since probabilities of one bin differ; 0 where they are equal."""


def brier_parts(p: Numbers, labels: Labels, *, bins: int = 5) -> BrierParts:
    r"""Murphy's decomposition of the Brier score, in bins of equal width.

    .. math::
        B = \sum_k \tfrac{n_k}{n} (\bar p_k - \bar y_k)^2 - \sum_k \tfrac{n_k}{n} (\bar y_k - \bar y)^2
        + \bar y (1 - \bar y) + W

    At 40 cells reliability is mostly noise: read it beside :func:`calibration_slope`.

    Args:
        p: Probabilities of True in [0, 1].
        labels: What happened.
        bins: Of equal width over [0, 1].

    Raises:
        StatisticsError: As :func:`brier_score`, or if there is no bin.

    References:
        Murphy (1973), A new vector partition of the probability score, Journal of Applied Meteorology 12.

    Example:
        Two bins, each a little too sure: (0.1 - 0)^2 and (0.9 - 1)^2.

        >>> [round(part, 4) for part in brier_parts([0.1, 0.9], [False, True])[:3]]
        [0.01, 0.25, 0.25]
    """
    said, y = _probabilities("brier_parts", p, labels)
    if bins < 1:
        raise StatisticsError(f"brier_parts needs 1 bin at least, got {bins}.\nTry 5.")
    place = np.minimum((said * bins).astype(int), bins - 1)
    inside = [place == k for k in np.unique(place)]
    share = np.array([bin_.mean() for bin_ in inside])
    told = np.array([said[bin_].mean() for bin_ in inside])
    was = np.array([y[bin_].mean() for bin_ in inside])
    reliability = float(share @ (told - was) ** 2)
    resolution = float(share @ (was - y.mean()) ** 2)
    uncertainty = float(y.mean() * (1 - y.mean()))
    within = brier_score(p, labels) - (reliability - resolution + uncertainty)
    return BrierParts(reliability, resolution, uncertainty, within)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationLine:
    """Log odds of what happened, as a line in the log odds that were said."""

    slope: float | None
    """1 is calibrated; below 1 too sure, above 1 not sure enough. None where it cannot be fitted."""
    slope_interval: tuple[float, float] | None
    """Wald's: too narrow, and centred too low, where the slope hardly exists."""
    intercept: float | None
    """Log odds of what happened where one half was said; 0 is calibrated."""
    intercept_interval: tuple[float, float] | None
    why_not: str | None = None
    """Why there is no line."""


def calibration_slope(p: Numbers, labels: Labels, *, confidence: float = 0.95) -> CalibrationLine:
    r"""Logistic regression of what happened on the log odds that were said.

    .. math:: \operatorname{logit} P(y_i = 1) = a + b \operatorname{logit} p_i

    Perfectly calibrated, b = 1 and a = 0. A perfect forecaster's slope scatters from 0.59 to 2.1 at 40 cells.
    Where some cut of ``p`` has no True on one side and no False on the other, any steeper line fits better:
    there is no slope, and none is made up. The same where all ``p`` are equal.

    Args:
        p: Probabilities of True, inside (0, 1).
        labels: What happened, both outcomes present.
        confidence: Two-sided level of both intervals.

    Returns:
        Slope and intercept with intervals, or the reason why there is no line.

    Raises:
        StatisticsError: If lengths differ, a probability is not inside (0, 1), or one outcome is missing.

    References:
        Cox (1958), Two further applications of a model for binary regression, Biometrika 45.

    Example:
        0.9 was said and happened in 3 of 4, so 3:1 and not 9:1: half the log odds.

        >>> line = calibration_slope([0.9] * 4 + [0.1] * 4, [1, 1, 1, 0, 0, 0, 0, 1])
        >>> round(line.slope, 6), round(abs(line.intercept), 6)
        (0.5, 0.0)
    """
    name = "calibration_slope"
    x, y = _log_odds(name, p, labels)
    need_both_classes(name, y)
    z = normal_quantile(confidence)
    if x.min() == x.max():
        return _no_line("all probabilities are equal")
    if x[y].min() >= x[~y].max() or x[~y].min() >= x[y].max():
        return _no_line("every probability of one outcome is at or beyond all of the other, so any steeper line fits better")  # fmt: skip
    fit = logistic_regression(x[:, None], y)
    at = (fit.intercept, float(fit.coefficients[0]))
    a, b = (
        (value - z * error, value + z * error)
        for value, error in zip(at, np.sqrt(np.diag(fit.covariance)).tolist(), strict=True)
    )
    return CalibrationLine(intercept=at[0], intercept_interval=a, slope=at[1], slope_interval=b)


def _no_line(why_not: str) -> CalibrationLine:
    return CalibrationLine(
        slope=None, slope_interval=None, intercept=None, intercept_interval=None, why_not=why_not
    )


def spiegelhalter_z(p: Numbers, labels: Labels) -> float:
    r"""Spiegelhalter's test of calibration: the Brier score's distance from what ``p`` itself promises.

    .. math::
        Z = \frac{\sum_i (y_i - p_i)(1 - 2 p_i)}{\sqrt{\sum_i (1 - 2 p_i)^2 p_i (1 - p_i)}}

    About standard normal where every ``p`` is right. Positive: worse than promised, too sure; negative: better
    than promised. No bins, and no need of both outcomes.

    Args:
        p: Probabilities of True inside (0, 1), not all one half.
        labels: What happened.

    Raises:
        StatisticsError: If lengths differ, a probability is not inside (0, 1), or all are one half, which
            promises the same Brier score whatever happens.

    References:
        Spiegelhalter (1986), Probabilistic prediction in patient management and clinical trials,
        Statistics in Medicine 5, pp. 421-433.

    Example:
        0.8 was said and happened in 4 of 5: exactly as promised. Where it never happens it is too sure.

        >>> round(abs(spiegelhalter_z([0.8] * 5, [1, 1, 1, 1, 0])), 12), spiegelhalter_z([0.8], [0]) > 1.9
        (0.0, True)
    """
    _log_odds("spiegelhalter_z", p, labels)
    said, y = _probabilities("spiegelhalter_z", p, labels)
    variance = float(((1 - 2 * said) ** 2 * said * (1 - said)).sum())
    if variance == 0:
        raise StatisticsError(
            "spiegelhalter_z is undefined: all probabilities are one half.\nThere is nothing to test; see brier_score."
        )
    return float(((y - said) * (1 - 2 * said)).sum() / math.sqrt(variance))


def temperature(p: Numbers, labels: Labels) -> float:
    r"""Return the factor of the logit that makes probabilities fit what happened, drawn to 1.

    .. math::
        \kappa = \arg\max_k \sum_i \ln \sigma(\pm_i k \operatorname{logit} p_i) - \frac{\ln^2 k}{2 \cdot 0.5^2}

    Platt's slope without an intercept and with the prior :math:`\ln \kappa \sim N(0, 0.5^2)`: with few cells a
    free slope is all noise. It is the inverse of what is called temperature where logits are divided.

    Args:
        p: Probabilities inside (0, 1).
        labels: What happened; one outcome may be missing.

    Returns:
        In [0.05, 20], to half a per cent: above 1 sharpens, below 1 softens.

    Raises:
        StatisticsError: If lengths differ or a probability is not inside (0, 1).

    Example:
        >>> temperature([0.6] * 10, [True] * 9 + [False]) > 1 > temperature([0.9] * 10, [True] * 6 + [False] * 4)
        True
    """
    x, y = _log_odds("temperature", p, labels)
    towards = np.where(y, x, -x)
    ln_k = np.linspace(-3, 3, 1201)
    likelihood = -np.logaddexp(0, -np.exp(ln_k)[:, None] * towards).sum(axis=1)
    return float(np.exp(ln_k[np.argmax(likelihood - (ln_k / PRIOR_SPREAD) ** 2 / 2)]))


def probability_cap(n: int) -> float:
    """Return the largest probability that ``n`` answers allow to be said, (n + 1) / (n + 2): Laplace's rule.

    The least is 1 minus it: after ``n`` answers of one kind nobody can know that the next is not of the other.

    Args:
        n: Answers so far whose outcome is known.

    Example:
        >>> probability_cap(8), probability_cap(0)
        (0.9, 0.5)
    """
    return (n + 1) / (n + 2)


def _probabilities(
    name: str, p: Numbers, labels: Labels
) -> tuple[Float[np.ndarray, " cell"], Bool[np.ndarray, " cell"]]:
    said, y = scores_and_labels(name, p, labels)
    if said.min() < 0 or said.max() > 1:
        raise StatisticsError(
            f"{name} needs probabilities, got values from {said.min():g} to {said.max():g}.\n"
            "Turn scores into probabilities first."
        )
    return said, y


def _log_odds(
    name: str, p: Numbers, labels: Labels
) -> tuple[Float[np.ndarray, " cell"], Bool[np.ndarray, " cell"]]:
    said, y = _probabilities(name, p, labels)
    if said.min() == 0 or said.max() == 1:
        raise StatisticsError(
            f"{name} needs probabilities inside (0, 1); {int(np.sum((said == 0) | (said == 1)))} of {len(said)} are 0 or 1.\n"
            "Cap them first: nothing learnt from few cells is certain."
        )
    return np.log(said / (1 - said)), y
