"""Tests of the record of the detector of collapse: studies.screening_benchmark.collapse and what it is made of."""

import dataclasses
import json

import numpy as np
import pytest
from studies.screening_benchmark import collapse
from studies.screening_benchmark.collapse_runs import (
    NEVER,
    Exit,
    Watched,
    below,
    blind,
    collapsed_alone,
    earlier_form,
    exit_of,
    library,
    patient,
    saturated,
    watched,
)
from studies.screening_benchmark.collapse_scoring import (
    Counts,
    ahead,
    ever,
    first_call,
    held_out,
    less,
    patience,
    said_at,
)

from triplepoint.records import Record
from triplepoint.screening.learning import StoredRun

PLATEAU = 3.0
STEPS = list(range(100, 1001, 100))
FLAT = [3.0] * 10


def left_at(step):
    """A curve that is half a nat below the plateau from a step on."""
    return [2.5 if s >= step else 3.0 for s in STEPS]


def one(val=FLAT, *, drift=0.001, kl=0.001, saturation=0.7, baseline=100, group="a", name="", **facts):  # fmt: skip
    """A run of 1000 steps beside a baseline that left at ``baseline``; its signs stand still."""
    told = {"alpha_drift_std": drift, "prediction_kl": kl, "saturation@2": saturation}
    signs = {k: {} if v is None else dict.fromkeys(STEPS, v) for k, v in told.items()}
    asked = {
        "name": name, "family": "gpt2", "group": group, "planned": 1000, "steps": STEPS, "val": val, "plateau": PLATEAU,
        "signs": {**signs, "s1": {s: float(s) for s in STEPS}}, "diverged_at": None, "exit": exit_of(STEPS, val, PLATEAU),
        "baseline": Exit(baseline, baseline + 200), **facts,
    }  # fmt: skip
    return Watched(**asked)


COLLAPSED, LATE, SOON = one(), one(left_at(700), group="b"), one(left_at(300), group="c")


# --- what became of a run, and what is known of it when


def test_an_exit_is_known_only_once_it_is_confirmed():
    assert exit_of(STEPS, left_at(400), PLATEAU) == Exit(400, 600)
    assert exit_of(STEPS, FLAT, PLATEAU) == NEVER


def test_a_run_that_is_below_at_its_very_end_has_not_collapsed():
    assert COLLAPSED.collapsed
    assert not one(left_at(1000)).collapsed
    assert not LATE.collapsed


def test_nothing_is_on_the_plateau_before_the_baseline_is_known_to_have_left():
    assert [COLLAPSED.on_plateau(s) for s in (200, 300, 1000)] == [False, True, True]
    assert not one(baseline=np.inf).on_plateau(1000)


def test_a_run_below_the_plateau_is_off_it_though_its_exit_is_not_confirmed():
    assert [LATE.on_plateau(s) for s in (600, 700, 900)] == [True, False, False]


def test_later_evaluations_change_nothing_that_was_said():
    for detector in (library, earlier_form, patient(2)):
        for step in STEPS[:6]:
            assert detector(LATE, step) == detector(one(), step)


def test_the_clock_is_what_is_left_of_the_cumulative_rate():
    assert COLLAPSED.clock_left(250) == pytest.approx(0.8)


# --- detectors


def test_the_library_calls_a_run_whose_predictions_ignore_the_input():
    assert library(one(kl=0.0199, drift=0.5), 500)
    assert not library(one(kl=0.02), 500)
    assert not library(COLLAPSED, 200)  # the baseline has not left for sure
    assert library(one(kl=None), 500)


def test_the_word_collapsed_waits_for_the_planned_end():
    assert [collapsed_alone(COLLAPSED, s) for s in (900, 1000)] == [False, True]


def test_the_earlier_form_read_the_alphas_and_missed_an_exit_that_was_going_on():
    assert not earlier_form(one(drift=0.5), 500)
    assert earlier_form(one(kl=0.1), 500)
    assert not earlier_form(one(drift=None, kl=0.002), 500)
    assert (earlier_form(LATE, 800), library(LATE, 800)) == (True, False)


def test_the_library_s_form_with_another_cut():
    runs = [one(kl=kl) for kl in (0.001, 0.0199, 0.02, 0.1)] + [LATE]
    for step in STEPS:
        assert [blind(0.02)(r, step) for r in runs] == [library(r, step) for r in runs]
    assert [blind(np.inf)(r, 500) for r in runs] == [patient(1)(r, 500) for r in runs]
    assert not blind(0.02)(one(kl=None), 500)


def test_signs_alone_know_no_losses_and_cannot_speak_without_a_number():
    assert below("alpha_drift_std", 0.02)(one(baseline=np.inf), 100)
    assert below("alpha_drift_std", 0.02)(one(drift=None), 100) is None
    assert [saturated(one(saturation=s), 100) for s in (0.5, 0.49, None)] == [True, False, None]


def test_a_patient_loss_waits_for_multiples_of_the_baselines_exit():
    assert [first_call(patient(k), COLLAPSED) for k in (1, 3, 5, 10)] == [300, 300, 500, None]


# --- counting


def test_hits_and_false_alarms_counted_by_hand():
    runs = [COLLAPSED, LATE, SOON, one(saturation=None)]
    assert said_at(patient(1), runs, 500) == Counts(hits=2, collapsed=2, false_alarms=1, others=2)
    assert said_at(patient(1), runs, "end") == Counts(hits=2, collapsed=2, false_alarms=0, others=2)
    # one without the number is neither
    assert said_at(saturated, runs, 500) == Counts(hits=1, collapsed=1, false_alarms=2, others=2)
    assert ever(saturated, runs) == Counts(hits=1, collapsed=1, false_alarms=2, others=2)


