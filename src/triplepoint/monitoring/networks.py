"""What a grokking monitor sees of a network: outputs, the head, what enters the head, the two layers.

Everything is told by behaviour: a module is the head because the outputs are what it computes, not by its name.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.capture import Capture
from triplepoint.errors import DataError, ModelError
from triplepoint.grokking.refitting import one_hot
from triplepoint.grokking.two_layer import ACTIVATIONS, Activation
from triplepoint.monitoring.quantities import Loss
from triplepoint.objectives import logits_of
from triplepoint.observation import evaluating

PROBED = 64
"""Samples on which a head or two layers are told by what they compute."""


def at_last_position(tensor: Tensor) -> Float[Tensor, "n o"]:
    """Return ``[n, o]`` as it is, and of ``[n, seq, o]`` the last position."""
    return tensor[:, -1] if tensor.ndim == 3 else tensor


def outputs_of(output: Any) -> Float[Tensor, "n o"]:
    """Return what a model answers for each sample: its outputs, or logits at the last position.

    Raises:
        ModelError: If there is no tensor ``[n, o]`` or ``[n, seq, o]``.
    """
    logits = logits_of(output)
    if logits is None or logits.ndim not in (2, 3):
        told = f"shape {list(logits.shape)}" if logits is not None else type(output).__name__
        raise ModelError(
            f"A grokking monitor needs outputs [n, o] or [n, seq, o], the model gives {told}.\n"
            "Wrap it in a module whose forward returns one row per sample."
        )
    return at_last_position(logits)


def width_of(model: nn.Module, X: Tensor) -> int:
    """Return how many outputs a sample has, from two samples.

    Raises:
        ModelError: If the model has no parameters, or its outputs another form.
        DataError: If the samples are no tensor.
    """
    like = next(model.parameters(), None)
    if like is None:
        raise ModelError(
            f"{type(model).__name__} has no parameters, so there is nothing to watch.\n"
            "Give the module that the optimiser trains."
        )
    if not isinstance(X, Tensor):
        raise DataError(
            f"Samples must be tensors, got {type(X).__name__}.\nTry torch.as_tensor on X and Y."
        )
    X = X[:2].to(like.device, like.dtype if X.is_floating_point() else X.dtype)
    with evaluating(model):
        return outputs_of(model(X)).shape[1]


class LastOutput(nn.Module):
    """A model as a function to ``[n, o]``."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, X: Tensor) -> Float[Tensor, "n o"]:
        """Return the outputs at the last position."""
        return outputs_of(self.model(X))


@dataclasses.dataclass(frozen=True)
class Samples:
    """Inputs with their targets in the forms that losses and heads want."""

    X: Tensor
    Y: Float[Tensor, "n o"]
    """One-hot, or the values of a regression; float64."""
    labels: Tensor

    @classmethod
    def of(cls, given: tuple[Tensor, Tensor], model: nn.Module, *, outputs: int) -> Samples:
        """Return the samples on the model's device, in its dtype.

        Raises:
            DataError: If they are no tensors, not finite, empty, differ in number, or targets do not fit the outputs.
        """
        X, Y = given
        if not (isinstance(X, Tensor) and isinstance(Y, Tensor)):
            raise DataError(
                f"Samples must be tensors, got {type(X).__name__} and {type(Y).__name__}.\n"
                "Try torch.as_tensor on X and Y."
            )
        like = next(model.parameters())
        X = X.to(like.device, like.dtype if X.is_floating_point() else X.dtype)
        Y = Y.to(like.device)
        for name, tensor in (("inputs", X), ("targets", Y)):
            bad = int((~tensor.isfinite()).sum())
            if bad:
                raise DataError(
                    f"{bad} of {tensor.numel()} numbers in the {name} are inf or nan, in {tensor.dtype}.\n"
                    "Drop those samples; float16 holds nothing above 65504."
                )
        if not Y.is_floating_point() and Y.ndim == 1 and len(X) == len(Y) > 0:
            return cls(X, one_hot(Y.long(), outputs), Y.long())
        if Y.ndim != 2 or len(X) != len(Y) or not len(X) or Y.shape[1] != outputs:
            raise DataError(
                f"Inputs {list(X.shape)} and targets {list(Y.shape)} do not fit {outputs} outputs.\n"
                "Give X with one row per sample and labels [n], or targets [n, o]."
            )
        return cls(X, Y.double(), Y.argmax(1))

    def losses(self, outputs: Float[Tensor, "n o"], loss: Loss) -> Float[Tensor, " n"]:
        """Return the loss of each sample, in the dtype of the outputs."""
        if loss == "mse":
            return (outputs - self.Y.to(outputs)).square().mean(1)
        return F.cross_entropy(outputs, self.labels, reduction="none")

    def accuracy(self, outputs: Float[Tensor, "n o"]) -> float:
        """Return the share of samples whose largest output is the label's."""
        return (outputs.argmax(1) == self.labels).double().mean().item()


