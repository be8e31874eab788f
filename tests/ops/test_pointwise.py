"""Tests of triplepoint.ops.pointwise."""

import math

import pytest
import torch
from tests.reference.ops import POINT_WISE
from torch import nn

from triplepoint.ops import OPS, Arctan, CubSign, DyT, HardTanhAlpha, LinearClip, SaturLog
from triplepoint.ops.pointwise import PointWise
from triplepoint.ops.presets import POINT_WISE as NAMES

FAMILY = {name: op for name, op in OPS.items() if issubclass(op, PointWise)}


def test_the_family_is_the_fourteen_functions_of_its_authors():
    assert set(FAMILY) == set(POINT_WISE) == set(NAMES)
    assert len({op.__name__ for op in FAMILY.values()}) == 14


@pytest.mark.parametrize("name", FAMILY)
def test_agrees_with_its_twin(name):
    op = FAMILY[name](5, alpha=0.4, shift=0.3)
    nn.init.normal_(op.weight)
    nn.init.normal_(op.bias)
    x = 4 * torch.randn(6, 5)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = [
            g * POINT_WISE[name](0.4 * v + 0.3) + b
            for g, v, b in zip(op.weight.tolist(), token, op.bias.tolist(), strict=True)
        ]
        assert y.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "z", "expected"),
    [
        # worked by hand; the two neighbours of each would give another number
        ("arctan", 1.0, 0.5), ("isru", 0.75, 0.6), ("expsign", math.log(4), 0.75), ("satursin", math.pi / 6, 0.5),
        ("smoothsign", 3.0, 0.75), ("cubsign", 2.0, 8 / 9), ("exproot", math.log(2) ** 2, 0.5),
        ("saturlog", math.e - 1, 0.5), ("linear_clip", 0.4, 0.4), ("power23_clip", 0.125, 0.25),
        ("logsign_clip", math.exp(0.5) - 1, 0.5), ("logquad_clip", math.sqrt(math.exp(0.5) - 1), 0.5),
        ("smoothsign_clip", 3.0, 0.75), ("relsign", 0.75, 1 / 3),
    ],
)  # fmt: skip
def test_values_worked_by_hand(name, z, expected):
    assert FAMILY[name].squash(torch.tensor([z, -z])).tolist() == pytest.approx(
        [expected, -expected]
    )


def test_is_born_with_the_authors_defaults():
    for op in FAMILY.values():
        layer = op.from_norm(nn.LayerNorm(3))
        assert (layer.alpha.item(), layer.shift.item()) == (0.5, 0.0)


@pytest.mark.parametrize("name", ["exproot", "power23_clip"])
def test_an_infinite_slope_at_zero_gives_no_gradient_rather_than_nan(name):
    x = torch.zeros(2, 3, requires_grad=True)
    op = FAMILY[name](3)
    op(x).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2
    assert all(p.grad.isfinite().all() for p in op.parameters())


@pytest.mark.parametrize("name", ["expsign", "saturlog", "logsign_clip", "smoothsign"])
def test_the_slope_at_zero_is_one_where_the_formula_has_a_corner_in_its_parts(name):
    z = torch.zeros(1, requires_grad=True)
    FAMILY[name].squash(z).backward()
    assert z.grad.item() == 1.0


def test_a_clipped_line_without_a_shift_is_hardtanh_with_a_slope():
    x = 3 * torch.randn(9, 4)
    assert torch.equal(LinearClip(4, alpha=0.7)(x), HardTanhAlpha(4, alpha=0.7)(x))


def test_edges_of_exactness():
    # 2/pi arctan z = 1 - 2^-9 where z = tan(pi/2 - pi/1024), about 1024/pi
    assert Arctan.exact_edge(torch.bfloat16) == pytest.approx(1024 / math.pi, rel=1e-4)
    assert CubSign.exact_edge(torch.bfloat16) == pytest.approx(511 ** (1 / 3))
    assert SaturLog.exact_edge(torch.bfloat16) == math.inf
    assert DyT.exact_edge(torch.float32) < Arctan.exact_edge(torch.float32)
