"""The published rules' record by plain loops, in exact fractions, from the values per seed."""

import bisect
import itertools
from fractions import Fraction


def mean(values):
    exact = [Fraction(str(v)) for v in values.values()]
    return sum(exact) / len(exact)


def helped(cell):
    """Whether the means over seeds say that DyT ended lower; the shipped delta where no losses were shipped."""
    if cell.baseline_loss is None:
        return cell.delta_pct < 0
    return mean(cell.candidate_loss) < mean(cell.baseline_loss)


def right_at(cut, scores, labels):
    return sum((s > cut) == y for s, y in zip(scores, labels, strict=True))


def fitted_cut(scores, labels):
    """The first of: below all, the midpoints, above all, that is right most often."""
    known = sorted(set(scores))
    beyond = Fraction(1, 100)
    cuts = [known[0] - beyond, *((a + b) / 2 for a, b in itertools.pairwise(known)), known[-1] + beyond]  # fmt: skip
    best = max(right_at(cut, scores, labels) for cut in cuts)
    return next(cut for cut in cuts if right_at(cut, scores, labels) == best)


def without_each(scores, labels, scales):
    """Scale -> (cut fitted on the others, right, cells) of the cells of that scale."""
    found = {}
    for scale in dict.fromkeys(scales):
        inside = [i for i, s in enumerate(scales) if s == scale]
        others = [i for i, s in enumerate(scales) if s != scale]
        cut = fitted_cut([scores[i] for i in others], [labels[i] for i in others])
        hits = right_at(cut, [scores[i] for i in inside], [labels[i] for i in inside])
        found[scale] = (cut, hits, len(inside))
    return found


def auc(scores, labels):
    ones = [s for s, y in zip(scores, labels, strict=True) if y]
    zeros = sorted(s for s, y in zip(scores, labels, strict=True) if not y)
    won = sum(bisect.bisect_left(zeros, s) + bisect.bisect_right(zeros, s) for s in ones)
    return Fraction(won, 2 * len(ones) * len(zeros))


def placements_as_good(scores, labels):
    """Of all ways to place the labels, those with at least the same AUC, and how many there are."""
    n, k = len(labels), sum(labels)
    placed = [[i in places for i in range(n)] for places in map(set, itertools.combinations(range(n), k))]  # fmt: skip
    return sum(auc(scores, y) >= auc(scores, labels) for y in placed), len(placed)
