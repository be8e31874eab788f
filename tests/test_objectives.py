"""Tests of triplepoint.objectives."""

import collections
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from triplepoint.errors import DataError, ModelError
from triplepoint.models import GPT2, GPT2Config
from triplepoint.objectives import (
    Objective,
    concatenate,
    length_of,
    slice_of,
    to_device,
    windows_of,
)


def gpt2():
    model = GPT2(GPT2Config(width=8, layers=1, heads=2, vocab=11, context=6))
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


class Output(collections.OrderedDict):
    """As a Hugging Face model's output: a mapping with attributes."""

    __getattr__ = collections.OrderedDict.__getitem__


class WithLoss(nn.Module):
    """A model that knows its loss, as Hugging Face models do where they get labels."""

    def __init__(self):
        super().__init__()
        self.inner = gpt2()

    def forward(self, input_ids, labels=None):
        logits = self.inner(input_ids)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return Output(loss=loss, logits=logits)


class Scalar(nn.Module):
    """A model whose output is its loss: the mean of its input."""

    def forward(self, x):
        return x.float().mean()


class Regression(nn.Module):
    """Twice its input."""

    def forward(self, x):
        return 2 * x


def windows(n=4):
    return torch.randint(11, (n, 7))


def labelled(n=4):
    tokens = windows(n)
    return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}


def squared_error(output, batch):
    return (output - batch[1]).square().mean()


def one_by_one(objective, model, batch):
    return torch.stack([objective.loss(model, window) for window in windows_of(batch)])


# --- the loss


def test_windows_of_tokens_are_predicted_one_ahead():
    model, batch = gpt2(), windows()
    log_p = model(batch[:, :-1]).log_softmax(-1)
    # by its definition: minus the mean log-probability of the token that follows
    expected = -sum(log_p[b, t, batch[b, t + 1]] for b in range(4) for t in range(6)) / 24
    assert Objective().loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_uniform_prediction_costs_the_logarithm_of_the_vocabulary():
    class Uniform(nn.Module):
        def forward(self, tokens):
            return torch.zeros(*tokens.shape, 11)

    assert Objective().loss(Uniform(), windows()).item() == pytest.approx(math.log(11))


def test_a_models_own_loss_is_used():
    model, batch = WithLoss(), labelled()
    expected = F.cross_entropy(
        model.inner(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()
    )
    assert torch.equal(Objective().loss(model, batch), expected)


def test_a_scalar_output_is_the_loss():
    assert Objective().loss(Scalar(), torch.tensor([[1.0, 5.0]])).item() == 3.0


def test_inputs_and_classes_give_the_cross_entropy():
    model, x, y = nn.Linear(3, 5), torch.randn(4, 3), torch.randint(5, (4,))
    expected = F.cross_entropy(model(x), y)
    torch.testing.assert_close(Objective().loss(model, (x, y)), expected)
    torch.testing.assert_close(Objective().loss(model, [x, y]), expected)


def test_a_loss_fn_outranks_a_models_own_loss():
    objective = Objective(lambda output, batch: output.logits.sum() * 0 + batch["labels"].sum())
    batch = labelled()
    assert objective.loss(WithLoss(), batch).item() == batch["labels"].sum()


def test_a_loss_fn_sees_output_and_batch():
    x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [7.0]])
    # ((2 - 0)^2 + (4 - 7)^2) / 2
    assert Objective(squared_error).loss(Regression(), (x, y)).item() == 6.5


@pytest.mark.parametrize(
    ("returned", "told"),
    [(torch.ones(4), "shape [4]"), (torch.ones(1), "shape [1]"), (0.5, "float")],
)
def test_a_loss_fn_that_returns_no_single_number_is_refused(returned, told):
    with pytest.raises(ModelError) as caught:
        Objective(lambda output, batch: returned).loss(Regression(), torch.ones(4, 1))
    assert str(caught.value).split("\n") == [
        f"loss_fn must return one number as a 0-dimensional tensor, got {told}.",
        "Take the mean over the batch: return losses.mean().",
    ]


def test_the_loss_has_a_graph_and_per_window_has_none():
    model, batch = gpt2(), windows()
    Objective().loss(model, batch).backward()
    assert all(p.grad is not None for p in model.parameters())
    found = Objective(lambda output, _: output.mean()).per_window(model, batch)
    assert not found.requires_grad


def test_bfloat16_logits_are_scored_in_float32():
    model, batch = gpt2().bfloat16(), windows()
    loss = Objective().loss(model, batch)
    assert loss.dtype == torch.float32
    logits = model(batch[:, :-1]).float().flatten(0, 1)
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch[:, 1:].flatten()))


# --- per window: model, batch, loss_fn

