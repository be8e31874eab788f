"""Weights that a quantising library packed: told by the tensors that lie beside them.

Nothing is unpacked here. A packed tensor is named with its format, its scales and tables are filed under
it, and an 8-bit float gets its scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from triplepoint.weights.checkpoint import TensorEntry, scale_fits

# What the packed tensor's name ends with, what the one beside it does, and the format.
# First match wins; the one beside it is told by its beginning, so that `X.absmax` and
# `X.quant_state.bitsandbytes__nf4` both count.
_FORMATS = [
    (".weight", ".weight.quant_state.bitsandbytes__nf4", "bitsandbytes NF4, 4 bits"),
    (".weight", ".weight.quant_state.bitsandbytes__fp4", "bitsandbytes FP4, 4 bits"),
    (".weight", ".weight.absmax", "bitsandbytes, 4 bits"),
    (".weight", ".SCB", "bitsandbytes LLM.int8"),
    (".qweight", ".g_idx", "GPTQ"),
    (".qweight", ".qzeros", "AWQ or GPTQ"),
    (".weight_packed", ".weight_scale", "compressed-tensors"),
    ("_blocks", "_scales", "MXFP4, 4 bits"),
]
_COMPANIONS = (".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".SCB", ".weight_format",
               ".qzeros", ".scales", ".g_idx", ".weight_shape", ".weight_zero_point",
               ".weight_scale", "_scales")  # fmt: skip
_SCALES = ("_scale_inv", "_scale")
"""Appended to the name of an 8-bit float: the number, row or blocks it is to be multiplied by."""


def with_packing(entries: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    """Return the entries, the packed ones marked with their format and their companions with whose they are."""
    marked = dict(entries)
    for name, entry in entries.items():
        if entry.dtype.startswith("float8"):
            marked |= _scaled_float(entry, entries)
        elif found := _format_of(name, entries):
            stem, told = found
            marked[name] = dataclasses.replace(entry, unreadable=f"packed as {told}")
            marked |= {
                other: dataclasses.replace(entries[other], part_of=name)
                for other in entries
                if other != name and _is_companion(other, name, stem)
            }
    return marked


def _format_of(name: str, entries: Mapping[str, TensorEntry]) -> tuple[str, str] | None:
    """Return (stem of the names, format) where ``name`` is a packed tensor."""
    if entries[name].dtype not in ("uint8", "int8", "int32"):
        return None
    for ending, beside, told in _FORMATS:
        stem = name.removesuffix(ending)
        if stem != name and stem + beside in entries:
            return stem, told
    return None


def _is_companion(other: str, name: str, stem: str) -> bool:
    return other.startswith(f"{name}.") or any(other == stem + ending for ending in _COMPANIONS)


def _scaled_float(entry: TensorEntry, entries: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    scale = next((entries[entry.name + s] for s in _SCALES if entry.name + s in entries), None)
    if scale is None:
        return {}
    fits = scale_fits(entry.shape, scale.shape)
    told = f"an 8-bit float whose scale of shape {list(scale.shape)} is of an unknown kind"
    return {
        entry.name: dataclasses.replace(
            entry, scale=scale.name if fits else None, unreadable=None if fits else told
        ),
        scale.name: dataclasses.replace(scale, part_of=entry.name),
    }
