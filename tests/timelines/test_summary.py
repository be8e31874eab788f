"""Tests of triplepoint.timelines.summary: what whole curves say."""

import math

import pytest

from triplepoint.timelines import Curves, phase_over, summarise
from triplepoint.timelines.curves import named


def summary(**curves):
    known = Curves(**curves)
    return summarise(known, phase_over(known))


def curve(*values, every=100):
    return [(every * i, value) for i, value in enumerate(values, 1)]


def test_onset_is_the_first_of_three_in_a_row_above_the_best():
    # best 1.7 at 400; 1.74 is within 0.05; 1.80 at 600 begins three in a row
    found = summary(val_loss=curve(3, 2, 1.8, 1.7, 1.74, 1.8, 1.9, 2.1))
    assert found.best == (400, 1.7)
    assert found.onset == (600, None)
    assert found.rise == pytest.approx(0.4)


def test_onset_is_looked_for_after_the_best_only():
    # three bad ones before a new best are no onset
    found = summary(val_loss=curve(2, 2.5, 2.5, 2.5, 1.5, 1.5))
    assert found.best == (500, 1.5)
    assert found.onset == (None, 600)
    assert found.rise == 0


def test_two_evaluations_above_are_censored_at_the_last_one_that_is_not():
    assert summary(val_loss=curve(3, 2, 2.2, 2.3)).onset == (None, 200)


def test_the_first_of_equal_best_steps_counts():
    assert summary(val_loss=curve(3, 2, 2, 2)).best == (200, 2)


def test_losses_that_are_not_finite_are_no_best():
    found = summary(val_loss=curve(3, -math.inf, 2, math.nan))
    assert found.best == (300, 2)
    assert found.rise == 0


def test_no_onset_where_the_training_loss_rose_as_well():
    both = curve(3, 2, 1.7, 2.2, 2.4, 2.6)
    found = summary(train_loss=both, val_loss=both)
    assert found.onset is None
    assert found.not_told["over-fitting onset"] == "the training loss rose as well, or was lost"


def test_times_are_on_the_steps_of_their_own_curves():
    found = summary(
        train_accuracy=curve(0.5, 0.99, 1, 1, 1, 1, every=10),
        val_accuracy=curve(0.1, 0.5, 0.6, 0.92, 0.95, 0.96, every=1000),
    )
    assert {name: time[:] for name, time in found.times.items()} == {
        "T_mem": (20, None),
        "T_grok_0.5": (2000, None),
        "T_grok_0.9": (4000, None),
        "T_grok_0.99": (None, 6000),
    }


def test_what_is_not_measured_is_not_told():
    found = summary(train_loss=curve(3, 2, 1))
    assert (found.best, found.onset, found.rise, found.times) == (None, None, None, {})
    assert found.not_told["best step, over-fitting"] == "no validation loss"
    assert found.not_told["memorised, T_mem"] == "no training accuracy"
    assert "T_grok" in found.not_told
    assert "is not known" in found.not_told["divergence of a finite loss, leaving the plateau"]
    assert "baseline" in found.not_told["stalled, collapsed"]


def test_a_single_evaluation_is_its_own_best_and_censored():
    found = summary(val_loss=[(7, 2.0)])
    assert (found.best, found.onset, found.rise) == ((7, 2.0), (None, 7), 0)


def test_steps_are_named_without_a_needless_point():
    assert [named(s) for s in (0, 3.0, 0.25, 1_000_000.0)] == ["0", "3", "0.25", "1000000"]
