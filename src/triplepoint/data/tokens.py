"""What is done to a row of token ids, piece by piece: checked, counted, summed, cut to windows."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import torch
from torch import Tensor

from triplepoint.errors import DataError, PlanError

# Tokens looked at in one go: 32 MiB as int64, so a memory-mapped file is never held whole.
_CHUNK = 1 << 22


def check_ids(tokens: Tensor, *, vocab: int, name: str) -> None:
    """Raise DataError unless ``tokens`` is a row of integers in ``[0, vocab)``; in chunks."""
    if tokens.ndim != 1 or tokens.is_floating_point() or tokens.is_complex():
        raise DataError(
            f"Tokens are a row of integer ids; {name} is {tokens.dtype} of shape "
            f"{list(tokens.shape)}.\n"
            "Pass `tokens.flatten().int()` if these are ids."
        )
    at_least(vocab=(vocab, 1))
    for number, part in enumerate(tokens.split(_CHUNK)):
        ids = part.cpu().numpy()
        # two reductions over the stored dtype; the mask only once something is wrong
        if ids.size and (ids.max() >= vocab or ids.min() < 0):
            place = int(np.flatnonzero((ids >= vocab) | (ids < 0))[0])
            raise DataError(
                f"Token id {int(ids[place])} at offset {number * _CHUNK + place} of {name} is "
                f"outside the vocabulary of {vocab} ids.\n"
                "Pass --vocab (vocab=...) with the size of the vocabulary the tokens were made with."
            )


def at_least(**numbers: tuple[int, int]) -> None:
    """Raise PlanError for the first ``name=(value, least)`` whose value is below its least.

    Example:
        >>> at_least(batch=(0, 1))
        Traceback (most recent call last):
        triplepoint.errors.PlanError: batch must be at least 1, got 0.
        Give a whole number of 1 or more.
    """
    for name, (value, least) in numbers.items():
        if value < least:
            raise PlanError(
                f"{name} must be at least {least}, got {value}.\n"
                f"Give a whole number of {least} or more."
            )


def take_windows(tokens: Tensor, starts: Tensor, length: int) -> Tensor:
    """Copy the windows that begin at ``starts``: shape ``[len(starts), length]``, int64.

    Example:
        >>> take_windows(torch.arange(9), torch.tensor([0, 5]), 3).tolist()
        [[0, 1, 2], [5, 6, 7]]
    """
    # unfold is a view, so that only the chosen windows are read from a mapped file
    return tokens.unfold(0, length, 1)[starts].long()


def counted_starts(seed: int, step: int, batch: int, possible: int) -> Tensor:
    """Return ``batch`` starts in ``[0, possible)`` that depend on ``(seed, step)`` alone."""
    # `step` is the counter's highest word: streams of different steps never meet. Raw words
    # are the part of numpy.random that stays the same in every version; the bias of the
    # remainder is below possible / 2**64.
    raw = np.random.Philox(key=seed, counter=[0, 0, 0, step]).random_raw(batch)
    return torch.from_numpy((raw % np.uint64(possible)).astype(np.int64))


def sha256_of(*splits: Tensor) -> str:
    """Return the SHA-256 of the tokens of all splits, one after another, as stored."""
    digest = hashlib.sha256()
    for part in itertools.chain.from_iterable(tokens.split(_CHUNK) for tokens in splits):
        digest.update(np.ascontiguousarray(part.cpu().numpy()))
    return digest.hexdigest()


def count_ids(tokens: Tensor, *, vocab: int) -> Tensor:
    """Count how often each id occurs: shape ``[vocab]``, float64; in chunks.

    Example:
        >>> count_ids(torch.tensor([0, 2, 2]), vocab=4).tolist()
        [1.0, 0.0, 2.0, 0.0]
    """
    counts = torch.zeros(vocab, dtype=torch.float64)
    for part in tokens.split(_CHUNK):
        counts += torch.bincount(part.cpu().long(), minlength=vocab)
    return counts
