"""Tests of triplepoint.monitoring.Monitor."""

import copy
import math

import pytest
import torch
from tests.tiny import build, corpus
from torch import nn
from torch.utils.checkpoint import checkpoint

from triplepoint import Monitor
from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.metrics import METRICS
from triplepoint.objectives import Objective
from triplepoint.ops import DyT


def hooks_of(model):
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


def batches(steps, *, start=0):
    stream = corpus().batches(0, batch=4, context=16, start=start)
    return [next(stream) for _ in range(steps)]


def train(model, steps, monitor=None, *, validate=False):
    optimizer, objective = torch.optim.AdamW(model.parameters(), lr=1e-3), Objective()
    for step, batch in enumerate(batches(steps), 1):
        optimizer.zero_grad()
        loss = objective.loss(model, batch)
        loss.backward()
        optimizer.step()
        if validate:
            model.eval()
            with torch.no_grad():
                objective.loss(model, batch)
            model.train()
        if monitor is not None:
            monitor.observe(step, train_loss=loss.item())
    return model


@pytest.fixture
def model():
    return build("dyt", dropout=0.1)(0)


def test_values_of_a_step_by_hand():
    op = DyT(2, alpha=1.0)
    with Monitor(nn.Sequential(op), arm="a", seed=3) as monitor:
        op(torch.tensor([[3.0, -1.0], [0.5, 1.5]]))
        monitor.observe(7)
    found = {r.metric: r for r in monitor.collect()}
    # |z| > 2: one of four; > 1: two; root of (9 + 1 + 0.25 + 2.25) / 4
    assert found["saturation@2"].value == 0.25
    assert found["saturation@1"].value == 0.5
    assert found["input_rms"].value == pytest.approx((12.5 / 4) ** 0.5)
    about = found["input_rms"]
    assert (about.site, about.step, about.n, about.arm, about.seed) == ("0", 7, 4, "a", 3)
    assert found["saturation@2"].unit == "share"


@pytest.mark.parametrize(("alpha", "least", "most"), [(0.5, 0.0, 0.0), (50.0, 0.8, 1.0)])
def test_an_alpha_that_has_grown_shows_as_the_share_of_gradients_that_are_dead(alpha, least, most):
    op, x = DyT(64, alpha=alpha), torch.randn(256, 64, requires_grad=True)
    with Monitor(nn.Sequential(op), metrics=("saturation",)) as monitor:
        op(x).sum().backward()
        monitor.observe(1)
    found = {r.metric: r.value for r in monitor.collect()}
    dead = (x.grad == 0).double().mean().item()
    assert found["saturation_exact"] == dead
    assert least <= dead <= most
    # tanh' < 0.0707 beyond |z| = 2: of the slope alpha that a gradient has at 0
    flat = (x.grad.abs() < 0.0707 * alpha).double().mean().item()
    assert found["saturation_slope"] == pytest.approx(flat, abs=1e-3)
    assert found["saturation_slope"] >= found["saturation_exact"]


def test_a_float16_stream_near_its_largest_number_is_measured_without_overflow():
    op = DyT(2, alpha=2.0).half()
    with Monitor(nn.Sequential(op), metrics=("saturation", "input_rms")) as monitor:
        op(torch.tensor([[6e4, 0.25]], dtype=torch.float16))
        monitor.observe(1)
    found = {r.metric: r.value for r in monitor.collect()}
    # 2 * 6e4 and the square of 6e4 are infinite in float16
    assert (found["saturation_exact"], found["saturation@0.5"]) == (0.5, 0.5)
    assert found["input_rms"] == pytest.approx(6e4 / 2**0.5, rel=1e-3)


def test_training_is_bit_equal_with_and_without_a_monitor(model):
    alone = build("dyt", dropout=0.1)(0)
    alone.load_state_dict(model.state_dict())
    torch.manual_seed(5)
    train(alone, 6)
    torch.manual_seed(5)
    with Monitor(model, every=2) as monitor:
        train(model, 6, monitor)
    for name, weight in alone.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    assert hooks_of(model) == 0


def test_only_sampled_steps_are_measured_and_each_record_is_handed_over_once(model):
    with Monitor(model, metrics=("input_rms",), every=3) as monitor:
        train(model, 7, monitor)
        steps = {r.step for r in monitor.collect() if r.metric == "input_rms"}
        assert steps == {1, 3, 6}
        assert monitor.collect() == []


def test_a_validation_pass_in_between_is_not_counted(model):
    counted = []
    for validate in (False, True):
        with Monitor(model, metrics=("input_rms",)) as monitor:
            train(model, 1, monitor, validate=validate)
        counted.append({r.n for r in monitor.collect() if r.metric == "input_rms"})
    assert counted[0] == counted[1] == {4 * 16 * 16}


