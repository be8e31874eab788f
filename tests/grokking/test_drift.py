"""Tests of the drift along the manifold and of the way back to it: triplepoint.grokking.drift and retraction."""

import math

import pytest
import torch
from tests.grokking.exact import det
from torch import nn

from triplepoint.errors import MetricInputError, ModelError, PlanError
from triplepoint.grokking.drift import (
    VALID_BELOW,
    compare_update,
    homogeneity,
    loss_gradient,
    singular_value_range,
    validity_number,
)
from triplepoint.grokking.linearisation import Stacked, stack
from triplepoint.grokking.manifold import project_tangent, tangent_projection
from triplepoint.grokking.retraction import decay_displacement, off_manifold_distance, retract
from triplepoint.grokking.toys import addition, parabola
from triplepoint.grokking.two_layer import Square, as_module

X = det((6, 4), 0.37, 1.9, 0.53)
W1 = det((4, 12), 1.1, 0.45, 0.29)
W2 = 0.5 * det((12, 3), 0.8, 1.3, 0.17)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def as_stacked(toy, theta):
    return Stacked(toy.F, theta, lambda flat: {"theta": flat})


class Tanh(nn.Module):
    """Two smooth layers, whose manifold is curved."""

    def __init__(self):
        super().__init__()
        self.net = as_module(W1, W2, activation="tanh")

    def forward(self, x):
        return self.net(x)


def biased():
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3)).double()


@pytest.mark.parametrize(
    ("build", "degree"),
    [
        (lambda: as_module(W1, W2), 2),
        (lambda: as_module(W1, W2, activation="square"), 3),
        (
            lambda: nn.Sequential(
                nn.Linear(4, 10, bias=False), nn.ReLU(), nn.Linear(10, 9, bias=False), nn.ReLU(),
                nn.Linear(9, 3, bias=False),
            ).double(),
            3,
        ),
        (
            lambda: nn.Sequential(
                nn.Linear(4, 9, bias=False), Square(), nn.Linear(9, 9, bias=False), Square(),
                nn.Linear(9, 3, bias=False),
            ).double(),
            7,
        ),
    ],
    ids=["relu 2", "square 2", "relu 3", "square 3"],
)  # fmt: skip
def test_homogeneity_lemma(build, degree):
    model = build()
    lin = stack(model, X).at()
    found = homogeneity(lin, route="cholesky")
    plain = tangent_projection(model, X, lin.theta, route="cholesky")
    assert found.degree == pytest.approx(degree, rel=1e-12)
    assert found.euler_residual < 1e-13
    assert (found.tangent - plain.tangent).norm() < 1e-12 * lin.theta.norm()
    assert found.tau == pytest.approx(plain.share**2, abs=1e-12)


def test_tau_of_the_exact_problem():
    found = homogeneity(stack(as_module(W1, W2), X).at(), degree=2.0, route="cholesky")
    assert found.tau == pytest.approx(0.801163945912339, abs=1e-13)


def test_tau_is_half_the_rate_at_which_the_norm_falls():
    lin = stack(as_module(W1, W2), X).at()
    tau = homogeneity(lin, route="cholesky").tau
    dt = 1e-6  # slow time
    moved = lin.theta - dt * project_tangent(lin, lin.theta, route="cholesky").tangent
    before, after = lin.theta.square().sum(), moved.square().sum()
    assert ((before - after) / (dt * before)).item() == pytest.approx(2 * tau, rel=1e-5)


@pytest.mark.parametrize("model", [Tanh(), biased()], ids=["tanh", "bias"])
def test_networks_that_are_not_homogeneous_are_refused(model):
    with pytest.raises(ModelError, match="not homogeneous.*\n.*use tangent_projection"):
        homogeneity(stack(model, X).at())


def test_update_along_the_drift_is_recognised():
    drift = tangent_projection(as_module(W1, W2), X)
    found = compare_update(0.01 * drift.tangent, drift, slow_time=0.02)
    assert (found.cosine, found.speed_ratio) == pytest.approx((1.0, 0.5))
    assert found.null_cosine == pytest.approx(math.sqrt(0.801163945912339))
    other = torch.zeros(84, dtype=torch.float64)
    other[0] = 1.0
    across = other - tangent_projection(as_module(W1, W2), X, other).tangent
    assert compare_update(across, drift, slow_time=1.0).cosine == pytest.approx(0.0, abs=1e-12)


def test_training_a_smooth_net_with_little_decay_follows_the_drift():
    net = stack(Tanh(), X)
    y = net.F(net.theta).detach()
    lam, eta = 1e-4, 0.03

    def descend(one, two, steps):
        for _ in range(steps):
            H = torch.tanh(X @ one)
            E = H @ two - y.view(6, 3)
            slope = X.T @ ((E @ two.T) * (1 - H * H)), H.T @ E
            one = one - 2 * eta * (slope[0] + lam * one)
            two = two - 2 * eta * (slope[1] + lam * two)
        return one, two

    def flat(one, two):
        return torch.cat([one.T.reshape(-1), two.T.reshape(-1)])

    first = descend(W1, W2, 3000)  # onto the slow motion
    start, at = flat(*first), flat(*descend(*first, 100))
    # the loss holds the point off the manifold: measure where it belongs
    foot = net.at(retract(net, y, theta=(start + at) / 2, nearest=True).theta)
    drift = project_tangent(foot, -foot.theta)
    found = compare_update(at - start, drift, slow_time=100 * 2 * lam * eta)
    assert found.cosine > 0.9999
    assert found.speed_ratio == pytest.approx(1.0, abs=1e-3)
    assert found.null_cosine < 0.95
    # the gradient of the loss is normal, the pull of decay is not
    share = project_tangent(foot, loss_gradient(net.at(at), y)).share
    assert share < 0.01


