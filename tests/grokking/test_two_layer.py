"""Tests of triplepoint.grokking.two_layer."""

import pytest
import torch
from tests.reference import grokking_isolated as twin

from triplepoint.errors import PlanError
from triplepoint.grokking import (
    ACTIVATIONS,
    accuracy,
    as_module,
    initial_first_layer,
    predict,
)
from triplepoint.grokking.two_layer import accuracy_on

activations = pytest.mark.parametrize("act", ACTIVATIONS.values(), ids=ACTIVATIONS)


@activations
def test_values_and_slopes_are_the_definitions(act):
    z = torch.linspace(-4, 4, 81, dtype=torch.float64)
    torch.testing.assert_close(act.value(z), twin.ACT[act.name](z), rtol=1e-12, atol=1e-14)
    weight = torch.randn(81, dtype=torch.float64)
    expected = weight * twin.SLOPE[act.name](z)
    torch.testing.assert_close(act.pull_back(z, weight), expected, rtol=1e-12, atol=1e-14)


@activations
def test_the_slope_is_the_one_autograd_uses_at_the_kink_too(act):
    z = torch.tensor([-1.5, -0.0, 0.0, 1e-9, 2.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(act.value(z).sum(), z)
    torch.testing.assert_close(act.pull_back(z.detach(), torch.ones(5).double()), slope)


@activations
def test_the_layer_computes_the_value_and_the_degree_is_that_of_homogeneity(act):
    z = torch.randn(50, dtype=torch.float64)
    torch.testing.assert_close(act.module()(z), act.value(z))
    degrees = [q for q in range(4) if torch.allclose(act.value(3 * z), 3**q * act.value(z))]
    assert degrees == ([] if act.degree is None else [act.degree])


@activations
def test_the_module_is_the_net_and_owns_its_weights(act):
    W1, W2, X = (torch.randn(*s, dtype=torch.float64) for s in ((3, 5), (5, 2), (7, 3)))
    module = as_module(W1, W2, activation=act.name)
    expected = predict(W1, W2, X, activation=act.name)
    torch.testing.assert_close(module(X).detach(), expected)
    assert sum(p.numel() for p in module.parameters()) == 3 * 5 + 5 * 2
    W1.zero_()
    torch.testing.assert_close(module(X).detach(), expected)


def test_the_module_keeps_the_dtype():
    assert as_module(torch.ones(2, 3), torch.ones(3, 1))[0].weight.dtype == torch.float32


def test_accuracy_counts_rows_whose_largest_entries_agree():
    Y = torch.eye(4, dtype=torch.float64)
    prediction = Y.clone()
    prediction[0] = torch.tensor([0.1, 0.9, 0.0, 0.0])  # wrong
    prediction[1] = torch.tensor([-5.0, -4.0, -6.0, -7.0])  # right, and far from its target
    assert accuracy(prediction, Y) == 0.75


def test_accuracy_on_no_samples_is_none():
    one = torch.ones(1, 1, dtype=torch.float64)
    assert accuracy_on(one, one, None) is None
    assert accuracy_on(one.float(), one.float(), (one, one)) == 1.0


def test_a_first_layer_has_the_papers_variance_its_own_generator_and_float64():
    before = torch.get_rng_state()
    W1, same, other = (initial_first_layer(37, 4000, seed=s) for s in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert W1.dtype == torch.float64
    # variance p^-1/2; read as a standard deviation it would be 0.164
    assert W1.std().item() == pytest.approx(37**-0.25, rel=0.01)
    assert torch.equal(W1, same)
    assert not torch.equal(W1, other)
    assert initial_first_layer(37, 4000, std=2.0).std().item() == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_a_layer_without_units_is_refused(size):
    with pytest.raises(
        PlanError, match=f"got {size[0]} and {size[1]}.\nTry h=256, which is what p=23"
    ):
        initial_first_layer(*size)


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf")])
def test_a_deviation_that_is_none_is_refused(std):
    with pytest.raises(PlanError, match=f"positive number, got {std}.\nTry std=0.5, or leave it"):
        initial_first_layer(16, 2, std=std)
