"""From raw tokens to train, validation and report: by place in one text, or by file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

CONTIGUOUS = "first 90 % train, next 5 % validation, last 5 % report"
"""How :func:`split_contiguous` splits, in words for a source sentence."""

BY_FILE = "split by file: of every 20 the 10th is validation, the 20th report"
"""How :func:`split_by_file` splits, in words for a source sentence."""

# One file in 20 per held-out split: the 5 % of the contiguous split
_PERIOD, _VALIDATION, _REPORT = 20, 9, 19

FEWEST_FILES = _PERIOD
"""Files from which a split by file leaves none of the splits empty."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splits:
    """What a source hands over: tokens in three splits, and what they are.

    ``one_in`` says that the smallest split is one token in so many by construction, so that an
    error can say how many are needed; None where the files decide.
    """

    train: Tensor
    validation: Tensor
    report: Tensor
    vocab: int
    unit: str
    source: str
    one_in: int | None = None
    python: str | None = None


def split_contiguous(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cut one text in order: 90 % train, then 5 % validation, then 5 % report.

    The held-out parts are ``len // 20`` tokens each, train is the rest; all are views.

    Example:
        >>> [part.tolist() for part in split_contiguous(torch.arange(21))][1:]
        [[19], [20]]
    """
    held = tokens.numel() // 20
    train = tokens.numel() - 2 * held
    return tokens[:train], tokens[train : train + held], tokens[train + held :]


def split_by_file(files: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Spread whole files over the splits, in order: index 9 of 20 validation, 19 report.

    A text is then held out as a whole, rather than the end of a text whose beginning was
    trained on.

    Args:
        files: Tokens of each file, in an order that does not depend on the machine.
    """
    places = [index % _PERIOD for index in range(len(files))]
    train = [f for f, place in zip(files, places, strict=True) if place % 10 != 9]
    validation = [f for f, place in zip(files, places, strict=True) if place == _VALIDATION]
    report = [f for f, place in zip(files, places, strict=True) if place == _REPORT]
    return torch.cat(train), torch.cat(validation), torch.cat(report)


def split_documents(documents: Sequence[Tensor]) -> tuple[tuple[Tensor, Tensor, Tensor], str]:
    """Split by file where there are enough files, else as one text; and say which."""
    if len(documents) >= FEWEST_FILES:
        return split_by_file(documents), BY_FILE
    return split_contiguous(torch.cat(list(documents))), CONTIGUOUS
