r"""The bias-free two-layer net that the closed forms of this package are about.

Symbols, as in arXiv 2511.01938 (samples are rows):

- ``n``, ``d_in``, ``h``, ``o``: samples, inputs, hidden units, outputs
- ``X`` [n, d_in], ``Y`` [n, o]: inputs and targets
- ``W1`` [d_in, h], ``W2`` [h, o]: first and second layer; the paper's ``E`` is ``W1``
- ``Z`` [n, h]: pre-activations ``X W1``; ``H`` [n, h]: hidden features ``act(Z)``
- ``q``: degree of the activation, ``act(s z) = s^q act(z)`` for every ``s > 0``
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triplepoint.errors import PlanError, unknown_name

Labelled = tuple[Tensor, Tensor]
"""Inputs and targets, one row per sample."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Activation:
    """One elementwise nonlinearity with its exact slope."""

    name: str
    value: Callable[[Tensor], Tensor]
    pull_back: Callable[[Tensor, Tensor], Tensor]
    """``(Z, M) -> M o act'(Z)``; at a kink with the slope that autograd uses."""
    degree: int | None
    """``q`` of ``act(s z) = s^q act(z)``; None where there is none."""
    module: Callable[[], nn.Module]
    """Builds the layer that computes ``value``."""


class Square(nn.Module):
    """The elementwise square, which ``torch.nn`` has no layer for."""

    def forward(self, z: Float[Tensor, "*batch h"]) -> Float[Tensor, "*batch h"]:
        """Return ``z * z``."""
        return z * z


def _gelu_pull_back(z: Tensor, m: Tensor) -> Tensor:
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return m * (torch.special.ndtr(z) + z * density)


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(
        name="relu",
        value=torch.relu,
        # one pass; a mask and a product take three and six times as long
        pull_back=lambda z, m: torch.ops.aten.threshold_backward(m, z, 0),
        degree=1,
        module=nn.ReLU,
    ),
    "square": Activation(
        name="square",
        value=lambda z: z * z,
        pull_back=lambda z, m: 2 * z * m,
        degree=2,
        module=Square,
    ),
    "tanh": Activation(
        name="tanh",
        value=torch.tanh,
        pull_back=lambda z, m: m * (1 - torch.tanh(z) ** 2),
        degree=None,
        module=nn.Tanh,
    ),
    "gelu": Activation(
        name="gelu",
        value=nn.functional.gelu,
        pull_back=_gelu_pull_back,
        degree=None,
        module=nn.GELU,
    ),
}
"""Name on the command line and in records -> activation. ``gelu`` is the exact one, with erf."""


def activation_named(name: str) -> Activation:
    """Return the entry of ``ACTIVATIONS``.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in ACTIVATIONS:
        raise unknown_name("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


def initial_first_layer(
    d_in: int,
    h: int,
    *,
    std: float | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "d_in h"]:
    """Draw a Gaussian first layer from its own generator.

    Args:
        d_in: Number of inputs.
        h: Number of hidden units.
        std: Standard deviation of an entry. None is ``d_in ** -0.25``: the paper writes
            N(0, p^-1/2) and does not say whether that is the variance or the deviation. This reads
            it as the variance; with the other reading the paper's first Euler step overshoots to
            the same norm, and both runs grok at the same time.
        seed: Seed of the generator; the global one is not touched.
        dtype: ``float64`` unless float32 is wanted on purpose.

    Returns:
        The matrix ``W1``.

    Raises:
        PlanError: If a size is not positive or ``std`` is not a positive number.

    Example:
        >>> initial_first_layer(16, 3).shape
        torch.Size([16, 3])
    """
    if d_in < 1 or h < 1:
        raise PlanError(
            f"A first layer needs at least one input and one hidden unit, got {d_in} and {h}.\n"
            "Try h=256, which is what p=23 uses."
        )
    std = d_in**-0.25 if std is None else std
    if not 0 < std < math.inf:
        raise PlanError(
            f"The standard deviation of the first layer must be a positive number, got {std}.\n"
            f"Try std={d_in**-0.25:.4g}, or leave it out."
        )
    generator = torch.Generator().manual_seed(seed)
    return std * torch.randn(d_in, h, generator=generator, dtype=dtype)


def predict(
    W1: Float[Tensor, "d_in h"],
    W2: Float[Tensor, "h o"],
    X: Float[Tensor, "n d_in"],
    *,
    activation: str = "relu",
) -> Float[Tensor, "n o"]:
    """Return ``act(X W1) W2``."""
    return activation_named(activation).value(X @ W1) @ W2


def accuracy(prediction: Float[Tensor, "n o"], Y: Float[Tensor, "n o"]) -> float:
    """Share of rows whose largest entry is where the target's largest entry is, in [0, 1].

    Not the share of rows that are fitted: a row may have the right argmax and a large error.
    """
    return float((prediction.argmax(dim=1) == Y.argmax(dim=1)).double().mean())


def accuracy_on(
    W1: Float[Tensor, "d_in h"],
    W2: Float[Tensor, "h o"],
    samples: Labelled | None,
    *,
    activation: str = "relu",
) -> float | None:
    """Accuracy of the net on these samples, in [0, 1]; None where there are none."""
    if samples is None:
        return None
    X, Y = samples
    return accuracy(predict(W1, W2, X.to(W1.dtype), activation=activation), Y)


def as_module(
    W1: Float[Tensor, "d_in h"], W2: Float[Tensor, "h o"], *, activation: str = "relu"
) -> nn.Sequential:
    """Return the net as an ordinary module: linear, activation, linear, no biases.

    It keeps the dtype of ``W1`` and owns copies of the weights. ``torch`` stores a linear layer
    transposed: ``module[0].weight`` is ``W1.T``.
    """
    (d_in, h), o = W1.shape, W2.shape[1]
    like = {"bias": False, "dtype": W1.dtype, "device": W1.device}
    first, last = nn.Linear(d_in, h, **like), nn.Linear(h, o, **like)
    with torch.no_grad():
        first.weight.copy_(W1.T)
        last.weight.copy_(W2.T)
    return nn.Sequential(first, activation_named(activation).module(), last)
