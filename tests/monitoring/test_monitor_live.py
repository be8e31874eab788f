"""Tests of Monitor where models are compiled, wrapped, copied, checkpointed, in low precision or large."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from tests.monitoring.test_monitor import batches, hooks_of, train
from tests.tiny import build
from torch import nn
from torch._dynamo.utils import counters
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from triplepoint import Monitor
from triplepoint.errors import PlanError
from triplepoint.metrics import METRICS, Metric
from triplepoint.objectives import Objective
from triplepoint.ops import DyT


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(4, 4), DyT(4, alpha=1.0), nn.Linear(4, 4), nn.LayerNorm(4))


@pytest.fixture
def norms():
    # signatures of ops are checked in tests, by code that can't be compiled
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4))


@pytest.fixture
def x():
    return torch.randn(3, 4)


@pytest.fixture(autouse=True)
def _uncompiled():
    yield
    torch._dynamo.reset()


def steps_of(monitor, metric="input_rms"):
    return sorted({r.step for r in monitor.collect() if r.metric == metric})


def values_of(monitor):
    return {(r.metric, r.site): (r.value, r.n) for r in monitor.collect()}


def run(model, monitor, x, steps):
    for step in range(1, steps + 1):
        model(x).sum().backward()
        monitor.observe(step)


# --- torch.compile


@pytest.mark.parametrize("called_before", [True, False])
def test_hooks_added_to_a_compiled_model_record_at_every_sampled_step(norms, x, called_before):
    compiled = torch.compile(norms, backend="eager")
    if called_before:
        compiled(x)
    with Monitor(compiled, every=3) as monitor:
        run(compiled, monitor, x, 7)
    assert steps_of(monitor) == [1, 3, 6]


def test_unsampled_steps_run_as_compiled_without_another_graph_or_break(norms, x):
    counters.clear()
    compiled = torch.compile(norms, backend="eager", fullgraph=True)
    compiled(x)
    before = copy.deepcopy(dict(counters))
    with Monitor(compiled, every=4) as monitor:
        for step in range(1, 9):
            assert monitor.is_sampling == (step in (1, 4, 8))
            compiled(x)
            monitor.observe(step)
    compiled(x)
    assert dict(counters) == before
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


# the compiler itself asks an input that is not a leaf for its gradient
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("how", ["in place", "layer by layer", "the step"])
def test_other_ways_to_compile_are_seen_through(norms, x, how):
    call = norms
    if how == "in place":
        norms.compile(backend="eager")
    elif how == "layer by layer":
        norms[1] = torch.compile(norms[1], backend="eager")
    else:
        call = torch.compile(lambda x: norms(x), backend="eager")
    call(x)
    with Monitor(norms, every=2, metrics=("input_rms",)) as monitor:
        run(call, monitor, x, 4)
    found = monitor.collect()
    assert {r.step for r in found} == {1, 2, 4}
    assert {r.site for r in found} == {"1", "3"}


def test_a_compiled_model_gives_the_values_of_the_plain_one(norms, x):
    measured = []
    for model in (norms, torch.compile(norms, backend="eager")):
        with Monitor(model, every=2) as monitor:
            run(model, monitor, x, 2)
        measured.append(values_of(monitor))
    assert measured[0] == measured[1]


def test_the_stance_of_the_caller_comes_back(norms, x):
    compiled = torch.compile(norms, backend="eager")
    with torch.compiler.set_stance("fail_on_recompile"):
        with Monitor(compiled, every=2) as monitor:
            compiled(x)  # eager, or it would fail
            monitor.observe(2)
            with pytest.raises(RuntimeError, match="recompile"):
                compiled(x)


def test_monitors_that_overlap_bring_compilation_back_when_the_last_one_ends(norms, x):
    compiled = torch.compile(norms, backend="eager")
    first, second = Monitor(norms, every=2).attach(), Monitor(norms, every=2).attach()
    first.detach()
    with torch.no_grad():
        compiled(x)
    second.observe(1)
    assert second.collect()
    second.detach()
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_a_monitor_that_is_forgotten_brings_compilation_back(norms):
    torch.compile(norms, backend="eager")
    Monitor(copy.deepcopy(norms), every=2).attach()
    gc.collect()
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_a_first_compilation_after_attaching_costs_the_first_sample_only():
    # in a process of its own: until torch.compile is used, nothing of it is loaded
    code = """
