"""A vision transformer in double precision: one image, one patch and one head at a time."""

import math

from tests.reference.gpt2 import gelu, plus, rows_of, times


def linear(w, at, x):
    return [a + b for a, b in zip(times(w[at + "weight"], x), w[at + "bias"], strict=True)]


def normalised(w, at, x, eps=1e-5):
    mean = math.fsum(x) / len(x)
    root = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + eps)
    return [
        g * (v - mean) / root + b
        for v, g, b in zip(x, w[at + "weight"], w[at + "bias"], strict=True)
    ]


def patches(image, size):
    """Each patch as [channel][row][column], row by row."""
    side = len(image[0]) // size
    return [
        [[row[x * size : (x + 1) * size] for row in channel[y * size : (y + 1) * size]] for channel in image]
        for y in range(side)
        for x in range(side)
    ]  # fmt: skip


def embedded(w, patch):
    """The convolution at one place: a dot product with each filter."""
    flat = [v for channel in patch for row in channel for v in row]
    filters = [[v for c in f for r in c for v in r] for f in w["patch_embed.proj.weight"]]
    bias = w["patch_embed.proj.bias"]
    return [a + b for a, b in zip(times(filters, flat), bias, strict=True)]


def attention(w, at, xs, heads):
    """Every token mixes the values of all tokens."""
    dim = len(xs[0])
    size = dim // heads
    qkv = [linear(w, at + "qkv.", x) for x in xs]
    mixed = [[] for _ in xs]
    for h in range(heads):
        qs, ks, vs = (
            [p[i * dim + h * size : i * dim + (h + 1) * size] for p in qkv] for i in range(3)
        )
        for t, q in enumerate(qs):
            scores = [
                math.fsum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(size) for k in ks
            ]
            weights = [math.exp(s - max(scores)) for s in scores]
            mixed[t] += [
                math.fsum(a * v[i] for a, v in zip(weights, vs, strict=True)) / math.fsum(weights)
                for i in range(size)
            ]
    return [linear(w, at + "proj.", m) for m in mixed]


def logits(weights, image, config):
    """Logits of one image, nested lists [channel][row][column]; ``weights`` is the model's state_dict."""
    w = {name: rows_of(tensor) for name, tensor in weights.items()}
    xs = [w["cls_token"][0][0], *(embedded(w, patch) for patch in patches(image, config.patch))]
    xs = plus(xs, w["pos_embed"][0])
    for i in range(config.layers):
        at = f"blocks.{i}."
        xs = plus(
            xs,
            attention(w, at + "attn.", [normalised(w, at + "norm1.", x) for x in xs], config.heads),
        )
        inner = [normalised(w, at + "norm2.", x) for x in xs]
        hidden = [[gelu(v) for v in linear(w, at + "mlp.fc1.", x)] for x in inner]
        xs = plus(xs, [linear(w, at + "mlp.fc2.", h) for h in hidden])
    return linear(w, "head.", normalised(w, "norm.", xs[0]))
