"""Tests of triplepoint.statistics."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.isotonic import isotonic_by_blocks
from tests.reference.paired_interval import paired_interval_by_loops

from triplepoint.errors import StatisticsError
from triplepoint.statistics import (
    asymptotic_confidence_sequence,
    auc,
    balanced_accuracy,
    balanced_accuracy_lower,
    best_threshold,
    isotonic,
    leave_one_group_out,
    paired_interval,
    paired_relative_interval,
    permutation_p,
    wilson,
)


def rng():
    return np.random.default_rng(0)


# --- wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(6, 12, 0.254, 0.746), (9, 12, 0.468, 0.911), (36, 40, 0.769, 0.960), (9, 9, 0.701, 1.0)],
)
def test_wilson_equals_known_intervals(successes, n, low, high):
    assert wilson(successes, n) == pytest.approx((low, high), abs=6e-4)


def test_wilson_of_one_trial_by_hand():
    # k = 0, n = 1: (0, z^2 / (1 + z^2)); z = 1 at the level of one standard deviation
    one_sigma = math.erf(1 / math.sqrt(2))
    assert wilson(0, 1, confidence=one_sigma) == pytest.approx((0, 0.5))


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize(("k", "n"), [(0, 5), (3, 7), (38, 40), (40, 40)])
def test_wilson_agrees_with_scipy(k, n, confidence):
    other = scipy.stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k, n, confidence=confidence) == pytest.approx((other.low, other.high), abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(k, n):
    with pytest.raises(StatisticsError, match=f"got {k} of {n}.\nCount the trials"):
        wilson(k, n)


def test_a_level_outside_zero_one_is_refused():
    with pytest.raises(StatisticsError, match="between 0 and 1, got 95.\nTry 0.95"):
        wilson(1, 2, confidence=95)
    with pytest.raises(StatisticsError, match="between 0 and 1, got 1.0"):
        paired_interval(np.ones((2, 2)), confidence=1.0)


# --- auc and its permutation p


def test_auc_counts_pairs():
    assert auc([1, 2, 3, 4], [0, 0, 1, 1]) == 1.0
    assert auc([1, 2, 3, 4], [1, 1, 0, 0]) == 0.0
    assert auc([7, 7, 7], [1, 0, 0]) == 0.5


def test_auc_agrees_with_mann_whitney_under_ties():
    scores = rng().integers(0, 5, size=40).astype(float)
    labels = rng().random(40) < 0.4
    u = scipy.stats.mannwhitneyu(scores[labels], scores[~labels]).statistic
    assert auc(scores, labels) == pytest.approx(u / (labels.sum() * (~labels).sum()))


def test_auc_refuses_one_class_and_says_what_to_do():
    with pytest.raises(StatisticsError, match="all 2 labels are True.\nAdd cells"):
        auc([1, 2], [True, True])


def test_exact_permutation_p_by_hand():
    # 10 placements of two True among 5; sums of ranks >= 8 of the observed {5, 3}: {5,4}, {5,3}
    assert permutation_p([1, 2, 3, 4, 5], [0, 0, 1, 0, 1]) == 2 / 10


def test_exact_permutation_p_agrees_with_scipy():
    scores, labels = rng().normal(size=9), np.arange(9) < 4
    other = scipy.stats.mannwhitneyu(
        scores[labels], scores[~labels], alternative="greater", method="exact"
    )
    assert permutation_p(scores, labels) == pytest.approx(other.pvalue)


def test_large_permutation_p_is_sampled_and_never_zero():
    scores, labels = np.arange(40.0), np.arange(40) >= 20
    # C(40, 20) = 1.4e11 placements, none of 199 random ones is perfect
    assert permutation_p(scores, labels, resamples=199) == 1 / 200


def test_sampled_permutation_p_is_near_the_exact_one():
    scores, labels = rng().normal(size=30), np.arange(30) < 12
    exact = scipy.stats.mannwhitneyu(
        scores[labels], scores[~labels], alternative="greater", method="exact"
    ).pvalue
    # 3 binomial standard errors of 2000 shuffles
    tolerance = 3 * math.sqrt(exact * (1 - exact) / 2000) + 1 / 2000
    assert permutation_p(scores, labels, resamples=2000) == pytest.approx(exact, abs=tolerance)


def test_permutation_p_takes_another_statistic():
    def accuracy(s, y):
        return best_threshold(s, y)[1]

    # best accuracies of the three placements: 2/3, 2/3 (observed), 1; by AUC it would be 2 of 3
    assert permutation_p([1.0, 2.0, 3.0], [1, 0, 1], statistic=accuracy) == 1.0


# --- thresholds


@pytest.mark.parametrize(
    ("scores", "labels", "threshold", "accuracy"),
    [
        ([1, 2, 4], [0, 0, 1], 3.0, 1.0),
        ([1, 2, 4], [1, 1, 1], 0.99, 1.0),
        ([1, 2, 4], [0, 0, 0], 4.01, 1.0),
        # 1.5 and 3.5 are both right 3 of 4 times: the first is taken
        ([1, 2, 3, 4], [0, 1, 0, 1], 1.5, 0.75),
        ([2, 2], [0, 1], 1.99, 0.5),
    ],
    ids=["between", "all true", "all false", "first of two", "tied"],
)
def test_best_threshold(scores, labels, threshold, accuracy):
    assert best_threshold(scores, labels) == pytest.approx((threshold, accuracy))


def test_a_balanced_threshold_does_not_give_the_rarer_class_up():
    # plain: 4.01 is right 4 of 5 times. Balanced: 2.5 has the one True and 2 of 4 False; 4.01 has 1/2
    scores, labels = [1, 2, 3, 4, 4], [0, 0, 1, 0, 0]
    assert best_threshold(scores, labels) == pytest.approx((4.01, 0.8))
    assert best_threshold(scores, labels, balanced=True) == pytest.approx((2.5, 0.75))
    assert best_threshold([1, 2], [1, 1], balanced=True) == pytest.approx((0.99, 1.0))


def test_leave_one_group_out_never_sees_the_group():
    scores, labels = [1.0, 2.0, 3.0, 9.0], [False, True, False, True]
    groups = ["a", "b", "a", "b"]
    held = leave_one_group_out(scores, labels, groups)
    # without a: only True cells 2, 9 -> 1.99; without b: only False cells 1, 3 -> 3.01
    assert held.thresholds == pytest.approx({"a": 1.99, "b": 3.01})
    assert held.predictions.tolist() == [False, False, True, True]
    assert (held.correct, held.n) == (2, 4)


@pytest.mark.parametrize("groups", [["a", "a", "a"], ["a", "b"]])
def test_leave_one_group_out_needs_two_groups_and_all_names(groups):
    with pytest.raises(StatisticsError, match="at least 2 groups.*\n.*report the in-sample"):
        leave_one_group_out([1, 2, 3], [0, 1, 1], groups)


@pytest.mark.parametrize("call", [auc, best_threshold, permutation_p])
def test_bad_scores_and_labels_are_named(call):
    with pytest.raises(StatisticsError, match=f"{call.__name__} needs finite.*1 of 2 are inf"):
        call([1.0, math.nan], [0, 1])
    with pytest.raises(StatisticsError, match="got 1 labels for 2 scores.\nPass one"):
        call([1.0, 2.0], [1])
    with pytest.raises(StatisticsError, match=r"labels True or False, got \[0, 2\].\nTurn"):
        call([1.0, 2.0], [0, 2])
    with pytest.raises(StatisticsError, match="at least one"):
        call([], [])
    with pytest.raises(StatisticsError, match=r"shape \[1, 2\].\nFlatten"):
        call([[1.0, 2.0]], [0, 1])


# --- balanced accuracy


def answers(positives, negatives, *, wrong_positives=0, wrong_negatives=0):
    labels = np.array([1] * positives + [0] * negatives)
    predictions = labels.copy()
    predictions[:wrong_positives] ^= 1
    predictions[positives : positives + wrong_negatives] ^= 1
    return predictions, labels


def test_balanced_accuracy_is_not_the_accuracy():
    # 1 of 2 True, 8 of 8 False: accuracy 0.9, balanced 0.75
    assert balanced_accuracy(*answers(2, 8, wrong_positives=1)) == 0.75


def test_balanced_accuracy_lower_from_two_wilson_limits():
    low1, low0 = wilson(18, 20)[0], wilson(30, 30)[0]
    expected = 0.95 - 0.5 * math.sqrt((0.9 - low1) ** 2 + (1 - low0) ** 2)
    got = balanced_accuracy_lower(*answers(20, 30, wrong_positives=2))
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("positives", "negatives", "allowed"),
    [(15, 15, 1), (20, 20, 2), (13, 27, 1), (30, 30, 5), (20, 40, 3), (40, 40, 8), (50, 50, 10)],
)
def test_errors_allowed_for_balanced_accuracy_90_with_lower_bound_80(positives, negatives, allowed):
    def passes(wrong_positives, wrong):
        given = answers(
            positives,
            negatives,
            wrong_positives=wrong_positives,
            wrong_negatives=wrong - wrong_positives,
        )
        # 1e-12: 0.9 from two fractions may fall short in the last bit
        return balanced_accuracy(*given) >= 0.9 - 1e-12 and balanced_accuracy_lower(*given) >= 0.8

    def wherever(wrong):
        return all(passes(k, wrong) for k in range(wrong + 1))

    assert wherever(allowed)
    assert not wherever(allowed + 1)


def test_balanced_accuracy_of_one_class_is_refused():
    with pytest.raises(StatisticsError, match="balanced_accuracy_lower is undefined: all 3"):
        balanced_accuracy_lower([1, 0, 0], [0, 0, 0])


# --- paired intervals


def test_two_seeds_reach_as_far_as_their_standard_error_allows():
    # windows agree, seeds say 0 and 2: a quarter of the draws are (2, 2), and sqrt(2) (2 - 1)
    d = np.repeat([[0.0], [2.0]], 4, axis=1)
    assert paired_interval(d) == pytest.approx((1.0, 1 - math.sqrt(2), 1 + math.sqrt(2)))


def test_many_seeds_give_the_standard_error_of_the_seeds():
    seeds = rng().normal(size=(200, 1))
    _, low, high = paired_interval(np.repeat(seeds, 2, axis=1), resamples=20_000)
    standard_error = seeds.std(ddof=1) / math.sqrt(200)
    assert (high - low) / 2 == pytest.approx(1.96 * standard_error, rel=0.03)


def test_windows_shared_by_all_seeds_are_not_averaged_away():
    windows = rng().normal(size=(1, 400))
    _, low, high = paired_interval(np.repeat(windows, 10, axis=0))
    # nested resampling would be sqrt(10) times narrower
    assert (high - low) / 2 == pytest.approx(1.96 * windows.std() / math.sqrt(400), rel=0.05)


def test_one_seed_is_the_bootstrap_over_windows():
    d = rng().normal(size=(1, 50))
    other = scipy.stats.bootstrap(
        (d[0],), np.mean, n_resamples=20_000, method="percentile", rng=rng()
    ).confidence_interval
    _, low, high = paired_interval(d, resamples=20_000)
    assert (low, high) == pytest.approx((other.low, other.high), abs=0.01)


def test_paired_interval_agrees_with_the_loops():
    d = 0.3 + 0.2 * rng().normal(size=(3, 1)) + 0.5 * rng().normal(size=(3, 12))
    slow = paired_interval_by_loops(d, resamples=4000, seed=1)
    _, low, high = paired_interval(d, resamples=20_000)
    # 4000 draws leave about 3 % of the half width in an end
    assert (low, high) == pytest.approx(slow, abs=0.06 * (high - low))


@pytest.mark.parametrize(
    ("n_seeds", "seed_std", "lowest", "highest"),
    [
        (3, 1.0, 0.76, 0.87),  # nominal 0.95: three values of a variance are few
        (5, 1.0, 0.84, 0.93),
        (3, 0.02, 0.93, 1.0),
        (5, 0.02, 0.93, 1.0),
    ],
    ids=["3 seeds differ", "5 seeds differ", "3 seeds agree", "5 seeds agree"],
)
def test_coverage_of_paired_interval(n_seeds, seed_std, lowest, highest):
    draw, truth, trials = rng(), 0.3, 500
    covered = 0
    for trial in range(trials):
        d = truth + seed_std * draw.normal(size=(n_seeds, 1))
        d = d + 0.3 * draw.normal(size=(1, 32)) + 0.1 * draw.normal(size=(n_seeds, 32))
        _, low, high = paired_interval(d, resamples=400, seed=trial)
        covered += low <= truth <= high
    assert lowest <= covered / trials <= highest


def test_paired_interval_repeats_and_depends_on_its_seed():
    d = rng().normal(size=(2, 8))
    assert paired_interval(d) == paired_interval(d)
    assert paired_interval(d) != paired_interval(d, seed=1)


def test_relative_interval_is_a_ratio_of_means():
    base = np.array([[1.0, 3.0]])
    delta, low, high = paired_relative_interval(base + [[1.0, 0.0]], base)
    # (2 + 3 - 4) / 4, not the mean of 1/1 and 0/3; draws of one window only give 1 and 0
    assert (delta, low, high) == (0.25, 0.0, 1.0)


def test_relative_interval_scales_the_absolute_one_where_the_baseline_is_constant():
    c = 4 + rng().normal(size=(3, 16))
    mean, low, high = paired_interval(c - 4.0)
    relative = paired_relative_interval(c, np.full_like(c, 4.0))
    assert relative == pytest.approx((mean / 4, low / 4, high / 4))


def test_relative_interval_ignores_the_unit_of_the_loss():
    b, c = 3 + rng().random((2, 9)), 2.5 + rng().random((2, 9))
    nats = paired_relative_interval(c, b)
    assert paired_relative_interval(c / math.log(2), b / math.log(2)) == pytest.approx(nats)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_differences_say_how_many(bad):
    d = np.ones((2, 3))
    d[1, 2] = bad
    with pytest.raises(StatisticsError, match="1 of 6 are inf or nan.\n.*report the run as div"):
        paired_interval(d)
    with pytest.raises(StatisticsError, match="paired_relative_interval needs finite"):
        paired_relative_interval(np.ones((2, 3)), d)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (0, 4), (1, 2, 3)])
def test_paired_interval_refuses_other_shapes(shape):
    with pytest.raises(StatisticsError, match=r"\[seed, window\].*\n?.*x\[None, :\]"):
        paired_interval(np.ones(shape))


def test_unpaired_or_unusable_losses_are_refused():
    ones = np.ones((2, 3))
    with pytest.raises(StatisticsError, match=r"candidate \[2, 3\] and baseline \[2, 4\]"):
        paired_relative_interval(ones, np.ones((2, 4)))
    for baseline in (0 * ones, ones - [[0, 0, 2]]):
        with pytest.raises(StatisticsError, match="must be positive.*\nUse paired_interval"):
            paired_relative_interval(ones, baseline)
    with pytest.raises(StatisticsError, match="Cannot draw 0 resamples"):
        paired_interval(ones, resamples=0)


# --- confidence sequence


def test_confidence_sequence_by_hand():
    # alpha = exp(-1/2): -2 ln alpha = 1, rho^2 = (1 + ln 2) / 2, n rho^2 = 2 + 2 ln 2
    grown = 3 + 2 * math.log(2)
    half = 3 * math.sqrt(grown / (4 * (grown - 1)) * (math.log(grown) + 1))
    got = asymptotic_confidence_sequence(5.0, 3.0, 4, alpha=math.exp(-0.5), n_star=2)
    assert got == pytest.approx((5 - half, 5 + half))


def test_confidence_sequence_is_tightest_at_n_star_among_its_kind():
    widths = [
        np.diff(asymptotic_confidence_sequence(0, 1, 500, n_star=n))[0] for n in (50, 500, 5000)
    ]
    assert widths[1] < min(widths[0], widths[2])


def test_confidence_sequence_survives_looking_at_every_step():
    walks = np.cumsum(rng().normal(size=(400, 300)), axis=1)
    ends = [asymptotic_confidence_sequence(0, 1, n, n_star=100)[1] for n in range(1, 301)]
    fixed = [1.96 / math.sqrt(n) for n in range(1, 301)]
    means = np.abs(walks) / np.arange(1, 301)
    assert (means > ends).any(axis=1).mean() <= 0.05
    assert (means > fixed).any(axis=1).mean() > 0.3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n >= 1.*n=0"),
        ({"alpha": 1.0}, "alpha=1.0.\nTry alpha=0.05"),
        ({"std": math.nan}, "std >= 0, got 0.0, nan.\nThe run has"),
        ({"std": -1.0}, "std >= 0"),
    ],
)
def test_confidence_sequence_refuses(change, message):
    given = {"mean": 0.0, "std": 1.0, "n": 10, "n_star": 10} | change
    with pytest.raises(StatisticsError, match=f"(?s){message}"):
        asymptotic_confidence_sequence(given.pop("mean"), given.pop("std"), given.pop("n"), **given)


# --- isotonic


@pytest.mark.parametrize("y", list(itertools.product([0.0, 1.0, 3.0], repeat=4)), ids=str)
def test_isotonic_agrees_with_every_block(y):
    assert isotonic(y, increasing=True) == pytest.approx(isotonic_by_blocks(y))


@given(st.lists(st.floats(-1e3, 1e3), max_size=12))
def test_isotonic_falling_is_rising_upside_down(y):
    mirrored = [-v for v in isotonic_by_blocks([-v for v in y])]
    assert isotonic(y, increasing=False) == pytest.approx(np.array(mirrored), abs=1e-9)


def test_isotonic_agrees_with_scipy_and_pools_rather_than_runs():
    y = np.cumsum(rng().normal(size=200)) + np.arange(200) / 5
    fitted = isotonic(y, increasing=True)
    assert fitted == pytest.approx(scipy.optimize.isotonic_regression(y).x)
    assert fitted.sum() == pytest.approx(y.sum())


def test_isotonic_of_nothing_is_nothing_and_of_nan_refused():
    assert isotonic([], increasing=False).shape == (0,)
    with pytest.raises(StatisticsError, match="isotonic needs finite numbers; 1 of 2"):
        isotonic([1.0, math.nan], increasing=True)
