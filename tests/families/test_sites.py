"""Tests of triplepoint.families."""

import copy
import functools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.families import ROLES, candidates, find_norms, locations
from triplepoint.families.probing import NotRead, Reading
from triplepoint.models import GPT2, GPT2Config
from triplepoint.ops import OPS


class Named(nn.Module):
    """A module with a LayerNorm at each of the given dotted paths."""

    def __init__(self, *paths, norm=nn.LayerNorm):
        super().__init__()
        for path in paths:
            parent = self
            *above, name = path.split(".")
            for part in above:
                if part not in parent._modules:
                    parent.add_module(part, nn.Module())
                parent = parent._modules[part]
            parent.add_module(name, norm(4))


class Renamed(nn.LayerNorm):
    """Only another name: still a LayerNorm."""


def test_every_norm_of_a_gpt2_is_found_once_with_role_and_depth():
    model = GPT2(GPT2Config(width=8, layers=2, heads=2))
    found = [(site.path, site.kind, site.role, site.depth) for site in find_norms(model)]
    assert found == [
        ("h.0.ln_1", "layernorm", "pre_attn", 0),
        ("h.0.ln_2", "layernorm", "pre_mlp", 0),
        ("h.1.ln_1", "layernorm", "pre_attn", 1),
        ("h.1.ln_2", "layernorm", "pre_mlp", 1),
        ("ln_f", "layernorm", "final", None),
    ]
    assert all(model.get_submodule(site.path) is site.module for site in find_norms(model))


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("layers.0.input_layernorm", "pre_attn"),
        ("layers.0.attention_norm", "pre_attn"),
        ("blocks.0.norm1", "pre_attn"),
        ("blocks.0.norm_1", "pre_attn"),
        (
            "layers.0.post_attention_layernorm",
            "pre_mlp",
        ),  # Llama's name for what stands before the MLP
        ("layers.0.ffn_norm", "pre_mlp"),
        ("blocks.0.norm2", "pre_mlp"),
        ("layers.0.self_attn.q_norm", "qk"),
        ("layers.0.self_attn.k_norm", "qk"),
        ("layers.0.attn.qk_norm", "qk"),
        ("layers.0.attn.query_layernorm", "qk"),
        ("model.norm", "final"),
        ("transformer.norm_f", "final"),
        ("final_layer_norm", "final"),
        ("encoder.LayerNorm", "final"),
        ("embeddings.LayerNorm", "embed"),
        ("embed_norm", "embed"),
        ("layers.0.norm", "other"),
        ("layers.0.mixer.scale", "other"),
    ],
)
def test_roles_follow_the_names_in_use(path, role):
    (site,) = find_norms(Named(path))
    assert (site.path, site.role) == (path, role)
    assert role in ROLES


@pytest.mark.parametrize(("norm_first", "roles"), [(True, "pre"), (False, "post")])
def test_torchs_encoder_layer_has_pre_or_post_norms_as_it_says(norm_first, roles):
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first)
    found = {site.path: site.role for site in find_norms(layer)}
    assert found == {"norm1": f"{roles}_attn", "norm2": f"{roles}_mlp"}


def test_depth_is_the_first_number_of_the_path():
    (site,) = find_norms(Named("stages.3.blocks.11.norm1"))
    assert site.depth == 3


def test_an_rmsnorm_and_a_renamed_layernorm_are_recognised():
    model = nn.ModuleDict({"a": nn.RMSNorm(4), "b": Renamed(4), "c": nn.Linear(4, 4)})
    assert [(s.path, s.kind, s.reason) for s in find_norms(model)] == [
        ("a", "rmsnorm", None),
        ("b", "layernorm", None),
    ]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.LayerNorm((2, 4)), "normalises over 2 axes"),
        (nn.RMSNorm((2, 4)), "normalises over 2 axes"),
        (nn.BatchNorm1d(4), "normalises over the batch, which a per-token op cannot stand in for"),
        (nn.SyncBatchNorm(4), "normalises over the batch, which a per-token op cannot stand in for"),
        (nn.GroupNorm(2, 4), "normalises over groups of channels and positions, which a per-token op cannot stand in for"),
        (nn.InstanceNorm2d(4), "normalises over positions, which a per-token op cannot stand in for"),
        (nn.LocalResponseNorm(2), "normalises over neighbouring channels only"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)  # fmt: skip