@dataclasses.dataclass(frozen=True)
class Head:
    """The linear layer whose outputs are the model's."""

    path: str
    layer: nn.Linear


@dataclasses.dataclass(frozen=True)
class TwoLayers:
    """A model that is ``act(X W1) W2``; torch stores the transposes."""

    first: nn.Parameter
    last: nn.Parameter
    activation: Activation

    @property
    def trained(self) -> bool:
        """Whether both are; with one frozen the manifold is that of the other alone."""
        return self.first.requires_grad and self.last.requires_grad

    @property
    def W1(self) -> Float[Tensor, "d_in h"]:
        """The first layer as it is now."""
        return self.first.detach().T

    @property
    def W2(self) -> Float[Tensor, "h o"]:
        """The second layer as it is now."""
        return self.last.detach().T


def find_head(model: nn.Module, X: Tensor, *, named: str | None = None) -> Head | None:
    """Return the linear layer that produces the outputs, or None where there is none.

    Every ``nn.Linear`` is run on what entered it; the head is the last one whose result is the model's output.

    Args:
        model: The model.
        X: Some inputs.
        named: Path of the layer, if it is known.

    Raises:
        ModelError: If the named module is no such layer.
    """
    linears = {path: m for path, m in model.named_modules() if isinstance(m, nn.Linear)}
    if named is not None and named not in linears:
        raise ModelError(
            f"'{named}' is not a linear layer of {type(model).__name__}.\n"
            f"Give one of {', '.join(linears) or 'none: it has no nn.Linear'}, or head=None to look for it."
        )
    entered: dict[str, Tensor] = {}
    with evaluating(model):
        with Capture(linears, lambda site, module, x: entered.update({site: x})):
            outputs = outputs_of(model(X))
        for path in reversed(entered):
            layer = linears[path]
            result = F.linear(entered[path], layer.weight, layer.bias)
            if named in (None, path) and _same(at_last_position(result), outputs):
                return Head(path, layer)
    if named is None:
        return None
    raise ModelError(
        f"The outputs of {type(model).__name__} are not what its layer '{named}' computes.\n"
        "Name the layer that the outputs come out of, or give head=None to look for it."
    )


def _same(a: Tensor, b: Tensor) -> bool:
    # float32 matrix products differ in their last digits between routes
    return a.shape == b.shape and bool((a - b).norm() <= 1e-4 * b.norm())


def find_two_layers(model: nn.Module, X: Tensor, head: Head | None) -> TwoLayers | None:
    """Return the layers of a bias-free two-layer net on rows, or None for another model.

    Any module counts whose two parameters are the weights of two linear layers and whose output is
    ``act(X W1) W2`` for one of the known activations.
    """
    weights = {id(p) for p in model.parameters()}
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and id(m.weight) in weights]
    if head is None or len(weights) != 2 or len(layers) != 2 or X.ndim != 2:
        return None
    first = next(m for m in layers if m is not head.layer)
    chains = first.in_features == X.shape[1] and first.out_features == head.layer.in_features
    if not chains or not X.is_floating_point():
        return None
    with evaluating(model):
        outputs = outputs_of(model(X))
        for act in ACTIVATIONS.values():
            if _same(act.value(X @ first.weight.T) @ head.layer.weight.T, outputs):
                return TwoLayers(first.weight, head.layer.weight, act)
    return None


class Reader:
    """Reads outputs and features of a model: the only thing here that hooks, and only while it reads.

    Args:
        model: The model.
        head: Its head, or None.
        rows: How many samples go through at once.
    """

    def __init__(self, model: nn.Module, head: Head | None, *, rows: int):
        self._model, self._rows = model, rows
        self._entered: list[Tensor] = []
        self._capture = Capture({} if head is None else {head.path: head.layer}, self._see)
        self._capture.on = False

    def _see(self, site: str, module: nn.Module, x: Tensor) -> None:
        self._entered.append(at_last_position(x))

    def read(self, X: Tensor) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n h"] | None]:
        """Return outputs and what enters the head, in eval mode; features are None without a head."""
        self._entered, self._capture.on = [], True
        try:
            with evaluating(self._model):
                outputs = torch.cat([outputs_of(self._model(part)) for part in X.split(self._rows)])
        finally:
            self._capture.on = False
        features = torch.cat(self._entered) if self._entered else None
        self._entered = []
        return outputs, features

    def close(self) -> None:
        """Remove the hook."""
        self._capture.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
