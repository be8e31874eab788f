"""Tests of triplepoint.grokking.trajectories."""

import functools
import math

import pytest
import scipy.integrate
import torch
from tests.grokking.exact import W1, X, Y, det
from tests.reference import grokking_isolated as twin

from triplepoint.errors import DataError, PlanError
from triplepoint.grokking import (
    accuracy,
    bogacki_shampine,
    euler,
    initial_first_layer,
    pair_task,
    predict,
    reduced_cost,
    simulate,
    simulate_joint,
)

literal_euler = functools.partial(euler, eta=0.01, cap=None)


def small_addition():
    """p = 5: unordered pairs in order, every third one held out."""
    pairs = torch.tensor([(a, b) for a in range(5) for b in range(a, 5)])
    one = torch.eye(5, dtype=torch.float64)
    X5, Y5 = one[pairs[:, 0]] + one[pairs[:, 1]], one[pairs.sum(1) % 5]
    train = torch.arange(15) % 3 != 2
    return det((5, 16), 1.1, 0.7, 0.13), X5[train], Y5[train], (X5[~train], Y5[~train])


def test_the_first_steps_of_a_small_run_are_known():
    E, x, y, test = small_addition()
    run = simulate(E, x, y, duration=0.03, integrator=literal_euler, test=test, every=1)
    assert [point.step for point in run.points] == [0, 1, 2, 3]
    assert [round(point.t, 12) for point in run.points] == [0, 0.01, 0.02, 0.03]
    known = [  # ||E||^2 and ||W2||^2 after 0, 1, 2, 3 steps of 0.01
        (41.24339090258367, 19.34957380144989),
        (40.9109369025849, 9.490448005507147),
        (40.29033259341334, 8.669627160225684),
        (39.663865178009075, 8.16200005422639),
    ]
    for point, (E_sq, W2_sq) in zip(run.points, known, strict=True):
        assert point.W1_sq == pytest.approx(E_sq, rel=1e-12)
        assert point.W2_sq == pytest.approx(W2_sq, rel=1e-11)
        assert point.train_accuracy == 1.0
    assert run.W1[0, 0].item() == pytest.approx(0.9212131538168461, rel=1e-12)
    assert run.W1[-1, -1].item() == pytest.approx(0.9242236528632132, rel=1e-12)
    mse = (predict(run.W1, run.W2, test[0]) - test[1]).square().mean()
    assert mse.item() == pytest.approx(0.5216363490470988, rel=1e-10)


@pytest.mark.parametrize("activation", ["relu", "square", "tanh", "gelu"])
def test_euler_walks_the_literal_path(activation):
    path = twin.euler_path(W1, X, Y, lam=0.1, activation=activation, eta=0.01, steps=5)
    run = simulate(
        W1, X, Y, lam=0.1, activation=activation, duration=0.05, integrator=literal_euler
    )
    torch.testing.assert_close(run.W1, path[-1], rtol=1e-10, atol=1e-12)


def test_the_cap_shortens_a_step_and_the_time_it_covers():
    E, x, y, _ = small_addition()
    G = reduced_cost(E, x, y, lam=0.0).half_grad
    # the plain step of 0.01 is 5.06 % of ||E||: just above this cap, far above the next
    for cap in (0.05, 0.001):
        visits = euler(lambda W: reduced_cost(W, x, y, lam=0.0), E, 1.0, eta=0.01, cap=cap)
        _, (t, moved, _) = next(visits), next(visits)
        assert float((moved - E).norm() / E.norm()) == pytest.approx(cap, rel=1e-10)
        assert t == pytest.approx(cap * float(E.norm() / G.norm()), rel=1e-10)


def test_the_default_cap_lets_the_papers_step_pass_and_stops_at_the_duration():
    E, x, y, _ = small_addition()
    run = simulate(E, x, y, duration=0.0035, every=1)
    assert [point.t for point in run.points] == pytest.approx([0, 0.001, 0.002, 0.003, 0.0035])


def exact_flow(W, duration, *, lam, activation):
    """The isolated flow by an independent solver."""

    def velocity(_, flat):
        here = torch.tensor(flat, dtype=torch.float64).reshape(W.shape)
        return -twin.half_gradient(here, X, Y, lam=lam, activation=activation).flatten().numpy()

    solved = scipy.integrate.solve_ivp(
        velocity, (0, duration), W.flatten().numpy(), rtol=1e-10, atol=1e-12
    )
    return torch.tensor(solved.y[:, -1]).reshape(W.shape)


