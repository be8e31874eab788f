"""Tests of triplepoint.metrics.activation_rank."""

import functools
import math

import pytest
import torch

from triplepoint.errors import MetricInputError
from triplepoint.metrics import (
    METRICS,
    activation_rank,
    add_states,
    effective_rank,
    effective_rank_sq,
    participation_ratio,
    stable_rank,
)


def activations():
    """[batch, seq, dim] with a large common direction, as networks have."""
    return torch.randn(5, 6, 8) * torch.linspace(0.1, 2, 8) + 3


def streamed(metric, x, masks=None):
    masks = [None] * len(x) if masks is None else masks
    states = (metric.update(part, mask) for part, mask in zip(x, masks, strict=True))
    return metric.compute(functools.reduce(add_states, states))


@pytest.mark.parametrize("centred", [False, True])
def test_is_the_rank_of_all_tokens_at_once(centred):
    x = activations()
    tokens = x.flatten(0, 1)
    tokens = tokens - tokens.mean(dim=0) if centred else tokens
    expected = [
        f(tokens).item()
        for f in (effective_rank, effective_rank_sq, participation_ratio, stable_rank)
    ]
    found = streamed(activation_rank(centred=centred), x)
    assert list(found) == [
        f"activation_rank{end}" for end in ("", "_sq", "_participation", "_stable")
    ]
    assert list(found.values()) == pytest.approx(expected, rel=1e-4)


def test_is_not_the_mean_of_the_batches_ranks():
    # each batch lies on one line, together they fill the plane
    x = torch.tensor([[[1.0, 0.0]] * 3, [[0.0, 1.0]] * 3])
    assert streamed(activation_rank(), x)["activation_rank"] == pytest.approx(2)


def test_centring_takes_off_the_mean_of_all_tokens():
    x = torch.tensor([[[5.0, 1.0], [5.0, -1.0]], [[5.0, 1.0], [5.0, -1.0]]])
    assert streamed(activation_rank(centred=True), x)["activation_rank"] == pytest.approx(1)
    # sigma = 10 and 2: p = 5/6, 1/6
    plain = math.exp(-(5 / 6 * math.log(5 / 6) + 1 / 6 * math.log(1 / 6)))
    assert streamed(activation_rank(), x)["activation_rank"] == pytest.approx(plain)


def test_the_one_in_the_table_is_not_centred():
    x = activations()
    assert streamed(METRICS["activation_rank"], x) == streamed(activation_rank(), x)


def test_masked_tokens_do_not_count():
    x = activations()
    masks = torch.rand(5, 6) < 0.6
    spoilt = torch.where(masks[..., None], x, math.nan)
    metric = activation_rank(centred=True)
    found = streamed(metric, spoilt, masks)
    assert found == pytest.approx(metric.compute(metric.update(x[masks])))
    assert int(metric.update(x, masks)["n"]) == int(masks.sum())


def test_a_mask_may_be_of_numbers_as_tokenizers_give_it():
    x = activations()
    mask = torch.ones(5, 6, dtype=torch.int64)
    metric = activation_rank()
    assert metric.compute(metric.update(x, mask)) == metric.compute(metric.update(x))


def test_a_mask_of_another_shape_is_an_error():
    with pytest.raises(MetricInputError) as error:
        activation_rank().update(torch.ones(2, 3, 4), torch.ones(2, 4))
    assert str(error.value) == (
        "the mask [2, 4] does not fit activations [2, 3, 4].\nIt needs one entry a token: [2, 3]."
    )


@pytest.mark.parametrize("centred", [False, True])
def test_equal_tokens_span_one_direction_or_none(centred):
    x = torch.full((4, 3, 6), 7.3)
    expected = 0 if centred else 1
    assert streamed(activation_rank(centred=centred), x)["activation_rank"] == pytest.approx(
        expected
    )


def test_after_a_divergence_there_is_no_number():
    x = activations()
    x[0, 0, 0] = math.inf
    assert all(math.isnan(v) for v in streamed(activation_rank(), x).values())


def test_goes_by_the_name_it_is_given():
    metric = activation_rank(name="input_rank")
    assert metric.name == "input_rank"
    assert "input_rank_sq" in metric.compute(metric.update(activations()))
