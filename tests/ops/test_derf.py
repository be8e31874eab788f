"""Tests of triplepoint.ops.derf."""

import math

import pytest
import torch
from tests.reference import ops as twin
from torch import nn

from triplepoint.ops import Derf, DynamicErf


def test_equals_known_values_of_the_error_function():
    y = Derf(3, alpha=0.5)(torch.tensor([2.0, -2.0, 1.0]))
    assert y.tolist() == pytest.approx([0.842701, -0.842701, 0.520500], abs=1e-6)


def test_the_shift_is_inside_the_erf_and_not_scaled_by_alpha():
    # 0.5 * 1 + 0.5 = 1, where alpha * (x + s) would give 0.75
    assert Derf(1, alpha=0.5, shift=0.5)(torch.ones(1)).item() == pytest.approx(0.842701, abs=1e-6)


def test_agrees_with_its_twin():
    op = Derf(5, alpha=0.4, shift=0.3)
    nn.init.normal_(op.weight)
    nn.init.normal_(op.bias)
    x = 2 * torch.randn(4, 5)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = twin.derf(
            token, gain=op.weight.tolist(), shift=op.bias.tolist(), alpha=0.4, inner_shift=0.3
        )
        assert y.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_slope_at_the_origin_is_two_over_root_pi_alpha():
    x = torch.zeros(1, requires_grad=True)
    Derf(1, alpha=0.3)(x).sum().backward()
    assert x.grad.item() == pytest.approx(0.3 * 2 / math.sqrt(math.pi))


def test_edges_of_exactness_are_those_of_the_docstring():
    for dtype, eps, edge in [(torch.bfloat16, 2**-7, 2.19), (torch.float32, 2**-23, 3.92)]:
        assert math.erf(Derf.exact_edge(dtype)) == pytest.approx(1 - eps / 4, abs=1e-12)
        assert Derf.exact_edge(dtype) == pytest.approx(edge, abs=0.005)


def test_is_born_with_the_authors_defaults():
    op = Derf.from_norm(nn.LayerNorm(3))
    assert (op.alpha.item(), op.shift.item()) == (0.5, 0.0)


def test_the_long_name_is_the_same_class():
    assert DynamicErf is Derf
