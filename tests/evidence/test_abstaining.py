"""Tests of triplepoint.evidence.abstaining."""

import numpy as np
import pytest
import scipy.stats
from tests.evidence.synthetic import told

from triplepoint.errors import StatisticsError, UnknownNameError
from triplepoint.evidence import loosest_threshold, sequential_threshold, wrong_answer_bound


@pytest.mark.parametrize(("error", "wrong"), [(0.10, 3), (0.05, 1)])
def test_of_40_cells_so_many_wrong_answers_are_let_through(error, wrong):
    p, won = np.linspace(0.6, 0.99, 40), np.ones(40, bool)
    won[-6:-3] = won[5:9] = False  # the sure ones are wrong as well
    threshold = loosest_threshold(p, won, error=error)
    assert np.sum((p >= threshold) & ~won) == wrong
    looser = p[p < threshold].max()
    assert np.sum((p >= looser) & ~won) == wrong + 1


def test_no_wrong_answer_lets_everything_through():
    assert loosest_threshold(np.array([0.9, 0.2] * 5), np.array([True, False] * 5), error=0.1) == 0.5  # fmt: skip


@pytest.mark.parametrize("right", [True, False])
def test_too_few_cells_never_answer(right):
    # one over nine cells is more than a tenth, whatever they show
    assert loosest_threshold(np.full(8, 0.9), np.full(8, right), error=0.1) == 1.0


def groups(confidences):
    """One cell per group, that the baseline won and that gives the candidate so much."""
    return [told("baseline", p, unique_tokens=1000 + i) for i, p in enumerate(confidences)]


@pytest.mark.parametrize(("error", "rank"), [(0.10, 37), (0.05, 39)])
def test_the_threshold_of_40_groups_is_this_one_in_ascending_order(error, rank):
    worst = np.linspace(0.5, 0.9, 40)
    shuffled = np.random.default_rng(0).permutation(worst)
    assert sequential_threshold({500: groups(shuffled)}, "fixed_step", error=error) == worst[rank - 1]  # fmt: skip


@pytest.mark.parametrize("error", [0.1, 0.2, 0.3, 0.7])
def test_each_group_as_the_new_one_is_answered_wrongly_so_often(error):
    worst = np.linspace(0.51, 0.9, 10)
    exceeds = [
        worst[new] > sequential_threshold({1: groups(np.delete(worst, new))}, "fixed_step", error=error)
        for new in range(10)
    ]  # fmt: skip
    assert sum(exceeds) == round(10 * error)


def test_a_group_is_as_bad_as_its_worst_cell_at_its_worst_look():
    def look(first, second):
        return [
            told("baseline", first),
            told("candidate", 1 - second),
            told("candidate", 0.95, unique_tokens=1),
            told("tie", 0.99),
        ]

    held = {100: look(0.55, 0.8), 500: look(0.6, 0.4)}
    # two groups: 0.8 and 0.05, of which one may be above
    assert sequential_threshold(held, "best_checkpoint", error=1 / 3) == pytest.approx(0.8)
    # ... and two, where one half is the least that is an answer
    assert sequential_threshold(held, "best_checkpoint", error=2 / 3) == 0.5


def test_fewer_groups_than_an_error_needs_never_answer():
    assert sequential_threshold({1: groups([0.6] * 8)}, "fixed_step", error=0.1) == 1.0
    assert sequential_threshold({1: groups([0.6] * 9)}, "fixed_step", error=0.1) == 0.6
    assert sequential_threshold({}, "fixed_step", error=0.1) == 1.0


@pytest.mark.parametrize(
    ("wrong", "answered", "bound"),
    [
        (0, 14, 0.20),
        (0, 29, 0.10),
        (1, 46, 0.10),
        (0, 59, 0.05),
        (2, 40, 0.15),
        (3, 60, 0.124),
        (7, 7, 1.0),
    ],
)
def test_error_bound_of_answers(wrong, answered, bound):
    # as tabulated: "at most", rounded to the digits given
    assert wrong_answer_bound(wrong, answered) == pytest.approx(bound, abs=0.008)
    exact = scipy.stats.binomtest(wrong, answered).proportion_ci(0.90, "exact").high
    assert wrong_answer_bound(wrong, answered) == pytest.approx(exact, abs=1e-9)


def test_what_is_refused():
    for call in (
        lambda error: loosest_threshold(np.array([0.6]), np.array([True]), error=error),
        lambda error: sequential_threshold({}, "fixed_step", error=error),
    ):
        with pytest.raises(StatisticsError, match="error lies inside \\(0, 1\\), got 0.\nTry 0.1"):
            call(0)
    with pytest.raises(StatisticsError, match="one outcome per probability, got 1 for 2.\nLeave"):
        loosest_threshold(np.array([0.6, 0.7]), np.array([True]), error=0.1)
    with pytest.raises(StatisticsError, match="got 0 of 0.\nA rule that never answers has no"):
        wrong_answer_bound(0, 0)


@pytest.mark.parametrize("p", [[0.6, np.nan], [0.0, 0.6], [1.0, 0.6], [7.0, 0.6]])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(StatisticsError, match="Probabilities lie inside \\(0, 1\\)"):
        loosest_threshold(p, [True, False], error=0.1)


def test_lists_do_as_well():
    assert loosest_threshold([0.9] * 9 + [0.6], [True] * 9 + [False], error=0.1) == 0.9


def test_many_answers_do_not_overflow():
    # half of 6000 wrong: 1/2 + 1.645 sqrt(1/4 / 6000)
    assert wrong_answer_bound(3000, 6000) == pytest.approx(0.5106, abs=2e-4)
    assert wrong_answer_bound(6000, 6000) == pytest.approx(1.0)


def test_an_unknown_endpoint_is_named():
    with pytest.raises(UnknownNameError, match="no endpoint 'last'.\nKnown: fixed_step"):
        sequential_threshold({}, "last", error=0.1)
