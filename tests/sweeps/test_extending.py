"""A run that stops and goes on ends as one that never stopped: weights, optimiser, averages, records, all bit-equal."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.test_training import Interrupted, NanAt, interrupt_at
from tests.tiny import build, comparable, train_tiny
from torch import nn

from triplepoint.errors import PlanError, RunFolderError
from triplepoint.recipes import Recipe
from triplepoint.sweeps import Cell, DataSpec, identity_of_cell, load_arm, run_cell
from triplepoint.weights import load_tensors

RECIPE = Recipe(
    steps=20, warmup=5, batch=4, lr=3e-3, schedule="constant", eval_steps=(5, 10, 15), average_steps=(10, 20),
    checkpoint_every=4, sample_every=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    # dropout draws from torch's global generator, which a stop must not move
    return train_tiny(tmp_path_factory.mktemp("whole"), recipe=RECIPE, dropout=0.2)


def part(path, until, **changes):
    return train_tiny(path, recipe=RECIPE, dropout=0.2, until=until, **changes)


def assert_same(run, whole):
    """Everything that is kept of two runs, but what a clock said, is bit-equal."""
    assert comparable(run) == comparable(whole)
    assert (run.outcome, run.last_step, run.until) == (whole.outcome, whole.last_step, whole.until)
    assert set(run.arrays) == set(whole.arrays)
    for name, losses in whole.arrays.items():
        np.testing.assert_array_equal(run.arrays[name], losses)
    last = [f"checkpoints/step-000020/{part}" for part in ("model", "optimizer", "state")]
    files = [f"{name}.safetensors" for name in (*last, "checkpoints/best/model")]
    assert "average|wte.weight" in load_tensors(whole.path / files[2])
    for file in files:
        ours, theirs = (load_tensors(r.path / file) for r in (run, whole))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), file


@pytest.mark.parametrize(
    "stops", [(10,), (7,), (1,), (3, 5, 14, 19)], ids=["at an evaluation", "between", "at once", "often"]
)  # fmt: skip
def test_a_run_that_stops_and_goes_on_is_bit_equal_to_one_that_never_stopped(
    tmp_path, whole, stops
):
    for until in stops:
        stopped = part(tmp_path, until)
        assert (stopped.last_step, stopped.until) == (until, until)
        assert stopped.arrays["eval_steps"][-1] == until
    torch.manual_seed(999)
    assert_same(part(tmp_path, 20), whole)


@pytest.mark.parametrize("killed", [8, 10, 11, 13])
def test_a_run_killed_while_it_goes_on_is_resumed(tmp_path, whole, killed):
    part(tmp_path, 7)
    with pytest.raises(Interrupted):
        part(tmp_path, 14, progress=interrupt_at(killed))
    assert part(tmp_path, 14).last_step == 14
    assert_same(part(tmp_path, 20), whole)


def test_a_run_killed_between_its_stop_and_its_last_words_is_resumed(tmp_path, whole):
    with pytest.raises(Interrupted):
        part(tmp_path, 7, progress=interrupt_at(7))
    assert list(part(tmp_path, 7).arrays["eval_steps"]) == [5, 7]
    assert_same(part(tmp_path, 20), whole)


def test_the_part_of_a_run_has_the_numbers_of_the_whole_up_to_there(tmp_path, whole):
    stopped = part(tmp_path, 15)
    rows = [r for r in comparable(stopped) if r.endpoint is None]
    assert rows == [r for r in comparable(whole) if r.endpoint is None and r.step <= 15]
    ends = {r.endpoint: r.step for r in stopped.records if r.metric == "report_loss"}
    assert ends["fixed_step"] == 15


class SpoiltAt8(nn.Module):
    """A model whose weights are multiplied before its 8th training step; how many it took is in its state."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, tokens):
        self.calls += int(self.training)
        if self.training and self.calls == 8:
            with torch.no_grad():
                for parameter in self.inner.parameters():
                    parameter.mul_(5)
        return self.inner(tokens)


def test_the_best_weights_are_those_of_an_evaluation_that_the_whole_run_has(tmp_path):
    def train(name, until=None):
        return train_tiny(
            tmp_path / name, recipe=RECIPE, until=until, model=lambda s: SpoiltAt8(build(None)(s))
        )

    def best(run):
        return next(r for r in run.records if r.metric == "report_loss" and r.endpoint == "best_checkpoint")  # fmt: skip

    whole, stopped = train("whole"), train("parts", until=7)
    assert (best(whole).step, best(stopped).step) == (5, 7)
    going = train("parts")
    assert best(going) == best(whole)
    file = "checkpoints/best/model.safetensors"
    ours, theirs = (load_tensors(run.path / file) for run in (going, whole))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_a_part_that_is_there_is_read_and_an_earlier_one_is_refused(tmp_path):
    part(tmp_path, 10)
    steps = []
    part(tmp_path, 10, progress=lambda step, loss: steps.append(step))
    assert steps == []
    message = r"has come to step 10 already, past the 4 asked for\.\nAsk for 10 steps or more"
    with pytest.raises(RunFolderError, match=message):
        part(tmp_path, 4)
    with pytest.raises(Interrupted):
        part(tmp_path, 20, progress=interrupt_at(17))
    with pytest.raises(RunFolderError, match="has come to step 16 already, past the 10 asked for"):
        part(tmp_path, 10)
    assert part(tmp_path, 20).last_step == 20


@pytest.mark.parametrize("until", [0, 21])
def test_a_stop_outside_the_recipe_is_refused(tmp_path, until):
    with pytest.raises(
        PlanError, match=f"of 20 steps cannot stop at step {until}.\nGive until from 1"
    ):
        part(tmp_path, until)


def test_a_run_whose_loss_left_the_numbers_goes_no_further(tmp_path):
    def model(seed):
        return NanAt(build(None)(seed), at=7)

    recipe = dataclasses.replace(RECIPE, average_steps=())
    stopped = train_tiny(tmp_path, recipe=recipe, model=model, until=10)
    assert (stopped.outcome, stopped.last_step, stopped.until) == ("diverged", 7, 10)
    steps = []
    on = train_tiny(
        tmp_path, recipe=recipe, model=model, until=15, progress=lambda s, x: steps.append(s)
    )
    assert steps == []
    assert (on.outcome, on.last_step, on.until) == ("diverged", 7, 15)
    assert len(on.records) == len(stopped.records) > 2


def test_a_cell_goes_on_as_the_same_cell(tmp_path):
    cell = Cell(
        path=tmp_path / "parts", arm="dyt", op="dyt", size="gpt2-0.1m", recipe=dataclasses.replace(RECIPE, batch=2),
        data=DataSpec(train_tokens=2000, context=16, windows=4), dropout=0.2,
    )  # fmt: skip
    stopped = dataclasses.replace(cell, until=12)
    assert identity_of_cell(cell, "sum") == identity_of_cell(stopped, "sum")
    run_cell(stopped)
    whole = run_cell(dataclasses.replace(cell, path=tmp_path / "whole"))
    assert_same(run_cell(cell), whole)
    assert load_arm(cell.path).facts["identity"] == whole.facts["identity"]
