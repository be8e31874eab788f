"""Regular and singular targets: the smallest singular value of the Jacobian along training.

Symbols, as in arXiv 2511.01938: ``J`` the Jacobian of the stacked outputs, ``sigma_min`` the smallest
of its singular values; ``lam`` weight decay against the SUM of squares, ``t`` slow time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triplepoint.grokking import initial_first_layer, jacobian_rank, pair_task, simulate_joint
from triplepoint.grokking.linearisation import stack
from triplepoint.grokking.structured import two_layer_rows
from triplepoint.grokking.two_layer import as_module
from triplepoint.records import Record

P, H = 5, 24
"""10 training pairs, 50 outputs in all, 240 parameters."""
ACTIVATION = "tanh"
LAM = 1e-2
DURATION = 2.0
"""Slow time: of what only decay holds back, exp(-2) is left."""
LOOKS = 25
ETA = 1.5e-2
"""Step in flow time; descent would be unstable from 1/sigma_max^2 on, 0.021 to 0.029 at the first four starts."""


def along_training(
    Y: Tensor, seed: int, *, duration: float = DURATION
) -> list[tuple[float, float, float]]:
    """Train from random layers and return (t, sigma_min, sum of squared errors) at each look."""
    X = pair_task("add", p=P).train_set[0]
    W1 = initial_first_layer(P, H, std=0.5, seed=seed)
    W2 = initial_first_layer(H, P, std=H**-0.5, seed=seed + 1000)
    steps = round(duration / (2 * LAM * ETA) / LOOKS)
    seen = [(0.0, _sigma_min(X, W1, W2), float("nan"))]
    for number in range(1, LOOKS + 1):
        run = simulate_joint(
            W1, X, Y, W2=W2, lam=LAM, steps=steps, activation=ACTIVATION, eta=ETA, every=steps
        )  # fmt: skip
        W1, W2 = run.W1, run.W2
        t = 2 * LAM * ETA * steps * number
        seen.append((t, _sigma_min(X, W1, W2), run.points[-1].sse))
    return seen


def _sigma_min(X: Tensor, W1: Tensor, W2: Tensor) -> float:
    rows = two_layer_rows(X, W1, W2, activation=ACTIVATION)
    # the square root doubles the rounding: 1e-8 of the largest is the floor
    return float(torch.linalg.eigvalsh(rows.gram())[0].clamp_min(0)) ** 0.5


def random_target(seed: int, *, duration: float = DURATION) -> list[Record]:
    """One Gaussian target of the size of one-hot rows: the smallest sigma_min from start to end."""
    n = len(pair_task("add", p=P).train_set[0])
    generator = torch.Generator().manual_seed(seed)
    Y = torch.randn(n, P, generator=generator, dtype=torch.float64) * P**-0.5
    seen = along_training(Y, seed, duration=duration)
    found = {
        "lowest_sigma_min": min(sigma for _, sigma, _ in seen),
        "first_sigma_min": seen[0][1],
        "last_sigma_min": seen[-1][1],
        "sse": seen[-1][2],
    }
    return [Record(metric=k, value=v, arm="random target", seed=seed) for k, v in found.items()]


def random_targets(seeds: range, *, duration: float = DURATION) -> list[Record]:
    """The same for many targets."""
    return [r for seed in seeds for r in random_target(seed, duration=duration)]


def zero_target(*, duration: float = 2.5 * DURATION) -> list[Record]:
    """Zero labels: the point of least norm is theta = 0, where J vanishes."""
    X = pair_task("add", p=P).train_set[0]
    seen = along_training(torch.zeros(len(X), P, dtype=torch.float64), 0, duration=duration)
    records = [
        Record(metric=name, value=value, step=look, arm="zero target", seed=0)
        for look, (t, sigma, _) in enumerate(seen)
        for name, value in (("t", t), ("sigma_min", sigma))
    ]
    origin = [torch.zeros(P, H, dtype=torch.float64), torch.zeros(H, P, dtype=torch.float64)]
    J = stack(as_module(*origin, activation=ACTIVATION), X).at().jacobian()
    rank = float(jacobian_rank(J).rank)
    return [*records, Record(metric="rank_at_origin", value=rank, arm="zero target", n=len(J))]
