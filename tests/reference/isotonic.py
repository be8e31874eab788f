"""Isotonic regression by its min-max formula: every block of every element, nothing clever."""


def isotonic_by_blocks(y):
    """max over starts j <= i of min over ends k >= i of mean(y[j..k]), for each i."""
    n = len(y)
    return [
        max(min(sum(y[j : k + 1]) / (k + 1 - j) for k in range(i, n)) for j in range(i + 1))
        for i in range(n)
    ]
