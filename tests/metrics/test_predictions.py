"""Tests of triplepoint.metrics.predictions."""

import math

import pytest
import torch
from tests.reference import metrics as twin

from triplepoint.metrics import METRICS


def prediction_kl(logits):
    metric = METRICS["prediction_kl"]
    return metric.compute(metric.update(logits))["prediction_kl"]


def test_is_zero_where_all_positions_predict_alike():
    logits = torch.randn(1, 1, 50).expand(4, 8, 50)
    # added per position: a softmax does not see it
    shifted = logits + 10 * torch.randn(4, 8, 1)
    assert prediction_kl(logits) == pytest.approx(0, abs=1e-6)
    assert prediction_kl(shifted) == pytest.approx(0, abs=1e-6)


def test_is_ln_2_where_two_halves_are_sure_of_different_tokens():
    logits = torch.full((2, 1, 3), -100.0)
    logits[0, 0, 0] = logits[1, 0, 2] = 100.0
    assert prediction_kl(logits) == pytest.approx(math.log(2))


def test_reaches_the_logarithm_of_the_vocabulary_and_no_more():
    assert prediction_kl(200 * torch.eye(7)[None]) == pytest.approx(math.log(7))
    assert prediction_kl(200 * torch.randn(30, 7)) <= math.log(7)


def test_equals_the_mean_divergence_by_definition():
    logits = 2 * torch.randn(3, 4, 5)
    expected = twin.mean_kl_to_the_mean_prediction(logits.flatten(0, 1).tolist())
    # the other direction, KL(mean || prediction), is another number
    assert prediction_kl(logits) == pytest.approx(expected, rel=1e-5)


def test_small_divergences_are_not_lost_between_two_large_entropies():
    logits = 0.01 * torch.randn(64, 256)
    expected = twin.mean_kl_to_the_mean_prediction(logits.tolist())
    assert expected < 1e-4
    assert prediction_kl(logits) == pytest.approx(expected, rel=0.02)


def test_is_never_negative():
    assert prediction_kl(torch.randn(1, 1, 1000).expand(1, 500, 1000)) >= 0
