"""Tests of triplepoint.families.probing: what is read from a norm's behaviour, and what is said of look-alikes."""

import functools
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from triplepoint.families.probing import NotRead, Reading, read_norm


def layer(forward, gain=None, shift=None, **attributes):
    """A module with up to two parameters of 8 features, which computes ``forward(self, x)``."""

    class Norm(nn.Module):
        def forward(self, x):
            return forward(self, x)

    module = Norm()
    for name in (gain, shift):
        if name is not None:
            module.register_parameter(name, nn.Parameter(torch.ones(8)))
    module.__dict__.update(attributes)
    return module


def rms(x, eps, axis=-1):
    return x * torch.rsqrt(x.pow(2).mean(axis, keepdim=True) + eps)


def centred(x, eps, axis=-1):
    return rms(x - x.mean(axis, keepdim=True), eps, axis)


def in_float32(x, eps):
    return rms(x.to(torch.float32), eps).to(x.dtype)


def channels_first(x):
    return F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)


READ = {
    "llama": (
        layer(lambda m, x: m.weight * in_float32(x, m.variance_epsilon), "weight", variance_epsilon=1e-6),
        {"centred": False, "eps": 1e-6, "gain": "weight"},
    ),
    "gemma": (
        layer(lambda m, x: rms(x.float(), m.eps) * (1.0 + m.weight.float()), "weight", eps=1e-6),
        {"centred": False, "eps": 1e-6, "gain": "weight", "offset": 1.0},
    ),
    "nemotron": (
        layer(lambda m, x: F.layer_norm(x, (8,), m.weight + 1, m.bias, m.eps), "weight", "bias", eps=1e-5),
        {"centred": True, "eps": 1e-5, "gain": "weight", "offset": 1.0, "shift": "bias"},
    ),
    "eps-not-stated": (layer(lambda m, x: centred(x, 3e-4) * m.g, "g"), {"centred": True, "eps": 3e-4, "gain": "g"}),
    "eps-of-its-dtype": (
        layer(lambda m, x: F.rms_norm(x, (8,), m.weight, m.eps), "weight", eps=None),
        {"centred": False, "eps": None, "gain": "weight"},
    ),
    "large-eps": (layer(lambda m, x: rms(x, 1e-2)), {"centred": False, "eps": 1e-2}),
    "tiny-eps": (layer(lambda m, x: centred(x, 1e-12)), {"centred": True, "eps": 1e-12}),
    "no-eps": (
        layer(lambda m, x: F.normalize(x, dim=-1) * 8**0.5 * m.gamma, "gamma"),
        {"centred": False, "eps": 1e-30, "gain": "gamma"},
    ),
    "shift-only": (layer(lambda m, x: centred(x, 1e-5) + m.b, None, "b"), {"centred": True, "eps": 1e-5, "shift": "b"}),
    "shift-before-gain": (
        layer(lambda m, x: centred(x, 1e-5) * m.scale + m.offset, "offset", "scale"),
        {"centred": True, "eps": 1e-5, "gain": "scale", "shift": "offset"},
    ),
    "without-affine": (layer(lambda m, x: F.layer_norm(x, (8,))), {"centred": True, "eps": 1e-5}),
    "images": (layer(lambda m, x: channels_first(x)), {"centred": True, "eps": 1e-5, "axis": 1}),
    "sequences-channels-first": (
        layer(lambda m, x: F.layer_norm(x.permute(0, 2, 1), (8,)).permute(0, 2, 1)),
        {"centred": True, "eps": 1e-5, "axis": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("module", "expected"), READ.values(), ids=READ)
def test_what_a_norm_computes_is_read(module, expected):
    assert read_norm(module, dim=8) == Reading(**{"axis": -1, **expected})


class Gated(nn.Module):
    def forward(self, x, gate=None):
        return rms(x, 1e-6)


class Fails(nn.Module):
    def forward(self, x):
        raise KeyError("triton")


REFUSED = {
    "gated": (Gated(), "its forward takes gate besides the input: a gated or conditional norm"),
    "groups": (
        layer(lambda m, x: rms(x.unflatten(-1, (2, 4)), 1e-6).flatten(-2)),
        "normalises groups of 4 features",
    ),
    "two-axes": (
        layer(lambda m, x: F.layer_norm(x, x.shape[-2:])),
        "normalises over 2 axes, the features and a position",
    ),
    "positions-too": (
        layer(lambda m, x: F.group_norm(x, 1)),
        "normalises over 2 axes, the features and a position",
    ),
    "tokens": (
        layer(lambda m, x: centred(x, 1e-6, 1) * m.weight, "weight"),
        "normalises over positions, not features",
    ),
    "batch": (
        layer(lambda m, x: centred(x, 1e-6, (0, 1))),
        "normalises over the batch, which a per-token op cannot stand in for",
    ),
    "l2": (
        layer(lambda m, x: F.normalize(x, dim=-1) * m.g, "g"),
        "divides by the L2 norm, not the root mean square",
    ),
    "l2-without-gain": (
        layer(lambda m, x: F.normalize(x, dim=-1)),
        "divides by the L2 norm, not the root mean square",
    ),
    "n-minus-1": (
        layer(lambda m, x: m.a * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6), "a"),
        "divides by the standard deviation over n - 1, not n",
    ),
    "not-subtracted": (
        layer(lambda m, x: x * torch.rsqrt(x.var(-1, keepdim=True) + 1e-6)),
        "divides by the standard deviation without subtracting the mean",
    ),
    "eps-outside": (
        layer(lambda m, x: x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-4)),
        "does not add its eps to the mean square under the root",
    ),
    "affine-only": (
        layer(lambda m, x: x * m.weight + m.bias, "weight", "bias"),
        "does not normalise: its output grows with its input",
    ),
    "gain-of-gain": (
        layer(lambda m, x: rms(x, 1e-6) * m.weight.exp(), "weight"),
        "its weight is neither gain, gain - 1 nor shift",
    ),
    "doubled": (layer(lambda m, x: 2 * rms(x, 1e-6) * m.weight, "weight"), "multiplies by 2 besides"),
    "hidden-gain": (
        layer(lambda m, x: rms(x, 1e-6) * torch.arange(1.0, 9)),
        "has a gain that is not a parameter",
    ),
    "hidden-shift": (layer(lambda m, x: rms(x, 1e-6) + 1), "has a shift that is not a parameter"),
    "squashed": (layer(lambda m, x: rms(x, 1e-6).tanh()), "normalises in a way that is not known here"),
    "two-outputs": (layer(lambda m, x: (x, x)), "does not return one tensor of its input's shape"),
    "pooled": (layer(lambda m, x: x.mean(-1)), "does not return one tensor of its input's shape"),
    "not-finite": (layer(lambda m, x: x / 0), "does not return finite numbers in its input's shape"),
    "fails": (Fails(), "could not be run by itself: KeyError: 'triton'"),
    "by-rank": (
        layer(lambda m, x: channels_first(x) if x.ndim == 4 else F.layer_norm(x, (8,))),
        "normalises over the last axis or over axis 1, as the input's shape says",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("module", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_look_alike_is_refused_with_what_differs(module, reason):
    with pytest.raises(NotRead) as refused:
        read_norm(module, dim=8)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        (torch.ones(2, 8), "its weight has shape [2, 8], not one value per feature"),
        (torch.ones(1), "its weight has shape [1], not one value per feature"),
        (torch.ones(8, dtype=torch.int8), "its weight is stored as torch.int8"),
    ],
    ids=["per-head", "scalar", "quantised"],
)
def test_a_gain_that_is_not_one_number_per_feature_is_refused(parameter, reason):
    module = layer(lambda m, x: rms(x, 1e-6) * m.weight)
    module.weight = nn.Parameter(parameter, requires_grad=False)
    with pytest.raises(NotRead) as refused:
        read_norm(module, dim=8)
    assert str(refused.value) == reason


@pytest.mark.parametrize("dim", [2, 3, 5, 7, 64, 4096])
def test_the_reading_does_not_depend_on_the_width(dim):
    class Norm(nn.RMSNorm):
        def forward(self, x):
            return super().forward(x)

    expected = Reading(centred=False, eps=1e-6, axis=-1, gain="weight")
    assert read_norm(Norm(dim, eps=1e-6), dim=dim) == expected


def test_dividing_by_n_minus_1_is_seen_at_large_widths():
    module = layer(lambda m, x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True))
    with pytest.raises(NotRead, match="over n - 1, not n"):
        read_norm(module, dim=4096)


