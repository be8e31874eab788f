"""Tests of triplepoint.monitoring.GrokMonitor."""

import itertools
import math

import pytest
import torch
from tests.monitoring.small import descend, monitored, series, two_layers
from torch import nn

from triplepoint import GrokMonitor
from triplepoint.errors import DataError, ModelError, PlanError
from triplepoint.grokking import pair_task, slow_clock
from triplepoint.models import GPT2, GPT2Config
from triplepoint.monitoring import definitions

TASK = pair_task("add", p=11)


def hooks_of(model):
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


def values(records):
    return {r.metric: r.value for r in records if r.site is None}


def reasons(monitor):
    return {p.part: (p.applies, p.reason) for p in monitor.applies()}


# --- one evaluation


def test_numbers_of_an_evaluation_by_hand():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    net[0].weight.data = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    net[2].weight.data = torch.tensor([[1.0, 0.0], [2.0, 0.5]])
    # features diag(2, 1); outputs (2, 4) and (0, 0.5); targets the unit vectors: the ridge head is diag(0.5, 1)
    X = torch.eye(2)
    monitor = GrokMonitor(net, train=(X, X), validation=(X[1:], torch.tensor([0])))
    found = values(monitor.evaluate(5))
    assert found["train_loss"] == pytest.approx((1 + 16 + 0 + 0.25) / 4)
    assert found["val_loss"] == pytest.approx((1 + 0.25) / 2)
    assert (found["train_accuracy"], found["val_accuracy"]) == (0.5, 0.0)
    assert (found["refit_train_accuracy"], found["refit_val_accuracy"]) == (1.0, 0.0)
    assert found["norm_sq"] == pytest.approx(5 + 5.25)
    assert found["complexity"] == pytest.approx((5 * 1.25) ** 0.5)
    # own head minus ridge head: 0.5, 0, 2, -0.5
    assert found["head_distance"] == pytest.approx((4.5 / 1.25) ** 0.5)
    # units: 4 against 1 + 4, 1 against 0.25
    assert found["unit_imbalance"] == pytest.approx((1 + 0.75) / 2)


def test_every_record_has_the_unit_of_its_definition_and_the_labels():
    monitor = monitored(two_layers(), TASK, arm="adamw", seed=4)
    for record in monitor.evaluate(0):
        assert record.unit == definitions("mse")[record.metric]["unit"]
        assert (record.arm, record.seed, record.step) == ("adamw", 4, 0)


def test_norms_by_layer_add_up_to_the_norm():
    records = monitored(two_layers(), TASK).evaluate(0)
    layers = {r.site: r.value for r in records if r.metric == "weight_norm_sq"}
    assert set(layers) == {"0.weight", "2.weight"}
    assert values(records)["norm_sq"] == pytest.approx(sum(layers.values()))


def test_fourier_shares_of_a_single_circle_are_all_in_its_frequency():
    net = two_layers()
    angle = 2 * torch.pi * 3 * torch.arange(11) / 11
    net[0].weight.data.zero_()
    net[0].weight.data[0], net[0].weight.data[1] = angle.cos(), angle.sin()
    records = monitored(net, TASK).evaluate(0)
    shares = {r.site: r.value for r in records if r.metric == "fourier_power"}
    assert list(shares) == ["k=1", "k=2", "k=3", "k=4", "k=5"]
    assert shares["k=3"] == pytest.approx(1.0)
    assert values(records)["effective_frequencies"] == pytest.approx(1.0)
    assert torch.equal(monitored(net, TASK).embedding(), net[0].weight.detach().T)


def test_zero_losses_are_counted_in_the_dtype_of_the_run():
    net = nn.Linear(2, 2, bias=False)
    X, labels = torch.eye(2), torch.tensor([0, 1])
    for scale, dtype, share in (
        (30.0, "float32", 1.0),
        (30.0, "float64", 0.0),
        (5.0, "float32", 0.0),
    ):
        net.weight.data = scale * torch.eye(2)
        net.to(getattr(torch, dtype))
        found = values(GrokMonitor(net, train=(X, labels), loss="cross_entropy").evaluate(0))
        assert found["zero_loss_share"] == share


def test_samples_in_chunks_give_the_same_numbers():
    net = two_layers()
    whole, parts = (values(monitored(net, TASK, rows=rows).evaluate(0)) for rows in (1000, 7))
    assert parts == pytest.approx(whole, rel=1e-5)


