"""What find_norms promises, over architectures of timm, whose norms also come channels-first; run by `make test-timm`."""

import re

import pytest
import torch
from torch import nn

pytest.importorskip("timm")

import timm
from timm import layers

from triplepoint.families import find_norms
from triplepoint.surgery import swap_norms, unswap_norms

_BLOCK = {"N.norm1": "pre_attn", "N.norm2": "pre_mlp"}
_SWIN = {"patch_embed.norm": "embed", "layers.N.downsample.norm": "embed", "norm": "final"}
_CONVNEXT = {"stem.N": "embed", "stages.N.blocks.N.norm": "pre_mlp", "stages.N.downsample.N": "embed", "head.norm": "final"}  # fmt: skip


def under(path, roles=_BLOCK):
    return {f"{path}.{name}": role for name, role in roles.items()}


ARCHITECTURES = {
    "vit_tiny_patch16_224": ({"depth": 2}, 224, under("blocks") | {"norm": "final"}),
    "deit_tiny_patch16_224": ({"depth": 2}, 224, under("blocks") | {"norm": "final"}),
    "beit_base_patch16_224": ({"depth": 2, "embed_dim": 24, "num_heads": 2}, 224, under("blocks") | {"fc_norm": "final"}),
    "eva02_tiny_patch14_224": ({"depth": 2}, 224, under("blocks") | {"fc_norm": "final"}),
    "cait_xxs24_224": ({"depth": 2}, 224, under("blocks") | under("blocks_token_only") | {"norm": "final"}),
    "mixer_s32_224": ({}, 224, under("blocks") | {"norm": "final"}),
    "convnext_atto": ({"depths": (1, 1, 1, 1)}, 64, _CONVNEXT),
    "convnextv2_atto": ({"depths": (1, 1, 1, 1)}, 64, _CONVNEXT | {"stages.N.blocks.N.mlp.grn": "inner!"}),
    "edgenext_xx_small": (
        {"depths": (1, 1, 1, 1)}, 64,
        {"stem.N": "embed", "stages.N.downsample.N": "embed", "stages.N.blocks.N.norm": "pre_mlp",
         "stages.N.blocks.N.norm_xca": "pre_attn", "head.norm": "final"},
    ),
    "swin_tiny_patch4_window7_224": ({"depths": (1, 1, 1, 1)}, 224, _SWIN | under("layers.N.blocks")),
    "swinv2_tiny_window8_256": (
        {"depths": (1, 1, 1, 1)}, 256,
        _SWIN | under("layers.N.blocks", {"N.norm1": "post_attn", "N.norm2": "post_mlp"}),
    ),
    "pvt_v2_b0": (
        {"depths": (1, 1, 1, 1)}, 64,
        under("stages.N.blocks") | {
            "patch_embed.norm": "embed", "stages.N.downsample.norm": "embed", "stages.N.blocks.N.attn.norm": "inner",
            "stages.N.norm": "final",
        },
    ),
    "nest_tiny": (
        {}, 224,
        under("levels.N.transformer_encoder") | {"levels.N.pool.norm": "embed", "norm": "final"},
    ),
    "twins_svt_small": (
        {"depths": (2, 2, 2, 2)}, 224,
        under("blocks.N") | {"patch_embeds.N.norm": "embed", "blocks.N.N.attn.norm": "inner", "norm": "final"},
    ),
    "davit_tiny": (
        {"depths": (1, 1, 1, 1)}, 224,
        under("stages.N.blocks.N") | {"stem.norm": "embed", "stages.N.downsample.norm": "embed", "head.norm": "final"},
    ),
    "maxvit_rmlp_pico_rw_256": (
        {}, 256,
        under("stages.N.blocks.N", {"attn_block.norm1": "pre_attn", "attn_block.norm2": "pre_mlp",
                                    "attn_grid.norm1": "pre_attn", "attn_grid.norm2": "pre_mlp"}) | {"norm": "final"},
    ),
}  # fmt: skip
"""Settings, image size, and the role of each norm by its path, numbers as N; a refused one ends in ``!``."""


def built(name):
    torch.manual_seed(0)
    settings, size, roles = ARCHITECTURES[name]
    # heads are born as zeros in some: outputs are compared before them
    model = timm.create_model(name, num_classes=5, **settings).eval()
    return model, torch.randn(1, 3, size, size), roles


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_norm_is_found_with_its_role_axis_and_numbers(name):
    model, _, roles = built(name)
    found = {}
    for site in find_norms(model):
        if isinstance(site.module, nn.modules.batchnorm._BatchNorm):
            assert site.reason.startswith("normalises over the batch")
            continue
        key = re.sub(r"\.\d+(?=\.|$)", ".N", site.path)
        assert found.setdefault(key, site.role + ("!" if site.reason else "")) == roles[key]
        if site.facts is not None:
            # timm's two-dimensional norms are the channels-first ones
            assert site.facts.axis == (1 if "2d" in type(site.module).__name__ else -1)
    assert found == roles


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_swapped_model_runs_learns_and_comes_back(name):
    model, images, _ = built(name)
    with torch.no_grad():
        before = model.forward_features(images)
    report = swap_norms(model, "dyt")
    assert report.swapped
    swapped = model.forward_features(images)
    assert swapped.isfinite().all()
    assert not torch.equal(swapped, before)
    swapped.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    unswap_norms(model)
    with torch.no_grad():
        assert torch.equal(model.forward_features(images), before)


NORMS = {
    "LayerNorm": ("layernorm", -1),
    "LayerNormFp32": ("layernorm", -1),
    "LayerNorm2d": ("layernorm", 1),
    "LayerNorm2dFp32": ("layernorm", 1),
    "RmsNorm": ("rmsnorm", -1),
    "RmsNormFp32": ("rmsnorm", -1),
    "RmsNorm2d": ("rmsnorm", 1),
    "RmsNorm2dFp32": ("rmsnorm", 1),
}


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "fast-norm"])
@pytest.mark.parametrize(("name", "expected"), NORMS.items(), ids=NORMS)
def test_every_class_of_norm_is_read(name, expected, fast):
    kind, axis = expected
    layers.set_fast_norm(fast)
    try:
        (site,) = find_norms(nn.Sequential(getattr(layers, name)(8, eps=1e-4)))
    finally:
        layers.set_fast_norm(False)
    assert (site.kind, site.facts.axis, site.facts.dim, site.facts.eps) == (kind, axis, 8, 1e-4)
    assert site.facts.weight is site.module.weight


def test_the_simplified_norm_is_refused():
    (site,) = find_norms(nn.Sequential(layers.SimpleNorm(8)))
    assert site.reason == "divides by the standard deviation without subtracting the mean"
