"""Tests of triplepoint.surgery: what is swapped, where, and the embedding scale."""

import copy
import io
import math
import warnings

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError, UnknownNameError
from triplepoint.models import GPT2, GPT2Config
from triplepoint.ops import Derf, DyT, HardTanh, LayerNorm, NormOp, RMSNorm
from triplepoint.surgery import ScaledEmbedding, SwapPolicy, roles, swap_norms, unswap_norms

NO_SCALE = SwapPolicy(embedding_scale=False)


def gpt2(**changes):
    return GPT2(GPT2Config(**{"width": 8, "layers": 2, "heads": 2, "vocab": 11, "context": 6, **changes}))  # fmt: skip


def tokens():
    return torch.randint(11, (3, 6))


def block(norm=None):
    """The smallest model with a norm between two layers."""
    return nn.Sequential(nn.Linear(4, 4), norm or nn.LayerNorm(4), nn.Linear(4, 4))


def paths(items):
    return [item.path for item in items]


def message_of(error, call, *args, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    return str(caught.value).split("\n")


# --- what is swapped


def test_every_norm_is_swapped_once_with_its_role():
    model = gpt2()
    report = swap_norms(model, "dyt")
    assert (report.op, report.preset, report.skipped) == ("dyt", "recommended", [])
    assert [(i.path, i.kind, i.role) for i in report.swapped] == [
        ("h.0.ln_1", "layernorm", "pre_attn"),
        ("h.0.ln_2", "layernorm", "pre_mlp"),
        ("h.1.ln_1", "layernorm", "pre_attn"),
        ("h.1.ln_2", "layernorm", "pre_mlp"),
        ("ln_f", "layernorm", "final"),
    ]
    assert sum(isinstance(m, DyT) for m in model.modules()) == 5
    assert not any(isinstance(m, nn.LayerNorm) for m in model.modules())


def test_the_swapped_model_computes_with_the_op():
    model, x = block(), torch.randn(3, 4)
    with torch.no_grad():
        model[1].weight.fill_(3.0)
        model[1].bias.fill_(0.5)
    swap_norms(model, "dyt:paper")
    expected = model[2](3 * torch.tanh(2 * model[0](x)) + 0.5)
    torch.testing.assert_close(model(x), expected)


def test_undoing_gives_the_original_back_bit_for_bit():
    model, seen = gpt2(), tokens()
    before, kept = model(seen), copy.deepcopy(model.state_dict())
    originals = dict(model.named_modules())
    swap_norms(model, "dyt")
    assert not torch.equal(model(seen), before)
    # five norms and two embeddings
    assert unswap_norms(model) == 7
    assert torch.equal(model(seen), before)
    assert all(module is originals[path] for path, module in model.named_modules())
    assert list(model.state_dict()) == list(kept)


def test_undoing_what_was_never_done_changes_nothing():
    model = gpt2()
    assert unswap_norms(model) == 0
    assert unswap_norms(nn.LayerNorm(4)) == 0


@pytest.mark.parametrize(
    ("name", "alphas"),
    [
        ("dyt", {"ln_1": 0.8, "ln_2": 0.2, "ln_f": 0.2}),
        ("hardtanh_alpha", {"ln_1": 0.8, "ln_2": 0.2, "ln_f": 0.2}),
        ("dyt:paper", {"ln_1": 2.0, "ln_2": 2.0, "ln_f": 2.0}),
        ("derf", {"ln_1": 1.0, "ln_2": 1.0, "ln_f": 1.0}),
    ],
)
def test_alpha_is_born_by_preset_width_and_role(name, alphas):
    model = nn.ModuleDict({path: nn.LayerNorm(4096) for path in alphas})
    swap_norms(model, name)
    assert {path: round(op.alpha.item(), 6) for path, op in model.items()} == alphas


def test_an_op_class_means_its_recommended_preset():
    model = nn.ModuleDict({"ln_1": nn.LayerNorm(4096)})
    report = swap_norms(model, DyT)
    assert (report.op, report.preset) == ("dyt", "recommended")
    assert model["ln_1"].alpha.item() == pytest.approx(0.8)


def test_an_op_class_of_ones_own_has_no_preset():
    class Identity(NormOp):
        @classmethod
        def from_facts(cls, facts):
            return cls()

        def forward(self, x):
            return x

    model, x = block(), torch.randn(2, 4)
    report = swap_norms(model, Identity)
    assert (report.op, report.preset) == ("Identity", None)
    torch.testing.assert_close(model(x), model[2](model[0](x)))


def test_an_unknown_op_leaves_the_model_alone():
    model = block()
    problem, remedy = message_of(UnknownNameError, swap_norms, model, "dty")
    assert problem == "There is no op 'dty'."
    assert remedy.startswith("Did you mean 'dyt'? Known: ")
    assert isinstance(model[1], nn.LayerNorm)


# --- where


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (roles("pre_mlp", "final"), ["h.0.ln_2", "h.1.ln_2", "ln_f"]),
        ("h.1.*", ["h.1.ln_1", "h.1.ln_2"]),
        (["*.ln_1", "ln_f"], ["h.0.ln_1", "h.1.ln_1", "ln_f"]),
        (lambda site: site.depth == 0, ["h.0.ln_1", "h.0.ln_2"]),
    ],
    ids=["roles", "glob", "globs", "function"],
)
def test_sites_may_be_chosen(where, expected):
    model = gpt2()
    report = swap_norms(model, "dyt", where=where)
    assert paths(report.swapped) == expected
    assert {item.reason for item in report.skipped} == {"not chosen by where="}
    assert len(report.swapped) + len(report.skipped) == 5
    assert [p for p, m in model.named_modules() if isinstance(m, DyT)] == expected


