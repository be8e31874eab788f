"""What data show: counted by hand, laws, and the model left as it was."""

import math

import pytest
import torch
from torch import nn

from triplepoint.errors import DataError
from triplepoint.inspection import DEFINITIONS, inspect_activations
from triplepoint.models import GPT2, GPT2Config
from triplepoint.objectives import Objective
from triplepoint.ops import DyT
from triplepoint.surgery import swap_norms


def gpt2(op="dyt"):
    model = GPT2(GPT2Config(width=8, layers=2, heads=2, vocab=11, context=6, dropout=0.5))
    if op:
        swap_norms(model, op)
    return model


def windows(n, *, seed=0):
    return torch.randint(11, (n, 7), generator=torch.Generator().manual_seed(seed))


def found(records, metric):
    return {r.site: r.value for r in records if r.metric == metric}


class Site(nn.Module):
    """A squash, then a linear layer whose squared output is the loss."""

    def __init__(self, alpha=2.0):
        super().__init__()
        self.op = DyT(3, alpha=alpha)
        self.head = nn.Linear(3, 2, bias=False)

    def forward(self, x):
        return self.head(self.op(x))


def loss(output, batch):
    return output.square().mean()


def test_saturation_and_rank_of_a_site_are_those_worked_by_hand():
    # z = 2 x: entries 0, 2, 6 of each row; one of three lies beyond |z| > 2, and the rows span a line
    x = torch.tensor([[0.0, 1.0, 3.0]]).repeat(4, 1)
    records = inspect_activations(Site(), [x[:2], x[2:]], objective=Objective(loss), noise=())
    assert found(records, "saturation@2") == pytest.approx({"op": 1 / 3})
    assert found(records, "saturation@1.5") == pytest.approx({"op": 2 / 3})
    assert found(records, "activation_rank") == pytest.approx({"op": 1.0})
    assert found(records, "activation_rank_centred") == {"op": 0.0}
    # the first input of the head is tanh(0) for every token
    assert found(records, "dead_units") == pytest.approx({"head": 1 / 3})
    assert {r.n for r in records if r.metric == "saturation@2"} == {12}


def test_batches_add_up_to_the_whole():
    x = torch.randn(10, 3)
    model = Site()
    whole, parts = (
        inspect_activations(model, batches, objective=Objective(loss), noise=())
        for batches in ([x], [x[:3], x[3:]])
    )
    assert [(r.metric, r.site, r.n) for r in parts] == [(r.metric, r.site, r.n) for r in whole]
    assert [r.value for r in parts] == pytest.approx([r.value for r in whole], rel=1e-6)


def test_a_unit_that_lives_in_one_batch_is_not_dead():
    first, second = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    records = inspect_activations(Site(), [first, second], objective=Objective(loss), noise=())
    assert found(records, "dead_units") == pytest.approx({"head": 1 / 3})


@pytest.mark.parametrize("op", ["dyt", None])
def test_a_language_model_is_measured_at_every_norm_and_linear_layer(op):
    model = gpt2(op)
    records = inspect_activations(model, [windows(3)], validation=[windows(4, seed=1)], step=5)
    sites = {"h.0.ln_1", "h.0.ln_2", "h.1.ln_1", "h.1.ln_2", "ln_f"}
    assert set(found(records, "activation_rank")) == sites
    assert set(found(records, "saturation@2")) == (sites if op else set())
    assert len(found(records, "dead_units")) == 9
    assert {r.metric for r in records} >= {"noise_stability@0.01", "noise_stability@0.1"}
    assert all(math.isfinite(r.value) and r.step == 5 and r.unit for r in records)
    for record in records:
        assert record.metric in DEFINITIONS or record.metric.partition("@")[0] in DEFINITIONS


def test_the_gap_is_the_difference_of_the_two_losses():
    model = gpt2()
    train, validation = [windows(3), windows(2, seed=2)], [windows(4, seed=1)]
    records = {
        r.metric: r for r in inspect_activations(model, train, validation=validation, noise=())
    }
    model.eval()
    expected = [Objective().loss(model, torch.cat(b)).item() for b in (train, validation)]
    assert records["train_loss"].value == pytest.approx(expected[0], rel=1e-5)
    assert records["val_loss"].value == pytest.approx(expected[1], rel=1e-5)
    assert records["train_val_gap"].value == pytest.approx(expected[1] - expected[0], abs=1e-5)
    assert (records["train_loss"].n, records["val_loss"].n) == (5, 4)


def test_sites_are_measured_on_the_training_batches_only():
    model = gpt2()
    alone = inspect_activations(model, [windows(3)], noise=())
    both = inspect_activations(model, [windows(3)], validation=[windows(9, seed=1)], noise=())
    assert found(both, "activation_rank") == found(alone, "activation_rank")


def test_the_model_is_left_as_it_was():
    model = gpt2()
    model.h[1].eval()
    modes = [m.training for m in model.modules()]
    before = {n: p.clone() for n, p in model.named_parameters()}
    inspect_activations(model, [windows(3)])
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(p, before[n]) and p.grad is None for n, p in model.named_parameters())
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_progress_counts_batches():
    told = []
    batches = [windows(2), windows(2)]
    inspect_activations(
        gpt2(), batches, validation=batches, noise=(), progress=lambda *state: told.append(state)
    )
    assert told == [("train", 1, 4), ("train", 2, 4), ("val", 3, 4), ("val", 4, 4)]


def test_no_batches_are_refused():
    with pytest.raises(DataError, match="got no batches.\nPass at least one batch of data."):
        inspect_activations(gpt2(), [])
