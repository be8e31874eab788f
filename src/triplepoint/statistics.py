"""Intervals, rank statistics and honest validation: what numbers can carry, not what they mean.

Axes: ``cell`` one finished comparison, ``seed`` one pair of trainings, ``window`` one fixed evaluation window.
A *label* is True or False, a *score* is larger the more it speaks for True.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float, Int

from triplepoint.errors import StatisticsError

Numbers = Sequence[float] | np.ndarray
Labels = Sequence[bool] | Sequence[int] | np.ndarray

EXACT_LIMIT = 100_000
"""Up to this many relabelings :func:`permutation_p` visits all of them: some seconds at about 20 us each."""


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    r"""Wilson score interval of a proportion.

    .. math::
        \frac{\hat p + z^2/2n}{1 + z^2/n} \pm
        \frac{z}{1 + z^2/n} \sqrt{\frac{\hat p (1 - \hat p)}{n} + \frac{z^2}{4 n^2}}

    It is not :math:`\hat p \pm z \sqrt{\hat p(1-\hat p)/n}`, which collapses to a point at 0 or
    ``n`` successes and leaves [0, 1] near them. It assumes independent trials: count the seeds of
    one cell as one trial.

    Args:
        successes: Number of successes, 0 to ``n``.
        n: Number of trials, at least 1.
        confidence: Two-sided level in (0, 1).

    Returns:
        ``(low, high)`` within [0, 1]; low is 0 at no success, high is 1 at ``n`` successes.

    Raises:
        StatisticsError: If ``n`` is not positive or ``successes`` is outside ``0..n``.

    References:
        Wilson (1927), Probable inference, the law of succession, and statistical inference,
        JASA 22, pp. 209-212.

    Example:
        For half of the trials the interval is symmetric about one half:

        >>> [round(end, 3) for end in wilson(6, 12)]
        [0.254, 0.746]
    """
    if n < 1 or not 0 <= successes <= n:
        raise StatisticsError(
            f"wilson needs 0 <= successes <= n and n >= 1, got {successes} of {n}.\n"
            "Count the trials first; an interval of no trial does not exist."
        )
    z = _normal_quantile(confidence)
    p, stretch = successes / n, 1 + z**2 / n
    centre = (p + z**2 / (2 * n)) / stretch
    half = z / stretch * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


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
    s, y = _scores_and_labels("auc", scores, labels)
    _need_both_classes("auc", y)
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
    s, y = _scores_and_labels("permutation_p", scores, labels)
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


def best_threshold(scores: Numbers, labels: Labels) -> tuple[float, float]:
    """First threshold that maximises accuracy of "True iff score > threshold".

    Tried in ascending order: 0.01 below the smallest score, the midpoints between neighbouring
    distinct scores, 0.01 above the largest. The first of several equally good ones is taken, which is
    the one that says True most often. Its accuracy is *in-sample*, hence optimistic, and never below
    the share of the larger class; :func:`leave_one_group_out` gives an honest one.

    Args:
        scores: One finite number per cell.
        labels: True or False per cell; one class may be missing.

    Returns:
        ``(threshold, accuracy)``, the threshold in the unit of the scores.

    Raises:
        StatisticsError: If there is no cell, lengths differ, or a score is not finite.

    Example:
        >>> best_threshold([1.0, 2.0, 4.0], [False, False, True])
        (3.0, 1.0)
    """
    s, y = _scores_and_labels("best_threshold", scores, labels)
    distinct = np.unique(s)
    middles = (distinct[1:] + distinct[:-1]) / 2
    candidates = np.concatenate([[distinct[0] - 0.01], middles, [distinct[-1] + 0.01]])
    accuracies = ((s > candidates[:, None]) == y).mean(axis=1)
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
    s, y = _scores_and_labels("leave_one_group_out", scores, labels)
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
    (hit, positives), (rejected, negatives) = _per_class("balanced_accuracy", predictions, labels)
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
    classes = _per_class(name, predictions, labels)
    rates = [right / n for right, n in classes]
    lows = [wilson(right, n, confidence=confidence)[0] for right, n in classes]
    drop = math.hypot(*(rate - low for rate, low in zip(rates, lows, strict=True))) / 2
    return sum(rates) / 2 - drop


def paired_interval(
    differences: Float[np.ndarray, "seed window"],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    r"""Mean paired difference over seeds and windows, with a crossed-bootstrap interval.

    The windows are the same for every seed (crossed, not nested), so one draw of windows is shared by
    all seeds and their common difficulty is not averaged away. With :math:`w_r` the mean over the drawn
    windows and all ``S`` seeds, :math:`m_r` that over the drawn windows and drawn seeds,

    .. math:: d_r = w_r + \sqrt{S/(S-1)}\,(m_r - w_r)

    and the interval holds the central share of the :math:`d_r`. The factor undoes the bootstrap's
    underestimate of a variance from ``S`` values, by half at two seeds.

    It is *not* an interval over time steps, and not a t interval: where differences between seeds
    dominate, a nominal 95 % covers about 61 % at 2 seeds, 82 % at 3 and 88 % at 5 (simulated, normal);
    where differences between windows dominate, 94 to 99 %. With one seed it covers the windows only and
    says nothing about another seed.

    Args:
        differences: Candidate minus baseline, one row per seed, one column per fixed window; at
            least 2 windows.
        confidence: Two-sided level in (0, 1).
        resamples: Bootstrap draws; 2000 leave about 0.1 standard errors in an end.
        seed: Seed of the draws; the same seed gives the same interval.

    Returns:
        ``(mean, low, high)`` in the unit of the differences; the three are equal where all
        differences are.

    Raises:
        StatisticsError: If the shape is not [seed, window], there are fewer than 2 windows, or an
            entry is not finite.

    References:
        Owen (2007), The pigeonhole bootstrap, Annals of Applied Statistics 1, pp. 386-411.

    Example:
        Constant differences leave nothing to be unsure of:

        >>> paired_interval(np.full((2, 4), 0.5))
        (0.5, 0.5, 0.5)
    """
    d = _seeds_by_windows("paired_interval", differences)
    draws = _Draws(d.shape, resamples=resamples, seed=seed)
    return float(d.mean()), *draws.interval(*draws.means(d), confidence)


def paired_relative_interval(
    candidate: Float[np.ndarray, "seed window"],
    baseline: Float[np.ndarray, "seed window"],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    r"""Relative difference of mean losses, with the interval of :func:`paired_interval`.

    .. math:: \delta = \frac{\bar c - \bar b}{\bar b}

    Both arms share each draw of seeds and windows. It is the ratio of means, *not* the mean of the
    ratios per window, which would give easy windows the same say as hard ones.

    Args:
        candidate: Losses of the candidate, one row per seed, one column per fixed window.
        baseline: Losses of the baseline, same shape, same seeds and windows; not negative.
        confidence: Two-sided level in (0, 1).
        resamples: Bootstrap draws.
        seed: Seed of the draws.

    Returns:
        ``(delta, low, high)`` as fractions; positive = candidate worse.

    Raises:
        StatisticsError: If the shapes differ or are not [seed, window], an entry is not finite, or
            the baseline is negative or has no mean to divide by.

    Example:
        Ten per cent worse in every window is ten per cent, surely:

        >>> base = np.array([[1.0, 2.0, 4.0]])
        >>> [round(x, 12) for x in paired_relative_interval(1.1 * base, base)]
        [0.1, 0.1, 0.1]
    """
    name = "paired_relative_interval"
    c, b = _seeds_by_windows(name, candidate), _seeds_by_windows(name, baseline)
    if c.shape != b.shape:
        raise StatisticsError(
            f"{name} needs paired losses, got candidate {list(c.shape)} and baseline "
            f"{list(b.shape)}.\nEvaluate both arms with the same seeds on the same windows."
        )
    draws = _Draws(b.shape, resamples=resamples, seed=seed)
    below = draws.means(b)
    if b.min() < 0 or min(mean.min() for mean in below) <= 0:
        raise StatisticsError(
            f"{name} divides by the mean baseline loss, which must be positive; got losses from "
            f"{b.min():g} to {b.max():g}.\nUse paired_interval for the absolute difference."
        )
    above = draws.means(c - b)
    ratios = [a / mean for a, mean in zip(above, below, strict=True)]
    return float((c - b).mean() / b.mean()), *draws.interval(*ratios, confidence)


class _Draws:
    """Shared draws of seeds and windows; see :func:`paired_interval` for the symbols."""

    windows: Int[np.ndarray, "draw window"]
    shares: Float[np.ndarray, "draw seed"]

    def __init__(self, shape: tuple[int, int], *, resamples: int, seed: int):
        if resamples < 1:
            raise StatisticsError(f"Cannot draw {resamples} resamples.\nUse 2000, the default.")
        rng = np.random.default_rng(seed)
        seeds, windows = shape
        self.windows = rng.integers(windows, size=(resamples, windows))
        self.shares = rng.multinomial(seeds, [1 / seeds] * seeds, size=resamples) / seeds
        self.factor = math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 0.0

    def means(self, x: Float[np.ndarray, "seed window"]) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(w_r, m_r)``: means over drawn windows and all seeds, and over drawn both."""
        all_seeds = x.mean(axis=0)[self.windows].mean(axis=1)
        drawn = np.take_along_axis(self.shares @ x, self.windows, axis=1).mean(axis=1)
        return all_seeds, drawn

    def interval(self, w: np.ndarray, m: np.ndarray, confidence: float) -> tuple[float, float]:
        """Return the central share of ``w + factor (m - w)``."""
        _normal_quantile(confidence)  # refuses a level outside (0, 1)
        low, high = np.quantile(
            w + self.factor * (m - w), [(1 - confidence) / 2, (1 + confidence) / 2]
        )
        return float(low), float(high)


