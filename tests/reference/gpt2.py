"""GPT-2 in double precision: one sequence, one head and one position at a time."""

import math


def rows_of(tensor):
    """A tensor as nested lists of Python floats."""
    return tensor.detach().double().tolist()


def times(matrix, vector):
    """matrix @ vector."""
    return [math.fsum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]


def normalised(x, gain, eps=1e-5):
    """LayerNorm without a shift."""
    mean = math.fsum(x) / len(x)
    scale = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + eps)
    return [g * (v - mean) / scale for v, g in zip(x, gain, strict=True)]


def gelu(v):
    """x times the normal distribution function."""
    return v * (1 + math.erf(v / math.sqrt(2))) / 2


def attention(xs, w_qkv, w_out, heads):
    """Position t mixes the values of positions 0..t, by softmax(q k / sqrt(head width))."""
    dim = len(xs[0])
    size = dim // heads
    qkv = [times(w_qkv, x) for x in xs]
    mixed = [[] for _ in xs]
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        qs, ks, vs = ([p[i * dim : (i + 1) * dim][part] for p in qkv] for i in range(3))
        for t, q in enumerate(qs):
            scores = [
                math.fsum(a * b for a, b in zip(q, ks[u], strict=True)) / math.sqrt(size)
                for u in range(t + 1)
            ]
            weights = [math.exp(s - max(scores)) for s in scores]
            mixed[t] += [
                math.fsum(w * vs[u][i] for u, w in enumerate(weights)) / math.fsum(weights)
                for i in range(size)
            ]
    return [times(w_out, m) for m in mixed]  # fmt: skip


def plus(xs, ys):
    """Row by row sum."""
    return [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(xs, ys, strict=True)]


def logits(weights, tokens, *, layers, heads):
    """Logits at each position of one sequence; ``weights`` is the model's state_dict."""
    w = {name: rows_of(tensor) for name, tensor in weights.items()}
    xs = [
        [a + b for a, b in zip(w["wte.weight"][k], w["wpe.weight"][t], strict=True)]
        for t, k in enumerate(tokens)
    ]
    for i in range(layers):
        at = f"h.{i}."
        inner = [normalised(x, w[at + "ln_1.weight"]) for x in xs]
        qkv, out = w[at + "attn.c_attn.weight"], w[at + "attn.c_proj.weight"]
        xs = plus(xs, attention(inner, qkv, out, heads))
        inner = [normalised(x, w[at + "ln_2.weight"]) for x in xs]
        hidden = [[gelu(v) for v in times(w[at + "mlp.c_fc.weight"], x)] for x in inner]
        xs = plus(xs, [times(w[at + "mlp.c_proj.weight"], h) for h in hidden])
    return [times(w["wte.weight"], normalised(x, w["ln_f.weight"])) for x in xs]
