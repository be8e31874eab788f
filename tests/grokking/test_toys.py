"""Tests of the toys: triplepoint.grokking.toys, addition, flows and dense."""

import math

import pytest
import torch

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.addition import (
    addition_descent,
    addition_end,
    addition_flow,
    addition_losses,
    addition_times,
)
from triplepoint.grokking.dense import jacobian_rank, tangent_part
from triplepoint.grokking.flows import descend, integrate
from triplepoint.grokking.toys import (
    addition,
    leaky_relu_sum,
    orthogonality_ratio,
    parabola,
    two_layer_linear,
)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


PAPER = f64(-1.0, 1.0)
THREE = f64(3.0, -1.0, 0.5)

# w0, lam, weights after flow time 10, weights after 100 steps of 0.1
TRAJECTORIES = [
    (
        PAPER,
        0.01,
        [0.17629412254390886, 1.8137556286998726],
        [0.176458070933463, 1.8135916803103185],
    ),
    (PAPER, 0.1, [0.8170456691443396, 1.087716235617565], [0.8197613964861994, 1.0850005082757053]),
    (
        PAPER,
        0.2,
        [0.8907752702021748, 0.9274065479796433],
        [0.8922205897320594, 0.9259612284497587],
    ),
    (
        THREE,
        0.05,
        [1.7806786799151744, 0.3091609152294049, 0.8609800769865685],
        [1.7766766301357126, 0.31254726504279573, 0.8615957769526396],
    ),
]


@pytest.mark.parametrize(("w0", "lam", "flow", "descent"), TRAJECTORIES)
def test_addition_trajectories_have_their_exact_values(w0, lam, flow, descent):
    assert addition_flow(w0, 10.0, lam=lam).tolist() == pytest.approx(flow, abs=1e-14)
    assert addition_descent(w0, 100, lam=lam, eta=0.1).tolist() == pytest.approx(descent, abs=1e-14)


@pytest.mark.parametrize(("w0", "lam", "flow", "descent"), TRAJECTORIES)
def test_simulations_follow_the_closed_forms(w0, lam, flow, descent):
    toy = addition(len(w0))
    times = [0.5, 1.0, 10.0, 50.0]
    ode = integrate(lambda w: -toy.gradient(w, lam), w0, times)
    assert (ode - addition_flow(w0, f64(*times), lam=lam)).abs().max() < 1e-9
    path = descend(lambda w: toy.gradient(w, lam), w0, eta=0.1, steps=1000)
    closed = addition_descent(w0, torch.arange(1001), lam=lam, eta=0.1)
    assert (path - closed).abs().max() < 1e-14


@pytest.mark.parametrize(
    ("lam", "train", "test", "fit", "drift", "drift_theory"),
    [
        (0.01, 9.90e-5, 4.95e-5, 7, 1324, 1323.3),
        (0.1, 9.07e-3, 4.54e-3, 7, 132, 131.1),
        (0.2, 3.31e-2, 1.65e-2, 8, 65, 64.9),
    ],
)
def test_floors_and_steps_of_the_papers_two_weights(lam, train, test, fit, drift, drift_theory):
    end = addition_end(2, lam=lam)
    assert (end.train_loss, end.test_loss) == pytest.approx((train, test), rel=2e-3)
    assert end.w == pytest.approx(2 / (2 + lam), abs=1e-15)
    times = addition_times(PAPER, lam=lam, eta=0.1)
    assert (math.ceil(times.fit), math.ceil(times.drift)) == (fit, drift)
    assert times.drift == pytest.approx(drift_theory, abs=0.05)
    # and the run itself crosses there
    w = addition_descent(PAPER, torch.arange(2000), lam=lam, eta=0.1)
    losses, spread = addition_losses(w)[0], (w - w.mean(1, keepdim=True)).square().sum(1)
    assert int((losses <= end.train_loss + 0.01).nonzero()[0]) == fit
    assert int((spread < 0.01).nonzero()[0]) == drift


def test_floors_are_where_the_losses_end():
    w = addition_flow(THREE, 1e4, lam=0.05)
    end = addition_end(3, lam=0.05)
    train, test = addition_losses(w)
    assert (train.item(), test.item()) == pytest.approx((end.train_loss, end.test_loss), rel=1e-12)
    assert end.train_loss == pytest.approx(0.0024187046492878095, rel=1e-12)


