"""Cells made by hand: two arms on straight lines, and an outcome that is told."""

import dataclasses

import numpy as np

from triplepoint.evidence import (
    ENDPOINTS,
    BenchmarkCell,
    Held,
    Prediction,
    Setting,
    Trajectory,
    Truth,
)

SETTING = Setting(
    architecture="gpt2", size="gpt2-0.1m", corpus="stdlib", unique_tokens=1000, params={"params_no_positions": 500},
    steps=1000, tokens_per_step=2, lr=1e-3, candidate_lr=1e-3, rate="plan", warmup=100, schedule="constant", plateau=3.0,
)  # fmt: skip
WINNERS = {"candidate": -0.1, "baseline": 0.1, "tie": 0.001}


def ended(winner):
    """The truth of a cell that ``winner`` won by ten per cent."""
    delta = WINNERS[winner]
    inside = (delta - 0.002, delta + 0.002)
    return Truth(delta_rel=delta, interval=inside, by_seed=(delta,), intervals=(inside,), margin=0.005)  # fmt: skip


def run(*, val=2.0, gap=0.0, series=(), slope=0.0):
    """A run that validates at ``val`` at step 500, and trains ``gap`` lower; ``series`` at step 500."""
    steps = np.arange(50, 1001, 50)
    curve = val - slope * (steps - 500) / 500
    return Trajectory(
        seed=0, steps=steps, s1=steps * 1e-3, train=curve - gap, val=curve, outcome="finished", diverged_at=None,
        series={k: (np.array([500, 1000]), np.array([v, -1.0])) for k, v in dict(series).items()},
    )  # fmt: skip


def cell(winner="baseline", *, candidate=None, baseline=None, op="dyt:paper", name="", **setting):
    """A cell with one seed; ``winner`` is of both endpoints, a dict of each, or None where an arm diverged."""
    won = winner if isinstance(winner, dict) else dict.fromkeys(ENDPOINTS, winner)
    return BenchmarkCell(
        name=name, candidate=op, op=op, setting=dataclasses.replace(SETTING, **setting),
        baseline_runs=(baseline or run(),), candidate_runs=(candidate or run(),),
        truth=None if winner is None else {e: ended(w) for e, w in won.items()},
    )  # fmt: skip


def told(winner, p, *, answered=True, says=None, **rest):
    """A held-out prediction, the same at both endpoints."""
    both = lambda value: dict.fromkeys(ENDPOINTS, value)  # noqa: E731
    prediction = Prediction(p=both(p), answered=both(answered), says=None if says is None else both(says))  # fmt: skip
    return Held(cell=cell(winner, **rest), prediction=prediction, fold="")
