"""Series of numbers -> which phase a training is in, and why. The only place that knows the phases.

Losses are nats per token; *plateau* is the cross-entropy of the training text's unigram distribution on the
windows that the loss was measured on: what a network scores that ignores its input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

Phase = Literal[
    "fitting", "memorised", "generalising", "overfitting", "stalled", "collapsed", "diverged"
]

MARGIN = 0.05
"""Nats from the plateau that count as having left it."""
CONFIRMATIONS = 3
"""Evaluations in a row that must agree: one noisy evaluation is no exit and no divergence."""
EXPLODED = 1.0
"""Nats above a uniform guess that no sound initialisation starts at: such a run has blown up."""
FROZEN_DRIFT = 0.02
"""Standard deviation over sites of alpha - alpha(0) below which the alphas count as frozen."""
FROZEN_KL = 0.001
"""Mean KL between a position's prediction and the average one, in nats, below which they count as equal."""


class Judgement(NamedTuple):
    """A phase and the sentence that says why."""

    phase: Phase
    reason: str


def plateau_exit_step(
    steps: Sequence[int],
    losses: Sequence[float],
    plateau: float,
    *,
    margin: float = MARGIN,
    confirmations: int = CONFIRMATIONS,
) -> int | None:
    """Return the first of ``confirmations`` evaluations in a row more than ``margin`` below the plateau.

    Args:
        steps: Optimiser steps of the evaluations, ascending.
        losses: Validation losses at them, nats per token.
        plateau: Nats per token.
        margin: Nats.
        confirmations: How many evaluations in a row.

    Returns:
        The step, or None where the run never left.

    Example:
        >>> plateau_exit_step([25, 50, 75, 100, 125], [3.1, 2.9, 2.8, 2.7, 2.6], plateau=3.0)
        50
    """
    return _first_run(steps, [loss < plateau - margin for loss in losses], confirmations)


def diverged_step(
    steps: Sequence[int],
    train_losses: Sequence[float],
    plateau: float,
    *,
    warmup: int,
    uniform: float | None = None,
    margin: float = MARGIN,
    confirmations: int = CONFIRMATIONS,
) -> int | None:
    """Return the step at which a run diverged: non-finite, or back above the plateau to stay.

    A loss that is not finite counts at once. A finite one counts after warm-up, when it lies more than
    ``margin`` above the plateau at ``confirmations`` evaluations in a row, having once been below it. A run
    that never got below the plateau is slow or stalled, not diverged, unless its last ``confirmations``
    evaluations after warm-up all lie more than :data:`EXPLODED` nats above a uniform guess: it then never had
    a chance.

    Args:
        steps: Optimiser steps of the evaluations, ascending.
        train_losses: Losses on the fixed train windows, nats per token.
        plateau: Nats per token, on the same windows.
        warmup: Steps of warm-up.
        uniform: Loss of a uniform guess, ln V nats; None to leave that rule out.
        margin: Nats.
        confirmations: How many evaluations in a row.

    Example:
        >>> diverged_step([10, 20, 30, 40, 50], [2.0, 9.0, 9.0, 9.0, 9.0], 3.0, warmup=20)
        30
    """
    been_below, above = False, []
    for step, loss in zip(steps, train_losses, strict=True):
        if not math.isfinite(loss):
            return step
        above.append(been_below and step > warmup and loss > plateau + margin)
        been_below = been_below or loss < plateau
    found = _first_run(steps, above, confirmations)
    if found is not None or uniform is None:
        return found
    exploded = [
        s > warmup and x > uniform + EXPLODED for s, x in zip(steps, train_losses, strict=True)
    ]
    return _first_run(steps[-confirmations:], exploded[-confirmations:], confirmations)


def _first_run(steps: Sequence[int], holds: Sequence[bool], length: int) -> int | None:
    run = 0
    for index, hold in enumerate(holds):
        run = run + 1 if hold else 0
        if run == length:
            return steps[index - length + 1]
    return None


def judge_arm(
    *,
    steps: Sequence[int],
    val_losses: Sequence[float],
    plateau: float | None,
    planned_steps: int,
    diverged_at: int | None = None,
    baseline_exit: int | None = None,
    alpha_drift_std: float | None = None,
    prediction_kl: float | None = None,
) -> Judgement:
    """Return the phase of one arm of a comparison at its last evaluation.

    ``stalled``: still on the plateau while the baseline has left it, confirmed by frozen alphas or, for an
    op without alpha, by predictions that do not depend on the input. On the plateau without that
    confirmation the arm is ``fitting``. ``collapsed``: stalled at the end of the plan, or after
    max(2000, 20 x the baseline's exit) steps. A stalled arm may still escape: runs were seen to leave the
    plateau after more than 1000 steps.

    Args:
        steps: Optimiser steps of the evaluations, ascending; not empty.
        val_losses: Validation losses at them, nats per token.
        plateau: Nats per token, on the validation windows; None where the task has none.
        planned_steps: Length of the planned run.
        diverged_at: What :func:`diverged_step` said, or the step at which the run stopped.
        baseline_exit: The baseline's :func:`plateau_exit_step`; None for the baseline itself or where it
            has not left either.
        alpha_drift_std: Standard deviation over sites of alpha - alpha(0) at the last step; None for an op
            without alpha.
        prediction_kl: At the last step, nats.
    """
    if diverged_at is not None:
        return Judgement("diverged", f"the loss left its range at step {diverged_at}")
    left = steps[0] if plateau is None else plateau_exit_step(steps, val_losses, plateau)
    if left is None:
        where = _where(val_losses[-1], plateau, steps[-1])
        return _judge_on_plateau(
            where, steps[-1], planned_steps, baseline_exit, alpha_drift_std, prediction_kl
        )
    best = min(val_losses)
    best_step = steps[list(val_losses).index(best)]
    if val_losses[-1] > best + MARGIN:
        return Judgement(
            "overfitting",
            f"validation loss has risen from {best:.3f} at step {best_step} to {val_losses[-1]:.3f}",
        )
    since = "" if plateau is None else f"left the plateau at step {left}; "
    return Judgement("generalising", f"{since}validation loss {val_losses[-1]:.3f}")


def _where(loss: float, plateau: float, step: int) -> str:
    if loss > plateau + MARGIN:
        return f"not yet down to the unigram plateau ({plateau:.3f} nats) at step {step}, validation loss {loss:.3f}"
    return f"still on the unigram plateau ({plateau:.3f} nats) at step {step}"


def _judge_on_plateau(
    on_plateau: str,
    step: int,
    planned_steps: int,
    baseline_exit: int | None,
    drift: float | None,
    kl: float | None,
) -> Judgement:
    if baseline_exit is None:
        return Judgement("fitting", f"{on_plateau}; there is no baseline that has left it")
    if drift is not None:
        frozen, sign = drift < FROZEN_DRIFT, f"alpha drift {drift:.4f}"
    elif kl is not None:
        frozen, sign = kl < FROZEN_KL, f"prediction KL {kl:.4f} nats"
    else:
        frozen, sign = False, "neither alphas nor predictions were measured"
    left = f"the baseline left it at step {baseline_exit}"
    if not frozen:
        return Judgement(
            "fitting", f"{on_plateau}, {left}; {sign}: it is moving, so slow rather than stalled"
        )
    if step >= planned_steps or step >= max(2000, 20 * baseline_exit):
        return Judgement(
            "collapsed", f"{on_plateau}, {left}; {sign}; no time left to expect an escape"
        )
    return Judgement(
        "stalled", f"{on_plateau}, {left}; {sign}: frozen. Runs have escaped later than this"
    )
