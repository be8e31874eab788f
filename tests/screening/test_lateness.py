"""Tests of triplepoint.screening.lateness: a candidate that is only late."""

import numpy as np
import pytest

from triplepoint.screening.lateness import Beginning, Prior, outlook

SURE = Prior(
    acceleration=(1.0, 0.0), curvature=(0.5, 0.0), catching_up=(0.0, 0.0), offset=(0.0, 0.0)
)
"""No spread: the forecast is one curve."""
S = np.linspace(0.1, 1.0, 10)


def arm(train, val):
    return Beginning(S, train, val(train))


def falling(level):
    """No over-fitting: one nat of validation loss for one of train loss."""
    return level + 0.2


def power(speed=1.0):
    return 2.0 * (speed * S) ** -0.25


def test_a_late_arm_is_behind_by_what_the_baseline_has_yet_to_learn():
    found = outlook(arm(power(), falling), arm(power(0.5), falling), s_end=4.0, prior=SURE)
    # both on 2 s^-0.25, the candidate at half the clock: at 4 and at 2; the parabola adds q x^2 / 2 and q (l - middle) x
    assert found.speed_ratio == pytest.approx(0.5, rel=0.02)
    assert found.slope == pytest.approx(1.0)
    assert found.wins("fixed_step") < 0.001
    assert found.wins("best_checkpoint") < 0.001
    assert np.ptp(found.fixed_step) == 0


def test_a_parabola_is_continued_to_its_end():
    prior = Prior(
        acceleration=(1.0, 0.0), curvature=(1.0, 0.0), catching_up=(0.0, 0.0), offset=(0.0, 0.0)
    )
    val = lambda level: 2.0 + (level - 1.6) ** 2 / 2  # noqa: E731
    train = 2.0 * S**-0.1
    slow = 2.0 * (0.6 * S) ** -0.1
    found = outlook(
        Beginning(S, train, val(train)), Beginning(S, slow, val(slow)), s_end=30.0, prior=prior
    )
    ends = [2.0 * (speed * 30.0) ** -0.1 for speed in (1.0, 0.6)]
    expected = (val(ends[1]) - val(ends[0])) / val(ends[0])
    assert expected < 0
    assert found.fixed_step[0] == pytest.approx(expected, abs=2e-3)
    # both pass the bottom at 1.6
    assert found.best_checkpoint[0] == pytest.approx(0.0, abs=1e-6)


def test_over_fitting_makes_the_late_arm_end_lower_and_its_best_no_better():
    val = lambda level: 2.0 + 2 * np.abs(level - 2.2)  # noqa: E731
    found = outlook(arm(power(), val), arm(power(0.5), val), s_end=4.0, prior=SURE)
    assert found.slope < 0
    assert found.wins("fixed_step") > 0.999
    assert np.abs(found.best_checkpoint).max() < 0.02


def test_an_offset_decides_at_the_best_checkpoint():
    val = lambda level: 2.0 + 2 * np.abs(level - 2.2)  # noqa: E731
    better = Prior(
        acceleration=(1.0, 0.0), curvature=(0.5, 0.0), catching_up=(0.0, 0.0), offset=(-0.1, 0.0)
    )
    found = outlook(arm(power(), val), arm(power(0.9), val), s_end=4.0, prior=better)
    assert found.wins("best_checkpoint") > 0.999


def test_the_same_arm_is_no_better_and_no_worse():
    found = outlook(arm(power(), falling), arm(power(), falling), s_end=4.0, prior=SURE)
    assert np.abs(found.fixed_step).max() < 1e-9


def test_probabilities_are_never_0_or_1():
    found = outlook(arm(power(), falling), arm(power(0.5), falling), s_end=4.0, prior=SURE)
    assert found.wins("fixed_step") == 1 / 2002


def test_an_arm_that_shares_no_train_loss_has_no_outlook():
    far = Beginning(S, np.full(10, 5.0), np.full(10, 5.2))
    assert outlook(arm(power(), falling), far, s_end=4.0) is None


def test_the_plan_may_end_with_the_beginning():
    found = outlook(arm(power(), falling), arm(power(0.5), falling), s_end=1.0, prior=SURE)
    expected = (power(0.5)[-1] - power()[-1]) / falling(power()[-1])
    assert found.fixed_step[0] == pytest.approx(expected, rel=0.02)
