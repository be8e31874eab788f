"""Monotone curves."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from triplepoint.statistics._checks import (
    Numbers,
    sequence,
)


def isotonic(y: Numbers, *, increasing: bool) -> Float[np.ndarray, " sample"]:
    r"""Closest monotone sequence in least squares, by pooling adjacent violators.

    .. math:: \hat y = \arg\min_{z_1 \le \dots \le z_n} \sum_i (y_i - z_i)^2

    It is not a running maximum, which follows every upward outlier; blocks here are *means*. All
    values weigh the same. Linear time.

    Args:
        y: Finite values in order; may be empty.
        increasing: True for a sequence that never falls, False for one that never rises.

    Returns:
        Monotone float64 values, as many as given, with the same sum.

    Raises:
        StatisticsError: If ``y`` is not one sequence of finite numbers.

    References:
        Ayer, Brunk, Ewing, Reid and Silverman (1955), An empirical distribution function for
        sampling with incomplete information, Annals of Mathematical Statistics 26, pp. 641-647.

    Example:
        >>> isotonic([1, 3, 2, 4], increasing=True).tolist()
        [1.0, 2.5, 2.5, 4.0]
    """
    values = sequence("isotonic", y)
    if not increasing:
        return -isotonic(-values, increasing=True)
    sums: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        sums.append(value)
        sizes.append(1)
        while len(sums) > 1 and sums[-2] / sizes[-2] > sums[-1] / sizes[-1]:
            total, size = sums.pop(), sizes.pop()
            sums[-1] += total
            sizes[-1] += size
    return np.repeat(np.array(sums) / np.array(sizes, dtype=float), sizes)
