"""What every entry of triplepoint.metrics.METRICS promises. A new metric is tested here unasked."""

import math

import pytest
import torch

from triplepoint.metrics import METRICS, add_states

pytestmark = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


def sample(rows, *, dtype=torch.float32):
    """Numbers of the size that real ones have, [batch, seq, dim]."""
    return (1.5 * torch.randn(rows, 4, 6) + 0.3).to(dtype)


def test_is_listed_under_its_name(metric):
    assert METRICS[metric.name] is metric
    assert metric.definition and metric.unit and metric.source
    assert metric.reads in ("activation", "pre_activation", "logits")


def test_states_of_parts_add_up_to_the_state_of_the_whole(metric):
    a, b = sample(3), sample(5)
    parts = metric.compute(add_states(metric.update(a), metric.update(b)))
    assert parts == pytest.approx(metric.compute(metric.update(torch.cat([a, b]))), rel=1e-6)


def test_the_order_of_parts_does_not_matter(metric):
    a, b = metric.update(sample(3)), metric.update(sample(5))
    forth, back = metric.compute(add_states(a, b)), metric.compute(add_states(b, a))
    assert forth == pytest.approx(back, rel=1e-12)


def test_nothing_and_one_state_add_up_to_the_state(metric):
    state = metric.update(sample(2))
    assert metric.compute(add_states(None, state)) == metric.compute(state)


def test_adding_leaves_the_states_alone(metric):
    a, b = metric.update(sample(3)), metric.update(sample(5))
    before = metric.compute(a)
    add_states(a, b)
    assert metric.compute(a) == before


def test_values_are_finite_floats_named_after_the_metric(metric):
    values = metric.compute(metric.update(sample(4)))
    assert values
    for name, value in values.items():
        assert name.startswith(metric.name)
        assert type(value) is float
        assert math.isfinite(value)


def test_counts_what_it_is_over(metric):
    # sums of up to 2**53 terms, so that a long run does not lose any
    n = metric.update(sample(4))["n"]
    assert not n.is_floating_point()
    assert int(n) in (4 * 4 * 6, 4 * 4)  # elements or positions


def test_bfloat16_is_measured_as_the_float32_of_the_same_numbers(metric):
    x = sample(4, dtype=torch.bfloat16)
    low, high = metric.compute(metric.update(x)), metric.compute(metric.update(x.float()))
    assert low == pytest.approx(high, rel=1e-6)


def test_keeps_no_graph_and_leaves_its_input_alone(metric):
    x = sample(2).requires_grad_()
    before = x.detach().clone()
    state = metric.update(x)
    assert not any(v.requires_grad for v in state.values())
    assert torch.equal(x.detach(), before)


def test_an_empty_tensor_gives_zeros(metric):
    assert set(metric.compute(metric.update(torch.zeros(0, 6))).values()) == {0.0}
