"""Tests of triplepoint.grokking.slow_time: the conversion against torch's own optimisers."""

import pytest
import torch

from triplepoint.errors import PlanError
from triplepoint.grokking.slow_time import slow_clock


def test_appendix_d_has_lam_0_032():
    clock = slow_clock(lr=1.0, weight_decay=1e-4, entries=59 * 11)
    assert clock.lam == pytest.approx(0.03245)
    assert clock.slow_time_per_step == pytest.approx(1e-4)
    assert clock.flow_time_per_step == pytest.approx(1 / 649)
    assert clock.slow_time(3000) == pytest.approx(0.3)
    assert clock.steps(0.3) == pytest.approx(3000)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_torchs_sgd_takes_the_step_of_the_papers_flow(reduction):
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    W = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    lr, wd = 0.07, 0.3
    clock = slow_clock(lr=lr, weight_decay=wd, entries=y.numel(), reduction=reduction)
    before = W.detach().clone()
    sgd = torch.optim.SGD([W], lr=lr, weight_decay=wd)
    torch.nn.functional.mse_loss(x @ W, y, reduction=reduction).backward()
    sgd.step()
    gradient = 2 * x.T @ (x @ before - y) + 2 * clock.lam * before
    torch.testing.assert_close(W.detach(), before - clock.flow_time_per_step * gradient)
    assert clock.slow_time_per_step == pytest.approx(2 * clock.lam * clock.flow_time_per_step)


def test_adamw_without_a_gradient_shrinks_by_its_nominal_slow_time():
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    adamw = torch.optim.AdamW([w], lr=1e-3, weight_decay=0.5)
    w.grad = torch.zeros_like(w)
    adamw.step()
    clock = slow_clock(lr=1e-3, weight_decay=0.5, optimizer="adamw")
    assert w.item() == pytest.approx(1 - clock.slow_time_per_step, abs=1e-15)
    assert (clock.lam, clock.flow_time_per_step) == (None, None)


def test_momentum_multiplies_the_pace_and_leaves_lam():
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([w], lr=1e-5, weight_decay=0.1, momentum=0.9)
    w.grad = torch.zeros_like(w)
    for _ in range(400):
        last = w.item()
        sgd.step()
    clock = slow_clock(lr=1e-5, weight_decay=0.1, momentum=0.9)
    assert 1 - w.item() / last == pytest.approx(clock.slow_time_per_step, rel=1e-3)
    assert clock.lam == slow_clock(lr=1e-5, weight_decay=0.1).lam


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_goes_both_ways(reduction):
    there = slow_clock(lr=0.1, weight_decay=0.02, entries=7, reduction=reduction)
    back = slow_clock(lr=0.1, lam=there.lam, entries=7, reduction=reduction)
    assert back.weight_decay == pytest.approx(0.02)


def test_without_decay_nothing_moves():
    clock = slow_clock(lr=0.1, weight_decay=0.0)
    assert (clock.slow_time(1e9), clock.steps(1.0)) == (0.0, float("inf"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"weight_decay": 0.1, "optimizer": "adam"}, "Adam's L2 term is neither"),
        ({"weight_decay": 0.1, "reduction": "none"}, "Give 'mean' or 'sum'"),
        ({}, "Exactly one of weight_decay and lam"),
        ({"weight_decay": 0.1, "lam": 0.1}, "Exactly one of weight_decay and lam"),
        ({"lam": 0.1, "optimizer": "adamw"}, "Give weight_decay; its slow time is nominal"),
        ({"weight_decay": -0.1}, "decay >= 0"),
        ({"weight_decay": 0.1, "momentum": 1.0}, r"momentum in \[0, 1\)"),
    ],
)
def test_settings_without_a_slow_time_are_refused(settings, text):
    with pytest.raises(PlanError, match=text):
        slow_clock(lr=0.1, **settings)
