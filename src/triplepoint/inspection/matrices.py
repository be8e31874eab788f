"""Which matrices a tensor is: unfolded, transposed, split, taken apart, or none, and then why.

Singular values do not change when a matrix is transposed, so the orientation matters only for what is called
rows, and for the axis along which q, k and v are split.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from triplepoint.inspection.sources import TensorInfo
from triplepoint.weights.checkpoint import distinct

_FLOATS = {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
           "float8_e4m3fnuz", "float8_e5m2fnuz"}  # fmt: skip
_EMBEDDING = re.compile(r"(^|[._])(wte|wpe|shared|\w*emb(ed(ding)?s?|_\w+)?)([._]|$)")
_MASK = re.compile(r"mask|\.bias$")
"""GPT-2 calls its causal mask, of shape [1, 1, context, context], ``attn.bias``."""
_EXPERTS = re.compile(r"(^|[._])experts?([._]|$)")
_FUSED = re.compile(
    r"(c_attn|qkv|qkv_proj|Wqkv|in_proj|in_proj_weight|query_key_value|attn_qkv)(\.weight)?$"
)
_BY_HEAD = ("gpt_neox", "bloom")
"""Model types whose ``query_key_value`` holds q, k and v of the first head, then of the second, and so on."""
_OTHER_ORDER = ("codegen",)
"""Model types that lay q, v and k out by blocks of the machine they were trained on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matrix:
    """A matrix of weights within a tensor."""

    name: str
    """The tensor's without ``.weight``; ``[q]`` or ``[3]`` behind it for a part."""
    kind: str
    """``linear``, ``conv``, ``embedding``, ``expert`` or ``matrix``; a part of q, k, v is ``linear``."""
    shape: tuple[int, int]
    take: Callable[[Tensor], Tensor]
    """The tensor -> this matrix, a view of it wherever that can be."""


def matrices_of(
    info: TensorInfo, *, split_qkv: bool, config: Mapping[str, Any], max_side: int
) -> list[Matrix] | str:
    """Return the matrices of a tensor, or why there are none.

    Convolutions are unfolded to [out, in / groups * kernel positions]; a 3-D tensor of experts is one matrix
    each; leading axes of length 1 are dropped.

    Args:
        info: The tensor.
        split_qkv: Whether to take fused q, k and v apart.
        config: The model's configuration, for the numbers of heads.
        max_side: Longest smaller side of a matrix that is measured.
    """
    reason = info.reason or _why_not(info)
    if reason:
        return reason
    name = info.name.removesuffix(".weight") or info.name
    shape = info.shape
    if len(shape) == 3 and _EXPERTS.search(info.name):
        found = [_expert(name, shape, index) for index in range(shape[0])]
    elif len(shape) > 2 and shape[0] > 1:
        found = [_unfolded(name, shape)] if _is_conv(info) else []
    else:
        found = _plain(info, name, split_qkv, config)
    if not found:
        return f"{len(shape)} axes, and neither a convolution's nor experts': which make a matrix is not known"
    return _too_small(found) or _too_large(found, max_side) or found


def distinctly_named(
    plan: Mapping[str, list[Matrix] | str],
) -> dict[str, list[Matrix] | str]:
    """Return matrices by tensor so that no two have one name: of ``a`` and ``a.weight`` the second keeps its ending."""
    taken: set[str] = set()
    named: dict[str, list[Matrix] | str] = {}
    for tensor, found in plan.items():
        if isinstance(found, str):
            named[tensor] = found
            continue
        named[tensor] = []
        for matrix in found:
            name = matrix.name
            if name in taken:
                ending = matrix.name.removeprefix(tensor.removesuffix(".weight"))
                name = distinct(f"{tensor}{ending}", taken)
            taken.add(name)
            named[tensor].append(dataclasses.replace(matrix, name=name))
    return named


def _why_not(info: TensorInfo) -> str | None:
    if math.prod(info.shape) == 0:
        return "empty"
    if len(info.shape) < 2:
        return "a single number" if math.prod(info.shape) == 1 else "a vector: it has no spectrum"
    if info.dtype not in _FLOATS:
        return f"of dtype {info.dtype}: not weights, or packed in a way that is not known"
    if len(info.shape) == 4 and info.shape[:2] == (1, 1) and _MASK.search(info.name):
        return "an attention mask, not weights"
    return None


