"""Tests of triplepoint.screening.clocks: a candidate as a delayed baseline."""

import numpy as np
import pytest

from triplepoint.screening.clocks import Delay, break_even, delay

S = np.linspace(1.0, 20.0, 20)


def power(s, floor=1.0, amplitude=2.0, exponent=0.5):
    return floor + amplitude * s**-exponent


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.8])
@pytest.mark.parametrize("offset", [-0.05, 0.0, 0.1])
def test_recovers_the_ratio_and_the_offset_of_a_delayed_copy(ratio, offset):
    fine = np.linspace(0.1, 20, 2000)
    train_b, val_b = power(fine), power(fine) + 0.3
    train_c = power(ratio * fine)
    found = delay(fine, train_b, val_b, train_c, train_c + 0.3 + offset)
    assert found.speed_ratio == pytest.approx(ratio, rel=1e-3)
    assert found.offset == pytest.approx(offset, abs=1e-3)


def test_a_faster_candidate_has_the_inverse_ratio():
    fine = np.linspace(0.1, 20, 2000)
    found = delay(fine, power(fine / 2), power(fine / 2), power(fine), power(fine))
    assert found.speed_ratio == pytest.approx(2.0, rel=1e-3)
    assert found.offset == pytest.approx(0.0, abs=1e-3)


def test_arms_that_never_had_the_same_loss_have_no_ratio_rather_than_one_made_by_the_grid():
    flat = np.full(20, 9.0)
    assert delay(S, power(S), power(S), flat, flat) == Delay(None, None)
    assert delay(S, flat, flat, power(S), power(S)) == Delay(None, None)


def test_each_arm_has_its_own_clock_where_the_rates_differ():
    # the candidate at a third of the rate is as good after three times the steps: as fast on the clock
    found = delay(S, power(S), power(S), power(S / 3), power(S / 3), S / 3)
    assert found.speed_ratio == pytest.approx(1.0, rel=0.02)


def test_noise_in_a_train_curve_does_not_make_time_run_backwards():
    noisy = power(S) + np.where(np.arange(20) % 2, 0.05, -0.05)
    found = delay(S, noisy, noisy, power(0.5 * S), power(0.5 * S))
    assert found.speed_ratio == pytest.approx(0.5, rel=0.15)


def test_break_even_values_by_hand():
    # V falls by 0.1 a unit from 2.0 at s=0 to 1.0 at s=10; r = 0.7 ends at V(7) = 1.3 plus the offset
    s = np.linspace(0.0, 10.0, 11)
    even = break_even(s, 2.0 - 0.1 * s, Delay(0.7, -0.1))
    assert even.offset == pytest.approx(-0.3)  # 1.0 - 1.3
    assert even.speed_ratio == pytest.approx(0.9)  # an offset of -0.1 needs V = 1.1
    # a positive offset needs a loss that the baseline has not reached
    assert break_even(s, 2.0 - 0.1 * s, Delay(0.7, 0.1)).speed_ratio is None


def test_break_even_ratio_solves_the_equation():
    s = np.linspace(0.0, 10.0, 101)
    val = 2.0 - 0.1 * s
    even = break_even(s, val, Delay(0.7, 0.0))
    assert even.speed_ratio == pytest.approx(1.0)
    even = break_even(s, val, Delay(0.7, -0.25))
    assert np.interp(10 * even.speed_ratio, s, val) - 0.25 == pytest.approx(1.0)
