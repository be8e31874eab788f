"""Tests of triplepoint.screening.forecasting: from a calibration's arms to the rule's answer."""

import dataclasses

import numpy as np
import pytest

from triplepoint.records import Record
from triplepoint.screening.arms import Arms
from triplepoint.screening.forecasting import Forecaster, alternatives, trajectory_of, widened
from triplepoint.screening.plans import Plan
from triplepoint.screening.rulebook import shipped
from triplepoint.sweeps import ArmRun

STEPS = np.arange(50, 501, 50)
BOOK = shipped()


def arm(name, curve, *, weight_decay=0.1, lr=1e-3):
    losses = np.broadcast_to(np.asarray(curve, float), STEPS.shape)[:, None] + np.zeros(8)
    run = ArmRun(
        path=None, arm=name, seed=0, outcome="finished", last_step=500, diverged_at=None, plateau={"val": 9.0},
        facts={"asked": {"size": "gpt2-0.4m", "recipe": {"weight_decay": weight_decay}}},
        arrays={"eval_steps": STEPS, "val_loss": losses + 0.1, "train_loss": losses},
        records=[Record(metric="s1", value=lr * s, step=int(s)) for s in STEPS],
    )  # fmt: skip
    return Arms(name, (run,), name, None, lr)


FALLING = 1.5 + 1.2 * (STEPS / 100) ** -0.5


def forecaster(**changes):
    return Forecaster(**{
        "book": BOOK, "plan": Plan(steps=1500, unique_tokens=1_500_000), "baseline": arm("layernorm", FALLING),
        "parameters": {"params_no_positions": 369_000}, "tokens_per_step": 1024, "plateau": 9.0, **changes,
    })  # fmt: skip


def test_an_arms_run_is_the_benchmarks_trajectory():
    found = trajectory_of(arm("dyt", FALLING).runs[0])
    assert found.steps.tolist() == STEPS.tolist()
    assert found.s1 == pytest.approx(1e-3 * STEPS)
    assert found.val == pytest.approx(found.train + 0.1)


def test_a_slower_arm_is_forecast_behind_with_its_terms_record_and_neighbours():
    found = forecaster().forecast(arm("dyt", 1.5 + 1.2 * (0.3 * STEPS / 100) ** -0.5))
    assert found.nearness.where == "inside"
    assert found.endpoints["fixed_step"].delta_rel > 0
    assert found.endpoints["fixed_step"].probability < 0.5
    assert found.onset_epoch is None  # one epoch
    assert {t.label for t in found.terms} >= {"speed ratio", "catching up", "relief"}
    assert "escaping" not in {t.label for t in found.terms}
    assert found.track["fixed_step"] == BOOK.track(500, "fixed_step", architecture="gpt2")
    assert len(found.nearness.nearest) == 3


def test_stronger_weight_decay_is_known_as_a_regulariser():
    plain = forecaster().forecast(arm("layernorm wd", FALLING))
    decayed = forecaster().forecast(arm("layernorm wd", FALLING, weight_decay=1.0))
    told = [{t.label: t.value for t in f.terms}["relief"] for f in (plain, decayed)]
    law = BOOK.rules[500].laws["relief"]
    assert told[1] - told[0] == pytest.approx(law.coefficients[-1])


def test_there_is_no_forecast_of_a_plan_without_unique_tokens_or_of_a_short_calibration():
    late = arm("dyt", FALLING + 0.2)
    assert forecaster(plan=Plan(steps=1500)).forecast(late) is None
    short = arm("layernorm", FALLING)
    cut = dataclasses.replace(
        short.runs[0], arrays={k: v[:1] for k, v in short.runs[0].arrays.items()}
    )
    assert forecaster(baseline=dataclasses.replace(short, runs=(cut,))).forecast(late) is None


def test_a_candidate_that_never_had_the_baselines_loss_is_not_forecast():
    assert forecaster().forecast(arm("dyt", np.full(10, 50.0))) is None


def test_a_far_plan_has_wider_draws_three_times_at_most():
    rule = BOOK.rules[500]
    assert widened(rule, 0.2) == rule
    assert widened(rule, 2.0).laws["relief"].spread == 2 * rule.laws["relief"].spread
    assert widened(rule, 99.0).laws["relief"].spread == 3 * rule.laws["relief"].spread


def test_alternatives_are_regularised_baselines_of_the_nearest_groups():
    plan = Plan(steps=3000, unique_tokens=20_000)
    found = forecaster(plan=plan).forecast(arm("dyt", FALLING + 0.1))
    told = alternatives(found, BOOK.cells)
    assert told
    assert all("dropout=" in a["what"] or "weight_decay=" in a["what"] for a in told)
    truth = {c.name: c.truth["fixed_step"].delta_rel for c in BOOK.cells}
    assert all(a["fixed_step"] == truth[a["cell"]] for a in told)
