"""Tests of triplepoint.ops.bhyt."""

import math

import pytest
import torch
from tests.reference import ops as twin
from torch import nn

from triplepoint.ops import BHyT


def test_a_token_of_equal_sizes_is_the_tanh_of_the_slope():
    # every element is its token's root mean square: z = lam / kappa
    y = BHyT(4)(torch.tensor([7.0, -7.0, 7.0, 7.0]))
    assert y.tolist() == pytest.approx([s * math.tanh(0.2) for s in (1, -1, 1, 1)])


def test_agrees_with_its_twin():
    op = BHyT(5, lam=3.0, kappa=2.0)
    nn.init.normal_(op.weight)
    nn.init.normal_(op.bias)
    x = 2 * torch.randn(4, 5)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = twin.bhyt(
            token, gain=op.weight.tolist(), shift=op.bias.tolist(), lam=3.0, kappa=2.0
        )
        assert y.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scale", [0.1, 10.0, 1e3])
def test_unlike_dyt_it_does_not_see_the_scale_of_a_token(scale):
    op, x = BHyT(8), torch.randn(3, 8)
    # 1e-6 under the root, against a mean square of about 0.01 at the smallest scale
    assert torch.allclose(op(scale * x), op(x), rtol=1e-3)


def test_its_slope_is_so_small_that_nothing_saturates():
    z = BHyT(64).pre_activation(torch.randn(100, 64)).detach()
    assert float(z.abs().max()) < 2


def test_a_token_of_zeros_stays_zero():
    assert BHyT(3)(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2