def _is_conv(info: TensorInfo) -> bool:
    return info.kind == "conv" or (info.kind == "unknown" and info.name.endswith("weight"))


def _unfolded(name: str, shape: tuple[int, ...]) -> Matrix:
    rows, columns = shape[0], math.prod(shape[1:])
    return Matrix(name=name, kind="conv", shape=(rows, columns), take=lambda t: t.reshape(rows, -1))


def _expert(name: str, shape: tuple[int, ...], index: int) -> Matrix:
    return Matrix(name=f"{name}[{index}]", kind="expert", shape=shape[1:], take=lambda t: t[index])


def _plain(info: TensorInfo, name: str, split_qkv: bool, config: Mapping[str, Any]) -> list[Matrix]:
    if math.prod(info.shape[:-2]) != 1:
        return []
    rows, columns = info.shape[-2:]
    kind = info.kind if info.kind in ("linear", "embedding") else "linear"
    if info.kind == "unknown":
        kind = "embedding" if _EMBEDDING.search(info.name) else "matrix"
    turned = info.kind == "transposed" or _looks_transposed(info)
    if turned:
        whole = Matrix(
            name=name,
            kind="linear",
            shape=(columns, rows),
            take=lambda t: t.reshape(rows, columns).T,
        )
    else:
        whole = Matrix(
            name=name, kind=kind, shape=(rows, columns), take=lambda t: t.reshape(rows, columns)
        )
    parts = _split(whole, config) if split_qkv and _FUSED.search(info.name) else []
    return parts or [whole]


def _looks_transposed(info: TensorInfo) -> bool:
    """Return whether a fused projection is stored [in, 3 in], as transformers' Conv1D does."""
    rows, columns = info.shape[-2:]
    return bool(_FUSED.search(info.name)) and columns == 3 * rows


def _split(whole: Matrix, config: Mapping[str, Any]) -> list[Matrix]:
    """Return q, k and v as matrices [out, in]; none where it is not known which rows they are."""
    rows = _rows_of_qkv(whole, config)
    return [
        Matrix(
            name=f"{whole.name}[{part}]", kind="linear", shape=(len(index), whole.shape[1]),
            take=lambda t, index=index: _rows(whole.take(t), index),
        )
        for part, index in zip("qkv", rows, strict=False)
    ]  # fmt: skip


def _rows(matrix: Tensor, index: range | Tensor) -> Tensor:
    return matrix[index.start : index.stop] if isinstance(index, range) else matrix[index]


def _rows_of_qkv(whole: Matrix, config: Mapping[str, Any]) -> list[range | Tensor]:
    rows, columns = whole.shape
    heads = _first(config, "num_attention_heads", "n_head", "heads")
    shared = _first(config, "num_key_value_heads", "kv_heads") or heads
    if whole.name.endswith("query_key_value"):
        if config.get("model_type") not in _BY_HEAD or not heads or rows % (3 * heads):
            return []
        by_head = torch.arange(rows).view(heads, 3, -1)
        return [by_head[:, part].flatten() for part in range(3)]
    if config.get("model_type") in _OTHER_ORDER:
        return []
    size = _first(config, "head_dim") or (columns // heads if heads else None)
    q, kv = (heads * size, shared * size) if heads else (columns, columns)
    if q + 2 * kv != rows:
        return []
    return [range(q), range(q, q + kv), range(q + kv, rows)]


def _first(config: Mapping[str, Any], *names: str) -> int | None:
    found = (config.get(name) for name in names)
    return next((value for value in found if isinstance(value, int)), None)


def _too_small(matrices: list[Matrix]) -> str | None:
    return "a vector: one of its sides is 1" if min(matrices[0].shape) < 2 else None


def _too_large(matrices: list[Matrix], max_side: int) -> str | None:
    side = max(min(matrix.shape) for matrix in matrices)
    if side <= max_side:
        return None
    return (
        f"its smaller side, {side}, is over max_side={max_side}: its eigenvalues would take "
        f"{24 * side**2 / 2**30:.1f} GiB"
    )
