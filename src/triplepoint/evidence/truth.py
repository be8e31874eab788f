"""How a pair of arms ended, from the losses per window."""

from __future__ import annotations

import math
import statistics

import numpy as np
from jaxtyping import Float

from triplepoint.errors import StatisticsError
from triplepoint.evidence.cells import ENDPOINTS, Endpoint, Truth
from triplepoint.statistics import paired_relative_interval

TIE = 0.005
"""Least tie margin, as a fraction of the baseline's loss."""

Losses = Float[np.ndarray, "evaluation window"]


def truth_of(candidate: list[Losses], baseline: list[Losses]) -> dict[Endpoint, Truth]:
    """Return how a cell ended, at both endpoints.

    Args:
        candidate: Validation losses of each seed's run, nats per token, to the planned end.
        baseline: The same, of the same seeds on the same windows.

    Raises:
        StatisticsError: If there is no run, or one arm has more runs than the other.

    Example:
        >>> base = np.array([[3.0, 3.2], [2.0, 2.2], [2.4, 2.6]])  # over-fits
        >>> truth = truth_of([0.9 * base[[0, 1, 1]]], [base])
        >>> {k: (round(t.delta_rel, 3), t.winner) for k, t in truth.items()}
        {'fixed_step': (-0.244, 'candidate'), 'best_checkpoint': (-0.1, 'candidate')}
    """
    if len(candidate) != len(baseline) or not candidate:
        raise StatisticsError(
            f"A cell needs a pair of runs per seed, got {len(candidate)} and {len(baseline)}.\nGive runs of the same seeds."
        )
    return {endpoint: _at(endpoint, candidate, baseline) for endpoint in ENDPOINTS}


def _at(endpoint: Endpoint, candidate: list[Losses], baseline: list[Losses]) -> Truth:
    ours, theirs = (np.stack([_row(run, endpoint) for run in arm]) for arm in (candidate, baseline))
    delta, low, high = paired_relative_interval(ours, theirs)
    each = [paired_relative_interval(c[None], b[None]) for c, b in zip(ours, theirs, strict=True)]
    values = tuple(value for value, _, _ in each)
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Truth(
        delta_rel=delta, interval=(low, high), by_seed=values, intervals=tuple((lo, hi) for _, lo, hi in each),
        margin=max(TIE, 2 * spread),
    )  # fmt: skip


def _row(run: Losses, endpoint: Endpoint) -> Float[np.ndarray, " window"]:
    return run[-1 if endpoint == "fixed_step" else int(run.mean(axis=1).argmin())]