@pytest.mark.parametrize("w0", [PAPER, f64(5.0, 2.0)], ids=["from below", "from above"])
def test_fit_time_is_when_the_flow_is_that_close(w0):
    times = addition_times(w0, lam=0.1, margin=0.01, tau=0.3)
    train, _ = addition_losses(addition_flow(w0, times.fit, lam=0.1))
    assert train.item() == pytest.approx(addition_end(2, lam=0.1).train_loss + 0.01, rel=1e-12)
    w = addition_flow(w0, times.drift, lam=0.1)
    assert (w - w.mean()).square().sum().item() == pytest.approx(0.3, rel=1e-12)


def test_drift_time_is_inversely_proportional_to_lam():
    assert addition_times(PAPER, lam=0.01).drift == pytest.approx(132.4579341637009, rel=1e-12)
    assert addition_times(PAPER, lam=0.1).drift == pytest.approx(13.24579341637009, rel=1e-12)
    assert addition_times(f64(1.0, 1.0), lam=0.1).drift == 0.0


@pytest.mark.parametrize("lam", [1e-4, 1e-3, 1e-2])
def test_tangential_speed_on_the_line_is_2_root_2_lam(lam):
    toy, w = addition(2), f64(0.0, 2.0)
    along = tangent_part(toy.J(w), toy.gradient(w, lam))
    assert along.norm().item() == pytest.approx(2.8284271247461903 * lam, rel=1e-10)
    assert along[1] > 0  # the flow goes against it, towards (1, 1)


@pytest.mark.parametrize(
    ("x0", "limit", "measured"),
    [
        (0.5, 0.7071067811865475, [0.758718, 0.712124, 0.707607, 0.707157]),
        (1.0, 0.35777087639996635, [0.385058, 0.360347, 0.358027, 0.357796]),
    ],
)
def test_gradient_of_the_parabola_is_normal_up_to_the_distance(x0, limit, measured):
    foot = f64(x0, x0**2)
    found = [orthogonality_ratio(parabola(), foot, dist=10.0**-n) for n in (1, 2, 3, 4)]
    assert found == pytest.approx(measured, abs=1e-6)
    assert orthogonality_ratio(parabola(), foot, dist=-1e-7) == pytest.approx(limit, rel=1e-6)


def parabola_gap(lam):
    """Sup distance over slow time [0, 6] between the penalised and the Riemannian flow."""
    toy, start = parabola(-1.0), f64(1.5, 1.25)
    times = torch.linspace(0, 6, 61).tolist()
    limit = integrate(toy.riemannian, start, times)
    assert limit[-1].tolist() == pytest.approx([0.72087836, -0.4803344], abs=1e-6)
    path = integrate(toy.penalised(lam), start, times, rtol=1e-6, atol=1e-8)
    return (path - limit).norm(dim=1).max().item()


def test_penalised_flow_meets_the_riemannian_one_to_first_order_in_lam():
    gaps = [parabola_gap(lam) for lam in (1e-1, 1e-2)]
    assert gaps == pytest.approx([0.03354, 0.003303], rel=5e-3)


@pytest.mark.slow
def test_penalised_flow_meets_the_riemannian_one_at_a_third_lam():
    assert parabola_gap(1e-3) == pytest.approx(0.0003298, rel=1e-2)


@pytest.mark.parametrize(
    ("toy", "theta"),
    [
        (addition(3), THREE),
        (parabola(0.3), f64(0.7, -0.2)),
        (two_layer_linear(2.0), f64(0.7, -0.2)),
        (leaky_relu_sum(0.5), f64(0.7, -0.2)),
    ],
    ids=["addition", "parabola", "two-layer", "leaky"],
)
def test_jacobian_and_gradient_by_hand_agree_with_autograd(toy, theta):
    torch.testing.assert_close(toy.J(theta), torch.func.jacrev(toy.F)(theta))
    penalised = torch.func.grad(lambda w: toy.loss(w) + 0.3 * w.square().sum())(theta)
    torch.testing.assert_close(toy.gradient(theta, 0.3), penalised)