def asymptotic_confidence_sequence(
    mean: float, std: float, n: int, *, alpha: float = 0.05, n_star: int
) -> tuple[float, float]:
    r"""Interval of a running mean that stays valid however often one looks.

    .. math::
        \bar d_n \pm \hat\sigma_n \sqrt{\frac{n\rho^2 + 1}{n^2 \rho^2}
        \ln\frac{n\rho^2 + 1}{\alpha^2}}, \qquad
        \rho^2 = \frac{-2\ln\alpha + \ln(1 - 2\ln\alpha)}{n^\star}

    It is not the fixed-``n`` interval :math:`\bar d \pm 1.96\,\hat\sigma/\sqrt n`, which is 1.55 times
    narrower at ``n_star`` and wrong once one looks twice. It is asymptotic, so do not look before some
    tens of values, and needs *independent* ones: windows at one step, not steps of one training.

    Args:
        mean: Mean of the ``n`` values so far.
        std: Their standard deviation, not negative.
        n: Number of values so far, at least 1.
        alpha: Probability of ever excluding the true mean.
        n_star: The ``n`` at which the interval is tightest relative to others of its kind.

    Returns:
        ``(low, high)`` in the unit of ``mean``; both equal ``mean`` where ``std`` is 0.

    Raises:
        StatisticsError: If ``n`` or ``n_star`` is below 1, ``alpha`` outside (0, 1), or ``mean`` or
            ``std`` not finite.

    References:
        Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021), `Time-uniform central limit theory
        and asymptotic confidence sequences <https://arxiv.org/abs/2103.06476>`_.

    Example:
        At ``n = n_star = 100`` and ``std = 10`` the standard error is 1:

        >>> low, high = asymptotic_confidence_sequence(0.0, 10.0, 100, n_star=100)
        >>> round(high / 1.96, 2), low == -high
        (1.55, True)
    """
    if n < 1 or n_star < 1 or not 0 < alpha < 1:
        raise StatisticsError(
            f"A confidence sequence needs n >= 1, n_star >= 1 and 0 < alpha < 1, got n={n}, "
            f"n_star={n_star}, alpha={alpha}.\nTry alpha=0.05 and the n you expect to stop at."
        )
    if not (math.isfinite(mean) and math.isfinite(std) and std >= 0):
        raise StatisticsError(
            f"A confidence sequence needs a finite mean and a finite std >= 0, got {mean}, {std}.\n"
            "The run has probably diverged already."
        )
    rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / n_star
    grown = n * rho2 + 1
    half = std * math.sqrt(grown / (n**2 * rho2) * math.log(grown / alpha**2))
    return mean - half, mean + half