def test_norms_in_lists_and_under_dotted_names_are_swapped():
    model = nn.Module()
    model.norms = nn.ModuleList([nn.LayerNorm(4), nn.RMSNorm(4)])
    model.deep = nn.ModuleDict({"er": nn.Sequential(nn.Identity(), nn.LayerNorm(4))})
    report = swap_norms(model, "derf")
    assert paths(report.swapped) == ["norms.0", "norms.1", "deep.er.1"]
    assert isinstance(model.norms[1], Derf)
    assert isinstance(model.deep["er"][1], Derf)
    assert len(model.norms) == 2


def test_what_cannot_be_swapped_is_skipped_with_the_reason():
    model = nn.ModuleDict(
        {
            "ln": nn.LayerNorm(4),
            "batch": nn.BatchNorm1d(4),
            "group": nn.GroupNorm(2, 4),
            "two": nn.LayerNorm((2, 4)),
        }
    )
    before = dict(model.items())
    report = swap_norms(model, "dyt")
    assert paths(report.swapped) == ["ln"]
    assert {item.path: item.reason for item in report.skipped} == {
        "batch": "normalises over the batch, which a per-token op cannot stand in for",
        "group": "normalises over groups of channels and positions, which a per-token op cannot stand in for",
        "two": "normalises over 2 axes",
    }
    assert all(model[item.path] is before[item.path] for item in report.skipped)
    assert "  skipped two (look-alike): normalises over 2 axes" in str(report).split("\n")


def test_the_report_reads_as_text():
    model = nn.ModuleDict({"q_norm": nn.LayerNorm(4), "gn": nn.GroupNorm(2, 4)})
    assert str(swap_norms(model, "dyt")).split("\n") == [
        "dyt: 1 norms swapped, 1 skipped",
        "  swapped q_norm (qk): a query/key norm: it bounds attention logits, which a bounded op does differently",
        "  skipped gn (look-alike): normalises over groups of channels and positions, which a per-token op cannot stand in for",
        "  embedding scale: not applied, the model has no plain nn.Embedding (or has the scale already)",
    ]


def test_a_post_norm_site_carries_a_warning():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    assert {item.warning for item in swap_norms(layer, "dyt").swapped} == {
        "a post-norm site: the published ops were tested before attention and MLP only"
    }


SWAPPABLE = "Swappable are nn.LayerNorm, nn.RMSNorm and triplepoint's own ops; see triplepoint.families.find_norms(model)."  # fmt: skip


