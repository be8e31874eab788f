"""A live two-layer net near one theta by its structure, and its gates over a window of steps.

Symbols, as in the paper (rows are samples):
    theta   both weights as torch stores them, [h, d_in] and [o, h], flattened [d]
    X       training inputs [n, d_in]; W1, W2 the transposes of the weights
    gate    1 where a pre-activation X W1 is above 0 [n, h]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from triplepoint.grokking.kinks import Kinks
from triplepoint.grokking.linearisation import Linearisation, Stacked
from triplepoint.grokking.structured import two_layer_rows
from triplepoint.monitoring.networks import TwoLayers


class Gates:
    """The gates of the first layer over a window, step by step; as ``grokking.watch_kinks``, without keeping them."""

    def __init__(self, X: Tensor, layers: TwoLayers):
        self._X, self._layers = X, layers
        self.tensors: dict[str, Tensor] = {}

    @torch.no_grad()
    def watch(self) -> None:
        """Take down the gates of this step."""
        gate = self._X @ self._layers.W1 > 0
        if not self.tensors:
            self.tensors = {
                "flips": torch.zeros_like(gate, dtype=torch.int32),
                "open": torch.zeros_like(gate, dtype=torch.int32),
                "steps": torch.zeros((), dtype=torch.int64),
            }
        else:
            self.tensors["flips"] += gate != self.tensors["gate"]
        self.tensors["open"] += gate
        self.tensors["steps"] += 1
        self.tensors["gate"] = gate

    def kinks(self) -> Kinks:
        """Return flips and mean gates of the window."""
        steps = int(self.tensors["steps"])
        gates = self.tensors["open"].double() / steps
        return Kinks(flips=self.tensors["flips"].long(), gates=gates, steps=steps)


def split_layers(theta: Tensor, layers: TwoLayers) -> tuple[Tensor, Tensor]:
    """Return the two weights as torch stores them, out of one vector."""
    first, last = theta.split([layers.first.numel(), layers.last.numel()])
    return first.view(layers.first.shape), last.view(layers.last.shape)


def two_layer_linearisation(
    theta: Tensor, X: Tensor, layers: TwoLayers, kinks: Kinks | None = None
) -> Linearisation:
    """Return a two-layer net near theta by its structure: a dozen matrix products in place of autograd.

    Args:
        theta: Both weights as torch stores them, flattened, float64.
        X: Training inputs, float64.
        layers: Shapes and activation.
        kinks: If given, gates are their means over its window.
    """
    first, last = split_layers(theta, layers)
    gates = None if kinks is None else kinks.gates
    rows = two_layer_rows(X, first.T, last.T, activation=layers.activation, gates=gates)

    def jvp(v: Tensor) -> Tensor:
        V1, V2 = split_layers(v, layers)
        return rows.apply(V1.T, V2.T)

    def vjp(a: Tensor) -> Tensor:
        V1, V2 = rows.transpose(a)
        return torch.cat([V1.T.reshape(-1), V2.T.reshape(-1)])

    return Linearisation(theta, (rows.H @ rows.W2).reshape(-1), jvp, vjp)


@dataclasses.dataclass(frozen=True)
class TwoLayerStack(Stacked):
    """``stack`` of a two-layer net, linearised by its structure."""

    linearise: Callable[[Tensor], Linearisation]

    def at(self, theta: Tensor | None = None) -> Linearisation:
        """Linearise at ``theta``, by default where the network stands."""
        return self.linearise(self.theta if theta is None else theta)


def two_layer_stack(theta: Tensor, X: Tensor, layers: TwoLayers) -> TwoLayerStack:
    """Return a two-layer net as a function of one vector, see :func:`two_layer_linearisation`."""

    def linearise(theta: Tensor) -> Linearisation:
        return two_layer_linearisation(theta, X, layers)

    def split(theta: Tensor) -> dict[str, Tensor]:
        return dict(zip(("first", "last"), split_layers(theta, layers), strict=True))

    return TwoLayerStack(lambda v: linearise(v).outputs, theta, split, linearise)
