"""Metrics of a list of numbers or of rows of logits, element by element: plain Python in double precision."""

import math


def share_beyond(values, edge):
    """Share of the values whose size is above the edge."""
    return sum(1 for v in values if abs(v) > edge) / len(values)


def softmax(row):
    """Probabilities of one position."""
    exps = [math.exp(z - max(row)) for z in row]
    return [e / sum(exps) for e in exps]


def mean_kl_to_the_mean_prediction(rows):
    """(1/n) sum_i sum_v p_iv ln(p_iv / pbar_v), as the divergence is defined."""
    predictions = [softmax(row) for row in rows]
    n, vocab = len(rows), len(rows[0])
    mean = [sum(p[v] for p in predictions) / n for v in range(vocab)]
    return math.fsum(p[v] * math.log(p[v] / mean[v]) for p in predictions for v in range(vocab)) / n