def test_a_model_with_nothing_to_swap_is_refused():
    assert message_of(ModelError, swap_norms, nn.Sequential(nn.Linear(2, 2)), "dyt") == [
        "Sequential has no norm to swap.",
        SWAPPABLE,
    ]
    assert message_of(ModelError, swap_norms, block(nn.GroupNorm(2, 4)), "dyt") == [
        "Sequential has no norm to swap (1 skipped, the first because: normalises over groups of "
        "channels and positions, which a per-token op cannot stand in for).",
        SWAPPABLE,
    ]


def test_a_network_of_batch_norms_is_refused_and_one_that_mixes_them_keeps_those():
    convolution = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
    problem, _ = message_of(ModelError, swap_norms, convolution, "dyt")
    assert problem == (
        "Sequential has no norm to swap (1 skipped, the first because: normalises over the batch, "
        "which a per-token op cannot stand in for)."
    )
    mixed = nn.Sequential(convolution, nn.LayerNorm(4), nn.RMSNorm(4))
    report = swap_norms(mixed, "dyt", where=lambda site: site.kind == "layernorm")
    assert paths(report.swapped) == ["1"]
    assert isinstance(mixed[0][1], nn.BatchNorm2d)


def test_a_where_that_chooses_nothing_is_refused_and_changes_nothing():
    model = gpt2()
    problem, _ = message_of(ModelError, swap_norms, model, "dyt", where="layers.*")
    assert problem == (
        "GPT2 has no norm to swap (5 skipped, the first because: not chosen by where=)."
    )
    assert not any(isinstance(m, NormOp | ScaledEmbedding) for m in model.modules())


@pytest.mark.parametrize("root", [nn.LayerNorm(4), DyT(4)], ids=["norm", "op"])
def test_a_model_that_is_itself_a_norm_is_refused(root):
    assert message_of(ModelError, swap_norms, root, "derf") == [
        f"The model is itself a {type(root).__name__}: it has no parent in which to replace it.",
        "Wrap it, e.g. nn.Sequential(model), or build the op with Derf.from_norm(model).",
    ]


# --- what is kept


def test_a_norm_shared_within_a_parent_and_across_parents_stays_shared():
    model = nn.ModuleDict({"a": nn.Module(), "b": nn.Module()})
    shared = nn.LayerNorm(4)
    model["a"].norm = model["a"].again = model["b"].norm = shared
    report = swap_norms(model, "dyt")
    assert paths(report.swapped) == ["a.norm"]
    assert isinstance(model["a"].norm, DyT)
    assert model["a"].norm is model["a"].again is model["b"].norm
    assert unswap_norms(model) == 1
    assert model["a"].norm is model["a"].again is model["b"].norm is shared


def test_frozen_parameters_stay_frozen():
    model = block()
    model[1].weight.requires_grad_(False)
    swap_norms(model, "dyt")
    assert not model[1].weight.requires_grad
    assert model[1].bias.requires_grad
    assert model[1].alpha.requires_grad


def test_a_trained_gain_is_carried_and_the_norm_keeps_its_own():
    model = block()
    nn.init.constant_(model[1].weight, 3.0)
    swap_norms(model, "dyt")
    assert model[1].weight.tolist() == [3.0] * 4
    nn.init.constant_(model[1].weight, 5.0)
    unswap_norms(model)
    assert model[1].weight.tolist() == [3.0] * 4


def test_keep_affine_carries_what_was_trained_back():
    model = block()
    swap_norms(model, "dyt")
    nn.init.constant_(model[1].weight, 5.0)
    nn.init.constant_(model[1].bias, -1.0)
    unswap_norms(model, keep_affine=True)
    assert isinstance(model[1], nn.LayerNorm)
    assert model[1].weight.tolist() == [5.0] * 4
    assert model[1].bias.tolist() == [-1.0] * 4
    assert model[1].weight.requires_grad


def test_eval_mode_is_kept_both_ways():
    model = block().eval()
    swap_norms(model, "dyt")
    assert not any(m.training for m in model.modules())
    model.train()
    unswap_norms(model)
    assert all(m.training for m in model.modules())


def test_bfloat16_is_kept():
    model = gpt2().bfloat16()
    swap_norms(model, "dyt")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(tokens()).dtype == torch.bfloat16


