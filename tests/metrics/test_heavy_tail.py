"""Tests of triplepoint.metrics.heavy_tail and of the null it is held against."""

import math

import pytest
import torch

from triplepoint.errors import MetricInputError
from triplepoint.metrics import fit_power_law, tail_report
from triplepoint.metrics.heavy_tail import (
    alpha_weighted,
    hill_exponent,
    log_norms,
    weighted_tail_exponent,
)
from triplepoint.metrics.tail_null import compare_with_null


def with_evals(evals, m):
    """A matrix [m, n] with these eigenvalues of W^T W."""
    n = len(evals)
    left, _ = torch.linalg.qr(torch.randn(m, n))
    right, _ = torch.linalg.qr(torch.randn(n, n))
    return (left * evals.sqrt()) @ right.T


def pareto(n, alpha):
    return torch.rand(n) ** (-1 / (alpha - 1))


def test_a_planted_power_law_is_called_heavy_tailed():
    report = tail_report(with_evals(pareto(256, 2.5), 512), bootstrap=30)
    assert report.fit.interval[0] < 2.5 < report.fit.interval[1]
    null = report.null
    assert null.heavy_tailed
    # a tenth of 256 eigenvalues
    assert null.top == 25
    assert null.exponent_same_tail > 2 * null.exponent_top
    assert null.beyond == int((report.spectrum.evals > null.largest).sum()) > 5
    assert null.reason == (
        f"exponent {null.exponent_top:.2f} of the largest 25 is below the shuffled matrix's "
        f"{null.exponent_same_tail:.2f}, z = {null.reason.partition('z = ')[2]}"
    )


@pytest.mark.parametrize("shape", [(64, 64), (256, 256), (192, 768)], ids=str)
def test_noise_is_not(shape):
    torch.manual_seed(2)
    for seed in range(5):
        report = tail_report(torch.randn(shape), bootstrap=0, seed=seed)
        assert not report.null.heavy_tailed
        assert report.null.reason


def test_heavy_tailed_entries_alone_are_not():
    # the shuffled matrix is as heavy-tailed: it is single entries, not correlations
    w = torch.distributions.StudentT(2.0).sample((256, 256))
    assert not tail_report(w, bootstrap=0).null.heavy_tailed


def test_some_spikes_just_beyond_a_bulk_are_not():
    w = torch.randn(600, 300)
    left, _ = torch.linalg.qr(torch.randn(600, 6))
    right, _ = torch.linalg.qr(torch.randn(300, 6))
    report = tail_report(w + 30 * left @ right.T, bootstrap=0)
    assert report.bulk.spikes >= 6 and report.null.beyond >= 6
    assert not report.null.heavy_tailed


def test_each_condition_of_the_claim_is_needed():
    x, flat = pareto(400, 2.5).sort().values, torch.linspace(1, 2, 400)
    assert compare_with_null(x, flat).heavy_tailed
    within = compare_with_null(x, flat * float(x[-4] / 2))
    assert within.reason == "3 eigenvalues are beyond the shuffled matrix's largest, fewer than 5"
    alike = compare_with_null(x, 0.1 * x)
    assert (
        "is not clearly below the shuffled matrix's" in alike.reason and "z = 0.0" in alike.reason
    )
    refused = compare_with_null(flat, flat, fit=fit_power_law([1.0] * 70, bootstrap=0))
    assert refused.reason == "70 positive eigenvalues are equal to 4 digits: there is no tail"
    assert (refused.top, refused.exponent_top, refused.exponent_same_tail) == (0, None, None)
    assert not any(c.heavy_tailed for c in (within, alike, refused))


def test_by_hand_over_the_top():
    # 60 values: the top 20 are compared; exponents 1 + 20 / sum ln(x / x of rank 20)
    ranks = torch.arange(1, 61, dtype=torch.float64)
    found = compare_with_null(60 / ranks, (60 / ranks).sqrt())
    excess = 20 * math.log(20) - math.lgamma(21)
    assert found.top == 20
    assert found.exponent_top == pytest.approx(1 + 20 / excess)
    assert found.exponent_same_tail == pytest.approx(1 + 40 / excess)
    # 60/r > sqrt(60) for r up to 7
    assert found.beyond == 7
    z = (20 / excess) / math.sqrt(5 * (20 / excess) ** 2 / 20)
    assert f"z = {z:.1f};" in found.reason


def test_a_null_of_equal_eigenvalues_has_no_tail_to_beat():
    found = compare_with_null(pareto(200, 2.5) + 1, torch.ones(200))
    assert found.heavy_tailed and found.exponent_same_tail is None
    assert found.reason == "the shuffled matrix's largest 20 eigenvalues are equal: it has no tail"


def test_a_top_of_equal_eigenvalues_is_none():
    x = torch.cat([pareto(100, 2.5).clamp(max=8), torch.full((40,), 9.0)])
    fit = fit_power_law(pareto(140, 2.5), bootstrap=0)
    found = compare_with_null(x, torch.ones(140), fit=fit)
    assert (found.heavy_tailed, found.reason) == (False, "the largest 20 eigenvalues are equal")


