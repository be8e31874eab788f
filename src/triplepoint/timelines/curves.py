"""What is known of a run along its steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

Curve = Sequence[tuple[float, float]]
"""(step, value), steps ascending; a value may be NaN or infinite."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """What is known of a run along its steps; each curve on steps of its own, empty where it was not measured."""

    train_loss: Curve = ()
    val_loss: Curve = ()
    train_accuracy: Curve = ()
    """Shares, 0 to 1."""
    val_accuracy: Curve = ()


def named(step: float) -> str:
    """Return a step as it is read: whole numbers without a point.

    Example:
        >>> named(1200.0), named(0.25)
        ('1200', '0.25')
    """
    return f"{step:.0f}" if step == int(step) else f"{step:g}"
