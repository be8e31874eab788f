"""Tests of triplepoint.grokking.kinks: the directions that a ReLU net really has."""

import pytest
import torch
from tests.grokking.exact import det
from tests.reference import grokking_manifold as twin

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.kinks import project_with_kinks, project_with_mean_gates, watch_kinks
from triplepoint.grokking.structured import project_two_layer, two_layer_rows

X = det((6, 4), 0.37, 1.9, 0.53)
W1 = det((4, 12), 1.1, 0.45, 0.29)
W2 = 0.5 * det((12, 3), 0.8, 1.3, 0.17)


def test_flips_and_mean_gates_by_hand():
    path = torch.tensor([[1.0, -1.0, 0.1], [2.0, -1.0, -0.1], [3.0, 1.0, 0.1], [4.0, 1.0, -0.1]])
    seen = watch_kinks(path.unsqueeze(1))
    assert seen.flips.tolist() == [[0, 1, 3]]
    assert seen.gates.tolist() == [[1.0, 0.5, 0.5]]
    # one change is a crossing
    assert seen.stuck().tolist() == [[False, False, True]]
    assert seen.stuck(flips=1).tolist() == [[False, True, True]]
    assert (seen.steps, seen.stuck_share) == (4, pytest.approx(1 / 3))


def chattering():
    """A window in which a few gates, at the smallest |Z|, flip every step."""
    Z = X @ W1
    near = Z.abs() <= Z.abs().flatten().sort().values[7]
    return watch_kinks([torch.where(near & bool(i % 2), -Z, Z) for i in range(8)]), near


def test_projection_is_that_of_the_stacked_rows_by_loops():
    kinks, near = chattering()
    assert int(near.sum()) == 8
    J = twin.two_layer_jacobian(X, W1, W2, kinks.gates, (X @ W1).clamp_min(0))
    S = twin.stuck_rows(X, 12, 3, near.nonzero().tolist())
    C = torch.cat([J, S])
    torch.testing.assert_close(
        two_layer_rows(X, W1, W2, gates=kinks.gates, stuck=near).gram(),
        C @ C.T,
        rtol=1e-12,
        atol=1e-12,
    )
    v = torch.cat([-W1.reshape(-1), -W2.reshape(-1)])
    done = project_with_kinks(X, W1, W2, kinks)
    torch.testing.assert_close(done.flat(), twin.tangent_part(C, v), rtol=1e-9, atol=1e-10)
    assert (done.rows, done.solution.rank) == (26, int(torch.linalg.matrix_rank(C)))
    assert done.residual < 1e-10
    # stuck pre-activations stay, those of the plain projection do not
    plain = project_two_layer(two_layer_rows(X, W1, W2), -W1, -W2)
    assert (X @ done.V1)[near].abs().max() < 1e-10
    assert (X @ plain.V1)[near].abs().max() > 1e-3
    means = project_with_mean_gates(X, W1, W2, kinks)
    torch.testing.assert_close(means.flat(), twin.tangent_part(J, v), rtol=1e-9, atol=1e-10)


def test_without_stuck_gates_both_are_the_plain_projection():
    kinks = watch_kinks([X @ W1, X @ W1])
    plain = project_two_layer(two_layer_rows(X, W1, W2), -W1, -W2)
    for done in (project_with_kinks(X, W1, W2, kinks), project_with_mean_gates(X, W1, W2, kinks)):
        torch.testing.assert_close(done.flat(), plain.flat(), rtol=0, atol=1e-12)


def test_another_direction_and_threshold_can_be_given():
    kinks, _ = chattering()
    v = torch.ones_like(W1), torch.zeros_like(W2)
    none = project_with_kinks(X, W1, W2, kinks, v=v, flips=100)
    means = project_with_mean_gates(X, W1, W2, kinks, v=v)
    torch.testing.assert_close(none.flat(), means.flat(), rtol=0, atol=1e-10)


