"""Tests of the tangent diagnostics of a grokking monitor."""

import itertools

import pytest
import torch
from tests.monitoring.small import descend, monitored, series, two_layers
from torch import nn

from triplepoint.errors import ModelError, PlanError
from triplepoint.grokking import (
    compare_update,
    pair_task,
    tangent_projection,
    watch_kinks,
)
from triplepoint.grokking.kinks import project_with_mean_gates
from triplepoint.grokking.linearisation import stack

TASK = pair_task("add", p=11)


def theta_of(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def watched_and_kept(net, *, every, window, steps, lr=0.5, **settings):
    """Diagnostics of a monitor, and the parameters at every step for their slow twin."""
    monitor = monitored(net, TASK, every=every, diagnose_every=every, window=window, **settings)
    kept = [theta_of(net)]

    def observe(step, loss):
        kept.append(theta_of(net))
        monitor.observe(step)

    with monitor:
        monitor.observe(0)
        descend(net, TASK, steps, observe=observe, lr=lr)
    return monitor.collect(), kept, monitor


def at(net, theta):
    """A copy of the net with these parameters, float64."""
    other = two_layers(act=type(net[1])).double()
    nn.utils.vector_to_parameters(theta.double(), other.parameters())
    return other


def test_a_window_equals_its_slow_twin_of_kept_parameters():
    net = two_layers()
    records, kept, _ = watched_and_kept(net, every=60, window=40, steps=120)
    found = {r.metric: r.value for r in records if r.step == 120}
    X = TASK.train_set[0]
    middle, update = at(net, kept[100]), kept[120].double() - kept[80].double()
    drift = tangent_projection(middle, X)
    twin = compare_update(update, drift, slow_time=40 * 0.5 * 1e-4)
    assert found["cosine_tangent"] == pytest.approx(twin.cosine, abs=1e-6)
    assert found["cosine_weights"] == pytest.approx(twin.null_cosine, abs=1e-9)
    assert found["speed_ratio"] == pytest.approx(twin.speed_ratio, rel=1e-6)
    assert found["tau"] == pytest.approx(drift.share**2, rel=1e-6)
    assert found["tangent_share_update"] == pytest.approx(
        tangent_projection(middle, X, update).share, rel=1e-6
    )
    sigma = torch.linalg.svdvals(stack(middle, X).at().jacobian())[-1].item()
    # from conjugate gradients: an estimate from above
    assert sigma * (1 - 1e-9) <= found["sigma_min"] <= 1.02 * sigma
    assert found["validity"] == pytest.approx(506 * 1e-4 / 2 / found["sigma_min"] ** 2)


def test_kinks_of_a_window_equal_those_of_kept_pre_activations():
    net = two_layers()
    records, kept, _ = watched_and_kept(net, every=60, window=40, steps=60)
    found = {r.metric: r.value for r in records if r.step == 60}
    X = TASK.train_set[0]
    firsts = [at(net, theta)[0].weight.T for theta in kept[20:61]]
    kinks = watch_kinks(X @ W1 for W1 in firsts)
    middle = at(net, kept[40])
    W1, W2 = middle[0].weight.detach().T, middle[2].weight.detach().T
    flat = project_with_mean_gates(X, W1, W2, kinks).flat()
    begin, end = at(net, kept[20]), at(net, kept[60])
    moved = torch.cat([(end[i].weight - begin[i].weight).detach().T.reshape(-1) for i in (0, 2)])
    assert found["stuck_share"] == kinks.stuck_share > 0
    cosine = (moved @ flat / (moved.norm() * flat.norm())).item()
    assert found["cosine_kink"] == pytest.approx(cosine, abs=1e-6)


def test_any_network_is_diagnosed_matrix_free():
    generator = torch.Generator().manual_seed(0)
    layers = nn.Linear(11, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 11)
    net = nn.Sequential(*layers)
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=generator) * (2 / p.shape[-1]) ** 0.5
    records, kept, monitor = watched_and_kept(net, every=20, window=10, steps=20)
    found = {r.metric: r.value for r in records if r.step == 20}
    assert "cosine_kink" not in found
    nn.utils.vector_to_parameters(kept[15], net.parameters())
    twin = compare_update(
        kept[20].double() - kept[10].double(),
        tangent_projection(net, TASK.train_set[0].float()),
        slow_time=1.0,
    )
    assert found["cosine_tangent"] == pytest.approx(twin.cosine, abs=1e-5)


def test_the_tangent_share_of_the_gradient_of_a_smooth_net_is_small_on_the_manifold():
    # theorem 4.14: at the nearest point of the manifold grad L is normal to first order
    net = two_layers(h=128, act=nn.Tanh)
    records, *_ = watched_and_kept(net, every=1500, window=10, steps=1500, lr=3.0)
    found = {r.metric: r.value for r in records if r.step == 1500}
    assert found["train_loss"] < 1e-3
    assert found["tangent_share_gradient"] < 0.1


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(11, 11 * 5)
        self.out = nn.Linear(55, 11)

    def forward(self, x):
        return self.out(self.layer(x) + torch.randn(55))


