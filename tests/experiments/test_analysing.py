"""Tests of looking at one checkpoint."""

import pytest
import torch
from safetensors.torch import save_file

from triplepoint.errors import CheckpointError, ModelError, PlanError
from triplepoint.experiments.analysing import analyse
from triplepoint.experiments.forwarding import run_fast_forward
from triplepoint.experiments.simulating import SimulationSpec, run_simulation
from triplepoint.experiments.specs import TaskSpec, first_layer
from triplepoint.experiments.subjects import subject_of
from triplepoint.experiments.training import TrainingSpec, run_training
from triplepoint.grokking import reduced_cost

TASK = TaskSpec(p=7, fraction=0.6)
GIVEN = TrainingSpec(task=TASK, hidden=24)


def memorised():
    """Both layers of a net on the zero-loss manifold, as ``nn.Linear`` stores them."""
    task = TASK.build()
    W1 = first_layer(task, 24, std=None, seed=0)
    W2 = reduced_cost(W1, *task.train_set, lam=0.0).W2
    return {"0.weight": W1.T.contiguous(), "2.weight": W2.T.contiguous()}


def found_in(path, out, given=GIVEN):
    return analyse(out, subject_of(path, given), shuffles=2)


def test_a_memorised_net_is_on_the_manifold_with_its_best_head(tmp_path):
    save_file(memorised(), tmp_path / "net.safetensors")
    run, found = found_in(tmp_path / "net.safetensors", tmp_path / "out")
    assert found["train_accuracy"] == 1
    assert found["off_manifold_distance"] < 1e-9
    assert found["head_distance"] < 1e-6
    layers = memorised()
    C = float(layers["0.weight"].norm() * layers["2.weight"].norm())
    assert found["complexity"] == pytest.approx(C, rel=1e-6)
    assert 0 < found["tau"] < 1
    assert found["fast_forward"]["complexity"] < C
    assert found["will_it_grok"]["answer"] in ("yes", "no", "undecided")
    assert {r.metric for r in run.records} <= set(run.facts["metrics"])


def test_layers_are_told_apart_by_their_shapes_not_their_names(tmp_path):
    layers = memorised()
    torch.save({"b": layers["0.weight"], "a": layers["2.weight"]}, tmp_path / "net.pt")
    save_file(layers, tmp_path / "net.safetensors")
    _, one = found_in(tmp_path / "net.pt", tmp_path / "one")
    _, two = found_in(tmp_path / "net.safetensors", tmp_path / "two")
    assert one["complexity"] == two["complexity"]


def test_a_run_folder_knows_its_task_and_rates(tmp_path):
    run_training(
        tmp_path / "train",
        TrainingSpec(task=TASK, hidden=24, steps=400, diagnose_every=None, checkpoint_every=200),
    )
    run_simulation(tmp_path / "simulate", SimulationSpec(task=TASK, hidden=24, duration=0.05))
    run_fast_forward(TASK, hidden=24, path=tmp_path / "fast-forward")
    for name in ("train", "simulate", "fast-forward"):
        subject = subject_of(tmp_path / name, None)
        assert subject.task.name == "a + b, p=7, unordered"
        assert subject.trained == (name == "train")
        _, found = analyse(tmp_path / f"{name}-out", subject, shuffles=1)
        assert found["train_accuracy"] == 1
    assert subject_of(tmp_path / "train", None, step=200).step == 200


def test_a_deeper_net_gets_what_applies_to_it(tmp_path):
    spec = TrainingSpec(task=TASK, model="gpt2-0.1m", loss="cross_entropy", steps=10, eval_every=10)
    run_training(tmp_path / "run", spec)
    _, found = analyse(tmp_path / "out", subject_of(tmp_path / "run", None))
    assert found["refit_test_accuracy"] is not None
    assert found["fast_forward"] is None
    assert found["complexity"] is None
    assert found["tau"] is None


def test_the_ablations_see_what_the_outputs_compute_with(tmp_path):
    spec = TrainingSpec(task=TaskSpec(p=11, fraction=0.9), hidden=128)
    run_fast_forward(spec.task, hidden=128, path=tmp_path / "run")
    _, found = analyse(tmp_path / "out", subject_of(tmp_path / "run", None), shuffles=1)
    # without its frequencies nothing is left: the outputs fall back to the mean row
    assert found["excluded_loss"] > 0.5
    assert found["restricted_loss"] < 0.5


@pytest.mark.parametrize(
    ("hidden", "spec"),
    [
        (4, GIVEN),
        (24, TrainingSpec(task=TASK, hidden=24, loss="cross_entropy")),
    ],
    ids=["fewer units than samples", "cross-entropy"],
)
def test_what_lies_ahead_is_left_out_with_its_reason(tmp_path, hidden, spec):
    layers = {"a": torch.randn(hidden, 7).double(), "b": torch.randn(7, hidden).double()}
    save_file(layers, tmp_path / "net.safetensors")
    _, found = found_in(tmp_path / "net.safetensors", tmp_path / "out", given=spec)
    (part,) = (p for p in found["applies"] if p["part"] == "what lies ahead")
    assert found["will_it_grok"] is None
    assert found["forecast"] is None
    assert not part["applies"]
    assert ("4 hidden units" if hidden == 4 else "squared error") in part["reason"]


def test_whether_the_task_can_generalise_does_not_depend_on_the_net(tmp_path):
    layers = memorised()
    save_file(layers, tmp_path / "one.safetensors")
    run_fast_forward(TASK, hidden=24, path=tmp_path / "two")
    _, start = found_in(tmp_path / "one.safetensors", tmp_path / "out-one")
    _, end = found_in(tmp_path / "two", tmp_path / "out-two", given=None)
    assert start["will_it_grok"] == end["will_it_grok"]


def damaged(layers, what):
    if what == "one matrix":
        return {"0.weight": layers["0.weight"]}
    if what == "bias":
        return {**layers, "0.bias": torch.zeros(24, dtype=torch.float64)}
    if what == "not finite":
        return {**layers, "0.weight": layers["0.weight"] * float("nan")}
    return {name: layer[:, :5].contiguous() for name, layer in layers.items()}


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("one matrix", "no bias-free"),
        ("bias", "GrokMonitor"),
        ("not finite", "not finite"),
        ("shapes", r"needs \[h, 7\] and \[7, h\]"),
    ],
)
def test_weights_that_are_no_two_layer_net_are_refused(tmp_path, what, part):
    save_file(damaged(memorised(), what), tmp_path / "net.safetensors")
    with pytest.raises(ModelError, match=part) as caught:
        subject_of(tmp_path / "net.safetensors", GIVEN)
    assert len(str(caught.value).splitlines()) >= 2


def test_a_checkpoint_without_its_task_is_refused(tmp_path):
    save_file(memorised(), tmp_path / "net.safetensors")
    with pytest.raises(PlanError, match="--operation"):
        subject_of(tmp_path / "net.safetensors", None)


@pytest.mark.parametrize("content", [None, b"", b"\x00" * 100])
def test_a_missing_or_damaged_file_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "net.safetensors").write_bytes(content)
    for given in (GIVEN, None) if content is None else (GIVEN,):
        with pytest.raises(CheckpointError) as caught:
            subject_of(tmp_path / "net.safetensors", given)
    assert len(str(caught.value).splitlines()) >= 2
