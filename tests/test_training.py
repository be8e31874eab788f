"""Tests of triplepoint.training: exact resume, and what must not change what is learnt."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
import torch
from tests.tiny import build, comparable, corpus, train_tiny
from torch import nn

from triplepoint.errors import CheckpointError, NonFiniteLossError, RunFolderError
from triplepoint.ops import Taper
from triplepoint.recipes import Recipe
from triplepoint.training import decay_groups

RECIPE = Recipe(
    steps=20, warmup=5, batch=4, lr=3e-3, eval_steps=(5, 10, 15), average_steps=(10, 20),
    checkpoint_every=4, sample_every=3,
)  # fmt: skip


class Interrupted(BaseException):
    """Stands for a process that ends between two instructions."""


def interrupt_at(last):
    def progress(step, loss):
        if step == last:
            raise Interrupted

    return progress


@pytest.mark.parametrize("last", [1, 3, 4, 5, 9, 10, 14, 19, 20])
def test_an_interrupted_run_ends_with_bit_equal_losses_and_no_record_twice(tmp_path, last):
    # dropout draws from torch's global generator, which a checkpoint must bring back
    whole = train_tiny(tmp_path / "whole", recipe=RECIPE, dropout=0.2)
    with pytest.raises(Interrupted):
        train_tiny(tmp_path / "cut", recipe=RECIPE, dropout=0.2, progress=interrupt_at(last))
    torch.manual_seed(999)
    resumed = train_tiny(tmp_path / "cut", recipe=RECIPE, dropout=0.2)
    assert comparable(resumed) == comparable(whole)
    for name, losses in whole.arrays.items():
        np.testing.assert_array_equal(resumed.arrays[name], losses)


@pytest.mark.parametrize("last", [3, 9, 17])  # before, within and after the taper
def test_an_interrupted_taper_goes_on_where_its_gate_was(tmp_path, last):
    models = []

    def remembered(seed):
        models.append(build("taper")(seed))
        return models[-1]

    whole = train_tiny(tmp_path / "whole", recipe=RECIPE, model=remembered)
    with pytest.raises(Interrupted):
        train_tiny(tmp_path / "cut", recipe=RECIPE, model=remembered, progress=interrupt_at(last))
    resumed = train_tiny(tmp_path / "cut", recipe=RECIPE, model=remembered)
    assert comparable(resumed) == comparable(whole)
    gates = [[m.gate.item() for m in model.modules() if isinstance(m, Taper)] for model in models]
    assert gates[0] == gates[2] == [0.0] * 3
    assert (min(gates[1]) == 0) == (last == 17)


def test_interruptions_again_and_again_change_nothing(tmp_path):
    whole = train_tiny(tmp_path / "whole", recipe=RECIPE)
    for last in (2, 6, 6, 11, 17):
        with pytest.raises(Interrupted):
            train_tiny(tmp_path / "cut", recipe=RECIPE, progress=interrupt_at(last))
    assert comparable(train_tiny(tmp_path / "cut", recipe=RECIPE)) == comparable(whole)


def test_a_finished_run_is_read_not_trained_again(tmp_path):
    first = train_tiny(tmp_path, recipe=RECIPE)
    steps = []
    again = train_tiny(tmp_path, recipe=RECIPE, progress=lambda step, loss: steps.append(step))
    assert steps == []
    assert again.records == first.records


def test_another_recipe_is_refused_and_leaves_the_folder_alone(tmp_path):
    first = train_tiny(tmp_path, recipe=RECIPE)
    with pytest.raises(
        RunFolderError, match=r"belongs to another run: recipe.lr was 0.003, now 0.0001.\n.*--out"
    ):
        train_tiny(tmp_path, recipe=dataclasses.replace(RECIPE, lr=1e-4))
    assert train_tiny(tmp_path, recipe=RECIPE).records == first.records


def test_how_often_a_run_is_evaluated_does_not_change_what_it_learns(tmp_path):
    often = dataclasses.replace(RECIPE, eval_steps=tuple(range(1, 21)), sample_every=1)
    rare = dataclasses.replace(RECIPE, eval_steps=(), sample_every=0)
    a = train_tiny(tmp_path / "often", recipe=often, dropout=0.2)
    b = train_tiny(tmp_path / "rare", recipe=rare, dropout=0.2)
    np.testing.assert_array_equal(a.arrays["val_loss"][-1], b.arrays["val_loss"][-1])


def test_arms_of_one_seed_see_the_same_batches_and_start_from_the_same_weights(tmp_path):
    from tests.tiny import build

    torch.manual_seed(3)
    plain = build(None)(3)
    torch.manual_seed(3)
    swapped = build("dyt:paper")(3)
    shared = {n: p for n, p in swapped.named_parameters() if "alpha" not in n}
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, shared[name]), name
    text = corpus()
    one, two = (next(text.batches(3, batch=4, context=16, start=7)) for _ in range(2))
    assert torch.equal(one, two)


class NanAt(nn.Module):
    """A model whose loss turns to nan at the n-th training step."""

    def __init__(self, inner, at):
        super().__init__()
        self.inner, self.at, self.calls = inner, at, 0

    def forward(self, tokens):
        self.calls += self.training
        out = self.inner(tokens)
        return out * math.nan if self.training and self.calls >= self.at else out


def nan_at(step):
    from tests.tiny import build

    return lambda seed: NanAt(build("dyt")(seed), step)


def test_a_loss_that_turns_to_nan_stops_the_run_as_diverged(tmp_path):
    run = train_tiny(tmp_path, recipe=RECIPE, model=nan_at(8))
    assert (run.outcome, run.last_step) == ("diverged", 8)
    assert run.arrays["eval_steps"].tolist() == [5]
    assert math.isnan(run.series("train_loss")[1][-1])


def test_a_loss_that_is_nan_from_the_first_step_is_an_error_with_advice(tmp_path):
    with pytest.raises(
        NonFiniteLossError, match=r"dyt is not finite at the first step\.\nCheck the initial"
    ):
        train_tiny(tmp_path, recipe=RECIPE, model=nan_at(1))


def test_a_truncated_checkpoint_is_named_and_the_one_before_it_still_serves(tmp_path):
    whole = train_tiny(tmp_path / "whole", recipe=RECIPE)
    with pytest.raises(Interrupted):
        train_tiny(tmp_path / "cut", recipe=RECIPE, progress=interrupt_at(17))
    newest = tmp_path / "cut" / "checkpoints" / "step-000016"
    for file in newest.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(
        CheckpointError, match=r"step-000016.*\n.*delete the folder.*checkpoint before"
    ):
        train_tiny(tmp_path / "cut", recipe=RECIPE)
    shutil.rmtree(newest)
    assert comparable(train_tiny(tmp_path / "cut", recipe=RECIPE)) == comparable(whole)


@pytest.mark.parametrize("file", ["state.json", "history.npz"])
def test_a_damaged_checkpoint_of_any_file_is_named(tmp_path, file):
    with pytest.raises(Interrupted):
        train_tiny(tmp_path, recipe=RECIPE, progress=interrupt_at(17))
    (tmp_path / "checkpoints" / "step-000016" / file).write_bytes(b"{")
    with pytest.raises(CheckpointError, match=r"step-000016 is damaged.*\nDelete that folder"):
        train_tiny(tmp_path, recipe=RECIPE)


def test_a_full_disk_is_a_clear_error_and_what_was_kept_resumes(tmp_path, monkeypatch):
    from triplepoint import checkpoints

    whole = train_tiny(tmp_path / "whole", recipe=RECIPE)

    def full(path, tensors):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_tensors", full)
        with pytest.raises(
            RunFolderError, match=r"No space left on device\.\nFree some space.*resumes"
        ):
            train_tiny(tmp_path / "cut", recipe=RECIPE)
    left = [p.name for p in (tmp_path / "cut").rglob("*.part")]
    assert left == []
    assert comparable(train_tiny(tmp_path / "cut", recipe=RECIPE)) == comparable(whole)


def test_alphas_gains_biases_and_scales_are_not_decayed():
    from tests.tiny import build

    model = build("dyt", bias=True)(0)
    decayed, others = decay_groups(model, 0.1)
    names = {id(p): n for n, p in model.named_parameters()}
    assert {names[id(p)].rpartition(".")[2] for p in others["params"]} == {
        "alpha",
        "weight",
        "bias",
        "scale",
    }
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert len(names) == len(decayed["params"]) + len(others["params"])


def test_bfloat16_trains_close_to_float32_and_says_which_dtype_saturates(tmp_path):
    full = train_tiny(tmp_path / "fp32", recipe=RECIPE)
    half = train_tiny(tmp_path / "bf16", recipe=dataclasses.replace(RECIPE, precision="bf16"))
    assert half.last("val_loss") == pytest.approx(full.last("val_loss"), rel=0.02)
    exact = {r.site for r in half.records if r.metric == "saturation_exact"}
    assert exact


def test_the_best_weights_are_those_of_the_lowest_validation_loss(tmp_path):
    from triplepoint.weights import load_tensors

    recipe = dataclasses.replace(
        RECIPE, lr=0.5, steps=16
    )  # so large that the loss goes up and down
    run = train_tiny(tmp_path, recipe=recipe)
    steps, values = run.series("val_loss")
    best = int(steps[values.argmin()])
    until_best = dataclasses.replace(recipe, steps=best, horizon=16)
    again = train_tiny(tmp_path.parent / "until", recipe=until_best)
    kept = load_tensors(tmp_path / "checkpoints" / "best" / "model.safetensors")
    there = load_tensors(again.path / "checkpoints" / f"step-{best:06d}" / "model.safetensors")
    assert all(torch.equal(kept[name], there[name]) for name in kept)


def test_the_s1_clock_is_the_sum_of_the_rates(tmp_path):
    run = train_tiny(tmp_path, recipe=RECIPE)
    steps, s1 = run.series("s1")
    assert s1 == pytest.approx([RECIPE.s1_at(int(s)) for s in steps])


def test_the_manifest_defines_every_metric_that_is_recorded(tmp_path):
    run = train_tiny(tmp_path, recipe=RECIPE)
    defined = json.loads((tmp_path / "manifest.json").read_text())["metrics"]
    assert {r.metric for r in run.records} <= set(defined)
    assert all(set(d) == {"definition", "unit", "source"} for d in defined.values())


def spikes_by_hand(losses):
    """Losses that lie over 6 standard deviations above the mean of the 50 before."""
    return [
        i for i in range(50, len(losses))
        if losses[i] > np.mean(losses[i - 50 : i]) + 6 * np.std(losses[i - 50 : i])
    ]  # fmt: skip


@pytest.mark.parametrize(("lr", "spikes"), [(3e-3, False), (3.0, True)])
def test_loss_spikes_of_differential_attention_are_counted_as_the_rate_grows(tmp_path, lr, spikes):
    """Version 1 at a large rate: it learns while the rate is small, then jumps, then is lost."""
    losses = []
    run = train_tiny(
        tmp_path, op=None, attention="diff_v1", progress=lambda step, loss: losses.append(loss),
        recipe=Recipe(steps=100, warmup=100, batch=16, lr=lr, clip=0.0, sample_every=0, eval_steps=tuple(range(1, 100))),
    )  # fmt: skip
    steps, counts = run.series("loss_spikes")
    found = [step for step, more in zip(steps, np.diff(counts, prepend=0), strict=True) if more]
    # counted from 1, and up to the last evaluation
    assert found == [i + 1 for i in spikes_by_hand(losses) if i < steps[-1]]
    assert bool(found) == spikes
