"""A candidate's measured losses against the baseline's, at both endpoints."""

from __future__ import annotations

import numpy as np

from triplepoint.evidence import Endpoint
from triplepoint.screening.arms import Arms
from triplepoint.screening.verdicts import Comparison
from triplepoint.statistics import paired_relative_interval


def endpoints(arm: Arms, baseline: Arms) -> dict[Endpoint, Comparison]:
    """Compare two arms of the same seeds and windows.

    Args:
        arm: The candidate's runs.
        baseline: The baseline's.
    """
    ours, theirs = arm.losses("val_loss"), baseline.losses("val_loss")
    last = (np.full(len(ours), -1), np.full(len(theirs), -1))
    best = (ours.mean(axis=2).argmin(axis=1), theirs.mean(axis=2).argmin(axis=1))
    return {
        "fixed_step": _compared(arm, baseline, *last),
        "best_checkpoint": _compared(arm, baseline, *best),
    }


def _compared(arm: Arms, baseline: Arms, ours: np.ndarray, theirs: np.ndarray) -> Comparison:
    """Compare the chosen evaluation of each seed."""
    c, b = (
        np.stack([losses[i] for losses, i in zip(of.losses("val_loss"), chosen, strict=True)])
        for of, chosen in ((arm, ours), (baseline, theirs))
    )
    delta, low, high = paired_relative_interval(c, b)
    each = (c.mean(axis=1) - b.mean(axis=1)) / b.mean(axis=1)
    return Comparison(
        delta_rel=delta,
        interval=(low, high),
        baseline_loss=float(b.mean()),
        candidate_loss=float(c.mean()),
        baseline_step=float(np.array(baseline.steps)[theirs].mean()),
        candidate_step=float(np.array(arm.steps)[ours].mean()),
        by_seed=tuple(float(x) for x in each),
    )
