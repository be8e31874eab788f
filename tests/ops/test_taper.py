"""Tests of triplepoint.ops.taper."""

import copy
import math

import pytest
import torch
from tests.reference import ops as twin
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.ops import Taper
from triplepoint.ops.taper import DECAY, fold, gate_at


def randomised(op):
    for parameter in op.parameters():
        nn.init.normal_(parameter)
    return op


def advanced(op, to, *, steps=10, batches=None):
    """Take an op through the training steps up to ``to``."""
    for step in range(1, to + 1):
        op.advance(step, steps=steps)
        op(torch.randn(8, op.dim) if batches is None else batches[step - 1])
    return op


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(5, eps=0.1), nn.RMSNorm(5, eps=0.1), nn.RMSNorm(5)], ids=str
)
def test_is_the_norm_it_replaced_until_the_taper_starts(norm):
    randomised(norm)
    op, x = Taper.from_norm(norm), 3 * torch.randn(7, 5)
    advanced(op, 2)
    torch.testing.assert_close(op(x), norm(x))


@pytest.mark.parametrize("centred", [True, False])
def test_agrees_with_its_twin(centred):
    op = randomised(Taper(5, centred=centred, eps=1e-3))
    op.gate.fill_(0.3)
    op.scale.fill_(1.7)
    x = torch.randn(4, 5)
    for token, y in zip(x.tolist(), op(x), strict=True):
        expected = twin.taper(
            token, gain=op.weight.tolist(), tapered_gain=op.tapered_weight.tolist(),
            shift=op.bias.tolist(), gate=0.3, scale=1.7, eps=1e-3, centred=centred,
        )  # fmt: skip
        assert y.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_schedule_is_one_then_half_a_cosine_then_zero():
    gates = [gate_at(step / 10, start=0.2, end=0.8) for step in range(1, 11)]
    assert gates[:2] == [1.0, 1.0]
    # a third of the way: (1 + cos 60 degrees) / 2
    assert gates[3] == pytest.approx(0.75)
    assert gates[4] == pytest.approx(0.5)
    assert gates[7:] == pytest.approx([0.0] * 3, abs=1e-12)


def test_the_scale_is_the_least_squares_match_of_the_papers_formula():
    op = randomised(Taper(4, centred=False, eps=0.0))
    batches = [(1 + n) * torch.randn(16, 4) for n in range(3)]
    advanced(op, 3, batches=batches)
    above = below = 0.0
    for x in batches[:2]:  # the third step is the first of the taper
        rms = x.square().mean(-1).sqrt()
        size = (op.weight.detach() * x).square().sum(-1)
        above = DECAY * above + (1 - DECAY) * float((size / rms).mean())
        below = DECAY * below + (1 - DECAY) * float(size.mean())
    assert op.scale.item() == pytest.approx(above / below, rel=1e-5)
    assert torch.equal(op.tapered_weight, op.weight)


def test_no_other_scale_is_nearer_to_the_norm():
    op = Taper(6, centred=True)
    x = torch.randn(500, 6) * torch.rand(500, 1) + 0.3
    advanced(op, 3, batches=[x] * 3)
    normed, c = Taper(6, centred=True)(x).detach(), op.scale.item()
    miss = [float((normed - factor * c * x).square().sum()) for factor in (0.98, 1.0, 1.02)]
    assert miss[1] < min(miss[0], miss[2])


def test_the_gains_part_once_the_taper_has_started():
    op = advanced(Taper(4), 5)
    with torch.no_grad():
        op.tapered_weight.mul_(2)
    advanced_again = copy.deepcopy(op)
    advanced_again.advance(6, steps=10)
    assert torch.equal(advanced_again.tapered_weight, op.tapered_weight)


