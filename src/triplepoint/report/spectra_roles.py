"""Where a matrix stands in its model, read off its name: block, and what it does there."""

from __future__ import annotations

import re
from collections.abc import Sequence

ROLES = {
    "embedding": "#0072B2", "qkv": "#E69F00", "q": "#D55E00", "k": "#E69F00", "v": "#CC79A7",
    "attention out": "#9c6644", "mlp in": "#009E73", "mlp out": "#56B4E9", "experts": "#7a5cc4",
    "head": "#8a939d", "other": "#5b636d",
}  # fmt: skip
"""Role -> its colour in every picture; ``qkv`` and ``k`` share one, since a model has the one or the other."""
SYMBOLS = {
    "embedding": "star", "qkv": "circle", "q": "circle", "k": "square", "v": "diamond",
    "attention out": "triangle-up", "mlp in": "triangle-down", "mlp out": "x", "experts": "hexagon",
    "head": "pentagon", "other": "cross",
}  # fmt: skip

_BLOCK = re.compile(r"(?:^|[._])(\d+)(?=[._]|$)")
_LEAVES = (
    ("qkv", r"(c_attn|qkv|qkv_proj|wqkv|in_proj|in_proj_weight|query_key_value|attn_qkv)$"),
    ("q", r"\[q\]$|(^|[._])(q|query|wq|q_proj|to_q|q_lin)$"),
    ("k", r"\[k\]$|(^|[._])(k|key|wk|k_proj|to_k|k_lin)$"),
    ("v", r"\[v\]$|(^|[._])(v|value|wv|v_proj|to_v|v_lin)$"),
    ("attention out", r"(o_proj|out_proj|to_out|out_lin|wo|to_out\.0|(attn|attention)\.(c_proj|proj|dense|output\.dense))$"),
    ("head", r"(^|[._])(lm_head|head|heads|score|classifier|output_projection)$"),
    ("mlp in", r"(c_fc|fc1|fc|up|gate|up_proj|gate_proj|w1|w3|wi|wi_0|wi_1|lin1|linear1|intermediate\.dense|dense_h_to_4h)$"),
    ("mlp out", r"(fc2|down|down_proj|w2|wo|lin2|linear2|(mlp|ffn|feed_forward)\.(c_proj|proj|out)|output\.dense|dense_4h_to_h)$"),
)  # fmt: skip
"""Role -> end of a name, in lower case; the first that fits counts."""
_ROLE = [(role, re.compile(pattern)) for role, pattern in _LEAVES]


def role_of(name: str, kind: str) -> str:
    """Return what a matrix does, as its kind and the usual names tell it; ``other`` where they do not.

    Example:
        >>> [role_of(name, "matrix") for name in ("h.0.attn.c_attn[q]", "h.0.attn.c_proj", "h.0.mlp.c_proj")]
        ['q', 'attention out', 'mlp out']
    """
    if kind == "embedding":
        return "embedding"
    if kind == "expert":
        return "experts"
    return next((role for role, pattern in _ROLE if pattern.search(name.lower())), "other")


def block_of(name: str) -> int | None:
    """Return the number of the block that a matrix is in; None for one outside of all.

    Example:
        >>> block_of("model.layers.11.mlp.experts.3.up_proj"), block_of("wte")
        (11, None)
    """
    found = _BLOCK.search(name.partition("[")[0])
    return int(found[1]) if found else None


def depths_of(names: Sequence[str], kinds: Sequence[str]) -> list[int]:
    """Return where each matrix stands: its block's number, -1 for embeddings outside all, one beyond for the rest.

    A checkpoint lists names in any order, so that the order tells nothing; where no name has a block, it is all
    there is.

    Example:
        >>> depths_of(["h.0.mlp.c_fc", "h.1.mlp.c_fc", "lm_head", "wte"], ["matrix"] * 3 + ["embedding"])
        [0, 1, 2, -1]
        >>> depths_of(["fc1", "fc2"], ["matrix", "matrix"])
        [0, 1]
    """
    blocks = [block_of(name) for name in names]
    numbers = [block for block in blocks if block is not None]
    if not numbers:
        return list(range(len(names)))
    beyond = max(numbers) + 1
    return [
        (-1 if kind == "embedding" else beyond) if block is None else block
        for block, kind in zip(blocks, kinds, strict=True)
    ]
