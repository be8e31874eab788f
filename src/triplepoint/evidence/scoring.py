"""What a rule was worth on cells that it was not fitted on, at one endpoint.

Clear cells are of two classes: the candidate won, or the baseline did. A pair of numbers has the candidate's wins first.
Answers to ties are neither right nor wrong, and only counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from triplepoint.errors import StatisticsError
from triplepoint.evidence.cells import Endpoint, known_endpoint
from triplepoint.evidence.folds import Held
from triplepoint.statistics import (
    BrierParts,
    CalibrationLine,
    balanced_accuracy,
    balanced_accuracy_lower,
    brier_parts,
    brier_score,
    brier_skill,
    calibration_slope,
    spiegelhalter_z,
    wilson,
)

LEAST = 10
"""Clear cells that a class needs: below it two errors move its accuracy by a fifth or more."""
RESAMPLES = 2000
"""Bootstrap draws of groups."""

Pairs = tuple[int, int]
Cells = Bool[np.ndarray, " cell"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """A rule at one endpoint. None: a class has too few clear cells, or too few were answered."""

    endpoint: Endpoint
    classes: Pairs
    """Clear cells that the candidate won, and that the baseline won."""
    ties: int
    ties_answered: int
    answered: Pairs
    """Of the clear cells of each class."""
    right: Pairs
    """Of the answered ones."""
    accuracy: float | None
    """Of the answers to clear cells."""
    accuracy_interval: tuple[float, float] | None
    """95 %, Wilson's: takes cells as independent."""
    majority_rate: float | None
    """Share of the larger class: what always saying it is worth."""
    balanced_accuracy: float | None
    """Of the answers to clear cells."""
    balanced_accuracy_lower: float | None
    """Lower end of the 95 % interval by MOVER-Wilson: takes cells as independent."""
    balanced_accuracy_interval: tuple[float, float] | None
    """95 %, groups resampled; None with one group. Draws without an answer in one of the classes are passed over."""
    permutation_p: float | None
    """How often outcomes dealt anew within each group do as well. 1 where no group has both outcomes: the rule then shows
    that it knows groups apart, and nothing within them."""
    brier: float | None
    """Of all clear cells, answered or not; so are all that follow."""
    brier_parts: BrierParts | None
    brier_skill: float | None
    """Against the base rate of these cells."""
    calibration: CalibrationLine | None
    spiegelhalter_z: float | None
    risk_coverage: tuple[tuple[float, float], ...]
    """(coverage, error rate) of answering the surest cells, by abs(p - 1/2), whatever the rule itself abstains from."""
    risk_area: float | None
    """Mean error rate over all coverages; low is good."""

    @property
    def errors(self) -> Pairs:
        """Wrong answers, by class."""
        return (self.answered[0] - self.right[0], self.answered[1] - self.right[1])

    @property
    def coverage(self) -> float | None:
        """Share of the clear cells that is answered."""
        return sum(self.answered) / sum(self.classes) if any(self.classes) else None

    @property
    def class_coverage(self) -> tuple[float | None, float | None]:
        """The same by class; None where a class has no cell."""
        (a, b), (m, n) = self.answered, self.classes
        return (a / m if m else None, b / n if n else None)