def test_when_it_has_ended_nothing_depends_on_the_rest_of_the_token():
    op = advanced(randomised(Taper(4)), 10).eval()
    x = torch.randn(3, 4)
    other = x.clone()
    other[:, 0] += 100
    assert torch.equal(op(x)[:, 1:], op(other)[:, 1:])
    torch.testing.assert_close(op(x), op.scale * op.tapered_weight * x + op.bias)


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_resumed_run_goes_on_exactly(at):
    batches = [torch.randn(8, 4) for _ in range(10)]
    whole = advanced(randomised(Taper(4)), at, batches=batches)
    resumed = Taper(4)
    resumed.load_state_dict(whole.state_dict())
    for op in (whole, resumed):
        for step in range(at + 1, 11):
            op.advance(step, steps=10)
            op(batches[step - 1])
    assert all(
        torch.equal(a, b)
        for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    )


def test_evaluation_does_not_change_what_is_averaged():
    op = advanced(Taper(4), 1)
    before = copy.deepcopy(op.state_dict())
    op.eval()(100 * torch.randn(8, 4))
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), op.state_dict().values(), strict=True)
    )


def test_the_averages_stay_float32_in_a_bfloat16_model():
    op = Taper(4).bfloat16()
    assert {b.dtype for b in op.buffers()} == {torch.float32}
    assert {p.dtype for p in op.parameters()} == {torch.bfloat16}
    advanced(op, 6, batches=[torch.randn(8, 4).bfloat16()] * 6)
    assert 0 < op.gate.item() < 1


@pytest.mark.parametrize("affine", [True, False])
def test_folding_moves_it_into_the_layers_behind_it(affine):
    op = randomised(Taper(4, affine=affine))
    layers = nn.Linear(4, 3), nn.Linear(4, 5)
    advanced(op, 10).eval()
    x = torch.randn(6, 4)
    before = [layer(op(x)) for layer in layers]
    fold(op, *layers)
    assert torch.equal(op(x), x)
    for layer, y in zip(layers, before, strict=True):
        torch.testing.assert_close(layer(x), y, rtol=1e-5, atol=1e-5)


def test_folding_is_refused_before_the_end_and_into_what_cannot_take_it():
    op = advanced(randomised(Taper(4)), 5)
    with pytest.raises(ModelError) as caught:
        fold(op, nn.Linear(4, 3))
    assert str(caught.value).split("\n") == [
        "Only a taper that has ended can be folded; its gate is 0.5.",
        "Train to the end of the taper first.",
    ]
    op.advance(10, steps=10)
    for layer in (nn.Linear(5, 3), nn.Linear(4, 3, bias=False), nn.Identity()):
        with pytest.raises(ModelError) as caught:
            fold(op, nn.Linear(4, 2), layer)
        assert str(caught.value).split("\n") == [
            f"A taper of 4 features folds into an nn.Linear that reads them and has a bias, got {layer}.",
            "Leave this taper as it is: with its gate at 0 it is a scaling of each feature.",
        ]


def test_a_taper_that_saw_no_training_step_is_refused():
    with pytest.raises(ModelError) as caught:
        Taper(4).advance(5, steps=10)
    assert str(caught.value).split("\n") == [
        "The taper starts, but no training step was seen from which to match its scale.",
        "Call advance() before each step from the first on, in training mode, or choose a larger start.",
    ]


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.5), (0.5, 0.5), (0.2, 1.1)])
def test_a_schedule_that_makes_no_sense_is_refused(start, end):
    with pytest.raises(ModelError) as caught:
        Taper(4, start=start, end=end)
    assert str(caught.value).split("\n") == [
        f"A taper needs 0 < start < end <= 1, got start={start:g} and end={end:g}.",
        "They are shares of the run: try start=0.2, end=0.8.",
    ]


def test_a_half_cosine_is_flat_at_both_ends():
    near = [1 - gate_at(0.201, start=0.2, end=0.8), gate_at(0.799, start=0.2, end=0.8)]
    assert near == pytest.approx([(math.pi / 600) ** 2 / 4] * 2, rel=1e-3)
