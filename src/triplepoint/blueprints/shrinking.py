"""The same model at a k-th of its size: narrower, as deep."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from triplepoint.blueprints._base import AS_IT_IS, Blueprint, Shape
from triplepoint.blueprints.callables import CallableBlueprint
from triplepoint.errors import PlanError, TriplepointError
from triplepoint.models import parameter_counts

LEAST_WIDTH = 16
"""Below it a norm has so few features that its statistics, and what replaces it, are other things."""
UNIT = 8
"""Widths between whole heads are multiples of it."""
CLOSE = 1.15
"""Whole heads of the original size are taken where they come so near to k."""
FAR = 1.5
"""A size further from 1/k than this, as a factor, is no answer to what was asked."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shrunk:
    """A model's configuration at another width."""

    blueprint: Blueprint
    """Of the narrower model."""
    changes: Mapping[str, Any]
    """Fields of the original's configuration that differ, those that differed before included."""
    width: int
    """Features of a token."""
    params: Mapping[str, int]
    """Of the narrower model, by convention."""
    original: Mapping[str, int]
    """Of the original."""

    @property
    def k(self) -> float:
        """How many times fewer parameters it has, embeddings aside."""
        return self.original["params_non_embedding"] / self.params["params_non_embedding"]


def shrink(blueprint: Blueprint, k: float, shape: Shape = AS_IT_IS) -> Shrunk:
    """Return the model at the width whose parameters, embeddings aside, come nearest to a k-th; depth is kept.

    Widths are multiples of the original's head size where one comes within 15 % of k, else of 8 features. NOT muP:
    initial weights, residual scales and rates are what the model has at that width. An output head that is not tied to the
    embedding counts, as in :func:`~triplepoint.models.parameter_counts`.

    Args:
        blueprint: Of the original: a named size, a configuration of ``transformers``, or ``module:callable`` with
            a keyword for its width.
        k: How many times smaller, above 1.
        shape: What the model takes from its data.

    Returns:
        The configuration; ``.k`` is what was reached.

    Raises:
        PlanError: If k is not above 1, the model has no width to choose, or nothing of at least 16 features comes near.

    Example:
        >>> from triplepoint.blueprints import blueprint_of
        >>> small = shrink(blueprint_of("gpt2-0.8m"), 16)
        >>> small.changes, round(small.k)  # a quarter of the width: a 16th of the weights
        ({'width': 32, 'heads': 1}, 16)
    """
    if not (math.isfinite(k) and k > 1):
        raise PlanError(f"k must be above 1, got {k}: a miniature is smaller.\nTry 4 or 16.")
    own, count = blueprint.proportions(), functools.cache(lambda width: _count(blueprint, width, shape))  # fmt: skip
    original = _counts(blueprint, shape)
    target = original["params_non_embedding"] / k
    grids = (own.head_size, UNIT)
    for unit, close in zip(grids, (CLOSE, FAR), strict=True):
        widths = [w for w in range(unit, own.width, unit) if w >= LEAST_WIDTH and _possible(blueprint, w)]  # fmt: skip
        width = _nearest(widths, count, target)
        if width is not None and 1 / close <= count(width) / target <= close:
            changes = own.at(width)
            small = blueprint.changed(changes)
            return Shrunk(
                blueprint=small, changes=getattr(small, "changes", changes), width=width,
                params=_counts(small, shape), original=original,
            )  # fmt: skip
    raise _too_small(blueprint, k, widths, count, original["params_non_embedding"])


def _counts(blueprint: Blueprint, shape: Shape) -> dict[str, int]:
    """Count parameters without memory for them where nobody else's code builds the model."""
    device = "cpu" if isinstance(blueprint, CallableBlueprint) else "meta"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        return parameter_counts(blueprint.build(shape))


def _count(blueprint: Blueprint, width: int, shape: Shape) -> int:
    return _counts(blueprint.changed(blueprint.proportions().at(width)), shape)[
        "params_non_embedding"
    ]


def _possible(blueprint: Blueprint, width: int) -> bool:
    try:
        blueprint.changed(blueprint.proportions().at(width))
    except TriplepointError:
        return False
    return True


def _nearest(widths: list[int], count: Callable[[int], int], target: float) -> int | None:
    """Return the width whose count is nearest to the target, as a ratio: few are built, for counts rise with it."""
    low, high = 0, len(widths)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if count(widths[middle]) < target else (low, middle)
    beside = widths[max(low - 1, 0) : low + 1]
    return min(beside, key=lambda w: abs(math.log(count(w) / target)), default=None)


def _too_small(
    blueprint: Blueprint, k: float, widths: list[int], count: Callable[[int], int], original: int
) -> PlanError:
    if not widths:
        return PlanError(
            f"{blueprint.name} has no narrower form of at least {LEAST_WIDTH} features.\n"
            "Leave miniatures out: a model this small is trained in full as cheaply."
        )
    nearest = _nearest(widths, count, original / k)
    low, high = (original / count(w) for w in (widths[-1], widths[0]))
    return PlanError(
        f"{blueprint.name} cannot be had at 1/{k:g} of its size: of widths from {LEAST_WIDTH} the nearest is {nearest}, "
        f"at 1/{original / count(nearest):.3g}.\nTry a k between {low:.3g} and {high:.3g}."
    )
