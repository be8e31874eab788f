"""When to answer: thresholds from predictions of cells that a rule was not fitted on.

Which guarantee is which. Per plan *asked*: of all plans that come, at most a share ``error`` gets a wrong answer; the
others get a right one or none. :func:`loosest_threshold` gives that at one look, :func:`sequential_threshold` over all
looks together. Per *answer given*: of the answers, at most a share is wrong. That is stronger, and neither threshold
gives it; :func:`wrong_answer_bound` says how large the share may still be. All hold on average over plans that are
exchangeable with the benchmark's, and for none outside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from triplepoint.errors import StatisticsError
from triplepoint.evidence.cells import Endpoint, known_endpoint
from triplepoint.evidence.folds import Held


def loosest_threshold(
    p: Float[np.ndarray, " cell"], won: Bool[np.ndarray, " cell"], *, error: float
) -> float:
    r"""Return the least confidence of an answer that keeps wrong answers per plan asked under ``error``.

    Conformal risk control of the loss 1{answered and wrong}: the loosest threshold :math:`\theta` with

    .. math:: \frac{n}{n+1} \hat R(\theta) + \frac{1}{n+1} \le \epsilon

    that is, wrong answers + 1 <= error (n + 1), of answers with max(p, 1 - p) >= threshold. It takes *cells* as exchangeable;
    cells of one group are less than that, so a new group may do worse. With n = 40, 3 wrong answers are let through
    at 10 %, 1 at 5 %.

    Args:
        p: P(candidate wins) of each cell, by a rule that was fitted without it.
        won: Whether it did.
        error: In (0, 1).

    Returns:
        In [0.5, 1]; 1, that is never, where no threshold will do: with too few cells, since ``error`` below 1 / (n + 1)
        needs more, or too many sure ones that are wrong.

    Raises:
        StatisticsError: If ``error`` is not inside (0, 1), a probability is not inside (0, 1), or there is not one outcome per
            probability.

    References:
        Angelopoulos, Bates, Fisch, Lei and Schuster (2022), `Conformal risk control
        <https://arxiv.org/abs/2208.02814>`_.

    Example:
        The wrong one has to go; the nine at 0.9 may stay:

        >>> p = np.array([0.9] * 9 + [0.6])
        >>> loosest_threshold(p, np.array([True] * 9 + [False]), error=0.1)
        0.9
    """
    _need_share("error", error)
    p, won = np.asarray(p, float), np.asarray(won, bool)
    if not np.all((p > 0) & (p < 1)):
        raise StatisticsError(
            f"Probabilities lie inside (0, 1), got {p.tolist()}.\nLeave cells without one out of both."
        )
    if np.shape(p) != np.shape(won):
        raise StatisticsError(
            f"loosest_threshold needs one outcome per probability, got {np.size(won)} for {np.size(p)}.\n"
            "Leave cells out of both that are not clear."
        )
    confidence, wrong = np.maximum(p, 1 - p), (p > 0.5) != won
    allowed = _count(error * (len(p) + 1)) - 1
    for threshold in sorted({0.5, *confidence.tolist()}):
        if np.sum(wrong & (confidence >= threshold)) <= allowed:
            return float(threshold)
    return 1.0


def sequential_threshold(
    held: Mapping[int, Sequence[Held]], endpoint: Endpoint, *, error: float
) -> float:
    r"""Return the confidence to exceed for an answer at the first look that does, all looks paid for.

    With :math:`M_g` the largest confidence on the wrong side over all looks and all clear cells of group g,

    .. math:: \theta = M_{(\lceil (G+1)(1-\epsilon) \rceil)}

    of G groups in ascending order. Answer at the first look with max(p, 1 - p) > threshold, strictly. If a new plan's
    group is exchangeable with the benchmark's, P(ever answering wrongly) <= error, extrapolation error included: per
    plan asked, not per answer given. The unit is the group, so the least error that G groups can give is 1 / (G + 1).

    Args:
        held: Look -> predictions of the same cells, by rules that were fitted without their groups.
        endpoint: That is asked for.
        error: In (0, 1).

    Returns:
        In [0.5, 1]; 1, that is never, where ``error`` is below 1 / (G + 1).

    Raises:
        StatisticsError: If ``error`` is not inside (0, 1).
        UnknownNameError: If there is no such endpoint.
    """
    known_endpoint(endpoint)
    _need_share("error", error)
    worst: dict[str, float] = {}
    for answers in held.values():
        for one in answers:
            truth = one.cell.truth[endpoint]
            if truth.clear:
                p = one.prediction.p[endpoint]
                wrong_side = 1 - p if truth.winner == "candidate" else p
                group = one.cell.setting.group
                worst[group] = max(worst.get(group, 0.0), wrong_side)
    # so many groups may be above; counted so, since (G + 1)(1 - error) is rounded up wrongly now and then
    above = _count(error * (len(worst) + 1)) - 1
    return max(0.5, sorted(worst.values(), reverse=True)[above]) if 0 <= above < len(worst) else 1.0


def wrong_answer_bound(wrong: int, answered: int, *, confidence: float = 0.95) -> float:
    r"""Exact one-sided upper bound of the share of answers that are wrong: per answer given.

    The largest :math:`q` with :math:`P(X \le k \mid n, q) \ge 1 - c` for a binomial count X (Clopper and Pearson). It
    takes answers as independent, and their threshold as fixed beforehand.

    Args:
        wrong: k, 0 to ``answered``.
        answered: n, at least 1.
        confidence: c, one-sided, in (0, 1).

    Returns:
        In (0, 1]; 1 where all were wrong.

    Raises:
        StatisticsError: If the counts are none, or ``confidence`` is not inside (0, 1).

    References:
        Clopper and Pearson (1934), The use of confidence or fiducial limits, Biometrika 26.

    Example:
        No error in n bounds it by 1 - 0.05^(1/n): for 5 % it takes 59 answers.

        >>> round(wrong_answer_bound(0, 59), 3), round(wrong_answer_bound(2, 40), 2)
        (0.05, 0.15)
    """
    _need_share("confidence", confidence)
    if not 0 <= wrong <= answered or answered < 1:
        raise StatisticsError(
            f"wrong_answer_bound needs 0 <= wrong <= answered and an answer, got {wrong} of {answered}.\n"
            "A rule that never answers has no error rate."
        )
    # in logarithms: the counts themselves overflow from about a thousand answers on
    ways = np.array([_log_ways(answered, k) for k in range(wrong + 1)])
    right = answered - np.arange(wrong + 1)
    low, high = wrong / answered, 1.0
    while high - low > 1e-12:
        q = (low + high) / 2
        at_most = float(np.exp(ways + np.arange(wrong + 1) * math.log(q) + right * math.log1p(-q)).sum()) if q < 1 else 0.0  # fmt: skip
        low, high = (q, high) if at_most >= 1 - confidence else (low, q)
    return high


def _log_ways(n: int, k: int) -> float:
    """Return ln C(n, k)."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _count(real: float) -> int:
    """Round down, but let a count that is whole up to rounding be that."""
    return math.floor(real + 1e-9)


def _need_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise StatisticsError(f"{name} lies inside (0, 1), got {value}.\nTry 0.1.")
