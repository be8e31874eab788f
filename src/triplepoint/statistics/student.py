"""Intervals of a mean over few independent values."""

from __future__ import annotations

import math

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import Numbers, normal_quantile, sequence


def t_interval(values: Numbers, *, confidence: float = 0.95) -> tuple[float, float, float]:
    r"""Mean of independent values with Student's interval.

    .. math:: \bar x \pm t_{n-1,\,(1+c)/2}\,\frac{s}{\sqrt n}

    with :math:`s` the standard deviation over ``n - 1``. Over seeds it says where another set of seeds
    would put the mean; it knows nothing of the windows that each value was measured on. At two values the
    factor is 12.7, so an interval that is wide, not wrong.

    Args:
        values: At least two finite values, e.g. one difference per seed.
        confidence: Two-sided level in (0, 1).

    Returns:
        ``(mean, low, high)`` in the unit of the values; the three are equal where all values are.

    Raises:
        StatisticsError: If there are fewer than two values, or one is not finite.

    References:
        Student (1908), The probable error of a mean, Biometrika 6, pp. 1-25.

    Example:
        Two values one apart: mean 0.5, standard error 0.5, and t = 12.706 at one degree of freedom.

        >>> [round(x, 3) for x in t_interval([0.0, 1.0])]
        [0.5, -5.853, 6.853]
    """
    x = sequence("t_interval", values)
    if len(x) < 2:
        raise StatisticsError(
            f"t_interval needs at least 2 values, got {len(x)}.\nRun another seed, or report the value without one."
        )
    normal_quantile(confidence)  # refuses a level outside (0, 1)
    mean = float(x.mean())
    half = t_quantile((1 + confidence) / 2, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return mean, mean - half, mean + half


def t_slope(x: Numbers, y: Numbers, *, confidence: float = 0.95) -> tuple[float, float, float]:
    r"""Slope of the least-squares line with Student's interval.

    .. math:: b = \frac{\sum (x-\bar x)(y-\bar y)}{\sum (x-\bar x)^2}, \quad
        b \pm t_{n-2,\,(1+c)/2} \sqrt{\frac{\sum (y-\hat y)^2}{(n-2) \sum (x-\bar x)^2}}

    Right where the points scatter about a line independently and equally; a bend shows as a wider interval.

    Args:
        x: At least three finite values, not all equal.
        y: As many finite values.
        confidence: Two-sided level in (0, 1).

    Returns:
        ``(slope, low, high)`` in units of ``y`` per unit of ``x``; the three are equal on a line.

    Raises:
        StatisticsError: If there are fewer than three points, all of one ``x``, or unequal numbers of values.

    Example:
        Slope 1/2; residuals -1/6, 1/3, -1/6; standard error sqrt(1/6 / 2); t = 12.706 at one degree of freedom.

        >>> [round(b, 3) for b in t_slope([0, 1, 2], [0, 1, 1])]
        [0.5, -3.168, 4.168]
    """
    xs, ys = sequence("t_slope", x), sequence("t_slope", y)
    if len(xs) != len(ys) or len(xs) < 3 or xs.min() == xs.max():
        raise StatisticsError(
            f"t_slope needs at least 3 points that differ in x, got {len(xs)} and {len(ys)} values.\n"
            "Measure at another x, or with another seed."
        )
    normal_quantile(confidence)  # refuses a level outside (0, 1)
    dx, dy = xs - xs.mean(), ys - ys.mean()
    square = float(dx @ dx)
    slope = float(dx @ dy) / square
    error = math.sqrt(float(((dy - slope * dx) ** 2).sum()) / (len(xs) - 2) / square)
    half = t_quantile((1 + confidence) / 2, len(xs) - 2) * error
    return slope, slope - half, slope + half


def t_quantile(p: float, df: int) -> float:
    r"""Quantile of Student's t distribution with a whole number of degrees of freedom.

    Bisection on the closed form of :math:`P(|T| \le t)`, a finite sum for whole ``df``; right to about
    1e-12 of its value.

    Args:
        p: Probability in (0, 1).
        df: Degrees of freedom, at least 1.

    Raises:
        StatisticsError: If ``p`` lies outside (0, 1) or ``df`` below 1.

    References:
        Abramowitz and Stegun (1964), Handbook of mathematical functions, 26.7.3 and 26.7.4.

    Example:
        One degree of freedom is the Cauchy distribution: tan(pi/4) at three quarters.

        >>> round(t_quantile(0.75, 1), 12)
        1.0
    """
    if df < 1 or not 0 < p < 1:
        raise StatisticsError(
            f"t_quantile needs 0 < p < 1 and df >= 1, got p={p}, df={df}.\nDegrees of freedom are values less one."
        )
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while _share_within(high, df) < 2 * p - 1:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, df) < 2 * p - 1 else (low, middle)
    return (low + high) / 2


def _share_within(t: float, df: int) -> float:
    """Return P(-t < T < t)."""
    angle = math.atan2(t, math.sqrt(df))
    cosine = math.cos(angle)
    term, total = 1.0, 0.0
    # the k-th term of the sum over odd or even powers of the cosine
    odd = df % 2
    if odd:
        term = cosine
    for k in range(2 + odd, df + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
