"""Token files as nanoGPT's ``prepare.py`` writes them: raw uint16, no header."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triplepoint.data.splits import CONTIGUOUS, Splits, split_contiguous
from triplepoint.data.text import unreadable
from triplepoint.data.tokens import check_ids
from triplepoint.errors import DataError

GPT2_VOCAB = 50304
"""50257 ids of the GPT-2 BPE, rounded up to a multiple of 64 as nanoGPT's models are."""

_BYTES_PER_ID = 2


def bin_splits(path: Path, *, vocab: int = GPT2_VOCAB) -> Splits:
    """Map a ``.bin`` file, or a folder with ``train.bin`` and ``val.bin``, into memory.

    A single file is split 90 / 5 / 5 in order; ``val.bin`` is cut in halves, the first for
    validation, the second for the report. Every id is checked once, in chunks; the file is
    never held as a whole.

    Args:
        path: The file or the folder.
        vocab: Number of ids, 50304 as in nanoGPT for the GPT-2 BPE.

    Raises:
        DataError: If a file is missing, empty, not made of 16-bit ids, or has ids beyond ``vocab``;
            or if ``val.bin`` is longer than ``train.bin``.
    """
    if path.is_dir():
        return _pair_splits(path, vocab)
    train, validation, report = split_contiguous(map_ids(path, vocab=vocab))
    return Splits(
        train=train,
        validation=validation,
        report=report,
        vocab=vocab,
        unit="token",
        source=f"uint16 tokens of {path.name}; {CONTIGUOUS}",
        one_in=20,
    )


def map_ids(path: Path, *, vocab: int) -> Tensor:
    """Map one file of little-endian uint16 ids, shape ``[size / 2]``, and check it.

    Raises:
        DataError: As :func:`bin_splits`.
    """
    if path.is_dir():
        raise DataError(
            f"{path} is a folder, not a file of token ids.\n"
            "Pass a .bin file, or a folder that holds train.bin and val.bin."
        )
    try:
        size = path.stat().st_size
        if size == 0 or size % _BYTES_PER_ID:
            raise _odd(path, size)
        ids = _tensor_of(np.memmap(path, dtype="<u2", mode="r"))
    except OSError as error:
        raise unreadable(path, error) from error
    check_ids(ids, vocab=vocab, name=str(path))
    return ids


def _pair_splits(folder: Path, vocab: int) -> Splits:
    missing = [name for name in ("train.bin", "val.bin") if not (folder / name).exists()]
    if missing:
        raise DataError(
            f"The folder {folder} has no {' and no '.join(missing)}.\n"
            "Pass a folder with both train.bin and val.bin, or a single .bin file."
        )
    train = map_ids(folder / "train.bin", vocab=vocab)
    held = map_ids(folder / "val.bin", vocab=vocab)
    if held.numel() > train.numel():
        raise DataError(
            f"val.bin of {folder} is longer than train.bin: {held.numel()} against "
            f"{train.numel()} tokens.\n"
            "Check whether the two files were swapped."
        )
    half = held.numel() // 2
    return Splits(
        train=train,
        validation=held[:half],
        report=held[half:],
        vocab=vocab,
        unit="token",
        source=f"uint16 tokens of {folder.resolve().name}: train.bin train, first half of val.bin "
        "validation, second half report",
    )


def _tensor_of(mapped: np.memmap) -> Tensor:
    # torch warns that the memory is read-only, which is what keeps the file safe. A writable
    # private mapping would not warn, but Linux refuses one that is larger than the memory.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(mapped)


def _odd(path: Path, size: int) -> DataError:
    if size == 0:
        return DataError(f"The file {path} is empty.\nPass a .bin file of uint16 token ids.")
    return DataError(
        f"{path} has {size} bytes, an odd number; a file of uint16 token ids has two per token.\n"
        "Write it again (the copy may be cut short), or rename it if it is text."
    )
