"""Tests of triplepoint.measurement."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from triplepoint.measurement import DEFINITIONS, Probe
from triplepoint.metrics import THRESHOLDS
from triplepoint.models import GPT2, GPT2Config
from triplepoint.objectives import Objective
from triplepoint.observation import evaluating, saturation_of, sites_of
from triplepoint.ops import OPS, DyT
from triplepoint.surgery import swap_norms

SITES = ["h.0.ln_1", "h.0.ln_2", "h.1.ln_1", "h.1.ln_2", "ln_f"]
VOCAB = 11


def gpt2(op="dyt", *, dropout=0.0):
    """A tiny model whose sites differ in how saturated they are."""
    config = GPT2Config(width=8, layers=2, heads=2, vocab=VOCAB, context=6, dropout=dropout)
    model = GPT2(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    if op:
        swap_norms(model, op)
    return model


def windows(n):
    return torch.randint(VOCAB, (n, 7))


@pytest.fixture
def fixed():
    return {"val": windows(5), "train": windows(7), "report": windows(3)}


def probe(model, fixed, **options):
    return Probe(model, Objective(), fixed, **options)


def values_of(records, metric):
    """site -> value; the key of a whole-model metric is None."""
    return {r.site: r.value for r in records if r.metric == metric}


def step(model, watcher, number, batch, *, lr=0.1):
    """One step of the plainest training loop, as a real one calls the probe."""
    watcher.before_step(number)
    Objective().loss(model, batch).backward()
    watcher.after_backward(number)
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= lr * parameter.grad
            parameter.grad = None
    return gradients


def pre_activations(model, tokens):
    """Site -> what enters its squashing function, by running the model by hand."""
    x = model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1]))
    z = {}
    for i, block in enumerate(model.h):
        z[f"h.{i}.ln_1"] = block.ln_1.alpha * x
        x = x + block.attn(block.ln_1(x))
        z[f"h.{i}.ln_2"] = block.ln_2.alpha * x
        x = x + block.mlp(block.ln_2(x))
    return {**z, "ln_f": model.ln_f.alpha * x}


# --- sites


def test_sites_are_the_ops_and_the_norms_in_module_order():
    model = gpt2(None)
    assert list(sites_of(model)) == SITES
    swap_norms(model, "dyt", where="h.0.*")
    assert list(sites_of(model)) == SITES
    assert isinstance(sites_of(model)["h.0.ln_1"], DyT)
    assert isinstance(sites_of(model)["ln_f"], nn.LayerNorm)


def test_what_cannot_be_swapped_is_no_site():
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(4))
    assert list(sites_of(model)) == ["1"]


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_saturation_is_counted_where_something_is_squashed(op):
    metric = saturation_of(op(4), dtype=torch.float32)
    assert (metric is None) == (op.slope_edge is None)
    if metric is not None:
        names = set(metric.compute(metric.update(torch.zeros(3))))
        assert names == {f"saturation@{t:g}" for t in THRESHOLDS} | {
            "saturation_slope",
            "saturation_exact",
        }
        assert names <= set(DEFINITIONS)
    assert saturation_of(nn.LayerNorm(4), dtype=torch.float32) is None


# --- evaluating leaves no trace


def test_modes_and_random_numbers_are_left_as_they_were():
    model = gpt2(dropout=0.5)
    model.h[1].eval()
    modes = [m.training for m in model.modules()]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with evaluating(model):
        assert not any(m.training for m in model.modules())
        assert not torch.is_grad_enabled()
        torch.rand(10)
    assert torch.equal(torch.rand(2), expected)
    assert [m.training for m in model.modules()] == modes
    assert torch.is_grad_enabled()


def test_an_exception_while_evaluating_leaves_no_trace_either():
    model = gpt2()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert all(m.training for m in model.modules())
    assert torch.is_grad_enabled()


def test_an_evaluation_changes_nothing_that_training_would_notice(fixed):
    model = gpt2(dropout=0.5)
    watcher = probe(model, fixed)
    state = torch.get_rng_state()
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    watcher.evaluate(1)
    watcher.losses()
    watcher.report()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(m.training for m in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, weights[n]) for n, p in model.named_parameters())


def test_closing_removes_the_hooks(fixed):
    model = gpt2()
    watcher = probe(model, fixed)
    watcher.close()
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


# --- the fixed windows


def test_losses_are_those_of_each_window_alone_in_eval_mode(fixed):
    model = gpt2(dropout=0.5)
    arrays, _ = probe(model, fixed, rows=2).evaluate(1)
    model.eval()
    assert list(arrays) == ["val_loss", "train_loss"]
    for name in ("val", "train"):
        for tokens, found in zip(fixed[name], arrays[f"{name}_loss"], strict=True):
            expected = F.cross_entropy(model(tokens[None, :-1])[0], tokens[1:]).item()
            assert found == pytest.approx(expected, rel=1e-5)


def test_report_windows_are_looked_at_only_when_asked_for(fixed):
    model = gpt2()
    watcher = probe(model, fixed)
    assert watcher.report().shape == (3,)
    del fixed["report"]
    assert probe(model, fixed).report() is None


def test_losses_alone_equal_those_of_an_evaluation(fixed):
    watcher = probe(gpt2(), fixed)
    arrays, _ = watcher.evaluate(1)
    for name, losses in watcher.losses().items():
        np.testing.assert_array_equal(losses, arrays[name])


@pytest.mark.parametrize("rows", [1, 3, 128])
def test_how_many_windows_go_through_at_once_does_not_matter(fixed, rows):
    model = gpt2()
    arrays, records = probe(model, fixed, rows=rows).evaluate(1)
    expected_arrays, expected = probe(model, fixed, rows=7).evaluate(1)
    for name, losses in arrays.items():
        np.testing.assert_allclose(losses, expected_arrays[name], rtol=1e-5)
    assert len(records) == len(expected)
    for found, other in zip(records, expected, strict=True):
        assert (found.metric, found.site, found.n) == (other.metric, other.site, other.n)
        assert found.value == pytest.approx(other.value, rel=1e-5, abs=1e-9)


def test_the_order_of_windows_only_reorders_the_losses(fixed):
    model = gpt2()
    turned = {name: batch.flip(0) for name, batch in fixed.items()}
    arrays, records = probe(model, fixed, rows=3).evaluate(1)
    turned_arrays, turned_records = probe(model, turned, rows=3).evaluate(1)
    for name, losses in arrays.items():
        np.testing.assert_allclose(turned_arrays[name][::-1], losses, rtol=1e-5)
    for found, other in zip(records, turned_records, strict=True):
        assert found.value == pytest.approx(other.value, rel=1e-5, abs=1e-9)


def test_evaluating_twice_gives_the_same_again(fixed):
    watcher = probe(gpt2(), fixed)
    (first, records), (second, again) = watcher.evaluate(5), watcher.evaluate(5)
    assert records == again
    for name, losses in first.items():
        np.testing.assert_array_equal(losses, second[name])


def test_saturation_equals_a_count_by_hand_on_the_train_windows(fixed):
    model = gpt2()
    _, records = probe(model, fixed, rows=3).evaluate(1)
    z = pre_activations(model, fixed["train"][:, :-1])
    for t in THRESHOLDS:
        expected = {site: (v.abs() > t).float().mean().item() for site, v in z.items()}
        assert values_of(records, f"saturation@{t:g}") == pytest.approx(expected)
    # the sites differ, and none is trivial
    assert len(set(values_of(records, "saturation@1").values())) == len(SITES)
    assert {r.n for r in records if r.metric == "saturation@2"} == {7 * 6 * 8}


def test_the_ops_own_edges_are_counted_as_well(fixed):
    model = gpt2("derf")
    for site in sites_of(model).values():
        nn.init.constant_(site.alpha, 2.0)
    z = pre_activations(model, fixed["train"][:, :-1])
    for dtype, edge in [(torch.bfloat16, 2.190), (torch.float32, 3.919)]:
        _, records = probe(model, fixed, dtype=dtype).evaluate(1)
        for name, beyond in [("saturation_slope", 1.6277), ("saturation_exact", edge)]:
            expected = {site: (v.abs() > beyond).float().mean().item() for site, v in z.items()}
            assert values_of(records, name) == pytest.approx(expected)


def test_input_rms_is_over_what_enters_each_site(fixed):
    model = gpt2()
    _, records = probe(model, fixed).evaluate(1)
    z = pre_activations(model, fixed["train"][:, :-1])
    expected = {
        site: (z[site] / module.alpha).square().mean().sqrt().item()
        for site, module in sites_of(model).items()
    }
    assert values_of(records, "input_rms") == pytest.approx(expected, rel=1e-5)


def test_a_layernorm_model_has_the_size_of_its_inputs_and_no_saturation(fixed):
    _, records = probe(gpt2(None), fixed).evaluate(1)
    assert list(values_of(records, "input_rms")) == SITES
    assert {r.metric for r in records} == {"input_rms", "logit_scale", "prediction_kl"}


def test_predictions_are_measured_on_the_validation_windows(fixed):
    model = gpt2()
    _, records = probe(model, fixed, rows=2).evaluate(1)
    logits = model(fixed["val"][:, :-1]).detach()
    p = logits.flatten(0, 1).softmax(-1)
    expected = (p * (p / p.mean(0)).log()).sum(-1).mean().item()
    assert values_of(records, "prediction_kl") == {None: pytest.approx(expected, rel=1e-4)}
    spread = logits.std(dim=-1, unbiased=False).square().mean().sqrt().item()
    assert values_of(records, "logit_scale") == {None: pytest.approx(spread, rel=1e-4)}


def test_a_model_that_only_tells_its_loss_is_measured_without_predictions():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = DyT(4)

        def forward(self, x):
            return self.norm(x).mean()

    fixed = {"val": torch.randn(3, 4), "train": torch.randn(2, 4)}
    arrays, records = probe(Own(), fixed).evaluate(1)
    assert arrays["val_loss"].shape == (3,)
    metrics = {r.metric for r in records}
    assert {"saturation@2", "input_rms"} <= metrics
    assert not {"prediction_kl", "logit_scale"} & metrics


# --- alphas


def test_alphas_are_recorded_with_their_drift_since_the_probe_was_made(fixed):
    model = gpt2("dyt:paper")
    watcher = probe(model, fixed)
    changes = dict(zip(SITES, [0.1, -0.1, 0.3, -0.3, 0.5], strict=True))
    for site, change in changes.items():
        nn.init.constant_(model.get_submodule(site).alpha, 2.0 + change)
    _, records = watcher.evaluate(1)
    assert values_of(records, "alpha") == pytest.approx({s: 2 + c for s, c in changes.items()})
    assert values_of(records, "alpha_drift") == pytest.approx(changes, abs=1e-6)
    # mean 0.1; deviations 0, -0.2, 0.2, -0.4, 0.4; not the sample deviation
    assert values_of(records, "alpha_drift_std") == {None: pytest.approx(math.sqrt(0.08))}


def test_a_drift_that_all_alphas_share_is_no_spread(fixed):
    model = gpt2("dyt:paper")
    watcher = probe(model, fixed)
    for site in sites_of(model).values():
        nn.init.constant_(site.alpha, 2.5)
    _, records = watcher.evaluate(1)
    assert values_of(records, "alpha_drift_std") == {None: pytest.approx(0, abs=1e-7)}


# --- while training


def test_a_step_that_is_not_sampled_records_nothing(fixed):
    model = gpt2()
    watcher = probe(model, fixed, every=10)
    for number in (1, 9, 11):
        step(model, watcher, number, windows(2))
    assert watcher.state() == {}
    _, records = watcher.evaluate(11)
    assert not {"batch_saturation@2", "site_grad_norm"} & {r.metric for r in records}


def test_sampling_may_be_switched_off(fixed):
    model = gpt2()
    watcher = probe(model, fixed, every=0)
    for number in range(3):
        step(model, watcher, number, windows(2))
    assert watcher.state() == {}


def test_a_sampled_step_is_measured_on_its_own_batch(fixed):
    model, batch = gpt2(), windows(2)
    for site in sites_of(model).values():
        nn.init.constant_(site.alpha, 1.5)
    watcher = probe(model, fixed, every=10)
    z = pre_activations(model, batch[:, :-1])
    gradients = step(model, watcher, 10, batch)
    _, records = watcher.evaluate(10)
    expected = {site: (v.abs() > 2).float().mean().item() for site, v in z.items()}
    assert values_of(records, "batch_saturation@2") == pytest.approx(expected)
    norms = {
        site: math.sqrt(
            sum(gradients[f"{site}.{name}"].square().sum().item() for name in ("alpha", "weight"))
        )
        for site in SITES
    }
    assert values_of(records, "site_grad_norm") == pytest.approx(norms, rel=1e-4)


def test_sampled_steps_are_pooled_until_the_next_evaluation_and_then_forgotten(fixed):
    model = gpt2()
    for site in sites_of(model).values():
        nn.init.constant_(site.alpha, 1.5)
    watcher = probe(model, fixed, every=1)
    small, large = windows(1), windows(3)
    z = [pre_activations(model, batch[:, :-1])["ln_f"] for batch in (small, large)]
    gradients = [step(model, watcher, n, b, lr=0) for n, b in [(1, small), (2, large)]]
    _, records = watcher.evaluate(2)
    pooled = torch.cat([v.flatten() for v in z])
    (row,) = [r for r in records if r.metric == "batch_saturation@2" and r.site == "ln_f"]
    assert row.value == pytest.approx((pooled.abs() > 2).float().mean().item())
    assert row.n == 4 * 6 * 8
    # gradient norms are averaged over steps, whatever the batches' sizes
    norms = [math.hypot(g["ln_f.alpha"].norm(), g["ln_f.weight"].norm()) for g in gradients]
    (row,) = [r for r in records if r.metric == "site_grad_norm" and r.site == "ln_f"]
    assert (row.value, row.n) == (pytest.approx(sum(norms) / 2, rel=1e-4), 2)
    _, again = watcher.evaluate(3)
    assert "batch_saturation@2" not in {r.metric for r in again}


def test_evaluating_between_two_passes_counts_nothing_as_training(fixed):
    model = gpt2()
    watcher = probe(model, fixed, every=1)
    _, records = watcher.evaluate(0)
    assert "batch_saturation@2" not in {r.metric for r in records}
    assert watcher.state() == {}
    step(model, watcher, 1, windows(2))
    before = {k: v.clone() for k, v in watcher.state().items()}
    watcher.losses()
    assert all(torch.equal(v, before[k]) for k, v in watcher.state().items())


def test_what_was_counted_survives_a_restart(fixed):
    model, batches = gpt2(), [windows(2), windows(2)]
    whole, first, second = (probe(model, fixed, every=1) for _ in range(3))
    for number, batch in enumerate(batches, 1):
        step(model, whole, number, batch, lr=0)
    step(model, first, 1, batches[0], lr=0)
    second.load_state(first.state())
    step(model, second, 2, batches[1], lr=0)
    assert second.evaluate(2)[1] == whole.evaluate(2)[1]


def test_update_ratio_is_the_norm_of_the_change_over_the_norm_before_by_depth(fixed):
    model = gpt2()
    watcher = probe(model, fixed)
    shares = {"wte": 0.1, "wpe": 0.2, "h.0": 0.3, "h.1": 0.0}
    before = watcher.before_update()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            share = next((s for depth, s in shares.items() if name.startswith(depth)), 9.0)
            parameter *= 1 - share
    records = watcher.update_records(before, 4)
    assert values_of(records, "update_ratio") == pytest.approx(shares, abs=1e-6)


def test_update_ratio_pools_the_matrices_of_a_depth_and_leaves_out_vectors(fixed):
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.LayerNorm(1), nn.Linear(1, 2, bias=False))
    block = nn.ModuleDict({"h": nn.ModuleList([model])})
    watcher = probe(block, fixed)
    nn.init.constant_(model[0].weight, 3.0)
    nn.init.constant_(model[2].weight, 4.0)
    before = watcher.before_update()
    nn.init.constant_(model[0].weight, 4.0)
    nn.init.constant_(model[1].weight, 100.0)
    (record,) = watcher.update_records(before, 1)
    # sqrt(2 * 1 + 2 * 0) over sqrt(2 * 9 + 2 * 16); a mean of ratios would be 1/6
    assert (record.site, record.value) == ("h.0", pytest.approx(0.2))


# --- what a record says


def test_every_record_has_its_labels_its_unit_and_a_definition(fixed):
    model = gpt2()
    watcher = probe(model, fixed, every=1, arm="dyt:paper", seed=4)
    before = watcher.before_update()
    step(model, watcher, 1, windows(2))
    records = [*watcher.update_records(before, 1), *watcher.evaluate(1)[1]]
    assert {(r.arm, r.seed, r.step) for r in records} == {("dyt:paper", 4, 1)}
    assert {r.metric for r in records} == set(DEFINITIONS)
    for record in records:
        assert record.unit == DEFINITIONS[record.metric]["unit"]
        assert math.isfinite(record.value)


def test_every_definition_says_what_in_which_unit_and_after_whom():
    for name, entry in DEFINITIONS.items():
        assert set(entry) == {"definition", "unit", "source"}, name
        assert all(entry.values()), name
    assert DEFINITIONS["saturation@2.5"]["definition"].count("|z| > 2.5") == 1


def test_windows_are_brought_to_where_the_model_is():
    class Sees:
        def per_window(self, model, batch, see_logits=None):
            devices.append(batch.device.type)
            return torch.zeros(len(batch))

    devices = []
    model = nn.Linear(2, 2, device="meta")
    probe = Probe(model, Sees(), {"val": torch.zeros(3, 2), "train": torch.zeros(3, 2)}, arm="a")
    probe.losses()
    assert set(devices) == {"meta"}