CASES = {
    "tokens": (gpt2, windows, None),
    "own loss": (WithLoss, labelled, None),
    "classes": (lambda: nn.Linear(3, 5), lambda: (torch.randn(4, 3), torch.randint(5, (4,))), None),
    "scalar": (Scalar, lambda: torch.randn(4, 3), None),
    "loss_fn": (Regression, lambda: (torch.randn(4, 3), torch.randn(4, 3)), squared_error),
}


@pytest.mark.parametrize(("build", "batch", "loss_fn"), CASES.values(), ids=CASES)
def test_per_window_equals_the_loss_of_each_window_alone(build, batch, loss_fn):
    model, batch, objective = build(), batch(), Objective(loss_fn)
    found = objective.per_window(model, batch)
    assert found.shape == (4,)
    torch.testing.assert_close(found, one_by_one(objective, model, batch))
    # all windows are equally long: their mean is the loss of the batch
    torch.testing.assert_close(found.mean(), objective.loss(model, batch))


@pytest.mark.parametrize("name", ["tokens", "own loss", "loss_fn"])
def test_logits_are_shown_once_with_all_windows(name):
    build, batch, loss_fn = CASES[name]
    model, batch, seen = build(), batch(), []
    found = Objective(loss_fn).per_window(model, batch, see_logits=seen.append)
    assert [z.shape[0] for z in seen] == [4]
    torch.testing.assert_close(found, Objective(loss_fn).per_window(model, batch))


def test_a_scalar_output_shows_no_logits():
    seen = []
    Objective().per_window(Scalar(), torch.randn(4, 3), see_logits=seen.append)
    assert seen == []


# --- what is not defined

REMEDY = "Let the model return its loss, or pass loss_fn=(output, batch) -> scalar."


@pytest.mark.parametrize(
    ("model", "batch", "problem"),
    [
        (Regression(), torch.randn(4, 3), "The loss of Tensor on a batch of type Tensor is not defined."),
        (Regression(), (torch.randn(4, 3), torch.randn(4, 3)), "The loss of Tensor on a batch of type tuple is not defined."),
        (Regression(), (torch.randn(4, 3),), "The loss of Tensor on a batch of type tuple is not defined."),
        (WithLoss(), {"input_ids": torch.zeros(1, 3, dtype=torch.long)}, "The loss of Output on a batch of type dict is not defined."),
    ],
    ids=["no targets", "real targets", "inputs alone", "no labels"],
)  # fmt: skip
def test_a_loss_that_is_not_defined_says_what_to_give(model, batch, problem):
    for call in (Objective().loss, Objective().per_window):
        with pytest.raises(ModelError) as caught:
            call(model, batch)
        assert str(caught.value).split("\n") == [problem, REMEDY]


# --- the three forms of a batch


@pytest.mark.parametrize(
    "batch",
    [torch.arange(12).view(4, 3), (torch.arange(4), torch.arange(4) * 2), {"flag": True, "x": torch.arange(4)}],
    ids=["tensor", "tuple", "mapping"],
)  # fmt: skip
def test_a_batch_is_cut_joined_and_moved_in_its_own_form(batch):
    def same(a, b):
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(map(same, a.values(), b.values()))
        if isinstance(a, tuple):
            return len(a) == len(b) and all(map(same, a, b))
        return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b

    assert length_of(batch) == 4
    parts = list(windows_of(batch))
    assert [length_of(part) for part in parts] == [1, 1, 1, 1]
    assert same(concatenate(parts), batch)
    assert same(concatenate([slice_of(batch, 0, 3), slice_of(batch, 3, 4)]), batch)
    # rows of the second of two processes
    assert same(slice_of(batch, 1, 4, 2), concatenate([parts[1], parts[3]]))
    assert same(to_device(batch, torch.device("cpu")), batch)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"flag": True}, "a dict without tensors"),
        ((), "a tuple without tensors"),
        ("text", "a str without tensors"),
        (torch.tensor(3), "a Tensor without tensors"),
        (torch.zeros(0, 7), "an empty tensor"),
    ],
)
def test_what_is_no_batch_is_refused(batch, told):
    with pytest.raises(DataError) as caught:
        length_of(batch)
    assert str(caught.value).split("\n") == [
        "A batch is a tensor, a mapping or a tuple of tensors with at least one window, "
        f"got {told}.",
        "Yield e.g. token windows [batch, seq + 1], or (inputs, targets).",
    ]


def test_windows_of_different_shapes_are_not_joined():
    with pytest.raises(DataError) as caught:
        concatenate([torch.zeros(2, 7), torch.zeros(2, 5)])
    assert str(caught.value).split("\n") == [
        "Fixed windows must have one shape, got windows of (5,), (7,).",
        "Pad them, or give windows of one length.",
    ]