def test_a_model_without_a_jacobian_is_refused_before_the_run():
    with pytest.raises(ModelError, match=r"Two calls on the same inputs gave different outputs"):
        monitored(Noisy(), TASK, diagnose_every=20, window=10)


def test_adamw_has_no_validity_number_and_without_a_clock_there_is_no_speed():
    net = two_layers()
    records, *_ = watched_and_kept(net, every=20, window=10, steps=20, clock="adamw")
    names = {r.metric for r in records}
    assert "validity" not in names and {"sigma_min", "speed_ratio"} <= names
    records, *_ = watched_and_kept(two_layers(), every=20, window=10, steps=20, clock=None)
    assert "speed_ratio" not in {r.metric for r in records}


def test_windows_may_follow_each_other_without_a_gap():
    net = two_layers()
    records, kept, _ = watched_and_kept(net, every=20, window=20, steps=60)
    steps, cosines = series(records, "cosine_weights")
    assert steps == [20, 40, 60]
    update, middle = kept[60].double() - kept[40].double(), -kept[50].double()
    assert cosines[-1] == pytest.approx((update @ middle / update.norm() / middle.norm()).item())


def test_diagnostics_beyond_the_budget_are_counted_and_not_made():
    # every reading of the timer is a second later: a share of 1 in a million of the time is never enough twice
    ticks = itertools.count()
    net = two_layers()
    records, _, monitor = watched_and_kept(
        net, every=20, window=10, steps=100, budget=1e-6, timer=lambda: float(next(ticks))
    )
    assert series(records, "tau")[0] == [20]
    assert monitor.skipped == monitor.facts()["skipped_diagnostics"] == {"over the time budget": 4}


def test_a_window_with_missed_steps_counts_as_skipped():
    net = two_layers()
    monitor = monitored(net, TASK, every=20, diagnose_every=20, window=10).attach()
    for step in (0, 20, 30, 40):  # 30 begins a window, 35 is missing
        monitor.observe(step)
    assert monitor.skipped == {"a step of the window was not observed": 2}
    assert series(monitor.collect(), "tau")[0] == []


def test_a_window_whose_end_is_missed_does_not_leak_into_the_next():
    net = two_layers()
    watched = monitored(net, TASK, every=20, diagnose_every=20, window=10).attach()
    fresh = monitored(net, TASK, every=20, diagnose_every=20, window=10).attach()
    for step in range(41):
        net[0].weight.data.add_(0.01 * torch.randn(net[0].weight.shape))
        if step != 20:
            watched.observe(step)
        if step >= 30:
            fresh.observe(step)
    assert watched.skipped == {"a step of the window was not observed": 1}
    first, second = (
        {r.metric: r.value for r in m.collect() if r.step == 40} for m in (watched, fresh)
    )
    assert first["stuck_share"] == second["stuck_share"] > 0


def test_a_step_observed_twice_counts_once():
    net = two_layers()
    monitor = monitored(net, TASK, every=1, diagnose_every=20, window=10).attach()
    for step in range(21):
        monitor.observe(step)
        monitor.observe(step)
    assert series(monitor.collect(), "tau")[0] == [20]


def test_cross_entropy_and_too_few_parameters_have_no_manifold():
    narrow = monitored(two_layers(h=11), TASK, diagnose_every=200)
    applies, reason = next(p[1:] for p in narrow.applies() if p.part == "zero-loss manifold")
    assert not applies
    assert reason == "242 parameters cannot meet 506 targets: there is no such set"
    assert narrow.skipped == {}


def test_messages_say_what_to_try():
    net = two_layers()
    with pytest.raises(
        PlanError,
        match=r"A window of 200 steps does not fit .* every 100\.\nGive diagnose_every=1000",
    ):
        monitored(net, TASK, diagnose_every=100)
    with pytest.raises(PlanError, match=r"A window of 9 steps"):
        monitored(net, TASK, diagnose_every=100, window=9)
    with pytest.raises(PlanError, match=r"budget is 0\.\nGive a share of the time above 0"):
        monitored(net, TASK, diagnose_every=1000, budget=0)


def test_with_a_frozen_layer_the_manifold_is_that_of_the_other():
    task, net = pair_task("add", p=5), two_layers(5, 32, act=nn.Tanh)
    net[2].weight.requires_grad_(False)
    monitor = monitored(net, task, diagnose_every=10, window=10)
    for step in range(11):
        monitor.observe(step)
    X, theta = task.train_set[0].float(), net[0].weight.detach()
    J = torch.func.jacrev(lambda W: torch.tanh(X @ W.T) @ net[2].weight.T)(theta).reshape(-1, 160)
    J, theta = J.double(), theta.double().reshape(-1)
    tangent = theta - torch.linalg.pinv(J) @ (J @ theta)
    (tau,) = series(monitor.collect(), "tau")[1]
    assert tau == pytest.approx(float(tangent.square().sum() / theta.square().sum()), rel=1e-4)