def test_the_meta_device_is_kept():
    with torch.device("meta"):
        model = gpt2()
    swap_norms(model, "dyt")
    assert {p.device.type for p in model.parameters()} == {"meta"}
    unswap_norms(model)
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_a_model_that_moved_since_the_swap_gets_its_norms_back_where_it_is():
    model = block()
    swap_norms(model, "dyt")
    model.bfloat16()
    unswap_norms(model)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(torch.randn(2, 4).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_a_norm_without_parameters_gives_an_op_without_gain_and_shift(norm):
    model = block(norm(4, elementwise_affine=False))
    swap_norms(model, "dyt")
    assert [name for name, _ in model[1].named_parameters()] == ["alpha"]


def test_the_alpha_of_a_norm_without_parameters_lies_where_its_neighbours_do():
    model = block(nn.LayerNorm(4, elementwise_affine=False))
    swap_norms(model.to("meta", torch.bfloat16), "dyt")
    alpha = model[1].alpha
    assert (alpha.device.type, alpha.dtype) == ("meta", torch.bfloat16)
    assert alpha.shape == (1,)


def test_a_norm_without_a_shift_gives_an_op_without():
    model = block(nn.LayerNorm(4, bias=False))
    swap_norms(model, "dyt")
    assert model[1].bias is None


def test_hooks_are_kept_and_fire_after_the_swap_and_after_undoing_it():
    model, fired = block(), []
    model[1].register_forward_pre_hook(lambda m, args: fired.append("pre"))
    model[1].register_forward_hook(lambda m, args, y: fired.append("post"))
    model[1].register_forward_hook(lambda m, a, kw, y: fired.append("kwargs"), with_kwargs=True)
    model[1].register_full_backward_pre_hook(lambda m, gy: fired.append("backward pre"))
    model[1].register_full_backward_hook(lambda m, gx, gy: fired.append("backward"))

    def fire():
        fired.clear()
        model(torch.randn(2, 4)).sum().backward()
        return list(fired)

    expected = fire()
    assert expected == ["pre", "post", "kwargs", "backward pre", "backward"]
    swap_norms(model, "dyt")
    assert fire() == expected
    unswap_norms(model)
    assert fire() == expected


def test_the_originals_are_no_part_of_the_model():
    model = block()
    swap_norms(model, "dyt")
    assert [n for n, _ in model.named_parameters()] == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.alpha", "2.weight", "2.bias",
    ]  # fmt: skip
    assert list(model.state_dict()) == [n for n, _ in model.named_parameters()]
    assert len(list(model.modules())) == 4


def test_a_state_dict_goes_through_a_file_into_a_freshly_swapped_model():
    first, second, seen = gpt2(), gpt2(), tokens()
    for model in (first, second):
        swap_norms(model, "dyt")
    with torch.no_grad():
        first.h[0].ln_1.alpha.fill_(0.3)
        first.wte.scale.fill_(1.7)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(first(seen), second(seen))
    assert second.wpe.scale.item() == pytest.approx(1.7)


def test_a_deep_copy_of_a_swapped_model_can_be_undone_by_itself():
    model, seen = gpt2(), tokens()
    before = model(seen)
    swap_norms(model, "dyt")
    swapped = model(seen)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(seen), swapped)
    unswap_norms(twin)
    assert torch.equal(twin(seen), before)
    assert torch.equal(model(seen), swapped)


# --- swapping again


def test_an_op_may_be_swapped_for_another_and_undone_to_the_original():
    model, seen = gpt2(), tokens()
    before = model(seen)
    swap_norms(model, "dyt")
    report = swap_norms(model, "derf")
    assert [(i.path, i.kind, i.role) for i in report.swapped][0] == ("h.0.ln_1", "dyt", "pre_attn")
    assert (len(report.swapped), report.skipped) == (5, [])
    assert report.policies == [
        "embedding scale: not applied, the model has no plain nn.Embedding (or has the scale already)"
    ]
    assert sum(isinstance(m, Derf) for m in model.modules()) == 5
    unswap_norms(model)
    assert torch.equal(model(seen), before)
    assert not any(isinstance(m, NormOp | ScaledEmbedding) for m in model.modules())


@pytest.mark.parametrize(("name", "op"), [("rmsnorm", RMSNorm), ("layernorm", LayerNorm)])
def test_our_own_norms_are_found_once_and_swapped_again(name, op):
    model = block()
    swap_norms(model, name)
    assert isinstance(model[1], op)
    report = swap_norms(model, "dyt")
    assert [(i.path, i.kind) for i in report.swapped] == [("1", name)]
    assert report.skipped == []