import sys, torch
from torch import nn
from triplepoint import Monitor
net = nn.Sequential(nn.LayerNorm(4))
monitor = Monitor(net, every=5).attach()
print("torch._dynamo" in sys.modules)
compiled = torch.compile(net, backend="eager", fullgraph=True)
for step in range(1, 6):
    compiled(torch.ones(2, 4))
    monitor.observe(step)
print([r.step for r in monitor.collect()])
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False", "[2, 5]"]


def test_sampling_each_step_of_a_compiled_model_is_warned_of(net):
    with pytest.warns(
        UserWarning, match=r"every=1 that is each step\.\nPass Monitor\(\.\.\., every=10\)"
    ):
        Monitor(torch.compile(net, backend="eager")).attach().detach()


# --- nothing seen


def test_a_run_that_shows_nothing_is_warned_of_once(net, x):
    frozen = net.eval()
    with Monitor(frozen, metrics=("input_rms",)) as monitor:
        monitor.observe(1)  # nothing yet: perhaps an evaluation before the first step
        frozen(x)
        with pytest.warns(
            UserWarning, match=r"through the 2 sites .* up to step 2\.\nCall model\.train\(\)"
        ):
            monitor.observe(2)
        monitor.observe(3)
        net.train()(x)
        monitor.observe(4)
    assert steps_of(monitor) == [4]


def test_a_loss_that_is_known_later_belongs_to_its_step(net, x):
    with Monitor(net, every=2, metrics=("input_rms",)) as monitor:
        for step in (1, 2, 3, 4):
            net(x)
            monitor.observe(step)
            monitor.observe(step, train_loss=1.0)
    found = monitor.collect()
    assert [r.step for r in found if r.metric == "train_loss"] == [1, 2, 3, 4]
    assert sorted({r.step for r in found if r.metric == "input_rms"}) == [1, 2, 4]


def test_the_fused_encoder_is_watched_in_training_and_not_counted_in_evaluation():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 5, 8)
    with Monitor(encoder, metrics=("input_rms",)) as monitor:
        encoder(x)
        with torch.no_grad():  # here the fused path is taken, past every norm
            encoder.eval()(x)
        monitor.observe(1)
    found = values_of(monitor)
    assert set(found) == {("input_rms", f"layers.{i}.norm{j}") for i in (0, 1) for j in (1, 2)}
    assert {n for _, n in found.values()} == {2 * 5 * 8}


# --- micro-batches, recomputation, precision


def test_four_micro_batches_are_counted_once_each_in_one_record_per_step(net):
    with Monitor(net, metrics=("input_rms",)) as monitor:
        for step in (1, 2):
            for rows in (1, 2, 3, 4):
                net(torch.randn(rows, 4)).sum().backward()
            monitor.observe(step)
    found = [(r.step, r.site, r.n) for r in monitor.collect()]
    assert found == [(s, site, 40) for s in (1, 2) for site in ("1", "3")]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_layer_is_counted_once_with_the_same_value(net, reentrant):
    x = torch.randn(3, 4, requires_grad=True)
    measured = []
    for call in (net, lambda x: checkpoint(net, x, use_reentrant=reentrant)):
        with Monitor(net) as monitor:
            run(call, monitor, x, 1)
        measured.append(values_of(monitor))
    assert measured[0] == measured[1]


def test_autocast_does_not_reach_into_a_metric(monkeypatch):
    def update(x):
        return {"n": torch.tensor(x.numel()), "dot": x.flatten() @ x.flatten()}

    dot = Metric(
        name="dot", update=update, compute=lambda state: {"dot": float(state["dot"])},
        reads="activation", unit="1", definition="", source="",
    )  # fmt: skip
    monkeypatch.setitem(METRICS, "dot", dot)
    norm = nn.LayerNorm(2)
    with Monitor(norm, ["dot"]) as monitor, torch.autocast("cpu", torch.bfloat16):
        norm(torch.tensor([[1 + 2**-10, 0.0]]))
        monitor.observe(1)
    (found,) = monitor.collect()
    assert found.value == (1 + 2**-10) ** 2  # bfloat16 knows nothing between 1 and 1 + 2^-7


