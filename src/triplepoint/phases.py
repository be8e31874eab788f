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
FROZEN_KL = 0.02
"""Mean KL between a position's prediction and the average one, in nats, below which they count as equal. Runs that never
left the plateau were seen at up to 0.016, and runs that left it above 0.02 an evaluation or two before."""
MEMORISED = 0.99
"""Train accuracy from which the training set counts as memorised: one label in a hundred may be wrong."""
GROKKED = (0.5, 0.9, 0.99)
"""Validation accuracies whose times are reported: half way, mostly, and what is called grokked."""
COLLAPSED_SHARE = 0.5
"""Share of train samples with a loss of exactly 0 above which softmax collapse is spoken of: most gradients are 0."""


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

    ``stalled``: still on the plateau while the baseline has left it, confirmed by predictions that do not
    depend on the input or, where those were not measured, by frozen alphas. On the plateau without that
    confirmation, or below it at the last evaluation, the arm is ``fitting``. ``collapsed``: stalled at the
    end of the plan, or after max(2000, 20 x the baseline's exit) steps. A stalled arm may still escape, and
    most do: runs were seen to leave the plateau after more than 1000 steps.

    Args:
        steps: Optimiser steps of the evaluations, ascending; not empty.
        val_losses: Validation losses at them, nats per token.
        plateau: Nats per token, on the validation windows; None where the task has none.
        planned_steps: Length of the planned run.
        diverged_at: What :func:`diverged_step` said, or the step at which the run stopped.
        baseline_exit: The baseline's :func:`plateau_exit_step`; None for the baseline itself or where it
            has not left either.
        alpha_drift_std: Standard deviation over sites of alpha - alpha(0) at the last step; None for an op
            without alpha. Read only without ``prediction_kl``.
        prediction_kl: At the last step, nats; None where it was not measured.
    """
    if diverged_at is not None:
        return Judgement("diverged", f"the loss left its range at step {diverged_at}")
    left = steps[0] if plateau is None else plateau_exit_step(steps, val_losses, plateau)
    if left is None:
        where = _where(val_losses[-1], plateau, steps[-1])
        if val_losses[-1] < plateau - MARGIN:
            return Judgement("fitting", f"{where}; not yet {CONFIRMATIONS} evaluations in a row")
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
    if abs(loss - plateau) > MARGIN:
        place = "not yet down to" if loss > plateau else "below"
        return f"{place} the unigram plateau ({plateau:.3f} nats) at step {step}, validation loss {loss:.3f}"
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
    if kl is not None:  # first: at a high rate alphas wander while nothing is learnt
        frozen, sign = kl < FROZEN_KL, f"prediction KL {kl:.4f} nats"
    elif drift is not None:
        frozen, sign = drift < FROZEN_DRIFT, f"alpha drift {drift:.4f}"
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


class Crossing(NamedTuple):
    """When a series rose to a threshold, or until when it had not."""

    step: int | None
    """First of the evaluations in a row; None where it did not happen while the run was watched."""
    censored_at: int | None
    """Where ``step`` is None: it happens later than this step, if ever. None where ``step`` is known."""


def crossing_step(
    steps: Sequence[int],
    values: Sequence[float],
    threshold: float,
    *,
    persistence: int = CONFIRMATIONS,
) -> Crossing:
    """Return the first of ``persistence`` evaluations in a row at or above a threshold.

    A run that ends before that is right-censored, not "never". Its last evaluations may lie above the threshold
    without being confirmed; the crossing may then turn out to be the first of them, so the censoring step is the
    last evaluation below.

    Args:
        steps: Optimiser steps of the evaluations, ascending.
        values: What was measured at them; nan counts as below.
        threshold: In the unit of the values.
        persistence: How many evaluations in a row.

    Returns:
        The step, or the step at which the run is censored: 0 where nothing below was seen.

    Example:
        >>> crossing_step([100, 200, 300, 400, 500], [0.2, 0.99, 0.98, 0.99, 1.0], 0.98)
        Crossing(step=200, censored_at=None)
        >>> crossing_step([100, 200, 300], [0.2, 0.5, 0.99], 0.98)
        Crossing(step=None, censored_at=200)
    """
    holds = [value >= threshold for value in values]
    found = _first_run(steps, holds, persistence)
    if found is not None:
        return Crossing(found, None)
    below = [step for step, hold in zip(steps, holds, strict=True) if not hold]
    return Crossing(None, below[-1] if below else 0)


def grokking_times(
    steps: Sequence[int],
    train_accuracies: Sequence[float],
    val_accuracies: Sequence[float] | None = None,
    *,
    persistence: int = CONFIRMATIONS,
) -> dict[str, Crossing]:
    """Return when a run memorised and when it generalised, each with the persistence rule.

    Args:
        steps: Optimiser steps of the evaluations, ascending.
        train_accuracies: Shares of the training samples answered rightly.
        val_accuracies: The same on samples that are held out; None where there are none.
        persistence: How many evaluations in a row.

    Returns:
        ``T_mem`` (:data:`MEMORISED`) and, with held-out samples, ``T_grok_0.5``, ``T_grok_0.9`` and ``T_grok_0.99``.

    Example:
        >>> times = grokking_times([1, 2, 3, 4], [1, 1, 1, 1], [0, 0.6, 0.7, 0.8])
        >>> times["T_mem"].step, times["T_grok_0.5"].step, times["T_grok_0.9"].censored_at
        (1, 2, 4)
    """
    times = {"T_mem": crossing_step(steps, train_accuracies, MEMORISED, persistence=persistence)}
    if val_accuracies is not None:
        for level in GROKKED:
            found = crossing_step(steps, val_accuracies, level, persistence=persistence)
            times[f"T_grok_{level:g}"] = found
    return times


def judge_grokking(
    *,
    steps: Sequence[int],
    train_accuracies: Sequence[float],
    val_accuracies: Sequence[float] | None = None,
    chance: float = 0.0,
    zero_loss_share: float = 0.0,
    diverged_at: int | None = None,
) -> Judgement:
    """Return the phase of a classification run at its last evaluation.

    ``generalising``: validation accuracy half way between chance and 1, confirmed and still there. ``memorised``:
    train accuracy :data:`MEMORISED`, confirmed and still there, without that. ``fitting``: neither. Softmax
    collapse is no phase of its own but said in the reason: with most losses rounded to exactly 0 the gradient
    has vanished, and a run that has not generalised by then often does not.

    Args:
        steps: Optimiser steps of the evaluations, ascending; not empty.
        train_accuracies: Shares of the training samples answered rightly.
        val_accuracies: The same on held-out samples; None where there are none.
        chance: Accuracy of a guess, 1/classes.
        zero_loss_share: Share of the training samples whose loss is exactly 0 in the run's dtype.
        diverged_at: Step at which a loss was not finite.

    References:
        Prieto et al. (2025), arXiv 2501.04697: softmax collapse.

    Example:
        >>> judge_grokking(steps=[1, 2, 3], train_accuracies=[1, 1, 1], val_accuracies=[0.1, 0.1, 0.1]).phase
        'memorised'
    """
    if diverged_at is not None:
        return Judgement("diverged", f"the loss is not finite at step {diverged_at}")
    train, last = train_accuracies[-1], steps[-1]
    memorised = crossing_step(steps, train_accuracies, MEMORISED).step
    half = (1 + chance) / 2
    learnt = None if val_accuracies is None else crossing_step(steps, val_accuracies, half).step
    if learnt is not None and val_accuracies[-1] >= half:
        return Judgement("generalising", _generalising(steps, val_accuracies, learnt, half))
    if memorised is None or train < MEMORISED:
        unconfirmed = f"; {MEMORISED} not yet at {CONFIRMATIONS} evaluations in a row"
        since = "" if train < MEMORISED else unconfirmed
        since = since if memorised is None else f"; it was memorised at step {memorised}"
        return Judgement("fitting", f"train accuracy {train:.3f} at step {last}{since}")
    reason = f"train accuracy {MEMORISED} since step {memorised}, "
    if val_accuracies is None:
        reason += "and no held-out samples to tell whether it generalises"
    else:
        reason += f"validation accuracy {val_accuracies[-1]:.3f} at step {last}"
        reason += "" if learnt is None else f", fallen back from {half:.2f} at step {learnt}"
    return Judgement("memorised", reason + _collapse(zero_loss_share))


def _generalising(steps: Sequence[int], values: Sequence[float], since: int, half: float) -> str:
    grokked = crossing_step(steps, values, GROKKED[-1]).step
    tail = "" if grokked is None else f", {GROKKED[-1]} since step {grokked}"
    return f"validation accuracy {half:.2f} since step {since}{tail}; {values[-1]:.3f} at step {steps[-1]}"


def _collapse(share: float) -> str:
    if share < COLLAPSED_SHARE:
        return ""
    return (
        f"; softmax collapse: {share:.0%} of the train samples have a loss of exactly 0, so hardly a gradient is "
        "left. Try float64 logits, more weight decay, or a softmax that does not saturate"
    )
