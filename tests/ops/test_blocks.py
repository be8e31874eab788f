"""Tests of triplepoint.ops._blocks: the fast path of DyT and Derf, against formula, double precision and autograd."""

import copy
import math
import threading

import pytest
import torch
from tests.reference import ops as twin
from torch.utils.checkpoint import checkpoint

from triplepoint.ops import Derf, DyT, _blocks

pytestmark = pytest.mark.parametrize("op", [DyT, Derf])

SHAPES = {"last": (-1, (7, 11, 6)), "first": (1, (5, 6, 3, 4)), "first-flat": (1, (37, 6))}
EXACT = {DyT: torch.tanh, Derf: torch.erf}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Send small tensors through the blocks, several of them and the last one shorter."""
    monkeypatch.setattr(_blocks, "SMALL", 0)
    monkeypatch.setattr(_blocks, "BLOCK", 100)


def randomised(op, **options):
    layer = op(6, alpha=0.7, **options)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, mean=0.5)
    return layer


def by_formula(layer, x):
    return layer._affine(layer.squash(layer.pre_activation(x)), x.dtype)


def gradients(layer, x, g, run):
    layer.zero_grad()
    leaf = x.detach().clone().requires_grad_()
    run(layer, leaf).backward(g)
    return [leaf.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"affine": False, "bias": False}], ids=str
)
@pytest.mark.parametrize(("axis", "shape"), SHAPES.values(), ids=SHAPES)
def test_forward_is_the_formula_bit_for_bit(op, axis, shape, options, dtype):
    layer = randomised(op, axis=axis, **options)
    x = (3 * torch.randn(shape)).to(dtype)
    assert torch.equal(layer(x), by_formula(layer, x))


@pytest.mark.parametrize(("axis", "shape"), SHAPES.values(), ids=SHAPES)
def test_gradients_agree_with_double_precision(op, axis, shape):
    layer = randomised(op, axis=axis)
    x, g = 2 * torch.randn(shape), torch.randn(shape)
    found = gradients(layer, x, g, lambda layer, x: layer(x))
    exact = gradients(copy.deepcopy(layer).double(), x.double(), g.double(), by_formula)
    for ours, truth in zip(found, exact, strict=True):
        assert ours.dtype == torch.float32
        # sums of signed terms: small beside the largest only
        torch.testing.assert_close(
            ours.double(), truth, rtol=2e-5, atol=3e-6 * float(truth.abs().max() + 1)
        )


def test_gradients_agree_with_the_twin(op):
    layer = randomised(op)
    x, g = torch.randn(30, 6), torch.randn(30, 6)
    found = gradients(layer, x, g, lambda layer, x: layer(x))
    names = [n for n, _ in layer.named_parameters()]
    expected = twin.squash_gradients(
        x.tolist(), g.tolist(), gain=layer.weight.tolist(), alpha=layer.alpha.item(),
        inner_shift=layer.shift.item() if op is Derf else 0.0, function="erf" if op is Derf else "tanh",
    )  # fmt: skip
    for name, ours in zip(["x", *names], found, strict=True):
        truth = torch.tensor(expected[name])
        torch.testing.assert_close(ours, truth.view_as(ours), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision_differs_from_float32_by_one_rounding(op, dtype):
    layer = randomised(op)
    x, g = torch.randn(40, 6).to(dtype), torch.randn(40, 6).to(dtype)
    low = gradients(layer, x, g, lambda layer, x: layer(x))
    full = gradients(layer, x.float(), g.float(), lambda layer, x: layer(x))
    assert low[0].dtype == dtype
    assert torch.equal(low[0], full[0].to(dtype))
    for ours, truth in zip(low[1:], full[1:], strict=True):
        assert torch.equal(ours, truth)


@pytest.mark.parametrize("function", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
@pytest.mark.parametrize(("axis", "shape"), [(-1, (3, 2)), (1, (2, 2, 2))])
def test_once_and_twice_differentiable(op, function, axis, shape, monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK", 4)
    layer = op(2, alpha=0.7, axis=axis).double()
    names = [n for n, _ in layer.named_parameters()]

    def call(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    values = [torch.randn_like(p).requires_grad_() for p in layer.parameters()]
    assert function(call, (x, *values))


def test_the_second_derivative_of_frozen_and_absent_parameters_is_left_out(op):
    layer = op(6, bias=False)
    layer.alpha.requires_grad_(False)
    x = torch.randn(20, 6, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    first.square().sum().backward()
    assert x.grad.isfinite().all()
    assert layer.alpha.grad is None
    assert layer.weight.grad is not None


@pytest.mark.parametrize("frozen", ["x", "alpha", "weight", "bias"])
def test_frozen_parts_get_no_gradient_and_do_not_change_the_others(op, frozen):
    layer, x, g = randomised(op), torch.randn(50, 6), torch.randn(50, 6)
    everything = dict(
        zip(
            ["x", *dict(layer.named_parameters())],
            gradients(layer, x, g, type(layer).__call__),
            strict=True,
        )
    )
    layer.zero_grad()
    x.requires_grad_(frozen != "x")
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name != frozen)
    layer(x).backward(g)
    for name, tensor in {"x": x, **dict(layer.named_parameters())}.items():
        assert (tensor.grad is None) == (name == frozen)
        assert name == frozen or torch.equal(tensor.grad, everything[name])


def test_only_the_input_is_kept_for_backward(op):
    layer, x, kept = randomised(op), torch.randn(50, 6, requires_grad=True), []
    own = {p.data_ptr() for p in layer.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.data_ptr()) or t, lambda t: t
    ):
        layer(x)
    assert [p for p in kept if p not in own] == [x.data_ptr()]


def test_up_to_a_size_that_the_cache_holds_it_is_the_formula(op, monkeypatch):
    monkeypatch.setattr(_blocks, "SMALL", 300)
    layer = randomised(op)
    names = {n: type(layer(torch.randn(n, 6)).grad_fn).__name__ for n in (50, 51)}
    assert names[51] == "_BlocksBackward" != names[50]


@pytest.mark.parametrize("low", [-6, -3, -1, 0])
def test_relative_error_is_under_four_ulp(op, low):
    z = torch.logspace(low, 1, 100_001, dtype=torch.float64).float()
    y = op(1, alpha=1.0, affine=False, bias=False)(torch.stack([z, -z])[..., None])[..., 0].detach()
    exact = EXACT[op](z.double())
    ulp = torch.nextafter(exact.float(), torch.tensor(math.inf)) - exact.float()
    for sign, found in zip((1, -1), y, strict=True):
        assert float(((sign * found.double() - exact).abs() / ulp).max()) <= 4


def test_zero_infinity_nan_and_subnormals(op):
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-40, 6e4])[:, None]
    y = op(1, alpha=1.0)(x.requires_grad_())
    y.nan_to_num().sum().backward()
    slope = EXACT[op](torch.tensor(1e-3)).item() / 1e-3  # 1, and 2 / sqrt(pi)
    assert y.flatten().tolist()[:4] == [0.0, -0.0, 1.0, -1.0]
    assert math.isnan(y[4].item())
    assert y[5:7].flatten().tolist() == pytest.approx(
        [slope * 1e-45, -slope * 1e-40], rel=1e-4, abs=1e-45
    )
    assert x.grad.flatten().tolist()[2:4] == [0.0, 0.0]


def test_a_float16_stream_near_its_largest_number_does_not_overflow(op):
    # 2 * 6e4 is infinite in float16, and 0 times that is not a number
    for alpha in (2.0, 0.0):
        layer = op(6, alpha=alpha).half()
        x = torch.full((20, 6), 6e4, dtype=torch.float16, requires_grad=True)
        y = layer(x)
        y.float().sum().backward()
        assert y.tolist() == [[float(alpha > 0)] * 6] * 20
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("case", ["transposed", "expanded gradient", "empty", "channels-last"])
def test_any_layout_of_input_and_gradient(op, case):
    if case == "channels-last":
        layer, x = (
            randomised(op, axis=1),
            torch.randn(3, 6, 4, 5).to(memory_format=torch.channels_last),
        )
        assert layer(x).is_contiguous(memory_format=torch.channels_last)
    else:
        layer = randomised(op)
        x = torch.randn(11, 7, 6).transpose(0, 1) if case == "transposed" else torch.randn(40, 6)
        x = x[:0] if case == "empty" else x
    g = torch.ones(()).expand(x.shape) if case == "expanded gradient" else torch.randn(x.shape)
    ours, formula = (gradients(layer, x, g, run) for run in (type(layer).__call__, by_formula))
    assert torch.equal(layer(x), by_formula(layer, x))
    for a, b in zip(ours, formula, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_works_under_autocast_checkpointing_and_inference_mode(op):
    layer, x, g = randomised(op), torch.randn(40, 6), torch.randn(40, 6)
    with torch.inference_mode():
        assert torch.equal(layer(x), by_formula(layer, x))
    expected = gradients(layer, x, g, type(layer).__call__)
    kept = gradients(layer, x, g, lambda layer, x: checkpoint(layer, x, use_reentrant=False))
    with torch.autocast("cpu", torch.bfloat16):
        autocast = gradients(layer, x, g, type(layer).__call__)
    for a, b, c in zip(expected, kept, autocast, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_function_transforms_see_the_formula(op):
    layer, x = randomised(op), torch.randn(30, 6)
    parameters = dict(layer.named_parameters())

    def loss(parameters, row):
        return torch.func.functional_call(layer, parameters, (row,)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    _, tangent = torch.func.jvp(layer, (x,), (torch.ones_like(x),))
    leaf = x.clone().requires_grad_()
    layer(leaf).sum().backward()
    torch.testing.assert_close(each["alpha"].sum(0), layer.alpha.grad)
    torch.testing.assert_close(tangent, leaf.grad)


def test_threads_do_not_share_what_is_kept(op):
    layer, xs = randomised(op), [torch.randn(400, 6) for _ in range(4)]
    wrong = []

    def work(x):
        g = torch.ones_like(x)
        for _ in range(20):
            leaf = x.clone().requires_grad_()
            (found,) = torch.autograd.grad(layer(leaf), leaf, g)
            (truth,) = torch.autograd.grad(by_formula(layer, leaf), leaf, g)
            if not torch.allclose(found, truth, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work, args=(x,)) for x in xs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
