"""What find_norms promises, over tiny models of the transformers library: decoders, encoders, both, vision, audio."""

import re

import pytest
import torch

pytest.importorskip("transformers")

from tests.families.tiny_transformers import ROLES, built, inputs_of

from triplepoint.families import find_norms
from triplepoint.surgery import swap_norms, unswap_norms

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
everywhere = pytest.mark.parametrize("name", ROLES)


# the others take half a minute
FEW = ("llama", "gemma2", "bert", "albert", "whisper", "vit", "convnext")
in_few_or_slowly = pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in ROLES]
)


def key_of(name, path):
    """The entry of ROLES that a path belongs to: its first number, or all of them, as N."""
    first, every = re.sub(r"\.\d+\.", ".N.", path, count=1), re.sub(r"\.\d+(?=\.|$)", ".N", path)
    return first if first in ROLES[name] else every


@everywhere
def test_every_norm_is_found_once_with_the_role_of_the_published_model(name):
    model = built(name)
    found = {s.path: s.role + ("!" if s.reason else "") for s in find_norms(model)}
    # counted in another way: by class name, where the class does something itself and not to a weight
    named = {
        path
        for path, module in model.named_modules()
        if "norm" in type(module).__name__.lower()
        and not any(module.children())
        and "parametrizations" not in path
    }
    assert set(found) == named
    assert found == {path: ROLES[name][key_of(name, path)] for path in named}
    assert {key_of(name, path) for path in found} == set(ROLES[name])


@everywhere
@torch.no_grad()
def test_what_was_read_computes_what_the_module_computes(name):
    for site in find_norms(built(name)):
        if (facts := site.facts) is None:
            continue
        for parameter in site.module.parameters():
            torch.nn.init.normal_(parameter)
        # of the size of eps as well, where it counts
        for scale in (1.0, facts.eps**0.5):
            shape = (3, 5, facts.dim) if facts.axis == -1 else (3, facts.dim, 5, 7)
            shape = shape[:3] if name == "squeezebert" else shape
            x = scale * (torch.randn(shape) + 1)
            y = x.double().movedim(facts.axis, -1)
            y = y - y.mean(-1, keepdim=True) if facts.centred else y
            y = y / (y.square().mean(-1, keepdim=True) + facts.eps).sqrt()
            y = y if facts.weight is None else y * (facts.weight + facts.weight_offset)
            y = y if facts.bias is None else y + facts.bias
            torch.testing.assert_close(site.module(x), y.movedim(-1, facts.axis).float(), rtol=1e-3, atol=1e-5)  # fmt: skip


def output_of(model, name):
    output = model(**inputs_of(name))
    return output.last_hidden_state if "last_hidden_state" in output else output.logits_per_image


@in_few_or_slowly
def test_a_swapped_model_runs_learns_and_comes_back(name):
    model = built(name)
    torch.manual_seed(0)
    with torch.no_grad():
        before = output_of(model, name)
    kept = {key: value.clone() for key, value in model.state_dict().items()}
    swap_norms(model, "dyt")
    torch.manual_seed(0)
    swapped = output_of(model, name)
    assert swapped.isfinite().all()
    assert not torch.equal(swapped, before)
    swapped.square().mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.isfinite().all() for g in gradients)
    twin = built(name)
    swap_norms(twin, "dyt")
    twin.load_state_dict(model.state_dict())
    torch.manual_seed(0)
    with torch.no_grad():
        torch.testing.assert_close(output_of(twin, name), swapped.detach())
    unswap_norms(model)
    torch.manual_seed(0)
    with torch.no_grad():
        assert torch.equal(output_of(model, name), before)
    assert kept.keys() == model.state_dict().keys()
