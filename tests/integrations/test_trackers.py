"""Tests of triplepoint.integrations.trackers: TensorBoard for real, the others as Accelerate calls them."""

import sys
import types

import pytest
import torch
from torch import nn

from triplepoint import Monitor
from triplepoint.errors import MissingExtraError, UnknownNameError
from triplepoint.integrations.session import Session
from triplepoint.integrations.trackers import open_tracker
from triplepoint.ops import DyT


class FakeWandb(types.ModuleType):
    """W&B's rules: one run at a time, and what is logged below its last step is dropped."""

    def __init__(self, run=None):
        super().__init__("wandb")
        self.run = run

    def init(self, project, **_):
        if self.run is None:
            self.run = WandbRun(project)
        return self.run


class WandbRun:
    def __init__(self, project):
        self.project, self.axes, self.rows, self.finished = project, {}, [], False
        self._step = -1

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, values, step=None):
        step = self._step + 1 if step is None else step
        if step >= self._step:
            self._step = step
            self.rows.append(values)

    def finish(self):
        self.finished = True


class FakeMlflow(types.ModuleType):
    """MLflow's rules: a second active run is an error, and so is a name with other characters."""

    def __init__(self):
        super().__init__("mlflow")
        self.active, self.rows = None, []

    def active_run(self):
        return self.active

    def search_experiments(self, filter_string):
        return []

    def create_experiment(self, name, **_):
        return name

    def start_run(self, experiment_id, **_):
        assert self.active is None, "Run is already active"
        self.active = experiment_id
        return experiment_id

    def end_run(self):
        self.active = None

    def log_metrics(self, metrics, step):
        allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. :/")
        assert all(set(name) <= allowed for name in metrics)
        assert all(isinstance(value, float) for value in metrics.values())
        self.rows.append((step, metrics))


@pytest.fixture
def fake(monkeypatch):
    def put(module):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    return put


def watch(folder, tracker, steps, *, start=0):
    net = nn.Sequential(DyT(2, alpha=1.0))
    monitor = Monitor(net, ("saturation",))
    with Session(monitor, folder, step=start, trackers=[tracker]) as session:
        for step in steps:
            net(torch.full((1, 2), 3.0))
            session.observe(step, val_loss=1.0 / step)


def test_tensorboard_gets_every_record_on_our_step_axis(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    watch(tmp_path, "tensorboard", (1, 2))
    events = EventAccumulator(str(tmp_path / "triplepoint")).Reload()
    found = {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert found["triplepoint/val_loss"] == [(1, 1.0), (2, 0.5)]
    assert found["triplepoint/saturation_2/0"] == [(1, 1.0), (2, 1.0)]
    assert len(events.Tags()["tensors"]) == 1  # the phase, as text


def test_steps_that_go_backwards_after_a_resume_are_not_lost_in_wandb(tmp_path, fake):
    wandb = fake(FakeWandb())
    watch(tmp_path, "wandb", (1, 2, 3, 4))
    run = wandb.run
    watch(tmp_path, "wandb", (3, 4), start=2)
    assert run.axes == {"triplepoint/step": None, "triplepoint/*": "triplepoint/step"}
    assert [row["triplepoint/step"] for row in run.rows] == [1, 2, 3, 4, 3, 4]
    assert run.rows[0]["triplepoint/phase"] == "generalising"
    assert run.project == tmp_path.name
    assert run.finished


def test_a_run_that_somebody_else_opened_is_shared_and_not_ended(tmp_path, fake):
    other = WandbRun("theirs")
    other.log({"loss": 1.0}, step=10**6)
    wandb = fake(FakeWandb(other))
    watch(tmp_path, "wandb", (1,))
    assert wandb.run is other and not other.finished
    assert len(other.rows) == 2
    mlflow = fake(FakeMlflow())
    mlflow.active = "theirs"
    watch(tmp_path, "mlflow", (1,))
    assert mlflow.active == "theirs"
    assert [step for step, _ in mlflow.rows] == [1]


def test_mlflow_gets_numbers_under_names_that_it_takes(tmp_path, fake):
    mlflow = fake(FakeMlflow())
    watch(tmp_path, "mlflow", (1, 2))
    assert [step for step, _ in mlflow.rows] == [1, 2]
    assert mlflow.rows[1][1]["triplepoint/val_loss"] == 0.5
    assert mlflow.active is None


def test_errors_say_what_to_try(tmp_path, monkeypatch):
    with pytest.raises(
        UnknownNameError, match=r"no tracker 'wandbb'\.\nDid you mean 'wandb'\? Known: tensorboard"
    ):
        open_tracker("wandbb", folder=tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"'wandb'.*\n.*pip install 'triplepoint\[wandb\]'"):
        open_tracker("wandb", folder=tmp_path)
