"""Tests of triplepoint.screening.readings: what a beginning says, and what became of it."""

import dataclasses
import math

import numpy as np
import pytest

from triplepoint.evidence import Trajectory
from triplepoint.screening.readings import outcome, read

S = np.linspace(0.1, 1.0, 10)
LONG = np.linspace(0.1, 4.0, 40)


def run(train, val, s=S, **changes):
    found = Trajectory(
        seed=0, steps=np.arange(1, len(s) + 1), s1=s, train=train, val=val, series={}, outcome="finished",
        diverged_at=None,
    )  # fmt: skip
    return dataclasses.replace(found, **changes)


def arm(s, speed=1.0, offset=0.0):
    train = 2.0 * (speed * s) ** -0.25
    return run(train, 0.5 * train + 1.0 + offset, s)


def reading(candidate, *, s=S, plateau=9.0):
    return read(arm(s), candidate, plateau=plateau, epochs_per_step=0.5)


def test_a_power_law_and_a_line_are_read():
    found = reading(arm(S, 0.5, 0.04))
    assert found.slope == pytest.approx(0.5)
    assert found.exponent == pytest.approx(0.25)
    assert found.speed_ratio == pytest.approx(0.5, rel=5e-3)
    assert found.offset == pytest.approx(0.04, abs=2e-3)
    assert found.epochs == 5.0
    assert found.past_middle < 0
    assert not found.on_plateau


def test_a_candidate_at_the_unigram_loss_is_on_the_plateau():
    slow = arm(S, 0.5)
    assert reading(slow, plateau=slow.val[-1] + 0.02).on_plateau
    assert not reading(slow, plateau=slow.val[-1] + 0.04).on_plateau


def test_nothing_is_read_of_a_short_a_diverged_or_an_unmatched_pair():
    assert read(arm(S[:3]), arm(S[:3]), plateau=9.0, epochs_per_step=1.0) is None
    gone = dataclasses.replace(arm(S), outcome="diverged", diverged_at=5)
    assert reading(gone) is None
    assert read(gone, arm(S), plateau=9.0, epochs_per_step=1.0) is None
    assert reading(run(np.full(10, 50.0), np.full(10, 50.0))) is None


def test_relief_is_the_share_of_the_gap_and_shrinks_where_there_is_none():
    train = 2.0 * S**-0.25
    over = train[0] + 0.5 + 3.0 * (train[0] - train)  # the gap grows to 4 (train[0] - train)
    base = run(train, over)
    gap = 4.0 * (train[0] - train[-1])
    half = run(train, over - 0.5 * 4.0 * (train[0] - train))
    found = read(base, half, plateau=9.0, epochs_per_step=1.0)
    assert found.relief == pytest.approx(0.5 * gap**2 / (gap**2 + 0.1**2))
    flat = read(run(train, train), run(train, train - 0.05), plateau=9.0, epochs_per_step=1.0)
    assert flat.relief == 0.0


def test_what_became_of_a_reading_is_what_a_forecast_has_to_guess():
    found = reading(arm(S, 0.5))
    base, late = arm(LONG), arm(LONG, 0.5)
    end = outcome(found, base, late)
    assert end.acceleration == pytest.approx(0.0, abs=1e-9)  # the power law goes on
    assert end.curvature == pytest.approx(0.0, abs=1e-6)  # so does the line
    assert end.catching_up == pytest.approx(0.0, abs=5e-3)
    assert end.offset == pytest.approx(0.0, abs=1e-3)


def test_a_candidate_that_caught_up_and_a_curve_that_bent():
    found = reading(arm(S, 0.5))
    train = np.where(LONG <= 1.0, 2.0 * LONG**-0.25, 2.0 * LONG**-0.5)
    last = found.train[-1]
    x = train - last
    bent = 0.5 * last + 1.0 + 0.5 * x + found.past_middle * x + x**2 / 2
    val = np.where(LONG <= 1.0, 0.5 * train + 1.0, bent)
    base = run(train, val, LONG)
    end = outcome(found, base, base)  # it ends where the baseline does: r = 1
    assert end.acceleration == pytest.approx(math.log(2.0))
    assert end.curvature == pytest.approx(1.0, rel=1e-6)
    assert end.catching_up == pytest.approx(math.log(1 / found.speed_ratio) / math.log(4.0))


def test_a_baseline_that_got_no_further_tells_no_acceleration():
    found = reading(arm(S, 0.5))
    stuck = run(np.full(40, found.train[-1]), np.full(40, 2.0), LONG)
    assert outcome(found, stuck, arm(LONG, 0.5)).acceleration is None
