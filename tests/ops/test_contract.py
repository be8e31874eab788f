"""What every entry of triplepoint.ops.OPS promises. A new op is tested here unasked."""

import copy

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.ops import OPS, PRESETS, NormOp, parse_op_name

pytestmark = pytest.mark.parametrize("op", OPS.values(), ids=OPS)

NORMS = {
    "layer": lambda: nn.LayerNorm(6),
    "layer-no-bias": lambda: nn.LayerNorm(6, bias=False),
    "layer-no-affine": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "rms": lambda: nn.RMSNorm(6),
    "rms-no-affine": lambda: nn.RMSNorm(6, elementwise_affine=False),
}
SHARE = 0.0707
"""Of the largest slope, where tanh counts as flat: 1 - tanh(2)^2."""


def squashes(op):
    return op.slope_edge is not None


def slope_at(op, z):
    z = torch.tensor([z], requires_grad=True)
    op.squash(z).sum().backward()
    return z.grad.item()


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_keeps_shape_dtype_and_affine_of_the_norm_it_replaces(op, norm, dtype):
    norm = norm().to(dtype)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    replacement = op.from_norm(norm)
    x = torch.randn(2, 5, 6, dtype=dtype)
    assert replacement(x).shape == x.shape
    assert replacement(x).dtype == dtype
    for name in ("weight", "bias"):
        old, new = getattr(norm, name, None), getattr(replacement, name)
        assert (old is None) == (new is None)
        if old is not None:
            assert new.dtype == dtype
            assert torch.equal(new, old)


def test_building_it_leaves_the_norm_alone(op):
    norm = nn.LayerNorm(6)
    nn.init.normal_(norm.weight)
    kept = copy.deepcopy(norm.state_dict())
    replacement = op.from_norm(norm)
    with torch.no_grad():
        replacement.weight.zero_()
        replacement.bias.fill_(7)
    torch.testing.assert_close(norm.state_dict(), kept, rtol=0, atol=0)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_frozen_parameters_stay_frozen(op, frozen):
    norm = nn.LayerNorm(6)
    getattr(norm, frozen).requires_grad_(False)
    replacement = op.from_norm(norm)
    assert replacement.weight.requires_grad == (frozen != "weight")
    assert replacement.bias.requires_grad == (frozen != "bias")


def test_stays_on_the_meta_device(op):
    replacement = op.from_norm(nn.LayerNorm(6, device="meta"))
    assert {p.device.type for p in replacement.parameters()} == {"meta"}
    assert replacement(torch.empty(2, 6, device="meta")).shape == (2, 6)


def test_replaces_every_other_op(op):
    for other in OPS.values():
        first = other.from_norm(nn.LayerNorm(6))
        nn.init.normal_(first.weight)
        second = op.from_norm(first)
        assert second.dim == 6
        assert torch.equal(second.weight, first.weight)


def test_takes_any_number_of_leading_axes(op):
    layer, x = op(6), torch.randn(2, 3, 4, 6)
    torch.testing.assert_close(layer(x)[1, 2, 3], layer(x[1, 2, 3]))


def test_gradient_reaches_every_parameter(op):
    replacement = op.from_norm(nn.LayerNorm(6))
    replacement(torch.randn(2, 5, 6)).square().sum().backward()
    dead = [n for n, p in replacement.named_parameters() if not p.grad.abs().sum()]
    assert dead == []


def test_gradient_agrees_with_finite_differences(op):
    layer = op.from_norm(nn.LayerNorm(4))
    # float32 inside; inputs away from the corners of clipping ops
    x = torch.tensor([[0.21, -0.43, 0.67, 1.71]], requires_grad=True)
    direction = torch.tensor([[0.3, -0.7, 0.5, 0.2]])
    toll = torch.tensor([[1.0, 2.0, -1.0, 0.5]])
    (layer(x) * toll).sum().backward()
    h = 1e-2
    with torch.no_grad():
        there, back = (layer(x + s * h * direction) for s in (1, -1))
    expected = ((there - back).double() * toll).sum() / (2 * h)
    assert (x.grad * direction).sum().item() == pytest.approx(expected.item(), rel=2e-3)