def patched_method(norm):
    def forward(self, hidden_states):
        return self.weight * rms(hidden_states, self.variance_epsilon)

    norm.variance_epsilon, norm.forward = 1e-3, types.MethodType(forward, norm)


def patched_partial(norm):
    def forward(self, scale, hidden_states):
        return self.weight * rms(hidden_states, scale)

    norm.forward = functools.partial(forward, norm, 1e-3)


def wrapped_by_accelerate(norm):
    patched_method(norm)
    norm._old_forward = norm.forward
    norm.forward = functools.partial(lambda module, x: module._old_forward(x), norm)


@pytest.mark.parametrize("patch", [patched_method, patched_partial, wrapped_by_accelerate])
def test_a_forward_patched_onto_an_instance_is_what_counts(patch):
    norm = nn.LayerNorm(8, bias=False, device="meta")
    patch(norm)
    assert read_norm(norm, dim=8) == Reading(centred=False, eps=1e-3, axis=-1, gain="weight")


def test_what_a_forward_writes_stays_in_the_copy():
    def forward(module, x):
        module.calls.append(1)
        module.seen.add_(1)
        module.last = x
        torch.rand(1)
        return rms(x, 1e-6)

    module = layer(forward, calls=[])
    module.register_buffer("seen", torch.zeros(1))
    state = torch.random.get_rng_state()
    read_norm(module, dim=8)
    assert (module.calls, module.seen.item(), hasattr(module, "last")) == ([], 0.0, False)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_reading_works_under_autocast_another_default_device_and_inference_mode():
    norm = READ["llama"][0]
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), torch.inference_mode():
        reading = read_norm(norm, dim=8)
    assert reading == read_norm(norm, dim=8)


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: F.dropout(rms(x, 1e-5), 0.5, self.training),
        lambda self, x: x if self.training else rms(x, 1e-5),
    ],
    ids=["dropout", "in eval mode only"],
)
def test_what_does_something_else_in_training_is_refused(forward):
    with pytest.raises(NotRead, match="something else in training than in evaluation") as refused:
        read_norm(layer(forward), dim=8)
    assert refused.value.normalises
