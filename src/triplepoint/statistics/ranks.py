"""How well scores or answers tell two classes apart, honestly validated.

A *label* is True or False, a *score* is larger the more it speaks for True; ``cell`` is one finished comparison.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from jaxtyping import Bool

from triplepoint.errors import StatisticsError
from triplepoint.statistics._checks import (
    Labels,
    Numbers,
    need_both_classes,
    per_class,
    scores_and_labels,
)
from triplepoint.statistics.proportions import wilson

EXACT_LIMIT = 100_000
"""Up to this many relabelings :func:`permutation_p` visits all of them: some seconds at about 20 us each."""


def auc(scores: Numbers, labels: Labels) -> float:
    r"""Area under the ROC curve: how often a True outscores a False, ties counted half.

    .. math::
        \mathrm{AUC} = \frac{1}{n_1 n_0} \sum_{i: y_i = 1} \sum_{j: y_j = 0}
        \big( 1[s_i > s_j] + \tfrac12 1[s_i = s_j] \big)

    It is the Mann-Whitney U divided by :math:`n_1 n_0`. It is not an accuracy: no threshold is
    chosen, so a rule with a high AUC can still have a badly placed threshold.

    Args:
        scores: One finite number per cell.
        labels: True or False (or 1 or 0) per cell, both present.

    Returns:
        A number in [0, 1]; 0.5 where all scores are equal.

    Raises:
        StatisticsError: If lengths differ, a score is not finite, or one class is missing.

    References:
        Hanley and McNeil (1982), The meaning and use of the area under a receiver operating
        characteristic (ROC) curve, Radiology 143, pp. 29-36.

    Example:
        Of the pairs (3, 1), (3, 2), (2, 1), (2, 2) three are won and one is tied:

        >>> auc([3, 2, 1, 2], [True, True, False, False])
        0.875
    """
    s, y = scores_and_labels("auc", scores, labels)
    need_both_classes("auc", y)
    _, place, counts = np.unique(s, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives, negatives = int(y.sum()), int((~y).sum())
    u = ranks[y].sum() - positives * (positives + 1) / 2
    return float(u / (positives * negatives))


def permutation_p(
    scores: Numbers,
    labels: Labels,
    *,
    statistic: Callable[[np.ndarray, np.ndarray], float] = auc,
    resamples: int = 10_000,
    seed: int = 0,
) -> float:
    r"""One-sided permutation p-value: how often shuffled labels do at least as well.

    Exact, over all :math:`\binom{n}{k}` ways to place the ``k`` True labels, where there are at most
    100 000; otherwise from ``resamples`` random shuffles as :math:`(1 + \#\{t^* \ge t\})/(1 + R)`,
    which is never 0. It is not the probability that the score is useless, it does not say how well
    the score does, and it must be read together with the number of scores that were tried.

    Args:
        scores: One finite number per cell.
        labels: True or False per cell.
        statistic: Function of ``(scores, labels)``, larger = better; :func:`auc` by default.
        resamples: Random shuffles ``R`` where the exact count is too large.
        seed: Seed of those shuffles.

    Returns:
        A number in (0, 1]; 1 where all labels are the same and the statistic allows that.

    Raises:
        StatisticsError: If lengths differ, a score is not finite, or the statistic refuses.

    References:
        Phipson and Smyth (2010), Permutation p-values should never be zero, Statistical
        Applications in Genetics and Molecular Biology 9(1), article 39.

    Example:
        Perfect order of two and two: one of the six placements does as well.

        >>> permutation_p([4, 3, 2, 1], [1, 1, 0, 0]) == 1 / 6
        True
    """
    s, y = scores_and_labels("permutation_p", scores, labels)
    # equal statistics may differ in the last bits when summed in another order
    reach = statistic(s, y) - 1e-12
    if math.comb(len(y), int(y.sum())) <= EXACT_LIMIT:
        placements = list(itertools.combinations(range(len(y)), int(y.sum())))
        hits = sum(statistic(s, _labels_at(len(y), places)) >= reach for places in placements)
        return hits / len(placements)
    rng = np.random.default_rng(seed)
    hits = sum(statistic(s, rng.permutation(y)) >= reach for _ in range(resamples))
    return (1 + hits) / (1 + resamples)


def _labels_at(n: int, places: Sequence[int]) -> Bool[np.ndarray, " cell"]:
    labels = np.zeros(n, dtype=bool)
    labels[list(places)] = True
    return labels


def best_threshold(
    scores: Numbers, labels: Labels, *, balanced: bool = False
) -> tuple[float, float]:
    """First threshold that maximises accuracy of "True iff score > threshold".

    Tried in ascending order: 0.01 below the smallest score, the midpoints between neighbouring
    distinct scores, 0.01 above the largest. The first of several equally good ones is taken, which is
    the one that says True most often. Its accuracy is *in-sample*, hence optimistic, and never below
    the share of the larger class; :func:`leave_one_group_out` gives an honest one.

    Args:
        scores: One finite number per cell.
        labels: True or False per cell; one class may be missing.
        balanced: Maximise :func:`balanced_accuracy` instead, where both classes are present.

    Returns:
        ``(threshold, accuracy)``, the threshold in the unit of the scores; the accuracy balanced where
        that was maximised.

    Raises:
        StatisticsError: If there is no cell, lengths differ, or a score is not finite.

    Example:
        >>> best_threshold([1.0, 2.0, 4.0], [False, False, True])
        (3.0, 1.0)
    """
    s, y = scores_and_labels("best_threshold", scores, labels)
    distinct = np.unique(s)
    middles = (distinct[1:] + distinct[:-1]) / 2
    candidates = np.concatenate([[distinct[0] - 0.01], middles, [distinct[-1] + 0.01]])
    right = (s > candidates[:, None]) == y
    if balanced and y.any() and not y.all():
        accuracies = (right[:, y].mean(axis=1) + right[:, ~y].mean(axis=1)) / 2
    else:
        accuracies = right.mean(axis=1)
    first = int(np.argmax(accuracies))
    return float(candidates[first]), float(accuracies[first])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """What thresholds fitted without a group say about that group."""

    thresholds: dict[Hashable, float]
    """Held-out group -> threshold fitted on all the others, in order of first appearance."""
    predictions: Bool[np.ndarray, " cell"]
    """Per cell, the answer of the threshold fitted without the cell's group."""
    correct: int
    """Cells whose prediction equals their label."""
    n: int
    """Cells in all."""


