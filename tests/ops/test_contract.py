"""What every entry of triplepoint.ops.OPS promises. A new op is tested here unasked."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.ops import OPS, PRESETS, NormFacts, NormOp, parse_op_name
from triplepoint.ops._base import Squashing

pytestmark = pytest.mark.parametrize("op", OPS.values(), ids=OPS)

NORMS = {
    "layer": lambda: nn.LayerNorm(6),
    "layer-no-bias": lambda: nn.LayerNorm(6, bias=False),
    "layer-no-affine": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "rms": lambda: nn.RMSNorm(6),
    "rms-no-affine": lambda: nn.RMSNorm(6, elementwise_affine=False),
}
SHARE = 1 - math.tanh(2) ** 2
"""Of the largest slope, where tanh counts as flat."""


def squashes(op):
    return issubclass(op, Squashing)


def slopes_at(op, z):
    z = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    op.squash(z).sum().backward()
    return z.grad


def halfway(layer):
    """Bring an op that changes in the course of training to a step where all of it is in use."""
    if hasattr(layer, "advance"):
        for step in (1, 50):
            layer.advance(step, steps=100)
            layer(torch.randn(9, layer.dim))
    return layer


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
    replacement = halfway(op.from_norm(nn.LayerNorm(6)))
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
        assert layer.double().pre_activation(torch.randn(2, 4).double()).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_output_is_exactly_one_beyond_the_exact_edge_only(op, dtype, sign):
    if not squashes(op):
        return
    edge = min(op.exact_edge(dtype), torch.finfo(torch.float32).max)
    # squashed in double precision: float32's own rounding would blur the edge
    beyond, before = (
        op.squash(torch.tensor([sign * edge * factor]).double()).to(dtype).item()
        for factor in (1.03, 0.97)
    )
    assert beyond == sign or (op.exact_edge(dtype) == math.inf and 0.9 < sign * beyond < 1)
    assert 0.9 < sign * before < 1


def test_is_odd_rising_and_never_beyond_one_in_float32(op):
    if not squashes(op):
        return
    z = torch.logspace(-30, 38, 20_001)
    y = op.squash(z)
    assert torch.equal(op.squash(-z), -y)
    assert 0 <= y.min() <= y.max() <= 1
    assert y.diff().min() >= -2e-7  # rounding
    assert op.squash(torch.zeros(3)).tolist() == [0.0] * 3
    infinite = op.squash(torch.tensor([math.inf, -math.inf])).tolist()
    assert infinite[0] == -infinite[1] > 0.95
    assert op.squash(torch.tensor([math.nan])).isnan().all()


def test_slope_falls_to_the_same_share_of_its_largest_at_the_slope_edge(op):
    if not squashes(op):
        return
    every = slopes_at(op, torch.linspace(0, 20, 4001).tolist())
    if op.slope_edge is None:  # infinitely steep at 0, where no gradient is given
        assert every[0] == 0
        assert slopes_at(op, [1e-6]) > 10 * slopes_at(op, [1e-2])
        return
    inside, beyond = slopes_at(op, [op.slope_edge * f for f in (0.999, 1.001)]) / every.max()
    assert inside > SHARE > beyond
    assert beyond == 0 or beyond == pytest.approx(SHARE, rel=0.03)


def test_the_output_is_gain_and_shift_around_the_squashed_pre_activation(op):
    if not squashes(op):
        return
    layer, x = op(4), 3 * torch.randn(5, 4)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    expected = layer.weight * op.squash(layer.pre_activation(x)) + layer.bias
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("options", [{}, {"affine": False, "bias": False}], ids=str)
@pytest.mark.parametrize("positions", [(), (3,), (3, 4)], ids=str)
def test_features_may_lie_on_axis_one(op, options, positions):
    last, first = op(6, **options), op(6, axis=1, **options)
    for parameter in last.parameters():
        nn.init.normal_(parameter)
    first.load_state_dict(last.state_dict())
    x = 2 * torch.randn(2, 6, *positions)
    expected = last(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(first(x), expected)
    if squashes(op):
        z = last.pre_activation(x.movedim(1, -1)).movedim(-1, 1)
        torch.testing.assert_close(first.pre_activation(x), z)
    assert ("axis=1" in repr(first)) and ("axis" not in repr(last))


def test_the_axis_comes_from_the_norm(op):
    facts = NormFacts(dim=6, centred=True, axis=1, weight=torch.randn(6), weight_offset=1.0)
    layer = op.from_facts(facts)
    assert layer(torch.randn(2, 6, 3, 3)).shape == (2, 6, 3, 3)
    assert layer.axis == op.from_norm(layer).axis == 1
    assert torch.equal(layer.weight, facts.weight + 1)


def test_refuses_any_other_axis(op):
    with pytest.raises(ModelError) as caught:
        op(6, axis=2)
    assert str(caught.value).split("\n") == [
        "The features are on axis -1 or 1, got axis=2.",
        "Move them to the last axis, or leave this site out with where=.",
    ]


def test_is_the_same_after_pickling(op):
    first, x = op(6), torch.randn(2, 6)
    nn.init.normal_(first.weight)
    second = pickle.loads(pickle.dumps(first))
    assert type(second) is op
    assert torch.equal(first.eval()(x), second.eval()(x))


def test_computes_double_precision_in_double_precision(op):
    layer = halfway(op(4).double())
    x = torch.tensor([[0.21, -0.43, 0.67, 1.71]], dtype=torch.float64, requires_grad=True)
    assert layer(x).dtype == torch.float64
    assert torch.autograd.gradcheck(layer.eval(), x)


def test_is_final_and_a_norm_op(op):
    assert issubclass(op, NormOp)
    # a parametrised module gets a class of its own from torch
    assert [c for c in op.__subclasses__() if not c.__name__.startswith("Parametrized")] == []


@pytest.mark.parametrize("name", ["input", "hidden_states", "x"])
def test_takes_its_input_by_the_name_that_the_norm_took(op, name):
    layer, x = op(6), torch.randn(2, 6)
    assert torch.equal(layer(**{name: x}), layer(x))