def test_look_alikes_are_named_with_the_reason(module, reason):
    (site,) = find_norms(nn.Sequential(nn.Linear(4, 4), module))
    assert (site.path, site.kind, site.reason) == ("1", "look-alike", reason)


def test_a_shared_norm_is_one_site_with_several_locations():
    model = Named("a.norm", "b.norm")
    model.b.norm = model.a.other = model.a.norm
    (site,) = find_norms(model)
    assert site.path == "a.norm"
    found = set(locations(model, site.module))
    assert found == {(model.a, "norm"), (model.a, "other"), (model.b, "norm")}


def test_a_model_without_norms_has_no_sites():
    assert find_norms(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == []


def test_a_container_with_norm_in_its_name_is_not_a_norm():
    class NormedBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.LayerNorm(4)

    assert [site.path for site in find_norms(nn.Sequential(NormedBlock()))] == ["0.inner"]


class NanoLayerNorm(nn.Module):
    """A class of one's own that calls ``F.layer_norm``, as nanoGPT has one."""

    def __init__(self, dim, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


def test_a_norm_of_ones_own_class_is_read_with_its_own_parameters():
    model = nn.Sequential(nn.Linear(4, 4), NanoLayerNorm(4), NanoLayerNorm(4, bias=False))
    first, second = find_norms(model)
    assert (first.path, first.kind, first.reason) == ("1", "layernorm", None)
    assert first.facts.weight is model[1].weight
    assert first.facts.bias is model[1].bias
    assert (first.facts.dim, first.facts.eps, second.facts.bias) == (4, 1e-5, None)
    assert second.facts.weight is model[2].weight


def test_parameters_of_several_axes_are_flattened_and_keep_their_gradient():
    class ImageNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * self.g

    (site,) = find_norms(nn.Sequential(ImageNorm()))
    assert (site.kind, site.facts.axis, site.facts.eps) == ("rmsnorm", 1, 1e-6)
    assert site.facts.weight.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert site.facts.weight.requires_grad


def test_norms_of_one_class_and_setting_are_run_once(monkeypatch):
    runs = []
    real = candidates.read_norm
    monkeypatch.setattr(
        candidates, "read_norm", lambda m, dim, device: runs.append(dim) or real(m, dim=dim)
    )
    model = nn.ModuleList([NanoLayerNorm(4) for _ in range(24)] + [NanoLayerNorm(6)])
    assert [site.facts.dim for site in find_norms(model)] == [4] * 24 + [6]
    assert runs == [4, 6]


def test_settings_that_differ_are_told_apart():
    class Own(nn.LayerNorm):
        def forward(self, x):
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    model = nn.Sequential(Own(4, eps=1e-5), Own(4, eps=1e-3), Own(4, bias=False))
    assert [s.facts.eps for s in find_norms(model)] == [1e-5, 1e-3, 1e-5]
    assert [s.facts.bias is None for s in find_norms(model)] == [False, False, True]


class Weightless(nn.Module):
    """Without parameters or a stated width, as Llama 4's and NanoChat's norms are."""

    def __init__(self, eps=1e-6, **stated):
        super().__init__()
        self.eps = eps
        self.__dict__.update(stated)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


@pytest.mark.parametrize(
    ("around", "name", "dim"),
    [
        ({}, "norm", None),
        ({"hidden_size": 12}, "norm", 12),
        ({"hidden_size": 12, "head_dim": 6}, "q_norm", 6),
        ({"hidden_size": 12, "head_dim": 6}, "norm", 12),
        ({"config": SimpleNamespace(hidden_size=10)}, "norm", 10),
    ],
)
def test_the_width_of_a_norm_without_parameters_is_taken_from_around_it(around, name, dim):
    model = nn.Module()
    model.attn = nn.Module()
    model.attn.add_module(name, Weightless())
    model.attn.__dict__.update(around)
    (site,) = find_norms(model)
    if dim is None:
        assert site.facts is None
        assert site.reason == "has no parameters and states no width, nor do the modules around it"
    else:
        assert (site.kind, site.facts.dim, site.facts.weight) == ("rmsnorm", dim, None)


def test_a_width_that_the_norm_states_comes_first():
    model = nn.Sequential(Weightless(dim=5))
    model.hidden_size = 12
    assert [site.facts.dim for site in find_norms(model)] == [5]


@pytest.mark.parametrize("stated", [{"normalized_shape": (7,)}, {"hidden_size": 7}])
def test_a_width_is_stated_in_several_ways(stated):
    assert [site.facts.dim for site in find_norms(nn.Sequential(Weightless(**stated)))] == [7]


def test_what_is_no_norm_is_not_listed():
    class Smooth(nn.Module):
        def forward(self, x):
            return x.pow(2).mean(-1, keepdim=True) + x

    others = [nn.GELU(), nn.CosineSimilarity(), nn.Softmax(-1), nn.AvgPool1d(2), nn.PReLU(4), Smooth(), nn.Flatten()]  # fmt: skip
    assert find_norms(nn.Sequential(*others)) == []


def test_something_that_normalises_under_another_name_is_listed():
    class Scale(nn.Module):
        def forward(self, x):
            return x / x.norm(dim=-1, keepdim=True)

    (site,) = find_norms(nn.Sequential(Scale()))
    assert (site.kind, site.reason) == (
        "look-alike",
        "divides by the L2 norm, not the root mean square",
    )


def test_weight_and_spectral_norm_are_not_norms_of_activations():
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
    )
    assert find_norms(model) == []


def test_a_parametrised_norm_is_one_norm_with_the_computed_gain():
    norm = nn.LayerNorm(3)
    nn.utils.parametrize.register_parametrization(norm, "weight", nn.Softplus())
    (site,) = find_norms(nn.Sequential(norm))
    assert (site.path, site.kind) == ("0", "layernorm")
    torch.testing.assert_close(site.facts.weight, F.softplus(torch.ones(3)))


def test_a_weight_computed_in_the_old_way_is_refused():
    norm = nn.LayerNorm(3)
    norm.register_parameter("weight_g", norm._parameters.pop("weight"))
    (site,) = find_norms(nn.Sequential(norm))
    assert site.reason == "its weight is computed from weight_g"


def test_a_sharded_norm_says_how_much_of_it_is_here():
    norm = nn.LayerNorm(4)
    norm.weight = nn.Parameter(torch.ones(2))
    (site,) = find_norms(nn.Sequential(norm))
    assert site.reason == "its weight holds 2 of 4 values here: swap before sharding"


def test_a_norm_with_parts_of_its_own_is_refused():
    class NormAct(nn.LayerNorm):
        def __init__(self, dim):
            super().__init__(dim)
            self.act = nn.GELU()

        def forward(self, x):
            return self.act(super().forward(x))

    (site,) = find_norms(nn.Sequential(NormAct(4)))
    assert site.reason == "its class NormAct has parts of its own: act"


class Functional(nn.Module):
    """Normalises in its own forward, around a child."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(F.layer_norm(x, (4,)))


class CallsItsChild(nn.Module):
    """Its forward names ``layer_norm`` as well, but means its own child."""

    def __init__(self):
        super().__init__()
        self.layer_norm, self.inner = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(self.layer_norm(x))


def test_a_functional_norm_inside_a_larger_module_is_reported():
    model = nn.Sequential(Functional(), CallsItsChild())
    assert [(s.path, s.kind, s.reason) for s in find_norms(model)] == [
        ("0", "look-alike", "its forward calls layer_norm itself: make that a module of its own to replace it"),
        ("1.layer_norm", "layernorm", None),
    ]  # fmt: skip


def test_a_frozen_batch_norm_is_told_by_its_statistics():
    class FrozenNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(4))

        def forward(self, x):
            return x - self.running_mean

    (site,) = find_norms(nn.Sequential(FrozenNorm()))
    assert site.reason == "normalises by the statistics of earlier batches, not of the token"


def test_this_librarys_own_norms_are_norms_and_its_other_ops_are_not():
    model = nn.Sequential(*(op.from_norm(nn.LayerNorm(4)) for op in OPS.values()))
    kinds = {type(site.module).__name__: site.kind for site in find_norms(model)}
    assert kinds == {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}


def test_a_model_is_left_as_it_was():
    model = nn.Sequential(NanoLayerNorm(4), Weightless(dim=4), nn.RMSNorm(4)).train()
    model[0].weight.grad = torch.full((4,), 7.0)
    fired = []
    model[0].register_forward_hook(lambda *a: fired.append(a))
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    find_norms(model)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert fired == []
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model[0].weight.grad.tolist() == [7.0] * 4
    assert all(module.training for module in model.modules())
    assert {name: set(vars(module)) for name, module in model.named_modules()} == attributes


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_norms_are_read_on_any_device(device):
    model = nn.Sequential(NanoLayerNorm(4), nn.LayerNorm(4)).to(device)
    assert [(s.kind, s.facts.weight.device.type) for s in find_norms(model)] == [
        ("layernorm", device)
    ] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_norms_are_read_in_any_dtype(dtype):
    (site,) = find_norms(nn.Sequential(NanoLayerNorm(4)).to(dtype))
    assert (site.kind, site.facts.weight.dtype) == ("layernorm", dtype)


def only_on_an_accelerator(monkeypatch, refused):
    """Pretend that modules live on an accelerator on which this machine can't run them: return where it was tried."""
    tried = []

    def read_norm(module, dim, device):
        tried.append(device.type)
        if len(tried) == 1:
            raise refused
        return Reading(centred=False, eps=1e-6, axis=-1, gain="weight")

    monkeypatch.setattr(candidates, "read_norm", read_norm)
    monkeypatch.setattr(
        candidates, "_devices", lambda m: [torch.device("cpu"), torch.device("cuda")]
    )
    return tried


def test_a_norm_whose_kernel_needs_an_accelerator_is_run_where_it_lives(monkeypatch):
    tried = only_on_an_accelerator(monkeypatch, NotRead("could not be run by itself", ran=False))
    (site,) = find_norms(nn.Sequential(NanoLayerNorm(4)))
    assert (site.kind, tried) == ("rmsnorm", ["cpu", "cuda"])


def test_a_norm_that_ran_is_not_tried_elsewhere(monkeypatch):
    tried = only_on_an_accelerator(monkeypatch, NotRead("divides by the L2 norm", normalises=True))
    (site,) = find_norms(nn.Sequential(NanoLayerNorm(4)))
    assert (site.reason, tried) == ("divides by the L2 norm", ["cpu"])


def test_a_class_patched_as_a_partial_leaves_modules_of_a_class():
    made = functools.partial(NanoLayerNorm, bias=False)
    model = nn.Sequential(made(4), made(4))
    assert [(s.kind, s.facts.bias) for s in find_norms(model)] == [("layernorm", None)] * 2
    assert repr(find_norms(model)[0]).startswith("NormSite(path='0', kind='layernorm'")


class Scaled(nn.LayerNorm):
    """A subclass that is not called a norm, and is more than one."""

    def forward(self, x, scale=1.0):
        return scale * super().forward(x)


def test_every_subclass_of_a_norm_is_listed():
    (site,) = find_norms(nn.Sequential(Scaled(4)))
    assert site.reason == "its forward takes scale besides the input: a gated or conditional norm"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit's own
@pytest.mark.parametrize(
    "scripted",
    [
        lambda: torch.jit.script(nn.LayerNorm(4)),
        lambda: torch.jit.trace(nn.LayerNorm(4), torch.randn(2, 4)),
        lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))),
    ],
)
def test_norms_compiled_by_torchscript_are_refused_and_others_found(scripted):
    model = nn.Sequential(scripted(), nn.LayerNorm(4))
    refused, found = find_norms(model)
    assert refused.path.startswith("0") and found.path == "1" and found.reason is None
    assert refused.reason.startswith("is compiled by TorchScript")
    with pytest.raises(ModelError, match="compiled by TorchScript.*\nPass the model from before"):
        find_norms(scripted())


def test_what_is_no_module_is_named():
    with pytest.raises(ModelError, match="A model is an nn.Module, got int.\nPass the model"):
        find_norms(3)
