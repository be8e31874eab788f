"""Tests of triplepoint.metrics.scale."""

import math

import pytest
import torch

from triplepoint.metrics import METRICS


def value_of(name, x):
    metric = METRICS[name]
    return metric.compute(metric.update(x))[name]


def test_input_rms_is_the_root_mean_square_and_not_the_standard_deviation():
    # (9 + 16 + 0 + 25) / 4 = 12.5; the standard deviation would be 1.87
    x = torch.tensor([[3.0, 4.0], [0.0, 5.0]])
    assert value_of("input_rms", x) == pytest.approx(math.sqrt(12.5))
    assert value_of("input_rms", torch.full((3, 4), -2.0)) == 2.0


def test_input_rms_is_pooled_over_tokens():
    # the mean of the two tokens' own values would be 1
    x = torch.tensor([[0.0, 0.0], [2.0, 2.0]])
    assert value_of("input_rms", x) == pytest.approx(math.sqrt(2))


def test_logit_scale_by_hand():
    # deviations -1, 1 and -3, 3 from each position's own mean
    logits = torch.tensor([[[9.0, 11.0], [-3.0, 3.0]]])
    assert value_of("logit_scale", logits) == pytest.approx(math.sqrt((1 + 1 + 9 + 9) / 4))


def test_logit_scale_does_not_see_a_constant_added_at_a_position():
    logits = torch.randn(3, 4, 50)
    moved = logits + 10 * torch.randn(3, 4, 1)
    assert value_of("logit_scale", moved) == pytest.approx(
        value_of("logit_scale", logits), rel=1e-4
    )


def test_logit_scale_scales_with_the_logits_and_is_zero_for_a_uniform_prediction():
    logits = torch.randn(3, 4, 50)
    once, thrice = value_of("logit_scale", logits), value_of("logit_scale", -3 * logits)
    assert thrice == pytest.approx(3 * once)
    assert value_of("logit_scale", torch.full((3, 4, 50), 2.5)) == 0


def test_sums_of_squares_do_not_overflow_float16():
    assert value_of("input_rms", torch.full((8,), 6e4, dtype=torch.float16)) == 6e4
