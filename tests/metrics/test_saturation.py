"""Tests of triplepoint.metrics.saturation."""

import math

import pytest
import torch
from tests.reference import metrics as twin

from triplepoint.metrics import METRICS, THRESHOLDS, add_states, saturation


def values_of(z, **options):
    metric = saturation(**options)
    return metric.compute(metric.update(z))


def test_by_hand_on_both_signs():
    z = torch.tensor([[-2.75, -1.25, 0.0], [0.75, 1.75, 3.5]])
    assert values_of(z) == pytest.approx(
        {
            "saturation@0.5": 5 / 6,
            "saturation@1": 4 / 6,
            "saturation@1.5": 3 / 6,
            "saturation@2": 2 / 6,
            "saturation@2.5": 2 / 6,
            "saturation@3": 1 / 6,
        }
    )


def test_a_value_on_the_edge_is_not_beyond_it():
    assert values_of(torch.tensor(THRESHOLDS)) == {
        f"saturation@{t:g}": (5 - i) / 6 for i, t in enumerate(THRESHOLDS)
    }


def test_is_pooled_over_elements_and_no_mean_over_tensors():
    metric = METRICS["saturation"]
    state = add_states(metric.update(torch.full((1,), 9.0)), metric.update(torch.zeros(9)))
    # the mean of the two tensors' shares would be 0.5
    assert metric.compute(state)["saturation@2"] == 0.1


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_counts_as_beyond(odd):
    z = torch.tensor([0.0, odd, 0.0, 0.0])
    assert set(values_of(z).values()) == {0.25}


def test_edges_may_be_given_with_names_of_their_own():
    z = torch.tensor([0.5, 1.7, 4.0, -4.0])
    values = values_of(z, edges={"@2": 2.0, "_slope": 1.6277, "_exact": 3.9})
    assert values == {"saturation@2": 0.5, "saturation_slope": 0.75, "saturation_exact": 0.5}


def test_agrees_with_its_twin():
    z = 2 * torch.randn(3, 4, 5)
    for t in THRESHOLDS:
        expected = twin.share_beyond(z.flatten().tolist(), t)
        assert values_of(z)[f"saturation@{t:g}"] == pytest.approx(expected)


def test_counts_stay_exact_where_a_float32_share_would_not():
    metric = saturation({"@2": 2.0})
    many = {"@2": torch.tensor(2**24), "n": torch.tensor(2**25)}
    state = add_states(many, metric.update(torch.tensor([3.0])))
    assert state["@2"].item() == 2**24 + 1
