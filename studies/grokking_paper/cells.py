"""The runs of the study: the paper's simulation, training without weight decay, and two exact laws.

Symbols, as in arXiv 2511.01938: ``p`` residues, ``h`` hidden units, ``W1`` [p, h] the embedding,
``lam`` weight decay against the SUM of squares, ``t`` slow time, ``eta`` step.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from torch import Tensor

from studies._cells import Compute
from studies.grokking_paper.rows import first_at, point_records
from studies.grokking_paper.training import train_adamw
from triplepoint.grokking import (
    describe_embedding,
    euler,
    initial_first_layer,
    pair_task,
    predict,
    simulate,
    simulate_joint,
)
from triplepoint.grokking.trajectories import Field, Visit
from triplepoint.grokking.two_layer import Labelled
from triplepoint.records import Record

SEEDS = (0, 1, 2, 3, 4)
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
PINNED = {100: 1.5, 200: 5.0, 400: 20.0}
"""Squared norm at which the first layer is held -> slow time to simulate."""
FOURIER = ("norm_cv", "cosine_mean", "cosine_max", "abs_same", "abs_different",
           "unit_concentration", "effective_frequencies")  # fmt: skip
EVERY = 25
"""Steps between two looks at the paper's simulation."""
CONTROL_TIMES = 3
"""How many grokking times a run without decay is watched for."""


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a run is."""

    p: int = 37
    h: int = 512
    duration: float = 5.0
    """Slow time of a simulation: 5 is 5000 steps of 1e-3."""


PAPER, SMALL = Size(), Size(p=23, h=256)


def paper_run(size: Size, seed: int, *, narrow: bool = False) -> list[Record]:
    """The paper's scheme as it stands: Euler of step 1e-3 without a cap, from N(0, p^-1/2).

    ``narrow`` reads p^-1/2 as the standard deviation, not the variance.
    """
    task = pair_task("add", p=size.p, seed=seed)
    std = size.p**-0.5 if narrow else None
    W1 = initial_first_layer(size.p, size.h, std=std, seed=seed)
    residuals: list[float] = []
    run = simulate(
        W1,
        *task.train_set,
        test=task.test_set,
        duration=size.duration,
        integrator=functools.partial(measured_euler, samples=task.train_set, sse=residuals),
        every=EVERY,
    )
    steps = run.points[-1].step
    points = [
        dataclasses.replace(point, sse=sse)
        for point, sse in zip(run.points, residuals, strict=True)
    ]
    return [
        *point_records(points, "paper", seed),
        *fourier_records(W1, 0, seed),
        *fourier_records(run.W1, steps, seed),
    ]


def measured_euler(
    field: Field, W1: Tensor, duration: float, *, samples: Labelled, sse: list[float]
) -> Iterator[Visit]:
    """The paper's Euler, with the training error of the net measured every 25 steps.

    ``simulate`` reports ``||lam B||^2``, which is 0 by identity without decay and would show nothing.
    """
    X, Y = samples
    for step, visit in enumerate(euler(field, W1, duration, cap=None)):
        if step % EVERY == 0:
            sse.append(float((predict(visit[1], visit[2].W2, X) - Y).square().sum()))
        yield visit


def fourier_records(E: Tensor, step: int, seed: int) -> list[Record]:
    """What the embedding looks like in Fourier space."""
    found = describe_embedding(E)
    return [
        Record(metric=name, value=getattr(found, name), step=step, arm="paper", seed=seed)
        for name in FOURIER
    ]


def adamw_control(size: Size, seed: int, *, limit: int = 20_000) -> list[Record]:
    """AdamW with decay 1 until it groks, then without for three times as long."""
    task = pair_task("add", p=size.p, seed=seed)
    grokked = train_adamw(task, size.h, weight_decay=1.0, seed=seed, limit=limit, stop_at=0.99)
    steps = CONTROL_TIMES * grokked[-1].step
    free = train_adamw(task, size.h, weight_decay=0.0, seed=seed, limit=steps)
    return [
        *point_records(grokked, "adamw decay 1", seed),
        *point_records(free, "adamw decay 0", seed),
    ]


def joint_control(size: Size, seed: int, *, lam: float = 0.1, steps: int = 80_000) -> list[Record]:
    """Gradient descent on both layers from random ones, with the norm term and without.

    Not from the optimal second layer: without decay that start is at rest already.
    """
    task = pair_task("add", p=size.p, seed=seed)
    X, Y = task.train_set
    W1 = initial_first_layer(size.p, size.h, std=0.3, seed=seed)
    W2 = initial_first_layer(size.h, Y.shape[1], std=size.h**-0.5, seed=seed + 1000)
    run = functools.partial(
        simulate_joint, W1, X, Y, W2=W2, eta=4e-4, test=task.test_set, every=500
    )
    with_decay = run(lam=lam, steps=steps)
    grokked = first_at(with_decay.points, 0.99)
    # censored: watched for three times the whole run then
    free = run(lam=0.0, steps=CONTROL_TIMES * (grokked.step if grokked else steps))
    return [
        *point_records(with_decay.points, f"joint lam {lam:g}", seed),
        *point_records(free.points, "joint lam 0", seed),
    ]


def scale_law(size: Size, seed: int, scale: float) -> list[Record]:
    """The isolated flow from a scaled start: the slow time of grokking moves by ln(scale)."""
    task = pair_task("add", p=size.p, seed=seed)
    W1 = scale * initial_first_layer(size.p, size.h, seed=seed)
    run = simulate(W1, *task.train_set, test=task.test_set, duration=size.duration, every=10)
    return point_records(run.points, f"scale {scale:g}", seed)


def pinned(
    field: Field, W1: Tensor, duration: float, *, W1_sq: float, eta: float = 1e-3
) -> Iterator[Visit]:
    """Explicit Euler with the first layer put back to one norm after each step."""
    W1 = W1 * (W1_sq**0.5 / W1.norm())
    for step in range(round(duration / eta) + 1):
        here = field(W1)
        yield step * eta, W1, here
        W1 = W1 - eta * here.half_grad
        W1 = W1 * (W1_sq**0.5 / W1.norm())


def pin_law(size: Size, seed: int, W1_sq: int) -> list[Record]:
    """The isolated flow at a fixed norm: the time of grokking goes with its fourth power."""
    task = pair_task("add", p=size.p, seed=seed)
    run = simulate(
        initial_first_layer(size.p, size.h, seed=seed),
        *task.train_set,
        test=task.test_set,
        duration=PINNED[W1_sq],
        integrator=functools.partial(pinned, W1_sq=W1_sq),
        every=10,
    )
    return point_records(run.points, f"pinned {W1_sq}", seed)


def cells() -> dict[str, Compute]:
    """Return the cells in the order in which they are worth having."""
    call = functools.partial
    found: dict[str, Compute] = {f"paper_seed{s}": call(paper_run, PAPER, s) for s in SEEDS}
    found |= {f"adamw_p37_seed{s}": call(adamw_control, PAPER, s) for s in SEEDS}
    found |= {f"adamw_p23_seed{s}": call(adamw_control, SMALL, s) for s in (0, 1, 2)}
    found |= {
        f"scale{c:g}_seed{s}": call(scale_law, SMALL, s, c) for s in (0, 1, 2) for c in SCALES
    }
    found |= {f"pinned{n}_seed0": call(pin_law, SMALL, 0, n) for n in PINNED}
    found |= {"joint_seed0": call(joint_control, SMALL, 0)}
    return found | {"narrow_seed0": call(paper_run, PAPER, 0, narrow=True)}


def quick_cells() -> dict[str, Compute]:
    """Return small cells that show the machinery at work; none of them groks."""
    tiny = Size(p=11, h=64, duration=0.2)
    call = functools.partial
    return {
        "paper_seed0": call(paper_run, tiny, 0),
        "adamw_p37_seed0": call(adamw_control, tiny, 0, limit=100),
        "joint_seed0": call(joint_control, tiny, 0, steps=500),
        "scale1_seed0": call(scale_law, tiny, 0, 1.0),
    }
