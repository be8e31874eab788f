"""Listing and reading what ``torch.save`` wrote, without running anything that the file asks for.

A ``.pt`` file is a zip archive: ``data.pkl`` says which tensors there are, one record each holds their
numbers. A pickle is a program. It is read opcode by opcode first (:mod:`triplepoint.weights.pickles`), and
refused unless all that it calls are the few functions that rebuild tensors; only then does
``torch.load(weights_only=True, mmap=True)`` see it.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from triplepoint.errors import CheckpointError
from triplepoint.weights.checkpoint import Read, TensorEntry, distinct, is_bloated
from triplepoint.weights.pickles import refuse_bombs, refuse_calls

_WEIGHTS_UNDER = ("state_dict", "model_state_dict", "model", "module")
"""Keys under which training scripts put the weights beside an optimiser."""
_DEPTH = 16
"""Dictionaries and lists within each other that are looked into."""
_OPTIMISER = {"state", "param_groups"}
"""Keys of every optimiser's state: its moments have the shapes of weights, and are none."""


def list_torch(path: Path) -> tuple[list[TensorEntry], Read, tuple[str, ...]]:
    """Return the tensors of a ``.pt``, ``.pth`` or ``.bin`` file, how to read them, and the keys left out.

    The file is mapped, not read. Tensors that share storage, offset, shape and stride are one.

    Raises:
        CheckpointError: If the file is damaged, in torch's format before 1.6, or asks for code to run.
    """
    _check_archive(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever a damaged pickle or record makes torch raise
        raise _damaged(path, _told(error)) from error
    tensors, left_out = _weights_of(loaded)
    if not tensors:
        held = "an optimiser's state" if _is_optimiser(loaded) else f"a {type(loaded).__name__}"
        raise CheckpointError(
            f"{path} holds no tensors (it holds {held}).\n"
            "Save the weights with torch.save(model.state_dict(), path)."
        )
    return _entries(path, tensors), lambda name: _copied(tensors[name]), left_out


def _copied(tensor: Tensor) -> Tensor:
    """Return a copy that does not lie in the mapped file; in float32 where that is wider."""
    narrow = tensor.is_floating_point() and tensor.dtype.itemsize < 4
    return tensor.to(torch.float32) if narrow else tensor.clone()


def _told(error: Exception) -> str:
    """Return what torch found wrong, without its advice to run the file all the same."""
    _, _, found = str(error).partition("WeightsUnpickler error:")
    return next(iter((found or str(error)).strip().splitlines()), type(error).__name__)


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read as a torch file ({why}).\n"
        "It is cut, damaged or another kind of file: download or save it again."
    )


def _check_archive(path: Path) -> None:
    """Refuse an archive that would unpack to more than its size, or whose pickle calls anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            names = [r.filename for r in records if r.filename.endswith("/data.pkl")]
            packed = [r.filename for r in records if r.compress_type != zipfile.ZIP_STORED]
            size = path.stat().st_size
            if packed or sum(r.file_size for r in records) > size:
                raise _damaged(path, "it unpacks to more than its size, which torch never writes")
            if any(r.filename.endswith("/constants.pkl") for r in records):
                raise CheckpointError(
                    f"{path} is a TorchScript program, not weights: reading it would run it.\n"
                    "Load it with torch.jit.load and save its state_dict with torch.save."
                )
            if len(names) != 1:
                raise _damaged(path, f"an archive with {len(names)} data.pkl")
            if is_bloated(archive.getinfo(names[0]).file_size, size):
                raise _damaged(path, "its data.pkl lists more than the file can hold")
            pickle = archive.read(names[0])
    except CheckpointError:
        raise
    except (
        Exception
    ) as error:  # zipfile lets through whatever a damaged directory makes it stumble on
        raise _damaged(path, str(error) or type(error).__name__) from error
    refuse_calls(path, pickle)
    refuse_bombs(path, pickle)


def _weights_of(loaded: object) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors under their dotted names, and what was left out."""
    if isinstance(loaded, Tensor):
        return {"tensor": loaded.detach()}, ()
    if isinstance(loaded, Mapping) and not any(isinstance(v, Tensor) for v in loaded.values()):
        key = next((k for k in _WEIGHTS_UNDER if isinstance(loaded.get(k), Mapping)), None)
        if key is not None:
            beside = tuple(str(k) for k in loaded if k != key)
            tensors, left_out = _weights_of(loaded[key])
            return tensors, beside + left_out
    flat = list(_flattened(loaded, "", _DEPTH))
    tensors = {}
    for name, value in flat:
        if isinstance(value, Tensor):
            # {"a": {"b": ...}, "a.b": ...} gives one name twice
            tensors[distinct(name, tensors)] = value.detach()
    return tensors, tuple(name for name, value in flat if not isinstance(value, Tensor) and name)


def _flattened(value: object, name: str, depth: int) -> list[tuple[str, object]]:
    """Return the tensors in a value under dotted names, and what holds none under its own."""
    if not isinstance(value, Mapping | list | tuple) or not depth or _is_optimiser(value):
        return [(name, value)]
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    prefix = f"{name}." if name else ""
    found = [pair for key, v in items for pair in _flattened(v, f"{prefix}{key}", depth - 1)]
    return found if not name or any(isinstance(v, Tensor) for _, v in found) else [(name, value)]


def _is_optimiser(value: object) -> bool:
    return isinstance(value, Mapping) and value.keys() >= _OPTIMISER


def _entries(path: Path, tensors: Mapping[str, Tensor]) -> list[TensorEntry]:
    first: dict[tuple, str] = {}
    entries = []
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        tied_to = first.setdefault(key, name) if tensor.numel() else name
        size = tensor.numel() * tensor.dtype.itemsize
        entries.append(
            TensorEntry(
                name=name,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                file=path,
                nbytes=size,
                tied_to=None if tied_to == name else tied_to,
                unreadable=_why_unreadable(tensor, size),
            )
        )
    return entries


def _why_unreadable(tensor: Tensor, size: int) -> str | None:
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return "stored without its numbers" if tensor.is_meta else "not a plain dense tensor"
    stored = tensor.untyped_storage().nbytes()
    if size > stored:
        return f"a view of {math.prod(tensor.shape)} elements into {stored} bytes"
    return None
