"""The phase of a run at each of its steps.

What :mod:`triplepoint.phases` judges at the last evaluation is judged here at each, with one rule more: a phase is
entered and left by evaluations in a row, so that a curve of a thousand noisy evaluations has few phases, not hundreds.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from triplepoint.phases import MARGIN, Phase
from triplepoint.timelines.curves import Curves
from triplepoint.timelines.watching import Watch


class Span(NamedTuple):
    """Consecutive steps in one phase."""

    from_step: float
    """Where the phase was first told: its cause may lie :data:`CONFIRMATIONS` - 1 evaluations earlier."""
    to_step: float
    phase: Phase | None
    """None where the curves do not tell."""
    reason: str
    """What told it, with the values at ``to_step``."""


def phase_over(
    curves: Curves, *, plateau: float | None = None, chance: float = 0.0, margin: float = MARGIN
) -> list[Span]:
    """Return the phases of a run over its steps; each step's phase is told from what was measured up to it.

    ``diverged``: a loss is not finite, or, where a plateau is given, the training loss is ``margin`` above it after
    having been below, or :data:`EXPLODED` above both it and its own first value. With accuracies on both parts
    ``fitting``, ``memorised`` and ``generalising`` are those of :func:`triplepoint.phases.judge_grokking`. From losses:
    ``overfitting``, validation loss ``margin`` above its best so far while training loss (mean since the last
    evaluation) is not; if it is, the phase is None. ``generalising``, validation loss ``margin`` below the plateau, or
    below its own first value where none is given; else ``fitting``. All but a non-finite loss are entered by
    :data:`CONFIRMATIONS` evaluations in a row, and all are left by as many.

    Not :func:`triplepoint.phases.judge_arm`, which compares with a baseline: stalled and collapsed are not told from
    one run.

    Args:
        curves: What was measured.
        plateau: Loss of a guess that ignores the input, nats per token; None where it is not known.
        chance: Accuracy of a guess, 1/classes.
        margin: In the unit of the losses.

    Returns:
        Spans in order, neighbours in different phases; empty for empty curves.

    Example:
        >>> falls_then_rises = [(1, 3.0), (2, 2.0), (3, 1.9), (4, 1.8), (5, 2.0), (6, 2.1), (7, 2.2)]
        >>> [span[:3] for span in phase_over(Curves(val_loss=falls_then_rises))]
        [(1, 3, 'fitting'), (4, 6, 'generalising'), (7, 7, 'overfitting')]
    """
    watch, spans = Watch(plateau, chance, margin), []
    for step, points in itertools.groupby(_merged(curves), key=lambda point: point[0]):
        for _, _, name, value in points:
            getattr(watch, name)(step, value)
        phase = watch.phase()
        goes_on = bool(spans) and spans[-1].phase == phase
        start = spans.pop().from_step if goes_on else step
        spans.append(Span(start, step, phase, watch.reason()))
    return spans


def _merged(curves: Curves) -> Iterator[tuple[float, int, str, float]]:
    """Yield (step, order, curve, value): at one step the training loss comes before the validation loss."""
    names = [field.name for field in dataclasses.fields(Curves)]
    return heapq.merge(
        *(
            [(step, order, name, value) for step, value in getattr(curves, name)]
            for order, name in enumerate(names)
        )
    )
