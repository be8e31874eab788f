"""Tests of triplepoint.timelines.spans: the phase at every step."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.phases import judge_arm, judge_grokking
from triplepoint.timelines import Curves, phase_over


def phases(curves, **known):
    return [span[:3] for span in phase_over(curves, **known)]


def curve(*values, start=1):
    return list(enumerate(values, start))


# --- from losses


def test_a_plateau_is_left_at_the_third_evaluation_below_it():
    val = curve(3.2, 3.0, 3.04, 2.9, 2.8, 2.7)
    # 3.0 at step 2 lies 0.06 below the plateau, but the next does not: left from step 4 on, told at step 6
    (fitting, generalising) = phase_over(Curves(val_loss=val), plateau=3.06)
    assert fitting[:3] == (1, 5, "fitting")
    assert generalising[:3] == (6, 6, "generalising")
    assert "0.05 below the plateau, 3.060, since step 4" in generalising.reason


def test_without_a_plateau_the_first_validation_loss_stands_in():
    spans = phase_over(Curves(val_loss=curve(3.0, 2.96, 2.94, 2.9, 2.8)))
    assert [s[:3] for s in spans] == [(1, 4, "fitting"), (5, 5, "generalising")]
    assert "below its first value, 3.000, since step 3" in spans[1].reason


def test_a_validation_loss_that_does_not_move_is_fitting():
    (span,) = phase_over(Curves(val_loss=curve(*[10.8] * 9)))
    assert span[:3] == (1, 9, "fitting")
    assert span.reason.startswith(
        "validation loss 10.800, not 3 evaluations in a row more than 0.05"
    )


def test_overfitting_is_told_at_the_third_evaluation_above_the_best():
    val = curve(3, 2, 1.8, 1.7, 1.76, 1.8, 1.9, 2.0)
    train = curve(3, 2, 1.7, 1.5, 1.3, 1.1, 0.9, 0.7)
    spans = phase_over(Curves(train_loss=train, val_loss=val))
    assert spans[-1][:3] == (7, 8, "overfitting")
    assert (
        spans[-1].reason
        == "validation loss 0.05 or more above its best, 1.700 at step 4, since step 5"
    )


def test_one_noisy_evaluation_enters_and_leaves_nothing():
    val = curve(3, 2, 2, 2, 2.6, 2, 2, 2.3, 2.3, 2.3, 2.0, 2.3)
    found = phases(Curves(val_loss=val))
    assert found == [(1, 3, "fitting"), (4, 9, "generalising"), (10, 12, "overfitting")]


def test_overfitting_ends_with_three_evaluations_near_the_best():
    val = curve(3, 2, 2, 2, 2.3, 2.3, 2.3, 2.02, 2.01, 1.9)
    spans = phase_over(Curves(val_loss=val))
    assert [s[:3] for s in spans][1:] == [
        (4, 6, "generalising"),
        (7, 9, "overfitting"),
        (10, 10, "generalising"),
    ]
    assert (
        spans[-1].reason == "validation loss 1.900, back within 0.05 of its best, 1.900 at step 10"
    )


def test_both_losses_rising_is_no_overfitting():
    both = curve(3, 2, 1.8, 1.7, 2.2, 2.4, 2.6)
    (*_, last) = phase_over(Curves(train_loss=both, val_loss=both))
    assert last[:3] == (7, 7, None)
    assert "training loss has risen as well: no over-fitting" in last.reason


def test_training_loss_is_averaged_between_evaluations():
    # single batches 0.6 above the mean at the best step, whose mean over ten is what it was: 1.5
    train = [(s, 1.5 + (0.6 if s % 10 == 0 else -0.6 / 9)) for s in range(1, 81)]
    val = [(10 * i, x) for i, x in enumerate([3, 2, 1.8, 1.7, 2.2, 2.4, 2.6, 2.8], 1)]
    assert phases(Curves(train_loss=train, val_loss=val))[-1] == (70, 80, "overfitting")


def test_margin_is_in_the_unit_of_the_losses():
    val = curve(0.030, 0.020, 0.020, 0.020, 0.023, 0.024, 0.025)
    assert {phase for *_, phase in phases(Curves(val_loss=val))} == {"fitting"}
    assert phases(Curves(val_loss=val), margin=0.002)[-1] == (7, 7, "overfitting")


def test_training_loss_alone_is_fitting():
    (span,) = phase_over(Curves(train_loss=curve(3, 2, 1)))
    assert span == (1, 3, "fitting", "training loss 1.000; no validation loss to tell more")


# --- diverging


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["train_loss", "val_loss"])
def test_a_loss_that_is_not_finite_has_diverged_at_once(name, bad):
    (_, span) = phase_over(Curves(**{name: curve(3, 2.9, bad, bad)}))
    assert span == (3, 4, "diverged", "the loss is not finite at step 3")


def test_a_single_skipped_step_is_over_after_three_finite_ones():
    train = curve(3, 2, math.nan, 1.9, 1.8, 1.7)
    assert phases(Curves(train_loss=train)) == [
        (1, 2, "fitting"),
        (3, 5, "diverged"),
        (6, 6, "fitting"),
    ]


def test_back_above_the_plateau_has_diverged_where_one_is_given():
    train = curve(3.2, 2.5, 3.2, 3.3, 3.4)
    assert phases(Curves(train_loss=train), plateau=3.0)[-1] == (5, 5, "diverged")
    assert phases(Curves(train_loss=train)) == [(1, 5, "fitting")]


def test_a_run_that_explodes_from_the_start_has_diverged():
    # never below the plateau; 4.1 is not 1 nat above the 3.2 it began with, 4.3 is
    assert phases(Curves(train_loss=curve(3.2, 4.3, 5, 6)), plateau=3.0)[-1] == (4, 4, "diverged")
    assert phases(Curves(train_loss=curve(3.2, 4.1, 4.1, 4.1)), plateau=3.0) == [(1, 4, "fitting")]


# --- from accuracies


def test_grokking_is_fitting_memorised_generalising():
    train = curve(0.1, 0.99, 1, 1, 1, 1, 1, 1, 1)
    val = curve(0.1, 0.1, 0.1, 0.1, 0.2, 0.4, 0.6, 0.9, 1)
    loss = curve(3, 4, 5, 6, 7, 5, 3, 2, 1)  # over-fitting by losses; the accuracies know better
    spans = phase_over(Curves(train_accuracy=train, val_accuracy=val, val_loss=loss))
    assert [s[:3] for s in spans] == [
        (1, 3, "fitting"),
        (4, 8, "memorised"),
        (9, 9, "generalising"),
    ]
    assert spans[1].reason == "train accuracy 0.99 or more since step 2, validation accuracy 0.900"
    assert spans[2].reason == "validation accuracy 0.50 or more since step 7"


def test_chance_moves_the_half_way():
    curves = Curves(train_accuracy=curve(*[1] * 5), val_accuracy=curve(*[0.6] * 5))
    assert phases(curves)[-1][2] == "generalising"
    assert phases(curves, chance=0.5)[-1][2] == "memorised"  # half way between 0.5 and 1 is 0.75


def test_memorised_without_held_out_samples_says_so():
    (*_, last) = phase_over(Curves(train_accuracy=curve(1, 1, 1)))
    assert last.phase == "memorised"
    assert last.reason.endswith("no held-out samples to tell whether it generalises")


def test_a_validation_loss_is_better_than_a_training_accuracy_alone():
    curves = Curves(train_accuracy=curve(1, 1, 1, 1), val_loss=curve(3, 2, 2, 2))
    assert phases(curves)[-1][2] == "generalising"


# --- laws


LOSSES = st.lists(st.sampled_from([3.2, 3.0, 2.5, 2.0, 2.03, 2.2, math.nan, 9.0]), min_size=1, max_size=25)  # fmt: skip
SHARES = st.lists(st.sampled_from([0.0, 0.4, 0.6, 0.99, 1.0]), max_size=25)


@st.composite
def runs(draw):
    def every(n, values):
        return [(n * i, value) for i, value in enumerate(values, 1)]

    return Curves(
        train_loss=every(1, draw(LOSSES)), val_loss=every(2, draw(LOSSES)),
        train_accuracy=every(2, draw(SHARES)), val_accuracy=every(3, draw(SHARES)),
    )  # fmt: skip


@given(runs(), st.integers(1, 60))
@settings(deadline=None)
def test_a_step_is_judged_by_what_was_there_until_then(curves, cut):
    past = Curves(**{n: [p for p in getattr(curves, n) if p[0] <= cut] for n in curves.__slots__})
    whole, until = phase_over(curves, plateau=3.0), phase_over(past, plateau=3.0)
    begun = [span for span in whole if span.from_step <= cut]
    assert [(s.from_step, s.phase) for s in until] == [(s.from_step, s.phase) for s in begun]
    assert until[:-1] == begun[: len(until) - 1]


@given(runs())
@settings(deadline=None)
def test_spans_cover_every_step_once_and_neighbours_differ(curves):
    spans = phase_over(curves)
    steps = sorted({s for n in curves.__slots__ for s, _ in getattr(curves, n)})
    assert (spans[0].from_step, spans[-1].to_step) == (steps[0], steps[-1])
    for before, after in zip(spans, spans[1:], strict=False):
        assert before.phase != after.phase
        assert steps.index(after.from_step) == steps.index(before.to_step) + 1


@pytest.mark.parametrize(
    "values", [[3.2, 2.9, 2.8, 2.7], [3.2] * 5, [3.2, 2.5, 2, 2, 2, 2.3, 2.3, 2.3]], ids=str
)
def test_the_last_phase_is_that_of_judge_arm_where_evaluations_agree(values):
    steps = list(range(1, len(values) + 1))
    judged = judge_arm(steps=steps, val_losses=values, plateau=3.0, planned_steps=10**9)
    assert phase_over(Curves(val_loss=curve(*values)), plateau=3.0)[-1].phase == judged.phase


@pytest.mark.parametrize("val", [[0.1] * 5, [0.1, 0.6, 0.7, 0.8, 0.9]], ids=str)
@pytest.mark.parametrize("train", [[0.5] * 5, [0.5, 0.99, 1, 1, 1]], ids=str)
def test_the_last_phase_is_that_of_judge_grokking_where_evaluations_agree(train, val):
    steps = list(range(1, 6))
    judged = judge_grokking(steps=steps, train_accuracies=train, val_accuracies=val)
    curves = Curves(train_accuracy=curve(*train), val_accuracy=curve(*val))
    assert phase_over(curves)[-1].phase == judged.phase


def test_no_curves_have_no_phase():
    assert phase_over(Curves()) == []