def test_state_dict_round_trips(op):
    first, second = op.from_norm(nn.LayerNorm(6)), op.from_norm(nn.LayerNorm(6))
    for parameter in first.parameters():
        nn.init.normal_(parameter)
    second.load_state_dict(first.state_dict())
    x = torch.randn(2, 6)
    assert torch.equal(first(x), second(x))


def test_a_deep_copy_is_independent(op):
    first = op.from_norm(nn.LayerNorm(6))
    second = copy.deepcopy(first)
    x = torch.randn(2, 6)
    before = first(x).clone()
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(3)
    assert torch.equal(first(x), before)


def test_no_parameter_is_zero_dimensional(op):
    # FSDP refuses those
    assert all(p.ndim == 1 for p in op(6).parameters())
    for name in ("alpha", "shift"):
        if hasattr(op(6), name):
            assert getattr(op(6), name).shape == (1,)


@pytest.mark.parametrize("size", [0.0, 1e-30, 6e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sizes_at_the_end_of_the_range_stay_finite(op, size, dtype):
    # a float16 residual stream may come up to 65504; alpha times it would be inf in float16
    layer = op(4).to(dtype)
    if hasattr(layer, "alpha"):
        nn.init.constant_(layer.alpha, 2.0)
    x = torch.tensor([[size, -size, size, size]], dtype=dtype, requires_grad=True)
    y = layer(x)
    y.float().sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def test_has_a_docstring_and_a_source_for_each_preset(op):
    name = next(name for name, known in OPS.items() if known is op)
    assert op.__doc__
    assert "recommended" in PRESETS[name]
    assert parse_op_name(name) == (name, PRESETS[name]["recommended"])
    for preset in PRESETS[name].values():
        assert parse_op_name(f"{name}:{preset.name}") == (name, preset)
        assert preset.source


def test_a_preset_has_an_alpha_where_the_op_has_one(op):
    name = next(name for name, known in OPS.items() if known is op)
    for preset in PRESETS[name].values():
        assert (preset.alpha is not None) == hasattr(op(4), "alpha")
        if preset.alpha:
            layer = op.from_norm(nn.LayerNorm(4), alpha=preset.alpha(4, "final"))
            assert layer.alpha.item() == preset.alpha(4, "final")


def test_refuses_a_norm_over_two_axes(op):
    with pytest.raises(ModelError) as caught:
        op.from_norm(nn.LayerNorm((3, 4)))
    assert str(caught.value).split("\n") == [
        "LayerNorm normalises over 2 axes (3, 4); ops replace norms over the last axis only.",
        "Leave this site out with where=, or flatten those axes.",
    ]


def test_pre_activation_is_float32_or_absent(op):
    layer = op(4).bfloat16()
    z = layer.pre_activation(torch.randn(2, 4).bfloat16())
    if not squashes(op):
        assert z is None
        assert op.exact_edge(torch.float32) is None
    else:
        assert z.dtype == torch.float32
        assert z.shape == (2, 4)
        assert op.slope_edge > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_output_is_exactly_one_beyond_the_exact_edge_only(op, dtype, sign):
    if not squashes(op):
        return
    edge = op.exact_edge(dtype)
    # 3 %: more than the error of a vectorised tanh
    beyond, before = (
        op.squash(torch.tensor([sign * edge * factor])).to(dtype).item() for factor in (1.03, 0.97)
    )
    assert beyond == sign
    assert 0.9 < sign * before < 1


def test_slope_falls_to_the_same_share_of_its_largest_at_the_slope_edge(op):
    if not squashes(op):
        return
    largest = slope_at(op, 0.0)
    inside, beyond = (slope_at(op, op.slope_edge * f) / largest for f in (0.999, 1.001))
    assert inside > SHARE > beyond
    assert beyond == 0 or beyond == pytest.approx(SHARE, rel=0.01)


def test_the_output_is_gain_and_shift_around_the_squashed_pre_activation(op):
    if not squashes(op):
        return
    layer, x = op(4), 3 * torch.randn(5, 4)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    expected = layer.weight * op.squash(layer.pre_activation(x)) + layer.bias
    assert torch.equal(layer(x), expected)


def test_is_final_and_a_norm_op(op):
    assert issubclass(op, NormOp)
    assert op.__subclasses__() == []
