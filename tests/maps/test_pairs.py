"""Tests of triplepoint.maps.pairs: three endpoints, worked by hand."""

import numpy as np
import pytest
import scipy.stats
from tests.maps.made import result

from triplepoint.maps import MapPlan
from triplepoint.maps.pairs import Pair, difference, matched_rows
from triplepoint.statistics import paired_relative_interval

PLAN = MapPlan.from_grid("op=norm,dyt;seed=0,1")
CELLS = {(c.op, c.seed): c for c in PLAN.cells()}


def pair(candidate, baseline, *, seed=0, **facts):
    """Each arm as its validation losses, or ``(validation, train)``."""
    arms = []
    for op, losses in (("dyt:recommended", candidate), ("layernorm", baseline)):
        val, train = losses if isinstance(losses, tuple) else (losses, None)
        arms.append(result(PLAN, CELLS[op, seed], val, train, **(facts if op != "layernorm" else {})))  # fmt: skip
    return Pair(*arms)


def test_the_fixed_step_is_the_last_and_the_best_is_each_arm_s_own():
    over_fitting = pair([3.0, 2.5, 2.4], [2.0, 1.5, 3.0])
    assert difference([over_fitting], "fixed_step").value == pytest.approx(2.4 / 3.0 - 1)
    assert difference([over_fitting], "best_checkpoint").value == pytest.approx(2.4 / 1.5 - 1)


def test_at_matched_train_loss_the_faster_arm_is_taken_where_the_slower_one_ends():
    # the baseline passes the candidate's last train loss, 1.5, half way between its 2nd and 3rd evaluation
    slow = pair(([3.0, 2.6, 2.2], [3.0, 2.0, 1.5]), ([2.9, 2.0, 2.4], [2.5, 2.0, 1.0]))
    assert difference([slow], "matched_train_loss").value == pytest.approx(2.2 / 2.2 - 1)
    fast = pair(([2.9, 2.0, 2.6], [2.5, 2.0, 1.0]), ([3.0, 2.6, 2.2], [3.0, 2.0, 1.5]))
    # the candidate at 1.5 has (2.0 + 2.6) / 2
    assert difference([fast], "matched_train_loss").value == pytest.approx(2.3 / 2.2 - 1)


def test_equal_arms_do_not_differ_at_any_endpoint():
    same = pair([3.0, 2.0, 2.5], [3.0, 2.0, 2.5])
    for endpoint in ("fixed_step", "best_checkpoint", "matched_train_loss"):
        found = difference([same], endpoint)
        assert (found.value, *found.bootstrap) == pytest.approx((0, 0, 0))


def test_a_train_curve_that_rises_again_is_taken_at_its_first_crossing():
    noisy = pair(([3.0, 2.5], [3.0, 2.0]), ([3.0, 2.2, 2.1, 2.0], [3.0, 2.0, 1.2, 1.0]))
    ours, theirs = matched_rows(noisy.candidate, noisy.baseline)
    assert ours.mean() == pytest.approx(2.5)
    assert theirs.mean() == pytest.approx(2.2)


def test_a_level_that_one_arm_never_had_is_no_endpoint():
    assert difference([pair([1.0, 0.9], [3.0, 2.0])], "matched_train_loss") is None


def test_a_pair_with_a_diverged_arm_has_no_difference():
    lost = pair([3.0, 9.0], [3.0, 2.0], diverged_at=20)
    assert difference([lost], "fixed_step") is None
    whole = pair([3.0, 2.2], [3.0, 2.0], seed=1)
    assert difference([lost, whole], "fixed_step").value == pytest.approx(0.1)


def test_intervals_say_what_they_are_over():
    pairs = [pair([3.0, 2.2], [3.0, 2.0]), pair([3.0, 2.5], [3.0, 2.0], seed=1)]
    found = difference(pairs, "fixed_step")
    ours = np.stack([p.candidate.val[-1] for p in pairs])
    theirs = np.stack([p.baseline.val[-1] for p in pairs])
    assert (found.value, *found.bootstrap) == paired_relative_interval(ours, theirs)
    other = scipy.stats.ttest_1samp([0.1, 0.25], 0).confidence_interval(0.95)
    assert found.t == pytest.approx((other.low, other.high))
    assert difference(pairs[:1], "fixed_step").t is None
