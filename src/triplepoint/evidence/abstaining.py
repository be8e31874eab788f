"""Thresholds of an answer, from predictions of cells that a rule was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from triplepoint.evidence.cells import Endpoint
from triplepoint.evidence.folds import Held


def loosest_threshold(
    p: Float[np.ndarray, " cell"], won: Bool[np.ndarray, " cell"], *, error: float
) -> float:
    """Return the least confidence of an answer that keeps wrong answers per plan asked under ``error``.

    Conformal risk control (Angelopoulos et al. 2022, arXiv 2208.02814) of the loss 1{answered and wrong}: the loosest
    threshold with (wrong + 1) / (n + 1) <= error. It bounds wrong answers per plan asked, not per answer given, for plans
    exchangeable with the cells.

    Args:
        p: P(candidate wins) of each cell.
        won: Whether it did.
        error: In (0, 1).

    Returns:
        In [0.5, 1]; 1, that is never, where there are too few cells.

    Example:
        >>> p = np.array([0.9] * 9 + [0.6])
        >>> loosest_threshold(p, np.array([True] * 9 + [False]), error=0.1)
        0.9
    """
    confidence, wrong = np.maximum(p, 1 - p), (p > 0.5) != won
    for threshold in sorted({0.5, *confidence.tolist()}):
        if (np.sum(wrong & (confidence >= threshold)) + 1) / (len(p) + 1) <= error:
            return float(threshold)
    return 1.0


def sequential_threshold(
    held: Mapping[int, Sequence[Held]], endpoint: Endpoint, *, error: float
) -> float:
    """Return the confidence at which answering at the first look that has it is wrong for few plans, all looks paid for.

    M is the largest confidence on the wrong side over all looks and all cells of a group; the threshold is the
    ceil((G + 1)(1 - error))-th smallest M of G groups. If a new plan's group is exchangeable with the benchmark's,
    P(ever answering wrongly) <= error. The least error that G groups can give is 1 / (G + 1); below it, 1.

    Args:
        held: Look -> predictions of the same cells.
        endpoint: That is asked for.
        error: In (0, 1).
    """
    worst: dict[str, float] = {}
    for answers in held.values():
        for one in answers:
            truth = one.cell.truth[endpoint]
            if truth.clear:
                p = one.prediction.p[endpoint]
                wrong_side = 1 - p if truth.winner == "candidate" else p
                group = one.cell.setting.group
                worst[group] = max(worst.get(group, 0.0), wrong_side)
    rank = math.ceil((len(worst) + 1) * (1 - error))
    return sorted(worst.values())[rank - 1] if 0 < rank <= len(worst) else 1.0