def test_layernorm_in_place_of_layernorm_changes_nothing():
    model, seen = gpt2(), tokens()
    before = model(seen)
    report = swap_norms(model, "layernorm")
    assert torch.equal(model(seen), before)
    assert report.policies == []


# --- the embedding scale


class TiedHead(nn.Module):
    """logits = norm(table[t]) @ table.T"""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, t):
        return self.head(self.norm(self.table(t)))


def test_the_scale_is_one_scalar_for_all_embeddings_born_as_root_width():
    model = gpt2()
    report = swap_norms(model, "dyt")
    assert report.policies == [
        "embedding scale: one learnable scalar on 2 embeddings, born as sqrt(8) = 2.828"
    ]
    assert model.wte.scale is model.wpe.scale
    assert model.wte.scale.shape == (1,)
    assert model.wte.scale.item() == pytest.approx(math.sqrt(8))
    assert [n for n, _ in model.named_parameters() if n.endswith("scale")] == ["wte.scale"]


def test_the_scale_acts_on_the_input_and_not_on_the_tied_head():
    model, t = TiedHead(), torch.arange(7)
    table = model.table.weight.detach().clone()
    swap_norms(model, "dyt:recommended")
    expected = torch.tanh(1.0 * 4.0 * table) @ table.T
    torch.testing.assert_close(model(t), expected)
    assert model.head.weight is model.table.weight


def test_the_scale_learns_and_keeps_the_tables_gradient():
    model = TiedHead()
    swap_norms(model, "dyt")
    model(torch.arange(7)).square().sum().backward()
    assert model.table.scale.grad.abs().sum() > 0
    assert model.table.weight.grad.abs().sum() > 0


def test_undoing_takes_the_scale_away_and_leaves_the_trained_table():
    model = TiedHead()
    table = model.table
    swap_norms(model, "dyt")
    nn.init.normal_(model.table.weight)
    trained = model.table.weight.detach().clone()
    unswap_norms(model)
    assert model.table is table
    assert not hasattr(model.table, "scale")
    assert torch.equal(model.table.weight, trained)
    assert model.head.weight is model.table.weight


def test_an_embedding_keeps_its_options_and_hooks():
    model, fired = block(), []
    model.table = nn.Embedding(5, 4, padding_idx=2)
    model.table.register_forward_hook(lambda *_: fired.append(1))
    swap_norms(model, "dyt")
    assert isinstance(model.table, ScaledEmbedding)
    assert repr(model.table) == "ScaledEmbedding(5, 4, padding_idx=2)"
    assert not model.table(torch.tensor([2])).any()
    assert fired == [1]


def test_an_embedding_with_a_forward_of_its_own_is_not_scaled():
    class Offset(nn.Embedding):
        def forward(self, tokens, offset):
            return super().forward(tokens + offset)

    model = block()
    model.positions = Offset(5, 4)
    report = swap_norms(model, "dyt")
    assert type(model.positions) is Offset
    assert report.policies[0].startswith("embedding scale: not applied")


def test_the_papers_preset_has_no_scale_and_the_policy_outranks_the_preset():
    for name, policy, scaled in [
        ("dyt:paper", None, False),
        ("dyt", NO_SCALE, False),
        ("dyt:paper", SwapPolicy(embedding_scale=True), True),
        ("dyt", SwapPolicy(), True),
        ("hardtanh", None, True),
        ("rmsnorm", None, False),
    ]:
        model = gpt2()
        report = swap_norms(model, name, policy=policy)
        assert any(isinstance(m, ScaledEmbedding) for m in model.modules()) == scaled, name
        assert bool(report.policies) == scaled


def test_a_bfloat16_table_gives_bfloat16_also_with_a_scale():
    model = gpt2().bfloat16()
    swap_norms(model, "dyt")
    assert model.wte(tokens()).dtype == torch.bfloat16


# --- torch's own encoder, whose inference kernel computes a real LayerNorm


def encoder(*, norm_first=False):
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that norm_first has no nested tensors
        return nn.TransformerEncoder(layer, 2)


