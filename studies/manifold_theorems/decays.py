"""Penalised gradient descent from one point of the manifold, for several decays.

Symbols, as in arXiv 2511.01938 (sum of squares):

- ``theta``: both layers in one vector; ``V = ||theta||^2``; ``Z``: the zero-loss manifold
- ``lam``: weight decay; ``t = 2 lam (flow time)``: slow time; ``eta``: step in flow time
- ``foot``: the point of ``Z`` nearest to theta; ``P_T``: projection on the tangent space there
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import torch
from torch import Tensor

from triplepoint.grokking import (
    ACTIVATIONS,
    Point,
    as_module,
    compare_update,
    initial_first_layer,
    pair_task,
    retract,
    simulate_joint,
    tangent_projection,
    validity_number,
)
from triplepoint.grokking.drift import loss_gradient
from triplepoint.grokking.flows import integrate
from triplepoint.grokking.linearisation import Stacked, stack
from triplepoint.grokking.structured import two_layer_rows
from triplepoint.records import Record

Layers = tuple[Tensor, Tensor]

LAMBDAS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
TIMES = (0.03, 0.06, 0.1)
"""Slow times at which a run is looked at."""
WINDOW = 200
"""Steps before each of them over which the update is taken."""
FALLS_TO = 0.98
"""Share of V(0) whose passage is timed. At t = 0.1 V can at most have fallen to exp(-0.2) = 0.82."""
START_STEPS = 2000


@dataclasses.dataclass(frozen=True)
class Start:
    """A point of the manifold to start from, and what training there needs to know."""

    X: Tensor
    Y: Tensor
    activation: str
    W1: Tensor
    W2: Tensor
    eta: float
    sigma_min: float
    """Smallest singular value of the Jacobian at the start."""

    def net(self, W1: Tensor, W2: Tensor) -> Stacked:
        """Return the network with these layers on the training inputs."""
        return stack(as_module(W1, W2, activation=self.activation), self.X)

    def layers(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return W1 and W2 of a vector: torch keeps both transposed."""
        (d_in, h), o = self.W1.shape, self.W2.shape[1]
        first, last = theta.split([d_in * h, h * o])
        return first.view(h, d_in).T, last.view(o, h).T


def start_on_manifold(activation: str, seed: int, *, p: int, h: int) -> Start:
    """Train a while without decay, then step onto the manifold."""
    task = pair_task("add", p=p, seed=seed)
    X, Y = task.train_set
    W1 = initial_first_layer(p, h, std=0.5, seed=seed)
    W2 = initial_first_layer(h, p, std=h**-0.5, seed=seed + 1000)
    eta = 0.3 / _sigma_max_sq(X, W1, W2, activation)
    run = simulate_joint(
        W1, X, Y, W2=W2, lam=0.0, steps=START_STEPS, activation=activation, eta=eta, every=START_STEPS
    )  # fmt: skip
    net = stack(as_module(run.W1, run.W2, activation=activation), X)
    found = retract(net, Y, route="cholesky")
    draft = Start(X, Y, activation, run.W1, run.W2, eta=1.0, sigma_min=1.0)
    W1, W2 = draft.layers(found.theta)
    values = torch.linalg.eigvalsh(two_layer_rows(X, W1, W2, activation=activation).gram())
    # the loss curves by 2 sigma^2: a fourth of what would be unstable
    eta, sigma_min = 0.25 / float(values[-1]), float(values[0]) ** 0.5
    return dataclasses.replace(draft, W1=W1, W2=W2, eta=eta, sigma_min=sigma_min)


def _sigma_max_sq(X: Tensor, W1: Tensor, W2: Tensor, activation: str) -> float:
    rows = two_layer_rows(X, W1, W2, activation=activation)
    return float(torch.linalg.eigvalsh(rows.gram())[-1])


def decays(
    activation: str,
    seed: int,
    *,
    p: int = 11,
    h: int = 128,
    lambdas: tuple[float, ...] = LAMBDAS,
    times: tuple[float, ...] = TIMES,
) -> list[Record]:
    """Follow every decay from the same start, and the Riemannian flow beside them."""
    start = start_on_manifold(activation, seed, p=p, h=h)
    # with kinks the right-hand side jumps: there the solver would not end, and it is not the limit
    smooth = ACTIVATIONS[activation].degree != 1
    limit = riemannian(start, times) if smooth else None
    records = [Record(metric="sigma_min", value=start.sigma_min, arm=activation, seed=seed)]
    for lam in lambdas:
        records += _one_decay(start, lam, seed, times, limit)
    return records


