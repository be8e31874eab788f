"""The attentions in double precision: one sequence, one head and one position at a time.

``w`` maps the names of an attention's parameters to nested lists; ``xs`` are the inputs of positions 0, 1, ...
"""

import math

from tests.reference.gpt2 import times


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def rotated(vector, position, base):
    """Rotate the plane of features i and i + size/2 by position * base^(-2i/size)."""
    if base is None:
        return vector
    half = len(vector) // 2
    out = [0.0] * len(vector)
    for i in range(half):
        angle = position * base ** (-2 * i / len(vector))
        a, b = vector[i], vector[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = a * math.sin(angle) + b * math.cos(angle)
    return out


def head(vectors, index, size):
    """Features of one head, at every position."""
    return [v[index * size : (index + 1) * size] for v in vectors]


def gathered(qs, ks, vs):
    """Softmax attention of one head: position t mixes values 0..t."""
    out = []
    for t, q in enumerate(qs):
        scores = [dot(q, k) / math.sqrt(len(q)) for k in ks[: t + 1]]
        weights = [math.exp(s - max(scores)) for s in scores]
        total = math.fsum(weights)
        out.append([dot(weights, [v[i] for v in vs[: t + 1]]) / total for i in range(len(vs[0]))])
    return out


def projected(w, xs, size, base):
    """Queries and keys rotated head by head, and values."""

    def turned(vectors):
        return [
            sum((rotated(v[i : i + size], t, base) for i in range(0, len(v), size)), [])
            for t, v in enumerate(vectors)
        ]

    qs, ks, vs = ([times(w[f"{n}_proj.weight"], x) for x in xs] for n in "qkv")
    return turned(qs), turned(ks), vs


def out_of(w, heads):
    """Join what the heads gathered and project it."""
    return [times(w["o_proj.weight"], sum(parts, [])) for parts in zip(*heads, strict=True)]


def sdpa(w, xs, *, heads, kv_heads, depth, base):
    size = len(xs[0]) // heads
    qs, ks, vs = projected(w, xs, size, base)
    share = heads // kv_heads
    return out_of(
        w,
        [
            gathered(head(qs, h, size), head(ks, h // share, size), head(vs, h // share, size))
            for h in range(heads)
        ],
    )


def gated(w, xs, *, heads, kv_heads, depth, base):
    size = len(xs[0]) // heads
    qs, ks, vs = projected(w, xs, size, base)
    gates = [[sigmoid(g) for g in times(w["gate_proj.weight"], x)] for x in xs]
    share = heads // kv_heads
    made = []
    for h in range(heads):
        ys = gathered(head(qs, h, size), head(ks, h // share, size), head(vs, h // share, size))
        made.append(
            [[a * g for a, g in zip(y, row, strict=True)] for y, row in zip(ys, head(gates, h, size), strict=True)]
        )  # fmt: skip
    return out_of(w, made)


def lambda_of(w, start):
    first, second = (math.exp(dot(w[f"lambda_.q{i}"], w[f"lambda_.k{i}"])) for i in (1, 2))
    return first - second + start


def minus(first, second, factors):
    return [
        [a - f * b for a, b in zip(x, y, strict=True)]
        for x, y, f in zip(first, second, factors, strict=True)
    ]


def diff_v1(w, xs, *, heads, kv_heads, depth, base):
    size, pairs, kv_pairs = len(xs[0]) // heads, heads // 2, kv_heads // 2
    start = 0.8 - 0.6 * math.exp(-0.3 * depth)
    lam = lambda_of(w, start)
    qs, ks, vs = projected(w, xs, size, base)
    made = []
    for h in range(pairs):
        kv = h // (pairs // kv_pairs)
        values = head(vs, kv, 2 * size)
        maps = [
            gathered(head(qs, 2 * h + j, size), head(ks, 2 * kv + j, size), values) for j in (0, 1)
        ]
        rows = minus(*maps, [lam] * len(xs))
        roots = [math.sqrt(dot(r, r) / len(r) + 1e-5) for r in rows]
        made.append(
            [[(1 - start) * g * a / root for a, g in zip(r, w["subln.weight"], strict=True)]
             for r, root in zip(rows, roots, strict=True)]
        )  # fmt: skip
    return out_of(w, made)


def diff_v2(w, xs, *, heads, kv_heads, depth, base):
    size, share = len(xs[0]) // heads, heads // kv_heads
    qs, ks, vs = projected(w, xs, size, base)
    lambdas = [[sigmoid(v) for v in times(w["lambda_proj.weight"], x)] for x in xs]
    made = []
    for h in range(heads):
        keys, values = head(ks, h // share, size), head(vs, h // share, size)
        maps = [gathered(head(qs, 2 * h + j, size), keys, values) for j in (0, 1)]
        made.append(minus(*maps, [row[h] for row in lambdas]))
    return out_of(w, made)


def paper_v1_leaky(w, xs, *, heads, kv_heads, depth, base):
    size, share = len(xs[0]) // heads, heads // kv_heads
    start = 0.8 - 0.6 * math.exp(-0.3 * (depth + 1))
    lam = lambda_of(w, start)
    qs, ks, vs = projected(w, xs, size, base)
    made = []
    for h in range(heads):
        values = head(vs, h // share, size)
        maps = [
            gathered(head(qs, 2 * h + j, size), head(ks, 2 * (h // share) + j, size), values)
            for j in (0, 1)
        ]
        rows = minus(*maps, [lam] * len(xs))
        # the leak: one mean and one variance for all positions
        flat = sum(rows, [])
        mean = math.fsum(flat) / len(flat)
        root = math.sqrt(math.fsum((a - mean) ** 2 for a in flat) / len(flat) + 1e-5)
        made.append([[(1 - start) * (a - mean) / root for a in r] for r in rows])
    return out_of(w, made)
