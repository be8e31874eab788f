"""Slow time: one clock for every way of writing the same weight decay.

Symbols, as in the paper:
    L       sum over samples and outputs of the squared error: no mean, no 1/2
    lam     weight of the norm in L_lam = L + lam ||theta||^2, in the sum convention
    eta     flow time that one optimiser step covers
    t       slow time = 2 lam * (flow time), dimensionless; the drift along the zero-loss set has speed O(1) in it
    N       entries of the target tensor: samples times outputs
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from triplepoint.errors import PlanError


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowClock:
    """What one optimiser step means in the paper's units."""

    weight_decay: float
    """The optimiser's own setting."""
    lam: float | None
    """Weight of ||theta||^2 beside the SUM of squares; None where the optimiser has none (AdamW)."""
    flow_time_per_step: float | None
    """Time of theta' = -grad L_lam that a step covers; None where a step is no gradient step (AdamW)."""
    slow_time_per_step: float
    """2 lam times the flow time; for AdamW its nominal value, lr * weight_decay."""

    def slow_time(self, steps: int | float) -> float:
        """Return the slow time after so many steps."""
        return steps * self.slow_time_per_step

    def steps(self, slow_time: float) -> float:
        """Return the steps that a slow time takes; infinite without decay, not rounded."""
        return slow_time / self.slow_time_per_step if self.slow_time_per_step else math.inf


def slow_clock(
    *,
    lr: float,
    weight_decay: float | None = None,
    lam: float | None = None,
    entries: int = 1,
    reduction: Literal["mean", "sum"] = "mean",
    optimizer: Literal["sgd", "adamw"] = "sgd",
    momentum: float = 0.0,
) -> SlowClock:
    r"""Convert between sum or mean squares, SGD or AdamW decay, and slow time.

    With a training loss :math:`c L` (:math:`c = 1/N` for a mean, 1 for a sum), ``torch.optim.SGD`` moves by

    .. math::
        -\mathrm{lr}\,(c \nabla L + \mathrm{wd}\,\theta)
        = -\eta \nabla (L + \lambda \|\theta\|^2), \quad
        \eta = c\,\mathrm{lr}, \quad \lambda = \mathrm{wd}/(2c), \quad 2 \lambda \eta = \mathrm{lr}\,\mathrm{wd}.

    So the slow time of a step does not depend on the reduction, while ``lam`` does: a decay of 1e-4 under a mean over
    649 entries is ``lam`` = 0.032. Momentum multiplies the step by 1/(1 - momentum), once its buffer has filled.
    AdamW shrinks the weights apart from the gradient: its slow time is nominal and it has no ``lam``.

    Args:
        lr: Learning rate, above 0.
        weight_decay: The optimiser's decay, at least 0. Give this or ``lam``.
        lam: Weight of the squared norm in the sum convention, at least 0. Give this or ``weight_decay``.
        entries: N, the number of entries the mean runs over. Plays no part for ``reduction="sum"``.
        reduction: How the training loss gathers the squared errors, as in ``torch.nn.MSELoss``.
        optimizer: ``"sgd"``: decay enters the gradient. ``"adamw"``: decay is decoupled.
        momentum: SGD's momentum in [0, 1), without dampening or Nesterov.

    Returns:
        The clock, with ``weight_decay`` and ``lam`` whichever of them was given.

    Raises:
        PlanError: If a value is outside its range, or not exactly one of ``weight_decay`` and ``lam`` is given.

    Example:
        >>> clock = slow_clock(lr=1.0, weight_decay=1e-4, entries=649)
        >>> round(clock.lam, 5), round(clock.steps(0.3))
        (0.03245, 3000)
    """
    _check(lr, weight_decay, lam, entries, reduction, optimizer, momentum)
    c = 1.0 / entries if reduction == "mean" else 1.0
    wd = 2.0 * c * lam if weight_decay is None else weight_decay
    gain = 1.0 / (1.0 - momentum)
    sgd = optimizer == "sgd"
    return SlowClock(
        weight_decay=wd,
        lam=wd / (2.0 * c) if sgd else None,
        flow_time_per_step=c * lr * gain if sgd else None,
        slow_time_per_step=lr * wd * gain,
    )


def _check(lr, weight_decay, lam, entries, reduction, optimizer, momentum) -> None:
    """Refuse settings that have no slow time."""
    if optimizer not in ("sgd", "adamw"):
        raise PlanError(
            f"No slow time is known for the optimizer {optimizer!r}.\n"
            "Give 'sgd' (decay inside the gradient) or 'adamw' (decoupled); Adam's L2 term is neither."
        )
    if reduction not in ("mean", "sum"):
        raise PlanError(
            f"reduction is {reduction!r}.\nGive 'mean' or 'sum', as the training loss has it."
        )
    if (weight_decay is None) == (lam is None):
        raise PlanError(
            "Exactly one of weight_decay and lam is needed.\nGive the one that the run has."
        )
    if optimizer == "adamw" and (lam is not None or momentum):
        raise PlanError(
            "AdamW has no lam and no momentum of SGD's kind.\nGive weight_decay; its slow time is nominal."
        )
    decay = lam if weight_decay is None else weight_decay
    if not (0 < lr < math.inf and 0 <= decay < math.inf and entries >= 1 and 0 <= momentum < 1):
        raise PlanError(
            f"lr is {lr}, decay {decay}, entries {entries}, momentum {momentum}.\n"
            "Give lr > 0, decay >= 0, entries >= 1 and momentum in [0, 1)."
        )