def riemannian(start: Start, times: tuple[float, ...]) -> Tensor:
    """Return the flow of ||theta||^2 / 2 inside the manifold at these slow times."""
    act = start.activation

    def velocity(theta: Tensor) -> Tensor:
        net = as_module(*start.layers(theta), activation=act)
        return tangent_projection(net, start.X, route="cholesky").tangent

    return integrate(velocity, start.net(start.W1, start.W2).theta, times, rtol=1e-7, atol=1e-9)


def _one_decay(
    start: Start, lam: float, seed: int, times: tuple[float, ...], limit: Tensor | None
) -> list[Record]:
    """Follow one decay: what each look finds, and how long V takes to fall."""
    per_step = 2 * lam * start.eta
    make = functools.partial(Record, arm=f"{start.activation} lam {lam:g}", seed=seed)
    records = [make(metric="eps", value=validity_number(lam=lam, sigma_min=start.sigma_min))]
    W, done = (start.W1, start.W2), 0
    norms: list[tuple[float, float]] = []
    for number, t in enumerate(times):
        steps = round(t / per_step) - done
        window = min(WINDOW, steps // 2)
        before, points = _descend(start, W, lam, steps - window)
        norms += [((done + p.step) * per_step, p.W1_sq + p.W2_sq) for p in points]
        W, _ = _descend(start, before, lam, window)
        done += steps
        now = None if limit is None else limit[number]
        found = look(start, W, before, slow_time=window * per_step, limit=now)
        found["t"] = done * per_step
        records += [make(metric=k, value=v, step=done) for k, v in found.items()]
    fallen = time_to_fall(norms)
    if fallen is not None:
        records.append(make(metric="flow_time_to_fall", value=fallen / (2 * lam)))
    return records


def _descend(start: Start, W: Layers, lam: float, steps: int) -> tuple[Layers, tuple[Point, ...]]:
    """Descend on both layers at equal rates."""
    run = simulate_joint(
        W[0], start.X, start.Y, W2=W[1], lam=lam, steps=steps, activation=start.activation,
        eta=start.eta, every=max(1, steps // 100),
    )  # fmt: skip
    return (run.W1, run.W2), run.points


def look(
    start: Start, W: Layers, before: Layers, *, slow_time: float, limit: Tensor | None
) -> dict[str, float]:
    """Measure one moment: how far from the manifold, and what the last steps were made of.

    ``gradient_cosine`` is the largest ``|cos(v, grad L)|`` over tangent directions ``v`` at the foot,
    the quantity that the theorem bounds by a constant times the distance. ``distance_from_limit`` is
    from theta to the Riemannian flow at the same slow time, ``foot_from_limit`` from its foot.
    """
    net, last = start.net(*W), start.net(*before).theta
    foot = retract(net, start.Y, nearest=True, route="cholesky")
    there = as_module(*start.layers(foot.theta), activation=start.activation)
    project = functools.partial(tangent_projection, there, start.X, route="cholesky")
    gradient = project(loss_gradient(net.at(), start.Y))
    update, drift = net.theta - last, project()
    seen = compare_update(update, drift, slow_time=slow_time)
    found = {
        "distance": foot.distance,
        "foot_is_nearest": float(foot.converged),
        "gradient_cosine": gradient.share,
        "update_cosine": seen.cosine,
        "speed_ratio": seen.speed_ratio,
        # slow time is 2 lam times flow time, and so is the length of an update per unit of it
        "speed_in_slow_time": float(update.norm()) / slow_time,
    }
    if limit is not None:
        found["distance_from_limit"] = float((net.theta - limit).norm())
        found["foot_from_limit"] = float((foot.theta - limit).norm())
    return found


def time_to_fall(norms: list[tuple[float, float]]) -> float | None:
    """Return the slow time at which V has fallen to its share, between the points linearly."""
    goal = FALLS_TO * norms[0][1]
    for (t0, v0), (t1, v1) in itertools.pairwise(norms):
        if v1 <= goal < v0:
            return t0 + (t1 - t0) * (v0 - goal) / (v0 - v1)
    return None
