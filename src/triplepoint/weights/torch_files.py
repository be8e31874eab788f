"""Listing and reading what ``torch.save`` wrote, without running anything that the file asks for.

A ``.pt`` file is a zip archive: ``data.pkl`` says which tensors there are, one record each holds their
numbers. A pickle is a program. It is read here opcode by opcode first, and refused unless all that it
calls are the few functions that rebuild tensors; only then does ``torch.load(weights_only=True,
mmap=True)`` see it.
"""

from __future__ import annotations

import math
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from triplepoint.errors import CheckpointError
from triplepoint.weights.checkpoint import Read, TensorEntry, is_bloated

_HARMLESS = {
    "collections OrderedDict", "torch Size", "torch device", "torch Tensor",
    "torch.nn.parameter Parameter", "torch.storage UntypedStorage", "torch.storage TypedStorage",
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state",
    "torch._tensor _rebuild_from_type_v2", "torch.serialization _get_layout",
}  # fmt: skip
"""What a state dict needs. Fewer than torch allows: ``bytearray`` there takes any size for a few bytes."""
_STORAGE = re.compile(r"torch \w+Storage")
_WEIGHTS_UNDER = ("state_dict", "model_state_dict", "model", "module")
"""Keys under which training scripts put the weights beside an optimiser."""
_DEPTH = 4
"""Dictionaries in dictionaries that are looked into."""


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
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise _damaged(path, first) from error
    tensors, left_out = _weights_of(loaded)
    if not tensors:
        raise CheckpointError(
            f"{path} holds no tensors (it holds a {type(loaded).__name__}).\n"
            "Save the weights with torch.save(model.state_dict(), path)."
        )
    return _entries(path, tensors), lambda name: _copied(tensors[name]), left_out


def _copied(tensor: Tensor) -> Tensor:
    """Return a copy that does not lie in the mapped file; in float32 where that is wider."""
    narrow = tensor.is_floating_point() and tensor.dtype.itemsize < 4
    return tensor.to(torch.float32) if narrow else tensor.clone()


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


def refuse_calls(path: Path, pickle: bytes) -> None:
    """Refuse a pickle that calls anything but what rebuilds tensors; nothing of it is run.

    Raises:
        CheckpointError: Naming what it would call.
    """
    for called in calls_of(pickle):
        if called not in _HARMLESS and not _STORAGE.fullmatch(called) and not _is_dtype(called):
            raise CheckpointError(
                f"{path} asks to call {called.replace(' ', '.')} when it is loaded; weights do not need "
                "that, so it was refused and nothing was run.\n"
                "If you trust its author, load it with torch.load(path, weights_only=False) on a machine "
                "you can lose, and save the state_dict alone as safetensors."
            )


def calls_of(pickle: bytes) -> Iterator[str]:
    """Yield ``module name`` of every global that a pickle names, up to where it is damaged, running nothing.

    Example:
        >>> import pickle
        >>> list(calls_of(pickle.dumps({"size": complex(1, 2)}, protocol=2)))
        ['__builtin__ complex']
    """
    try:
        for code, argument, _ in pickletools.genops(pickle):
            if code.name in ("GLOBAL", "INST"):
                yield str(argument)
            elif code.name == "STACK_GLOBAL":
                # its names lie on the stack, out of sight of a reader that does not run it
                yield "an unnamed global"
    except Exception:  # a damaged pickle: torch says what is wrong with it
        return


def _is_dtype(called: str) -> bool:
    module, _, name = called.partition(" ")
    return module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)


def _weights_of(loaded: object) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors under their dotted names, and what was left out."""
    if not isinstance(loaded, Mapping):
        return {}, ()
    for _ in range(_DEPTH):
        key = next((k for k in _WEIGHTS_UNDER if isinstance(loaded.get(k), Mapping)), None)
        if key is None or any(isinstance(v, Tensor) for v in loaded.values()):
            break
        beside = tuple(str(k) for k in loaded if k != key)
        tensors, left_out = _weights_of(loaded[key])
        return tensors, beside + left_out
    flat = dict(_flattened(loaded, "", _DEPTH))
    left_out = tuple(name for name, value in flat.items() if not isinstance(value, Tensor))
    return {name: t.detach() for name, t in flat.items() if isinstance(t, Tensor)}, left_out


def _flattened(values: Mapping, prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and depth > 1:
            yield from _flattened(value, f"{prefix}{key}.", depth - 1)
        else:
            yield f"{prefix}{key}", value


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