@pytest.mark.parametrize("activation", ["tanh", "square"])
def test_the_adaptive_integrator_meets_an_independent_solver_within_its_tolerance(activation):
    exact = exact_flow(W1, 1.0, lam=0.1, activation=activation)
    errors = {}
    for tolerance in (1e-3, 1e-6):
        run = simulate(
            W1, X, Y, lam=0.1, activation=activation, duration=1.0,
            integrator=functools.partial(bogacki_shampine, tolerance=tolerance),
        )  # fmt: skip
        errors[tolerance] = float((run.W1 - exact).norm() / exact.norm())
        assert run.points[-1].t == pytest.approx(1.0, rel=1e-12)
    assert errors[1e-3] < 5e-3
    assert errors[1e-6] < 2e-5


def test_the_adaptive_integrator_is_of_third_order():
    # an error per step of order h^3 means steps ~ tolerance^(-1/3): 10 times more for 1000 times less
    steps = []
    for tolerance in (1e-5, 1e-8):
        run = simulate(
            W1, X, Y, lam=0.1, activation="tanh", duration=1.0,
            integrator=functools.partial(bogacki_shampine, tolerance=tolerance),
        )  # fmt: skip
        steps.append(run.points[-1].step)
    assert 7 < steps[1] / steps[0] < 13


def test_the_norm_of_the_first_layer_follows_its_law():
    # d||W1||^2/dt = 2 (q ||W2||^2 - ||W1||^2), q = 1, integrated by the trapezoidal rule
    run = simulate(
        W1, X, Y, duration=0.2, every=1, integrator=functools.partial(euler, eta=2e-4, cap=None)
    )
    speeds = [2 * (point.W2_sq - point.W1_sq) for point in run.points]
    gained = sum((a + b) / 2 * 2e-4 for a, b in zip(speeds, speeds[1:], strict=False))
    assert run.points[-1].W1_sq - run.points[0].W1_sq == pytest.approx(gained, rel=1e-3)


def test_a_start_far_above_balance_is_late_by_the_logarithm_of_its_scale():
    # far from balance W1 only shrinks, as e^-t: a doubled start is at the old one after ln 2
    late = simulate(
        40 * W1,
        X,
        Y,
        duration=math.log(2),
        integrator=functools.partial(bogacki_shampine, tolerance=1e-6),
    )
    torch.testing.assert_close(late.W1, 20 * W1, rtol=2e-4, atol=2e-4)


def test_records_come_every_so_many_steps_and_at_both_ends():
    seen = []
    run = simulate(W1, X, Y, duration=0.07, integrator=literal_euler, every=3, watch=seen.append)
    assert [point.step for point in run.points] == [0, 3, 6, 7]
    assert seen == list(run.points)
    assert run.points[0].test_accuracy is None
    assert run.first_reaching(0.0) is None


def test_the_sum_of_squares_is_that_of_the_network():
    run = simulate(W1, X, Y, lam=0.5, duration=0.01, integrator=literal_euler)
    assert run.points[-1].sse == pytest.approx(
        float((predict(run.W1, run.W2, X) - Y).square().sum()), rel=1e-10
    )
    assert run.points[-1].complexity == pytest.approx(float(run.W1.norm() * run.W2.norm()))


def test_first_reaching_finds_the_first_record_at_that_accuracy():
    E, x, y, test = small_addition()
    run = simulate(E, x, y, duration=1.0, integrator=literal_euler, test=test, every=1)
    best = max(point.test_accuracy for point in run.points)
    first = run.first_reaching(best)
    assert first == next(point for point in run.points if point.test_accuracy == best)
    assert run.first_reaching(best + 0.01) is None
    assert run.points[-1].test_accuracy == accuracy(predict(run.W1, run.W2, test[0]), test[1])


# joint training


def test_one_joint_step_is_the_gradient_of_the_penalised_loss():
    lam, eta, rate = 0.3, 1e-3, 4.0
    W2 = det((9, 3), 0.2, 0.4, 0.6)
    both = [W.clone().requires_grad_() for W in (W1, W2)]
    loss = twin.penalised_loss(*both, X, Y, lam=lam, activation="relu")
    G1, G2 = torch.autograd.grad(loss, both)
    run = simulate_joint(W1, X, Y, lam=lam, steps=1, W2=W2, eta=eta, rate=rate)
    torch.testing.assert_close(run.W1, W1 - eta * G1)
    torch.testing.assert_close(run.W2, W2 - eta * rate * G2)
    assert run.points[-1].t == pytest.approx(2 * lam * eta)


def test_joint_training_starts_memorised_and_loses_its_imbalance_as_the_flow_says():
    # ||w1_b||^2 - ||w2_b||^2 of every unit b decays as e^{-2 t}, whatever the loss does
    lam, steps, eta = 0.1, 4000, 5e-4
    start = reduced_cost(W1, X, Y, lam=lam)
    run = simulate_joint(W1, X, Y, lam=lam, steps=steps, eta=eta)
    assert run.points[0].sse == pytest.approx(start.sse)
    before = W1.square().sum(0) - start.W2.square().sum(1)
    after = run.W1.square().sum(0) - run.W2.square().sum(1)
    shrunk = math.exp(-2 * run.points[-1].t)
    torch.testing.assert_close(after, shrunk * before, rtol=5e-3, atol=5e-3)
    assert run.points[-1].t == pytest.approx(0.4)


