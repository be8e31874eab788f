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


def squash_gradients(x, g, *, gain, alpha, inner_shift, function):
    """Gradients of sum(g * y), y = gain * f(alpha x + s) + shift, f tanh or erf: one term at a time."""
    of = {
        "x": [],
        "alpha": 0.0,
        "shift": 0.0,
        "weight": [0.0] * len(gain),
        "bias": [0.0] * len(gain),
    }
    for row, above in zip(x, g):  # noqa: B905
        of["x"].append([])
        for j, (v, up) in enumerate(zip(row, above)):  # noqa: B905
            z = alpha * v + inner_shift
            f = math.tanh(z) if function == "tanh" else math.erf(z)
            slope = (
                1 / math.cosh(z) ** 2
                if function == "tanh"
                else 2 / math.sqrt(math.pi) * math.exp(-z * z)
            )
            of["x"][-1].append(up * gain[j] * slope * alpha)
            of["alpha"] += up * gain[j] * slope * v
            of["shift"] += up * gain[j] * slope
            of["weight"][j] += up * f
            of["bias"][j] += up
    return of


POINT_WISE = {
    "arctan": lambda z: 2 / math.pi * math.atan(z),
    "isru": lambda z: z / math.sqrt(1 + z * z),
    "expsign": lambda z: math.copysign(1 - math.exp(-abs(z)), z),
    "satursin": lambda z: math.sin(max(-math.pi / 2, min(math.pi / 2, z))),
    "smoothsign": lambda z: z / (1 + abs(z)),
    "cubsign": lambda z: z**3 / (1 + abs(z) ** 3),
    "exproot": lambda z: math.copysign(1 - math.exp(-math.sqrt(abs(z))), z),
    "saturlog": lambda z: math.copysign(1 - 1 / (1 + math.log(1 + abs(z))), z),
    "linear_clip": lambda z: max(-1.0, min(1.0, z)),
    "power23_clip": lambda z: max(-1.0, min(1.0, math.copysign(abs(z) ** (2 / 3), z))),
    "logsign_clip": lambda z: max(-1.0, min(1.0, math.copysign(math.log(1 + abs(z)), z))),
    "logquad_clip": lambda z: max(-1.0, min(1.0, math.copysign(math.log(1 + z * z), z))),
    "smoothsign_clip": lambda z: max(-1.0, min(1.0, z / (1 + abs(z)))),
    "relsign": lambda z: z / (1 + math.sqrt(1 + z * z)),
}
"""The functions of the point-wise family as its authors write them."""


def taper(x, *, gain, tapered_gain, shift, gate, scale, eps, centred):
    """g gain n(x) + (1 - g) c gain' x + shift, n LayerNorm or RMSNorm without gain."""
    norm = layernorm if centred else rmsnorm
    zeros = [0.0] * len(x)
    normed = norm(x, gain=gain, shift=zeros, eps=eps)
    return [
        gate * n + (1 - gate) * scale * t * v + b
        for n, t, v, b in zip(normed, tapered_gain, x, shift)  # noqa: B905
    ]  # fmt: skip
