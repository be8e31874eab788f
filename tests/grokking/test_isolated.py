"""Tests of triplepoint.grokking.isolated."""

import math
import warnings

import pytest
import torch
from tests.grokking.exact import W1, X, Y
from tests.reference import grokking_isolated as twin

from triplepoint.errors import DataError, PlanError, UnknownNameError
from triplepoint.grokking import ACTIVATIONS, initial_first_layer, pair_task, predict, reduced_cost
from triplepoint.grokking.isolated import checked

EPS = torch.finfo(torch.float64).eps

# R / lam, ||W2||^2, ||G|| of the sine problem: computed with 1e-15 agreement to autograd
KNOWN = {
    ("relu", 0.0): (19.248876640458533, 2.1444495968937347, 3.7133382506270314),
    ("relu", 1e-3): (19.248087866065937, 2.1428724299544584, 3.7135526491154973),
    ("relu", 0.1): (19.173559417083396, 1.9972046002268664, 3.7340836345694877),
    ("relu", 1.0): (18.70183321697135, 1.2087527116411947, 3.868700734316937),
    ("square", 0.0): (17.969042780323093, 0.864615736758295, 3.7489379412192014),
    ("square", 1e-3): (17.968869013066247, 0.8642682477873386, 3.7490706754765117),
    ("square", 0.1): (17.95210448140571, 0.831169778994698, 3.7618321636172887),
    ("square", 1.0): (17.830693838877867, 0.6155710520640053, 3.850276384171783),
    ("tanh", 0.0): (21.11161142077347, 4.007184377208675, 5.063736813434155),
    ("tanh", 1e-3): (21.09381524509978, 3.9717398679925604, 5.029065422731612),
    ("tanh", 0.1): (20.10127059430655, 2.4022248266050865, 4.086410569129363),
    ("tanh", 1.0): (18.666140006420008, 0.9941552087967602, 4.05359509372713),
}

# (n, d_in, h, o): fewer hidden units than samples, as many, more
SHAPES = [(9, 4, 6, 3), (6, 3, 6, 2), (6, 3, 14, 4), (1, 1, 1, 1), (300, 5, 150, 2)]


def problem(shape, *, seed=0, twice=False):
    """Random W1, X, Y; ``twice``: the first sample once more, so that H loses a rank."""
    n, d_in, h, o = shape
    generator = torch.Generator().manual_seed(seed)
    W, x, y = (
        torch.randn(*size, generator=generator, dtype=torch.float64)
        for size in ((d_in, h), (n, d_in), (n, o))
    )
    return (W, torch.cat([x, x[:1]]), torch.cat([y, y[:1]])) if twice else (W, x, y)


def condition(W, x, lam, activation):
    H = twin.ACT[activation](x @ W)
    sigma = torch.linalg.svdvals(H)
    smallest = sigma[-1] ** 2 if H.shape[0] <= H.shape[1] else 0.0
    return float((sigma[0] ** 2 + lam) / (smallest + lam))


def relative(a, b):
    return float((a - b).norm() / b.norm())


def test_one_sample_one_unit_by_hand():
    # H = 2, K = 5, B = 3/5, W2 = 6/5: R = (12/5 - 3)^2 + 4 + 36/25 = 5.8; G = 2 - (3/5)(6/5)
    one = torch.ones(1, 1, dtype=torch.float64)
    cost = reduced_cost(2 * one, one, 3 * one, lam=1.0)
    assert cost.value == pytest.approx(5.8, rel=1e-14)
    assert cost.W2.item() == pytest.approx(1.2, rel=1e-14)
    assert cost.grad.item() == pytest.approx(2 * 1.28, rel=1e-14)
    assert cost.sse == pytest.approx(0.36, rel=1e-14)
    assert cost.complexity == pytest.approx(2.4, rel=1e-14)


@pytest.mark.parametrize(("activation", "lam"), KNOWN)
def test_equals_known_values_of_the_sine_problem(activation, lam):
    cost = reduced_cost(W1, X, Y, lam=lam, activation=activation)
    over_lam, W2_sq, half = KNOWN[activation, lam]
    assert cost.over_lam == pytest.approx(over_lam, rel=1e-13)
    assert cost.W2_sq == pytest.approx(W2_sq, rel=1e-12)
    assert float(cost.half_grad.norm()) == pytest.approx(half, rel=1e-12)
    assert cost.value == pytest.approx(over_lam * (lam or 1), rel=1e-13)
    assert torch.equal(cost.grad, 2 * (lam or 1) * cost.half_grad)


