"""A power law fitted to a tail as its paper says it: every candidate, every value, plain Python."""

import math


def fit_of_tail(x, xmin):
    """(alpha, KS distance with E at 0/n ... (n-1)/n, two-sided distance, n) of the values from ``xmin`` on."""
    tail = sorted(v for v in x if v >= xmin)
    n = len(tail)
    alpha = 1 + n / math.fsum(math.log(v / xmin) for v in tail)
    one_sided, two_sided = 0.0, 0.0
    for v in tail:
        fitted = 1 - (v / xmin) ** (1 - alpha)
        below, upto = sum(u < v for u in tail) / n, sum(u <= v for u in tail) / n
        one_sided = max(one_sided, abs(fitted - below))
        two_sided = max(two_sided, abs(fitted - below), abs(fitted - upto))
    return alpha, one_sided, two_sided, n


def fit(x):
    """(xmin, alpha, KS, two-sided KS, tail size) of the best candidate; the two largest values are none."""
    fits = {xmin: fit_of_tail(x, xmin) for xmin in sorted(set(x))[:-2]}
    xmin = min(fits, key=lambda v: (fits[v][1], v))
    return xmin, *fits[xmin]
