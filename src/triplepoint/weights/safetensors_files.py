"""Listing and reading safetensors files of anybody's.

The header is checked by the safetensors library before any number is read: its length against the file,
offsets without gaps or overlaps, sizes against dtype and shape. The numbers are then read piece by piece,
not mapped: a mapping of a file larger than memory is refused by some systems, and its pages count as used.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from triplepoint.errors import CheckpointError
from triplepoint.weights.checkpoint import TensorEntry, is_bloated
from triplepoint.weights.saving import TIE

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
"""Name in the file -> name in torch."""

_PIECE = 2**22
"""Bytes read at a time: what reading a tensor takes besides the tensor."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor lies in its file."""

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int

    def pieces(self) -> Iterator[Tensor]:
        """Yield the numbers, flat and as stored, some MiB at a time; each is overwritten by the next."""
        left = math.prod(self.shape)
        most = _PIECE // self.dtype.itemsize
        buffer = torch.empty(min(left, most), dtype=self.dtype)
        with self.path.open("rb") as file:
            file.seek(self.start)
            while left:
                piece = buffer[: min(left, most)]
                if file.readinto(piece.view(torch.uint8).numpy()) != piece.nbytes:
                    raise CheckpointError(
                        f"{self.path} became shorter while it was read.\nWait until it is written, and try again."
                    )
                yield piece
                left -= len(piece)

    def read(self) -> Tensor:
        """Read it whole; floats below 32 bits are widened piece by piece, without a second copy."""
        narrow = self.dtype.is_floating_point and self.dtype.itemsize < 4
        whole = torch.empty(math.prod(self.shape), dtype=torch.float32 if narrow else self.dtype)
        done = 0
        for piece in self.pieces():
            whole[done : done + len(piece)] = piece
            done += len(piece)
        return whole.view(self.shape)


def list_safetensors(path: Path) -> tuple[list[TensorEntry], dict[str, Place]]:
    """Return the tensors of a file and where they lie; a name that our writer tied to another is one more.

    Raises:
        CheckpointError: If the file is cut or damaged.
    """
    header, start = _header(path)
    metadata = header.pop("__metadata__", None) or {}
    # the writer sorts by dtype; here layer 2 comes before layer 10
    names = sorted(header, key=_with_numbers)
    entries = {name: _entry(path, name, header[name]) for name in names}
    places = {
        name: Place(path, e.shape, getattr(torch, e.dtype), start + header[name]["data_offsets"][0])
        for name, e in entries.items()
        if not e.unreadable
    }
    ties = {
        name.removeprefix(TIE): first
        for name, first in metadata.items()
        if name.startswith(TIE) and first in entries and name.removeprefix(TIE) not in entries
    }
    entries |= {n: dataclasses.replace(entries[f], name=n, tied_to=f) for n, f in ties.items()}
    return list(entries.values()), places


def _header(path: Path) -> tuple[dict, int]:
    """Return the header and the offset of the numbers."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if is_bloated(length, path.stat().st_size):
                raise ValueError(f"its header of {length} bytes lists more than the file can hold")
            # numpy maps the file read-only, however large it is; nothing is read through it
            with safe_open(path, framework="np"):
                pass
            return json.loads(file.read(length)), 8 + length
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read as safetensors ({error}).\n"
            "It is cut, damaged or another kind of file: download or save it again."
        ) from error


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts digits as numbers."""
    parts = re.split(r"0*(\d+)", name)
    return [(len(p), p) if i % 2 else (0, p) for i, p in enumerate(parts)]


def _entry(path: Path, name: str, told: dict) -> TensorEntry:
    start, stop = told["data_offsets"]
    stored, shape = told["dtype"], tuple(told["shape"])
    reason = None
    if stored not in _DTYPES:
        reason = f"of dtype {stored}"
    elif stop - start != math.prod(shape) * getattr(torch, _DTYPES[stored]).itemsize:
        # the library checked a header in which a name comes once; a reader of JSON keeps the last of two
        reason = "listed twice with different sizes"
    return TensorEntry(
        name=name,
        shape=shape,
        dtype=_DTYPES.get(stored, stored),
        file=path,
        nbytes=stop - start,
        unreadable=reason,
    )
