"""Tests of triplepoint.capture."""

import copy
import pickle

import pytest
import torch
from torch import nn

from triplepoint.capture import CallCapture, Capture


def hooks_of(model):
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))


def test_each_site_is_shown_with_what_enters_it_in_the_order_of_the_forward_pass(model):
    x, seen = torch.randn(4, 3), []
    with Capture(
        {"last": model[2], "first": model[0]},
        lambda site, module, x: seen.append((site, module, x)),
    ):
        model(x)
    assert [(site, module) for site, module, _ in seen] == [("first", model[0]), ("last", model[2])]
    assert torch.equal(seen[0][2], x)
    assert torch.equal(seen[1][2], torch.tanh(model[0](x)))


def test_the_output_and_the_gradient_are_not_touched(model):
    x = torch.randn(4, 3, requires_grad=True)
    model(x).square().sum().backward()
    expected, x.grad = x.grad, None
    with Capture({"first": model[0]}, lambda site, module, x: x.mul(2)):
        model(x).square().sum().backward()
    assert torch.equal(x.grad, expected)


def test_what_is_shown_carries_no_graph(model):
    seen = []

    def see(site, module, x):
        y = x @ module.weight.T
        seen.append((x.requires_grad, y.requires_grad))

    with Capture({"last": model[2]}, see):
        y = model(torch.randn(4, 3, requires_grad=True))
    assert seen == [(False, False)]
    assert y.requires_grad


def test_leaving_removes_every_hook(model):
    with Capture({"a": model[0], "b": model[2]}, lambda *_: None):
        assert hooks_of(model) == 2
    assert hooks_of(model) == 0


def test_an_exception_removes_every_hook(model):
    def fail(*_):
        raise RuntimeError("inside the forward pass")

    with pytest.raises(RuntimeError, match="inside"), Capture({"a": model[0]}, fail):
        model(torch.zeros(1, 3))
    assert hooks_of(model) == 0
    model(torch.zeros(1, 3))


def test_closing_removes_its_own_hooks_only_and_may_be_repeated(model):
    fired = []
    model[0].register_forward_pre_hook(lambda *_: fired.append(1))
    capture = Capture({"a": model[0]}, lambda *_: None)
    capture.close()
    capture.close()
    model(torch.zeros(1, 3))
    assert (hooks_of(model), fired) == (1, [1])


def test_nothing_is_shown_while_switched_off(model):
    seen = []
    with Capture({"a": model[0]}, lambda *_: seen.append(1)) as capture:
        capture.on = False
        model(torch.zeros(1, 3))
        assert seen == []
        capture.on = True
        model(torch.zeros(1, 3))
    assert seen == [1]


def test_a_module_used_twice_is_shown_twice():
    layer, seen = nn.Linear(3, 3), []
    with Capture({"shared": layer}, lambda site, module, x: seen.append(x.shape[0])):
        nn.Sequential(layer, nn.Tanh(), layer)(torch.zeros(4, 3))
    assert seen == [4, 4]


def test_an_input_given_by_keyword_is_seen_as_well():
    norm, seen = nn.Linear(2, 2), []
    with Capture({"a": norm}, lambda site, module, x: seen.append(tuple(x.shape))):
        norm(input=torch.zeros(3, 2))
    assert seen == [(3, 2)]


# --- calls: inputs and outputs


def test_calls_are_shown_as_they_end_with_inputs_and_output(model):
    x, seen = torch.randn(4, 3), []
    with CallCapture(
        dict(model.named_modules()), lambda site, given, y: seen.append((site, given, y))
    ):
        out = model(x)
    assert [site for site, _, _ in seen] == ["0", "1", "2", ""]
    assert seen[0][1] == (x,)
    assert seen[1][1][0] is seen[0][2]
    assert seen[3][2] is out
    assert hooks_of(model) == 0


def test_calls_show_keyword_inputs_after_the_others():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    total, seen = Sum(), []
    with CallCapture({"": total}, lambda site, given, y: seen.append((given, y))):
        total(1, b=2)
    assert seen == [((1, 2), 3)]


def test_no_call_is_shown_while_switched_off(model):
    seen = []
    with CallCapture({"0": model[0]}, lambda *_: seen.append(1)) as calls:
        calls.on = False
        model(torch.zeros(1, 3))
    assert seen == []


# --- copies, pickles, compilation


@pytest.mark.parametrize("kind", [Capture, CallCapture])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"]
)
def test_a_copy_of_the_model_shows_nothing_and_computes_the_same(model, kind, copied):
    seen = []
    with kind({"0": model[0]}, lambda *given: seen.append(given)):
        other = copied(model)
        x = torch.randn(4, 3)
        assert torch.equal(other(x), model(x))
    assert len(seen) == 1


@pytest.mark.parametrize("kind", [Capture, CallCapture])
def test_a_compiled_model_is_compiled_as_if_there_were_no_hook(model, kind):
    torch._dynamo.reset()
    seen = []
    with kind({"0": model[0]}, lambda *given: seen.append(given)):
        # fullgraph: a single graph break would be an error
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        compiled(torch.zeros(4, 3))
        assert seen == []
        with torch.compiler.set_stance("force_eager"):
            compiled(torch.zeros(4, 3))
    assert len(seen) == 1


def test_norms_of_a_fused_encoder_are_seen_in_eval_mode_as_well():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    norms = {name: m for name, m in encoder.named_modules() if isinstance(m, nn.LayerNorm)}
    seen = []
    with torch.no_grad(), Capture(norms, lambda site, module, x: seen.append(site)):
        encoder(torch.randn(2, 5, 8))
    assert seen == list(norms)
