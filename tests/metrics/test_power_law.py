"""Tests of triplepoint.metrics.power_law."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import power_law as twin

from triplepoint.errors import MetricInputError
from triplepoint.metrics import fit_power_law


def pareto(n, alpha, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, generator=generator, dtype=torch.float64) ** (-1 / (alpha - 1))


def noise_spectrum(m, n, *, seed=0):
    w = torch.randn(m, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.eigvalsh(w.T @ w)


def drawn_spectra(count):
    """Spectra of every kind that a layer shows, in turn: (name, eigenvalues)."""
    for i in range(count):
        n = (60, 128, 300, 512)[i // 10 % 4]
        generator = torch.Generator().manual_seed(i)
        u = torch.rand(n, generator=generator, dtype=torch.float64)
        kind = i % 10
        if kind < 5:
            alpha = (1.5, 2.0, 3.0, 4.5, 6.0)[kind]
            yield f"pareto {alpha}", u ** (-1 / (alpha - 1))
        elif kind == 5:
            yield "truncated", (u ** (-1 / 1.2)).clamp(max=20 + i % 7) * (1 + u / 50)
        elif kind == 6:
            yield "log-normal", torch.special.ndtri(u).exp()
        elif kind == 7:
            yield "wide log-normal", (3 * torch.special.ndtri(u)).exp()
        elif kind == 8:
            yield "Marchenko-Pastur", noise_spectrum(2 * n, n, seed=i)
        else:
            w = noise_spectrum(n, n, seed=i)
            yield "square noise and spikes", torch.cat([w[:-5], w[-5:] * (3 + u[:5])])


def raw(x):
    return fit_power_law(x, bootstrap=0, min_tail=3)


def test_by_hand():
    # ln x = 0 0 1 1 2 3. From 1 on: alpha - 1 = 6/7, farthest at e, 1 - exp(-6/7) - 2/6 = 0.242.
    # From e on: ln(x/e) = 0 0 1 2, alpha - 1 = 4/3, farthest at e^2, 1 - exp(-4/3) - 2/4 = 0.236: chosen.
    x = torch.tensor([0, 0, 1, 1, 2, 3], dtype=torch.float64).exp()
    fit = raw(x)
    assert (fit.xmin, fit.tail_size, fit.count) == (pytest.approx(math.e), 4, 6)
    assert fit.tail_exponent == pytest.approx(1 + 4 / 3)
    assert fit.ks == pytest.approx(1 - math.exp(-4 / 3) - 2 / 4)
    # just after e half of the tail is reached where the law still has nothing
    assert fit.ks_two_sided == pytest.approx(2 / 4)


@given(st.lists(st.floats(0.01, 1e4), min_size=4, max_size=40))
def test_agrees_with_its_twin(values):
    values = [float(f"{v:.3g}") for v in values]  # equal values are common
    x = torch.tensor(values, dtype=torch.float64)
    fit = raw(x)
    if len(set(values)) < 4 or max(values) <= (1 + 1e-4) * min(values):
        assert fit.tail_exponent is None
        return
    xmin, alpha, ks, two_sided, size = twin.fit(values)
    assert fit.ks == pytest.approx(ks, rel=1e-9, abs=1e-12)
    if fit.xmin == pytest.approx(xmin):
        assert fit.tail_exponent == pytest.approx(alpha, rel=1e-9)
        assert fit.ks_two_sided == pytest.approx(two_sided, rel=1e-9)
        assert fit.tail_size == size
    else:  # two candidates at the same distance, told apart by rounding
        assert twin.fit_of_tail(values, fit.xmin)[1] == pytest.approx(ks, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "x"), list(drawn_spectra(10)), ids=lambda v: v if isinstance(v, str) else ""
)
def test_pruning_finds_what_the_full_table_has(name, x):
    fit = raw(x)
    xmin, alpha, ks, two_sided, size = twin.fit(x.tolist())
    assert (fit.xmin, fit.tail_size) == (pytest.approx(xmin), size)
    assert fit.tail_exponent == pytest.approx(alpha, rel=1e-10)
    assert (fit.ks, fit.ks_two_sided) == (pytest.approx(ks), pytest.approx(two_sided))


def compared_with_the_package(spectra):
    """Share of spectra on which exponent, xmin and distance are those of ``powerlaw`` to 1e-6, and the others."""
    powerlaw = pytest.importorskip("powerlaw")
    differing, count = [], 0
    for name, x in spectra:
        count += 1
        other = powerlaw.Fit(x.numpy(), parameter_ranges={"alpha": [1.0, None]}, verbose=0)
        fit = raw(x)
        ours, theirs = (fit.tail_exponent, fit.xmin, fit.ks), (other.alpha, other.xmin, other.D)
        if not np.allclose(ours, theirs, rtol=1e-6, atol=0):
            differing.append((name, ours, theirs))
    return differing, count


@pytest.mark.filterwarnings("ignore")
def test_equals_powerlaw_on_some_spectra():
    differing, _ = compared_with_the_package(s for s in drawn_spectra(20) if len(s[1]) < 100)
    assert differing == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
def test_equals_powerlaw_on_drawn_spectra():
    differing, count = compared_with_the_package(drawn_spectra(200))
    assert len(differing) <= 0.01 * count, differing


def test_scale_does_not_matter():
    x = pareto(300, 2.5)
    a, b = fit_power_law(x, bootstrap=20), fit_power_law(1e-9 * x.flip(0), bootstrap=20)
    assert a.tail_exponent == pytest.approx(b.tail_exponent, rel=1e-9)
    assert a.interval == pytest.approx(b.interval, rel=1e-9)
    assert b.xmin == pytest.approx(1e-9 * a.xmin)


@pytest.mark.parametrize("alpha", [1.5, 3.0, 6.0])
def test_finds_the_density_exponent(alpha):
    fit = fit_power_law(pareto(20_000, alpha), bootstrap=0)
    assert abs(fit.tail_exponent - alpha) < 4 * fit.standard_error
    assert fit.standard_error == (fit.tail_exponent - 1) / math.sqrt(fit.tail_size)


def test_selects_first_and_then_refuses_a_small_tail():
    fit = fit_power_law(noise_spectrum(128, 64), bootstrap=0)
    free = raw(noise_spectrum(128, 64))
    assert fit.tail_exponent is None and fit.interval is None and fit.standard_error is None
    assert (fit.xmin, fit.ks, fit.tail_size) == (free.xmin, free.ks, free.tail_size)
    assert fit.reason == f"the best tail has {free.tail_size} eigenvalues, fewer than 50"


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (pareto(49, 3.0), "49 positive eigenvalues, fewer than 50"),
        (torch.zeros(100), "0 positive eigenvalues, fewer than 50"),
        (torch.tensor([5.0] + [0.0] * 99), "1 positive eigenvalues, fewer than 50"),
        (torch.tensor([]), "0 positive eigenvalues, fewer than 50"),
        (torch.full((80,), 2.0), "80 positive eigenvalues are equal to 4 digits: there is no tail"),
        (
            1 + 1e-6 * torch.rand(80),
            "80 positive eigenvalues are equal to 4 digits: there is no tail",
        ),
        (
            torch.tensor([1.0, 2.0, 3.0] * 20),
            "60 positive eigenvalues have fewer than 4 distinct values",
        ),
    ],
    ids=["few", "zeros", "rank-one", "empty", "equal", "orthogonal", "three-values"],
)
def test_degenerate_spectra_get_a_reason(x, reason):
    fit = fit_power_law(x, bootstrap=10)
    assert (fit.tail_exponent, fit.reason) == (None, reason)
    assert fit.xmin is None and fit.ks is None and fit.interval is None


def test_doubled_eigenvalues_and_negative_rounding_errors_are_fitted():
    x = pareto(100, 3.0)
    doubled = fit_power_law(torch.cat([x, x, -1e-9 * x]), bootstrap=20)
    assert (doubled.count, doubled.tail_size % 2) == (200, 0)
    assert doubled.tail_exponent == pytest.approx(raw(x).tail_exponent)
    assert doubled.interval[0] < doubled.tail_exponent < doubled.interval[1]


def test_neighbouring_numbers_of_float64_do_not_divide_by_zero():
    top = 1e10 * (1 + torch.arange(6, dtype=torch.float64) * 2**-52)
    fit = raw(torch.cat([pareto(60, 3.0), top]))
    assert math.isfinite(fit.tail_exponent) and math.isfinite(fit.ks)


def test_a_hundred_thousand_eigenvalues_are_no_trouble():
    fit = fit_power_law(pareto(100_000, 2.5), bootstrap=0)
    assert fit.tail_exponent == pytest.approx(2.5, abs=0.05)


def test_accepts_lists_arrays_and_tensors_of_any_dtype():
    x = pareto(80, 2.0).float()
    fits = [fit_power_law(v, bootstrap=0) for v in (x, x.numpy(), x.tolist())]
    assert fits[0] == fits[1] == fits[2]


def test_the_interval_is_that_of_resamples_and_repeats():
    x = pareto(400, 3.0)
    a, b, c = (fit_power_law(x, bootstrap=50, seed=s) for s in (0, 0, 1))
    assert a.interval == b.interval != c.interval
    assert a.interval[0] < 3.0 < a.interval[1]
    # wider than for a known xmin
    assert a.interval[1] - a.interval[0] > 2 * 1.5 * a.standard_error


def test_a_resample_without_a_tail_gives_no_interval():
    assert (
        fit_power_law(torch.tensor([1.0, 2.0, 4.0, 9.0]), bootstrap=2, min_tail=3, seed=3).interval
        is None
    )


def test_not_one_axis_is_an_error():
    with pytest.raises(MetricInputError) as error:
        fit_power_law(torch.ones(3, 3))
    assert str(error.value) == (
        "a power law is fitted to eigenvalues [N], got shape [3, 3].\n"
        "For a weight matrix W pass `spectrum_of(W).evals`."
    )


def test_what_is_not_finite_is_an_error():
    with pytest.raises(MetricInputError) as error:
        fit_power_law([1.0, math.nan, math.inf])
    assert str(error.value) == (
        "2 of 3 eigenvalues are inf or nan.\n"
        "`spectrum_of(W)` leaves out the rows of W that are not finite, and counts them."
    )


def test_a_negative_number_of_resamples_is_refused():
    with pytest.raises(MetricInputError, match="bootstrap is -5.\nGive 0 for no interval"):
        fit_power_law([1.0, 2.0, 3.0], bootstrap=-5)