# --- in a loop


def test_training_is_bit_equal_with_and_without_the_monitor():
    alone, watched = two_layers(), two_layers()
    watched.train()
    before = torch.get_rng_state()
    monitor = monitored(watched, TASK, diagnose_every=30, window=12).attach()
    descend(watched, TASK, 60, observe=lambda step, loss: monitor.observe(step, train_loss=loss))
    monitor.detach()
    assert torch.equal(torch.get_rng_state(), before)
    descend(alone, TASK, 60)
    for a, b in zip(alone.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b) and torch.equal(a.grad, b.grad)
    assert all(module.training for module in watched.modules())
    assert hooks_of(watched) == 0
    assert {r.metric for r in monitor.collect()} >= {"cosine_tangent", "train_loss"}


def test_dropout_draws_the_same_numbers_with_and_without_the_monitor():
    drawn = []
    for watch in (False, True):
        net = nn.Sequential(nn.Linear(11, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 11))
        for p in net.parameters():
            p.data.fill_(0.1)
        torch.manual_seed(1)
        monitor = GrokMonitor(net, train=TASK.train_set) if watch else None
        if monitor is not None:
            monitor.evaluate(0)
        drawn.append(net(TASK.train_set[0].float()))
    assert torch.equal(*drawn)


def test_it_is_observed_every_so_many_steps_and_records_are_handed_over_once():
    net = two_layers()
    with monitored(net, TASK, every=20) as monitor:
        assert monitor.observe(0) is not None
        descend(net, TASK, 50, observe=lambda step, loss: monitor.observe(step))
    records = monitor.collect()
    assert series(records, "train_loss")[0] == [0, 20, 40]
    assert monitor.collect() == []


def test_slow_time_is_the_clocks():
    net = two_layers()
    monitor = monitored(net, TASK)
    assert values(monitor.evaluate(40))["slow_time"] == pytest.approx(40 * 0.5 * 1e-4)
    assert "slow_time" not in values(monitored(net, TASK, clock=None).evaluate(40))


class Scripted(nn.Module):
    """Answers a given number of ten questions rightly, by looking at a dial."""

    def __init__(self):
        super().__init__()
        self.right = nn.Parameter(torch.tensor(0.0))

    def forward(self, X):
        answers = torch.arange(len(X)) < self.right
        return torch.stack([~answers, answers], dim=1).float() + 0 * self.right


def test_times_come_in_steps_slow_time_and_seconds_without_the_monitors():
    net, ticks = Scripted(), itertools.count()
    ones = (torch.zeros(10, 1), torch.ones(10, dtype=torch.long))
    monitor = GrokMonitor(
        net, train=ones, validation=ones, clock=slow_clock(lr=0.1, weight_decay=1.0, optimizer="adamw"),
        timer=lambda: float(next(ticks)),
    )  # fmt: skip
    records = []
    for step, right in enumerate([0, 6, 10, 10, 8, 10, 10, 10, 10]):
        net.right.data.fill_(right)
        records += monitor.evaluate(100 * step)
    times = monitor.times()
    assert times["T_grok_0.5"]["step"] == 100
    assert times["T_mem"]["step"] == times["T_grok_0.99"]["step"] == 500
    assert times["T_mem"]["slow_time"] == pytest.approx(50.0)
    # one tick when made, and per evaluation two around the measuring and one for the clock of training
    assert times["T_mem"]["seconds"] == pytest.approx(0 + 6 * 3 - 6)
    found = [(r.metric, r.site, r.value, r.step) for r in records if r.metric.startswith("T_")]
    assert sorted(found, key=str) == [
        ("T_grok", "0.5", 100, 300),
        ("T_grok", "0.9", 500, 700),
        ("T_grok", "0.99", 500, 700),
        ("T_mem", None, 500, 700),
    ]
    assert monitor.phase.phase == "generalising"


def test_a_run_that_does_not_grok_is_censored_and_has_no_record_of_a_time():
    net = two_layers()
    monitor = monitored(net, TASK)
    records = [r for step in (0, 10, 20) for r in monitor.evaluate(step)]
    expected = {"step": None, "censored_at": 20, "slow_time": None, "seconds": None}
    assert monitor.times() == dict.fromkeys(
        ["T_mem", "T_grok_0.5", "T_grok_0.9", "T_grok_0.99"], expected
    )
    assert not [r for r in records if r.metric.startswith("T_")]
    assert monitor.phase.phase == "fitting"