def test_a_run_under_autocast_agrees_with_float32_to_bfloat16_rounding():
    measured = []
    for low in (False, True):
        torch.manual_seed(0)
        model = build("dyt")(0)
        with Monitor(model, metrics=("input_rms",)) as monitor:
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                Objective().loss(model, batches(1)[0]).backward()
            monitor.observe(1)
        measured.append(values_of(monitor))
    for key, (value, n) in measured[0].items():
        assert measured[1][key] == (pytest.approx(value, rel=2**-7), n)


# --- copies and pickles


def test_copies_and_averages_do_not_write_into_the_live_monitor(net, x):
    with Monitor(net, metrics=("input_rms",)) as monitor:
        averaged, deep, unpickled = (
            AveragedModel(net),
            copy.deepcopy(net),
            pickle.loads(pickle.dumps(net)),
        )
        net(x)
        for other in (averaged, deep, unpickled):
            other(100 * x)
        averaged.update_parameters(net)
        monitor.observe(1)
    assert {n for _, n in values_of(monitor).values()} == {12}


def test_a_watched_model_can_be_saved_whole(net, x, tmp_path):
    with Monitor(net):
        torch.save(net, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(again(x), net(x))


def test_a_copy_of_a_monitor_is_detached_watches_the_copied_model_and_knows_as_much(net, x):
    with Monitor(net, every=2, arm="a") as monitor:
        net(x)
        monitor.observe(1, val_loss=2.0)
        other = pickle.loads(pickle.dumps(monitor))
        assert (other.phase, other.is_sampling) == (monitor.phase, False)
        assert other.collect() == monitor.collect()
    with other:
        other._model(x)
        other.observe(2)
    assert {r.arm for r in other.collect()} == {"a"}
    assert monitor.collect() == []


# --- wrappers and names


def test_wrappers_are_looked_through_and_leave_no_trace_in_names(net, x):
    expected = {"1", "3"}
    for wrapped in (
        torch.compile(net, backend="eager"),
        nn.DataParallel(net),
        AveragedModel(net),
    ):
        with Monitor(wrapped, metrics=("input_rms",), every=2) as monitor:
            run(wrapped, monitor, x, 1)
        assert {r.site for r in monitor.collect()} == expected, type(wrapped)


def test_peft_is_looked_through(x):
    peft = pytest.importorskip("peft")
    model = nn.Sequential()
    model.add_module("body", nn.Linear(4, 4))
    model.add_module("norm", nn.LayerNorm(4))
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["body"], r=2))
    with Monitor(adapted, metrics=("input_rms",)) as monitor:
        adapted(x)
        monitor.observe(1)
    assert {r.site for r in monitor.collect()} == {"norm"}


# --- budget and memory


def test_a_metric_beyond_the_byte_budget_is_left_out_with_the_reason(net, x):
    # activation_rank keeps a 4 x 4 and a 4 in float64 and a count: 128 + 32 + 8 bytes a site
    with Monitor(net, metrics=("activation_rank",), budget_bytes=168) as monitor:
        with pytest.warns(
            UserWarning, match=r"'activation_rank' at '3': .*budget of 168\.\nRaise budget_bytes"
        ):
            run(net, monitor, x, 3)
    found = monitor.collect()
    assert {r.site for r in found} == {"1"}
    assert {r.step for r in found} == {1, 2, 3}
    reason = "its 168 bytes, beside the 168 of others, are over the budget of 168"
    assert monitor.skipped == {("3", "activation_rank"): reason}
    text = monitor.definitions()["activation_rank"]["definition"]
    assert text.endswith(f"; not at 1 of 2 sites, the first '3': {reason}")


