"""Tests of triplepoint.ops.normalisation."""

import pytest
import torch
from tests.reference import ops as twin
from torch import nn

from triplepoint.ops import LayerNorm, RMSNorm


def spread(*shape):
    """Tokens of quite different mean and scale: where a wrong axis or a missing eps would show."""
    return torch.randn(*shape) * torch.logspace(-2, 2, shape[0])[:, None] + 1


def randomised(norm):
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


@pytest.mark.parametrize("eps", [1e-5, 0.0, 0.3])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}], ids=str)
def test_layernorm_equals_torchs_bit_for_bit(eps, options):
    norm = randomised(nn.LayerNorm(7, eps=eps, **options))
    x = spread(5, 7)
    assert torch.equal(LayerNorm.from_norm(norm)(x), norm(x))


@pytest.mark.parametrize("eps", [1e-5, 0.0, 0.3, None])
def test_rmsnorm_equals_torchs(eps):
    norm = randomised(nn.RMSNorm(7, eps=eps))
    x = spread(5, 7)
    torch.testing.assert_close(RMSNorm.from_norm(norm)(x), norm(x), rtol=1e-6, atol=1e-7)


def test_rmsnorm_without_an_eps_uses_torchs_also_for_tiny_inputs():
    # eps None is float32's 1.2e-7 in torch; 1e-5 would shrink this input tenfold
    norm, x = nn.RMSNorm(3), 1e-4 * torch.tensor([1.0, -1.0, 1.0])
    torch.testing.assert_close(RMSNorm.from_norm(norm)(x), norm(x))
    # from the definition: 1e-4 / sqrt(1e-8 + 1.19e-7)
    assert RMSNorm.from_norm(norm)(x)[0].item() == pytest.approx(0.2782, abs=1e-4)


def test_layernorm_in_place_of_an_rmsnorm_has_torchs_usual_eps():
    assert LayerNorm.from_norm(nn.RMSNorm(3)).eps == 1e-5


@pytest.mark.parametrize(
    ("op", "reference"), [(LayerNorm(6), twin.layernorm), (RMSNorm(6, bias=True), twin.rmsnorm)]
)
def test_agrees_with_its_twin(op, reference):
    randomised(op)
    x = spread(4, 6)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = reference(token, gain=op.weight.tolist(), shift=op.bias.tolist(), eps=1e-5)
        assert y.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_layernorm_by_hand():
    # mean 2, biased variance 2/3
    y = LayerNorm(3, eps=0.0)(torch.tensor([1.0, 2.0, 3.0]))
    assert y.tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5], abs=1e-6)


def test_rmsnorm_by_hand_does_not_centre():
    # mean square (9 + 16) / 2 = 12.5
    y = RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0]))
    assert y.tolist() == pytest.approx([3 / 12.5**0.5, 4 / 12.5**0.5])


@pytest.mark.parametrize(("op", "steps"), [(LayerNorm, 1), (RMSNorm, 0)])
def test_statistics_of_bfloat16_tokens_are_float32(op, steps):
    # at 100 the steps of bfloat16 are 0.5 wide: half of these tokens' standard deviation
    x = (100 + torch.randn(2, 512)).bfloat16()
    expected = op(512)(x.float()).bfloat16()
    # torch's LayerNorm kernel rounds once more on the way
    torch.testing.assert_close(op(512).bfloat16()(x), expected, rtol=steps * 2**-7, atol=0)


@pytest.mark.parametrize("op", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(
    ("of_weight", "of_input"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_the_input_may_have_another_dtype_than_the_weight(op, of_weight, of_input):
    norm = randomised(op(6)).to(of_weight)
    x = torch.randn(2, 6).to(of_input)
    assert norm(x).dtype == of_input
    torch.testing.assert_close(norm(x), norm.float()(x.float()).to(of_input))


def test_rmsnorm_has_a_bias_only_where_the_norm_had_one():
    assert RMSNorm.from_norm(nn.RMSNorm(4)).bias is None
    assert RMSNorm.from_norm(nn.LayerNorm(4)).bias is not None
