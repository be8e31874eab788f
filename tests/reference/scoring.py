"""Scores by enumeration: every dealing of outcomes, every order of equally sure cells, every draw of groups."""

import itertools


def balanced(says, won):
    hit = [s for s, w in zip(says, won, strict=True) if w]
    rejected = [not s for s, w in zip(says, won, strict=True) if not w]
    return (sum(hit) / len(hit) + sum(rejected) / len(rejected)) / 2


def permutation_p_by_dealing(says, won, groups):
    """Share of the ways to deal each group's outcomes anew that score at least as well."""
    places = [[i for i, g in enumerate(groups) if g == name] for name in dict.fromkeys(groups)]
    dealings = [set(itertools.permutations([won[i] for i in inside])) for inside in places]
    scores = []
    for dealing in itertools.product(*dealings):
        dealt = list(won)
        for inside, outcome in zip(places, dealing, strict=True):
            for i, w in zip(inside, outcome, strict=True):
                dealt[i] = w
        scores.append(balanced(says, dealt))
    return sum(score >= balanced(says, won) - 1e-12 for score in scores) / len(scores)


def risk_area_by_orders(p, right):
    """Mean over all orders that put surer cells first of the mean error rate of the first k cells."""
    sure = [round(abs(x - 0.5), 9) for x in p]
    areas = []
    for order in itertools.permutations(range(len(p))):
        if all(sure[a] >= sure[b] for a, b in itertools.pairwise(order)):
            wrong = list(itertools.accumulate(not right[i] for i in order))
            areas.append(sum(w / k for k, w in enumerate(wrong, 1)) / len(p))
    return sum(areas) / len(areas)


def group_scores_by_draws(says, won, groups):
    """Balanced accuracy of every ordered draw of as many groups as there are, where both outcomes are in it."""
    names = list(dict.fromkeys(groups))
    found = []
    for draw in itertools.product(names, repeat=len(names)):
        cells = [i for name in draw for i, g in enumerate(groups) if g == name]
        outcomes = [won[i] for i in cells]
        if any(outcomes) and not all(outcomes):
            found.append(balanced([says[i] for i in cells], outcomes))
    return sorted(found)