def test_leaky_relu_has_slope_one_tenth_below_zero():
    assert leaky_relu_sum().F(f64(2.0, -1.0)).item() == pytest.approx(1.9)


def test_riemannian_flow_stays_on_the_hyperbola_and_ends_where_the_norm_is_least():
    end = integrate(two_layer_linear(1.0).riemannian, f64(2.0, 0.5), [10.0])[0]
    assert end.tolist() == pytest.approx([1.0, 1.0], abs=1e-6)


def test_only_the_product_of_two_weights_at_zero_has_a_singular_point():
    toy = two_layer_linear(0.0)
    assert jacobian_rank(toy.J(f64(0.0, 0.0))).singular
    assert not jacobian_rank(toy.J(f64(1.0, 0.0))).singular
    assert not jacobian_rank(parabola().J(f64(0.0, 0.0))).singular


def test_singular_values_and_rank_of_a_known_matrix():
    found = jacobian_rank(torch.diag(f64(3.0, 2.0, 1e-12)))
    assert (found.rank, found.rows, found.singular) == (2, 3, True)
    assert (found.sigma_max, found.sigma_min) == pytest.approx((3.0, 1e-12))
    tall = jacobian_rank(torch.ones(3, 1))
    assert (tall.rank, tall.sigma_min) == (1, 0.0)


def test_projection_at_a_singular_point_uses_the_independent_rows():
    twice = f64(1.0, 1.0)[None].repeat(2, 1)
    assert tangent_part(twice, f64(0.0, 2.0)).tolist() == pytest.approx([-1.0, 1.0])
    assert tangent_part(torch.zeros(1, 2), torch.ones(2)).tolist() == [1.0, 1.0]


def test_integration_keeps_its_tolerance_on_a_rotation():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    out = integrate(lambda z: turn @ z, f64(1.0, 0.0), [0.0, math.pi / 2, 2 * math.pi])
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert (out - expected).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: addition_flow(f64(math.nan, 0), 1.0, lam=0.1),
            MetricInputError,
            "no finite vector",
        ),
        (lambda: addition_flow(PAPER, 1.0, lam=-0.1), PlanError, "finite number, at least 0"),
        (lambda: addition_flow(PAPER, -1.0, lam=0.1), PlanError, "Count from 0"),
        (lambda: addition_descent(PAPER, 1, lam=0.0, eta=0.5), PlanError, "diverges.*\n.*< 0.5"),
        (
            lambda: addition_descent(PAPER, 1.5, lam=0.0, eta=0.1),
            PlanError,
            "not whole.*\n.*addition_flow",
        ),
        (lambda: addition_times(PAPER, lam=0.0), PlanError, "without decay nothing drifts"),
        (lambda: addition_times(PAPER, lam=0.1, eta=0.3), PlanError, "overshoots.*\n.*0.238"),
        (lambda: addition(0), PlanError, "Give n >= 1"),
        (lambda: parabola().penalised(0.0), PlanError, "slow time stands still"),
        (
            lambda: orthogonality_ratio(parabola(), f64(1, 0), dist=0.1),
            MetricInputError,
            "no regular point",
        ),
        (lambda: descend(lambda w: -w, PAPER, eta=0.0, steps=1), PlanError, "Give eta > 0"),
        (
            lambda: descend(lambda w: w.pow(3), f64(10.0), eta=1.0, steps=20),
            MetricInputError,
            "finite numbers at step .* of 20.*\n.*smaller eta than 1",
        ),
        (lambda: integrate(lambda w: -w, PAPER, [2.0, 1.0]), PlanError, "Sort them"),
        (lambda: integrate(lambda w: -w, PAPER, [9.0], max_steps=3), PlanError, "Raise max_steps"),
        (lambda: integrate(lambda w: w / 0, PAPER, [1.0]), MetricInputError, "not finite"),
        (lambda: jacobian_rank(torch.ones(3)), MetricInputError, r"Give \[outputs, parameters\]"),
        (
            lambda: tangent_part(torch.ones(1, 2), torch.ones(3)),
            MetricInputError,
            "vector of length 2",
        ),
    ],
)
def test_bad_input_says_what_to_try(call, error, text):
    with pytest.raises(error, match=text):
        call()
