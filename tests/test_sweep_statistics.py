"""Tests of the statistics of tables: triplepoint.statistics.student, contingency and correlation."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from triplepoint.errors import StatisticsError
from triplepoint.statistics import (
    fisher_exact,
    odds_ratio_interval,
    spearman,
    spearman_p,
    t_interval,
    t_quantile,
    t_slope,
)

# --- Student's t


def test_the_interval_by_hand():
    # mean 2, s = 1, standard error 1/sqrt(3), t = 4.3027 at 2 degrees of freedom
    mean, low, high = t_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert high - mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert mean - low == pytest.approx(high - mean)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 8, 30, 121])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9, 0.975, 0.9999])
def test_quantiles_agree_with_scipy(p, df):
    assert t_quantile(p, df) == pytest.approx(scipy.stats.t.ppf(p, df), rel=1e-10, abs=1e-12)


def test_the_interval_agrees_with_scipy():
    x = np.random.default_rng(0).normal(size=7)
    other = scipy.stats.ttest_1samp(x, 0).confidence_interval(0.9)
    assert t_interval(x, confidence=0.9)[1:] == pytest.approx((other.low, other.high))


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_slope_has_the_interval_of_linear_regression(confidence):
    rng = np.random.default_rng(3)
    x = rng.normal(size=7)
    y = 2 * x + rng.normal(size=7)
    fit = scipy.stats.linregress(x, y)
    half = scipy.stats.t.ppf((1 + confidence) / 2, 5) * fit.stderr
    expected = (fit.slope, fit.slope - half, fit.slope + half)
    assert t_slope(x, y, confidence=confidence) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("x", "y"),
    [([1.0, 2.0], [1.0, 2.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0])],
    ids=["two points", "one x", "more x than y"],
)  # fmt: skip
def test_slope_of_what_is_no_line_is_refused(x, y):
    problem = (
        "at least 3 points that differ in x, got .*\nMeasure at another x, or with another seed"
    )
    with pytest.raises(StatisticsError, match=problem):
        t_slope(x, y)


def test_one_value_has_no_t_interval():
    with pytest.raises(StatisticsError, match="at least 2 values, got 1.\nRun another seed"):
        t_interval([0.3])


def test_a_quantile_outside_its_range_is_refused():
    with pytest.raises(StatisticsError, match=r"got p=1.0, df=3\.\nDegrees of freedom"):
        t_quantile(1.0, 3)


# --- two by two tables

TABLES = [(3, 8, 0, 8), (5, 8, 1, 8), (8, 8, 0, 8), (0, 4, 0, 9), (2, 3, 1, 2), (7, 20, 11, 17)]


@pytest.mark.parametrize(("a", "m", "b", "n"), TABLES)
def test_fisher_agrees_with_scipy(a, m, b, n):
    table = [[a, m - a], [b, n - b]]
    assert fisher_exact(a, m, b, n) == pytest.approx(scipy.stats.fisher_exact(table).pvalue)
    result = scipy.stats.contingency.odds_ratio(table, kind="conditional")
    other = result.confidence_interval(0.95)
    if min(a + b, m + n - a - b):  # scipy gives nan where nothing succeeded
        assert odds_ratio_interval(a, m, b, n) == pytest.approx((other.low, other.high), rel=1e-6)


def test_nothing_that_happened_says_nothing_about_the_ratio():
    assert odds_ratio_interval(0, 4, 0, 9) == (0.0, math.inf)
    assert fisher_exact(0, 4, 0, 9) == 1.0


def test_swapping_the_groups_inverts_the_interval():
    low, high = odds_ratio_interval(5, 8, 1, 8)
    assert odds_ratio_interval(1, 8, 5, 8) == pytest.approx((1 / high, 1 / low))


def test_impossible_counts_are_refused():
    with pytest.raises(StatisticsError, match="got 4 of 3 and 0 of 3.\nCount the trials"):
        fisher_exact(4, 3, 0, 3)


# --- rank correlation


def test_ties_share_their_mean_rank():
    x, y = [1.0, 2.0, 2.0, 4.0, 5.0], [3.0, 1.0, 4.0, 4.0, 9.0]
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic)


def test_it_sees_order_only():
    x = np.array([0.1, 0.5, 0.7, 2.0])
    assert spearman(x, np.exp(x)) == 1.0
    assert spearman(x, -(x**3)) == -1.0


def test_the_exact_p_counts_the_orders():
    x, y = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    seen = abs(scipy.stats.spearmanr(x, y).statistic)
    orders = list(itertools.permutations(y))
    count = sum(abs(scipy.stats.spearmanr(x, o).statistic) >= seen - 1e-9 for o in orders)
    assert spearman_p(x, y) == pytest.approx(count / len(orders))


def test_the_sampled_p_is_near_scipy_s_and_never_zero():
    generator = np.random.default_rng(1)
    x = generator.normal(size=20)
    y = x + generator.normal(size=20)
    assert spearman_p(x, x) == 1 / 10_001
    assert spearman_p(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).pvalue, abs=0.01)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 1, 1], [1, 2, 3], "all 3 values of x are equal.\nAdd cells"),
        ([1, 2], [1, 2, 3], "got 2 and 3.\nPass one of each"),
    ],
)
def test_what_cannot_be_correlated_is_refused(x, y, message):
    with pytest.raises(StatisticsError, match=message):
        spearman(x, y)
