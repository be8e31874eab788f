"""What a metric declares about itself, so that nothing else has to know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from torch import Tensor

State = dict[str, Tensor]
"""Sums over tensors, by name. States add up entry by entry: batches, accumulation steps and ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """Numbers about one kind of tensor, gathered batch by batch."""

    name: str
    update: Callable[[Tensor], State]
    """One tensor -> sums over it; states of several batches or ranks are added."""
    compute: Callable[[State], dict[str, float]]
    """Summed state -> named values, e.g. ``{"saturation@2": 0.41}``."""
    reads: Literal["activation", "pre_activation", "logits"]
    unit: str
    definition: str
    """What the value is, as a report prints it: one sentence with the formula."""
    source: str
    """Where the definition comes from, as a report prints it."""


def add_states(first: State | None, second: State) -> State:
    """Return the entry-wise sum of two states; ``first`` may be None, for the empty sum."""
    if first is None:
        return second
    return {name: first[name] + second[name] for name in second}
