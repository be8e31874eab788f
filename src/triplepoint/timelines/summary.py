"""What whole curves say of a run: its best step, where over-fitting set in, when it memorised and generalised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from triplepoint.phases import GROKKED, MARGIN, MEMORISED, Crossing, crossing_step
from triplepoint.timelines.curves import Curves
from triplepoint.timelines.spans import Span


class Summary(NamedTuple):
    """What whole curves say."""

    best: tuple[float, float] | None
    """Step and value of the lowest finite validation loss, the first of equal ones; None without one."""
    onset: Crossing | None
    """First of :data:`CONFIRMATIONS` evaluations in a row ``margin`` above the best, after it; None if not told."""
    rise: float | None
    """Last finite validation loss - best, in the unit of the losses; at least 0."""
    times: dict[str, Crossing]
    """``T_mem`` and ``T_grok_...`` as in :func:`triplepoint.phases.grokking_times`, as far as accuracies go."""
    not_told: dict[str, str]
    """What cannot be told -> why."""


def summarise(
    curves: Curves, spans: Sequence[Span], *, plateau: float | None = None, margin: float = MARGIN
) -> Summary:
    """Return best step, over-fitting onset and times of a run from all of its curves.

    Args:
        curves: What was measured.
        spans: What :func:`phase_over` said of them.
        plateau: As there.
        margin: As there.

    Example:
        >>> from triplepoint.timelines import phase_over
        >>> curves = Curves(val_loss=[(1, 3.0), (2, 1.8), (3, 1.9), (4, 2.0), (5, 2.1)])
        >>> found = summarise(curves, phase_over(curves))
        >>> found.best, found.onset.step, round(found.rise, 3)
        ((2, 1.8), 3, 0.3)
    """
    finite = [(step, x) for step, x in curves.val_loss if math.isfinite(x)]
    best = min(finite, key=lambda point: point[1], default=None)
    not_told = _not_told(curves, plateau)
    onset = None
    if best is not None:
        tail = finite[finite.index(best) :]
        onset = crossing_step([s for s, _ in tail], [x for _, x in tail], best[1] + margin)
        if onset.step is not None and spans[-1].phase in (None, "diverged"):
            onset = None
            not_told["over-fitting onset"] = "the training loss rose as well, or was lost"
    return Summary(
        best=best,
        onset=onset,
        rise=None if best is None else finite[-1][1] - best[1],
        times=_times(curves),
        not_told=not_told,
    )


def _times(curves: Curves) -> dict[str, Crossing]:
    """Return T_mem and T_grok, each on the steps of its own curve."""
    wanted = {"T_mem": (curves.train_accuracy, MEMORISED)}
    wanted |= {f"T_grok_{level:g}": (curves.val_accuracy, level) for level in GROKKED}
    return {
        name: crossing_step([s for s, _ in curve], [x for _, x in curve], level)
        for name, (curve, level) in wanted.items()
        if curve
    }


def _not_told(curves: Curves, plateau: float | None) -> dict[str, str]:
    """Return what these curves cannot tell, and why."""
    why = {}
    if not curves.val_loss:
        why["best step, over-fitting"] = "no validation loss"
    if not curves.train_accuracy:
        why["memorised, T_mem"] = "no training accuracy"
    if not curves.val_accuracy:
        why["T_grok"] = "no validation accuracy"
    if plateau is None:
        why["divergence of a finite loss, leaving the plateau"] = (
            "the loss of a guess that ignores the input is not known"
        )
    why["stalled, collapsed"] = (
        "they are told against a baseline, from one run's log they cannot be"
    )
    return why
