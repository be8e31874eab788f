"""Tests of triplepoint.grokking.refitting."""

import pytest
import scipy.linalg
import torch

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking import reduced_cost
from triplepoint.grokking.refitting import (
    RIDGE,
    complexity,
    head_distance,
    one_hot,
    refit_head,
    unit_imbalance,
)


def drawn(n, h, o=3):
    return torch.randn(n, h, dtype=torch.float64), torch.randn(n, o, dtype=torch.float64)


@pytest.mark.parametrize(("n", "h"), [(12, 5), (7, 7), (5, 12)], ids=["tall", "square", "wide"])
@pytest.mark.parametrize("lam", [1e-3, 2.0])
def test_equals_least_squares_on_the_stacked_system(n, h, lam):
    # ||H W - Y||^2 + lam ||W||^2 is the plain least squares of [H; sqrt(lam) I] and [Y; 0]
    H, Y = drawn(n, h)
    stacked = torch.cat([H, lam**0.5 * torch.eye(h, dtype=H.dtype)])
    padded = torch.cat([Y, Y.new_zeros(h, Y.shape[1])])
    expected, *_ = scipy.linalg.lstsq(stacked.numpy(), padded.numpy())
    torch.testing.assert_close(refit_head(H, Y, lam=lam).W2, torch.as_tensor(expected))


@pytest.mark.parametrize(("n", "h"), [(40, 6), (6, 40)], ids=["overdetermined", "interpolating"])
def test_without_lam_it_is_the_least_squares_head_of_smallest_norm(n, h):
    H, Y = drawn(n, h)
    expected = torch.linalg.lstsq(H, Y, driver="gelsd").solution
    torch.testing.assert_close(refit_head(H, Y).W2, expected, rtol=1e-6, atol=1e-8)


def test_is_the_second_layer_of_the_reduced_cost():
    X, Y, W1 = torch.randn(9, 4).double(), torch.randn(9, 2).double(), torch.randn(4, 20).double()
    best = refit_head(torch.relu(X @ W1), Y, lam=0.1)
    torch.testing.assert_close(best.W2, reduced_cost(W1, X, Y, lam=0.1).W2)


def test_an_intercept_is_fitted_and_not_penalised():
    # labels 5 everywhere: all in the offset, whatever lam
    H, Y = torch.randn(8, 3), torch.full((8, 1), 5.0)
    best = refit_head(H, Y, lam=10.0, intercept=True)
    torch.testing.assert_close(best.W2, torch.zeros(3, 1).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(best.intercept, torch.full((1,), 5.0).double())
    torch.testing.assert_close(best.predict(torch.randn(2, 3)), torch.full((2, 1), 5.0).double())
    assert refit_head(H, Y, lam=10.0).intercept.tolist() == [0.0]


def test_an_intercept_takes_up_the_mean_of_the_features_as_well():
    H = torch.randn(8, 3, dtype=torch.float64) + 2
    best = refit_head(H, H @ torch.tensor([[1.0], [2.0], [3.0]]).double() + 5, intercept=True)
    torch.testing.assert_close(best.intercept, torch.tensor([5.0]).double())
    torch.testing.assert_close(best.W2[:, 0], torch.tensor([1.0, 2.0, 3.0]).double())


def test_repeated_and_dead_features_are_no_obstacle():
    H, Y = drawn(6, 8)
    H[:, 3] = 0
    H[5], Y[5] = H[4], Y[4]
    best = refit_head(H, Y)
    torch.testing.assert_close(best.predict(H), Y, rtol=1e-6, atol=1e-6)


def test_float32_features_are_refitted_in_float64():
    H, Y = drawn(6, 30)
    best = refit_head(H.float(), Y.float())
    assert best.W2.dtype == torch.float64
    torch.testing.assert_close(best.W2, refit_head(H, Y).W2, rtol=1e-4, atol=1e-5)


def test_dead_features_give_a_head_of_zeros():
    assert refit_head(torch.zeros(4, 3), torch.ones(4, 2)).W2.tolist() == [[0.0, 0.0]] * 3


def test_the_default_lam_scales_with_the_features():
    H, Y = drawn(5, 9)
    K = H @ H.T
    assert refit_head(H, Y).lam == pytest.approx(RIDGE * K.diagonal().mean().item())
    torch.testing.assert_close(refit_head(10 * H, Y).W2 * 10, refit_head(H, Y).W2)


def test_distance_complexity_and_imbalance_by_hand():
    W1 = torch.tensor([[3.0, 0.0], [4.0, 1.0]])  # units of squared norm 25 and 1, ||W1||^2 = 26
    W2 = torch.tensor([[1.0, 2.0], [2.0, 0.0]])  # 5 and 4
    assert unit_imbalance(W1, W2) == (20 + 3) / 2
    assert complexity(W1, W2) == pytest.approx((26 * 9) ** 0.5)
    assert head_distance(2 * W2, W2) == pytest.approx(1.0)
    # over the norm of the best head, not of the own one
    assert head_distance(W2, 2 * W2) == pytest.approx(0.5)


def test_complexity_does_not_see_how_relu_layers_share_their_scale():
    X, Y, W1 = torch.randn(9, 4).double(), torch.randn(9, 2).double(), torch.randn(4, 20).double()
    values = [complexity(s * W1, refit_head(torch.relu(X @ (s * W1)), Y).W2) for s in (1, 7)]
    assert values[0] == pytest.approx(values[1])


def test_messages_say_what_to_try():
    with pytest.raises(MetricInputError, match=r"\[4, 2\].*\[3, 1\] do not fit\.\nGive \[n, h\]"):
        refit_head(torch.ones(4, 2), torch.ones(3, 1))
    with pytest.raises(
        MetricInputError, match=r"1 of 4 features are inf or nan\.\n.*earlier checkpoint"
    ):
        refit_head(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), torch.ones(2, 1))
    with pytest.raises(MetricInputError, match=r"\(4 rows\) is singular.*\nLeave lam out"):
        refit_head(torch.zeros(4, 6), torch.ones(4, 1), lam=0.0)
    with pytest.raises(PlanError, match=r"lam is -1.0\.\nGive a finite weight of at least 0"):
        refit_head(torch.ones(4, 2), torch.ones(4, 1), lam=-1.0)
    with pytest.raises(MetricInputError, match=r"from 0 to 3, for 3 classes\.\nCount classes from"):
        one_hot(torch.tensor([0, 3]), 3)
