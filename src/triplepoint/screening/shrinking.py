"""A plan at a k-th of its size: the same epochs, T/P, steps and schedule, on fewer tokens."""

from __future__ import annotations

import dataclasses

from triplepoint.blueprints import Shrunk
from triplepoint.errors import PlanError
from triplepoint.screening.plans import Plan

FEWEST_WINDOWS = 2000
"""Fewer distinct windows than this make a miniature's losses noisy, and its data easier to learn by heart."""
LEAST_WINDOWS = 16
"""Fewer than this is no text; the record's smallest miniature has 19."""
LEAST_CONTEXT = 8
"""Tokens; a shorter window has next to nothing to predict from."""
OFF = 0.02
"""The epochs are said where rounding the batch moves them by more than this share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShrunkPlan:
    """What a miniature trains, and what was done to get there."""

    plan: Plan
    """Its own: ``unique_tokens`` and ``batch`` are smaller."""
    context: int
    """Tokens per sequence."""
    notes: tuple[str, ...]
    """In plain sentences: what could not be kept, and what is unproven."""


def shrink_plan(plan: Plan, model: Shrunk, *, context: int) -> ShrunkPlan:
    r"""Return the plan for a model with k times fewer parameters P, embeddings aside.

    Kept: steps, warm-up, schedule, rates, weight decay :math:`\lambda`; T/P, as unique tokens T shrink by k; epochs, as
    tokens per step B do; and so AdamW's timescale in epochs, :math:`B / (\eta \lambda T)`. B shrinks by the batch, and
    by the context where one sequence is left.

    Args:
        plan: With its unique tokens.
        model: The narrower model, which says the k that was reached.
        context: Tokens per sequence of the plan.

    Raises:
        PlanError: If the unique tokens are not known, or too few are left.

    References:
        Wang and Aitchison (2024), arXiv 2405.13698 (the timescale).

    Example:
        >>> from triplepoint.blueprints import blueprint_of, shrink
        >>> small = shrink(blueprint_of("gpt2-0.8m"), 16)
        >>> found = shrink_plan(Plan(steps=1500, unique_tokens=1_600_000), small, context=128)
        >>> round(found.plan.unique_tokens, -3), found.plan.batch, found.context  # of 8 x 128 per step 64 are left
        (100000, 1, 64)
    """
    if plan.unique_tokens is None:
        raise PlanError(
            "A plan without its number of unique tokens cannot be shrunk.\n"
            "Give Plan(unique_tokens=...): the distinct tokens of its training text."
        )
    k = model.k
    batch = max(1, round(plan.batch / k))
    length = context if plan.batch >= k else round(context * plan.batch / k)
    tokens = round(plan.unique_tokens / k)
    few = f"Leave miniatures out: a plan this small is trained in full as cheaply; or give {'a larger batch' if length < LEAST_CONTEXT else 'more tokens'}."
    if length < LEAST_CONTEXT or tokens < LEAST_WINDOWS * length:
        raise PlanError(
            f"At 1/{k:.3g} the plan has {tokens} unique tokens, in windows of {length}: too few to train on.\n{few}"
        )
    small = dataclasses.replace(plan, unique_tokens=tokens, batch=batch)
    kept = (batch * length * plan.unique_tokens) / (plan.batch * context * tokens)
    notes = _notes(small, model, length, context) + ([f"Epochs are {kept:.2f} times the plan's: a batch is a whole number."] if abs(kept - 1) > OFF else [])  # fmt: skip
    return ShrunkPlan(plan=small, context=length, notes=tuple(notes))


def _notes(plan: Plan, model: Shrunk, length: int, context: int) -> list[str]:
    notes = [
        f"Width {model.width}, as deep as the original, has 1/{model.k:.3g} of its parameters, embeddings aside; "
        "presets go by this width.",
        f"The rate is the plan's, {plan.lr:g}: that rates carry over between widths is unproven for point-wise ops.",
    ]
    if length < context:
        notes.append(
            f"One sequence per step is left, and its context is {length} instead of {context}: losses are higher for it in every arm."
        )
    windows = plan.unique_tokens // length
    if windows < FEWEST_WINDOWS:
        notes.append(
            f"Its text has {windows} windows of {length} tokens; {FEWEST_WINDOWS} are advised, and fewer make its end noisy."
        )
    return notes
