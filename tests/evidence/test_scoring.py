"""Tests of triplepoint.evidence.scoring."""

import dataclasses
import json

import numpy as np
import pytest
from tests.evidence.synthetic import told
from tests.reference.scoring import (
    group_scores_by_draws,
    permutation_p_by_dealing,
    risk_area_by_orders,
)

from triplepoint.errors import StatisticsError, UnknownNameError
from triplepoint.evidence import held_out, risk_coverage, score, truth_of
from triplepoint.evidence.scoring import cluster_interval, permutation_p_within, risk_area


def hand_made():
    """Ten wins of each, three ties.

    The candidate's: seven right at 0.8, one wrong at 0.4, two unanswered at 0.6. The baseline's: nine right at 0.2,
    one wrong at 0.8. Of the ties one is answered.
    """
    return [
        *[told("candidate", 0.8, unique_tokens=i) for i in range(7)],
        told("candidate", 0.4),
        *[told("candidate", 0.6, answered=False)] * 2,
        *[told("baseline", 0.2, unique_tokens=i) for i in range(9)],
        told("baseline", 0.8),
        told("tie", 0.9),
        *[told("tie", 0.5, answered=False)] * 2,
    ]


def test_a_table_worked_by_hand():
    found = score(hand_made(), "fixed_step")
    assert (found.classes, found.ties, found.ties_answered) == ((10, 10), 3, 1)
    assert (found.answered, found.right, found.errors) == ((8, 10), (7, 9), (1, 1))
    assert (found.coverage, found.class_coverage) == (0.9, (0.8, 1.0))
    assert found.accuracy == pytest.approx(16 / 18)
    assert found.accuracy_interval == pytest.approx((0.672, 0.969), abs=1e-3)
    assert found.majority_rate == 0.5
    assert found.balanced_accuracy == pytest.approx((7 / 8 + 9 / 10) / 2)
    # all 20: seven and nine at 0.2^2, two at 0.4^2, one at 0.6^2, one at 0.8^2
    assert found.brier == pytest.approx((16 * 0.04 + 2 * 0.16 + 0.36 + 0.64) / 20)
    assert found.brier_skill == pytest.approx(1 - found.brier / 0.25)
    # 17 are 0.3 from one half, one of them wrong; of the three at 0.1 one is
    assert np.array(found.risk_coverage) == pytest.approx(
        np.array([(17 / 20, 1 / 17), (1, 2 / 20)])
    )
    json.dumps(dataclasses.asdict(found))


def test_an_abstention_changes_answers_and_no_probability():
    all_answered = [told(h.cell.truth["fixed_step"].winner, h.prediction.p["fixed_step"]) for h in hand_made()]  # fmt: skip
    some, every = score(hand_made(), "fixed_step"), score(all_answered, "fixed_step")
    assert (every.answered, every.right, every.ties_answered) == ((10, 10), (9, 9), 3)
    for name in ("brier", "brier_skill", "calibration", "spiegelhalter_z", "risk_area"):
        assert getattr(some, name) == getattr(every, name)


@pytest.mark.parametrize(
    ("m", "n", "errors"),
    [
        (15, 15, 1), (20, 20, 2), (27, 13, 1), (30, 30, 5), (40, 20, 3), (40, 40, 8), (53, 27, 5), (50, 50, 11),
        (67, 33, 7),
    ],
)  # fmt: skip
def test_so_many_errors_wherever_they_fall_keep_a_lower_bound_of_080(m, n, errors):
    def lowest(wrong):
        """The bound where the errors fall worst."""
        bounds = []
        for of_first in range(wrong + 1):
            held = [told("candidate", 0.2 if i < of_first else 0.8) for i in range(m)]
            held += [told("baseline", 0.8 if i < wrong - of_first else 0.2) for i in range(n)]
            bounds.append(score(held, "fixed_step", resamples=1).balanced_accuracy_lower)
        return min(bounds)

    assert lowest(errors) >= 0.8 > lowest(errors + 1)


def test_one_class_only_has_no_comparison_but_the_majority_rate():
    held = [told("candidate", 0.4)] * 9 + [told("baseline", 0.2)] * 21
    found = score(held, "best_checkpoint")
    assert (found.classes, found.majority_rate, found.coverage) == ((9, 21), 0.7, 1.0)
    assert found.accuracy == 0.7
    nothing = (
        "balanced_accuracy", "balanced_accuracy_lower", "balanced_accuracy_interval", "permutation_p", "brier_skill",
        "calibration",
    )  # fmt: skip
    assert [getattr(found, name) for name in nothing] == [None] * 6
    assert found.brier == pytest.approx((9 * 0.36 + 21 * 0.04) / 30)
    assert found.spiegelhalter_z is not None
    fewer = score(held, "best_checkpoint", least=9)
    assert fewer.balanced_accuracy == 0.5
    assert fewer.brier_skill is not None and fewer.calibration is not None


