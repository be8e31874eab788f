"""Tests of triplepoint.metrics.rank."""

import math

import pytest
import torch

from triplepoint.errors import MetricInputError
from triplepoint.metrics import effective_rank, effective_rank_sq, participation_ratio, stable_rank
from triplepoint.metrics.rank import ranks_of

MEASURES = [effective_rank, effective_rank_sq, participation_ratio, stable_rank]


def with_spectrum(sigma, *, rows=12, cols=7):
    """A dense [rows, cols] matrix whose singular values are exactly ``sigma``."""
    left, _ = torch.linalg.qr(torch.randn(rows, len(sigma)))
    right, _ = torch.linalg.qr(torch.randn(cols, len(sigma)))
    return left @ torch.diag(torch.tensor(sigma)) @ right.T


def entropy_rank(*weights):
    p = [w / sum(weights) for w in weights]
    return math.exp(-sum(v * math.log(v) for v in p))


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [
        ([3.0], (1, 1, 1, 1)),
        ([2.0, 2.0, 2.0, 2.0], (4, 4, 4, 4)),
        # sigma 3 and 1: p = 3/4, 1/4 from sigma but 9/10, 1/10 from sigma squared
        ([3.0, 1.0], (entropy_rank(3, 1), entropy_rank(9, 1), 100 / 82, 10 / 9)),
        ([2.0, 1.0, 1.0], (entropy_rank(2, 1, 1), entropy_rank(4, 1, 1), 36 / 18, 6 / 4)),
    ],
    ids=["rank-one", "flat", "two-unequal", "three"],
)
def test_equal_the_definitions_on_known_spectra(sigma, expected):
    x = with_spectrum(sigma)
    found = [measure(x).item() for measure in MEASURES]
    assert found == pytest.approx(expected, rel=1e-5)
    ranks = ranks_of(torch.tensor(sigma).square())
    whole = (ranks.effective, ranks.effective_sq, ranks.participation, ranks.stable)
    assert whole == pytest.approx(expected)


def test_lie_in_their_order_between_one_and_the_smaller_side():
    x = torch.randn(30, 9) * torch.linspace(0.1, 3, 9)
    values = [measure(x).item() for measure in reversed(MEASURES)]
    assert values == sorted(values)
    assert 1 < values[0] and values[-1] < 9


@pytest.mark.parametrize("measure", MEASURES)
def test_ignore_scale_rotation_and_transposition(measure):
    x = torch.randn(32, 8)
    rotation, _ = torch.linalg.qr(torch.randn(8, 8))
    torch.testing.assert_close(measure(1e3 * x @ rotation), measure(x))
    torch.testing.assert_close(measure(x.T), measure(x))


@pytest.mark.parametrize("measure", MEASURES)
def test_bfloat16_agrees_with_float32(measure):
    x = torch.randn(64, 16)
    low = measure(x.bfloat16())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, measure(x), rtol=1e-2, atol=0)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", [(5, 3), (0, 3)])
def test_a_zero_or_empty_matrix_has_rank_zero(measure, shape):
    assert measure(torch.zeros(shape)).item() == 0


@pytest.mark.parametrize("measure", MEASURES)
def test_non_finite_input_says_how_much_and_why(measure):
    x = torch.randn(4, 4)
    x[0, 0] = math.nan
    with pytest.raises(MetricInputError) as error:
        measure(x)
    assert str(error.value) == (
        f"{measure.__name__} needs finite entries; 1 of 16 are inf or nan.\n"
        "The run has probably diverged already; for weights, `spectrum_of` leaves out bad rows."
    )


def test_what_is_no_matrix_says_what_to_pass():
    from triplepoint.metrics import rank

    with pytest.raises(MetricInputError) as error:
        rank._ranks(torch.ones(2, 3, 4), "effective_rank")
    assert str(error.value) == (
        "effective_rank needs a matrix [sample, dim], got shape [2, 3, 4].\n"
        "For activations [batch, seq, dim], pass `x.flatten(0, -2)`."
    )
