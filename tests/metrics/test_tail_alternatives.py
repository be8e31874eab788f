"""Tests of triplepoint.metrics.tail_alternatives."""

import dataclasses
import math

import pytest
import torch
from scipy import optimize, stats
from tests.reference import spectra as twin

from triplepoint.errors import MetricInputError
from triplepoint.metrics import fit_power_law
from triplepoint.metrics.tail_alternatives import compare_tails, goodness_of_fit


def uniform(n, seed=0):
    return torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fit_and_compare(x):
    fit = fit_power_law(x, bootstrap=0)
    return fit, compare_tails(x, fit)


def whole(x):
    """A fit that takes all values for its tail."""
    return dataclasses.replace(fit_power_law(x, bootstrap=0), xmin=float(x.min()))


def tail_and_likelihood(x, fit):
    """The tail and the power law's log-likelihood of it."""
    tail = x[x >= fit.xmin]
    a = fit.tail_exponent
    return tail, float(len(tail) * math.log((a - 1) / fit.xmin) - a * (tail / fit.xmin).log().sum())


def cut_off(n, seed=0):
    """x^-1.5 exp(-x / 20) from 1 on, by rejection."""
    x = uniform(60 * n, seed) ** -2
    return x[uniform(60 * n, seed + 100) < torch.exp(-(x - 1) / 20)][:n]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_log_normal_is_the_maximum_that_scipy_finds(seed):
    x = torch.special.ndtri(uniform(800, seed)).exp()
    fit, compared = fit_and_compare(x)
    tail, power = tail_and_likelihood(x, fit)
    y, start = tail.log().numpy(), math.log(fit.xmin)

    def cost(parameters):
        mean, log_sd = parameters
        law = stats.norm(mean, math.exp(log_sd))
        return len(y) * law.logsf(start) - (law.logpdf(y) - y).sum()

    found = optimize.minimize(
        cost, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-10}
    )
    # near the power law the search stops short of the maximum; it is never above it
    assert compared["lognormal"].ratio <= power + found.fun + 1e-7
    assert compared["lognormal"].ratio == pytest.approx(power + found.fun, abs=1e-3)
    assert compared["lognormal"].ratio < 0


@pytest.mark.parametrize("seed", [0, 1])
def test_truncated_power_law_is_the_maximum_that_its_twin_finds(seed):
    x = cut_off(300, seed)
    fit, compared = fit_and_compare(x)
    tail, power = tail_and_likelihood(x, fit)
    other = twin.truncated_power_law_likelihood(tail.tolist(), fit.xmin)
    assert compared["truncated_power_law"].ratio == pytest.approx(power - other, abs=1e-4)


def test_a_cut_off_is_found_out_and_a_power_law_is_not_rejected():
    x = cut_off(2000)
    cut = compare_tails(x, whole(x))
    assert cut["truncated_power_law"].ratio < -10 and cut["truncated_power_law"].p < 1e-4
    _, pure = fit_and_compare(uniform(2000) ** -0.5)
    assert pure["truncated_power_law"].p > 0.01 and pure["lognormal"].p > 0.01


def test_where_the_power_law_is_the_best_of_both_they_are_equal():
    # heavier than its own power law: neither a cut-off nor a log-normal bends it downwards
    z = torch.cat([torch.linspace(0, 0.3, 200), torch.linspace(0.3, 3.6, 60)]).double()
    for ratio in compare_tails(z.exp(), whole(z.exp())).values():
        assert (ratio.ratio, ratio.p) == (pytest.approx(0, abs=1e-9), 1.0)


def test_p_is_two_sided_and_calibrated_for_the_nested_law():
    # under a power law p is at least 0.05 in 95 % of samples, and more: half of the maxima lie at the edge
    low = sum(
        fit_and_compare(uniform(300, s) ** -0.5)[1]["truncated_power_law"].p < 0.05
        for s in range(60)
    )
    assert low <= 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lognormal", "truncated_power_law"])
def test_agrees_with_powerlaw(name):
    powerlaw = pytest.importorskip("powerlaw")
    x = cut_off(400)
    fit, compared = fit_and_compare(x)
    other = powerlaw.Fit(
        x.numpy(), xmin=fit.xmin, parameter_ranges={"alpha": [1.0, None]}, verbose=0
    )
    free = powerlaw.Fit(x.numpy(), xmin=fit.xmin, verbose=0)
    assert other.power_law.alpha == pytest.approx(fit.tail_exponent)
    ratio, _ = free.distribution_compare("power_law", name, nested=name != "lognormal")
    # its search by Nelder-Mead stops early: it may fall short of the maximum, never above it
    assert compared[name].ratio <= ratio + 1e-6
    assert compared[name].ratio == pytest.approx(ratio, rel=0.02, abs=0.05)


def test_goodness_of_fit_separates_a_law_from_a_mixture():
    pure = uniform(200, seed=5) ** -0.5
    assert goodness_of_fit(pure, fit_power_law(pure, bootstrap=0), draws=40) > 0.1
    stepped = (10 * torch.linspace(0, 1, 300)).floor().exp2() * (1 + 1e-3 * uniform(300))
    fit = fit_power_law(stepped, bootstrap=0)
    assert goodness_of_fit(stepped, fit, draws=40) < 0.1


def test_goodness_of_fit_is_uniform_where_the_law_is_true():
    found = []
    for seed in range(20):
        x = uniform(120, seed) ** -0.5
        fit = fit_power_law(x, bootstrap=0, min_tail=3)
        found.append(goodness_of_fit(x, fit, draws=20, seed=seed))
    assert 0.3 < sum(found) / len(found) < 0.7


def test_what_was_refused_cannot_be_compared_or_tested():
    fit = fit_power_law([1.0] * 60)
    with pytest.raises(MetricInputError) as error:
        compare_tails(torch.ones(60), fit)
    assert str(error.value) == (
        "there is no tail to compare: 60 positive eigenvalues are equal to 4 digits: there is no tail.\n"
        "Ask only where `fit.xmin` is a number."
    )
    with pytest.raises(MetricInputError) as error:
        goodness_of_fit(torch.ones(60), fit)
    assert str(error.value) == (
        "there is no fit to test: 60 positive eigenvalues are equal to 4 digits: there is no tail.\n"
        "Ask only where `fit.tail_exponent` is a number."
    )