def test_a_class_that_is_never_answered_leaves_no_balanced_accuracy():
    held = [told("candidate", 0.6, answered=False)] * 10 + [told("baseline", 0.2)] * 10
    found = score(held, "fixed_step")
    assert (found.balanced_accuracy, found.permutation_p) == (None, None)
    assert (found.accuracy, found.class_coverage) == (1.0, (0.0, 1.0))
    silent = score([told("baseline", 0.5, answered=False)] * 3, "fixed_step")
    assert (silent.accuracy, silent.accuracy_interval, silent.spiegelhalter_z) == (None, None, None)


def test_nothing_to_score():
    found = score([told("tie", 0.7)], "fixed_step")
    assert (found.classes, found.ties_answered) == ((0, 0), 1)
    assert (found.coverage, found.class_coverage, found.brier, found.risk_area) == (None, (None, None), None, None)  # fmt: skip
    with pytest.raises(
        StatisticsError, match="at least 1 cell and an interval 1 draw, got least=0"
    ):
        score([], "fixed_step", least=0)


def test_each_endpoint_has_its_own_truth():
    held = [told({"fixed_step": "candidate", "best_checkpoint": "baseline"}, 0.8)] * 10
    assert score(held, "fixed_step").right == (10, 0)
    assert score(held, "best_checkpoint").right == (0, 0)


def test_an_answer_counts_as_given_where_it_is_not_the_likelier_outcome():
    held = [told("candidate", 0.3, says=True)] * 10 + [told("baseline", 0.3)] * 10
    found = score(held, "fixed_step")
    assert (found.right, found.risk_area) == ((10, 10), 0.0)
    assert found.brier == pytest.approx((0.49 + 0.09) / 2)


# --- permutation


def random_cells(seed, n=7):
    rng = np.random.default_rng(seed)
    says, won = rng.random(n) < 0.5, rng.random(n) < 0.5
    won[:2] = True, False
    return says, won, rng.choice(list("abc"), n)


@pytest.mark.parametrize("seed", range(8))
def test_permutation_p_is_that_of_all_dealings(seed):
    says, won, groups = random_cells(seed)
    expected = permutation_p_by_dealing(says.tolist(), won.tolist(), groups.tolist())
    assert permutation_p_within(says, won, groups) == pytest.approx(expected, abs=1e-12)


def test_knowing_groups_apart_is_not_knowing_cells_apart():
    won = np.array([True] * 5 + [False] * 5)
    assert permutation_p_within(won, won, np.array(["a"] * 5 + ["b"] * 5)) == 1.0
    # 1 / C(10, 5) where they are one group
    assert permutation_p_within(won, won, np.array(["a"] * 10)) == pytest.approx(1 / 252)


# --- risk and coverage


@pytest.mark.parametrize("seed", range(4))
def test_area_is_the_mean_over_orders_of_equally_sure_cells(seed):
    rng = np.random.default_rng(seed)
    p, right = rng.choice([0.1, 0.3, 0.7, 0.9], 6), rng.random(6) < 0.6
    expected = risk_area_by_orders(p.tolist(), right.tolist())
    assert risk_area(p, right) == pytest.approx(expected, abs=1e-12)


def test_the_surest_cells_come_first_on_both_sides_of_one_half():
    p = np.array([0.6, 0.05, 0.9, 0.3])
    right = np.array([False, True, True, False])
    expected = [(0.25, 0), (0.5, 0), (0.75, 1 / 3), (1, 0.5)]
    assert np.array(risk_coverage(p, right)) == pytest.approx(np.array(expected))


# --- bootstrap over groups


def test_cluster_interval_draws_groups_whole():
    says = np.array([True, True, False, False, True, False, False, True])
    won = np.array([True, True, True, False, False, False, False, False])
    groups = np.array(list("aabbccdd"))
    every = group_scores_by_draws(says.tolist(), won.tolist(), groups.tolist())
    low, high = cluster_interval(says, won, groups, resamples=20_000)
    assert low == pytest.approx(np.quantile(every, 0.025), abs=0.02)
    assert high == pytest.approx(np.quantile(every, 0.975), abs=0.02)


def test_copies_of_a_cell_in_its_group_are_no_evidence():
    says, won = np.array([True, False] * 6), np.array([True] * 6 + [False] * 6)
    groups = np.array([str(i) for i in range(12)])
    once = cluster_interval(says, won, groups)
    copied = cluster_interval(np.repeat(says, 9), np.repeat(won, 9), np.repeat(groups, 9))
    assert copied == pytest.approx(once)
    assert cluster_interval(says, won, np.array(["a"] * 12)) is None


def test_unknown_names_and_counts_out_of_range_are_refused():
    with pytest.raises(UnknownNameError, match="no endpoint 'last'"):
        score([], "last")
    with pytest.raises(StatisticsError, match="resamples=0.\nTry"):
        score([told("tie", 0.7)], "fixed_step", resamples=0)
    with pytest.raises(StatisticsError, match="one answer per probability, got 1 for 2"):
        risk_coverage(np.array([0.6, 0.7]), np.array([True]))
    with pytest.raises(UnknownNameError, match="no way to hold out 'size'"):
        held_out(None, [], look=500, by="size")
    with pytest.raises(StatisticsError, match="a pair of runs per seed, got 0 and 0"):
        truth_of([], [])