@pytest.mark.parametrize(
    ("w", "reason"),
    [
        (torch.linalg.qr(torch.randn(96, 64))[0], "64 positive eigenvalues are equal to 4 digits: there is no tail"),
        (torch.zeros(80, 60), "0 positive eigenvalues, fewer than 50"),
        (torch.outer(torch.randn(80), torch.randn(60)), "1 positive eigenvalues, fewer than 50"),
        (torch.randn(200, 30), "30 positive eigenvalues, fewer than 50"),
        (torch.full((60, 60), math.nan), "0 positive eigenvalues, fewer than 50"),
    ],
    ids=["orthogonal", "zero", "rank-one", "small", "nan"],
)  # fmt: skip
def test_degenerate_matrices_get_a_reason(w, reason):
    report = tail_report(w, bootstrap=5)
    assert (report.fit.tail_exponent, report.fit.reason) == (None, reason)
    assert not report.null.heavy_tailed and report.null.reason == reason
    assert "weighted_tail_exponent" not in report.norms


def test_a_row_of_nan_is_left_out_of_the_null_too():
    w = with_evals(pareto(128, 2.5), 256)
    w[5] = math.nan
    report = tail_report(w, bootstrap=0)
    assert report.spectrum.bad_rows == 1
    assert math.isfinite(report.null.largest) and report.null.largest > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn], ids=str)
def test_low_precision_with_a_row_of_nan_has_a_null(dtype):
    w = torch.randn(80, 60)
    w[7, 7] = math.nan
    low = tail_report(w.to(dtype), bootstrap=0)
    high = tail_report(w.to(dtype).float(), bootstrap=0)
    assert low.spectrum.bad_rows == 1
    assert low.null.largest == high.null.largest


def test_without_a_null_no_claim_is_made():
    assert tail_report(torch.randn(64, 64), bootstrap=0, null=False).null is None


def test_bfloat16_agrees_with_float32():
    w = with_evals(pareto(200, 2.5), 300)
    low, high = (tail_report(v, bootstrap=0, null=False) for v in (w.bfloat16(), w))
    assert low.ranks.effective == pytest.approx(high.ranks.effective, rel=1e-2)
    assert low.ranks.stable == pytest.approx(high.ranks.stable, rel=1e-2)
    assert low.norms["log_norm"] == pytest.approx(high.norms["log_norm"], abs=1e-3)


def test_weighted_exponent_and_norms_by_hand():
    evals = torch.tensor([1e3, 90.0, 10.0])
    assert log_norms(evals) == {
        "log_norm": pytest.approx(math.log10(1100)),
        "log_spectral_norm": pytest.approx(3),
    }
    assert weighted_tail_exponent(2.5, 3.0) == 7.5
    assert alpha_weighted is weighted_tail_exponent
    assert set(log_norms(torch.zeros(3)).values()) == {-math.inf}
    assert set(log_norms(torch.zeros(0)).values()) == {-math.inf}


def test_the_report_weights_by_the_largest_eigenvalue():
    report = tail_report(with_evals(pareto(128, 2.5), 256), bootstrap=0, null=False)
    largest = math.log10(float(report.spectrum.evals.max()))
    assert report.norms["weighted_tail_exponent"] == pytest.approx(
        report.fit.tail_exponent * largest
    )


def test_hills_is_the_survival_exponent():
    x = torch.rand(50_000, dtype=torch.float64) ** -0.5  # density exponent 3
    assert hill_exponent(x, k=20_000) == pytest.approx(2, rel=0.03)
    assert fit_power_law(x, bootstrap=0).tail_exponent == pytest.approx(3, rel=0.03)


def test_hill_by_hand_and_at_its_ends():
    x = torch.tensor([1.0, math.e, math.e**2], dtype=torch.float64)
    assert hill_exponent(x, k=1) == pytest.approx(1)
    assert hill_exponent(x, k=2) == pytest.approx(2 / 3)
    assert hill_exponent(torch.ones(5), k=2) == math.inf
    with pytest.raises(MetricInputError) as error:
        hill_exponent(x, k=3)
    assert str(error.value) == (
        "hill_exponent uses the k largest values above the next: k = 3 of 3 positive values.\n"
        "Choose k from 1 to 2."
    )


@pytest.mark.parametrize(("n", "rank"), [(256, 8), (256, 16), (512, 5), (512, 16)])
def test_noise_with_a_few_spikes_is_no_heavy_tail(n, rank):
    generator = torch.Generator().manual_seed(n + rank)
    signal = torch.randn(n, rank, generator=generator) @ torch.randn(rank, n, generator=generator)
    noise = torch.randn(n, n, generator=generator)
    null = tail_report(noise + 4 * n**-0.5 * signal, bootstrap=0).null
    assert null.beyond == pytest.approx(rank, abs=2)
    assert not null.heavy_tailed
    assert null.reason.endswith("spikes, no tail")
