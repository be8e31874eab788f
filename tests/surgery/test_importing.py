"""Weights under the names of other libraries, and the converters' names."""

import pytest
import torch
from torch import nn

from triplepoint.errors import UnknownNameError
from triplepoint.ops import Derf, DyT
from triplepoint.surgery import (
    convert_ln_to_derf,
    convert_ln_to_dyt,
    convert_rmsnorm_to_derf,
    convert_rmsnorm_to_dyt,
    convert_state_dict,
)

GAIN, SHIFT = torch.tensor([1.5, -0.5, 2.0]), torch.tensor([0.1, 0.2, 0.3])
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
DYT = GAIN * torch.tanh(0.7 * X) + SHIFT
DERF = GAIN * torch.erf(0.7 * X + 0.4) + SHIFT

# What each library stores for alpha 0.7, shift 0.4, and the gain and shift above, as its module computes.
STORED = [
    ("liger", DyT, DYT, {"alpha": torch.tensor([0.7]), "gamma": GAIN, "beta": SHIFT}),
    (
        "x-transformers",
        DyT,
        DYT,
        {"pre_tanh_scale": torch.tensor(0.7 - 1), "gamma": GAIN - 1, "beta": SHIFT},
    ),
    (
        "x-transformers",
        Derf,
        DERF,
        {"alpha": torch.tensor(0.7 - 1), "s": torch.tensor(0.4), "gamma": GAIN - 1, "beta": SHIFT},
    ),
    ("x-transformers-plain", DyT, DYT, {"pre_tanh_scale": torch.tensor(0.7), "gamma": GAIN, "beta": SHIFT}),
    (
        "x-transformers-plain",
        Derf,
        DERF,
        {"alpha": torch.tensor(0.7), "s": torch.tensor(0.4), "gamma": GAIN, "beta": SHIFT},
    ),
    ("flax", DyT, DYT, {"alpha": torch.tensor(0.7), "scale": GAIN, "bias": SHIFT}),
    ("dyt", DyT, DYT, {"alpha": torch.tensor([0.7]), "weight": GAIN, "bias": SHIFT}),
    (
        "dyt",
        Derf,
        DERF,
        {"alpha": torch.tensor([0.7]), "shift": torch.tensor([0.4]), "weight": GAIN, "bias": SHIFT},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "op", "expected", "stored"), STORED)
def test_weights_of_another_library_give_what_its_module_computes(source, op, expected, stored):
    layer = op(3)
    layer.load_state_dict(convert_state_dict(stored, source))
    torch.testing.assert_close(layer(X), expected)


def test_only_ops_are_renamed_wherever_they_hang():
    state = {
        "h.0.norm.alpha": torch.tensor(1.0),
        "h.0.norm.gamma": torch.zeros(2),
        "h.0.other.gamma": torch.zeros(2),
        "alpha": torch.tensor(3.0),
        "head.scale": torch.zeros(2),
    }
    found = convert_state_dict(state, "liger")
    assert list(found) == [
        "h.0.norm.alpha", "h.0.norm.weight", "h.0.other.gamma", "alpha", "head.scale",
    ]  # fmt: skip
    assert [found[n].ndim for n in ("h.0.norm.alpha", "alpha")] == [1, 0]
    assert state["h.0.norm.alpha"].ndim == 0


def test_an_unknown_source_is_refused():
    with pytest.raises(UnknownNameError, match="There is no source of weights 'ligr'") as caught:
        convert_state_dict({}, "ligr")
    assert str(caught.value).split("\n")[1].startswith("Did you mean 'liger'? Known: liger, ")


@pytest.mark.parametrize(
    ("convert", "path", "op"),
    [
        (convert_ln_to_dyt, "ln", DyT),
        (convert_rmsnorm_to_dyt, "rms", DyT),
        (convert_ln_to_derf, "ln", Derf),
        (convert_rmsnorm_to_derf, "rms", Derf),
    ],
)
def test_the_converters_of_the_repositories_take_one_kind_of_norm(convert, path, op):
    model = nn.ModuleDict({"ln": nn.LayerNorm(3), "rms": nn.RMSNorm(3)})
    assert [item.path for item in convert(model).swapped] == [path]
    assert isinstance(model[path], op)
    assert convert(nn.ModuleList([nn.LayerNorm(3), nn.RMSNorm(3)]), where="?").skipped
