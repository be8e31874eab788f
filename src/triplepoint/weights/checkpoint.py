"""A checkpoint as a list of tensors, each read when it is asked for."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from torch import Tensor

from triplepoint.errors import CheckpointError, unknown_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """One tensor of a checkpoint, as its file lists it; nothing of it has been read."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As torch spells it, e.g. ``bfloat16``."""
    file: Path
    nbytes: int
    """Bytes in the file."""
    tied_to: str | None = None
    """The first name of the same tensor, where this is another of its names."""
    part_of: str | None = None
    """The tensor that this one is the scale, table or zero point of."""
    scale: str | None = None
    """The tensor by which an 8-bit float has to be multiplied."""
    unreadable: str | None = None
    """Why it cannot be read as numbers, e.g. ``packed as GPTQ, 4 bits``; None where it can."""

    @property
    def read_bytes(self) -> int:
        """Bytes of what :meth:`Checkpoint.read` returns: 4 an element, or as in the file where that is more."""
        return max(4 * math.prod(self.shape), self.nbytes)


Read = Callable[[str], Tensor]
"""Name -> a copy of the tensor, floats below 32 bits as float32."""


class Checkpoint:
    """The tensors of one checkpoint: listed at once, read one at a time.

    Made by :func:`triplepoint.weights.open_checkpoint`.

    Attributes:
        path: What was opened.
        entries: Name -> :class:`TensorEntry`, in the order of the files.
        left_out: What the file holds besides weights, e.g. ``optimizer``, by its key.
        config: The model's ``config.json``, where the folder has one; else empty.
    """

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, TensorEntry],
        readers: Mapping[Path, Read],
        *,
        stored_names: Mapping[str, str] | None = None,
        left_out: tuple[str, ...] = (),
        config: Mapping[str, object] | None = None,
    ):
        self.path = path
        self.entries = dict(entries)
        self.left_out = left_out
        self.config = dict(config or {})
        self._readers = readers
        self._stored_names = stored_names or {}

    def read(self, name: str) -> Tensor:
        """Read one tensor onto the CPU: a copy, which may be written to.

        Floats below 32 bits become float32, exactly; an 8-bit float is multiplied by its scale where the
        checkpoint has one. float64, integers and booleans come as they are stored.

        Raises:
            UnknownNameError: If there is no such tensor.
            CheckpointError: If it is packed, damaged, or larger than this machine's memory.
        """
        if name not in self.entries:
            raise unknown_name("tensor", name, self.entries)
        entry = self.entries[self.entries[name].tied_to or name]
        if entry.unreadable:
            raise CheckpointError(
                f"{name} in {entry.file} is {entry.unreadable}, which is not read here.\n"
                "Save the model in bfloat16 with the library that packed it, and give that checkpoint."
            )
        if entry.read_bytes > physical_memory():
            raise CheckpointError(
                f"{name} in {entry.file} needs {entry.read_bytes / 2**30:.1f} GiB, more than the "
                f"{physical_memory() / 2**30:.1f} GiB of this machine.\n"
                "Use a larger machine, or check that the file is what it should be."
            )
        tensor = self._readers[entry.file](self._stored_names.get(entry.name, entry.name))
        return tensor if entry.scale is None else scaled(tensor, self.read(entry.scale))


def physical_memory() -> int:
    """Return the bytes of memory of this machine; a very large number where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 2**62


SMALL_LISTING = 2**20
"""Bytes that a header, pickle or index may always have: about 8,000 tensors."""


def is_bloated(listing: int, whole: int) -> bool:
    """Return whether a listing of tensors is out of proportion to its file.

    As Python objects an entry takes about twenty times its bytes, so that a file that is mostly listing would
    take a multiple of its size. In real files a listing is under a thousandth.

    Args:
        listing: Bytes of the header, pickle or index.
        whole: Bytes of the file, or of all files.
    """
    return listing > max(SMALL_LISTING, whole // 32)


def distinct(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken yet: with ``#2`` behind it, or ``#3``, where it is.

    Example:
        >>> distinct("a", {"a", "a#2"})
        'a#3'
    """
    numbered = (f"{name}#{number}" for number in itertools.count(2))
    return next(other for other in itertools.chain([name], numbered) if other not in taken)


BLOCK = 128
"""Side of the square blocks that share a scale in the 8-bit checkpoints of DeepSeek-V3 and its heirs."""


def scale_fits(shape: tuple[int, ...], scale: tuple[int, ...]) -> bool:
    """Return whether a scale of this shape is one number, one a row, or one a block of 128 x 128."""
    if math.prod(scale) == 1:
        return True
    if len(shape) != 2:
        return False
    rows, columns = shape
    return scale in {(rows,), (rows, 1), (-(-rows // BLOCK), -(-columns // BLOCK))}


def scaled(tensor: Tensor, scale: Tensor) -> Tensor:
    """Multiply in place by a scale that is one number, one a row, or one a block of 128 x 128.

    Example:
        >>> import torch
        >>> scaled(torch.ones(2, 3), torch.tensor([2.0, 5.0]))
        tensor([[2., 2., 2.],
                [5., 5., 5.]])
    """
    if scale.numel() == 1:
        return tensor.mul_(scale.reshape(()).item())
    if scale.numel() == len(tensor):
        return tensor.mul_(scale.reshape(-1, 1))
    for i, row in enumerate(scale):
        wide = row.repeat_interleave(BLOCK)[: tensor.shape[1]]
        tensor[i * BLOCK : (i + 1) * BLOCK].mul_(wide)
    return tensor
