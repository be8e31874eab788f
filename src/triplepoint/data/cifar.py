"""CIFAR-10 and CIFAR-100 in their binary form: records of labels and 3 x 32 x 32 bytes.

The Python form holds pickles, which can run code when they are read; it is refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triplepoint.data.text import read_bytes
from triplepoint.errors import DataError

PIXELS = 3 * 32 * 32

_KINDS = {  # classes: train files, test file, bytes of labels per record; the last is the one used
    10: (tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", 1),
    100: (("train.bin",), "test.bin", 2),
}
_PICKLES = ("data_batch_1", "batches.meta", "meta")

Labelled = tuple[Tensor, Tensor]


def read_cifar(folder: Path) -> tuple[Labelled, Labelled, int]:
    """Read a folder of either data set, or one that holds it under its usual name.

    Returns:
        Train and test, each images ``[sample, 3, 32, 32]`` ``uint8`` (red, green, blue) and labels ``int64``;
        and the number of classes, 10 or 100 (the fine ones).

    Raises:
        DataError: If a file is missing, cut, or of another kind.
    """
    for below in (folder, folder / "cifar-10-batches-bin", folder / "cifar-100-binary"):
        for classes, (train, test, width) in _KINDS.items():
            if not any((below / name).is_file() for name in (*train, test)):
                continue
            missing = [name for name in (*train, test) if not (below / name).is_file()]
            if missing:
                raise DataError(
                    f"{below} lacks {', '.join(missing)} of CIFAR-{classes}.\nUnpack the archive again."
                )
            parts = [_read(below / name, width, classes) for name in train]
            images, labels = (torch.cat(part) for part in zip(*parts, strict=True))
            return (images, labels), _read(below / test, width, classes), classes
    raise DataError(f"{folder} {_what_it_is(folder)}.\n{_REMEDY}")


_REMEDY = (
    "Unpack cifar-10-binary.tar.gz or cifar-100-binary.tar.gz ('binary version (suitable for C programs)' on "
    "https://www.cs.toronto.edu/~kriz/cifar.html) and give the folder; nothing is downloaded."
)


def _what_it_is(folder: Path) -> str:
    if not folder.exists():
        return "does not exist"
    if not folder.is_dir():
        return "is a file, not a folder of CIFAR in binary form"
    below = [folder, *(p for p in folder.iterdir() if p.is_dir())]
    if any((place / name).is_file() for place in below for name in _PICKLES):
        return "holds CIFAR's Python version: pickles, which can run code when they are read"
    return "holds no CIFAR in binary form"


def _read(path: Path, width: int, classes: int) -> Labelled:
    data = np.frombuffer(read_bytes(path), dtype=np.uint8)
    record = width + PIXELS
    if not len(data) or len(data) % record:
        raise DataError(
            f"{path} has {len(data)} bytes, no whole number of records of {record}.\n"
            "The file is cut or not CIFAR's; unpack the archive again."
        )
    rows = torch.from_numpy(data.reshape(-1, record).copy())
    labels = rows[:, width - 1].long()
    worst = int(labels.max())
    if worst >= classes:
        raise DataError(
            f"{path} has the label {worst}, but CIFAR-{classes} has classes 0 to {classes - 1}.\n"
            "The file is damaged or not CIFAR's; unpack the archive again."
        )
    return rows[:, width:].reshape(-1, 3, 32, 32).contiguous(), labels
