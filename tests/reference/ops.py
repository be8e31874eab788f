"""The ops on one token, a list of floats, element by element: plain Python in double precision."""

import math


def layernorm(x, *, gain, shift, eps):
    """(x - mean) / sqrt(biased variance + eps)."""
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    return [g * (v - mean) / math.sqrt(variance + eps) + b for v, g, b in zip(x, gain, shift)]  # noqa: B905


def rmsnorm(x, *, gain, shift, eps):
    """x / sqrt(mean square + eps)."""
    mean_square = sum(v * v for v in x) / len(x)
    return [g * v / math.sqrt(mean_square + eps) + b for v, g, b in zip(x, gain, shift)]  # noqa: B905


def dyt(x, *, gain, shift, alpha):
    """tanh from its exponentials, not from math.tanh."""
    return [
        g * (math.exp(alpha * v) - math.exp(-alpha * v)) / (math.exp(alpha * v) + math.exp(-alpha * v)) + b
        for v, g, b in zip(x, gain, shift)  # noqa: B905
    ]  # fmt: skip


def erf(z, terms=60):
    """erf from its Taylor series, 2/sqrt(pi) sum (-1)^n z^(2n+1) / (n! (2n+1)); good for |z| < 3."""
    return 2 / math.sqrt(math.pi) * math.fsum(
        (-1) ** n * z ** (2 * n + 1) / (math.factorial(n) * (2 * n + 1)) for n in range(terms)
    )  # fmt: skip


def derf(x, *, gain, shift, alpha, inner_shift):
    """gain * erf(alpha x + s) + shift."""
    return [g * erf(alpha * v + inner_shift) + b for v, g, b in zip(x, gain, shift)]  # noqa: B905


def hardtanh(x, *, gain, shift, alpha=1.0):
    """Sort the three candidates and take the middle one."""
    return [g * sorted([-1.0, alpha * v, 1.0])[1] + b for v, g, b in zip(x, gain, shift)]  # noqa: B905


def bhyt(x, *, gain, shift, lam, kappa):
    """gain tanh(lam / kappa x / rms) + shift, rms of the token with 1e-6 under the root."""
    rms = math.sqrt(sum(v * v for v in x) / len(x) + 1e-6)
    return [g * math.tanh(lam / kappa * v / rms) + b for v, g, b in zip(x, gain, shift)]  # noqa: B905
