"""Tests of triplepoint.phases."""

import math

import pytest

from triplepoint.phases import (
    crossing_step,
    diverged_step,
    grokking_times,
    judge_arm,
    judge_grokking,
    plateau_exit_step,
)

PLATEAU = 3.06


def judged(steps, losses, **facts):
    asked = {"plateau": PLATEAU, "planned_steps": 5000, "baseline_exit": 75, **facts}
    return judge_arm(steps=steps, val_losses=losses, **asked)


# --- leaving the plateau


def test_exit_is_the_first_of_three_evaluations_below_the_margin():
    steps, losses = [25, 50, 75, 100, 125, 150], [3.2, 3.0, 3.04, 2.9, 2.8, 2.7]
    # 3.0 at step 50 is below 3.01, but the next is not: one noisy evaluation is no exit
    assert plateau_exit_step(steps, losses, PLATEAU) == 100


def test_two_evaluations_below_are_no_exit_yet():
    assert plateau_exit_step([1, 2, 3], [3.2, 2.9, 2.8], PLATEAU) is None
    assert plateau_exit_step([1, 2, 3], [2.95, 2.9, 2.8], PLATEAU) == 1


def test_a_loss_inside_the_margin_is_still_on_the_plateau():
    # in binary 3.0 - 0.05 is exact enough: the edge itself is not below it
    assert plateau_exit_step([1, 2, 3], [2.96] * 3, 3.0) is None
    assert plateau_exit_step([1, 2, 3], [2.94] * 3, 3.0) == 1
    assert plateau_exit_step([1, 2, 3], [2.96] * 3, 3.0, margin=0.03) == 1


def test_number_of_confirmations_may_be_chosen():
    steps, losses = [1, 2, 3, 4], [2.5, 3.5, 2.5, 2.5]
    assert plateau_exit_step(steps, losses, PLATEAU, confirmations=1) == 1
    assert plateau_exit_step(steps, losses, PLATEAU, confirmations=2) == 3


def test_a_loss_that_is_not_finite_never_leaves_the_plateau():
    assert plateau_exit_step([1, 2, 3], [math.nan] * 3, PLATEAU) is None


# --- diverging


def test_a_run_that_never_got_below_the_plateau_is_not_diverged():
    assert diverged_step([1, 2, 3, 4], [9.0, 9.0, 9.0, 9.0], 3.0, warmup=0) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_diverges_at_once_even_in_warmup(loss):
    assert diverged_step([10, 20, 30], [9.0, loss, 2.0], 3.0, warmup=100) == 20


