"""Tests of what the screening benchmark's rule has to beat: studies.screening_benchmark.rivals and power_law."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
from studies.screening_benchmark.power_law import DELTA, EXPONENT, extrapolated, fit
from studies.screening_benchmark.rivals import RIVALS, Cut, PlanLogistic, Side
from tests.evidence.synthetic import cell, run

from triplepoint.evidence import ENDPOINTS, held_out, score

NAMED = {rule.name: rule for rule in RIVALS}


def cells():
    """Of four scales: where data are few the candidate is behind at the look and wins; the others it loses."""
    made = []
    for scale in range(4):
        for tokens in (500, 600, 8000, 9000):
            small = tokens < 1000
            made.append(
                cell(
                    "candidate" if small else "baseline", size=f"gpt2-{scale}m", unique_tokens=tokens,
                    baseline=run(val=2.0, gap=0.5 if small else 0.01, slope=0.1, series={"val_loss_ema": 2.1}),
                    candidate=run(val=2.2, slope=0.05, series={"val_loss_ema": 2.4, "saturation@2": 0.2 if small else 0.6}),
                )
            )  # fmt: skip
    return made


@pytest.mark.parametrize("rule", RIVALS, ids=list(NAMED))
@pytest.mark.parametrize("look", [100, 500])
def test_every_rival_always_answers_and_trains_nothing_more(rule, look):
    held = held_out(rule, cells(), look=look, by="scale")
    assert not rule.trains
    assert len(held) == 16
    for one in held:
        assert one.prediction.answered == dict.fromkeys(ENDPOINTS, True)
        # 12 cells are fitted on: no more can be known
        assert all(1 / 14 <= p <= 13 / 14 for p in one.prediction.p.values())


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("majority", (0, 8)),  # even: no more than one half, so not the candidate
        ("gap at the look", (0, 8)),
        ("gap at the look, averaged weights", (0, 8)),
        ("tokens per parameter", (8, 8)),
        ("epochs", (8, 8)),
        ("baseline's train/val gap", (8, 8)),
        ("saturation 0.43", (0, 0)),  # it is the other way round here
        ("two power laws", (0, 8)),
        ("logistic of T/P and epochs", (8, 8)),
    ],
)
def test_each_rival_answers_by_its_own_number(name, right):
    held = held_out(NAMED[name], cells(), look=500, by="scale")
    for endpoint in ENDPOINTS:
        assert score(held, endpoint, least=1).right == right


@pytest.mark.parametrize(
    ("name", "arms", "value"),
    [
        ("gap at the look", {"candidate": run(val=2.25)}, -0.25),
        ("gap at the look, averaged weights", {
            "candidate": run(series={"val_loss_ema": 2.0}), "baseline": run(series={"val_loss_ema": 2.5}),
        }, 0.5),
        ("gap at the look, averaged weights", {}, None),
        ("baseline's train/val gap", {"baseline": run(gap=0.3), "candidate": run(gap=9.0)}, 0.3),
        ("saturation, refitted", {"candidate": run(series={"saturation@2": 0.4})}, 0.4),
        ("saturation, refitted", {"baseline": run(series={"saturation@2": 0.4})}, None),
        ("tokens per parameter", {"unique_tokens": 4000}, -np.log(8)),
        ("epochs", {"unique_tokens": 4000}, np.log(1 / 2)),
    ],
)  # fmt: skip
def test_scores_are_what_they_are_named_after(name, arms, value):
    found = NAMED[name].score(cell(**arms).seen(500))
    assert found is None if value is None else found == pytest.approx(value)


def test_a_score_is_the_mean_over_seeds():
    one = cell(candidate=run(val=2.2))
    two = dataclasses.replace(
        one, candidate_runs=(run(val=2.2), run(val=2.6)), baseline_runs=(run(val=2.0), run(val=2.0))
    )
    assert NAMED["gap at the look"].score(two.seen(500)) == pytest.approx(-0.4)


def test_a_cut_is_fitted_to_both_classes_alike_and_speaks_in_frequencies():
    side = Side.of([1.0, 2.0, 3.0, 4.0, 4.0, None], [False, False, True, False, False, True], None)
    assert side.cut == pytest.approx(2.5)
    # above: one win of three; below: none of two; over all: two of six
    assert (side.above, side.below, side.unknown) == pytest.approx((2 / 5, 1 / 4, 3 / 8))
    # the candidate, at less than one half
    assert side.ask(3.0) == (side.above, True)
    assert side.ask(2.0) == (side.below, False)
    assert side.ask(None) == (side.unknown, False)


def test_a_given_cut_stays_and_the_sides_are_counted():
    rule = Cut(name="", score=lambda c: c.setting.epochs, cut=1.5)
    many, few = {"unique_tokens": 1000}, {"unique_tokens": 2000}
    fitted = rule.fit([cell("candidate", **many), cell("tie", **many), cell("baseline", **few)], 500)  # fmt: skip
    told = fitted.predict(cell(**many).seen(500))
    # ties are not fitted on
    assert told.p["fixed_step"] == pytest.approx(2 / 3)
    assert told.says == dict.fromkeys(ENDPOINTS, True)
    assert fitted.predict(cell(**few).seen(500)).p["fixed_step"] == pytest.approx(1 / 3)


def test_nothing_clear_to_fit_on_is_one_half_and_no_candidate():
    for rule in (NAMED["epochs"], NAMED["logistic of T/P and epochs"], NAMED["majority"]):
        told = rule.fit([cell("tie"), cell("tie", unique_tokens=5)], 500).predict(cell().seen(500))
        assert (told.p["fixed_step"], told.says["fixed_step"]) == (0.5, False)


def test_a_logistic_is_capped_by_what_it_was_fitted_on():
    rule = PlanLogistic(name="", features=lambda c: np.array([float(c.setting.unique_tokens)]))
    known = [cell("candidate" if t < 0 else "baseline", unique_tokens=t) for t in range(-10, 11, 2)]
    fitted = rule.fit(known, 500)
    assert fitted.predict(cell(unique_tokens=-9000)).p["fixed_step"] == pytest.approx(12 / 13)
    assert fitted.predict(cell(unique_tokens=9000)).p["fixed_step"] == pytest.approx(1 / 13)


# --- power laws


def curve(floor=1.5, above=0.8, exponent=0.45, n=12):
    s = np.linspace(0.2, 1, n)
    return s, floor + above * s**-exponent


@pytest.mark.parametrize("truth", [(1.5, 0.8, 0.45), (2.0, 0.3, 0.7), (1.0, 1.5, 0.3)])
def test_a_power_law_is_found_again(truth):
    # the prior is worth one error of a thousandth: it moves the exponent a little
    assert fit(*curve(*truth)) == pytest.approx(truth, rel=0.03)


@pytest.mark.parametrize(("truth", "n"), [((1.5, 0.8, 0.45), 12), ((1.5, 0.1, 1.5), 4)])
def test_the_fit_is_the_lowest_another_optimiser_finds(truth, n):
    # the second is so short that the prior has a say
    s, y = curve(*truth, n=n)
    y = y * np.exp(np.random.default_rng(0).normal(0, 3e-3, n))
    y[1] *= 1.2  # one that is off counts linearly

    def objective(theta):
        floor, above, exponent = y.min() / (1 + np.exp(-theta[0])), *np.exp(theta[1:])
        r = (np.log(floor + above * s**-exponent) - np.log(y)) / DELTA
        return (np.sqrt(1 + r**2) - 1).sum() + ((theta[2] - np.log(EXPONENT[0])) / EXPONENT[1]) ** 2 / 2  # fmt: skip

    floor, above, exponent = fit(s, y)
    ours = [np.log(floor / (y.min() - floor)), np.log(above), np.log(exponent)]
    options = {"maxiter": 9000, "maxfev": 9000, "xatol": 1e-8, "fatol": 1e-8}
    theirs = scipy.optimize.minimize(objective, [1.0, 0.0, -1.0], method="Nelder-Mead", options=options)  # fmt: skip
    assert objective(ours) <= theirs.fun + 1e-6


def power_run(floor=1.5):
    """0.8 above a floor at step 500, on a clock of steps / 1000; warm-up is off the law."""
    made = run()
    val = floor + 0.8 * (made.steps / 500) ** -0.45
    return dataclasses.replace(made, val=np.where(made.steps > 100, val, 9.0))


def test_an_arm_is_extrapolated_from_after_its_warm_up():
    seen = power_run().until(500)
    assert extrapolated(seen, 1.0, after=100) == pytest.approx(1.5 + 0.8 * 2**-0.45, rel=1e-3)
    assert extrapolated(seen.until(250), 1.0, after=100) is None  # three evaluations
    assert extrapolated(seen.until(300), 1.0, after=100) is not None


def test_two_power_laws_meet_at_the_planned_end_of_each_arm_s_rate():
    # constant rate after 100 steps of warm-up: S1 ends a little before 1000 steps of it
    pair = cell(candidate=power_run(1.4), baseline=power_run(1.5))
    assert NAMED["two power laws"].score(pair.seen(500)) == pytest.approx(0.1, abs=2e-3)
    faster = cell(candidate=power_run(1.5), baseline=power_run(1.5), candidate_lr=2e-3)
    ends = [1.5 + 0.8 * (lr * 950.5 / 0.5) ** -0.45 for lr in (1e-3, 2e-3)]
    assert NAMED["two power laws"].score(faster.seen(500)) == pytest.approx(ends[0] - ends[1], abs=2e-3)  # fmt: skip
    assert NAMED["two power laws"].score(pair.seen(100)) is None
