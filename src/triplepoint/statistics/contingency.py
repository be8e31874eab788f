"""Two shares compared: tables of two by two counts.

Symbols: ``a`` of ``m`` in one group, ``b`` of ``n`` in the other; given ``a + b``, ``a`` is hypergeometric.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import normal_quantile


def fisher_exact(a: int, m: int, b: int, n: int) -> float:
    r"""Two-sided p-value of Fisher's exact test that two shares are equal.

    .. math:: p = \sum_{x:\,P(x) \le P(a)} P(x), \qquad P(x) = \binom{m}{x}\binom{n}{a+b-x} \Big/ \binom{m+n}{a+b}

    It is not twice the one-sided p-value. With few trials it cannot be small: 3 of 3 against 0 of 3 gives 0.1.

    Args:
        a: Successes in the first group, 0 to ``m``.
        m: Trials in the first group.
        b: Successes in the second group, 0 to ``n``.
        n: Trials in the second group.

    Returns:
        A number in (0, 1]; 1 where nothing, or everything, succeeded.

    Raises:
        StatisticsError: If the counts are not those of two groups.

    References:
        Fisher (1935), The logic of inductive inference, Journal of the Royal Statistical Society 98.

    Example:
        All three against none of three: the two extreme tables of 20.

        >>> fisher_exact(3, 3, 0, 3)
        0.1
    """
    low, high = _support(a, m, b, n)
    ways = {x: math.comb(m, x) * math.comb(n, a + b - x) for x in range(low, high + 1)}
    return sum(w for w in ways.values() if w <= ways[a]) / sum(ways.values())


def odds_ratio_interval(
    a: int, m: int, b: int, n: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    r"""Exact conditional interval of the odds ratio of two shares, :math:`\frac{a\,(n-b)}{(m-a)\,b}`.

    The ends are the odds ratios :math:`\omega` under which as many successes in the first group as were seen,
    or more (fewer), would have half the remaining probability, with
    :math:`P_\omega(x) \propto \binom{m}{x}\binom{n}{a+b-x}\omega^x`. It is conservative: exact for the test of
    either side, wider than a normal interval of the log odds, which does not exist at 0.

    Args:
        a: Successes in the first group, 0 to ``m``.
        m: Trials in the first group.
        b: Successes in the second group, 0 to ``n``.
        n: Trials in the second group.
        confidence: Two-sided level in (0, 1).

    Returns:
        ``(low, high)`` in [0, inf]; low is 0 where ``a`` is as small as it can be, high is inf where it is as
        large as it can be.

    Raises:
        StatisticsError: If the counts are not those of two groups.

    References:
        Cornfield (1956), A statistical problem arising from retrospective studies, Third Berkeley Symposium 4.

    Example:
        One of one against none of one says nothing against an infinite ratio:

        >>> low, high = odds_ratio_interval(1, 1, 0, 1)
        >>> round(low, 4), high
        (0.0256, inf)
    """
    normal_quantile(confidence)  # refuses a level outside (0, 1)
    low, high = _support(a, m, b, n)
    weights = [
        (x, math.log(math.comb(m, x)) + math.log(math.comb(n, a + b - x)))
        for x in range(low, high + 1)
    ]
    tail = (1 - confidence) / 2

    def at_least(log_ratio: float) -> float:
        return _tail(weights, log_ratio, lambda x: x >= a) - tail

    def at_most(log_ratio: float) -> float:
        return tail - _tail(weights, log_ratio, lambda x: x <= a)

    return (
        0.0 if a == low else math.exp(_root(at_least)),
        math.inf if a == high else math.exp(_root(at_most)),
    )


def _tail(
    weights: list[tuple[int, float]], log_ratio: float, inside: Callable[[int], bool]
) -> float:
    """Return the probability of the counts ``inside`` at an odds ratio."""
    logs = [(x, w + x * log_ratio) for x, w in weights]
    largest = max(w for _, w in logs)
    shares = [(x, math.exp(w - largest)) for x, w in logs]
    return sum(p for x, p in shares if inside(x)) / sum(p for _, p in shares)


def _root(rising: Callable[[float], float]) -> float:
    """Return where a rising function of the log odds ratio crosses 0."""
    low, high = -1.0, 1.0
    while rising(low) > 0:
        low *= 2
    while rising(high) < 0:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def _support(a: int, m: int, b: int, n: int) -> tuple[int, int]:
    if m < 1 or n < 1 or not 0 <= a <= m or not 0 <= b <= n:
        raise StatisticsError(
            f"Two groups need 0 <= a <= m and 0 <= b <= n with at least one trial each, got {a} of {m} and {b} of {n}.\n"
            "Count the trials of both groups first."
        )
    return max(0, a + b - n), min(m, a + b)