def test_over_a_plan_a_false_alarm_is_a_false_alarm_though_it_was_taken_back():
    runs = [COLLAPSED, LATE, one(left_at(200))]
    assert ever(patient(1), runs) == Counts(hits=1, collapsed=1, false_alarms=1, others=2)
    assert ever(patient(7), runs) == Counts(hits=1, collapsed=1, false_alarms=0, others=2)


def test_warning_is_counted_from_the_first_call_to_the_loss_or_the_planned_end():
    runs = [COLLAPSED, LATE]
    assert ahead(patient(1), runs, 7) == [400]  # 300 against 700
    assert ahead(patient(1), runs, 20) == [700]
    assert ahead(below("prediction_kl", 0.02), runs, 1) == [200]
    assert ahead(collapsed_alone, runs, 1) == []


def test_the_least_patience_of_the_loss():
    # it is still on the plateau at 600, six times the baseline's exit
    assert [patience([COLLAPSED, LATE], n) for n in (0, 1)] == [7, 1]
    assert patience([one(left_at(700), baseline=1)], 0) is None


def test_a_cut_is_fitted_on_the_other_groups_alone():
    runs = [
        one(saturation=0.9, group="a"), one(left_at(900), saturation=0.4, group="a"),
        one(saturation=0.8, group="b"), one(left_at(900), saturation=0.5, group="b"),
        one(left_at(300), saturation=0.99, group="c"), one(saturation=None, group="c"),
    ]  # fmt: skip
    score = lambda run, step: run.sign("saturation@2", step)  # noqa: E731
    assert held_out(score, runs, 500) == [True, False, True, False, False, None]
    # only group b has a collapse left to learn from; b itself has none
    assert held_out(score, runs[1:4], 500) == [False, False, False]


def test_the_less_of_a_metric_the_more_it_speaks():
    assert less("prediction_kl")(COLLAPSED, 500) == -0.001
    assert less("prediction_kl")(one(kl=None), 500) is None


# --- from stored runs


def stored(op, val, *, seed=0, lr=1e-3, diverged_at=None, size="gpt2-0.1m"):
    """A run as a map study keeps it."""
    recipe = {"lr": lr, "steps": 1000, "batch": 8, "schedule": "constant", "warmup": 100, "weight_decay": 0.1}  # fmt: skip
    rows = [Record(metric="s1", value=s * lr, step=s) for s in STEPS]
    rows += [Record(metric="saturation@2", value=v, step=500, site=site) for site, v in (("a", 0.2), ("b", 0.6))]  # fmt: skip
    rows += [Record(metric="prediction_kl", value=0.0, step=s) for s in STEPS]
    return StoredRun(
        name=f"{op} {seed}", records=rows,
        facts={
            "asked": {"op": op, "size": size, "dropout": 0.0, "recipe": recipe}, "seed": seed,
            "data": {"sha256": "x", "unit": "byte"}, "plateau": {"val": PLATEAU}, "diverged_at": diverged_at,
        },
        arrays={"eval_steps": np.array(STEPS), "val_loss": np.array(val)[:, None] + [-0.1, 0.1]},
    )  # fmt: skip


def test_a_stored_run_is_watched_beside_the_slowest_seed_of_its_baseline():
    runs = [
        stored("layernorm", left_at(100)), stored("layernorm", left_at(200), seed=1),
        stored("dyt:paper", FLAT), stored("dyt:paper", FLAT, lr=1.0),
    ]  # fmt: skip
    (found,) = watched(runs)  # no baseline has the other rate
    assert (found.name, found.family, found.planned) == ("dyt:paper 0", "gpt2", 1000)
    assert (found.baseline, found.exit) == (Exit(200, 400), NEVER)
    assert found.val == pytest.approx(FLAT)
    assert found.sign("saturation@2", 500) == pytest.approx(0.4)
    assert found.sign("alpha_drift_std", 500) is None
    assert found.clock_left(500) == pytest.approx(0.5)


def test_a_baseline_with_a_seed_that_did_not_leave_accuses_nobody():
    stuck = stored("layernorm", FLAT, seed=1)
    gone = stored("layernorm", left_at(100), seed=1, diverged_at=500)
    for other in (stuck, gone):
        (found,) = watched([stored("layernorm", left_at(100)), other, stored("dyt:paper", FLAT)])
        assert found.baseline == NEVER
        assert not library(found, 1000)


def test_families_are_told_apart_and_diverged_runs_left_out(capsys):
    runs = [COLLAPSED, LATE, SOON, one(family="llama", group="d"), one(diverged_at=600)]
    figures = collapse.answer(runs)
    assert figures["runs"] == {"all": 4, "gpt2": 3, "llama": 1}
    assert figures["collapsed"] == {"all": 2, "gpt2": 1, "llama": 1}
    assert figures["library"]["gpt2"]["500"] == dataclasses.asdict(said_at(library, [COLLAPSED, LATE, SOON], 500))  # fmt: skip
    assert figures["warning"]["library"]["equal"] == {"patience": 1, "steps": [0, 0]}
    assert figures["warning"]["library"]["sure"] == {"patience": 7, "steps": [400, 400]}
    assert json.loads(json.dumps(figures)) == figures
    said = capsys.readouterr().out
    assert "5 runs beside a baseline; 1 diverged and are left out." in said
    assert "| 500 | **library** | 2 of 2 (34-100 %) | 1 of 2 (9-91 %) |" in said
    assert "| 500 | 1 | 1 | 700 | 700 | 7 |" in said
    assert "The last run to leave did so at 7.0 times the baseline's exit step." in said
