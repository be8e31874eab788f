"""Fourier features and concentrations by their sums: plain Python in double precision."""

import cmath
import math


def features(E):
    """F_k = (1/p) sum_j e^{-2 pi i jk/p} E_j for k = 1 .. (p-1)/2, as lists over the units."""
    p, dim = len(E), len(E[0])
    return [
        [
            sum(cmath.exp(-2j * math.pi * j * k / p) * E[j][b] for j in range(p)) / p
            for b in range(dim)
        ]
        for k in range(1, (p + 1) // 2)
    ]


def cosine(u, v):
    """Cosine of two lists."""
    dot = sum(a * b for a, b in zip(u, v, strict=True))
    return dot / math.sqrt(sum(a * a for a in u) * sum(b * b for b in v))


def gini(values):
    """Mean absolute difference of all pairs over twice the mean."""
    n = len(values)
    spread = sum(abs(a - b) for a in values for b in values) / n**2
    return spread / (2 * sum(values) / n)


def waves_of_the_sum(logits, key):
    """Part of a table [p][p] along cos w_k(a+b), sin w_k(a+b), by projection on each wave."""
    p = len(logits)
    kept = [[0.0] * p for _ in range(p)]
    for k in key:
        for wave in (math.cos, math.sin):
            w = [[wave(2 * math.pi * k * (a + b) / p) for b in range(p)] for a in range(p)]
            size = sum(w[a][b] ** 2 for a in range(p) for b in range(p))
            amount = sum(w[a][b] * logits[a][b] for a in range(p) for b in range(p)) / size
            for a in range(p):
                for b in range(p):
                    kept[a][b] += amount * w[a][b]
    return kept