def isotonic(y: Numbers, *, increasing: bool) -> Float[np.ndarray, " sample"]:
    r"""Closest monotone sequence in least squares, by pooling adjacent violators.

    .. math:: \hat y = \arg\min_{z_1 \le \dots \le z_n} \sum_i (y_i - z_i)^2

    It is not a running maximum, which follows every upward outlier; blocks here are *means*. All
    values weigh the same. Linear time.

    Args:
        y: Finite values in order; may be empty.
        increasing: True for a sequence that never falls, False for one that never rises.

    Returns:
        Monotone float64 values, as many as given, with the same sum.

    Raises:
        StatisticsError: If ``y`` is not one sequence of finite numbers.

    References:
        Ayer, Brunk, Ewing, Reid and Silverman (1955), An empirical distribution function for
        sampling with incomplete information, Annals of Mathematical Statistics 26, pp. 641-647.

    Example:
        >>> isotonic([1, 3, 2, 4], increasing=True).tolist()
        [1.0, 2.5, 2.5, 4.0]
    """
    values = _sequence("isotonic", y)
    if not increasing:
        return -isotonic(-values, increasing=True)
    sums: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        sums.append(value)
        sizes.append(1)
        while len(sums) > 1 and sums[-2] / sizes[-2] > sums[-1] / sizes[-1]:
            total, size = sums.pop(), sizes.pop()
            sums[-1] += total
            sizes[-1] += size
    return np.repeat(np.array(sums) / np.array(sizes, dtype=float), sizes)


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"A confidence level lies between 0 and 1, got {confidence}.\nTry 0.95, the default."
        )
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _sequence(name: str, values: Numbers) -> Float[np.ndarray, " sample"]:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise StatisticsError(
            f"{name} needs one sequence of numbers, got shape {list(array.shape)}.\n"
            "Flatten it, or call once per row."
        )
    _need_finite(name, array)
    return array


