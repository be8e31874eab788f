"""The truth: an ordinary AdamW run on both layers, which knows nothing of the fast-forward.

Symbols: ``W1`` [d_in, h], ``W2`` [h, o]: the two layers of a bias-free ReLU net.
"""

from __future__ import annotations

import time

import torch
from torch import nn

from triplepoint.grokking import Task, accuracy, as_module, initial_first_layer
from triplepoint.phases import MEMORISED, crossing_step
from triplepoint.records import Record

LR, DECAY = 1e-3, 1.0
STEPS = 20_000
EVERY = 100
GOAL = 0.99


def start(d_in: int, h: int, o: int, *, seed: int) -> nn.Sequential:
    """Return the net before training: entries of standard deviation fan_in^-1/2, float32."""
    W1 = initial_first_layer(d_in, h, std=d_in**-0.5, seed=seed, dtype=torch.float32)
    W2 = initial_first_layer(h, o, std=h**-0.5, seed=seed + 1000, dtype=torch.float32)
    return as_module(W1, W2)


def adamw_truth(task: Task, h: int, *, seed: int, steps: int = STEPS) -> list[Record]:
    """Train full batch on the mean squared error until it groks, or for ``steps``.

    Returns:
        Losses and accuracies every 100 steps; ``T_mem`` and ``T_grok`` (site 0.99) where they were
        reached, in steps; CPU time.
    """
    (X, Y), (X_test, Y_test) = ((x.float(), y.float()) for x, y in (task.train_set, task.test_set))
    model = start(X.shape[1], h, Y.shape[1], seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    rows: list[Record] = []
    seen: list[tuple[float, float]] = []
    began = time.process_time()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        prediction = model(X)
        loss = nn.functional.mse_loss(prediction, Y)
        loss.backward()
        optimizer.step()
        if step % EVERY:
            continue
        with torch.no_grad():
            prediction, held_out = model(X), model(X_test)
            seen.append((accuracy(prediction, Y), accuracy(held_out, Y_test)))
            rows += [
                Record(metric="train_loss", value=float(nn.functional.mse_loss(prediction, Y)), unit="mse", n=len(Y), step=step),
                Record(metric="val_loss", value=float(nn.functional.mse_loss(held_out, Y_test)), unit="mse", n=len(Y_test), step=step),
                Record(metric="train_accuracy", value=seen[-1][0], unit="share", n=len(Y), step=step),
                Record(metric="val_accuracy", value=seen[-1][1], unit="share", n=len(Y_test), step=step),
            ]  # fmt: skip
        if _crossing(seen, 1, GOAL) is not None:
            break
    for metric, site, when in (
        ("T_mem", None, _crossing(seen, 0, MEMORISED)),
        ("T_grok", str(GOAL), _crossing(seen, 1, GOAL)),
    ):
        if when is not None:
            rows.append(Record(metric=metric, value=when, unit="steps", site=site))
    return [*rows, Record(metric="cpu_time", value=time.process_time() - began, unit="s")]


def _crossing(seen: list[tuple[float, float]], which: int, goal: float) -> int | None:
    """Step of the first of three evaluations in a row at the goal, of train (0) or held out (1)."""
    steps = range(EVERY, EVERY * len(seen) + 1, EVERY)
    return crossing_step(steps, [pair[which] for pair in seen], goal).step
