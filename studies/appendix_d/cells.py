"""One network of the paper's appendix D: what its updates are made of, along training.

Symbols, as in arXiv 2511.01938: ``J`` the Jacobian of the stacked outputs, ``P_T = I - J^+ J`` the
projection on the tangent space of the zero-loss manifold, ``theta`` both layers in one vector.
"""

from __future__ import annotations

import functools
from collections import deque

import torch
from torch import Tensor

from studies._cells import Compute
from studies.appendix_d.training import LR, WD, Layers, default_start, flat, settled, train
from triplepoint.grokking import Task, accuracy, pair_task, predict, project_with_kinks, watch_kinks
from triplepoint.grokking.kinks import project_with_mean_gates
from triplepoint.grokking.structured import TwoLayerProjection, project_two_layer, two_layer_rows
from triplepoint.records import Record

P, H, STEPS = 11, 128, 20_000
FRACTION = 0.9
"""59 of the 66 pairs: 7 are left to test on, as in the paper."""
SEEDS = (0, 1, 2, 3, 4)
EVERY = 100
UPDATE = 10
"""Steps that the paper's update covers."""
WINDOW = 200
"""Steps over which gates are watched: those of a slow run flip rarely."""
KINKS_AT = (300, 1000, 3000, 6000, 10_000, 16_000)
"""Last steps of the windows; 3000 to 16,000 are slow times 0.3 to 1.6."""


def cosine(a: Tensor, b: Tensor) -> float:
    """Return the cosine between two vectors."""
    return float(a @ b / (a.norm() * b.norm()))


def network(seed: int, *, p: int = P, h: int = H, steps: int = STEPS) -> list[Record]:
    """Train one network and compare its updates with the drift, with and without kinks."""
    task = pair_task("add", p=p, fraction=FRACTION, seed=seed)
    X, Y = task.train_set
    records: list[Record] = []
    recent: deque[Layers] = deque(maxlen=WINDOW + 1)
    for step, W in zip(range(steps + 1), train(X, Y, default_start(p, h, p, seed)), strict=False):
        recent.append(W)
        found: dict[str, float] = {}
        if step % EVERY == 0:
            found |= state(task, W)
        if step % EVERY == 0 and step >= UPDATE:
            found |= plain_similarity(X, Y, recent[-1 - UPDATE], W)
        if step in KINKS_AT:
            found |= kink_similarity(X, list(recent))
        records += [Record(metric=k, value=v, step=step, seed=seed) for k, v in found.items()]
    return records


def state(task: Task, W: Layers) -> dict[str, float]:
    """How the network does on both sets."""
    (X, Y), (X_test, Y_test) = task.train_set, task.test_set
    fitted, tested = predict(*W, X), predict(*W, X_test)
    return {
        "train_loss": float((fitted - Y).square().mean()),
        "train_accuracy": accuracy(fitted, Y),
        "test_loss": float((tested - Y_test).square().mean()),
        "test_accuracy": accuracy(tested, Y_test),
    }


def plain_similarity(X: Tensor, Y: Tensor, before: Layers, W: Layers) -> dict[str, float]:
    """The paper's measurement: the update against P_T(-theta) where the network settles.

    ``null_cosine`` is what the plain ``-theta`` explains, ``tangent_share`` the length of the update's
    tangent part over its own.
    """
    foot = settled(X, Y, W)
    rows = two_layer_rows(X, *foot)
    update = W[0] - before[0], W[1] - before[1]
    drift = project_two_layer(rows, -foot[0], -foot[1])
    along = project_two_layer(rows, *update)
    u = flat(update)
    return {
        "cosine": cosine(u, drift.flat()),
        "null_cosine": cosine(u, -flat(W)),
        "tangent_share": float(along.flat().norm() / u.norm()),
        "settling_distance": float((flat(foot) - flat(W)).norm()),
    }


def kink_similarity(X: Tensor, path: list[Layers]) -> dict[str, float]:
    """The update over a window against three projections at its mean point.

    ``window``: plain; ``kinks``: with the stuck pre-activations as constraints; ``mean_gates``: with
    each gate at its mean over the window and no further constraint.
    """
    W1, W2 = (torch.stack(part[:-1]).mean(0) for part in zip(*path, strict=True))
    update = flat(path[-1]) - flat(path[0])
    kinks = watch_kinks(X @ layers[0] for layers in path[:-1])
    stuck = project_with_kinks(X, W1, W2, kinks)
    drifts: dict[str, TwoLayerProjection] = {
        "window": project_two_layer(two_layer_rows(X, W1, W2), -W1, -W2),
        "kinks": stuck,
        "mean_gates": project_with_mean_gates(X, W1, W2, kinks),
    }
    slow_time = (len(path) - 1) * LR * WD
    found = {"stuck_share": kinks.stuck_share, "rank": float(stuck.solution.rank)}
    for name, drift in drifts.items():
        v = drift.flat()
        found[f"{name}_cosine"] = cosine(update, v)
        found[f"{name}_speed_ratio"] = float(update.norm() / (slow_time * v.norm()))
    return found


def cells() -> dict[str, Compute]:
    """Return one cell for each network."""
    return {f"seed{seed}": functools.partial(network, seed) for seed in SEEDS}


def quick_cells() -> dict[str, Compute]:
    """Return one small network, trained up to the first window."""
    return {"seed0": functools.partial(network, 0, p=7, h=48, steps=1000)}