def _scores_and_labels(
    name: str, scores: Numbers, labels: Labels
) -> tuple[Float[np.ndarray, " cell"], Bool[np.ndarray, " cell"]]:
    s, y = _sequence(name, scores), np.asarray(labels)
    if len(s) == 0 or y.shape != s.shape:
        raise StatisticsError(
            f"{name} needs as many labels as scores and at least one, got {y.size} labels for "
            f"{s.size} scores.\nPass one score and one label per cell."
        )
    if not np.isin(y, (0, 1)).all():
        raise StatisticsError(
            f"{name} needs labels True or False, got {sorted(set(y.tolist()))[:4]}.\n"
            "Turn outcomes into labels first, e.g. `delta < 0`."
        )
    return s, y.astype(bool)


def _need_both_classes(name: str, y: Bool[np.ndarray, " cell"]) -> None:
    if y.all() or not y.any():
        raise StatisticsError(
            f"{name} is undefined: all {len(y)} labels are {bool(y[0])}.\n"
            "Add cells with the other outcome, or report the plain accuracy."
        )


def _per_class(name: str, predictions: Labels, labels: Labels) -> list[tuple[int, int]]:
    """Return ``(right, n)`` of the True cells, then of the False ones."""
    given, y = _scores_and_labels(name, np.asarray(predictions, dtype=float), labels)
    _need_both_classes(name, y)
    right = (given > 0.5) == y
    return [(int(right[of].sum()), int(of.sum())) for of in (y, ~y)]


def _seeds_by_windows(name: str, values: np.ndarray) -> Float[np.ndarray, "seed window"]:
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise StatisticsError(
            f"{name} needs an array [seed, window] with at least 2 windows, got shape "
            f"{list(array.shape)}.\nFor one seed pass `x[None, :]`."
        )
    _need_finite(name, array)
    return array


def _need_finite(name: str, array: np.ndarray) -> None:
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise StatisticsError(
            f"{name} needs finite numbers; {bad} of {array.size} are inf or nan.\n"
            "Compare at a step where both arms are finite, or report the run as diverged."
        )
