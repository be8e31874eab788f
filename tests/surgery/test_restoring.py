"""Undoing, for norms that store or lay out things in their own way."""

import copy
import types

import pytest
import torch
from torch import nn

from triplepoint.ops import DyT, NormOp
from triplepoint.surgery import swap_norms, unswap_norms


class OffsetRMSNorm(nn.Module):
    """Gemma's: stores the gain's distance from 1, under the name weight."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        x = x.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x * (1.0 + self.weight.float())


class OldNames(nn.Module):
    """TensorFlow's names."""

    def __init__(self, dim):
        super().__init__()
        self.variance_epsilon = 1e-12
        self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        square = (x - mean).square().mean(-1, keepdim=True)
        return self.gamma * (x - mean) / torch.sqrt(square + self.variance_epsilon) + self.beta


class ChannelsFirst(nn.Module):
    """ConvNeXt's, over axis 1."""

    def __init__(self, dim):
        super().__init__()
        self.eps = 1e-6
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        square = (x - mean).square().mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(square + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


def around(norm):
    return nn.Sequential(nn.Linear(6, 6), norm, nn.Linear(6, 6))


@pytest.mark.parametrize("norm", [OffsetRMSNorm(6), OldNames(6), nn.RMSNorm(6, eps=None)])
def test_norms_of_ones_own_are_swapped_and_undone_bit_for_bit(norm):
    model, x = around(copy.deepcopy(norm)), torch.randn(3, 6)
    for parameter in model[1].parameters():
        nn.init.normal_(parameter)
    before, state = model(x), copy.deepcopy(model.state_dict())
    assert [i.path for i in swap_norms(model, "dyt").swapped] == ["1"]
    assert isinstance(model[1], DyT)
    assert not torch.isclose(model(x), before).all()
    unswap_norms(model)
    assert torch.equal(model(x), before)
    assert all(torch.equal(t, state[n]) for n, t in model.state_dict().items())


def test_a_gain_that_is_stored_as_its_distance_from_one_is_whole_in_the_op_and_carried_back():
    model = around(OffsetRMSNorm(6))
    nn.init.constant_(model[1].weight, 0.5)
    swap_norms(model, "dyt")
    assert model[1].weight.tolist() == [1.5] * 6
    nn.init.constant_(model[1].weight, 3.0)
    unswap_norms(model, keep_affine=True)
    assert model[1].weight.tolist() == [2.0] * 6


def test_two_swaps_of_such_a_norm_add_the_one_once():
    model, x = around(OffsetRMSNorm(6)), torch.randn(3, 6)
    nn.init.normal_(model[1].weight)
    before = model(x)
    swap_norms(model, "dyt")
    swap_norms(model, "rmsnorm")
    torch.testing.assert_close(model(x), before)
    unswap_norms(model, keep_affine=True)
    torch.testing.assert_close(model(x), before)


def test_gain_and_shift_under_other_names_are_carried_both_ways():
    model = around(OldNames(6))
    nn.init.constant_(model[1].gamma, 2.0)
    swap_norms(model, "dyt")
    assert [n for n, _ in model[1].named_parameters()] == ["weight", "bias", "alpha"]
    assert model[1].weight.tolist() == [2.0] * 6
    nn.init.constant_(model[1].bias, -1.0)
    unswap_norms(model, keep_affine=True)
    assert model[1].gamma.tolist() == [2.0] * 6
    assert model[1].beta.tolist() == [-1.0] * 6


def test_a_channels_first_norm_gives_an_op_over_the_channels():
    model, x = nn.Sequential(ChannelsFirst(6)), torch.randn(2, 6, 3, 3)
    with torch.no_grad():
        model[0].weight.copy_(torch.arange(1.0, 7.0))
    before = model(x)
    swap_norms(model, "dyt:paper")
    gain = torch.arange(1.0, 7.0)[:, None, None]
    torch.testing.assert_close(model(x), gain * torch.tanh(2 * x))
    swap_norms(model, "layernorm")
    torch.testing.assert_close(model(x), before)
    unswap_norms(model)
    assert torch.equal(model(x), before)


def test_a_norm_whose_forward_was_patched_on_the_instance_is_swapped_and_shown():
    """As kernel libraries do: another forward and more attributes on each instance."""

    def patched(self, x):
        return nn.functional.layer_norm(x, (6,), self.weight, self.bias, self.eps)

    model, x = around(nn.LayerNorm(6)), torch.randn(3, 6)
    model[1].forward = types.MethodType(patched, model[1])
    model[1].in_place = True
    before = model(x)
    swap_norms(model, "dyt")
    assert isinstance(model[1], DyT)
    assert "DyT(6" in repr(model)
    assert not torch.isclose(model(x), before).all()
    unswap_norms(model)
    assert torch.equal(model(x), before)


def test_undoing_after_training_gives_the_values_of_before():
    model, x = around(nn.LayerNorm(6)), torch.randn(8, 6)
    nn.init.normal_(model[1].weight)
    kept = copy.deepcopy(model[1].state_dict())
    swap_norms(model, "dyt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert not torch.equal(model[1].weight, kept["weight"])
    assert unswap_norms(model) == 1
    assert unswap_norms(model) == 0
    assert all(torch.equal(t, kept[n]) for n, t in model[1].state_dict().items())


@pytest.mark.parametrize("kind", ["gemma2", "albert", "t5", "bert", "qwen3"])
def test_models_of_transformers_are_undone_bit_for_bit(kind):
    """Offsets from 1 and four norms a block, shared layers, relative positions, post-norm, query and key norms."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 11, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    config = {
        "gemma2": lambda: transformers.Gemma2Config(**sizes, num_key_value_heads=2, head_dim=8),
        "qwen3": lambda: transformers.Qwen3Config(**sizes, num_key_value_heads=2, head_dim=8),
        "albert": lambda: transformers.AlbertConfig(**sizes, embedding_size=8),
        "bert": lambda: transformers.BertConfig(**sizes),
        "t5": lambda: transformers.T5Config(
            vocab_size=11, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2
        ),
    }[kind]()
    model = transformers.AutoModel.from_config(config).eval()
    tokens = {"input_ids": torch.tensor([[1, 2, 3, 4]])}
    if kind == "t5":
        tokens["decoder_input_ids"] = torch.tensor([[1, 2]])
    with torch.no_grad():
        before = model(**tokens).last_hidden_state
        report = swap_norms(model, "dyt:paper", strict=True)
        swapped = model(**tokens).last_hidden_state
        assert swapped.isfinite().all()
        assert not torch.isclose(swapped, before).all()
        assert unswap_norms(model) == len(report.swapped)
        assert torch.equal(model(**tokens).last_hidden_state, before)
    assert not any(isinstance(m, NormOp) for m in model.modules())
    roles = {item.role for item in report.swapped}
    assert ("qk" in roles) == (kind == "qwen3")
    assert ("post_mlp" in roles) == (kind in ("gemma2", "bert", "albert"))
    assert {i.warning is not None for i in report.swapped if i.role in ("qk", "post_mlp")} <= {True}


def test_a_swap_in_inference_mode_can_be_trained():
    model = nn.Sequential(nn.LayerNorm(4))
    with torch.inference_mode():
        swap_norms(model, "dyt")
    model(torch.randn(2, 4)).sum().backward()
    assert model[0].alpha.grad is not None


def test_a_model_built_in_inference_mode_is_given_back():
    with torch.inference_mode():
        model = nn.Sequential(nn.LayerNorm(4))
    x = torch.randn(2, 4)
    with torch.no_grad():
        before = model(x)
        swap_norms(model, "dyt")
        assert unswap_norms(model) == 1
        assert torch.equal(model(x), before)
