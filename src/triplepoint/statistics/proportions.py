"""Intervals of a share."""

from __future__ import annotations

import math

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import (
    normal_quantile,
)


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    r"""Wilson score interval of a proportion.

    .. math::
        \frac{\hat p + z^2/2n}{1 + z^2/n} \pm
        \frac{z}{1 + z^2/n} \sqrt{\frac{\hat p (1 - \hat p)}{n} + \frac{z^2}{4 n^2}}

    It is not :math:`\hat p \pm z \sqrt{\hat p(1-\hat p)/n}`, which collapses to a point at 0 or
    ``n`` successes and leaves [0, 1] near them. It assumes independent trials: count the seeds of
    one cell as one trial.

    Args:
        successes: Number of successes, 0 to ``n``.
        n: Number of trials, at least 1.
        confidence: Two-sided level in (0, 1).

    Returns:
        ``(low, high)`` within [0, 1]; low is 0 at no success, high is 1 at ``n`` successes.

    Raises:
        StatisticsError: If ``n`` is not positive or ``successes`` is outside ``0..n``.

    References:
        Wilson (1927), Probable inference, the law of succession, and statistical inference,
        JASA 22, pp. 209-212.

    Example:
        For half of the trials the interval is symmetric about one half:

        >>> [round(end, 3) for end in wilson(6, 12)]
        [0.254, 0.746]
    """
    if n < 1 or not 0 <= successes <= n:
        raise StatisticsError(
            f"wilson needs 0 <= successes <= n and n >= 1, got {successes} of {n}.\n"
            "Count the trials first; an interval of no trial does not exist."
        )
    z = normal_quantile(confidence)
    p, stretch = successes / n, 1 + z**2 / n
    centre = (p + z**2 / (2 * n)) / stretch
    half = z / stretch * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high