def test_softmax_collapse_reaches_the_phase():
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = 100 * torch.eye(2)
    X, labels = torch.eye(2), torch.tensor([0, 1])
    monitor = GrokMonitor(net, train=(X, labels), validation=(X, 1 - labels), loss="cross_entropy")
    for step in range(3):
        monitor.evaluate(step)
    assert monitor.phase.phase == "memorised"
    assert "softmax collapse: 100%" in monitor.phase.reason


def test_weights_that_are_not_finite_are_recorded_as_such_and_nothing_breaks():
    net = two_layers()
    monitor = monitored(net, TASK, every=10, diagnose_every=20, window=10).attach()
    for step in range(21):
        if step == 15:
            net[0].weight.data[0, 0] = math.nan
        monitor.observe(step)
    found = monitor.collect()
    assert math.isnan(series(found, "train_loss")[1][-1])
    assert monitor.phase == ("diverged", "the loss is not finite at step 20")
    assert monitor.skipped == {"weights were not finite": 1}
    assert monitor.observe(21, train_loss=math.inf).reason == "the loss is not finite at step 21"


# --- other models


def test_a_transformer_is_read_at_its_last_position_and_its_embedding_by_name():
    model = GPT2(GPT2Config(width=16, layers=1, heads=2, vocab=TASK.vocab, context=3))
    labels = TASK.labels[TASK.train]
    monitor = GrokMonitor(
        model, train=(TASK.tokens[TASK.train], labels), loss="cross_entropy", embedding="wte",
        validation=(TASK.tokens[TASK.test], TASK.labels[TASK.test]),
    )  # fmt: skip
    records = monitor.evaluate(0)
    found = values(records)
    logits = model(TASK.tokens[TASK.train])[:, -1]
    assert found["train_loss"] == pytest.approx(
        nn.functional.cross_entropy(logits, labels).item(), rel=1e-6
    )
    assert "refit_val_accuracy" in found and "complexity" not in found
    assert len([r for r in records if r.metric == "fourier_power"]) == 5
    told = reasons(monitor)
    assert told["refit head"] == (True, "the outputs are what 'lm_head' computes")
    assert not told["zero-loss manifold"][0]
    assert told["zero-loss manifold"][1].startswith("cross-entropy has no zero-loss set")
    norm = told["total norm as a measure"]
    assert not norm[0] and "3 normalisation layers" in norm[1]


def test_what_applies_to_a_two_layer_net_with_squared_error():
    monitor = monitored(two_layers(), TASK, diagnose_every=200)
    told = reasons(monitor)
    assert [part for part, (applies, _) in told.items() if not applies] == ["softmax collapse"]
    assert monitor.facts()["applies"][0]["part"] == "accuracies and times"


def test_biases_break_the_lemma_and_two_layers_in_any_module_are_recognised():
    told = reasons(monitored(two_layers(bias=True), TASK))
    assert told["homogeneity lemma"] == (False, "biases, the first '0.bias', break it")
    assert not told["complexity C"][0]
    assert not reasons(monitored(two_layers(act=nn.Tanh), TASK))["homogeneity lemma"][0]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.into = nn.Linear(64, 11, bias=False), nn.Linear(11, 64, bias=False)

        def forward(self, x):
            return self.out(self.into(x).clamp(min=0))

    plain, own = two_layers(), Net()
    own.into.weight.data, own.out.weight.data = plain[0].weight.data, plain[2].weight.data
    a, b = (values(monitored(net, TASK).evaluate(0)) for net in (plain, own))
    assert b == pytest.approx(a)
    assert "complexity" in b


def test_cross_entropy_records_c_and_says_that_it_does_not_order_runs():
    train = (TASK.train_set[0], TASK.labels[TASK.train])
    monitor = GrokMonitor(two_layers(), train=train, loss="cross_entropy")
    found = values(monitor.evaluate(0))
    assert "complexity" in found and "head_distance" not in found
    applies, reason = reasons(monitor)["complexity C"]
    assert not applies and "does not order cross-entropy runs" in reason


