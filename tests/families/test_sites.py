"""Tests of triplepoint.families."""

import pytest
import torch
from torch import nn

from triplepoint.families import ROLES, find_norms, locations
from triplepoint.models import GPT2, GPT2Config


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


class OwnForward(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x) + 1


class Renamed(nn.LayerNorm):
    """Only another name: still a LayerNorm."""


class LlamaRMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))


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
        (OwnForward(4), "its class OwnForward has a forward of its own"),
        (nn.LayerNorm((2, 4)), "normalises over 2 axes"),
        (nn.RMSNorm((2, 4)), "normalises over 2 axes"),
        (nn.BatchNorm1d(4), "normalises over the batch, which a per-token op cannot stand in for"),
        (nn.SyncBatchNorm(4), "normalises over the batch, which a per-token op cannot stand in for"),
        (nn.GroupNorm(2, 4), "normalises over groups of channels and positions, which a per-token op cannot stand in for"),
        (nn.InstanceNorm2d(4), "normalises over positions, which a per-token op cannot stand in for"),
        (nn.LocalResponseNorm(2), "normalises over neighbouring channels only"),
        (LlamaRMSNorm(4), "its class LlamaRMSNorm is not one that is known to be a LayerNorm or RMSNorm"),
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
