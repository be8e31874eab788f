"""Tests of triplepoint.ops.hardtanh."""

import pytest
import torch
from tests.reference import ops as twin
from torch import nn

from triplepoint.ops import HardTanh, HardTanhAlpha


def test_clips_at_one_and_is_the_identity_inside():
    y = HardTanh(5)(torch.tensor([-3.0, -1.0, 0.25, 1.0, 1.0001]))
    assert y.tolist() == [-1.0, -1.0, 0.25, 1.0, 1.0]


def test_alpha_scales_before_the_clip():
    y = HardTanhAlpha(3, alpha=2.0)(torch.tensor([-0.75, 0.25, 0.5]))
    assert y.tolist() == [-1.0, 0.5, 1.0]


def test_alpha_is_born_as_plain_hardtanh():
    x = torch.randn(4, 3)
    assert torch.equal(HardTanhAlpha(3)(x), HardTanh(3)(x))
    assert not hasattr(HardTanh(3), "alpha")


@pytest.mark.parametrize(("op", "alpha"), [(HardTanh(5), 1.0), (HardTanhAlpha(5, alpha=0.7), 0.7)])
def test_agrees_with_its_twin(op, alpha):
    nn.init.normal_(op.weight)
    nn.init.normal_(op.bias)
    x = 2 * torch.randn(4, 5)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = twin.hardtanh(
            token, gain=op.weight.tolist(), shift=op.bias.tolist(), alpha=alpha
        )
        assert y.tolist() == pytest.approx(expected, rel=1e-6)


def test_unlike_torchs_own_it_has_gain_and_shift():
    op = HardTanh.from_norm(nn.LayerNorm(2))
    with torch.no_grad():
        op.weight.fill_(3.0)
        op.bias.fill_(0.5)
    assert op(torch.tensor([9.0, -9.0])).tolist() == [3.5, -2.5]


def test_is_exact_from_one_in_every_dtype():
    for op in (HardTanh, HardTanhAlpha):
        assert {op.exact_edge(d) for d in (torch.float32, torch.bfloat16)} == {1.0}
