"""What an op keeps of the norm whose place it takes, and what stays of the model."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from triplepoint.errors import ModelError
from triplepoint.ops import OPS, DyT, NormOp
from triplepoint.surgery import original_of, swap_norms, unswap_norms


def block(norm=None):
    return nn.Sequential(nn.Linear(4, 4), norm or nn.LayerNorm(4), nn.Linear(4, 4))


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


class Exponential(nn.Module):
    def __init__(self):
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.exp(self.sharpness * x)

    def right_inverse(self, y):
        return y.log()


def parametrised(name="weight", how=None):
    norm = nn.LayerNorm(4)
    nn.init.uniform_(norm.weight, 1, 2)
    parametrize.register_parametrization(norm, name, how or Exponential())
    return norm


# --- parametrisations


def test_a_parametrisation_goes_over_to_the_op_with_its_values():
    model, x = block(parametrised()), torch.randn(3, 4)
    gain = model[1].weight.detach().clone()
    swap_norms(model, "dyt:paper")
    assert isinstance(model[1], DyT)
    torch.testing.assert_close(model(x), model[2](gain * torch.tanh(2 * model[0](x))))
    assert [n for n, _ in model[1].named_parameters()] == [
        "bias", "alpha", "parametrizations.weight.original", "parametrizations.weight.0.sharpness",
    ]  # fmt: skip
    model(x).sum().backward()
    assert model[1].parametrizations.weight[0].sharpness.grad is not None


@pytest.mark.parametrize("keep", [False, True])
def test_a_trained_parametrisation_is_undone_or_carried_back(keep):
    model, x = block(parametrised()), torch.randn(3, 4)
    before = model(x)
    swap_norms(model, "dyt")
    with torch.no_grad():
        model[1].parametrizations.weight.original.zero_()
        model[1].bias.fill_(7.0)
    assert unswap_norms(model, keep_affine=keep) == 1
    assert parametrize.is_parametrized(model[1], "weight")
    if keep:
        assert model[1].weight.tolist() == [1.0] * 4  # e^0
        assert model[1].bias.tolist() == [7.0] * 4
    else:
        assert torch.equal(model(x), before)


def test_weight_norm_of_two_originals_goes_over_and_a_swap_of_a_swap_keeps_it():
    new = nn.utils.parametrizations.weight_norm(nn.LayerNorm(4), dim=None)
    model, x = block(new), torch.randn(2, 4)
    before = model(x)
    for op in ("dyt", "derf"):
        swap_norms(model, op)
        names = [n for n, _ in model[1].named_parameters() if "original" in n]
        assert len(names) == 2
        model(x)
    unswap_norms(model)
    assert torch.equal(model(x), before)


def test_a_parametrisation_that_two_norms_share_stays_shared():
    shared = Exponential()
    model = nn.Sequential(parametrised(how=shared), parametrised(how=shared))
    swap_norms(model, "dyt")
    first, second = (op.parametrizations.weight[0] for op in model)
    assert first is second
    assert first is not shared


def test_a_parametrisation_that_something_else_shares_keeps_the_norm_with_the_reason():
    shared = Exponential()
    model = nn.Sequential(parametrised(how=shared), nn.LayerNorm(4), shared)
    report = swap_norms(model, "dyt")
    assert [i.reason for i in report.skipped] == [
        "shares its parametrizations.weight.0.sharpness with a Exponential, a tie that a swap would end"
    ]
    assert model[0].parametrizations.weight[0] is model[2]


# --- hooks


def test_a_handle_from_before_the_swap_removes_the_hook_from_the_op():
    model, fired = block(), []
    handle = model[1].register_forward_hook(lambda *_: fired.append(1))
    swap_norms(model, "dyt")
    model(torch.randn(2, 4))
    handle.remove()
    model(torch.randn(2, 4))
    assert fired == [1]


def test_state_dict_hooks_go_over_and_see_the_op():
    model, seen = block(), []
    model[1].register_state_dict_pre_hook(lambda m, *_: seen.append(("before saving", type(m))))
    model[1].register_state_dict_post_hook(lambda m, *_: seen.append(("after saving", type(m))))
    model[1].register_load_state_dict_pre_hook(lambda m, *_: seen.append(("before", type(m))))
    model[1].register_load_state_dict_post_hook(lambda m, *_: seen.append(("after", type(m))))
    swap_norms(model, "dyt")
    model.load_state_dict(model.state_dict())
    assert seen == [
        ("before saving", DyT), ("after saving", DyT), ("before", DyT), ("after", DyT),
    ]  # fmt: skip


def test_hooks_and_attributes_of_the_parameters_go_over():
    model, seen = block(), []
    model[1].weight.register_hook(lambda g: seen.append("gradient"))
    model[1].weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    model[1].weight.no_decay = True
    swap_norms(model, "dyt")
    model(torch.randn(2, 4)).sum().backward()
    assert seen == ["gradient", "accumulated"]
    assert model[1].weight.no_decay


# --- dtype and device


def test_each_norm_and_each_parameter_keeps_its_own_dtype():
    model = nn.Sequential(nn.LayerNorm(4), nn.RMSNorm(4).half(), nn.LayerNorm(4))
    model[2].bias.data = model[2].bias.data.bfloat16()
    swap_norms(model, "dyt")
    found = [[getattr(op.weight, "dtype", None), getattr(op.bias, "dtype", None)] for op in model]
    assert found == [
        [torch.float32, torch.float32],
        [torch.float16, None],
        [torch.float32, torch.bfloat16],
    ]


def test_half_activations_between_float32_norms_stay_half():
    """A float16 model with float32 norms: the op returns what it was given."""
    model = block().half()
    model[1].float()
    swap_norms(model, "dyt")
    assert model[1].weight.dtype == torch.float32
    assert model[1](torch.randn(2, 4).half()).dtype == torch.float16


@pytest.mark.parametrize("name", OPS)
def test_from_meta_to_values_by_reset_parameters(name):
    with torch.device("meta"):
        model = block(nn.LayerNorm(4))
    swap_norms(model, name)
    assert all(p.is_meta for p in model.parameters())
    model.to_empty(device="cpu")
    for module in model:
        module.reset_parameters()
    twin = block(nn.LayerNorm(4))
    swap_norms(twin, name)
    found, expected = model[1].state_dict(), twin[1].state_dict()
    assert {n: p.tolist() for n, p in found.items()} == {n: p.tolist() for n, p in expected.items()}


def test_a_norm_that_was_on_meta_comes_back_with_its_ops_values():
    with torch.device("meta"):
        model = block(nn.LayerNorm(4))
    swap_norms(model, "dyt")
    model.to_empty(device="cpu")
    nn.init.constant_(model[1].weight, 3.0)
    nn.init.constant_(model[1].bias, 0.5)
    unswap_norms(model)
    assert isinstance(model[1], nn.LayerNorm)
    assert (model[1].weight.tolist(), model[1].bias.tolist()) == ([3.0] * 4, [0.5] * 4)


# --- the axis


class OverChannels(nn.LayerNorm):
    """A LayerNorm by class that is over the channels of images, as timm has one that computes in float32."""

    def forward(self, x):
        y = x.float().permute(0, 2, 3, 1)
        y = F.layer_norm(y, self.normalized_shape, self.weight, self.bias, self.eps)
        return y.permute(0, 3, 1, 2).to(x.dtype)


def test_a_layernorm_by_class_that_is_over_channels_becomes_an_op_over_channels():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), OverChannels(4))
    gain, shift = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])
    model[1].weight.data, model[1].bias.data = gain.clone(), shift.clone()
    swap_norms(model, "dyt:paper")
    x = torch.randn(2, 3, 4, 4)  # as wide as there are channels: a wrong axis would raise no error
    expected = gain.view(4, 1, 1) * torch.tanh(2 * model[0](x)) + shift.view(4, 1, 1)
    torch.testing.assert_close(model(x), expected)


# --- ties


def test_a_tie_of_which_where_picks_one_keeps_that_norm_with_the_reason():
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4))
    model[1].weight = model[0].weight
    report = swap_norms(model, "dyt", where=["0", "2"])
    assert [i.path for i in report.swapped] == ["2"]
    assert report.skipped[0].reason == (
        "shares its weight with a LayerNorm, a tie that a swap would end"
    )
    assert model[1].weight is model[0].weight


def test_a_norm_held_back_by_a_tie_holds_back_those_it_is_tied_to():
    head = nn.Linear(4, 4)
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4), head)
    model[1].weight = model[0].weight
    head.bias = model[1].bias
    report = swap_norms(model, "dyt")
    assert [i.path for i in report.swapped] == ["2"]
    assert [i.reason for i in report.skipped] == [
        "shares its weight with a LayerNorm, a tie that a swap would end",
        "shares its bias with a Linear, a tie that a swap would end",
    ]


def test_one_parameter_that_is_gain_here_and_shift_there_is_no_tie_that_ops_can_keep():
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4))
    model[1].bias = model[0].weight
    assert [i.path for i in swap_norms(model, "dyt").swapped] == ["2"]


def test_a_norm_that_a_plain_list_holds_too_is_kept_with_the_reason():
    model = nn.Module()
    model.a, model.b = nn.LayerNorm(4), nn.LayerNorm(4)
    model.order = [model.a]
    report = swap_norms(model, "dyt")
    assert [(i.path, i.reason) for i in report.skipped] == [
        ("a", "order holds it as well, out of a swap's reach")
    ]
    assert model.order[0] is model.a


def test_a_layer_that_is_used_several_times_is_swapped_once_and_stays_one():
    """As ALBERT does: one block under every index."""
    one = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    model, x = nn.ModuleList([one, one, one]), torch.randn(2, 4)
    before = one(x)
    assert len(swap_norms(model, "dyt").swapped) == 1
    assert len({id(m) for m in model}) == 1
    assert sum(isinstance(m, NormOp) for m in model.modules()) == 1
    unswap_norms(model)
    assert torch.equal(model[2](x), before)


# --- copies, pickles and what was there


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_undone_by_itself(copied):
    model, x = block(), torch.randn(2, 4)
    before = model(x)
    swap_norms(model, "dyt")
    with torch.no_grad():
        model[1].weight.fill_(5.0)
    swapped = model(x)
    twin = copied(model)
    assert torch.equal(twin(x), swapped)
    unswap_norms(twin)
    assert torch.equal(twin(x), before)
    assert torch.equal(model(x), swapped)
    assert twin[1] is not original_of(model[1])


def test_the_original_of_an_op_is_the_first_of_a_chain_where_the_op_is_now():
    model = block()
    norm = model[1]
    for op in ("dyt", "derf", "rmsnorm"):
        swap_norms(model, op)
    model.bfloat16().eval()
    assert original_of(model[1]) is norm
    assert (norm.weight.dtype, norm.training) == (torch.bfloat16, False)
    assert original_of(model[0]) is None


def test_eps_and_kind_survive_a_swap_of_a_swap():
    model, x = nn.Sequential(nn.RMSNorm(4, eps=0.1)), torch.randn(3, 4)
    before = model(x)
    for op in ("dyt", "rmsnorm"):
        swap_norms(model, op)
    torch.testing.assert_close(model(x), before)


def test_what_was_frozen_since_comes_back_frozen():
    model = block()
    swap_norms(model, "dyt")
    model.requires_grad_(False)
    unswap_norms(model)
    assert not any(p.requires_grad for p in model.parameters())


def test_a_norm_with_two_dtypes_is_undone_bit_for_bit():
    model = nn.Sequential(nn.LayerNorm(4))
    nn.init.normal_(model[0].weight)
    model[0].bias.data = model[0].bias.data.bfloat16()
    kept = copy.deepcopy(model.state_dict())
    swap_norms(model, "dyt")
    unswap_norms(model)
    found = model.state_dict()
    assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in kept.items())


# --- all or nothing


def test_an_error_on_the_way_leaves_the_model_as_it_was():
    class Second(DyT):
        built = 0

        @classmethod
        def from_facts(cls, facts, **born):
            cls.built += 1
            if cls.built == 2:
                raise RuntimeError("no second one")
            return super().from_facts(facts, **born)

    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.LayerNorm(4))
    before = dict(model.named_modules())
    with pytest.raises(RuntimeError, match="no second one"):
        swap_norms(model, Second)
    assert dict(model.named_modules()) == before


def test_strict_refuses_what_cannot_be_swapped_and_names_it():
    model = nn.Sequential(nn.LayerNorm(4), nn.BatchNorm1d(4), nn.GroupNorm(2, 4))
    before = list(model)
    with pytest.raises(ModelError) as caught:
        swap_norms(model, "dyt", strict=True)
    problem, remedy = str(caught.value).split("\n")
    assert problem.startswith("2 of 3 norms can't be swapped, and strict=True asks for all: 1 (")
    assert "; 2 (" in problem
    assert remedy == (
        "Leave them out with where=, or swap without strict=True; nothing was changed."
    )
    assert list(model) == before


def test_strict_minds_only_what_where_chose():
    model = nn.Sequential(nn.LayerNorm(4), nn.BatchNorm1d(4), nn.LayerNorm(4))
    report = swap_norms(model, "dyt", where="0", strict=True)
    assert [i.reason for i in report.skipped] == ["not chosen by where="] * 2


def test_repr_works_after_a_swap():
    model = block(parametrised())
    swap_norms(model, "dyt")
    assert "DyT(" in repr(model)