def flags_of(model):
    return [model.use_nested_tensor, *(layer.activation_relu_or_gelu for layer in model.layers)]


def in_eval(model, x, **options):
    model.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch on its nested tensors
        return model(x, **options)


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_encoder_runs_the_op_in_eval_mode_too(norm_first):
    model, x = encoder(norm_first=norm_first), torch.randn(3, 5, 8)
    swap_norms(model, "hardtanh")
    expected = model.train()(x)
    torch.testing.assert_close(in_eval(model, x), expected)
    assert not torch.isclose(expected, in_eval(encoder(), x)).all()


def test_torchs_encoder_runs_the_op_under_a_padding_mask():
    model, x = encoder(), torch.randn(3, 5, 8)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    swap_norms(model, "hardtanh")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.train()(x, src_key_padding_mask=padding)
    found = in_eval(model, x, src_key_padding_mask=padding)
    torch.testing.assert_close(found[~padding], expected[~padding])


@pytest.mark.parametrize("name", ["dyt", "rmsnorm", "bhyt"])  # without and with an eps of its own
@pytest.mark.parametrize("grad", [False, True])
def test_one_layer_of_torchs_encoder_computes_in_eval_mode_what_it_does_in_training(name, grad):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(3, 5, 8)
    swap_norms(layer, name)
    expected = layer(x)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(layer.eval()(x), expected)


@pytest.mark.parametrize("names", [["dyt"], ["dyt", "derf"]], ids=["once", "twice"])
def test_undoing_gives_torchs_encoder_its_fast_kernel_back(names):
    model, x = encoder(), torch.randn(3, 5, 8)
    before, output = flags_of(model), in_eval(model, x)
    assert all(before)
    for name in names:
        swap_norms(model, name)
    assert not any(flags_of(model))
    unswap_norms(model)
    assert flags_of(model) == before
    assert torch.equal(in_eval(model, x), output)


def test_a_layer_that_was_not_swapped_keeps_its_fast_kernel():
    model = encoder()
    swap_norms(model, "dyt", where="layers.1.*")
    assert flags_of(model) == [False, 1, 0]
    unswap_norms(model)
    assert flags_of(model) == [True, 1, 1]


def test_a_hardtanh_model_can_be_trained():
    model, seen = gpt2(), tokens()
    swap_norms(model, HardTanh)
    model(seen).logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_norms_that_share_a_gain_become_ops_that_share_one():
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4))
    model[2].weight = model[0].weight
    swap_norms(model, "derf")
    assert model[2].weight is model[0].weight
    assert model[2].bias is not model[0].bias


def test_a_norm_that_shares_its_gain_with_another_kind_of_module_is_skipped_with_the_reason():
    class Scaled(nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight

    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4))
    model.append(Scaled(model[1].weight))
    report = swap_norms(model, "dyt:paper")
    assert [i.path for i in report.swapped] == ["0"]
    assert [i.reason for i in report.skipped] == [
        "shares its weight with a Scaled, a tie that a swap would end"
    ]


def test_a_preset_without_embedding_scale_takes_an_earlier_ones_off():
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4))
    swap_norms(model, "dyt:recommended")
    report = swap_norms(model, "dyt:paper")
    assert report.policies == ["embedding scale: removed, this preset has none"]
    assert "0.scale" not in model.state_dict()
    unswap_norms(model)
    assert type(model[0]) is nn.Embedding
    assert type(model[1]) is nn.LayerNorm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (nn.Sequential(nn.LayerNorm(4)), None),
            r"An op is a name or a NormOp class, got None\.\nKnown names",
        ),
        ((nn.Sequential(nn.LayerNorm(4)), nn.LayerNorm), r"An op is a name or a NormOp class"),
        ((None, "dyt"), r"changes an nn\.Module in place, got NoneType"),
    ],
)
def test_arguments_of_another_kind_are_refused(arguments, message):
    with pytest.raises(ModelError, match=message):
        swap_norms(*arguments)


def test_a_where_of_another_kind_is_refused():
    with pytest.raises(ModelError, match=r"where= is a function of the site.*got 3\.\nTry where="):
        swap_norms(nn.Sequential(nn.LayerNorm(4)), "dyt", where=3)
