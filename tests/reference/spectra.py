"""Densities of random-matrix and tail laws, integrated by scipy."""

import math

from scipy import integrate, optimize


def marchenko_pastur_median(q):
    """Median of the Marchenko-Pastur law of ratio q, for eigenvalues divided by the longer side."""
    a, b = (1 - math.sqrt(q)) ** 2, (1 + math.sqrt(q)) ** 2

    def below(t):
        density = lambda x: math.sqrt(max((b - x) * (x - a), 0)) / (2 * math.pi * q * x)  # noqa: E731
        return integrate.quad(density, a, t, limit=200)[0] - 0.5

    return optimize.brentq(below, a + 1e-12, b)


def truncated_power_law_likelihood(x, xmin):
    """Largest log-likelihood of x^-a exp(-rate x) on [xmin, inf), searched without derivatives."""

    def cost(parameters):
        a, log_rate = parameters
        rate = math.exp(log_rate)
        log_kernel = lambda v: -a * math.log(v / xmin) - rate * (v - xmin)  # noqa: E731
        # over ln x, where the integrand is smooth
        end = math.log1p(200 / (rate * xmin))
        mass = (
            xmin
            * integrate.quad(
                lambda t: math.exp(log_kernel(xmin * math.exp(t)) + t), 0, end, limit=500
            )[0]
        )
        return len(x) * math.log(mass) - math.fsum(log_kernel(v) for v in x)

    found = optimize.minimize(
        cost, [2.0, math.log(1 / max(x))], method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 4000},
    )  # fmt: skip
    return -found.fun