@pytest.mark.parametrize("lam", [1e-6, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("twice", [False, True], ids=["distinct", "duplicate"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_autograd_as_far_as_the_condition_number_allows(shape, activation, twice, lam):
    W, x, y = problem(shape, twice=twice)
    allowed = max(1e-12, 100 * EPS * condition(W, x, lam, activation))
    W.requires_grad_()
    R = twin.differentiable_cost(W, x, y, lam=lam, activation=activation)
    (grad,) = torch.autograd.grad(R, W)
    cost = reduced_cost(W, x, y, lam=lam, activation=activation)
    assert cost.value == pytest.approx(R.item(), rel=allowed)
    assert relative(cost.grad, grad) <= allowed
    assert not cost.grad.requires_grad


@pytest.mark.parametrize("lam", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_the_literal_formula(activation, lam):
    cost = reduced_cost(W1, X, Y, lam=lam, activation=activation)
    expected = twin.half_gradient(W1, X, Y, lam=lam, activation=activation)
    assert relative(cost.half_grad, expected) < 1e-11


@pytest.mark.parametrize("shape", [(7, 3, 5, 2), (4, 3, 5, 2)], ids=["primal", "dual"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_second_layer_minimises_the_penalised_loss(shape, activation):
    W, x, y = problem(shape)
    kind = {"lam": 0.3, "activation": activation}
    cost = reduced_cost(W, x, y, **kind)
    assert relative(cost.W2, twin.second_layer(W, x, y, **kind)) < 1e-11
    least = twin.penalised_loss(W, cost.W2, x, y, **kind)
    assert cost.value == pytest.approx(float(least), rel=1e-12)
    other = twin.penalised_loss(W, cost.W2 + 1e-3 * torch.randn_like(cost.W2), x, y, **kind)
    assert other > least
    prediction = predict(W, cost.W2, x, activation=activation)
    torch.testing.assert_close(y - prediction, 0.3 * cost.B, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("lam", [1e-2, 1.0])
@pytest.mark.parametrize("shape", [(9, 4, 6, 3), (6, 3, 14, 4)], ids=["primal", "dual"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_equals_central_differences(shape, activation, lam):
    W, x, y = problem(shape)
    grad = reduced_cost(W, x, y, lam=lam, activation=activation).grad
    # a kink crossed between the two points would spoil the difference, not the gradient
    step = 1e-6
    numeric = torch.empty_like(W)
    for i in range(W.shape[0]):
        for b in range(W.shape[1]):
            bump = torch.zeros_like(W)
            bump[i, b] = step
            up, down = (
                reduced_cost(W + sign * bump, x, y, lam=lam, activation=activation).value
                for sign in (1, -1)
            )
            numeric[i, b] = (up - down) / (2 * step)
    assert relative(numeric, grad) < 1e-6


def test_differences_lose_their_digits_where_labels_conflict_and_decay_is_small():
    # the constant residual / lam is 1e8 times what moves: differencing, not the gradient, fails
    x, y = torch.cat([X, X[:1]]), torch.cat([Y, -Y[:1]])
    errors = {}
    for lam in (1e-2, 1e-8):
        G = reduced_cost(W1, x, y, lam=lam).half_grad
        exact = 2 * float(G.norm())
        up, down = (
            reduced_cost(W1 + step * G / G.norm(), x, y, lam=lam).over_lam for step in (1e-6, -1e-6)
        )
        errors[lam] = abs((up - down) / 2e-6 - exact) / abs(exact)
    assert errors[1e-2] < 1e-6
    assert errors[1e-8] > 1e-4


def test_decay_zero_is_the_limit_of_small_decay():
    limit = reduced_cost(W1, X, Y, lam=0.0)
    # the error is of first order in lam: ten times smaller decay, ten times closer
    gaps = [
        relative(reduced_cost(W1, X, Y, lam=lam).half_grad, limit.half_grad)
        for lam in (1e-3, 1e-4, 1e-5)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.02)
    assert gaps[1] / gaps[2] == pytest.approx(10, rel=0.02)
    assert limit.sse == 0
    torch.testing.assert_close(predict(W1, limit.W2, X), Y)


def test_a_duplicate_sample_changes_nothing_in_the_limit_and_conflict_shows_as_residual_over_decay():
    x = torch.cat([X, X[:1]])
    same = reduced_cost(W1, x, torch.cat([Y, Y[:1]]), lam=1e-9)
    assert same.over_lam == pytest.approx(19.248876640458533, rel=1e-6)
    for lam, expected in {1e-2: 280.61258708193543, 1e-4: 26195.891009700037}.items():
        conflict = reduced_cost(W1, x, torch.cat([Y, -Y[:1]]), lam=lam)
        assert conflict.over_lam == pytest.approx(expected, rel=1e-10)
    # ||W1||^2 + least norm + residual / lam
    W1_sq = float(W1.square().sum())
    assert expected == pytest.approx(W1_sq + 1.7438071491725649 + 2.617704283653945e4, rel=1e-6)


def test_both_branches_agree_where_both_apply():
    W, x, y = problem((6, 3, 6, 2))
    extra = torch.cat([W, torch.zeros(3, 1, dtype=torch.float64)], dim=1)
    square = reduced_cost(W, x, y, lam=0.1)
    # a dead unit changes neither cost nor gradient, a sample of zeros makes n larger than h
    dual = reduced_cost(extra, x, y, lam=0.1)
    zeros = torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    primal = reduced_cost(W, torch.cat([x, zeros[0]]), torch.cat([y, zeros[1]]), lam=0.1)
    for other in (dual, primal):
        assert other.value == pytest.approx(square.value, rel=1e-12)
        torch.testing.assert_close(other.half_grad[:, :6], square.half_grad)
        torch.testing.assert_close(other.W2[:6], square.W2)


def test_nearly_parallel_units_keep_their_digits_in_the_primal_branch():
    W, x, y = problem((60, 40, 30, 3))
    W[:, 1] = W[:, 0] + 1e-2 * W[:, 1]
    cost = reduced_cost(W, x, y, lam=1e-6)
    U, sigma, V = torch.linalg.svd(torch.relu(x @ W), full_matrices=False)
    exact = V.T @ ((sigma / (sigma**2 + 1e-6))[:, None] * (U.T @ y))
    # 3e-14; 2e-11 without the refinement step
    assert relative(cost.W2, exact) < 1e-12


# structure laws, for activations with act(s z) = s^q act(z)
HOMOGENEOUS = [(name, act.degree) for name, act in ACTIVATIONS.items() if act.degree is not None]


@pytest.mark.parametrize("lam", [0.0, 0.2])
@pytest.mark.parametrize(("activation", "q"), HOMOGENEOUS)
def test_the_gradient_along_each_unit_is_its_norm_imbalance(activation, q, lam):
    cost = reduced_cost(W1, X, Y, lam=lam, activation=activation)
    along = (W1 * cost.half_grad).sum(0)
    imbalance = W1.square().sum(0) - q * cost.W2.square().sum(1)
    torch.testing.assert_close(along, imbalance, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("activation", "q"), HOMOGENEOUS)
def test_predictions_do_not_depend_on_the_scale_of_the_first_layer(activation, q):
    new = torch.randn(11, 4, dtype=torch.float64)
    one, three = (reduced_cost(s * W1, X, Y, lam=0.0, activation=activation) for s in (1, 3))
    torch.testing.assert_close(three.W2 * 3**q, one.W2)
    torch.testing.assert_close(
        predict(3 * W1, three.W2, new, activation=activation),
        predict(W1, one.W2, new, activation=activation),
    )


def test_the_least_cost_on_a_ray_is_twice_the_complexity():
    C = reduced_cost(W1, X, Y, lam=0.0).complexity
    balance = math.sqrt(C / float(W1.square().sum()))
    costs = [
        reduced_cost(s * balance * W1, X, Y, lam=0.0).over_lam for s in (0.5, 0.99, 1.0, 1.01, 2.0)
    ]
    assert costs[2] == pytest.approx(2 * C, rel=1e-12)
    assert min(costs) == costs[2]
    # s^2 + s^-2 at s = 2, worked by hand
    assert costs[4] == pytest.approx((4 + 1 / 4) * C, rel=1e-12)


def test_zero_targets_leave_the_norm_of_the_first_layer():
    cost = reduced_cost(W1, X, 0 * Y, lam=0.5)
    assert cost.value == pytest.approx(0.5 * float(W1.square().sum()))
    assert not cost.W2.any()


def test_a_kernel_of_several_blocks_is_put_together_rightly():
    # 300 rows are more than two blocks, the last one cut short
    W, x, y = problem((300, 40, 310, 2))
    cost = reduced_cost(W, x, y, lam=0.1)
    H = torch.relu(x @ W)
    K = H @ H.T + 0.1 * torch.eye(300, dtype=torch.float64)
    torch.testing.assert_close(K @ cost.B, y, rtol=1e-9, atol=1e-9)


def test_float32_warns_with_the_error_it_makes():
    task = pair_task("add", p=17)
    W, (x, y) = initial_first_layer(17, 160).float(), task.train_set
    with pytest.warns(
        RuntimeWarning, match=r"estimated relative error .* is \d\.\de-0\d.\nTry W1"
    ) as seen:
        low = reduced_cost(W, x.float(), y.float(), lam=0.0)
    assert low.grad.dtype == torch.float32
    stated = float(str(seen[0].message).split(" is ")[1].split(".\nTry")[0])
    true = relative(low.B.double(), reduced_cost(W.double(), x, y, lam=0.0).B)
    assert stated == pytest.approx(true, rel=0.1)


def test_float32_is_silent_where_it_is_good_enough():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low = reduced_cost(W1.float(), X.float(), Y.float(), lam=1.0)
    assert relative(low.grad.double(), reduced_cost(W1, X, Y, lam=1.0).grad) < 1e-5


def test_one_float64_among_the_arguments_is_enough_for_float64():
    assert reduced_cost(W1.float(), X, Y.float(), lam=1.0).grad.dtype == torch.float64


@pytest.mark.parametrize("n", [2, 6, 60, 300])
@pytest.mark.parametrize("seed", range(3))
def test_a_singular_kernel_is_refused_even_where_rounding_lets_cholesky_pass(n, seed):
    W, x, y = problem((n - 1, 3, 2 * n, 2), seed=seed, twice=True)
    with pytest.raises(DataError) as caught:
        reduced_cost(W, x, y, lam=0.0)
    first, second = str(caught.value).split("\n")
    assert first.startswith("H H^T + lam I is singular to torch.float64 at lam = 0: pivot ")
    assert f" of {n} is " in first
    assert second.endswith("Drop duplicates, or try lam=1e-06.")
    reduced_cost(W, x, y, lam=1e-6)


def test_dead_hidden_units_are_refused_at_decay_zero():
    with pytest.raises(DataError, match="pivot 1 of 5 is 0.0e"):
        reduced_cost(0 * W1, X, Y, lam=0.0)


@pytest.mark.parametrize(
    ("W", "x", "y"),
    [(W1.T, X, Y), (W1, X[:3], Y), (W1, X, Y[:, 0]), (W1, X[:0], Y[:0])],
    ids=["transposed", "rows", "vector", "empty"],
)
def test_shapes_that_do_not_fit_are_named(W, x, y):
    # not through reduced_cost, whose signature is checked first where tests check signatures
    with pytest.raises(DataError) as caught:
        checked(W, x, y, lam=1.0)
    assert str(caught.value) == (
        "The reduced cost needs W1 [d_in, h], X [n, d_in] and Y [n, o], got "
        f"W1 {list(W.shape)}, X {list(x.shape)}, Y {list(y.shape)}.\n"
        "Samples are rows, and a torch layer stores its weight transposed: try `layer.weight.T`."
    )


@pytest.mark.parametrize("which", ["W1", "X", "Y"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_entries_that_are_not_finite_are_counted(which, bad):
    given = {"W1": W1.clone(), "X": X.clone(), "Y": Y.clone()}
    given[which][0, :2] = bad
    total = given[which].numel()
    with pytest.raises(
        DataError, match=f"2 of {total} in {which} are inf or nan.\n.*earlier check"
    ):
        reduced_cost(**given, lam=1.0)


def test_whole_numbers_and_half_precision_are_refused():
    with pytest.raises(
        DataError, match=r"float64 or float32, got torch.float16.\nTry `.double\(\)`"
    ):
        checked(W1.half(), X.half(), Y.half(), lam=1.0)
    with pytest.raises(DataError, match="got torch.int64"):
        checked(W1.long(), X.long(), Y.long(), lam=1.0)


@pytest.mark.parametrize("lam", [-1.0, math.nan, math.inf])
def test_a_decay_that_is_none_is_refused(lam):
    with pytest.raises(PlanError, match=f"cannot be {lam}.\nTry lam=1e-6, or lam=0 for the limit"):
        reduced_cost(W1, X, Y, lam=lam)


def test_decay_zero_with_too_few_hidden_units_is_refused():
    with pytest.raises(
        PlanError, match="got h = 4 and n = 5.\nTry h=5 or more, fewer samples, or lam"
    ):
        reduced_cost(W1[:, :4], X, Y, lam=0.0)


def test_an_unknown_activation_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="no activation 'rellu'.\nDid you mean 'relu'"):
        reduced_cost(W1, X, Y, lam=1.0, activation="rellu")
