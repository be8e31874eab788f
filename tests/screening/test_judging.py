"""Tests of triplepoint.screening.judging on runs whose numbers are made up, so that the answer is known."""

import numpy as np
import pytest

from triplepoint.phases import diverged_step
from triplepoint.records import Record
from triplepoint.screening.arms import Arms
from triplepoint.screening.judging import Judge
from triplepoint.screening.plans import Plan
from triplepoint.sweeps import ArmRun

STEPS = np.arange(25, 501, 25)
WINDOWS = np.linspace(-0.2, 0.2, 64)
PLATEAU = 3.0
FALLING = 1.5 + 1.2 * (STEPS / 100) ** -0.5


def arm(
    name,
    *curves,
    train=None,
    op=None,
    preset=None,
    drift=0.1,
    kl=1.0,
    saturation=0.3,
    outcome="finished",
):
    runs = []
    for seed, curve in enumerate(curves):
        curve = np.broadcast_to(curve, STEPS.shape)
        losses = curve[:, None] + WINDOWS
        learnt = curve if train is None else np.broadcast_to(train, STEPS.shape)
        clock = [
            Record(metric="s1", value=1e-3 * (s - 50 if s > 100 else s / 2), step=int(s))
            for s in STEPS
        ]
        more = [
            Record(metric="alpha_drift_std", value=drift, step=500),
            Record(metric="prediction_kl", value=kl, step=500),
            Record(metric="saturation@2", value=saturation, step=500, site="a"),
            Record(metric="step_time", value=0.1, step=500),
            Record(metric="step_wall_time", value=0.1, step=500),
        ]
        runs.append(
            ArmRun(
                path=None, arm=name, seed=seed, outcome=outcome, last_step=500,
                diverged_at=diverged_step(STEPS.tolist(), learnt.tolist(), PLATEAU, warmup=100),
                plateau={"val": PLATEAU, "train": PLATEAU},
                facts={"asked": {"recipe": {"steps": 500, "warmup": 100, "schedule": "constant", "lr": 1e-3}}},
                arrays={"eval_steps": STEPS, "val_loss": losses, "train_loss": learnt[:, None] + WINDOWS},
                records=clock + more,
            )
        )  # fmt: skip
    return Arms(name, tuple(runs), op or name, preset, 1e-3)


BASELINE = arm("layernorm", FALLING, FALLING)


def judge(
    *candidates,
    planned=500,
    baseline=BASELINE,
    unique=10_000_000,
    criterion="best_checkpoint",
    **changes,
):
    judged = Judge(
        plan=Plan(steps=planned, unique_tokens=unique), baseline=baseline, candidates=candidates, criterion=criterion,
        parameters={"params_no_positions": 400_000, "params_total": 410_000}, tokens_per_step=1024, **changes,
    )  # fmt: skip
    return judged.verdict(spent_s=10.0)


@pytest.mark.parametrize(
    ("shifts", "word"),
    [
        ((-0.10, -0.10), "replace"),  # -4.9 %, far below minus the margin
        ((-0.02, -0.02), "replace"),  # -1 % beats a tie margin of 0.5 %
        ((-0.005, -0.005), "keep"),  # -0.25 % is a tie
        ((0.0, 0.0), "keep"),
        ((0.1, 0.1), "keep"),
        ((-0.2, 0.1), "undecided"),  # the seeds disagree
        ((-0.011, -0.009), "undecided"),  # the interval holds minus the margin
    ],
)
def test_a_measured_plan_is_decided_by_the_interval_against_minus_the_margin(shifts, word):
    candidate = arm("dyt:paper", *(FALLING + s for s in shifts), op="dyt", preset="paper")
    assert judge(candidate).candidates[0].verdict == word


def test_the_margin_is_an_option():
    candidate = arm("dyt", FALLING - 0.02, FALLING - 0.02)
    assert judge(candidate, tie_margin=0.005).verdict == "replace"
    assert judge(candidate, tie_margin=0.02).verdict == "keep"


