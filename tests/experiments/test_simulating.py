"""Tests of the simulation as a run."""

import dataclasses

import pytest
import torch

from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.experiments import folders, simulating
from triplepoint.experiments.simulating import SimulationSpec, run_simulation
from triplepoint.experiments.specs import TaskSpec, first_layer
from triplepoint.grokking import simulate
from triplepoint.runs import read_arrays
from triplepoint.weights import load_tensors

SMALL = SimulationSpec(
    task=TaskSpec(p=7, fraction=0.6), hidden=24, duration=0.2, every=10, look_every=50
)


def without_seconds(run):
    return [r for r in run.records if r.metric != "seconds"]


def test_a_run_records_what_simulate_returns(tmp_path):
    run = run_simulation(tmp_path / "run", SMALL)
    task = SMALL.task.build()
    end = simulate(
        first_layer(task, 24, std=None, seed=0), *task.train_set, lam=0.0, duration=0.2,
        test=task.test_set, every=10,
    )  # fmt: skip
    steps, C = run.series("complexity")
    assert steps == [point.step for point in end.points]
    assert C == [point.complexity for point in end.points]
    saved = load_tensors(next((tmp_path / "run").glob("checkpoints/*/model.safetensors")))
    assert torch.equal(saved["0.weight"], end.W1.T)
    assert torch.equal(saved["2.weight"], end.W2.T)


@pytest.mark.parametrize("stop", [0, 30, 100, 190])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(tmp_path, monkeypatch, stop):
    whole = run_simulation(tmp_path / "whole", SMALL)
    monkeypatch.setattr(simulating, "SAVE_EVERY_S", -1.0)  # a checkpoint at every record

    def interrupt(point):
        if point.step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_simulation(tmp_path / "cut", SMALL, watch=interrupt)
    resumed = run_simulation(tmp_path / "cut", SMALL)
    assert [r.step for r in without_seconds(resumed)] == [r.step for r in without_seconds(whole)]
    for ours, theirs in zip(without_seconds(resumed), without_seconds(whole), strict=True):
        assert (ours.metric, ours.site) == (theirs.metric, theirs.site)
        # slow time is summed in two parts
        assert ours.value == pytest.approx(theirs.value, rel=1e-12, abs=1e-12)
    ours, theirs = (read_arrays(tmp_path / name / "arrays.npz") for name in ("cut", "whole"))
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}
    assert (ours["circle_points"] == theirs["circle_points"]).all()


def test_interrupted_between_the_last_step_and_the_last_file(tmp_path, monkeypatch):
    def full_disk(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folders, "write_arrays", full_disk)
        with pytest.raises(KeyboardInterrupt):
            run_simulation(tmp_path / "run", SMALL)
    run = run_simulation(tmp_path / "run", SMALL)
    assert run.facts["status"] == "finished"
    assert run.series("slow_time")[1][-1] == pytest.approx(0.2)
    assert len(run.series("train_loss")[0]) == 21


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "sum_squares", "s4"])
def test_the_spectrum_is_recorded_where_the_operation_is_a_group_with_one(tmp_path, operation):
    spec = dataclasses.replace(
        SMALL,
        task=TaskSpec.of(operation, None if operation == "s4" else 7),
        lam=1e-3,
        duration=0.02,
    )
    run = run_simulation(tmp_path / "run", spec)
    shares = [r.value for r in run.records if r.metric == "fourier_power" and r.step == 0]
    if operation in ("add", "sub", "mul", "div"):
        assert len(shares) == 3
        assert sum(shares) == pytest.approx(1)
    else:
        assert shares == []
    circles = "circle_points" in read_arrays(tmp_path / "run" / "arrays.npz")
    assert circles == (operation in ("add", "sub"))


def test_every_metric_is_defined_in_the_manifest(tmp_path):
    run = run_simulation(tmp_path / "run", SMALL)
    assert {r.metric for r in run.records} <= set(run.facts["metrics"])
    assert run.facts["times"]["T_mem"]["step"] == 0
    assert run.facts["times"]["T_grok_0.99"]["censored_at"] == 200


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        ({"hidden": 5}, PlanError, "needs at least as many hidden units"),
        ({"duration": -1.0}, PlanError, "positive length"),
        ({"integrator": "rk4"}, UnknownNameError, "rk4"),
        ({"eta": 0.0}, PlanError, "must be positive"),
        ({"activation": "selu"}, UnknownNameError, "selu"),
        ({"task": TaskSpec(p=22)}, PlanError, "p must be odd"),
        ({"task": TaskSpec(p=None)}, PlanError, "needs a modulus"),
    ],
)
def test_bad_input_is_refused_with_advice(tmp_path, change, error, part):
    with pytest.raises(error, match=part) as caught:
        run_simulation(tmp_path / "run", dataclasses.replace(SMALL, **change))
    assert len(str(caught.value).splitlines()) >= 2


@pytest.mark.parametrize("name", ["lam", "duration", "eta", "cap", "tolerance", "std"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused_before_there_is_a_folder(tmp_path, name, value):
    spec = dataclasses.replace(SMALL, **{name: value})
    with pytest.raises(
        PlanError, match=f"{name} must be finite, got {value}.\nTry another --{name}"
    ):
        run_simulation(tmp_path / "run", spec)
    assert not (tmp_path / "run").exists()