def leave_one_group_out(
    scores: Numbers, labels: Labels, groups: Sequence[Hashable] | np.ndarray
) -> HeldOut:
    """Fit a threshold without each group in turn and let it answer for that group.

    The threshold is :func:`best_threshold` of the other groups. It is not leave-one-*cell*-out:
    cells of a group resemble each other, and one left inside would leak into its own test. Nor is
    it honest about a score that was picked by looking at all the cells.

    Args:
        scores: One finite number per cell.
        labels: True or False per cell.
        groups: The group of each cell, e.g. its model scale; at least two different ones.

    Returns:
        Thresholds per fold and pooled predictions.

    Raises:
        StatisticsError: If there are fewer than two groups, or lengths differ.

    Example:
        Without "a" the threshold is 0.5, which calls the 0.4 of "a" wrongly False:

        >>> fold = leave_one_group_out([0.4, 0.1, 0.9, 0.1], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> fold.thresholds, fold.correct, fold.n
        ({'a': 0.5, 'b': 0.25}, 3, 4)
    """
    s, y = scores_and_labels("leave_one_group_out", scores, labels)
    names = list(groups)
    order = list(dict.fromkeys(names))
    if len(names) != len(y) or len(order) < 2:
        raise StatisticsError(
            f"leave_one_group_out needs a group per cell and at least 2 groups, got {len(names)} "
            f"entries in {len(order)} group(s) for {len(y)} cells.\n"
            "Add cells of another group, or report the in-sample number as such."
        )
    thresholds, predictions = {}, np.zeros(len(y), dtype=bool)
    for group in order:
        held = np.array([name == group for name in names])
        thresholds[group], _ = best_threshold(s[~held], y[~held])
        predictions[held] = s[held] > thresholds[group]
    correct = int((predictions == y).sum())
    return HeldOut(thresholds=thresholds, predictions=predictions, correct=correct, n=len(y))


def balanced_accuracy(predictions: Labels, labels: Labels) -> float:
    """Mean of the two per-class accuracies, ``(TPR + TNR) / 2``.

    It is not the accuracy: whoever always answers the larger class gets 0.5 here.

    Args:
        predictions: True or False per cell.
        labels: True or False per cell, both present.

    Returns:
        A number in [0, 1].

    Raises:
        StatisticsError: If lengths differ or one class is missing, where it is undefined.

    Example:
        One of two True and all of three False:

        >>> balanced_accuracy([1, 0, 0, 0, 0], [1, 1, 0, 0, 0])
        0.75
    """
    (hit, positives), (rejected, negatives) = per_class("balanced_accuracy", predictions, labels)
    return (hit / positives + rejected / negatives) / 2


def balanced_accuracy_lower(
    predictions: Labels, labels: Labels, *, confidence: float = 0.95
) -> float:
    r"""Lower confidence bound of the balanced accuracy, by MOVER on two Wilson intervals.

    .. math:: \mathrm{BA} - \tfrac12 \sqrt{(p_1 - l_1)^2 + (p_0 - l_0)^2}

    with :math:`p_1, p_0` the per-class accuracies and :math:`l_1, l_0` their Wilson lower limits. It
    is not the mean of the two lower limits, which would be lower: both being low at once is rarer
    than either.

    Args:
        predictions: True or False per cell.
        labels: True or False per cell, both present.
        confidence: Level of the *two-sided* interval whose lower end is returned.

    Returns:
        A number in [0, 1].

    Raises:
        StatisticsError: If lengths differ or one class is missing.

    References:
        Zou and Donner (2008), Construction of confidence limits about effect measures: a general
        approach, Statistics in Medicine 27, pp. 1693-1702.

    Example:
        All right with ``n`` per class: ``1 - (1 - l) / sqrt(2)``, ``l`` the Wilson limit of n of n.

        >>> low, _ = wilson(10, 10)
        >>> answers = [1] * 10 + [0] * 10
        >>> round(balanced_accuracy_lower(answers, answers) - (1 - (1 - low) / 2**0.5), 12)
        0.0
    """
    name = "balanced_accuracy_lower"
    classes = per_class(name, predictions, labels)
    rates = [right / n for right, n in classes]
    lows = [wilson(right, n, confidence=confidence)[0] for right, n in classes]
    drop = math.hypot(*(rate - low for rate, low in zip(rates, lows, strict=True))) / 2
    return sum(rates) / 2 - drop