def test_a_faster_second_layer_brings_joint_training_to_the_isolated_flow():
    lam, t = 0.1, 0.1
    alone = simulate(W1, X, Y, lam=lam, duration=t, integrator=literal_euler).W1
    gaps = []
    for rate in (1.0, 20.0):
        eta = 2e-3 / rate
        steps = round(t / (2 * lam * eta))
        run = simulate_joint(W1, X, Y, lam=lam, steps=steps, eta=eta, rate=rate)
        gaps.append(float((run.W1 - alone).norm()))
    assert gaps[1] < gaps[0] / 5


def test_without_decay_slow_time_stands_still_and_a_memorised_net_does_not_move():
    run = simulate_joint(W1, X, Y, lam=0.0, steps=50)
    assert {point.t for point in run.points} == {0.0}
    torch.testing.assert_close(run.W1, W1)


@pytest.mark.parametrize("rate", [1.0, 5.0])
def test_the_default_joint_step_is_stable(rate):
    W2 = det((9, 3), 0.2, 0.4, 0.6)
    # smooth, because near the end a kink lets any step rise by 1e-4
    run = simulate_joint(W1, X, Y, lam=0.1, steps=500, W2=W2, rate=rate, every=1, activation="tanh")
    costs = [point.sse + 0.1 * (point.W1_sq + point.W2_sq) for point in run.points]
    assert all(b <= a * (1 + 1e-12) for a, b in zip(costs, costs[1:], strict=False))
    assert costs[-1] < costs[0] / 2


def test_a_joint_step_too_long_is_named():
    with pytest.raises(DataError, match="finite numbers by step 200 of 200.\nTry a smaller step"):
        simulate_joint(W1, X, Y, lam=0.1, steps=200, W2=det((9, 3), 2, 3, 5), eta=1.0)


@pytest.mark.parametrize("settings", [{"duration": 0.0}, {"duration": math.inf}, {"every": 0}])
def test_a_run_without_length_is_refused(settings):
    with pytest.raises(PlanError, match="positive length .*\nTry duration=5.0 .or steps=5000"):
        simulate(W1, X, Y, **settings)


@pytest.mark.parametrize("settings", [{"eta": 0.0}, {"cap": -1.0}])
def test_eulers_numbers_are_checked(settings):
    with pytest.raises(PlanError, match="step and cap must be positive.*\nTry eta=1e-3."):
        simulate(W1, X, Y, integrator=functools.partial(euler, **settings))


def test_a_tolerance_and_a_rate_are_checked():
    with pytest.raises(PlanError, match="tolerance must be positive, got 0.0.\nTry tolerance=1e-3"):
        simulate(W1, X, Y, integrator=functools.partial(bogacki_shampine, tolerance=0.0))
    with pytest.raises(PlanError, match="Step and rate must be positive.*\nTry rate=1."):
        simulate_joint(W1, X, Y, lam=1.0, steps=1, rate=-1.0, eta=1e-3)


def test_a_start_that_is_not_finite_is_refused():
    broken = W1.clone()
    broken[0, 0] = math.nan
    with pytest.raises(DataError, match="1 of 36 in W1 are inf or nan"):
        simulate(broken, X, Y)


# the paper's own run


def grokking_run(p, h, *, integrator, duration, every):
    task = pair_task("add", p=p)
    W = initial_first_layer(p, h)
    return simulate(
        W,
        *task.train_set,
        duration=duration,
        integrator=integrator,
        test=task.test_set,
        every=every,
    )


def test_p23_memorises_first_and_generalises_later():
    run = grokking_run(
        23, 256, integrator=functools.partial(euler, eta=0.02), duration=3.6, every=1
    )
    assert all(point.train_accuracy == 1.0 for point in run.points)
    late = [point.t for point in run.points if point.test_accuracy < 0.05]
    assert max(late) > 1.0
    # 2.46 to 3.12 over splits and starts
    assert 2.2 < run.first_reaching(0.99).t < 3.5


@pytest.mark.slow
def test_p37_memorises_first_and_generalises_later():
    run = grokking_run(
        37, 512, integrator=functools.partial(euler, cap=None), duration=2.5, every=25
    )
    assert all(point.train_accuracy == 1.0 and point.sse == 0 for point in run.points)
    assert max(p.step for p in run.points if p.test_accuracy < 0.05) >= 1000
    assert run.first_reaching(0.99).step <= 2500
    # ||W1|| ||W2|| at 99 % was 207.7 to 216.5 over six runs
    assert 200 < run.first_reaching(0.99).complexity < 225
