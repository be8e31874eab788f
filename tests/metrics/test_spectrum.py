"""Tests of triplepoint.metrics.spectrum."""

import math

import pytest
import torch

from triplepoint.errors import MetricInputError
from triplepoint.metrics import spectrum_of
from triplepoint.metrics.spectrum import gram_of


def with_sigma(sigma, m, n, dtype=torch.float64):
    """A matrix [m, n] of known singular values."""
    left, _ = torch.linalg.qr(torch.randn(m, len(sigma), dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(n, len(sigma), dtype=torch.float64))
    return ((left * torch.as_tensor(sigma, dtype=torch.float64)) @ right.T).to(dtype)


@pytest.mark.parametrize("shape", [(7, 4), (4, 7)], ids=["tall", "wide"])
@pytest.mark.parametrize("route", ["gram-float32", "gram-float64", "svd-float64"])
def test_eigenvalues_are_squared_singular_values(shape, route):
    w = with_sigma([4.0, 3.0, 2.0, 1.0], *shape)
    found = spectrum_of(w, route=route)
    assert found.evals.tolist() == pytest.approx([1, 4, 9, 16], rel=1e-5)
    assert found.sigma.tolist() == pytest.approx([1, 2, 3, 4], rel=1e-5)
    assert (found.rows, found.columns, found.bad_rows, found.route) == (*shape, 0, route)
    assert found.evals.dtype == torch.float64


def test_ordinary_weights_take_the_cheap_route():
    w = torch.randn(300, 100)
    found = spectrum_of(w)
    assert (found.route, found.unresolved) == ("gram-float32", 0)
    exact = torch.linalg.svdvals(w.double()).flip(0).square()
    torch.testing.assert_close(found.evals, exact, rtol=1e-5, atol=0)


def test_what_float32_would_lose_is_found_in_float64():
    sigma = torch.logspace(-6, 0, 50, dtype=torch.float64)
    found = spectrum_of(with_sigma(sigma, 200, 50, torch.float32))
    assert (found.route, found.unresolved) == ("gram-float64", 0)
    # entries in float32 carry singular values to about 1e-8 of the largest
    torch.testing.assert_close(found.sigma, sigma, rtol=1e-2, atol=2e-8)


def test_float64_weights_fall_back_on_singular_values():
    sigma = torch.logspace(-11, 0, 40, dtype=torch.float64)
    found = spectrum_of(with_sigma(sigma, 60, 40))
    assert (found.route, found.unresolved) == ("svd-float64", 0)
    torch.testing.assert_close(found.sigma, sigma, rtol=1e-3, atol=0)


def test_a_rank_one_matrix_has_one_eigenvalue():
    w = torch.randn(90, 1) @ torch.randn(1, 60)
    found = spectrum_of(w)
    assert int((found.evals > 0).sum()) == 1 and found.unresolved == 59


def test_few_lost_eigenvalues_are_kept_and_counted():
    w = with_sigma([1e-5] + [1.0] * 99, 100, 100, torch.float32)
    found = spectrum_of(w)
    assert (found.route, found.unresolved) == ("gram-float32", 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn], ids=str)
def test_low_precision_is_measured_as_the_float32_of_the_same_numbers(dtype):
    w = torch.randn(40, 20).to(dtype)
    assert spectrum_of(w).evals.tolist() == spectrum_of(w.float()).evals.tolist()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_no_square_overflows_or_vanishes(scale):
    w = torch.randn(40, 20)
    found = spectrum_of(w * scale).evals
    torch.testing.assert_close(found / scale**2, spectrum_of(w).evals, rtol=1e-4, atol=0)


def test_rows_that_are_not_finite_are_left_out_and_counted():
    w = torch.randn(12, 5)
    broken = w.clone()
    broken[3, 1], broken[7, 0] = math.nan, -math.inf
    found = spectrum_of(broken)
    kept = spectrum_of(torch.cat([w[:3], w[4:7], w[8:]]))
    assert (found.bad_rows, found.rows) == (2, 10)
    torch.testing.assert_close(found.evals, kept.evals)


def test_huge_finite_numbers_are_no_bad_rows():
    found = spectrum_of(torch.full((4, 3), 3e38))
    assert found.bad_rows == 0
    assert found.evals.tolist() == pytest.approx([0, 0, 12 * 9e76], rel=1e-5, abs=1e65)


def test_every_route_says_the_same_of_bad_rows_and_zeros():
    w = torch.tensor([[3.0, 0.0], [math.inf, 1.0], [0.0, 4.0]])
    for route in ("gram-float32", "gram-float64", "svd-float64"):
        found = spectrum_of(w, route=route)
        assert (found.evals.tolist(), found.bad_rows) == (pytest.approx([9, 16]), 1)
        assert spectrum_of(torch.zeros(3, 2), route=route).evals.tolist() == [0, 0]


@pytest.mark.parametrize("w", [torch.zeros(0, 4), torch.zeros(4, 0), torch.full((3, 3), math.nan)])
def test_nothing_left_gives_an_empty_spectrum(w):
    found = spectrum_of(w)
    assert found.evals.numel() == 0
    assert found.unresolved == 0


def test_a_zero_matrix_has_a_zero_spectrum():
    assert spectrum_of(torch.zeros(4, 3)).evals.tolist() == [0, 0, 0]


def test_a_gram_matrix_is_the_same_in_parts(monkeypatch):
    monkeypatch.setattr("triplepoint.metrics.spectrum._CHUNK_BYTES", 8 * 5 * 3)
    w = torch.randn(11, 5)
    torch.testing.assert_close(gram_of(w), w.double().T @ w.double())


@pytest.mark.parametrize(
    ("w", "given"),
    [(torch.ones(2, 2, 2), "torch.float32 [2, 2, 2]"), (torch.ones(2, 2, dtype=torch.int8), "torch.int8 [2, 2]")],
    ids=["conv", "packed"],
)  # fmt: skip
def test_what_is_no_matrix_of_numbers_is_an_error(w, given):
    with pytest.raises(MetricInputError) as error:
        spectrum_of(w)
    assert str(error.value) == (
        f"a spectrum needs a floating-point matrix [m, n], got {given}.\n"
        "Unfold a convolution with `w.flatten(1)`; dequantise packed weights first."
    )


def test_leaves_the_weights_alone_and_keeps_no_graph():
    w = torch.randn(6, 4, requires_grad=True)
    before = w.detach().clone()
    assert not spectrum_of(w).evals.requires_grad
    assert torch.equal(w.detach(), before)
