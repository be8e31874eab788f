"""A Llama style model in double precision: one sequence and one position at a time."""

import math

from tests.reference import attention
from tests.reference.gpt2 import gelu, plus, rows_of, times


def normalised(x, gain, eps):
    """RMSNorm."""
    root = math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [g * v / root for v, g in zip(x, gain, strict=True)]


def silu(v):
    return v / (1 + math.exp(-v))


def feed_forward(w, at, x, ffn):
    up = times(w[at + "up_proj.weight"], x)
    if ffn == "swiglu":
        gate = times(w[at + "gate_proj.weight"], x)
        hidden = [silu(g) * u for g, u in zip(gate, up, strict=True)]
    else:
        hidden = [gelu(u) for u in up]
    return times(w[at + "down_proj.weight"], hidden)


def logits(weights, tokens, config):
    """Logits at each position of one sequence; ``weights`` is the model's state_dict."""
    w = {name: rows_of(tensor) for name, tensor in weights.items()}
    xs = [w["embed_tokens.weight"][k] for k in tokens]
    base = config.rope_base
    if config.positions == "learned":
        xs, base = plus(xs, w["embed_positions.weight"][: len(xs)]), None
    for i in range(config.layers):
        at = f"layers.{i}."
        inner = [normalised(x, w[at + "input_layernorm.weight"], config.eps) for x in xs]
        own = {
            n.removeprefix(at + "self_attn."): v
            for n, v in w.items()
            if n.startswith(at + "self_attn.")
        }
        mix = getattr(attention, config.attention)
        xs = plus(
            xs,
            mix(
                own,
                inner,
                heads=config.heads,
                kv_heads=config.kv_heads or config.heads,
                depth=i,
                base=base,
            ),
        )
        inner = [normalised(x, w[at + "post_attention_layernorm.weight"], config.eps) for x in xs]
        xs = plus(xs, [feed_forward(w, at + "mlp.", x, config.ffn) for x in inner])
    return [times(w["lm_head.weight"], normalised(x, w["norm.weight"], config.eps)) for x in xs]