def test_the_endpoint_that_counts_decides():
    # the baseline over-fits: lower at its best step than the candidate ever gets, higher at the last
    over = np.where(STEPS < 250, FALLING, FALLING[9] + (STEPS - 250) / 250)
    slow = np.maximum(FALLING[9] + 0.1, FALLING + 0.1)
    candidate, baseline = arm("dyt", slow), arm("layernorm", over, train=FALLING)
    assert judge(candidate, baseline=baseline, criterion="fixed_step").verdict == "replace"
    kept = judge(candidate, baseline=baseline, criterion="best_checkpoint")
    assert kept.verdict == "keep"
    both = kept.candidates[0].endpoints
    assert both["fixed_step"].delta_rel < 0 < both["best_checkpoint"].delta_rel
    assert both["best_checkpoint"].baseline_step == 250


@pytest.mark.parametrize(
    ("words", "overall"),
    [
        (("replace", "unsafe", "undecided"), "replace"),
        (("undecided", "unsafe", "keep"), "undecided"),
        (("unsafe", "unsafe"), "unsafe"),
        (("unsafe", "keep"), "keep"),
        (("keep", "keep"), "keep"),
    ],
)
def test_the_overall_word(words, overall):
    made = {
        "replace": FALLING - 0.1,
        "keep": FALLING + 0.1,
        "undecided": None,
        "unsafe": np.full(20, 3.0),
    }
    arms = [
        arm(f"{word}{i}", FALLING - 0.2, FALLING + 0.1) if word == "undecided"
        else arm(f"{word}{i}", made[word], made[word], drift=0.001)
        for i, word in enumerate(words)
    ]  # fmt: skip
    verdict = judge(*arms)
    assert [c.verdict for c in verdict.candidates] == list(words)
    assert verdict.verdict == overall
    assert verdict.recommended == (arms[0].name if overall == "replace" else "layernorm")


def test_a_slower_candidate_of_a_one_epoch_plan_is_kept_out_by_forecast():
    # half as fast on the clock, no plateau, 5000 steps of 1024 tokens on 10M: half an epoch
    candidate = arm("dyt", 1.5 + 1.2 * (0.4 * STEPS / 100) ** -0.5 - 0.0)
    verdict = judge(candidate, planned=5000, baseline=arm("layernorm", FALLING))
    found = verdict.candidates[0]
    assert found.speed_ratio == pytest.approx(0.35, abs=0.1)
    assert found.verdict == "keep"
    assert found.forecast["interval"][0] > -0.005
    assert found.forecast["probability"] < 0.5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"planned": 5000, "unique": 100_000}, "passes 51.2 times over its data"),
        ({"planned": 5000, "unique": None}, "unique tokens are unknown"),
        ({"planned": 50_000, "unique": 10**9}, "of the plan's cumulative learning rate; under 5 %"),
    ],
)
def test_a_plan_that_a_calibration_cannot_see_is_undecided_with_the_reason(changes, reason):
    verdict = judge(arm("dyt", FALLING + 0.3), baseline=arm("layernorm", FALLING), **changes)
    assert verdict.verdict == "undecided"
    assert reason in verdict.candidates[0].why
    assert verdict.candidates[0].next.steps == 1000


def test_frozen_alphas_make_a_plateau_a_stall_and_moving_ones_make_it_slow():
    flat = np.full(20, 3.01)
    stalled = judge(
        arm("dyt", flat, drift=0.005), planned=5000, baseline=arm("layernorm", FALLING)
    ).candidates[0]
    slow = judge(
        arm("dyt", flat, drift=0.05), planned=5000, baseline=arm("layernorm", FALLING)
    ).candidates[0]
    assert (stalled.phase, stalled.verdict, stalled.stalled) == ("stalled", "undecided", True)
    assert (slow.phase, slow.verdict, slow.stalled) == ("fitting", "undecided", False)


def test_a_diverged_seed_makes_the_candidate_unsafe_and_enters_no_mean():
    up = np.where(STEPS < 300, FALLING, 9.0)
    found = judge(arm("dyt", FALLING, up)).candidates[0]
    assert (found.verdict, found.phase, found.delta_rel) == ("unsafe", "diverged", None)


def test_the_rules_see_this_plans_facts():
    candidate = arm("dyt", FALLING + 0.1, FALLING + 0.1, saturation=0.6)
    says = {r["name"]: r["says"] for r in judge(candidate, planned=5000, unique=1_000_000).rules}
    assert says["saturation"] == "replace"
    assert says["unique tokens"] == "replace"
    assert says["always keep"] == "keep"


def test_one_seed_is_said_to_say_nothing_about_another():
    verdict = judge(arm("dyt", FALLING), baseline=arm("layernorm", FALLING))
    assert any("One seed" in note for note in verdict.notes)
