"""Tests of triplepoint.ops.dyt."""

import inspect
import math
import sys
import types

import pytest
import torch
from tests.reference import ops as twin
from torch import nn

from triplepoint.ops import DynamicTanh, DyT, dyt

TANH = [(0.5, 0.462), (1.0, 0.762), (1.5, 0.905), (2.0, 0.964), (2.5, 0.987), (3.0, 0.995)]


@pytest.mark.parametrize(("z", "expected"), TANH)
def test_equals_the_table_of_the_hyperbolic_tangent(z, expected):
    y = DyT(2, alpha=0.5)(torch.tensor([2 * z, -2 * z]))
    assert y.tolist() == pytest.approx([expected, -expected], abs=5e-4)


def test_gain_and_shift_come_after_the_tanh():
    op = DyT(2, alpha=1.0)
    with torch.no_grad():
        op.weight.copy_(torch.tensor([2.0, -3.0]))
        op.bias.copy_(torch.tensor([0.5, 0.25]))
    # tanh(ln 3) = (9 - 1) / (9 + 1) = 0.8
    y = op(torch.full((2,), math.log(3.0)))
    assert y.tolist() == pytest.approx([2 * 0.8 + 0.5, -3 * 0.8 + 0.25])


def test_agrees_with_its_twin():
    op = DyT(5, alpha=0.7)
    nn.init.normal_(op.weight)
    nn.init.normal_(op.bias)
    x = 3 * torch.randn(4, 5)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = twin.dyt(token, gain=op.weight.tolist(), shift=op.bias.tolist(), alpha=0.7)
        assert y.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_slope_at_the_origin_is_alpha():
    x = torch.zeros(1, requires_grad=True)
    DyT(1, alpha=0.3)(x).sum().backward()
    assert x.grad.item() == pytest.approx(0.3)


def test_bfloat16_input_is_squashed_in_float32():
    x = torch.linspace(-4, 4, 33).bfloat16()
    y = DyT(33, alpha=0.77).bfloat16()(x)
    alpha = torch.tensor(0.77).bfloat16().float()
    assert torch.equal(y, torch.tanh(alpha * x.float()).bfloat16())


def test_edges_of_exactness_are_those_of_the_docstring():
    # atanh(1 - eps/4), eps = 2^-7 in bfloat16 and 2^-23 in float32
    assert DyT.exact_edge(torch.bfloat16) == pytest.approx(math.atanh(1 - 2**-9))
    assert DyT.exact_edge(torch.bfloat16) == pytest.approx(3.47, abs=0.005)
    assert DyT.exact_edge(torch.float32) == pytest.approx(9.01, abs=0.005)


def test_default_alpha_is_the_papers_half():
    assert DyT(3).alpha.item() == 0.5
    assert DyT.from_norm(nn.LayerNorm(3)).alpha.item() == 0.5


def test_repr_shows_width_and_affine():
    assert repr(DyT(3, bias=False)) == "DyT(3, affine=True, bias=False)"


def test_the_authors_name_is_the_same_class():
    assert DynamicTanh is DyT


# --- Liger's kernel, on CUDA


@pytest.fixture
def liger(monkeypatch):
    """A package that says what it was called with, in Liger's place."""
    package = types.ModuleType("liger_kernel")
    package.__spec__ = types.SimpleNamespace(name="liger_kernel")
    functional = types.ModuleType("liger_kernel.transformers.functional")
    functional.liger_dyt = lambda x, alpha, gamma, beta: (x, alpha, gamma, beta)
    for name, module in {
        "liger_kernel": package,
        "liger_kernel.transformers": types.ModuleType("liger_kernel.transformers"),
        "liger_kernel.transformers.functional": functional,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return functional.liger_dyt


def test_ligers_kernel_is_for_cuda_and_where_any_order_of_sums_will_do(liger):
    cuda = torch.device("cuda")
    assert dyt._kernel(cuda) is liger
    assert dyt._kernel(torch.device("cpu")) is None
    torch.use_deterministic_algorithms(True)
    try:
        assert dyt._kernel(cuda) is None
    finally:
        torch.use_deterministic_algorithms(False)


def test_without_liger_there_is_no_kernel():
    assert dyt._kernel(torch.device("cuda")) is None


def test_ligers_kernel_gets_gain_and_shift_by_its_own_order(liger, monkeypatch):
    monkeypatch.setattr(dyt, "_kernel", lambda device: liger)
    op, x = DyT(3), torch.randn(2, 3)
    expected = (x, op.alpha, op.weight, op.bias)
    forward = inspect.unwrap(DyT.forward)  # what comes back here is no tensor
    assert all(a is b for a, b in zip(forward(op, x), expected, strict=True))
    for other in (DyT(3, bias=False), DyT(3, affine=False), DyT(3, axis=1), DyT(3).bfloat16()):
        assert isinstance(other(x), torch.Tensor)
