"""Tests of real training runs on tasks that may grok."""

import dataclasses

import pytest
import torch

from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.experiments.specs import TaskSpec
from triplepoint.experiments.training import TrainingSpec, run_training
from triplepoint.runs import read_arrays
from triplepoint.weights import load_tensors

SMALL = TrainingSpec(
    task=TaskSpec(p=7, fraction=0.6), hidden=24, steps=60, eval_every=5, diagnose_every=None,
    checkpoint_every=20, weight_decay=0.5,
)  # fmt: skip
TIMED = ("seconds", "step_time", "step_wall_time", "tokens_per_s", "peak_memory")


def plain(run):
    return [r for r in run.records if r.metric not in TIMED]


def weights(path):
    return load_tensors(sorted(path.glob("checkpoints/step-*/model.safetensors"))[-1])


def test_it_is_full_batch_adamw_on_the_mean_squared_error(tmp_path):
    run_training(tmp_path / "run", SMALL)
    task = SMALL.task.build()
    model = SMALL.build(task)
    (X, Y), _ = SMALL.samples(task)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        (model(X) - Y).square().mean().backward()
        optimizer.step()
    saved = weights(tmp_path / "run")
    for name, parameter in model.state_dict().items():
        assert torch.allclose(saved[name], parameter, rtol=0, atol=1e-6)


@pytest.mark.parametrize("stop", [3, 20, 37, 59])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(tmp_path, stop):
    whole = run_training(tmp_path / "whole", SMALL)

    def interrupt(step, loss):
        if step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_training(tmp_path / "cut", SMALL, watch=interrupt)
    resumed = run_training(tmp_path / "cut", SMALL)
    assert plain(resumed) == plain(whole)
    ours, theirs = (read_arrays(tmp_path / name / "arrays.npz") for name in ("cut", "whole"))
    assert ours.keys() == theirs.keys()
    assert all((ours[k] == theirs[k]).all() for k in ours)


def test_a_named_size_reads_the_pairs_as_tokens(tmp_path):
    spec = dataclasses.replace(SMALL, model="gpt2-0.1m", loss="cross_entropy", steps=10)
    run = run_training(tmp_path / "run", spec)
    measured = {r.metric for r in run.records}
    assert {"train_accuracy", "val_accuracy", "refit_val_accuracy", "zero_loss_share"} <= measured
    assert "complexity" not in measured
    reasons = {p["part"]: p["reason"] for p in run.facts["applies"] if not p["applies"]}
    assert "cross-entropy" in reasons["zero-loss manifold"]
    assert "normalisation layers" in reasons["total norm as a measure"]


def test_every_metric_is_defined_and_the_circles_are_kept(tmp_path):
    run = run_training(tmp_path / "run", SMALL)
    assert {r.metric for r in run.records} == set(run.facts["metrics"])
    arrays = read_arrays(tmp_path / "run" / "arrays.npz")
    steps, k, p, two = arrays["circle_points"].shape
    assert (k, p, two) == (3, 7, 2)
    assert steps == len(arrays["circle_steps"])
    # of several curves the page draws one line each: all records of a run carry the same labels
    assert len({(r.arm, r.seed) for r in run.records}) == 1


@pytest.mark.parametrize(("loss", "unit"), [("mse", "mse"), ("cross_entropy", "nats")])
def test_losses_are_recorded_in_the_unit_of_the_run(tmp_path, loss, unit):
    run = run_training(tmp_path / "run", dataclasses.replace(SMALL, loss=loss, steps=5))
    units = {r.unit for r in run.records if r.metric in ("train_loss", "val_loss", "grad_norm")}
    assert units == {unit}
    assert {run.facts["metrics"][f"{which}_loss"]["unit"] for which in ("train", "val")} == {unit}


@pytest.mark.parametrize("operation", ["mul", "s4"])
def test_the_monitor_is_told_what_the_operation_is(tmp_path, operation):
    spec = dataclasses.replace(
        SMALL, task=TaskSpec.of(operation, 7 if operation == "mul" else None)
    )
    run = run_training(tmp_path / "run", dataclasses.replace(spec, steps=5))
    part = next(p for p in run.facts["applies"] if p["part"] == "Fourier features")
    assert part["applies"] == (operation == "mul")
    shares = [r.value for r in run.records if r.metric == "fourier_power"]
    assert (sum(shares) == pytest.approx(1)) == (operation == "mul")


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        ({"eval_every": 0}, PlanError, "--eval-every 50"),
        ({"steps": 0}, PlanError, "steps"),
        ({"lr": 0.0}, PlanError, "learning rate"),
        ({"weight_decay": -1.0}, PlanError, "weight_decay"),
        ({"loss": "mae"}, PlanError, "'mae'"),
        ({"model": "gpt3"}, UnknownNameError, "gpt3"),
        ({"model": "vit-0.4m"}, PlanError, "reads images"),
        ({"activation": "selu"}, UnknownNameError, "selu"),
        ({"diagnose_every": 5}, PlanError, "diagnose_every=1000"),
        ({"task": TaskSpec(p=8)}, PlanError, "p must be odd"),
    ],
)
def test_bad_input_is_refused_with_advice(tmp_path, change, error, part):
    with pytest.raises(error, match=part) as caught:
        run_training(tmp_path / "run", dataclasses.replace(SMALL, **change))
    assert len(str(caught.value).splitlines()) >= 2
