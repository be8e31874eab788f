"""Both layers under AdamW, full batch, mean squared error, float32: the field's usual training."""

from __future__ import annotations

import torch
from torch import nn

from triplepoint.grokking import Point, Task, accuracy, as_module, initial_first_layer

RATE = 1e-3
EVERY = 25
"""Steps between two looks."""


def train_adamw(
    task: Task,
    h: int,
    *,
    weight_decay: float,
    seed: int,
    limit: int,
    stop_at: float | None = None,
) -> list[Point]:
    """Train a bias-free ReLU net of two layers and look at it every 25 steps.

    Args:
        task: Samples and split.
        h: Hidden units.
        weight_decay: Decoupled decay.
        seed: Of the initial weights, N(0, 1/fan_in) in both layers.
        limit: Steps at most.
        stop_at: Test accuracy at which to stop; None goes on to ``limit``.

    Returns:
        What was seen, with the nominal slow time ``steps * rate * weight_decay``.
    """
    X, Y = (part.float() for part in task.train_set)
    W1 = initial_first_layer(X.shape[1], h, std=X.shape[1] ** -0.5, seed=seed)
    W2 = initial_first_layer(h, Y.shape[1], std=h**-0.5, seed=seed + 1000)
    net = as_module(W1.float(), W2.float())
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=weight_decay)
    points: list[Point] = []
    for step in range(limit + 1):
        if step % EVERY == 0 or step == limit:
            points.append(_look(net, task, step, step * RATE * weight_decay))
            if stop_at is not None and points[-1].test_accuracy >= stop_at:
                break
        if step < limit:
            optimizer.zero_grad()
            nn.functional.mse_loss(net(X), Y).backward()
            optimizer.step()
    return points


@torch.no_grad()
def _look(net: nn.Sequential, task: Task, step: int, t: float) -> Point:
    (X, Y), (X_test, Y_test) = task.train_set, task.test_set
    fitted = net(X.float())
    return Point(
        step=step,
        t=t,
        sse=float((fitted - Y).square().sum()),
        W1_sq=float(net[0].weight.square().sum()),
        W2_sq=float(net[2].weight.square().sum()),
        train_accuracy=accuracy(fitted, Y),
        test_accuracy=accuracy(net(X_test.float()), Y_test),
    )