def test_a_regression_has_losses_and_no_accuracies():
    net = nn.Linear(3, 1, bias=False)
    monitor = GrokMonitor(net, train=(torch.ones(1, 3), torch.full((1, 1), 3.0)))
    found = values(monitor.evaluate(0))
    assert "train_loss" in found and "train_accuracy" not in found
    assert monitor.times() == {}


class Fused(nn.Module):
    """Squares its linear layer: no nn.Linear computes the output."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(11, 11, bias=False)

    def forward(self, x):
        return self.inner(x).square()


def test_a_model_without_a_linear_head_is_an_error_only_if_one_is_named():
    monitor = monitored(Fused(), TASK)
    assert "refit_val_accuracy" not in values(monitor.evaluate(0))
    assert reasons(monitor)["refit head"] == (False, "no nn.Linear computes the outputs")
    with pytest.raises(
        ModelError, match=r"are not what its layer 'inner' computes\.\nName the layer"
    ):
        monitored(Fused(), TASK, head="inner")
    with pytest.raises(
        ModelError, match=r"'outer' is not a linear layer of Fused\.\nGive one of inner"
    ):
        monitored(Fused(), TASK, head="outer")


def test_messages_say_what_to_try():
    net = two_layers()
    X, Y = TASK.train_set
    with pytest.raises(PlanError, match=r"no loss 'mae' here\.\nGive 'mse' or 'cross_entropy'"):
        GrokMonitor(net, train=(X, Y), loss="mae")
    with pytest.raises(PlanError, match=r"every is 0, rows 1024\.\nGive whole numbers"):
        GrokMonitor(net, train=(X, Y), every=0)
    with pytest.raises(DataError, match=r"\[46, 11\] and targets \[46, 5\] do not fit 11 outputs"):
        GrokMonitor(net, train=(X, Y[:, :5]))
    with pytest.raises(
        ModelError, match=r"outputs \[n, o\] or \[n, seq, o\], the model gives shape"
    ):
        GrokMonitor(nn.Sequential(net, nn.Unflatten(1, (1, 1, 11))), train=(X, Y))
    with pytest.raises(
        ModelError, match=r"Sequential has no embedding 'wte'\.\nName an nn\.Embedding"
    ):
        GrokMonitor(net, train=(X, Y), embedding="wte")
    wide = nn.Sequential(nn.Linear(11, 11), nn.Linear(11, 7), nn.Linear(7, 11))
    with pytest.raises(ModelError, match=r"'2' has shape \[7, 11\], with no row for each of 11"):
        GrokMonitor(wide, train=(X, Y), embedding="2")


def test_one_step_looked_at_again_is_no_confirmation_and_a_run_may_be_set_back():
    task = pair_task("add", p=5)
    monitor = monitored(two_layers(5, 8), task, every=1)
    history = monitor._history
    for step in (1, 1, 1):
        history.add(step, 1.0, 0.0, slow=None, seconds=0.0)
    assert history.crossings()["T_mem"].step is None
    assert history.add(2, 1.0, 0.0, slow=None, seconds=0.0) == {}
    assert history.add(3, 1.0, 0.0, slow=None, seconds=0.0) == {"T_mem": 1}
    history.add(1, 0.0, 0.0, slow=None, seconds=0.0)
    assert history.crossings()["T_mem"] == (None, 1)


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        (
            lambda X, Y: (X.tolist(), Y),
            DataError,
            "must be tensors, got list.*\nTry torch.as_tensor",
        ),
        (lambda X, Y: (X, Y.numpy()), DataError, "got Tensor and ndarray"),
        (lambda X, Y: (X * math.nan, Y), DataError, "35 of 35 numbers in the inputs .*\nDrop"),
        (lambda X, Y: (X, Y / 0), DataError, "in the targets are inf or nan"),
    ],
)
def test_samples_that_are_no_finite_tensors_are_refused(change, error, part):
    X, Y = torch.ones(7, 5), torch.eye(5)[[0, 1, 2, 3, 4, 0, 1]]
    with pytest.raises(error, match=part):
        GrokMonitor(two_layers(5, 8), train=change(X, Y))
    with pytest.raises(ModelError, match="Identity has no parameters.*\nGive the module"):
        GrokMonitor(nn.Identity(), train=(X, Y))
