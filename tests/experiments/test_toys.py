"""Tests of the toys as runs."""

import pytest

from triplepoint.errors import MetricInputError, PlanError, UnknownNameError
from triplepoint.experiments.toys import STARTS, log_spaced, run_toy


def test_addition_ends_where_the_closed_form_says(tmp_path):
    _, ends = run_toy(tmp_path / "run", lams=(0.1,), steps=1000)
    # N / (N + lam) for N = 2, and (N lam / (N + lam))^2
    assert ends[0].theta == pytest.approx((2 / 2.1, 2 / 2.1), abs=1e-8)
    assert ends[0].train_loss == pytest.approx((0.2 / 2.1) ** 2, rel=1e-6)
    assert ends[0].expected["largest_difference"] < 1e-13


def test_half_the_decay_doubles_the_drift(tmp_path):
    _, (slow, fast) = run_toy(tmp_path / "run", lams=(0.0001, 0.0002), eta=0.01, steps=10)
    assert slow.expected["drift_steps"] / fast.expected["drift_steps"] == pytest.approx(2, abs=1e-3)


def test_addition_takes_any_number_of_weights(tmp_path):
    _, (end,) = run_toy(tmp_path / "run", lams=(1.0,), start=(0.0, 3.0, 1.0), eta=0.05, steps=400)
    assert end.theta == pytest.approx((0.75,) * 3, abs=1e-9)


@pytest.mark.parametrize("name", STARTS)
def test_every_toy_ends_on_the_zero_loss_set_with_less_norm(tmp_path, name):
    run, ends = run_toy(tmp_path / "run", name=name, lams=(0.001,), steps=3000)
    assert ends[0].train_loss < 1e-4
    # the norm falls once the loss is down, however far from the end point 3000 steps get
    norms, losses = run.series("norm_sq")[1], run.series("train_loss")[1]
    memorised = next(i for i, loss in enumerate(losses) if loss < 1e-4)
    assert ends[0].norm_sq < norms[memorised]
    assert {"train_loss", "norm_sq", "slow_time", "sigma_min"} <= {r.metric for r in run.records}
    assert {r.metric for r in run.records} <= set(run.facts["metrics"])


def test_only_the_product_with_target_zero_heads_into_its_singular_point(tmp_path):
    singular = {
        name: run_toy(tmp_path / name, name=name, lams=(0.05,))[1][0].towards_singular
        for name in STARTS
    }
    assert singular == {name: name == "two-layer-linear-singular" for name in STARTS}


def test_a_finished_toy_is_read_not_run_again(tmp_path):
    first, _ = run_toy(tmp_path / "run")
    before = (tmp_path / "run" / "records.jsonl").stat().st_mtime_ns
    again, _ = run_toy(tmp_path / "run")
    assert again.records == first.records
    assert (tmp_path / "run" / "records.jsonl").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("how", "error", "part"),
    [
        ({"name": "additon"}, UnknownNameError, "'additon'"),
        ({"lams": ()}, PlanError, "got none"),
        ({"lams": (0.0,)}, PlanError, "without the norm nothing drifts"),
        ({"lams": (0.1, 0.1)}, PlanError, "different weights"),
        ({"lams": (float("nan"),)}, PlanError, "at least 1e-12, got nan"),
        ({"lams": (1e-320,)}, PlanError, "at least 1e-12, got 1e-320"),
        ({"steps": 0}, PlanError, "1 to 1,000,000 steps, got 0"),
        ({"steps": 10**8}, PlanError, "got 100,000,000.\nTry --steps 2000"),
        ({"name": "parabola", "start": (1.0,)}, PlanError, "has two parameters"),
        ({"eta": 10.0}, MetricInputError, "Try a smaller eta"),
        ({"start": (float("inf"), 0.0)}, PlanError, "at most 1e\\+06 in size, got inf"),
        ({"start": (1e200, 0.0)}, PlanError, "got 1e\\+200, 0.0.\nTry --start=-1,1"),
    ],
)
def test_bad_input_is_refused_with_advice(tmp_path, how, error, part):
    with pytest.raises(error, match=part) as caught:
        run_toy(tmp_path / "run", **how)
    assert len(str(caught.value).splitlines()) >= 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("last", [1, 2, 7, 1000, 123457])
def test_log_spaced_steps_hold_both_ends_and_no_step_twice(last):
    steps = log_spaced(last)
    assert steps[0] == 0
    assert steps[-1] == last
    assert steps == sorted(set(steps))
