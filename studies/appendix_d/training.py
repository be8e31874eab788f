"""Gradient descent on the mean square, as ``torch.optim.SGD`` does it, in float64 and by hand.

Symbols, as in arXiv 2511.01938 (samples are rows): ``X`` [n, d_in], ``Y`` [n, o], ``W1``, ``W2``;
``lr`` and ``wd`` are those of the optimiser, so that a step covers the slow time ``lr * wd``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

Layers = tuple[Tensor, Tensor]

LR = 1.0
WD = 1e-4
SETTLE = 100
"""Steps without decay, momentum 0.9, that the paper takes to come near the manifold."""


def default_start(d_in: int, h: int, o: int, seed: int) -> Layers:
    """Return the layers that ``nn.Linear`` would begin with; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first, last = nn.Linear(d_in, h, bias=False), nn.Linear(h, o, bias=False)
    return first.weight.detach().double().T.clone(), last.weight.detach().double().T.clone()


def gradients(X: Tensor, Y: Tensor, W: Layers, wd: float) -> Layers:
    """Return the gradients of the mean square with the decay added, as SGD adds it."""
    Z = X @ W[0]
    H = Z.clamp_min(0)
    E = (H @ W[1] - Y) * (2 / Y.numel())
    return X.T @ ((E @ W[1].T) * (Z > 0)) + wd * W[0], H.T @ E + wd * W[1]


def train(X: Tensor, Y: Tensor, W: Layers, *, wd: float = WD) -> Iterator[Layers]:
    """Yield the layers before each step, for ever."""
    while True:
        yield W
        g1, g2 = gradients(X, Y, W, wd)
        W = W[0] - LR * g1, W[1] - LR * g2


def settled(X: Tensor, Y: Tensor, W: Layers) -> Layers:
    """Return where 100 steps with momentum and without decay lead: near the manifold."""
    m1, m2 = torch.zeros_like(W[0]), torch.zeros_like(W[1])
    for _ in range(SETTLE):
        g1, g2 = gradients(X, Y, W, 0.0)
        m1, m2 = 0.9 * m1 + g1, 0.9 * m2 + g2
        W = W[0] - LR * m1, W[1] - LR * m2
    return W


def flat(W: Layers) -> Tensor:
    """Return both layers in one vector, each row-major."""
    return torch.cat([W[0].reshape(-1), W[1].reshape(-1)])