def test_the_cheap_metrics_stay_when_a_large_one_does_not_fit(net, x):
    metrics = ("input_rms", "activation_rank")
    with Monitor(net, metrics=metrics, budget_bytes=100) as monitor:
        with pytest.warns(UserWarning, match="Monitor.skipped lists all"):
            run(net, monitor, x, 1)
    assert {r.metric for r in monitor.collect()} == {"input_rms"}
    assert set(monitor.skipped) == {("1", "activation_rank"), ("3", "activation_rank")}


def test_a_budget_below_nothing_is_refused(net):
    with pytest.raises(PlanError, match=r"budget_bytes is -1\.\nGive a number of bytes"):
        Monitor(net, budget_bytes=-1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_flat_over_a_thousand_steps():
    # in a process of its own, where nothing else takes or frees memory
    code = """
import gc, torch
from torch import nn
from triplepoint import Monitor
from triplepoint.ops import DyT

net, x = nn.Sequential(nn.Linear(4, 4), DyT(4), nn.LayerNorm(4)), torch.randn(2048, 4)
monitor = Monitor(net, ("saturation", "input_rms", "activation_rank")).attach()

def go(first, last):
    for step in range(first, last):
        net(x).sum().backward()
        monitor.observe(step, train_loss=1.0)
        monitor.collect()
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    return resident, sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

(start, tensors), (end, still) = go(1, 201), go(201, 1201)
print(end - start, still - tensors)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, tensors = map(int, done.stdout.split())
    assert tensors == 0
    # one activation kept per step and site would be 64 MB
    assert grown < 2**21


def test_detaching_leaves_nothing_behind(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    monitor = Monitor(net, metrics=("activation_rank",)).attach()
    net(x)
    monitor.detach()
    assert hooks_of(net) == 0
    assert monitor.state_dict()["records"] == []
    monitor.observe(1)
    assert monitor.collect() == []
    gone = weakref.ref(net[1])
    del monitor, net
    gc.collect()
    assert gone() is None


# --- resume


@pytest.mark.parametrize("every", [1, 3])
def test_a_resumed_run_records_what_an_uninterrupted_one_does(every, tmp_path):
    def start():
        torch.manual_seed(0)
        model = build("dyt")(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        return model, optimizer, Monitor(model, every=every, plateau=3.0).attach()

    def go(model, optimizer, monitor, first, last):
        for step, batch in enumerate(batches(last)[first:], first + 1):
            optimizer.zero_grad()
            loss = Objective().loss(model, batch)
            loss.backward()
            optimizer.step()
            monitor.observe(step, train_loss=loss.item(), **({"val_loss": 2.5} if step % 2 else {}))

    whole = start()
    go(*whole, 0, 9)
    first = start()
    go(*first, 0, 5)
    states = [part.state_dict() for part in first]
    torch.save(states, tmp_path / "state.pt")
    second = start()
    for part, state in zip(second, torch.load(tmp_path / "state.pt"), strict=True):
        part.load_state_dict(state)
    go(*second, 5, 9)
    for _, _, monitor in (whole, first, second):
        monitor.detach()
    assert second[2].phase == whole[2].phase
    assert second[2].collect() == whole[2].collect()


def test_training_stays_bit_equal_with_every_metric_and_a_copy_in_between():
    weights = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = build("dyt", dropout=0.1)(0)
        torch.manual_seed(5)
        if watched:
            metrics = ("saturation", "input_rms", "activation_rank", "alpha")
            with Monitor(model, metrics, every=2) as monitor:
                copy.deepcopy(model)
                train(model, 4, monitor)
        else:
            train(model, 4)
        weights.append(model.state_dict())
    assert all(torch.equal(w, weights[1][name]) for name, w in weights[0].items())


def test_alpha_is_read_at_sampled_steps(net, x):
    with Monitor(net, ["alpha"], every=2) as monitor:
        for step in (1, 2, 3):
            net(x)
            with torch.no_grad():
                net[1].alpha += 1
            monitor.observe(step)
    assert [(r.step, r.site, r.value) for r in monitor.collect()] == [(1, "1", 2.0), (2, "1", 3.0)]
    assert monitor.definitions()["alpha"]["unit"] == "1"