def modular_addition(p, train):
    """Unordered pairs as summed one-hots, one-hot sums, a random part of them."""
    pairs = torch.combinations(torch.arange(p), with_replacement=True)[
        torch.randperm(p * (p + 1) // 2)
    ]
    one_hot = torch.eye(p, dtype=torch.float64)
    a, b = pairs[:train].T
    return one_hot[a] + one_hot[b], one_hot[(a + b) % p]


def train(X, Y, W1, W2, steps, *, lr, wd):
    """Full-batch SGD on the mean square, yielding (W1, W2) before each step."""
    for _ in range(steps):
        yield W1, W2
        Z = X @ W1
        H, E = Z.clamp_min(0), (Z.clamp_min(0) @ W2 - Y) * (2 / Y.numel())
        grad1, grad2 = X.T @ ((E @ W2.T) * (Z > 0)), H.T @ E
        W1, W2 = W1 - lr * (grad1 + wd * W1), W2 - lr * (grad2 + wd * W2)


def window_of_the_paper(p, h, samples, *, before, window=200):
    """Train as in appendix D; return (X, mean W1, mean W2, kinks, update) over a window after ``before`` steps."""
    X, Y = modular_addition(p, samples)
    first, last = torch.nn.Linear(p, h, bias=False), torch.nn.Linear(h, p, bias=False)
    start = first.weight.detach().double().T, last.weight.detach().double().T
    *_, start = train(X, Y, *start, before, lr=1.0, wd=1e-4)
    path = list(train(X, Y, *start, window + 1, lr=1.0, wd=1e-4))
    W1, W2 = (torch.stack(part[:-1]).mean(0) for part in zip(*path, strict=True))
    update = torch.cat([(path[-1][i] - path[0][i]).reshape(-1) for i in (0, 1)])
    return X, W1, W2, watch_kinks([X @ W1 for W1, _ in path[:-1]]), update


def explained(update, projection, window=200):
    """(cosine, speed ratio) of the update against a projection of -theta."""
    flat = projection.flat()
    cosine = flat @ update / (flat.norm() * update.norm())
    return cosine.item(), (update.norm() / (window * 1e-4 * flat.norm())).item()


def test_appendix_d_is_explained_by_stuck_gates_or_by_mean_gates_and_not_by_the_plain_tangent():
    X, W1, W2, kinks, update = window_of_the_paper(11, 128, 59, before=2900)
    plain = explained(update, project_two_layer(two_layer_rows(X, W1, W2), -W1, -W2))
    stuck = project_with_kinks(X, W1, W2, kinks)
    means = explained(update, project_with_mean_gates(X, W1, W2, kinks))
    # stored: 0.817, 0.827 plain; 0.992, 1.008 with stuck rows, 6.1 % of them, rank 649 -> 1067
    assert plain == pytest.approx((0.84, 0.85), abs=0.04)
    assert explained(update, stuck) == pytest.approx((0.993, 1.007), abs=0.004)
    assert means == pytest.approx((0.997, 1.003), abs=0.004)
    assert kinks.stuck_share == pytest.approx(0.061, abs=0.005)
    assert stuck.solution.rank == pytest.approx(1067, abs=30)


def test_mean_gates_explain_the_update_of_a_smaller_net():
    X, W1, W2, kinks, update = window_of_the_paper(5, 24, 12, before=2900)
    plain, _ = explained(update, project_two_layer(two_layer_rows(X, W1, W2), -W1, -W2))
    means, pace = explained(update, project_with_mean_gates(X, W1, W2, kinks))
    stuck, _ = explained(update, project_with_kinks(X, W1, W2, kinks))
    assert means > 0.995 and stuck > 0.98
    assert plain < 0.8
    assert pace == pytest.approx(1.0, abs=0.005)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: watch_kinks([X @ W1]), MetricInputError, "window of 1 steps.*\n.*some 200"),
        (lambda: watch_kinks([]), MetricInputError, "window of 0 steps"),
        (lambda: watch_kinks([X @ W1, W1]), MetricInputError, "same samples at every step"),
        (lambda: watch_kinks([X @ W1 / 0]), MetricInputError, "not finite at step 0"),
        (
            lambda: project_with_kinks(X, W1, W2, watch_kinks([X @ W1, X @ W1]), flips=0),
            PlanError,
            "2 tells chatter from a crossing",
        ),
        (
            lambda: project_with_mean_gates(X, W1, W2, watch_kinks([W1, W1])),
            MetricInputError,
            "gates has shape",
        ),
    ],
)
def test_bad_input_says_what_to_try(call, error, text):
    with pytest.raises(error, match=text):
        call()