def score(
    held: Sequence[Held],
    endpoint: Endpoint,
    *,
    least: int = LEAST,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Score:
    """Score held-out predictions at one endpoint.

    Args:
        held: Predictions of cells, from :func:`triplepoint.evidence.held_out`.
        endpoint: Whose truth counts.
        least: Clear cells that each class needs; below it all that compares classes is None ("one class only"), and
            the majority rate is what there is to beat.
        resamples: Bootstrap draws of groups.
        seed: Of those draws.

    Raises:
        StatisticsError: If ``least`` or ``resamples`` is below 1.
        UnknownNameError: If there is no such endpoint.
    """
    known_endpoint(endpoint)
    if min(least, resamples) < 1:
        raise StatisticsError(
            f"A class needs at least 1 cell and an interval 1 draw, got least={least}, resamples={resamples}.\n"
            f"Try least={LEAST}, resamples={RESAMPLES}."
        )
    clear = [one for one in held if one.cell.truth[endpoint].clear]
    won = np.array([one.cell.truth[endpoint].winner == "candidate" for one in clear], bool)
    says = np.array([one.prediction.candidate(endpoint) for one in clear], bool)
    told = np.array([one.prediction.answered[endpoint] for one in clear], bool)
    p = np.array([one.prediction.p[endpoint] for one in clear], float)
    ties = [one for one in held if not one.cell.truth[endpoint].clear]
    right = told & (says == won)
    curve = risk_coverage(p, says == won)
    groups = np.array([one.cell.setting.group for one in clear])[told]
    two = min(won.sum(), (~won).sum()) >= least
    return Score(
        endpoint=endpoint,
        classes=_by_class(won, np.ones_like(won)),
        ties=len(ties),
        ties_answered=sum(one.prediction.answered[endpoint] for one in ties),
        answered=_by_class(won, told),
        right=_by_class(won, right),
        accuracy=float(right.sum() / told.sum()) if told.any() else None,
        accuracy_interval=wilson(int(right.sum()), int(told.sum())) if told.any() else None,
        majority_rate=float(max(won.mean(), 1 - won.mean())) if clear else None,
        **_of_answers(says[told], won[told], groups, two=two, resamples=resamples, seed=seed),
        **_of_probabilities(p, won, two=two),
        risk_coverage=tuple(curve),
        risk_area=risk_area(p, says == won) if clear else None,
    )


def _of_answers(
    says: Cells, won: Cells, groups: np.ndarray, *, two: bool, resamples: int, seed: int
) -> dict[str, object]:
    if not two or won.all() or not won.any():
        return dict.fromkeys(
            ("balanced_accuracy", "balanced_accuracy_lower", "balanced_accuracy_interval", "permutation_p")
        )  # fmt: skip
    return {
        "balanced_accuracy": balanced_accuracy(says, won),
        "balanced_accuracy_lower": balanced_accuracy_lower(says, won),
        "balanced_accuracy_interval": cluster_interval(says, won, groups, resamples=resamples, seed=seed),
        "permutation_p": permutation_p_within(says, won, groups),
    }  # fmt: skip


def _of_probabilities(p: Float[np.ndarray, " cell"], won: Cells, *, two: bool) -> dict[str, object]:
    return {
        "brier": brier_score(p, won) if len(p) else None,
        "brier_parts": brier_parts(p, won) if len(p) else None,
        "brier_skill": brier_skill(p, won) if two else None,
        "calibration": calibration_slope(p, won) if two else None,
        "spiegelhalter_z": spiegelhalter_z(p, won) if np.any(p != 0.5) else None,
    }


def _by_class(won: Cells, those: Cells) -> Pairs:
    return (int(np.sum(won & those)), int(np.sum(~won & those)))


def risk_coverage(p: Float[np.ndarray, " cell"], right: Cells) -> list[tuple[float, float]]:
    """Return (coverage, error rate) of answering the surest cells, from few cells to all.

    Cells that are equally sure, by abs(p - 1/2), are answered together.

    Args:
        p: P(candidate wins).
        right: Whether the answer to the cell is right.

    Raises:
        StatisticsError: If there is not one answer per probability.

    Example:
        >>> risk_coverage(np.array([0.9, 0.1, 0.6, 0.6]), np.array([True, True, True, False]))
        [(0.5, 0.0), (1.0, 0.25)]
    """
    sizes, wrong = _blocks(p, right)
    done = np.cumsum(sizes)
    return [(float(n / len(p)), float(k / n)) for n, k in zip(done, np.cumsum(wrong), strict=True)]


def risk_area(p: Float[np.ndarray, " cell"], right: Cells) -> float:
    """Return the mean error rate of the k surest cells over all k; equally sure ones in random order, on average.

    Example:
        0, 0, 0 or 1/3 and 1/4: on average a half of the third, and the quarter, over four.

        >>> round(risk_area(np.array([0.9, 0.1, 0.6, 0.6]), np.array([True, True, True, False])), 6)
        0.104167
    """
    sizes, wrong = _blocks(p, right)
    # within a block errors come evenly on average
    errors = np.cumsum(np.repeat(wrong / sizes, sizes))
    return float((errors / np.arange(1, len(p) + 1)).mean())


def _blocks(
    p: Float[np.ndarray, " cell"], right: Cells
) -> tuple[Int[np.ndarray, " block"], Int[np.ndarray, " block"]]:
    """Return how many cells are equally sure, the surest first, and how many of them are wrong."""
    if np.shape(p) != np.shape(right):
        raise StatisticsError(
            f"There must be one answer per probability, got {np.size(right)} for {np.size(p)}.\nGive both of the same cells."
        )
    # 0.9 and 0.1 are equally sure, but for the last bits
    _, place = np.unique(-np.round(np.abs(p - 0.5), 12), return_inverse=True)
    return np.bincount(place), np.bincount(place, weights=~right).astype(int)


def cluster_interval(
    says: Cells, won: Cells, groups: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the balanced accuracy with whole groups resampled.

    Args:
        says: Whether the answer is the candidate.
        won: Whether it won; both outcomes present.
        groups: Of the cells.
        resamples: Draws; those in which one outcome is missing are passed over.
        seed: Of the draws.

    Returns:
        None with one group.
    """
    names, place = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return None
    counts = np.stack(
        [np.bincount(place, those, len(names)) for those in (won, won & says, ~won, ~won & ~says)]
    )
    drawn = np.random.default_rng(seed).multinomial(
        len(names), np.full(len(names), 1 / len(names)), resamples
    )
    m, hit, n, rejected = counts @ drawn.T
    both = (m > 0) & (n > 0)
    low, high = np.quantile((hit[both] / m[both] + rejected[both] / n[both]) / 2, [0.025, 0.975])
    return float(low), float(high)


def permutation_p_within(says: Cells, won: Cells, groups: np.ndarray) -> float:
    r"""Return the exact one-sided p-value of the balanced accuracy, outcomes permuted within groups.

    Given how many cells of a group were won and how many were called won, the number of those that were both is
    hypergeometric; balanced accuracy rises with its sum over groups, whose distribution is their convolution. It answers
    whether the rule tells cells of *one* group apart: 1 where no group has both outcomes, or both answers.

    Args:
        says: Whether the answer is the candidate.
        won: Whether it won.
        groups: Of the cells.

    Example:
        One of the two ways to deal one win in each of two groups of two: (1/2)^2.

        >>> yes = np.array([True, False, True, False])
        >>> permutation_p_within(yes, yes, np.array(["a", "a", "b", "b"]))
        0.25
    """
    chances, fewest = np.ones(1), 0
    for group in np.unique(groups):
        inside = groups == group
        n, k, t = int(inside.sum()), int(won[inside].sum()), int(says[inside].sum())
        hits = range(max(0, k + t - n), min(k, t) + 1)
        ways = np.array([math.comb(k, x) * math.comb(n - k, t - x) for x in hits], float)
        chances = np.convolve(chances, ways / math.comb(n, t))
        fewest += hits[0]
    return min(1.0, float(chances[int(np.sum(won & says)) - fewest :].sum()))
