"""Do two quantities rise together?"""

from __future__ import annotations

import itertools
import math

import numpy as np
from jaxtyping import Float

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import Numbers, sequence
from triplepoint.statistics.ranks import EXACT_LIMIT


def spearman(x: Numbers, y: Numbers) -> float:
    r"""Spearman's rank correlation: Pearson's of the ranks, ties sharing their mean rank.

    It is 1 for any rising relation, straight or not, and says nothing about how steep it is.

    Args:
        x: One finite number per cell; at least two different ones.
        y: As ``x``, as many.

    Returns:
        A number in [-1, 1].

    Raises:
        StatisticsError: If lengths differ, a number is not finite, or all numbers of one side are equal.

    References:
        Spearman (1904), The proof and measurement of association between two things, American Journal of
        Psychology 15, pp. 72-101.

    Example:
        >>> spearman([1, 2, 3], [1, 10, 100])
        1.0
    """
    u, v = _standard_ranks(x, y)
    return _bounded(float(u @ v))


def spearman_p(x: Numbers, y: Numbers, *, resamples: int = 10_000, seed: int = 0) -> float:
    r"""Two-sided permutation p-value of :func:`spearman`: how often a shuffled ``y`` correlates as strongly.

    Exact over all :math:`n!` orders up to 8 cells (at most 100 000); otherwise from random shuffles as
    :math:`(1 + \#)/(1 + R)`, which is never 0. Cells that share a model, data or seed are not exchangeable;
    then it is too small.

    Args:
        x: One finite number per cell.
        y: As ``x``, as many.
        resamples: Random shuffles ``R`` where the exact count is too large.
        seed: Seed of those shuffles.

    Returns:
        A number in (0, 1].

    Raises:
        StatisticsError: As :func:`spearman`.

    Example:
        Of the six orders of three, two are as strongly monotone:

        >>> spearman_p([1, 2, 3], [1, 10, 100]) == 2 / 6
        True
    """
    u, v = _standard_ranks(x, y)
    # equal correlations may differ in the last bits when summed in another order
    reach = abs(u @ v) - 1e-12
    if math.factorial(len(v)) <= EXACT_LIMIT:
        orders = np.array(list(itertools.permutations(range(len(v)))))
        return float(np.mean(np.abs(v[orders] @ u) >= reach))
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.broadcast_to(v, (resamples, len(v))), axis=1)
    hits = int(np.sum(np.abs(shuffled @ u) >= reach))
    return float((1 + hits) / (1 + resamples))


def _standard_ranks(
    x: Numbers, y: Numbers
) -> tuple[Float[np.ndarray, " cell"], Float[np.ndarray, " cell"]]:
    """Return the ranks of both, centred and of length 1."""
    a, b = sequence("spearman", x), sequence("spearman", y)
    if len(a) != len(b) or len(a) < 2:
        raise StatisticsError(
            f"spearman needs as many x as y and at least 2, got {len(a)} and {len(b)}.\nPass one of each per cell."
        )
    ranks = []
    for name, values in (("x", a), ("y", b)):
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        centred = (np.cumsum(counts) - (counts + 1) / 2)[place]
        centred = centred - centred.mean()
        length = float(np.sqrt(centred @ centred))
        if length == 0:
            raise StatisticsError(
                f"spearman is undefined: all {len(values)} values of {name} are equal.\n"
                "Add cells that differ, or report that there is nothing to correlate."
            )
        ranks.append(centred / length)
    return ranks[0], ranks[1]


def _bounded(r: float) -> float:
    # rounding may leave 1.0000000000000002
    return max(-1.0, min(1.0, r)) if abs(r) < 1 - 1e-12 else math.copysign(1.0, r)