def test_loss_gradient_is_that_of_the_sum_of_squares():
    model = Tanh()
    y = torch.randn(6, 3).double()
    (model(X) - y).square().sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(loss_gradient(stack(model, X).at(), y), expected)


def test_singular_values_of_the_exact_problem_and_the_validity_number():
    low, high = singular_value_range(stack(as_module(W1, W2), X).at())
    assert (low, high) == pytest.approx((0.26189353993005693, 4.873869532754632), rel=1e-9)
    assert validity_number(lam=0.01, sigma_min=low) == pytest.approx(0.01 / low**2)
    # sum of squares, tanh: lam 1e-1 left the theory, lam 1e-3 was inside
    assert validity_number(lam=0.1, sigma_min=math.sqrt(0.06521138257944756)) == pytest.approx(
        1.533474618149, rel=1e-9
    )
    assert validity_number(lam=0.1, sigma_min=0.0) == math.inf
    assert VALID_BELOW == 0.02


def test_retraction_of_a_plane_is_the_orthogonal_one_in_one_step():
    net = as_stacked(addition(2), f64(-1.0, 1.0))
    done = retract(net, f64(2.0), route="cholesky")
    assert done.theta.tolist() == pytest.approx([0.0, 2.0])
    assert (done.iterations, done.converged, done.loss) == (1, True, 0.0)
    assert done.distance == pytest.approx(math.sqrt(2))
    assert off_manifold_distance(net.at(), f64(2.0)) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("dist", [0.1, -0.1, 0.01])
def test_nearest_point_of_the_parabola_is_the_foot(dist):
    foot = f64(0.5, 0.25)
    normal = f64(-1.0, 1.0) / math.sqrt(2)
    net = as_stacked(parabola(), foot + dist * normal)
    near = retract(net, f64(0.0), nearest=True)
    assert near.converged
    assert near.theta.tolist() == pytest.approx(foot.tolist(), abs=1e-8)
    assert near.distance == pytest.approx(abs(dist), rel=1e-8)
    plain = retract(net, f64(0.0))
    assert plain.loss < 1e-20
    assert plain.distance > near.distance
    # and the cheap one is right to first order
    assert off_manifold_distance(net.at(), f64(0.0)) == pytest.approx(abs(dist), rel=2 * abs(dist))


def test_retraction_of_a_network_reaches_zero_loss():
    net = stack(Tanh(), X)
    y = net.F(net.theta).detach()
    start = net.theta + 0.05 * torch.randn_like(net.theta)
    plain = retract(net, y.view(6, 3), theta=start)
    near = retract(net, y, theta=start, nearest=True)
    assert plain.converged and near.converged
    assert near.loss < 1e-18
    assert near.distance <= plain.distance
    # what is left is normal to the manifold
    share = project_tangent(net.at(near.theta), start - near.theta).share
    assert share < 1e-6


def test_a_target_out_of_reach_is_said_to_be():
    net = as_stacked(parabola(), f64(0.0, 0.0))
    positive = Stacked(lambda th: th[:1].square() + th[1:].square(), f64(1.0, 0.5), net.split)
    done = retract(positive, f64(-1.0))
    assert not done.converged
    assert done.loss >= 1.0


def test_decay_holds_the_addition_toy_where_the_closed_form_has_it():
    net = as_stacked(addition(2), f64(0.5, 1.5))
    shift = decay_displacement(net.at(), lam=1e-3)
    # N lam / (N + lam) short of the sum, shared by two weights: lam/2 each to first order
    assert shift.tolist() == pytest.approx([-5e-4, -5e-4], rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda net: retract(net, f64(1.0, 2.0)), MetricInputError, "2 target entries for 18"),
        (
            lambda net: retract(net, torch.full((6, 3), math.nan)),
            MetricInputError,
            "target is not finite",
        ),
        (lambda net: retract(net, torch.ones(6, 3), theta=f64(1.0)), MetricInputError, "84 finite"),
        (lambda net: retract(net, torch.ones(6, 3), tol=0.0), PlanError, "Give both above 0"),
        (lambda net: decay_displacement(net.at(), lam=-1.0), PlanError, "sum of squares, >= 0"),
        (lambda net: validity_number(lam=-1.0, sigma_min=1.0), PlanError, "at least 0"),
        (
            lambda net: compare_update(
                f64(1.0), project_tangent(net.at(), net.theta), slow_time=1.0
            ),
            MetricInputError,
            "order of the trainable",
        ),
        (
            lambda net: compare_update(
                net.theta, project_tangent(net.at(), net.theta), slow_time=0.0
            ),
            PlanError,
            r"steps \* lr \* weight_decay",
        ),
    ],
)
def test_bad_input_says_what_to_try(call, error, text):
    with pytest.raises(error, match=text):
        call(stack(as_module(W1, W2), X))
