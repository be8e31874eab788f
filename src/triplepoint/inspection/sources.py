"""Where tensors come from: a checkpoint on disk or a live model, told in the same words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triplepoint.weights import Checkpoint, TensorEntry, open_checkpoint

Kind = str
"""``linear``, ``transposed`` (stored [in, out], as transformers' Conv1D), ``conv``, ``embedding`` or ``unknown``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """One tensor, before it is read."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As torch spells it, without ``torch.``."""
    kind: Kind = "unknown"
    reason: str | None = None
    """Why it is not a matrix of weights, where that is known already."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Tensors to inspect, read one at a time."""

    name: str
    tensors: list[TensorInfo]
    read: Callable[[str], Tensor]
    """Name -> a copy of the tensor on the CPU, in float32 or better, which may be written to."""
    config: Mapping[str, Any]
    """What the model's configuration says of heads, for splitting q, k and v."""
    left_out: tuple[str, ...] = ()
    step: int | None = None


def source_of(given: str | Path | Checkpoint | nn.Module, *, step: int | None = None) -> Source:
    """Return the tensors of a path, of an opened checkpoint or of a live model."""
    if isinstance(given, nn.Module):
        return _of_model(given, step)
    checkpoint = given if isinstance(given, Checkpoint) else open_checkpoint(given)
    return Source(
        name=str(checkpoint.path),
        tensors=[_of_entry(entry) for entry in checkpoint.entries.values()],
        read=checkpoint.read,
        config=checkpoint.config,
        left_out=checkpoint.left_out,
        step=step,
    )


def _of_entry(entry: TensorEntry) -> TensorInfo:
    reason = entry.unreadable
    if entry.tied_to:
        reason = f"the same tensor as {entry.tied_to}"
    elif entry.part_of:
        reason = f"a scale, table or zero point of {entry.part_of}"
    return TensorInfo(name=entry.name, shape=entry.shape, dtype=entry.dtype, reason=reason)


def _of_model(model: nn.Module, step: int | None) -> Source:
    tensors = dict(_named_tensors(model))
    first: dict[tuple, str] = {}
    infos = []
    for name, (module, tensor, buffer) in tensors.items():
        reason = "a buffer, not trained" if buffer else None
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and not tensor.is_meta and first.setdefault(key, name) != name:
            reason = f"the same tensor as {first[key]}"
        infos.append(
            TensorInfo(
                name=name,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                kind=_kind_of(module, name),
                reason="on the meta device: it has no numbers" if tensor.is_meta else reason,
            )
        )
    config = getattr(model, "config", None)
    return Source(
        name=type(model).__name__,
        tensors=infos,
        read=lambda name: _copied(tensors[name][1]),
        config=config if isinstance(config, Mapping) else getattr(config, "__dict__", {}),
        step=step,
    )


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, tuple[nn.Module, Tensor, bool]]]:
    for path, module in model.named_modules(remove_duplicate=False):
        for held, buffer in ((module._parameters, False), (module._buffers, True)):
            for name, tensor in held.items():
                if tensor is not None:
                    yield f"{path}.{name}" if path else name, (module, tensor.detach(), buffer)


def _kind_of(module: nn.Module, name: str) -> Kind:
    if not name.endswith("weight"):
        return "unknown"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    if isinstance(module, nn.modules.conv._ConvNd):
        return "conv"
    if isinstance(module, nn.Linear):
        return "linear"
    # transformers' class, told by its name and its attribute so that transformers is not needed
    return (
        "transposed" if type(module).__name__ == "Conv1D" and hasattr(module, "nf") else "unknown"
    )


def _copied(tensor: Tensor) -> Tensor:
    if hasattr(tensor, "full_tensor"):  # sharded over ranks
        tensor = tensor.full_tensor()
    narrow = tensor.is_floating_point() and tensor.dtype.itemsize < 4
    return tensor.to("cpu", torch.float32 if narrow else tensor.dtype, copy=True)
