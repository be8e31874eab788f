"""Tests of triplepoint.statistics.calibration."""

import math

import numpy as np
import pytest
import scipy.optimize

from triplepoint.errors import StatisticsError
from triplepoint.statistics import (
    brier_parts,
    brier_score,
    brier_skill,
    calibration_slope,
    probability_cap,
    spiegelhalter_z,
    temperature,
)


def forecasts(n, *, sharper=1.0, seed=0):
    """Uniform probabilities, and outcomes that are right for logits ``sharper`` times as large."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.02, 0.98, n)
    true = 1 / (1 + ((1 - p) / p) ** sharper)
    return p, rng.random(n) < true


def test_brier_by_hand():
    p, y = [0.9, 0.6, 0.2], [True, False, False]
    assert brier_score(p, y) == pytest.approx((0.01 + 0.36 + 0.04) / 3)
    # base rate 1/3: 2/9
    assert brier_skill(p, y) == pytest.approx(1 - 0.41 / 3 * 9 / 2)
    assert brier_skill([1 / 3] * 3, y) == pytest.approx(0.0)


@pytest.mark.parametrize("n", [40, 100])
def test_brier_of_a_calibrated_forecaster_scatters_as_its_variance_says(n):
    # p uniform: E (y - p)^2 = 1/6 and E (y - p)^4 = 2 B(2, 5) = 1/15
    rng = np.random.default_rng(0)
    p = rng.random((2000, n))
    y = rng.random((2000, n)) < p
    scores = [brier_score(*row) for row in zip(p, y, strict=True)]
    assert np.mean(scores) == pytest.approx(1 / 6, rel=0.01)
    assert np.std(scores) == pytest.approx(math.sqrt((1 / 15 - 1 / 36) / n), rel=0.05)


@pytest.mark.parametrize("bins", [1, 2, 5, 10])
def test_parts_add_up_to_the_score(bins):
    p, y = forecasts(50)
    parts = brier_parts(p, y, bins=bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within
    assert total == pytest.approx(brier_score(p, y), abs=1e-12)
    assert parts.uncertainty == pytest.approx(y.mean() * (1 - y.mean()))


def test_parts_by_hand():
    # 0.25 happened in 1 of 4, 0.75 in 4 of 4; 5 of 8 in all
    parts = brier_parts([0.25] * 4 + [0.75] * 4, [1, 0, 0, 0, 1, 1, 1, 1], bins=2)
    assert parts.reliability == pytest.approx(0.0625 / 2)
    assert parts.resolution == pytest.approx((0.375**2 + 0.375**2) / 2)
    assert parts.within == pytest.approx(0.0)
    assert brier_parts([1.0], [True]).within == 0.0  # the upper end is in the last bin
    with pytest.raises(StatisticsError, match="needs 1 bin at least, got 0.\nTry 5"):
        brier_parts([0.5], [1], bins=0)


def test_slope_of_two_probabilities_in_closed_form():
    # 0.8 happened in 15 of 20, 0.2 in 6 of 18
    p = [0.8] * 20 + [0.2] * 18
    y = [1] * 15 + [0] * 5 + [1] * 6 + [0] * 12
    upper, lower, said = math.log(15 / 5), math.log(6 / 12), math.log(4)
    line = calibration_slope(p, y)
    assert line.slope == pytest.approx((upper - lower) / (2 * said))
    assert line.intercept == pytest.approx((upper + lower) / 2)
    variances = 1 / 15 + 1 / 5, 1 / 6 + 1 / 12
    half = 1.959964 * math.sqrt(sum(variances)) / (2 * said)
    assert line.slope_interval == pytest.approx((line.slope - half, line.slope + half), rel=1e-5)
    half = 1.959964 * math.sqrt(sum(variances)) / 2
    assert line.intercept_interval == pytest.approx((line.intercept - half, line.intercept + half), rel=1e-5)  # fmt: skip
    assert line.why_not is None


def test_the_slope_of_a_calibrated_forecaster_is_one_within_its_interval():
    lines = [calibration_slope(*forecasts(100, seed=seed)) for seed in range(300)]
    assert np.median([line.slope for line in lines]) == pytest.approx(1.0, abs=0.06)
    # at 100 cells 95 % of the slopes lie about from 0.66 to 1.6
    assert np.quantile([line.slope for line in lines], [0.025, 0.975]) == pytest.approx([0.66, 1.6], abs=0.12)  # fmt: skip
    for interval, truth in (("slope_interval", 1.0), ("intercept_interval", 0.0)):
        covered = np.mean([low <= truth <= high for low, high in (getattr(line, interval) for line in lines)])  # fmt: skip
        assert 0.92 <= covered <= 0.98


def test_a_forecaster_that_is_too_sure_has_a_slope_below_one():
    assert calibration_slope(*forecasts(2000, sharper=0.5)).slope == pytest.approx(0.5, abs=0.08)
    assert calibration_slope(*forecasts(2000, sharper=2.0)).slope == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    ("p", "y", "why"),
    [
        ([0.2, 0.4, 0.6, 0.9], [0, 0, 1, 1], "beyond all of the other"),
        ([0.9, 0.6, 0.4, 0.2], [0, 0, 1, 1], "beyond all of the other"),
        # touching: no True below the common value, so steeper is still better
        ([0.2, 0.6, 0.6, 0.6], [0, 0, 1, 1], "beyond all of the other"),
        ([0.3, 0.3, 0.3], [0, 1, 1], "all probabilities are equal"),
    ],
)
def test_there_is_no_slope_where_none_exists(p, y, why):
    line = calibration_slope(p, y)
    values = (line.slope, line.slope_interval, line.intercept, line.intercept_interval)
    assert values == (None, None, None, None)
    assert why in line.why_not


def test_spiegelhalter_by_hand():
    # (0 - 0.8)(1 - 1.6) / sqrt(0.36 * 0.16)
    assert spiegelhalter_z([0.8], [False]) == pytest.approx(2.0)
    # one half says nothing
    assert spiegelhalter_z([0.8, 0.5], [False, True]) == pytest.approx(2.0)


def test_spiegelhalter_is_standard_normal_for_a_calibrated_forecaster():
    z = [spiegelhalter_z(*forecasts(80, seed=seed)) for seed in range(1500)]
    assert (np.mean(z), np.std(z)) == pytest.approx((0.0, 1.0), abs=0.07)
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.05, abs=0.02)


def test_temperature_is_where_likelihood_and_prior_balance():
    p, y = forecasts(30, sharper=3.0)
    towards = np.where(y, 1, -1) * np.log(p / (1 - p))

    def cost(u):
        return np.logaddexp(0, -np.exp(u) * towards).sum() + (u / 0.5) ** 2 / 2

    best = scipy.optimize.minimize_scalar(cost, bounds=(-3, 3), method="bounded").x
    assert temperature(p, y) == pytest.approx(math.exp(best), rel=0.005)


def test_many_cells_overrule_the_prior_and_none_leave_it():
    assert temperature(*forecasts(2000, sharper=2.0)) == pytest.approx(2.0, rel=0.1)
    assert temperature([0.5] * 50, [True] * 50) == pytest.approx(1.0)
    # one answer moves it a little
    assert 0.7 < temperature([0.9], [False]) < 1 < temperature([0.6], [True]) < 1.2


def test_a_cap_is_never_one():
    assert [probability_cap(n) for n in (0, 1, 38, 98)] == [0.5, 2 / 3, 0.975, 0.99]


@pytest.mark.parametrize("call", [calibration_slope, spiegelhalter_z, temperature])
def test_certainty_has_no_log_odds(call):
    with pytest.raises(
        StatisticsError, match=f"{call.__name__} needs probabilities inside .*; 2 of 3 are 0 or 1.\nCap them"
    ):  # fmt: skip
        call([0.0, 0.5, 1.0], [0, 1, 1])


@pytest.mark.parametrize("call", [brier_score, brier_parts, calibration_slope])
def test_scores_are_no_probabilities(call):
    with pytest.raises(StatisticsError, match="needs probabilities, got values from -1 to 0.5.\n"):
        call([0.5, -1.0], [0, 1])


def test_what_needs_both_outcomes_says_so():
    for call in (brier_skill, calibration_slope):
        with pytest.raises(StatisticsError, match=f"{call.__name__} is undefined: all 2 labels are True"):  # fmt: skip
            call([0.5, 0.6], [1, 1])
    with pytest.raises(StatisticsError, match="all probabilities are one half.\nThere is nothing"):
        spiegelhalter_z([0.5, 0.5], [1, 0])