def test_a_rise_within_warmup_does_not_count():
    steps, losses = [10, 20, 30, 40, 50, 60], [2.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    assert diverged_step(steps, losses, 3.0, warmup=30) == 40
    assert diverged_step(steps, losses, 3.0, warmup=40) is None


def test_two_high_evaluations_in_a_row_are_not_enough():
    steps = [10, 20, 30, 40, 50, 60, 70]
    assert diverged_step(steps, [2.0, 9.0, 9.0, 2.0, 9.0, 9.0, 2.0], 3.0, warmup=0) is None
    assert diverged_step(steps, [2.0, 9.0, 9.0, 2.0, 9.0, 9.0, 9.0], 3.0, warmup=0) == 50


def test_a_rise_within_the_margin_does_not_count():
    assert diverged_step([1, 2, 3, 4], [2.0, 3.04, 3.04, 3.04], 3.0, warmup=0) is None
    assert diverged_step([1, 2, 3, 4], [2.0, 3.06, 3.06, 3.06], 3.0, warmup=0) == 2


def test_a_run_that_blew_up_without_ever_being_below_the_plateau_is_diverged():
    steps, uniform = [10, 20, 30, 40, 50], 5.5
    # a nat above a uniform guess of 5.5 at the last three evaluations
    assert diverged_step(steps, [7.0] * 5, 3.0, warmup=10, uniform=uniform) == 30
    assert diverged_step(steps, [7.0] * 5, 3.0, warmup=10) is None
    assert diverged_step(steps, [7.0] * 5, 3.0, warmup=30, uniform=uniform) is None
    assert diverged_step(steps, [6.4] * 5, 3.0, warmup=10, uniform=uniform) is None
    assert diverged_step(steps, [7.0] * 4 + [6.4], 3.0, warmup=10, uniform=uniform) is None


def test_once_diverged_it_wins_over_everything_else():
    phase, reason = judged([25, 50], [2.0, 1.9], diverged_at=40)
    assert (phase, reason) == ("diverged", "the loss left its range at step 40")


def test_overfitting_is_a_rise_of_the_validation_loss_and_no_divergence():
    steps = [100, 200, 300, 400, 500, 600]
    train, val = [2.5, 2.0, 1.0, 0.4, 0.1, 0.05], [2.6, 2.3, 2.4, 3.0, 4.0, 5.0]
    assert diverged_step(steps, train, PLATEAU, warmup=100) is None
    phase, reason = judged(steps, val, diverged_at=diverged_step(steps, train, PLATEAU, warmup=100))
    assert phase == "overfitting"
    assert reason == "validation loss has risen from 2.300 at step 200 to 5.000"


# --- the shape of two trial runs: DyT born with alpha 2 on byte-level text, unigram plateau 3.06 nats

SLOW_STEPS = [25, 50, 100, 175, 250, 375, 500]
SLOW_LOSSES = [3.27, 3.05, 3.04, 3.03, 3.02, 3.03, 3.02]
SLOW_LATER = {
    "steps": [*SLOW_STEPS, 700, 1000, 1400, 2000, 3000],
    "losses": [*SLOW_LOSSES, 3.02, 3.02, 2.87, 2.55, 2.29],
}


def test_an_arm_frozen_on_the_plateau_at_step_500_is_stalled_and_not_collapsed():
    phase, reason = judged(SLOW_STEPS, SLOW_LOSSES, alpha_drift_std=0.0043)
    assert phase == "stalled"
    assert reason == (
        "still on the unigram plateau (3.060 nats) at step 500, the baseline left it at step 75; "
        "alpha drift 0.0043: frozen. Runs have escaped later than this"
    )


def test_the_same_arm_escapes_after_a_thousand_steps_and_generalises():
    steps, losses = SLOW_LATER["steps"], SLOW_LATER["losses"]
    assert plateau_exit_step(steps, losses, PLATEAU) == 1400
    phase, reason = judged(steps, losses, alpha_drift_std=0.4)
    assert (phase, reason) == (
        "generalising",
        "left the plateau at step 1400; validation loss 2.290",
    )


def test_an_arm_that_stays_frozen_to_the_planned_end_is_collapsed():
    steps, losses = [*SLOW_STEPS, 700, 1000], [*SLOW_LOSSES, 3.02, 3.02]
    phase, reason = judged(steps, losses, alpha_drift_std=0.0043, planned_steps=1000)
    assert phase == "collapsed"
    assert reason.endswith("alpha drift 0.0043; no time left to expect an escape")
    assert judged(steps, losses, alpha_drift_std=0.0043, planned_steps=1001).phase == "stalled"


@pytest.mark.parametrize(
    ("baseline_exit", "step", "phase"),
    [
        (75, 1999, "stalled"),
        (75, 2000, "collapsed"),
        (150, 2999, "stalled"),
        (150, 3000, "collapsed"),
    ],
)
def test_an_arm_is_collapsed_after_twenty_times_the_baselines_exit_or_2000_steps(
    baseline_exit, step, phase
):
    found = judged(
        [25, step], [3.05, 3.02], alpha_drift_std=0.001, planned_steps=50_000,
        baseline_exit=baseline_exit,
    )  # fmt: skip
    assert found.phase == phase


def test_an_arm_whose_alphas_move_is_fitting_however_late_it_is():
    for drift, phase in [(0.0199, "collapsed"), (0.02, "fitting")]:
        found = judged([25, 5000], [3.05, 3.02], alpha_drift_std=drift)
        assert found.phase == phase
    assert found.reason.endswith("alpha drift 0.0200: it is moving, so slow rather than stalled")


def test_predictions_that_ignore_the_input_decide():
    for kl, phase in [(0.0199, "stalled"), (0.02, "fitting")]:
        assert judged(SLOW_STEPS, SLOW_LOSSES, prediction_kl=kl).phase == phase
    assert "prediction KL 0.0009 nats" in judged(SLOW_STEPS, SLOW_LOSSES, prediction_kl=9e-4).reason


@pytest.mark.parametrize(("drift", "kl", "phase"), [(0.3, 0.0, "stalled"), (0.001, 0.1, "fitting")])
def test_predictions_outrank_alphas(drift, kl, phase):
    found = judged(SLOW_STEPS, SLOW_LOSSES, alpha_drift_std=drift, prediction_kl=kl)
    assert found.phase == phase
    assert "alpha" not in found.reason


@pytest.mark.parametrize("planned_steps", [500, 5000])
def test_an_arm_below_the_plateau_is_not_on_it_though_its_exit_is_unconfirmed(planned_steps):
    losses = [*SLOW_LOSSES[:-1], 2.9]
    found = judged(SLOW_STEPS, losses, alpha_drift_std=0.0043, planned_steps=planned_steps)
    assert found == (
        "fitting",
        "below the unigram plateau (3.060 nats) at step 500, validation loss 2.900; "
        "not yet 3 evaluations in a row",
    )


def test_without_either_sign_an_arm_on_the_plateau_is_fitting():
    phase, reason = judged(SLOW_STEPS, SLOW_LOSSES)
    assert phase == "fitting"
    assert "neither alphas nor predictions were measured" in reason


def test_on_the_plateau_without_a_baseline_that_left_it_is_fitting():
    phase, reason = judged(SLOW_STEPS, SLOW_LOSSES, baseline_exit=None, alpha_drift_std=0.001)
    assert phase == "fitting"
    assert reason.endswith("at step 500; there is no baseline that has left it")


def test_an_arm_that_is_still_above_the_plateau_is_said_to_be():
    phase, reason = judged([25, 50], [5.0, 4.0])
    assert phase == "fitting"
    assert reason.startswith(
        "not yet down to the unigram plateau (3.060 nats) at step 50, validation loss 4.000"
    )


# --- off the plateau


@pytest.mark.parametrize(("last", "phase"), [(2.04, "generalising"), (2.06, "overfitting")])
def test_overfitting_is_a_rise_of_more_than_the_margin_over_the_lowest(last, phase):
    assert judged([100, 200, 300, 400], [2.9, 2.0, 2.01, last]).phase == phase


def test_a_task_without_a_plateau_is_never_on_it():
    phase, reason = judged([100, 200], [9.0, 8.5], plateau=None)
    assert (phase, reason) == ("generalising", "validation loss 8.500")


# --- grokking


def test_a_crossing_is_the_first_of_three_evaluations_in_a_row_at_or_above():
    steps, values = [100, 200, 300, 400, 500, 600], [0.99, 0.4, 0.99, 1.0, 0.99, 0.2]
    assert crossing_step(steps, values, 0.99) == (300, None)
    assert crossing_step(steps, values, 0.99, persistence=1) == (100, None)


def test_a_run_that_ends_too_early_is_censored_at_the_last_evaluation_below():
    assert crossing_step([100, 200, 300, 400], [0.2, 0.5, 0.99, 0.99], 0.99) == (None, 200)
    assert crossing_step([100, 200], [0.2, 0.5], 0.99) == (None, 200)
    assert crossing_step([100, 200], [1.0, 1.0], 0.99) == (None, 0)
    assert crossing_step([], [], 0.99) == (None, 0)


def test_an_accuracy_that_is_nan_breaks_the_row():
    assert crossing_step([1, 2, 3, 4, 5], [1, math.nan, 1, 1, 1], 0.99) == (3, None)


def test_times_of_a_run_that_groks():
    steps = [0, 100, 200, 300, 400, 500, 600, 700, 800]
    train = [0.1, 0.99, 1, 1, 1, 1, 1, 1, 1]
    val = [0, 0, 0, 0.5, 0.6, 0.9, 0.95, 0.99, 0.99]
    times = grokking_times(steps, train, val)
    assert {name: found.step for name, found in times.items()} == {
        "T_mem": 100, "T_grok_0.5": 300, "T_grok_0.9": 500, "T_grok_0.99": None,
    }  # fmt: skip
    assert times["T_grok_0.99"].censored_at == 600
    assert list(grokking_times(steps, train)) == ["T_mem"]


def grok_phase(train, val, **facts):
    steps = list(range(100, 100 * len(train) + 1, 100))
    return judge_grokking(steps=steps, train_accuracies=train, val_accuracies=val, **facts)


def test_a_run_fits_then_memorises_then_generalises():
    train, val = [0.2, 0.6, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0.1, 0.2, 0.6, 0.995, 0.999, 1]
    assert grok_phase(train[:2], val[:2]) == ("fitting", "train accuracy 0.600 at step 200")
    # two evaluations are not yet memorised
    assert grok_phase(train[:4], val[:4]) == (
        "fitting",
        "train accuracy 1.000 at step 400; 0.99 not yet at 3 evaluations in a row",
    )
    assert grok_phase(train[:5], val[:5]) == (
        "memorised",
        "train accuracy 0.99 since step 300, validation accuracy 0.200 at step 500",
    )
    assert grok_phase(train, val) == (
        "generalising",
        "validation accuracy 0.50 since step 600, 0.99 since step 700; 1.000 at step 900",
    )


def test_half_way_is_between_chance_and_one():
    # of two classes, 0.6 is not half way
    assert grok_phase([1] * 3, [0.6] * 3, chance=0.5).phase == "memorised"
    assert grok_phase([1] * 3, [0.6] * 3, chance=0.1).phase == "generalising"


def test_a_run_that_falls_back_is_judged_by_where_it_is():
    phase, reason = grok_phase([1, 1, 1, 0.4], [0.0] * 4)
    assert phase == "fitting"
    assert reason == "train accuracy 0.400 at step 400; it was memorised at step 100"
    phase, reason = grok_phase([1] * 4, [0.9, 0.9, 0.9, 0.1])
    assert phase == "memorised"
    assert reason.endswith(
        "validation accuracy 0.100 at step 400, fallen back from 0.50 at step 100"
    )


def test_softmax_collapse_is_said_with_what_to_try():
    phase, reason = grok_phase([1] * 3, [0.0] * 3, zero_loss_share=0.8)
    assert phase == "memorised"
    assert "softmax collapse: 80% of the train samples have a loss of exactly 0" in reason
    assert "Try float64 logits" in reason
    assert "collapse" not in grok_phase([1] * 3, [0.0] * 3, zero_loss_share=0.4).reason


def test_without_held_out_samples_generalising_cannot_be_told():
    phase, reason = grok_phase([1] * 3, None)
    assert phase == "memorised"
    assert reason.endswith("no held-out samples to tell whether it generalises")


def test_a_grokking_run_that_diverged_is_that_and_nothing_else():
    assert grok_phase([1] * 3, [1] * 3, diverged_at=7) == (
        "diverged",
        "the loss is not finite at step 7",
    )