def test_accumulated_batches_are_one_value_over_all_elements():
    op = DyT(1, alpha=1.0)
    with Monitor(nn.Sequential(op), metrics=("saturation",)) as monitor:
        op(torch.tensor([[3.0]]))
        op(torch.tensor([[0.0], [0.0], [0.0]]))
        monitor.observe(1)
    (found,) = [r for r in monitor.collect() if r.metric == "saturation@2"]
    # 1 of 4, not the mean of 1 and 0
    assert (found.value, found.n) == (0.25, 4)


def test_a_layer_recomputed_for_its_gradient_is_counted_once():
    net = nn.Sequential(DyT(3), nn.Linear(3, 3))
    with Monitor(net, metrics=("input_rms",)) as monitor:
        x = torch.randn(5, 3, requires_grad=True)
        checkpoint(net, x, use_reentrant=False).sum().backward()
        monitor.observe(1)
    assert [r.n for r in monitor.collect()] == [15]


@pytest.mark.parametrize("name", METRICS)
def test_any_metric_can_be_asked_for(name, model):
    with Monitor(model, metrics=(name,)) as monitor:
        logits = model(batches(1)[0][:, :-1])
        monitor.observe(1, logits=logits)
    found = monitor.collect()
    assert found and all(math.isfinite(r.value) and r.unit for r in found)
    assert name in {n.split("@")[0] for n in monitor.definitions()}


def test_a_norm_is_measured_but_squashes_nothing():
    norms = build()(0)
    with Monitor(norms) as monitor:
        train(norms, 1, monitor)
    assert {r.metric for r in monitor.collect()} == {"train_loss", "input_rms"}


def test_attach_twice_registers_once_and_detach_keeps_the_records(model):
    monitor = Monitor(model).attach().attach()
    train(model, 1, monitor)
    monitor.detach()
    monitor.detach()
    assert hooks_of(model) == 0
    assert monitor.collect()


# --- the phase


def test_the_phase_follows_from_the_losses_that_are_known(model):
    monitor = Monitor(model, plateau=3.0, planned_steps=100)
    assert monitor.observe(1) is None
    assert monitor.observe(1, train_loss=3.5) is None
    for step, loss in ((10, 3.1), (20, 2.9), (30, 2.8)):
        phase = monitor.observe(step, val_loss=loss)
    assert phase.phase == "fitting"
    assert monitor.observe(40, val_loss=2.7) == (
        "generalising",
        "left the plateau at step 20; validation loss 2.700",
    )
    assert monitor.observe(41).phase == "generalising"
    assert monitor.observe(42, train_loss=math.nan) == (
        "diverged",
        "the loss is not finite at step 42",
    )
    values = [r.value for r in monitor.collect() if r.metric == "val_loss"]
    assert values == [3.1, 2.9, 2.8, 2.7]


def test_a_train_loss_that_stays_above_the_plateau_diverged(model):
    monitor = Monitor(model, plateau=3.0)
    for step, loss in enumerate([2.5, 3.5, 3.6, 3.7], 1):
        phase = monitor.observe(step, train_loss=loss, val_loss=2.9)
    assert phase == ("diverged", "the loss left its range at step 2")


def test_noisy_batches_on_the_plateau_are_not_called_diverged(model):
    monitor = Monitor(model, plateau=3.0)
    noise = [2.8, 3.2, 3.2, 3.2, 2.7, 2.9]  # around 3.0: three in a row above it
    for step in range(1, 61):
        told = {"val_loss": 3.0} if step % 6 == 0 else {}
        phase = monitor.observe(step, train_loss=noise[step % 6], **told)
    assert phase.phase == "fitting"


def test_accuracies_tell_memorised_from_generalising(model):
    monitor = Monitor(model)
    for step in range(1, 4):
        phase = monitor.observe(step, train_accuracy=1.0, val_accuracy=0.1)
    assert phase.phase == "memorised"
    for step in range(4, 7):
        phase = monitor.observe(step, train_accuracy=1.0, val_accuracy=0.9)
    assert phase.phase == "generalising"


def test_messages_say_what_to_try(model):
    with pytest.raises(
        UnknownNameError, match=r"no metric 'saturatoin'\.\nDid you mean 'saturation'\?"
    ):
        Monitor(model, metrics=("saturatoin",))
    with pytest.raises(PlanError, match=r"every is 0\.\nGive a number of steps, at least 1"):
        Monitor(model, every=0)


def test_a_copy_of_the_model_is_not_counted():
    model = nn.Sequential(DyT(2, alpha=1.0), nn.Linear(2, 1))
    with Monitor(model, metrics=("input_rms",)) as monitor:
        averaged = copy.deepcopy(model)
        model(torch.tensor([[3.0, 4.0]]))
        averaged(torch.full((8, 2), 100.0))
        monitor.observe(1)
    (record,) = monitor.collect()
    assert record.value == pytest.approx(12.5**0.5)


def test_a_loss_may_still_be_the_tensor_that_was_differentiated(model):
    monitor = Monitor(model, "input_rms")
    monitor.observe(1, train_loss=torch.tensor(2.0, requires_grad=True))
    assert [(r.metric, r.value) for r in monitor.collect()] == [("train_loss", 2.0)]
