"""How a quantity goes with the decay: exponents of power laws, with intervals.

Symbols: ``lam`` the decay, ``y = c_s lam^a`` with one constant ``c_s`` for each start ``s``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

DRAWS = 2000


def exponent(runs: Mapping[int, Mapping[float, float]]) -> tuple[float, float, float]:
    """Fit ``log y = log c_s + a log lam`` by least squares.

    Args:
        runs: Start -> lam -> y, all above 0; at least two decays for each start.

    Returns:
        The exponent and its 95 % interval, by resampling the residuals of all starts together. They
        are systematic rather than random here, so it says how straight the line is and no more.
    """
    xs = [np.log(list(ys)) for ys in runs.values()]
    logs = [np.log(list(ys.values())) for ys in runs.values()]
    x = np.concatenate([x - x.mean() for x in xs])
    y = np.concatenate([y - y.mean() for y in logs])
    a = x @ y / (x @ x)
    # each start's constant takes a degree of freedom: without this the residuals are too small
    spread = np.sqrt(len(y) / max(1, len(y) - len(runs) - 1))
    left = (y - a * x) * spread
    draws = np.random.default_rng(0).choice(left, size=(DRAWS, len(left)))
    low, high = np.quantile(a + draws @ x / (x @ x), [0.025, 0.975])
    return float(a), float(low), float(high)


def local_exponent(ys: Mapping[float, float]) -> float:
    """Return ``d log y / d log lam`` between the two smallest decays: what the exponent tends to."""
    (lam0, y0), (lam1, y1) = sorted(ys.items())[:2]
    return float(np.log(y1 / y0) / np.log(lam1 / lam0))
